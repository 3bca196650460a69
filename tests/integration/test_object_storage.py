"""The source ``objects``, against moto's S3, and a server that lists endlessly."""

from __future__ import annotations

import io
import os
import re
import threading
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count, islice
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from headerware.core.errors import ConfigError, ObjectError, SourceError
from headerware.sources import (
    Extracted,
    Input,
    NativeItem,
    Source,
    SourceConfig,
    SourceContext,
    open_source,
)
from headerware.sources.conformance import SourceConformance
from headerware.sources.extractor import extracted
from headerware.sources.extractors import JsonLinesExtractor, ParquetExtractor
from headerware.sources.ready import Files, ObjectStorage, objects
from headerware.spark_bridge.native.manifests import ManifestFolder
from headerware.spark_bridge.native.planner import INITIAL, Limits, Planner

if TYPE_CHECKING:
    from pathlib import Path

REGION = "eu-central-1"
_numbers = count(1)


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "tests")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


class Bucket:
    """A bucket of moto's, with some objects; its server forgets nothing, so that each has its own name."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.name = f"orders-{next(_numbers)}"
        self.client = boto3.client("s3", region_name=REGION, endpoint_url=self.url)
        self.client.create_bucket(Bucket=self.name, CreateBucketConfiguration={"LocationConstraint": REGION})
        for name in ("in/a", "in/b c/ü.jsonl", "in/c", "in/c-d", "in/c/e", "other/x"):
            self.put(name, b"1\n2\n")

    def put(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=name, Body=data)

    def source(self, **options: Any) -> ObjectStorage:
        store = {"endpoint": self.url, "region": REGION}
        return ObjectStorage(
            **{"url": f"s3://{self.name}/in", "options": store, "allow_http": True, **options}
        )

    def items(self, start: str | None = None, **options: Any) -> list[NativeItem]:
        return list(open_source(self.source(**options), SourceContext()).items(start))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield server.get_host_and_port()[1]
    server.stop()


@pytest.fixture
def bucket(port: int) -> Bucket:
    return Bucket(port)


class TestConformance(SourceConformance):
    extractor = "jsonl"

    @pytest.fixture(autouse=True)
    def filled(self, bucket: Bucket) -> None:
        self.bucket = bucket

    def make_source(self) -> Source[Any]:
        return self.bucket.source()

    def add_late(self) -> None:
        self.bucket.put("in/bb", b"3\n")

    def change(self, key: Any) -> None:
        self.bucket.put(f"in/{key}", b"changed\n")

    def remove(self, key: Any) -> None:
        self.bucket.client.delete_object(Bucket=self.bucket.name, Key=f"in/{key}")


class TestListing:
    def test_is_below_the_prefix_in_order(self, bucket: Bucket) -> None:
        assert [item.context.key for item in bucket.items()] == ["a", "b c/ü.jsonl", "c", "c-d", "c/e"]
        assert [item.context.key for item in bucket.items("c")] == ["c-d", "c/e"]
        assert [item.context.key for item in bucket.items(include=["*.jsonl"])] == ["b c/ü.jsonl"]

    def test_leaves_out_the_markers_of_folders(self, bucket: Bucket) -> None:
        bucket.put("in/b/", b"")
        assert len(bucket.items()) == 5

    @pytest.mark.parametrize("name", ["a//b", "a/../b", "./b", "a\tb"])
    def test_of_a_name_that_obstore_does_not_take_is_an_error(self, bucket: Bucket, name: str) -> None:
        bucket.put(f"in/{name}", b"1\n")
        with pytest.raises(SourceError, match=f'"in/{re.escape(name)}"'):
            bucket.items()

    def test_of_a_bucket_that_is_not_there_is_an_error(self, bucket: Bucket) -> None:
        with pytest.raises(OSError, match="404"):
            bucket.items(url="s3://no-such-bucket")

    def test_in_a_process_that_was_forked_is_an_error(
        self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(objects, "_used_by", [os.getpid() + 1])
        with pytest.raises(SourceError, match="forked"):
            bucket.items()


class TestReading:
    def test_asks_for_longer_and_longer_parts(self, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(objects, "_FIRST_READ_BYTES", 1 << 10)
        monkeypatch.setattr(objects, "_LONGEST_READ_BYTES", 1 << 12)
        data = b"".join(b"%d\n" % number for number in range(10_000))
        bucket.put("in/large", data)
        item = bucket.items(include=["large"])[0]
        found = [record for _, record in extracted(JsonLinesExtractor(), Input(item))]
        assert [record.value for record in found if isinstance(record, Extracted)] == list(range(10_000))
        rest = extracted(JsonLinesExtractor(), Input(item, skip=9_998, properties=found[9_997].properties))  # type: ignore[union-attr]
        assert [number for number, _ in rest] == [9_999, 10_000]

    def test_seeks(self, bucket: Bucket) -> None:
        stream = io.BytesIO()
        pq.write_table(pa.table({"n": list(range(1_000))}), stream, row_group_size=100)
        bucket.put("in/table.parquet", stream.getvalue())
        item = bucket.items(include=["*.parquet"])[0]
        found = [record for _, record in extracted(ParquetExtractor(), Input(item))]
        assert [record.value["n"] for record in found if isinstance(record, Extracted)] == list(range(1_000))

    def test_of_what_has_changed_since_is_an_error(self, bucket: Bucket) -> None:
        item = bucket.items()[0]
        bucket.put("in/a", b"others\n")
        with pytest.raises(ObjectError, match="has changed"):
            item.open_stream().read()


class TestOptions:
    @pytest.mark.parametrize("url", ["/data", "file:///data", "http://host/bucket"])
    def test_of_other_addresses_are_refused(self, url: str) -> None:
        with pytest.raises(ConfigError, match="url"):
            ObjectStorage(url=url)

    def test_that_obstore_does_not_know_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="options"):
            open_source(ObjectStorage(url="s3://b", options={"nonsense": "1"}), SourceContext())

    @pytest.mark.parametrize("option", ["allow_http", "aws_conditional_put"])
    def test_that_make_obstore_fail_are_refused_without_their_values(self, option: str) -> None:
        with pytest.raises(ConfigError, match="options: the store") as raised:
            open_source(ObjectStorage(url="s3://b", options={option: "SECRET"}), SourceContext())
        assert "SECRET" not in str(raised.value)

    @pytest.mark.parametrize(
        ("endpoint", "error"), [("minio:9000", SourceError), ("http://user:SECRET@127.0.0.1:1", OSError)]
    )
    def test_of_an_endpoint_that_cannot_be_are_an_error(self, endpoint: str, error: type[Exception]) -> None:
        source = ObjectStorage(url="s3://b", options={"endpoint": endpoint}, allow_http=True)
        with pytest.raises(error) as raised:
            list(open_source(source, SourceContext()).items(None))
        assert "SECRET" not in str(raised.value)


class _Endless(BaseHTTPRequestHandler):
    """Lists pages of a thousand objects each, as S3 does, without having them."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        page = int(parse_qs(urlsplit(self.path).query).get("continuation-token", ["0"])[0])
        self.asked.append(page)
        rows = "".join(
            f"<Contents><Key>{page:06d}/{number:04d}</Key><LastModified>2026-11-23T04:05:06.000Z</LastModified>"
            f"<ETag>&quot;{page}&quot;</ETag><Size>12</Size></Contents>"
            for number in range(1_000)
        )
        body = (
            f"<ListBucketResult><Name>b</Name><KeyCount>1000</KeyCount><IsTruncated>true</IsTruncated>"
            f"<NextContinuationToken>{page + 1}</NextContinuationToken>{rows}</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


class TestManyObjects:
    def test_are_listed_without_holding_them(self) -> None:
        with ThreadingHTTPServer(("127.0.0.1", 0), _Endless) as server:
            server.daemon_threads = True
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            options = {"endpoint": f"http://127.0.0.1:{server.server_address[1]}", "region": REGION}
            source = ObjectStorage(url="s3://bucket", options=options, allow_http=True)
            listing = open_source(source, SourceContext()).items(None)
            assert next(listing).context.key == "000000/0000"
            assert len(_Endless.asked) <= 3  # it asks ahead, but not for everything
            sum(1 for _ in islice(listing, 5_000))
            tracemalloc.start()
            try:
                sum(1 for _ in islice(listing, 2_000))
                early = tracemalloc.get_traced_memory()[1]
                tracemalloc.reset_peak()
                assert sum(1 for _ in islice(listing, 20_000)) == 20_000
                assert tracemalloc.get_traced_memory()[1] < early + (1 << 20)
            finally:
                tracemalloc.stop()
                server.shutdown()
                thread.join()


class TestManifests:
    """Those of Spark's streams, by pyarrow's own S3."""

    @pytest.fixture
    def location(self, bucket: Bucket) -> str:
        endpoint = bucket.url.removeprefix("http://")
        return f"s3a://{bucket.name}/checkpoint?region={REGION}&scheme=http&endpoint_override={endpoint}"

    def planner(self, folder: Path, location: str) -> Planner:
        source = Files(folder=str(folder))
        config = SourceConfig(name="spool", source=source, extractor=JsonLinesExtractor(), topic="t")
        return Planner(config, ManifestFolder(location), Limits(objects=1))

    def test_repeat_a_batch(self, location: str, tmp_path: Path) -> None:
        for name in "ab":
            (tmp_path / name).touch()
        planner = self.planner(tmp_path, location)
        end = planner.latest(None)
        restarted = self.planner(tmp_path, location)
        (task,) = restarted.partitions(INITIAL, end)
        assert [part.item.context.key for part in task.parts] == ["a"]
        following = restarted.latest(end)
        assert planner.latest(end) == end  # whose tasks nobody has asked for
        planner.partitions(INITIAL, end)
        assert planner.latest(end) == following
        (task,) = planner.partitions(end, following)
        assert [part.item.context.key for part in task.parts] == ["b"]

    def test_need_a_bucket_at_the_start(self, location: str, bucket: Bucket, tmp_path: Path) -> None:
        nowhere = location.replace(bucket.name, "no-such-bucket")
        with pytest.raises(SourceError, match=r"cannot write .*no-such-bucket/checkpoint: "):
            self.planner(tmp_path, nowhere).latest(None)
