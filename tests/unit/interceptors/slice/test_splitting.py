"""Slice on send: what fits, how the rest is split, and what cannot be split."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka
import msgspec
import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, InterceptorError
from headerware.core.headers import Headers
from headerware.core.hooks import FanOut
from headerware.core.record import Record
from headerware.interceptors.slice.header import MAX_SLICES, SLICE_HEADER, SliceHeader
from headerware.interceptors.slice.interceptor import Slice, SliceStep

if TYPE_CHECKING:
    from collections.abc import Callable

FRAMING = 97
SLICE_HEADER_BYTES = 10 + len(SLICE_HEADER) + 52


def split(record: Record, max_bytes: int | None = 1_000, context: Context | None = None) -> list[Record]:
    return list(fan_out(Slice(max_bytes=max_bytes).open(context or Context()), record))


def fan_out(step: SliceStep, record: Record) -> FanOut:
    pieces = step.on_send(record)
    assert isinstance(pieces, FanOut)
    return pieces


def wire_bytes(record: Record) -> int:
    headers = sum(10 + len(name.encode()) + len(value or b"") for name, value in record.headers)
    return FRAMING + len(record.key or b"") + headers + len(record.value)


def header_of(record: Record) -> SliceHeader:
    return SliceHeader.decode(record.headers.last(SLICE_HEADER))


class TestWhatFits:
    @pytest.mark.parametrize(
        "record",
        [
            Record("t", b"small", b"key", Headers([("a", b"1"), ("b", None)])),
            Record("t", b""),
            Record("t", None, b"tombstone"),
            Record("t", None, b"k" * 2_000, Headers([("large", b"x" * 2_000), ("null", None)])),
            Record("t", b"x" * (1_000 - FRAMING)),
        ],
        ids=["small", "empty", "tombstone", "large tombstone", "exactly"],
    )
    def test_passes_the_very_same_record(self, record: Record) -> None:
        assert Slice(max_bytes=1_000).open(Context()).on_send(record) is record

    @pytest.mark.parametrize("name", ["ascii", "\N{EURO SIGN}" * 40, ""])
    @pytest.mark.parametrize("value", [None, b"", b"x" * 50])
    def test_counts_key_and_headers(self, name: str, value: bytes | None) -> None:
        record = Record("t", b"", b"key", Headers([(name, value)] * 3))
        room = 1_000 - wire_bytes(record)
        step = Slice(max_bytes=1_000).open(Context())
        fitting = record.replace(value=b"x" * room)
        assert step.on_send(fitting) is fitting
        assert isinstance(step.on_send(record.replace(value=b"x" * (room + 1))), FanOut)

    def test_counts_what_steps_to_the_right_add(self) -> None:
        step = Slice(max_bytes=1_000).open(Context(overhead_bytes=lambda _: 200))
        fitting = Record("t", b"x" * (800 - FRAMING))
        assert step.on_send(fitting) is fitting
        assert isinstance(step.on_send(Record("t", b"x" * (801 - FRAMING))), FanOut)

    def test_large_keys_are_not_light(self) -> None:
        assert len(split(Record("t", b"x" * 60_000, b"k" * 850_000), None)) == 2

    def test_long_names_are_not_light(self) -> None:
        record = Record("t", b"x", headers=Headers([("\N{EURO SIGN}" * 299_970, b"")]))
        step = Slice().open(Context())
        with pytest.raises(InterceptorError, match="no room"):
            step.on_send(record)

    def test_a_slice_is_not_split_again(self) -> None:
        piece = split(Record("t", b"x" * 3_000))[0]
        dead_letter = piece.replace(headers=piece.headers.add("__connect.errors.topic", b"t" * 50))
        assert Slice(max_bytes=1_000).open(Context()).on_send(dead_letter) is dead_letter


class TestCutting:
    RECORD = Record(
        "orders",
        bytes(range(256)) * 20,
        b"key",
        Headers([("a", b"1"), ("a", None), ("b", b"x" * 100)]),
        timestamp_ms=17,
        timestamp_type=1,
        local={"trace": object()},
    )

    def test_slices_join_to_the_value(self) -> None:
        assert b"".join(piece.value for piece in split(self.RECORD)) == self.RECORD.value

    def test_no_slice_is_larger_than_the_limit(self) -> None:
        pieces = split(self.RECORD, context=Context(overhead_bytes=lambda _: 150))
        assert wire_bytes(pieces[0]) == 850
        assert all(wire_bytes(piece) <= 850 for piece in pieces)

    def test_headers_agree(self) -> None:
        pieces = split(self.RECORD)
        headers = [header_of(piece) for piece in pieces]
        assert [header.index for header in headers] == list(range(len(pieces)))
        assert {header.count for header in headers} == {len(pieces)}
        assert [header.payload_bytes for header in headers] == [len(piece.value) for piece in pieces]
        assert len({header.message_id for header in headers}) == 1

    def test_only_the_first_keeps_headers(self) -> None:
        first, *others = split(self.RECORD)
        assert first.headers[:-1] == tuple(self.RECORD.headers)
        assert [piece.headers.names() for piece in others] == [(SLICE_HEADER,)] * len(others)

    def test_all_keep_the_rest(self) -> None:
        for piece in split(self.RECORD):
            assert piece.replace(value=None, headers=Headers()) == self.RECORD.replace(
                value=None, headers=Headers()
            )

    def test_messages_have_different_ids(self) -> None:
        step = Slice(max_bytes=1_000).open(Context())
        ids = {header_of(next(iter(fan_out(step, self.RECORD)))).message_id for _ in range(20)}
        assert len(ids) == 20

    def test_a_second_pass_gives_the_same(self) -> None:
        pieces = fan_out(Slice(max_bytes=1_000).open(Context()), self.RECORD)
        assert list(pieces) == list(pieces)

    def test_states_its_size(self) -> None:
        pieces = Slice(max_bytes=1_000).open(Context(overhead_bytes=lambda _: 7)).on_send(self.RECORD)
        assert isinstance(pieces, FanOut)
        assert pieces.count == len(list(pieces))
        assert pieces.size_bytes == sum(wire_bytes(piece) + 7 for piece in pieces)

    def test_overhead_is_asked_about_a_slice(self) -> None:
        seen: list[tuple[str, ...]] = []

        def overhead_bytes(record: Record) -> int:
            seen.append(record.headers.names())
            return 0

        split(self.RECORD, context=Context(overhead_bytes=overhead_bytes))
        assert seen[-1] == ("a", "a", "b", SLICE_HEADER)

    def test_counts(self) -> None:
        step = Slice(max_bytes=1_000).open(Context())
        step.on_send(Record("t", b"x" * 833 * 2))
        step.on_send(Record("t", b"x"))
        assert (step.stats()["sliced"], step.stats()["slices"]) == (1, 2)

    def test_splits_through_a_chain(self) -> None:
        with Chain([Slice(max_bytes=1_000)]).open() as session:
            record = Record("t", b"x" * 5_000, headers=Headers([("a", b"1")]))
            assert session.consume(session.send([record])) == [record]


class TestPartition:
    def test_is_picked_once_for_all_slices(self) -> None:
        asked: list[Record] = []

        def pick(record: Record) -> int:
            asked.append(record)
            return 3

        record = Record("t", b"x" * 5_000)
        pieces = split(record, context=Context(pick_partition=pick))
        assert {piece.partition for piece in pieces} == {3}
        assert asked == [record]

    def test_stays_where_it_was_given(self) -> None:
        pieces = split(Record("t", b"x" * 5_000, partition=5), context=Context(pick_partition=lambda _: 3))
        assert {piece.partition for piece in pieces} == {5}

    def test_stays_open_where_the_key_decides(self) -> None:
        pieces = split(Record("t", b"x" * 5_000, b"key"), context=Context(pick_partition=lambda _: None))
        assert {(piece.partition, piece.key) for piece in pieces} == {(None, b"key")}


class TestWhatCannotBeCut:
    def test_headers_without_room_for_a_value(self) -> None:
        record = Record("t", b"x" * 10, b"k" * 400, Headers([("h", b"v" * 600)]))
        with pytest.raises(InterceptorError, match=r"1178 bytes.* no room .*max_bytes is 1000"):
            split(record)

    def test_too_many_slices(self) -> None:
        headers = Headers([("h", b"v" * (1_000 - FRAMING - SLICE_HEADER_BYTES - 11 - 1))])
        with pytest.raises(InterceptorError, match=f"at most {MAX_SLICES}"):
            split(Record("t", b"x" * (MAX_SLICES + 1), headers=headers))

    def test_a_message_that_nobody_would_reassemble(self) -> None:
        step = Slice(max_bytes=1_000, max_message_bytes=5_000).open(Context())
        with pytest.raises(InterceptorError, match="5001 bytes; max_message_bytes is 5000"):
            step.on_send(Record("t", b"x" * 5_001))

    def test_says_nothing_of_the_payload(self) -> None:
        with pytest.raises(InterceptorError) as caught:
            split(Record("t", b"secret" * 10, b"secret" * 100, Headers([("h", b"secret" * 100)])))
        assert "secret" not in str(caught.value)


class TestOptions:
    def test_default_adapts_to_the_client(self) -> None:
        pieces = split(Record("t", b"x" * 5_000), None, Context(max_message_bytes=2_000))
        assert wire_bytes(pieces[0]) == 2_000

    def test_default_is_900_000(self) -> None:
        pieces = split(Record("t", b"x" * 1_000_000), None, Context(max_message_bytes=1_000_000))
        assert wire_bytes(pieces[0]) == 900_000

    def test_larger_than_the_client_takes_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"max_bytes: expected at most .*\(2000\), found 3000"):
            Slice(max_bytes=3_000).open(Context(max_message_bytes=2_000))

    def test_a_consumer_has_no_such_limit(self) -> None:
        Slice(max_bytes=3_000).open(Context(side="consumer", max_message_bytes=2_000))

    def test_a_message_has_to_fit_the_pool(self) -> None:
        with pytest.raises(
            ConfigError, match=r"max_pending_bytes: expected at least max_message_bytes .*, found 10"
        ):
            Slice(max_pending_bytes=10)

    @pytest.mark.parametrize("option", ["max_bytes", "max_message_bytes", "max_pending_messages", "max_gap"])
    def test_zero_is_refused(self, option: str) -> None:
        with pytest.raises(msgspec.ValidationError, match=option):
            msgspec.convert({option: 0}, Slice)

    def test_text_of_flat_configuration_is_taken(self) -> None:
        assert msgspec.convert({"max_bytes": "5000"}, Slice, strict=False).max_bytes == 5_000


class TestAgainstLibrdkafka:
    """Whatever slice takes for fitting, the client accepts."""

    @pytest.mark.parametrize(
        "shape",
        [
            lambda fill: Record("t", b"x" * fill),
            lambda fill: Record("t", b"x" * (fill // 2), b"k" * (fill // 2)),
            lambda fill: Record("t", b"x" * (fill // 2), b"k", Headers([("n" * (fill // 2), None)])),
            lambda fill: Record("t", b"", b"k", Headers([("\N{EURO SIGN}", b"v")] * (fill // 5))),
        ],
        ids=["value", "key", "name", "headers"],
    )
    def test_the_bound_holds(self, shape: Callable[[int], Record]) -> None:
        step = Slice(max_bytes=1_000).open(Context())
        fill = max(fill for fill in range(1_000) if _fits(step.on_send, shape(fill)))
        record = shape(fill)
        producer = confluent_kafka.Producer({"message.max.bytes": 1_000})
        producer.produce("t", record.value, record.key, headers=list(record.headers))
        assert len(producer) == 1
        producer.purge()


def _fits(on_send: Callable[[Record], Record | FanOut], record: Record) -> bool:
    try:
        return on_send(record) is record
    except InterceptorError:
        return False


class TestCompactedTopics:
    """Compaction would keep one slice of a message."""

    def step(self, *, told: bool | None = True) -> Any:
        return Slice(max_bytes=1_000).open(Context(is_compacted=lambda topic: told and topic == "customers"))

    def test_a_message_is_not_cut(self) -> None:
        with pytest.raises(InterceptorError, match=r"topic 'customers' is compacted.* put claim_check into"):
            self.step().on_send(Record("customers", b"v" * 5_000, b"k"))
        assert self.step().stats()["sliced"] == 0

    def test_a_record_that_fits_and_a_tombstone_are_themselves(self) -> None:
        for value in (None, b"", b"v" * 500):
            record = Record("customers", value, b"k")
            assert self.step().on_send(record) is record

    def test_other_topics_are_as_ever(self) -> None:
        pieces = list(fan_out(self.step(), Record("orders", b"v" * 5_000, b"k")))
        assert {piece.key for piece in pieces} == {b"k"}
        assert [header_of(piece).index for piece in pieces] == list(range(len(pieces)))

    def test_a_topic_of_which_nobody_tells_is_as_ever(self) -> None:
        assert len(fan_out(self.step(told=None), Record("customers", b"v" * 5_000, b"k"))) > 1

    def test_the_former_option_says_what_to_do_now(self) -> None:
        with pytest.raises(TypeError, match=r"no longer has 'compacted_topics': .*claim_check"):
            Slice(compacted_topics=("customers",))  # type: ignore[call-arg]  # it is gone
        with pytest.raises(ConfigError, match=r"no longer has this option: .*claim_check") as refused:
            Chain.from_config({"interceptors": "slice", "interceptors.slice.compacted_topics": "customers"})
        assert refused.value.path == "interceptors.slice.compacted_topics"
