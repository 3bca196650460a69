"""The boundary of a session: one way in for everything, the same for single records and batches."""

from __future__ import annotations

from types import SimpleNamespace as Hooks
from typing import Any

import pytest

from headerware import Chain, HeaderError, Headers, Record, RecordError, Stage, TransportHeaderError
from headerware.core.boundary import is_own
from headerware.core.context import Context
from headerware.core.header_ids import HeaderId
from headerware.interceptors import Compress, HeaderIds, Slice
from headerware.interceptors.built_in import HEADERS, INTERCEPTORS
from headerware.registry.names import default_names
from headerware.registry.wire.compact_keys import compact_key

SECRET = "hunter2"
COMPACTED = {key: name for key, name in HEADERS.compact_keys.items() if name in HEADERS.encodings}


def same(record: Record) -> Record:
    return record


def send(record: Record, *, batch: bool, stage: Stage = Stage.BYTES, hook: Any = same) -> Any:
    session = Chain([Hooks(on_send=hook, on_consume=hook, stage=stage)]).open()
    return session.send_outcomes([record])[0] if batch else session.send_outcome(record)


def consume(record: Record, *, batch: bool) -> Any:
    session = Chain([Hooks(on_send=same, on_consume=same)]).open()
    return session.consume_outcomes([record])[0] if batch else session.consume_outcome(record)


@pytest.mark.parametrize("batch", [False, True])
class TestNormalisation:
    @pytest.mark.parametrize("way", [send, consume])
    @pytest.mark.parametrize("part", ["text", b"text", bytearray(b"text"), memoryview(b"text")])
    def test_values_and_keys_become_bytes(self, way: Any, part: Any, batch: bool) -> None:  # noqa: FBT001 - parametrized
        record = way(Record("t", part, part), batch=batch)
        assert (record.value, record.key) == (b"text", b"text")
        assert type(record.value) is type(record.key) is bytes

    @pytest.mark.parametrize("way", [send, consume])
    def test_null_stays_null_and_empty_stays_empty(self, way: Any, batch: bool) -> None:  # noqa: FBT001 - parametrized
        assert way(Record("t", None, b""), batch=batch) == Record("t", None, b"")
        assert way(Record("t", "", None), batch=batch) == Record("t", b"", None)

    @pytest.mark.parametrize("way", [send, consume])
    def test_headers_become_headers_and_the_callers_list_stays(self, way: Any, batch: bool) -> None:  # noqa: FBT001 - parametrized
        mine = [["a", "1"], ("b", None)]
        record = way(Record("t", b"", None, mine), batch=batch)  # type: ignore[arg-type]
        assert type(record.headers) is Headers
        assert tuple(record.headers) == (("a", b"1"), ("b", None))
        assert mine == [["a", "1"], ("b", None)]

    @pytest.mark.parametrize("way", [send, consume])
    @pytest.mark.parametrize(
        ("record", "kind"),
        [
            (Record(None, b""), RecordError),  # type: ignore[arg-type]
            (Record(b"t", b""), RecordError),  # type: ignore[arg-type]
            (Record("t", SECRET + "\ud800"), RecordError),
            (Record("t", b"", SECRET + "\ud800"), RecordError),
            (Record("t", b"", b"", {"a": SECRET + "\ud800"}), HeaderError),  # type: ignore[arg-type]
            (Record("t", b"", b"", {"a": 5}), HeaderError),  # type: ignore[arg-type]
            (Record("t", b"", b"", [(b"a", b"")]), HeaderError),  # type: ignore[arg-type]
        ],
    )
    def test_what_cannot_be_is_an_outcome_that_quotes_nothing(
        self,
        way: Any,
        record: Record,
        kind: type[Exception],
        batch: bool,  # noqa: FBT001 - parametrized
    ) -> None:
        outcome = way(record, batch=batch)
        assert type(outcome) is kind
        assert SECRET not in str(outcome)

    @pytest.mark.parametrize("part", [5, 1.5, {"a": SECRET}, object()])
    def test_objects_are_refused_where_nothing_serializes(self, part: Any, batch: bool) -> None:  # noqa: FBT001 - parametrized
        assert isinstance(send(Record("t", part), batch=batch), RecordError)
        error = send(Record("t", b"", part), batch=batch)
        assert isinstance(error, RecordError)
        assert SECRET not in str(error)

    def test_objects_pass_to_a_transform_at_the_object_stage(self, batch: bool) -> None:  # noqa: FBT001 - parametrized
        def serialize(record: Record) -> Record:
            return record.with_value(repr(record.value).encode(), record.headers)

        assert send(Record("t", 5), batch=batch, stage=Stage.OBJECTS, hook=serialize).value == b"5"

    def test_objects_that_nobody_serialized_are_refused_at_the_end(self, batch: bool) -> None:  # noqa: FBT001 - parametrized
        outcome = send(Record("t", {"a": SECRET}), batch=batch, stage=Stage.OBJECTS)
        assert "not dict; put a step that serializes into the chain, or serialize it first" in str(outcome)
        assert SECRET not in str(outcome)

    def test_a_refused_record_takes_no_neighbour_along(self, batch: bool) -> None:  # noqa: FBT001 - parametrized
        session = Chain([Hooks(on_send=same)]).open()
        good = Record("t", b"good")
        first, second, third = session.send_outcomes([good, Record("t", 5), good])
        assert (first, third) == (good, good)
        assert isinstance(second, RecordError)


