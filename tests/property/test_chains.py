"""What goes in comes out: any records, through any chain of the real interceptors, by way of a broker."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware import DROP, Chain, Context, Headers, Record
from headerware.interceptors import Compress, Sign, Slice, Trace, Trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headerware.core.session import Session

MAX_BYTES = 4_096
# What a chain may leave: lineage and trace context are for the application to see.
STAYS = frozenset({"hw.trail", "traceparent", "tracestate", "baggage"})
INDEX = "index"
# What is refused on send: zero bytes, what UTF-8 cannot express, and ids of Headerware's own headers.
WRITABLE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8).filter(
    lambda name: not name.startswith("~")
)

names = (
    (st.sampled_from(["", "a", "content-type", "hw", "hwx"]) | WRITABLE)
    .filter(lambda name: not name.casefold().startswith("hw."))
    .filter(lambda name: name not in STAYS | {INDEX})
)
application_headers = st.lists(st.tuples(names, st.none() | st.binary(max_size=16)), max_size=5)
# Hypothesis likes short bytes; large ones are made from a seed, and as random they do not compress away.
large = st.builds(
    lambda seed, size: random.Random(seed).randbytes(size),
    st.integers(0, 9),
    st.sampled_from([3_000, MAX_BYTES, 9_000, 20_000]),
)
repetitive = st.builds(
    lambda piece, times: piece * times, st.binary(min_size=1, max_size=40), st.integers(1, 500)
)
values = st.none() | st.binary(max_size=64) | repetitive | large


@st.composite
def messages(draw: st.DrawFn) -> list[Record]:
    count = draw(st.integers(1, 8))
    return [
        Record(
            draw(st.sampled_from(["orders", "payments"])),
            draw(values),
            draw(st.none() | st.binary(max_size=12)),
            Headers([(INDEX, str(number)), *draw(application_headers)]),
            partition=draw(st.integers(0, 1)),
            timestamp_ms=draw(st.none() | st.integers(0, 2**41)),
        )
        for number in range(count)
    ]


@pytest.fixture(scope="module")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    edit_keyring(path, lambda keys: with_new_key(keys, "k", "hmac-sha256"), create=True)
    return path


def chain_of(kinds: Sequence[str], keyring: Path) -> Chain:
    every: dict[str, Any] = {
        "trail": Trail(service="property"),
        "trace": Trace(),
        "compress": Compress(min_bytes=0),
        "slice": Slice(max_bytes=MAX_BYTES),
        "sign": Sign(keyring=str(keyring), key_id="k"),
    }
    return Chain([interceptor for kind, interceptor in every.items() if kind in kinds])


def through(session: Session, way: str, records: list[Record], *, batch: bool) -> list[list[Record]]:
    """Take records through one at a time or all together, and give what each became."""
    one, many = getattr(session, f"{way}_outcome"), getattr(session, f"{way}_outcomes")
    outcomes = many(records) if batch else [one(record) for record in records]
    assert not [outcome for outcome in outcomes if isinstance(outcome, Exception) or outcome is DROP]
    return [[outcome] if isinstance(outcome, Record) else list(outcome) for outcome in outcomes]


class Broker:
    """Give each wire record the next offset of its partition, as a broker would."""

    def __init__(self) -> None:
        self.ends: Counter[tuple[str, int]] = Counter()

    def store(self, record: Record, partition: int) -> Record:
        offset = self.ends[record.topic, partition]
        self.ends[record.topic, partition] += 1
        # Only what travels: no state of an interceptor's.
        return Record(
            record.topic,
            record.value,
            record.key,
            record.headers,
            partition,
            1_700_000_000_000 if record.timestamp_ms is None else record.timestamp_ms,
            1,
            offset,
        )


def application_sees(record: Record) -> tuple[Any, ...]:
    headers = tuple(pair for pair in record.headers if pair[0] not in STAYS)
    return record.topic, record.partition, record.key, record.value, headers


KINDS = ("trail", "trace", "compress", "slice", "sign")
some_kinds = st.tuples(*[st.booleans()] * len(KINDS)).map(
    lambda chosen: {kind for kind, is_in in zip(KINDS, chosen, strict=True) if is_in}
)


@given(st.data(), messages(), some_kinds, st.booleans(), st.booleans())
def test_sending_and_consuming_gives_back_what_was_sent(
    keyring: Path,
    data: st.DataObject,
    sent: list[Record],
    kinds: set[str],
    sends_batches: bool,  # noqa: FBT001 - drawn
    consumes_batches: bool,  # noqa: FBT001 - drawn
) -> None:
    chain = chain_of(tuple(kinds), keyring)
    with chain.open(Context(side="producer", max_message_bytes=1_000_000)) as producer:
        cut = through(producer, "send", sent, batch=sends_batches)
    # Producers share a partition, so the slices of two messages may alternate there.
    turns = data.draw(st.permutations([number for number, pieces in enumerate(cut) for _ in pieces]))
    queues = [iter(pieces) for pieces in cut]
    broker = Broker()
    wire = [broker.store(next(queues[turn]), sent[turn].partition or 0) for turn in turns]
    with chain.open(Context(side="consumer", group_id="g")) as consumer:
        got = [
            record for some in through(consumer, "consume", wire, batch=consumes_batches) for record in some
        ]
        assert consumer.safe_offsets() == {}
        assert consumer.poll() == []
    by_index = sorted(got, key=lambda record: int(record.headers.last(INDEX) or b"-1"))
    assert [application_sees(record) for record in by_index] == [application_sees(record) for record in sent]
    assert {name for record in got for name in record.headers.names() if name.startswith("hw.")} <= STAYS


@given(messages(), some_kinds)
def test_batches_and_single_records_put_equally_many_records_on_the_wire(
    keyring: Path, sent: list[Record], kinds: set[str]
) -> None:
    chain = chain_of(tuple(kinds), keyring)
    with chain.open(Context(side="producer")) as session:
        single = through(session, "send", sent, batch=False)
        batch = through(session, "send", sent, batch=True)
    assert [len(pieces) for pieces in single] == [len(pieces) for pieces in batch]


@given(messages(), some_kinds.filter(bool))
def test_the_applications_records_are_never_changed(
    keyring: Path, sent: list[Record], kinds: set[str]
) -> None:
    before = [(record.value, record.key, tuple(record.headers), record.local) for record in sent]
    with chain_of(tuple(kinds), keyring).open(Context(side="producer")) as session:
        through(session, "send", sent, batch=True)
    assert [(record.value, record.key, tuple(record.headers), record.local) for record in sent] == before


@given(messages())
def test_slices_stay_below_the_limit_with_all_that_is_added_to_them(
    keyring: Path, sent: list[Record]
) -> None:
    # With a message that is cut for certain, so that the limit is met in every example.
    sent = [*sent, sent[0].replace(value=random.Random(0).randbytes(5 * MAX_BYTES))]
    chain = chain_of(KINDS, keyring)
    with chain.open(Context(side="producer")) as session:
        for record in (piece for pieces in through(session, "send", sent, batch=True) for piece in pieces):
            headers = sum(len(name.encode()) + len(value or b"") for name, value in record.headers)
            assert len(record.value or b"") + len(record.key or b"") + headers <= MAX_BYTES
