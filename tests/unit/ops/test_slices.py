"""Which slice a record on the wire is."""

from __future__ import annotations

import uuid

from headerware.clients.messages import record_of
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.ops.slices import slice_header_of
from headerware.ops.topic_reader import TopicReader
from headerware.testing import EmbeddedCluster
from tests.unit.clients.test_messages import put_raw


def test_a_header_says_it_and_one_that_lies_does_not() -> None:
    header = SliceHeader(bytes(16), 1, 3, 3_000, 1_000)
    assert slice_header_of(Record("t", b"v", headers=Headers([(SLICE_HEADER, header.encode())]))) == header
    assert slice_header_of(Record("t", b"v", headers=Headers([(SLICE_HEADER, b"no slice")]))) is None
    assert slice_header_of(Record("t", b"v")) is None


def test_a_header_that_cannot_be_read_stops_nothing() -> None:
    with EmbeddedCluster() as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        topic = f"customers-{uuid.uuid4().hex[:8]}"
        put_raw(settings, topic, (b"a", b"fine"), (b"b", b"\xff\xfe"))
        with TopicReader(settings, topic, group_id="slices") as reader:
            reader.start()
            records = [record_of(message) for batch in reader.to_end() for message in batch]
        assert [slice_header_of(each) for each in records] == [None, None]