@pytest.mark.parametrize("batch", [False, True])
class TestReservedNames:
    @pytest.mark.parametrize(
        "name",
        [
            "hw.sig",
            "hw.compress",
            "hw.",
            "hw.unknown",
            "hw.trail.x",
            "hw.Trail",
            "HW.Compress",
            "Hw.x",
            "hW.sig",
        ],
    )
    def test_are_refused_on_send(self, name: str, batch: bool) -> None:  # noqa: FBT001 - parametrized
        error = send(Record("t", b"", None, Headers([("a", b""), (name, SECRET)])), batch=batch)
        assert isinstance(error, HeaderError)
        assert repr(name) in str(error)
        assert SECRET not in str(error)

    @pytest.mark.parametrize(
        "name",
        [
            *sorted(HEADERS.lineage),
            "hw",
            "hwx",
            "x.hw.sig",
            "",
            "HW",
            "h\N{LATIN SMALL LETTER W WITH RING ABOVE}.",
        ],
    )
    def test_lineage_and_foreign_names_pass(self, name: str, batch: bool) -> None:  # noqa: FBT001 - parametrized
        record = Record("t", b"", None, Headers({name: b""}))
        assert send(record, batch=batch) is record

    def test_a_chain_may_set_them(self, batch: bool) -> None:  # noqa: FBT001 - parametrized
        def sign(record: Record) -> Record:
            return record.with_headers(record.headers.append(("hw.sig", b"")))

        assert "hw.sig" in send(Record("t", b""), batch=batch, hook=sign).headers


