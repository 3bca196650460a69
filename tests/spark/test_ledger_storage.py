from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest

from headerware.spark_bridge.batches.storage import MAX_TEXT_BYTES, LedgerError, Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=["classic", "connect"])
def session(request: pytest.FixtureRequest, spark: SparkSession, no_jvm: SparkSession) -> SparkSession:
    return spark if request.param == "classic" else no_jvm


@pytest.fixture
def storage(session: SparkSession, tmp_path: Path) -> Storage:
    return Storage(session, tmp_path / "store")


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class TestStorage:
    def test_reads_what_it_wrote(self, storage: Storage) -> None:
        assert storage.write_text("a/b.json", "héllo\n")
        assert storage.read_text("a/b.json") == "héllo\n"

    def test_leaves_nothing_else_beside_it(self, storage: Storage, tmp_path: Path) -> None:
        storage.write_text("a/b.json", "1")
        assert files_in(tmp_path) == ["store/a/b.json"]

    def test_never_replaces_what_is_there(self, storage: Storage, tmp_path: Path) -> None:
        storage.write_text("a", "first")
        assert not storage.write_text("a", "second")
        assert storage.read_text("a") == "first"
        assert files_in(tmp_path) == ["store/a"]

    def test_tells_what_exists(self, storage: Storage) -> None:
        storage.write_text("a/b", "1")
        assert [storage.exists(name) for name in ("a", "a/b", "b")] == [True, True, False]

    def test_names_are_sorted_and_without_hidden_ones(self, storage: Storage, tmp_path: Path) -> None:
        for name in ("b", "a"):
            storage.write_text(f"x/{name}", "1")
        (tmp_path / "store/x/.b.crc").write_bytes(b"?")
        (tmp_path / "store/x/_SUCCESS").write_bytes(b"")
        assert storage.names("x") == ("a", "b")

    def test_no_folder_has_no_names(self, storage: Storage) -> None:
        assert storage.names("nowhere") == ()

    def test_deletes_folders_and_minds_nothing_that_is_absent(self, storage: Storage, tmp_path: Path) -> None:
        storage.write_text("a/b/c", "1")
        storage.delete("a")
        storage.delete("a")
        assert files_in(tmp_path) == []

    def test_deletes_what_killed_writers_left(self, storage: Storage, tmp_path: Path) -> None:
        (tmp_path / "store/tmp").mkdir(parents=True)
        (tmp_path / "store/tmp/half").write_bytes(b"ha")
        storage.delete_temporary()
        assert files_in(tmp_path) == []

    @pytest.mark.parametrize("name", ["with space", "dé/ü", "a%20b", "[x]{y}*?", "a=b", "comma,colon;"])
    def test_takes_folders_as_they_are_called(self, session: SparkSession, tmp_path: Path, name: str) -> None:
        Storage(session, str(tmp_path / name)).write_text("t", "1")
        assert (tmp_path / name / "t").read_text() == "1"

    def test_takes_uris_and_gives_the_same_paths(self, spark: SparkSession, tmp_path: Path) -> None:
        by_uri = Storage(spark, f"file://{tmp_path}/r")
        assert by_uri.path("x") == Storage(spark, tmp_path / "r").path("x") == f"file:{tmp_path}/r/x"

    def test_a_relative_folder_is_that_of_sparks_driver(self, spark: SparkSession) -> None:
        jvm = spark._jvm
        assert jvm is not None
        folder = jvm.java.lang.System.getProperty("user.dir")
        assert Storage(spark, "some/where").path("x") == f"file:{folder}/some/where/x"

    def test_an_absent_file_is_named(self, storage: Storage) -> None:
        with pytest.raises(LedgerError, match=r"cannot read (file:)?/.*/store/absent: FileNotFound(Exc|Err)"):
            storage.read_text("absent")

    def test_bytes_that_are_no_text_are_refused(self, storage: Storage, tmp_path: Path) -> None:
        (tmp_path / "store").mkdir()
        (tmp_path / "store/x").write_bytes(b"\xff\xfe")
        with pytest.raises(LedgerError, match=r"store/x: expected UTF-8"):
            storage.read_text("x")

    def test_a_huge_file_is_refused_unread(self, storage: Storage, tmp_path: Path) -> None:
        (tmp_path / "store").mkdir()
        with (tmp_path / "store/x").open("wb") as file:
            file.truncate(MAX_TEXT_BYTES + 1)
        with pytest.raises(LedgerError, match=r"store/x: expected at most"):
            storage.read_text("x")

    def test_a_checksum_file_of_another_breaks_nothing(self, storage: Storage, tmp_path: Path) -> None:
        storage.write_text("x", "1")
        (tmp_path / "store/.x.crc").write_bytes(b"crc\0\0\0\2\0 wrong")
        assert storage.read_text("x") == "1"

    def test_a_folder_in_the_way_is_told(self, storage: Storage, tmp_path: Path) -> None:
        (tmp_path / "store").write_text("a file")
        with pytest.raises(LedgerError, match="cannot write"):
            storage.write_text("x/y", "1")

    @pytest.mark.parametrize("root", ["nonesuch://host/x", "a:b/c"])
    def test_a_folder_that_cannot_be_is_refused(self, session: SparkSession, root: str) -> None:
        with pytest.raises(LedgerError, match=f"cannot reach {root}"):
            Storage(session, root)

    def test_of_many_writers_one_wins_and_none_is_half(self, storage: Storage, tmp_path: Path) -> None:
        texts = [str(each) * 100_000 for each in range(8)]
        threads = [threading.Thread(target=storage.write_text, args=("x", text)) for text in texts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert storage.read_text("x") in texts
        assert files_in(tmp_path) == ["store/x"]


class TestWithoutJvm:
    @pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
    def test_keeps_the_path_as_spark_takes_it(self, no_jvm: SparkSession, tmp_path: Path, form: str) -> None:
        storage = Storage(no_jvm, form.format(tmp_path / "a%20b"))
        storage.write_text("x", "1")
        assert (tmp_path / "a%20b/x").read_text() == "1"
        assert storage.path("x") == form.format(tmp_path / "a%20b/x")

    def test_a_relative_folder_is_that_of_the_process(
        self, no_jvm: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert Storage(no_jvm, "some/where").path("x") == f"{tmp_path}/some/where/x"

    def test_knows_databricks_volumes_as_folders(self, no_jvm: SparkSession) -> None:
        storage = Storage(no_jvm, "dbfs:/Volumes/main/orders")
        with pytest.raises(LedgerError, match="'/Volumes/main/orders/x'"):
            storage.read_text("x")

    @pytest.mark.one_spark
    def test_object_stores(self, no_jvm: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        from moto.server import ThreadedMotoServer  # noqa: PLC0415 - not in the other environments

        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            host, port = server.get_host_and_port()
            for name, value in {
                "AWS_ENDPOINT_URL": f"http://{host}:{port}",
                "AWS_ACCESS_KEY_ID": "id",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_DEFAULT_REGION": "us-east-1",
            }.items():
                monkeypatch.setenv(name, value)
            boto3.client("s3").create_bucket(Bucket="ledgers")
            storage = Storage(no_jvm, "s3a://ledgers/orders/headerware")
            assert [storage.write_text("a/b", text) for text in ("first", "second")] == [True, False]
            assert (storage.read_text("a/b"), storage.names("a"), storage.names("c")) == ("first", ("b",), ())
            assert storage.path("a") == "s3a://ledgers/orders/headerware/a"
            storage.delete("a")
            storage.delete_temporary()
            assert not storage.exists("a")
            with pytest.raises(LedgerError, match="cannot read s3a://ledgers/orders/headerware/a/b"):
                storage.read_text("a/b")
        finally:
            server.stop()


KILLED = """
import sys, uuid
from pyspark.sql import SparkSession
from headerware.spark_bridge.batches.storage import Storage
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
storage = Storage(spark, sys.argv[1])
print("ready", flush=True)
while True:
    storage.write_text(f"all/{uuid.uuid4().hex}", "x" * 300_000)
"""


def sizes_in(folder: Path) -> list[int]:
    return [path.stat().st_size for path in folder.iterdir()] if folder.exists() else []


@pytest.mark.long
class TestKilledWriter:
    def test_never_shows_half_a_file_under_its_name(self, tmp_path: Path) -> None:
        env = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        with subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
        ) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            seen: set[int] = set()
            while len(sizes := sizes_in(tmp_path / "all")) < 200:
                assert writer.poll() is None
                seen |= set(sizes)
            os.killpg(writer.pid, signal.SIGKILL)
        assert seen | set(sizes_in(tmp_path / "all")) == {300_000}
