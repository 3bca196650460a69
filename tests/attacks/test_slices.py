"""Attacks on messages in slices: forged, truncated, repeated, reordered, lying and never complete."""

from __future__ import annotations

import gc
import random
import tracemalloc
from base64 import b64encode
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headerware import (
    Chain,
    CompressionError,
    Context,
    DeadLetterError,
    ReassemblyError,
    Record,
    SignatureError,
)
from headerware.core.record import ORIGINAL
from headerware.interceptors import Compress, Sign, Slice, Trail
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from headerware.core.session import Session

NOW = 1_795_392_000_000
VALUE = random.Random(14).randbytes(6_500)
SLICES = Slice(max_bytes=2_000)


@pytest.fixture
def keys(tmp_path: Path) -> str:
    path = tmp_path / "keys.json"
    edit_keyring(path, lambda keyring: with_new_key(keyring, "orders", "hmac-sha256"), create=True)
    edit_keyring(path, lambda keyring: with_new_key(keyring, "others", "hmac-sha256"))
    return str(path)


def sent(*steps: Any, value: bytes = VALUE, key: bytes = b"k", at: int = 0) -> list[Record]:
    with Chain(steps).open(Context(side="producer", now_ms=lambda: NOW)) as session:
        made = list(session.send([Record("orders", value, key)]))
    return placed(made, at)


def placed(records: list[Record], at: int = 0) -> list[Record]:
    return [each.replace(partition=0, offset=at + index) for index, each in enumerate(records)]


