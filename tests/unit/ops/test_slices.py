"""Orphaned slices where nothing is compacted (else: tests/integration/test_compacted_slices.py)."""

from __future__ import annotations

import uuid

from headerware.ops.slices import orphaned_slices
from headerware.testing import EmbeddedCluster
from tests.unit.clients.test_messages import put_raw


def test_a_header_that_cannot_be_read_stops_nothing() -> None:
    with EmbeddedCluster() as cluster:
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        topic = f"customers-{uuid.uuid4().hex[:8]}"
        put_raw(settings, topic, (b"a", b"fine"), (b"b", b"\xff\xfe"))
        assert orphaned_slices(settings, topic).messages == 0
