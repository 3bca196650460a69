"""Trails over mirrors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simulations.section import Rows, Section, Table

from headerware import Chain, Context, Headers, Record
from headerware.interceptors import Trail

HOP_MS: Final = 1_767_225_600_000
PAYLOAD_BYTES: Final = 500


def trail_after(hops: int, max_entries: int, max_bytes: int) -> bytes:
    """Return the trail of a record that a service produced, and that mirrors copied ``hops`` times."""
    record = Record("orders", b"v")
    for hop in range(hops + 1):
        options = {"max_entries": max_entries, "max_bytes": max_bytes}
        trail = Trail(service=f"mirror-{hop}" if hop else "checkout", cluster=f"cluster-{hop}", **options)  # type: ignore[arg-type]
        with Chain([trail]).open(Context(now_ms=lambda hop=hop: HOP_MS + hop * 40)) as session:  # type: ignore[misc]
            if hop:
                (record,) = session.consume([record.replace(partition=0, offset=hop)])
            (record,) = session.send([record])
    value = Headers(record.headers).last("hw.trail")
    assert value is not None
    return value


def trail_tables(_: float) -> Iterator[Table]:
    rows: Rows = []
    for hops in (0, 1, 2, 5, 10, 30, 100):
        free, bounded = trail_after(hops, 1_000, 65_535), trail_after(hops, 32, 4_096)
        rows.append(
            (
                f"{hops:,}",
                f"{len(free):,}",
                f"{len(bounded):,}",
                f"{bounded.count(b',at='):,}",
                f"{len(bounded) / (PAYLOAD_BYTES + len(bounded)):.0%}",
            )
        )
    yield Table(
        "trails",
        (
            "mirrors",
            "trail without bounds, bytes",
            "trail by default, bytes",
            "entries kept",
            "part of a record with 500 other bytes",
        ),
        rows,
    )


SECTION: Final = Section("trails", trail_tables)
