"""spec/vectors/slice-arrivals.json: slices as they arrive, and what a reader makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.context import Context
from headerware.core.errors import ReassemblyError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.record import VERIFIED, Record, Verified
from headerware.interceptors.slice import Slice

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "slice-arrivals.json").read_text(encoding="utf-8")
)
TOPIC = "orders"
COUNTS = ("glued", "duplicates", "orphans", "late", "expired", "evicted", "pending_messages")


def record_of(arriving: dict[str, Any]) -> Record:
    key, value, signer = arriving["key"], arriving["value"], arriving.get("signer")
    verified = signer and Verified(signer["key_id"], 1, 0, "", TOPIC, bytes.fromhex(signer["producer"]), 0)
    return Record(
        TOPIC,
        value and value.encode(),
        key and key.encode(),
        Headers(arriving["headers"]),
        arriving["partition"],
        timestamp_ms=arriving["timestamp_ms"],
        offset=arriving["offset"],
        local={VERIFIED: verified} if verified else None,
    )


def plain(record: Record) -> dict[str, Any]:
    return {
        "key": record.key and record.key.decode(),
        "value": record.value and record.value.decode(),
        "headers": [[name, value and value.decode()] for name, value in record.headers],
        "timestamp_ms": record.timestamp_ms,
        "offset": record.offset,
    }


class Reader:
    """The consuming side of ``slice``, as a script has it."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.now_ms = 0
        keeps = options.pop("dead_letters", False)
        slices = Slice(**options, on_error="dead_letter" if keeps else "raise")
        self.step = slices.open(Context(now_ms=lambda: self.now_ms))

    def outcome_of(self, arriving: dict[str, Any]) -> dict[str, Any] | str:
        try:
            made = self.step.on_consume(record_of(arriving))
        except ReassemblyError:
            return "refused"
        assert made is not DROP
        records = [made] if isinstance(made, Record) else list(made)
        return plain(records[0]) if records else "nothing"

    def play(self, event: dict[str, Any]) -> dict[str, Any]:
        """Return an event with what became of it."""
        if "arrives" in event:
            return {**event, "outcome": self.outcome_of(event["arrives"])}
        if "clock_ms" in event:
            self.now_ms = event["clock_ms"]
            gives_up = [
                {"partition": error.partition, "offset": error.offset, "slices": list(error.offsets)}
                for error in self.step.poll(self.now_ms)
            ]
            return {**event, "gives_up": gives_up}
        if "reads_to" in event:
            self.step.reached(TOPIC, *event["reads_to"])
            return event
        if "seeks_to" in event:
            return {**event, "begins_at": self.step.seek(TOPIC, *event["seeks_to"])}
        partition, position = event["position"]
        return {**event, "safe_offset": self.step.safe_offset(TOPIC, partition, position)}

    def counts(self) -> dict[str, int]:
        stats = self.step.stats()
        return {name: stats[name] for name in COUNTS if stats[name]}


@pytest.mark.parametrize("script", VECTORS["scripts"], ids=lambda script: script["name"])
def test_a_script(script: dict[str, Any]) -> None:
    reader = Reader(dict(script["options"]))
    assert [reader.play(event) for event in script["events"]] == script["events"]
    assert reader.counts() == script["counts"]


def test_covers_every_outcome() -> None:
    events = [event for script in VECTORS["scripts"] for event in script["events"]]
    outcomes = [event["outcome"] for event in events if "arrives" in event]
    assert {each for each in outcomes if isinstance(each, str)} == {"nothing", "refused"}
    assert any(isinstance(each, dict) for each in outcomes)
    assert any(event.get("gives_up") for event in events)
    assert len(VECTORS["scripts"]) == 37
