"""A micro-batch without a step between decoding and encoding takes one pass over Python."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from headerware import Chain, Record
from headerware.core.headers import Headers
from headerware.interceptors import Dedup, Trail
from headerware.interceptors.trail import read_trail
from headerware.spark_bridge import kafka_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.spark.conftest import Kafka, Stream

pytestmark = [
    pytest.mark.broker,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("interpreted"),
]


def noting() -> Any:
    """Return an interceptor that notes the processes that read and write a record."""

    class Noting:  # local, so that it is pickled by value
        def on_consume(self, record: Record) -> Record:
            return record.replace(headers=record.headers.add("reader", str(os.getpid()).encode()))

        def on_send(self, record: Record) -> Record:
            return record.replace(headers=record.headers.add("writer", str(os.getpid()).encode()))

    return Noting()


def processes(records: list[Record]) -> list[bool]:
    """Return by record whether one process has read and written it."""
    return [record.headers.last("reader") == record.headers.last("writer") for record in records]


@pytest.fixture
def sent(kafka: Kafka) -> str:
    """Return a topic with records, and one of the same name with -out."""
    topic = kafka.topic("one", partitions=2)
    kafka.topic(f"{topic}-out", partitions=2)
    headers = Headers([("tenant", b"north"), ("empty", None)])
    kafka.send(
        Chain([Trail(service="shop")]),
        Record(topic, b"first", b"k", headers, partition=0),
        Record(topic, None, b"gone", partition=1),
        Record(topic, b"", None, partition=1),
    )
    return topic


class TestOnePass:
    def test_reads_and_writes_in_one_process(
        self, stream: Callable[..., Stream], kafka: Kafka, sent: str
    ) -> None:
        chain = Chain([Trail(), noting()])
        options = {"kafka.bootstrap.servers": kafka.servers, "topic": f"{sent}-out"}
        query = stream(sent)
        query.run(chain, kafka_sink(options, chain))
        found = kafka.wire(f"{sent}-out")
        assert sorted((record.key, record.value) for record in found if record.key) == [
            (b"gone", None),
            (b"k", b"first"),
        ]
        assert processes(found) == [True] * 3
        (first,) = (record for record in found if record.key == b"k")
        assert [pair for pair in first.headers if pair[0] in {"tenant", "empty"}] == [
            ("tenant", b"north"),
            ("empty", None),
        ]
        assert [each.by_whom for each in read_trail(first.headers)] == ["shop", "spark/headerware-tests#0"]
        (progress,) = query.progress
        assert (progress.decoded["records_in"], progress.encoded["records_out"]) == (3, 3)
        assert progress.decoded["bytes_out"] == progress.encoded["bytes_in"] == len(b"first")

    def test_gives_rows_the_identities_of_their_places(
        self, stream: Callable[..., Stream], kafka: Kafka, sent: str
    ) -> None:
        options = {"kafka.bootstrap.servers": kafka.servers, "topic": f"{sent}-out"}
        query = stream(sent)
        sink = kafka_sink(options, Chain([Dedup(), noting()]))
        reading = Chain([Trail(), noting()])
        query.run(reading, sink)
        before = kafka.wire(f"{sent}-out")
        query.undo(0)
        query.run(reading, sink)
        found, refused = kafka.read(f"{sent}-out", Chain([Dedup()]))
        assert not refused
        assert len(found) == len(before) == 3
        assert len(kafka.wire(f"{sent}-out")) == 6
        assert processes(before) == [True] * 3

    @pytest.mark.parametrize("between", ["transform", "identity"])
    def test_is_left_where_spark_works_in_between(
        self, stream: Callable[..., Stream], kafka: Kafka, sent: str, between: str
    ) -> None:
        chain = Chain([Trail(), noting()])
        options = {"kafka.bootstrap.servers": kafka.servers, "topic": f"{sent}-out"}
        if between == "transform":
            sink = kafka_sink(options, chain)
            stream(sent).run(chain, sink, transform=lambda frame, _: frame.where("key is not null"))
        else:
            sink = kafka_sink(options, Chain([*chain, Dedup()]), identity=["partition", "offset"])
            stream(sent).run(chain, sink)
        found = kafka.wire(f"{sent}-out")
        assert len(found) == (2 if between == "transform" else 3)
        assert not any(processes(found))

    def test_fails_with_what_was_refused(
        self, stream: Callable[..., Stream], kafka: Kafka, sent: str
    ) -> None:
        options = {"kafka.bootstrap.servers": kafka.servers, "topic": f"{sent}-out"}
        kafka.send(None, Record(sent, b"broken", headers=Headers([("hw.trail", b"\xff\xff")]), partition=0))
        chain = Chain([Trail(on_error="raise")])
        with pytest.raises(StreamingQueryException, match=f"{sent}"):
            stream(sent).run(chain, kafka_sink(options, chain))