class Reader:
    """One consumer's session, with the whole messages, the errors and the dead letters that came of it."""

    def __init__(self, *steps: Any, **context: Any) -> None:
        self.now = NOW
        self.letters: list[Record] = []
        context = {"publish": self.letters.append, **context}
        self.session: Session = Chain(steps).open(
            Context(side="consumer", now_ms=lambda: self.now, **context)
        )
        self.values: list[Any] = []
        self.errors: list[Exception] = []

    def read(self, *records: Record) -> Reader:
        for record in records:
            self._note([self.session.consume_outcome(record)])
        return self

    def poll(self, after_ms: int = 0) -> Reader:
        self.now += after_ms
        self._note(self.session.poll())
        return self

    def _note(self, outcomes: list[Any]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                self.errors.append(outcome)
            elif isinstance(outcome, list | Record):
                made = [outcome] if isinstance(outcome, Record) else outcome
                self.values.extend(record.value for record in made)

    def count(self, name: str) -> int:
        return self.session.stats()["slice"][name]


def lying(record: Record, **lies: int) -> Record:
    header = SliceHeader.decode(record.headers.last(SLICE_HEADER))
    fields = {name: lies.get(name, getattr(header, name)) for name in header.__struct_fields__}
    wire = b"\1" + fields["message_id"]
    for name, width in (("index", 4), ("count", 4), ("total_bytes", 8), ("slice_bytes", 4)):
        wire += fields[name].to_bytes(width, "big")
    return record.with_headers(record.headers.put(SLICE_HEADER, b64encode(wire)))


def first_of_many(number: int, total_bytes: int = 3_000, slice_bytes: int = 1_000) -> Record:
    """Make slice 0 of a message that never becomes whole."""
    count = -(-total_bytes // slice_bytes)
    header = SliceHeader(number.to_bytes(16, "big"), 0, count, total_bytes, slice_bytes)
    value = b"x" * slice_bytes
    return Record("orders", value, b"k").with_headers(Record("").headers.add(SLICE_HEADER, header.encode()))


class TestForged:
    def test_an_unsigned_slice_in_a_signed_message_is_refused(self, keys: str) -> None:
        genuine = sent(SLICES, Sign(keyring=keys, key_id="orders"))
        forged = genuine[1].replace(value=b"x" * len(genuine[1].value))
        unsigned = forged.with_headers(forged.headers.remove("hw.sig"))
        reader = Reader(SLICES, Sign(keyring=keys)).read(genuine[0], unsigned, forged, *genuine[1:])
        assert reader.values == [VALUE]
        assert [type(error) for error in reader.errors] == [SignatureError] * 2

    def test_a_slice_of_another_signer_gets_into_no_message(self, keys: str) -> None:
        genuine = sent(SLICES, Sign(keyring=keys, key_id="orders"))
        plain = genuine[1].with_headers(genuine[1].headers.remove("hw.sig"))
        with Chain([Sign(keyring=keys, key_id="others")]).open(Context(side="producer")) as session:
            sign = session.steps[0].hook("on_send")
            assert sign is not None
            forged = sign(plain.replace(value=bytes(len(plain.value))))
        reader = Reader(SLICES, Sign(keyring=keys)).read(
            genuine[0], forged.replace(partition=0, offset=9), *genuine[1:]
        )
        assert (reader.values, reader.errors) == ([VALUE], [])
        assert reader.count("pending_messages") == 1, "the forged slice waits by itself"

    @pytest.mark.parametrize("field", ["index", "count", "total_bytes", "slice_bytes"])
    def test_a_signed_header_cannot_be_changed(self, keys: str, field: str) -> None:
        genuine = sent(SLICES, Sign(keyring=keys, key_id="orders"))
        header = SliceHeader.decode(genuine[1].headers.last(SLICE_HEADER))
        changed = lying(genuine[1], **{field: getattr(header, field) + 1})
        reader = Reader(SLICES, Sign(keyring=keys)).read(genuine[0], changed, *genuine[1:])
        assert reader.values == [VALUE]
        assert [type(error) for error in reader.errors] == [SignatureError]

    def test_without_signatures_a_forged_slice_may_destroy_a_message_but_not_change_it(self) -> None:
        genuine = sent(SLICES)
        forged = lying(genuine[1], total_bytes=len(VALUE) + 1)
        reader = Reader(SLICES).read(genuine[0], forged, *genuine[1:])
        assert reader.values == []
        assert [type(error) for error in reader.errors] == [ReassemblyError]
        assert reader.count("late") == len(genuine) - 1

    def test_slices_of_several_producers_interleave(self, keys: str) -> None:
        sign = Sign(keyring=keys, key_id="orders")
        values = [bytes([number]) * 4_000 for number in range(5)]
        messages = [sent(SLICES, sign, value=value) for value in values]
        mixed = placed([piece for pieces in zip(*messages, strict=True) for piece in pieces])
        reader = Reader(SLICES, Sign(keyring=keys)).read(*mixed)
        assert (reader.values, reader.errors) == (values, [])


class TestIncomplete:
    def test_a_message_without_its_end_is_an_error_and_never_a_value(self) -> None:
        for missing in range(1, 4):
            pieces = sent(SLICES)
            reader = Reader(SLICES).read(*pieces[:missing], *pieces[missing + 1 :]).poll(SLICES.expire_ms)
            assert reader.values == []
            assert [getattr(error, "offset", None) for error in reader.errors] == [0]
            assert reader.count("pending_bytes") == 0

    def test_a_truncated_slice_is_refused(self) -> None:
        pieces = sent(SLICES)
        for wrong in (pieces[1].value[:-1], pieces[1].value + b"x", b"", None):
            reader = Reader(SLICES).read(pieces[0], pieces[1].replace(value=wrong))
            assert [type(error) for error in reader.errors] == [ReassemblyError]

    def test_repeated_slices_change_nothing(self) -> None:
        pieces = sent(SLICES)
        again = [piece for piece in pieces for _ in range(3)]
        reader = Reader(SLICES).read(*placed(again)).poll(SLICES.expire_ms)
        assert (reader.values, reader.errors) == ([VALUE], [])

    def test_any_order_gives_the_same_message(self) -> None:
        pieces = sent(SLICES)
        for order in permutations(pieces):
            assert Reader(SLICES).read(*placed(list(order))).values == [VALUE]


class TestLies:
    @pytest.mark.parametrize(
        "lies",
        [
            {"index": 4},
            {"index": 2**32 - 1},
            {"count": 0},
            {"count": 2**32 - 1},
            {"total_bytes": 0},
            {"total_bytes": 2**64 - 1},
            {"slice_bytes": 0},
            {"slice_bytes": 2**32 - 1},
            {"count": 1_000_000, "total_bytes": 1_000_000, "slice_bytes": 1},
        ],
        ids=str,
    )
    def test_impossible_numbers_are_refused(self, lies: dict[str, int]) -> None:
        reader = Reader(SLICES).read(lying(sent(SLICES)[1], **lies))
        assert [type(error) for error in reader.errors] == [ReassemblyError]
        assert reader.count("pending_messages") == 0

    def test_no_memory_is_taken_for_a_declared_length(self) -> None:
        reader = Reader(Slice())
        tracemalloc.start()
        try:
            for number in range(100):
                reader.read(first_of_many(number, 256 * 2**20, 4_096).replace(partition=0, offset=number))
            assert tracemalloc.get_traced_memory()[1] < 100 * 4_096 + 500_000
        finally:
            tracemalloc.stop()
        assert reader.count("pending_messages") == 100

    def test_a_bomb_in_slices_meets_the_cap_of_decompression(self) -> None:
        chain = [Compress(max_decompressed_bytes=1_000_000), Slice(max_bytes=1_000)]
        generous = [Compress(max_decompressed_bytes=100_000_000), Slice(max_bytes=1_000)]
        pieces = sent(*generous, value=bytes(90_000_000))
        assert len(pieces) > 1
        tracemalloc.start()
        try:
            reader = Reader(*chain).read(*pieces)
            assert tracemalloc.get_traced_memory()[1] < 3_000_000
        finally:
            tracemalloc.stop()
        assert [type(error) for error in reader.errors] == [CompressionError]


class TestFloods:
    """Messages that never become whole meet a cap by count, bytes, age and distance."""

    def test_by_count(self) -> None:
        reader = Reader(Slice(max_pending_messages=10))
        for number in range(500):
            reader.read(first_of_many(number).replace(partition=0, offset=number)).poll()
        assert reader.count("pending_messages") == 10
        assert reader.count("evicted") == 490

    def test_by_bytes(self) -> None:
        limits = Slice(max_message_bytes=20_000, max_pending_bytes=20_000)
        reader = Reader(limits)
        for number in range(500):
            reader.read(first_of_many(number).replace(partition=0, offset=number)).poll()
            assert reader.count("pending_bytes") <= 20_000

    def test_by_age_and_distance(self) -> None:
        reader = Reader(SLICES).read(first_of_many(1).replace(partition=0, offset=1))
        assert reader.poll(SLICES.expire_ms).count("pending_messages") == 0
        reader.read(first_of_many(2).replace(partition=0, offset=2))
        reader.read(Record("orders", b"v", partition=0, offset=2 + SLICES.max_gap + 1))
        assert reader.count("pending_messages") == 0

    def test_a_genuine_message_comes_through_a_flood(self) -> None:
        reader = Reader(Slice(max_pending_messages=10))
        pieces = sent(SLICES)
        flood = iter(range(1, 1_000))
        for at, piece in enumerate(pieces):
            reader.read(piece.replace(offset=at * 10))
            for _ in range(5 if at == 0 else 2):
                reader.read(first_of_many(next(flood)).replace(partition=0, offset=at * 10 + 1))
        assert reader.values == [VALUE]


class TestDeadLetters:
    """With ``on_error = "dead_letter"`` what had come of a message is kept as it was on the wire."""

    def test_what_arrived_is_kept_and_can_be_sent_back(self, keys: str) -> None:
        pieces = sent(Trail(service="o"), SLICES, Sign(keyring=keys, key_id="orders"))
        reading = [Slice(max_bytes=2_000, on_error="dead_letter"), Sign(keyring=keys)]
        reader = Reader(Trail(service="r"), *reading).read(*pieces[:-1]).poll(SLICES.expire_ms)
        assert (reader.values, reader.errors) == ([], [])
        assert [letter.value for letter in reader.letters] == [piece.value for piece in pieces[:-1]]
        assert reader.session.stats()["slice"]["dead_lettered"] == len(pieces) - 1
        assert reader.count("pending_bytes") == 0

        reader.read(pieces[-1]).poll(SLICES.expire_ms)
        assert len(reader.letters) == len(pieces), "also the slice that came too late"
        for letter, piece in zip(reader.letters, pieces, strict=True):
            assert letter.topic == "orders.dead-letter"
            assert list(letter.headers)[: len(piece.headers)] == list(piece.headers), "signature included"
            told = dict(letter.headers)
            assert told["__connect.errors.offset"] == str(piece.offset).encode()

        back = [
            letter.replace(topic="orders", headers=piece.headers)
            for letter, piece in zip(reader.letters, pieces, strict=True)
        ]
        again = reader.read(*placed(back, 100))
        assert (again.values, again.errors) == ([VALUE], [])

    @pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
    def test_what_came_early_is_kept_as_well(self, order: tuple[int, ...]) -> None:
        pieces = sent(SLICES)
        come = [pieces[index] for index in order]
        reader = Reader(Slice(on_error="dead_letter")).read(*placed(come)).poll(SLICES.expire_ms)
        assert [letter.value for letter in reader.letters] == [piece.value for piece in pieces[:3]]

    def test_a_slice_that_contradicts_takes_the_others_along_with_it(self) -> None:
        pieces = sent(SLICES)
        reader = Reader(Slice(on_error="dead_letter"))
        reader.read(pieces[0], pieces[1], lying(pieces[2], total_bytes=6_499))
        assert reader.session.safe_offset("orders", 0, 3) == 0, "until the dead letters are stored"
        reader.poll()
        assert sorted(letter.value for letter in reader.letters) == sorted(each.value for each in pieces[:3])
        assert reader.session.safe_offset("orders", 0, 3) == 3
        reader.read(pieces[3]).poll(SLICES.expire_ms)
        assert len(reader.letters) == 4
        assert reader.errors == []

    def test_stray_slices_without_a_first_one_make_no_dead_letters(self) -> None:
        reader = Reader(Slice(on_error="dead_letter")).read(*sent(SLICES)[1:]).poll(SLICES.expire_ms)
        assert (reader.letters, reader.errors, reader.count("orphans")) == ([], [], 1)

    def test_an_unavailable_topic_loses_nothing(self) -> None:
        pieces = sent(SLICES)
        stored: list[Record] = []

        def publish(record: Record) -> None:
            if len(stored) == 1:
                raise DeadLetterError("down")
            stored.append(record)

        reader = Reader(Slice(on_error="dead_letter"), publish=publish).read(*pieces[:-1])
        reader.poll(SLICES.expire_ms)
        (error,) = reader.errors
        assert isinstance(error, DeadLetterError)
        assert error.offset == 0, "from there the message is read again, whole"

    def test_memory_is_bounded_until_dead_letters_are_stored(self) -> None:
        limits: dict[str, Any] = {"max_message_bytes": 50_000, "max_pending_bytes": 50_000}
        reader = Reader(Slice(on_error="dead_letter", **limits), publish=lambda _: None)
        tracemalloc.start()
        try:
            for number in range(300):
                reader.read(first_of_many(number).replace(partition=0, offset=number))
            gc.collect()
            # What was given up is remembered, too.
            assert tracemalloc.get_traced_memory()[0] < 2 * 50_000 + 300 * 500
        finally:
            tracemalloc.stop()
        assert reader.session.is_due(), "a client stores dead letters before it reads on"
        reader.poll()
        assert not reader.session.is_due()
        assert reader.errors == []

    def test_nothing_is_kept_of_other_records_and_of_the_slices_of_whole_messages(self) -> None:
        reader = Reader(Slice(on_error="dead_letter"))
        plain = Record("orders", b"v", b"k", partition=0, offset=100)
        assert [record.local for record in reader.session.consume([plain])] == [None]
        (whole,) = reader.session.consume(sent(SLICES))
        assert whole.local is not None
        assert (whole.value, whole.local[ORIGINAL].value) == (VALUE, VALUE)

    def test_the_values_of_a_refused_message_are_not_in_its_error(self) -> None:
        reader = Reader(Slice()).read(*sent(SLICES)[:2]).poll(SLICES.expire_ms)
        (error,) = reader.errors
        assert isinstance(error, ReassemblyError)
        assert error.arrived is None


class TestKeys:
    def sent(self, *steps: Any) -> list[Record]:
        with Chain([SLICES, *steps]).open(Context(side="producer")) as session:
            return placed(list(session.send([Record("orders", VALUE, b"customer 7", partition=3)])))

    def test_of_slices_are_signed(self, keys: str) -> None:
        pieces = self.sent(Sign(keyring=keys, key_id="orders"))
        reader = Reader(SLICES, Sign(keyring=keys)).read(pieces[0].replace(key=b"customer 8"), *pieces)
        assert reader.values == [VALUE]
        assert [type(error) for error in reader.errors] == [SignatureError]

    def test_a_tombstone_takes_nothing_from_an_incomplete_message(self) -> None:
        pieces = self.sent()
        tombstone = pieces[0].with_value(None, Record("").headers)
        reader = Reader(SLICES).read(pieces[0], tombstone, *pieces[1:])
        assert (reader.values, reader.errors) == ([None, VALUE], [])
