"""Reassembly: messages of heavy-tailed sizes from several producers, interleaved on one partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from simulations.section import MIB, Anchor, Rows, Section, Table, count, measured_row

from headerware import Chain, Context, Record
from headerware.interceptors import Slice

SLICE_BYTES: Final = 900_000
SMALLEST: Final = 1_000_000
LARGEST: Final = 256 * MIB
PENDING_BYTES: Final = 512 * MIB
TAIL: Final = 1.1
"""Pareto's exponent: the smaller, the heavier the tail."""
MEMORY_FACTOR: Final = 1.1


def sizes_bytes(number: int, rng: np.random.Generator) -> list[int]:
    """Return sizes of messages, by Pareto's law, cut off at the largest that is split."""
    drawn = SMALLEST * (1 - rng.random(number)) ** (-1 / TAIL)
    return [int(size) for size in np.minimum(drawn, LARGEST)]


@dataclass
class Reassembled:
    """The outcomes of the messages of one partition."""

    peak_bytes: int
    held: list[int]
    given_up: int
    complete: int


def reassemble(senders: int, messages: int, seed: int) -> Reassembled:
    """Let senders write slices in random turns, and a reader give up the oldest messages above its limit."""
    rng = np.random.default_rng(seed)
    sizes = deque(sizes_bytes(messages, rng))
    sending: list[tuple[int, int]] = []  # number, bytes left
    pending: dict[int, int] = {}
    lost: set[int] = set()
    found = Reassembled(0, [], 0, 0)
    number = total = 0
    turns = iter(rng.random(messages * 400).tolist())
    while sizes or sending:
        while sizes and len(sending) < senders:
            sending.append((number, sizes.popleft()))
            number += 1
        at = int(next(turns, 0.5) * len(sending))
        message, left = sending[at]
        part = min(left, SLICE_BYTES)
        if left == part:
            sending.pop(at)
        else:
            sending[at] = (message, left - part)
        if message in lost:
            continue
        pending[message] = pending.get(message, 0) + part
        total += part
        while total > PENDING_BYTES:
            oldest = next(each for each in pending if each != message)
            total -= pending.pop(oldest)
            lost.add(oldest)
            found.given_up += 1
        found.peak_bytes = max(found.peak_bytes, total)
        found.held.append(total)
        if left == part:
            total -= pending.pop(message)
            found.complete += 1
    return found


def reassembly_tables(size: float) -> Iterator[Table]:
    rows: Rows = []
    messages = max(200, int(6_000 * size))
    for senders in (1, 4, 16, 64, 256):
        found = reassemble(senders, messages, seed=3)
        held = np.sort(np.array(found.held))
        rows.append(
            (
                f"{senders:,}",
                count(held.mean() / MIB),
                count(held[int(0.99 * held.size)] / MIB),
                count(found.peak_bytes / MIB),
                f"{found.given_up / messages:.2%}",
            )
        )
    yield Table(
        "reassembly",
        (
            "producers that split at once, on a partition",
            "pending, mean MiB",
            "99 % below, MiB",
            "most, MiB",
            "messages given up for lack of room",
        ),
        rows,
    )


def measured_memory_factor() -> float:
    return measured_row("64 MiB message, growth of memory, consume") / 64


def measured_peak() -> float:
    """Return the peak of our reassembler's bytes divided by the model's peak; all at a tenth of the size."""
    senders, messages, seed = 4, 200, 3
    rng = np.random.default_rng(seed)
    sizes = deque(size // 10 for size in sizes_bytes(messages, rng))
    turns = iter(rng.random(messages * 400).tolist())
    cut = Chain([Slice(max_bytes=SLICE_BYTES // 10)])
    queues: list[Iterator[Record]] = []
    peak = offset = 0
    with cut.open(Context(pick_partition=lambda _: 0)) as sender, cut.open(Context()) as reader:
        while sizes or queues:
            while sizes and len(queues) < senders:
                sent: Any = sender.send_outcome(Record("t", bytes(sizes.popleft()), b"k", partition=0))
                queues.append(iter([sent] if isinstance(sent, Record) else sent))
            at = int(next(turns) * len(queues))
            record = next(queues[at], None)
            if record is None:
                queues.pop(at)
                continue
            reader.consume_outcome(
                record.replace(partition=0, offset=offset, timestamp_ms=0, timestamp_type=1)
            )
            offset += 1
            peak = max(peak, reader.stats()["slice"]["pending_bytes"])
    return 10 * peak / reassemble(senders, messages, seed).peak_bytes


SECTION: Final = Section(
    "reassembly",
    reassembly_tables,
    (
        Anchor(
            "growth of a consumer's memory, by the message's size",
            MEMORY_FACTOR,
            "times",
            measured_memory_factor,
        ),
        Anchor("most bytes that the reassembler holds, by the model's", 1.0, "times", measured_peak),
    ),
)