@pytest.mark.parametrize("batch", [False, True])
class TestLeftoverEncodings:
    @pytest.mark.parametrize(("name", "word"), list(HEADERS.encodings.items()))
    def test_are_refused_on_consume_with_who_takes_them_off(
        self,
        name: str,
        word: str,
        batch: bool,  # noqa: FBT001 - parametrized
    ) -> None:
        record = Record("t", b"", None, Headers([(name, b"\x01")]), 3, offset=42)
        error = consume(record, batch=batch)
        assert isinstance(error, TransportHeaderError)
        assert str(error).startswith("chain at t[3]@42: its headers say")
        assert str(error).endswith(f"the consumer's chain needs, in this order: {word!r}")

    def test_that_the_chain_took_off_are_fine(self, batch: bool) -> None:  # noqa: FBT001 - parametrized
        decoder = Hooks(on_consume=lambda record: record.with_headers(record.headers.remove("hw.compress")))
        session = Chain([decoder]).open()
        record = Record("t", b"", None, Headers({"hw.compress": b""}))
        outcome = session.consume_outcomes([record])[0] if batch else session.consume_outcome(record)
        assert isinstance(outcome, Record)

    @pytest.mark.parametrize("name", COMPACTED)
    def test_their_compact_keys_say_it_too(self, name: str, batch: bool) -> None:  # noqa: FBT001 - parametrized
        error = consume(Record("t", b"", None, Headers({name: b""})), batch=batch)
        assert isinstance(error, TransportHeaderError)
        assert str(error).endswith(
            f"in this order: {HEADERS.encodings[str(COMPACTED[name])]!r}, 'header_ids'"
        )

    @pytest.mark.parametrize("name", COMPACTED)
    def test_names_like_compact_keys_pass_where_header_ids_reads_them(self, name: str, batch: bool) -> None:  # noqa: FBT001 - parametrized
        session = Chain([HeaderIds(form="keys")]).open()
        record = Record("t", b"", None, Headers({name: b"", "hw.trail": b""}))
        [sent] = session.send([record])
        assert sent.headers.names() == (f"~{name}", "~B")
        outcome = session.consume_outcomes([sent])[0] if batch else session.consume_outcome(sent)
        assert outcome == record

    @pytest.mark.parametrize("name", COMPACTED)
    @pytest.mark.parametrize("topics", [("orders",), ("*", "!t")])
    def test_compact_keys_are_refused_on_topics_where_header_ids_does_not_work(
        self,
        name: str,
        topics: tuple[str, ...],
        batch: bool,  # noqa: FBT001 - parametrized
    ) -> None:
        session = Chain([HeaderIds(form="keys", topics=topics)]).open()
        record = Record("t", b"", None, Headers({name: b""}))
        outcome = session.consume_outcomes([record])[0] if batch else session.consume_outcome(record)
        assert isinstance(outcome, TransportHeaderError)
        assert str(outcome).endswith(
            f"in this order: {HEADERS.encodings[str(COMPACTED[name])]!r}, 'header_ids'"
        )

    @pytest.mark.parametrize(("name", "word"), list(HEADERS.encodings.items()))
    def test_are_refused_on_topics_where_their_step_does_not_work(
        self,
        name: str,
        word: str,
        batch: bool,  # noqa: FBT001 - parametrized
    ) -> None:
        steps = [Compress(topics=("orders",)), Slice(topics=("orders",)), HeaderIds(topics=("orders",))]
        session = Chain(steps).open(Context(pick_partition=lambda _: 0))
        record = Record("t", b"", None, Headers({name: b"\x01"}), 3, offset=42)
        outcome = session.consume_outcomes([record])[0] if batch else session.consume_outcome(record)
        assert isinstance(outcome, TransportHeaderError)
        assert str(outcome).endswith(f"the consumer's chain needs, in this order: {word!r}")

    @pytest.mark.parametrize("name", ["hw.sig", "hw.trail", "hw.id", "compress"])
    def test_others_say_nothing_about_the_value(self, name: str, batch: bool) -> None:  # noqa: FBT001 - parametrized
        record = Record("t", b"", None, Headers({name: b""}))
        assert consume(record, batch=batch) == record


def test_compact_keys_are_those_of_the_registered_ids() -> None:
    ids = {name: default_names().id_of(name) for name in HEADERS.compact_keys.values()}
    found = {compact_key(number or 0): name for name, number in ids.items()}
    assert found == HEADERS.compact_keys
    assert set(COMPACTED.values()) == set(HEADERS.encodings) - {"hw.ids"}


def test_own_ids_are_those_of_the_block_whether_named_or_not() -> None:
    ids = [*range(1, 2**16 + 300), 2**18 - 1, 2**18, 2**24, 2**32 - 1]
    assert [number for number in ids if is_own(compact_key(number))] == list(range(1, 2**16))
    assert [number for number in ids if is_own(str(HeaderId(number)))] == list(range(1, 2**16))
    assert all(map(is_own, ["~A", str(HeaderId(0))]))
    assert not any(map(is_own, ["~", "~~B", "~AB", "~AAB", "~B ", "~B\n", "0.0.0.256", "0.0.0", "0.0.0.01"]))


def test_hints_name_only_types_that_configuration_knows() -> None:
    assert set(HEADERS.encodings.values()) - {None} <= set(INTERCEPTORS)
