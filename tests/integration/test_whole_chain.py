"""Everything at once, on the real broker: one TOML file at both ends, and messages of every size."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headerware import Headers, load_chain
from headerware.interceptors import Compress, Sign, Slice, Trail, read_trail

if TYPE_CHECKING:
    from tests.integration.conftest import Acknowledgements, Cluster, Reports

pytestmark = pytest.mark.broker

SEND_VALUES = Path(__file__).parent / "programs" / "send_values.py"
MEBIBYTE = 2**20
KEPT = ("a", "a", "content-type", "traceparent", "hw.trail")


def digest(value: bytes | None) -> str:
    return hashlib.sha256(value or b"").hexdigest()


class TestOneFileAtBothEnds:
    @pytest.fixture
    def values(self, tmp_path: Path) -> dict[str, bytes]:
        """Return values that take each way through the chain, by name, and write them to files."""
        noise = random.Random(7).randbytes
        values = {
            "small": b"too small to compress",
            "empty": b"",
            "text": b"compressible, and then small enough; " * 10_000,
            "noise": noise(20_000),
            "large": noise(MEBIBYTE),
        }
        for name, value in values.items():
            (tmp_path / name).write_bytes(value)
        return values

    def test_everything_comes_back(
        self, cluster: Cluster, chain_file: Path, values: dict[str, bytes], tmp_path: Path
    ) -> None:
        topic = cluster.topic("whole")
        files = [str(tmp_path / name) for name in values]
        done = subprocess.run(
            [sys.executable, str(SEND_VALUES), cluster.servers, topic, *files],
            env={**os.environ, "HEADERWARE_CONFIG": str(chain_file), "SERVICE": "orders"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout) == [None] * len(values), "one report for each, without an error"

        consumer = cluster.consumer(topic, chain=load_chain(chain_file))
        messages = cluster.rest_of(consumer, topic)
        received = {(message.key() or b"").decode(): message for message in messages}
        assert len(messages) == len(values)
        assert {name: digest(message.value()) for name, message in received.items()} == {
            name: digest(value) for name, value in values.items()
        }
        for message in messages:
            headers = Headers(message.headers())
            assert headers.names() == KEPT
            assert headers[:2] == (("a", b"1"), ("a", None))
            assert headers.last("traceparent") == f"00-{1:032x}-{2:016x}-01".encode()
            entries = list(read_trail(headers))
            assert [entry.by_whom for entry in entries] == ["orders", "test"]
            assert [entry.produced_into_topic for entry in entries] == [topic, None]
            assert [entry.read_from_topic for entry in entries] == [None, topic]

        on_the_wire: dict[str, list[tuple[str, ...]]] = {}
        for message in cluster.on_the_wire(topic):
            names = Headers(message.headers()).names()
            on_the_wire.setdefault((message.key() or b"").decode(), []).append(names)
        for name in ("small", "empty", "noise"):
            assert on_the_wire[name] == [(*KEPT, "hw.sig")]
        assert on_the_wire["text"] == [(*KEPT, "hw.compress", "hw.sig")]
        first, *later = on_the_wire["large"]
        assert first == (*KEPT, "hw.slice", "hw.sig")
        assert len(later) >= MEBIBYTE // 100_000
        assert set(later) == {("hw.slice", "hw.sig")}


class TestLargeMessages:
    def test_64_mebibytes_pass_through_a_topic_with_the_default_limit(
        self,
        cluster: Cluster,
        keyring: str,
        reports: Reports,
        acknowledgements: Acknowledgements,
    ) -> None:
        topic = cluster.topic("large")
        chain = [Trail(), Compress(), Slice(), Sign(keyring=keyring, key_id="test")]
        value = random.Random(64).randbytes(64 * MEBIBYTE)
        producer = cluster.producer(acknowledgements, *chain)
        producer.produce(topic, value, on_delivery=reports)
        assert producer.flush(60) == 0
        assert [len(sent) for sent in reports.errors] == [len(value)]
        assert list(reports.errors.values()) == [[None]]
        assert list(acknowledgements.errors.values()) == [[None]]

        consumer = cluster.consumer(topic, *chain)
        messages = cluster.rest_of(consumer, topic)
        assert [digest(message.value()) for message in messages] == [digest(value)]
        cluster.commit(consumer)
        _, end = consumer.get_watermark_offsets(consumer.assignment()[0])
        assert end > 64, "it was sliced"
        assert cluster.committed(topic, topic)[0] == end

    def test_a_topic_that_takes_less_than_a_slice_gives_one_report(
        self, cluster: Cluster, reports: Reports, acknowledgements: Acknowledgements
    ) -> None:
        topic = cluster.topic("too-large")
        producer = cluster.producer(Slice(max_bytes=3_000_000), acknowledgements, message_max_bytes=4_000_000)
        value = random.Random(8).randbytes(8 * MEBIBYTE)
        producer.produce(topic, value, on_delivery=reports)
        producer.produce(topic, b"small", on_delivery=reports)
        assert producer.flush(60) == 0
        (error,) = reports.errors[value]
        assert error is not None
        assert error.name() == "MSG_SIZE_TOO_LARGE"
        assert reports.errors[b"small"] == [None], "it takes no neighbour along"
        assert [type(heard).__name__ for heard in acknowledgements.errors[value]] == ["KafkaException"]
        assert [message.value() for message in cluster.on_the_wire(topic)] == [b"small"]
