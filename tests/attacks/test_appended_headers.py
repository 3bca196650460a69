"""Headers that were added behind a signature: whoever adds them has no key, and no step ever sees them."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest

from headerware.core.batch import Batch, Repeated
from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import SignatureError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, Interceptor, Role, Stage
from headerware.core.record import Record
from headerware.interceptors.dedup import Dedup
from headerware.interceptors.header_ids import HeaderIds
from headerware.interceptors.serialize import Serialize
from headerware.interceptors.sign import Sign
from headerware.interceptors.slice import Slice
from headerware.interceptors.trace import Trace
from headerware.interceptors.transforms import Transforms
from headerware.serdes import Avro, CloudEvent, CloudEvents, Json, Polyglot, Text
from tests.unit.interceptors.conftest import RECORD, sent

ADDED = ("x", b"1")


class Spy(Interceptor, frozen=True, kw_only=True):
    """Notes what it is shown."""

    seen: ClassVar[list[Headers]] = []
    role: ClassVar[Role] = Role.OBSERVE

    def on_consume(self, record: Record) -> Record:
        self.seen.append(record.headers)
        return record


class Twice(Interceptor, frozen=True, kw_only=True):
    """Makes two records of one."""

    stage: ClassVar[Stage] = Stage.OBJECTS

    def on_consume(self, record: Record) -> list[Record]:
        return [record, record.replace(value=b"again")]


class InBatches(Interceptor, frozen=True, kw_only=True):
    """Would rather have many records at once."""

    def on_consume_batch(self, batch: Batch) -> Batch:
        return batch.append_header("batch", Repeated(b"1", len(batch)))


class Late(Interceptor, frozen=True, kw_only=True):
    """Holds records back until it is polled."""

    waiting: ClassVar[list[Record]] = []

    def on_consume(self, record: Record) -> list[Record]:
        self.waiting.append(record)
        return []

    def poll(self, now_ms: int) -> list[Record]:
        released = list(self.waiting)
        self.waiting.clear()
        return released


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    Spy.seen.clear()
    Late.waiting.clear()


def appended(record: Record, *pairs: tuple[str, bytes | None]) -> Record:
    return record.with_headers(Headers([*record.headers, *pairs]))


def read(keys: str, records: list[Record], *left: Any, **options: Any) -> list[Record]:
    with Chain([*left, Sign(keyring=keys, **options)]).open(Context(side="consumer")) as session:
        found = session.consume(records)
        for outcome in session.poll():
            assert isinstance(outcome, Record)
            found.append(outcome)
        return found


def masking() -> tuple[Any, ...]:
    """Return steps that mask a field unless a header tells otherwise."""
    lines = {
        "transforms": "mask",
        "transforms.mask.type": "MaskField$Value",
        "transforms.mask.fields": "id",
        "transforms.mask.predicate": "told",
        "transforms.mask.negate": "true",
        "predicates": "told",
        "predicates.told.type": "HasHeaderKey",
        "predicates.told.name": "unmasked",
    }
    return Transforms(config=lines, on="consume"), Serialize(value=Json())


class TestStripped:
    def test_neither_steps_nor_the_application_see_them(self, keys: str) -> None:
        (seen,) = read(keys, [appended(sent(keys)[0], ADDED)], Spy())
        assert Spy.seen == [RECORD.headers]
        assert seen.headers == RECORD.headers

    def test_they_are_listed_and_counted(self, keys: str) -> None:
        session = Chain([Sign(keyring=keys)]).open(Context(side="consumer"))
        (seen,) = session.consume([appended(sent(keys)[0], ADDED, ("y", None))])
        assert seen.verified is not None
        assert seen.verified.uncovered == ("x", "y")
        assert session.stats()["sign"]["uncovered"] == 1

    def test_what_nobody_signed_claims_nothing(self, keys: str) -> None:
        (seen,) = read(keys, [appended(RECORD, ADDED)], require="off")
        assert (seen.headers, seen.verified) == (RECORD.headers.add(*ADDED), None)

    def test_a_second_content_type_reads_nothing_otherwise(self, keys: str) -> None:
        steps = (Serialize(value=Polyglot(default=Json())),)
        (signed,) = sent(keys, *steps, record=RECORD.replace(value={"id": 1}))
        for name in ("Content-Type", "CONTENT-TYPE", "content-type"):
            forged = appended(signed, (name, b"text/plain"))
            try:
                (seen,) = read(keys, [forged], *steps)
            except SignatureError:
                continue  # it repeats a signed name
            assert seen.value == {"id": 1}

    def test_a_schema_swaps_no_fields(self, keys: str) -> None:
        fields = [{"name": "paid", "type": "long"}, {"name": "due", "type": "long"}]
        texts = [
            json.dumps({"type": "record", "name": "Bill", "fields": order})
            for order in (fields, fields[::-1])
        ]
        steps = (Serialize(value=Avro(schema=texts[0])),)
        (signed,) = sent(keys, *steps, record=RECORD.replace(value={"paid": 1, "due": 2}))
        for name in ("avro.schema", "value.avro.schema", "Avro.Schema"):
            forged = appended(signed, (name, texts[1].encode()))
            try:
                (seen,) = read(keys, [forged], *steps)
            except SignatureError:
                continue  # it repeats a signed name
            assert seen.value == {"paid": 1, "due": 2}

    def test_a_trace_is_not_taken_over(self, keys: str) -> None:
        (signed,) = sent(keys)
        (seen,) = read(keys, [appended(signed, ("baggage", b"role=admin"))], Trace())
        assert "trace" not in (seen.local or {})

    def test_a_predicate_switches_nothing_off(self, keys: str) -> None:
        (signed,) = sent(keys)
        (seen,) = read(keys, [appended(signed, ("unmasked", b"1"))], *masking())
        assert seen.value == {"id": 0}

    @pytest.mark.parametrize("form", ["packed", "keys"])
    @pytest.mark.parametrize("writes_ids", [False, True])
    def test_in_compact_form_they_come_off_too(self, keys: str, form: Any, *, writes_ids: bool) -> None:
        wire = HeaderIds(form=form).open(Context())
        (signed,) = sent(keys)
        (added,) = wire.on_send(RECORD.with_headers(Headers([("10.0.0.1", b"1")]))).headers
        assert added[0] != "10.0.0.1"
        chain = Chain([Spy(), Sign(keyring=keys), HeaderIds()]).open(Context(side="consumer"))
        outcome = chain.consume_outcome(appended(wire.on_send(signed) if writes_ids else signed, added))
        # A second block is refused; in every other form it stands behind the signature.
        if isinstance(outcome, Record):
            assert (outcome.headers, Spy.seen) == (RECORD.headers, [RECORD.headers])
            assert outcome.verified is not None
            assert outcome.verified.uncovered == ("10.0.0.1",)
        else:
            assert (form, writes_ids) == ("packed", True)

    def test_an_event_has_no_attribute_of_theirs(self, keys: str) -> None:
        steps = (Serialize(value=CloudEvents(mode="binary")),)
        event = CloudEvent(id="1", source="/shop", type="paid", data={"id": 1})
        (signed,) = sent(keys, *steps, record=Record("orders", event))
        (seen,) = read(keys, [appended(signed, ("ce_role", b"admin"), ("ce_subject", b"x"))], *steps)
        assert seen.value.extensions == {}
        assert seen.value.subject is None

    def test_a_reason_makes_no_copy_pass(self, keys: str) -> None:
        (signed,) = sent(keys, Dedup())
        copy = appended(signed, ("__connect.errors.topic", b"other")).replace(offset=2000)
        assert len(read(keys, [signed, copy], Dedup())) == 1

    def test_a_dead_letter_that_is_put_back_is_delivered(self, keys: str) -> None:
        letters: list[Record] = []
        fails = [True]

        class Reads:
            on_error = "dead_letter"

            def on_consume(self, record: Record) -> Record:
                if fails[0]:
                    raise ValueError
                return record

        (signed,) = sent(keys, Dedup())
        chain = Chain([Reads(), Dedup(), Sign(keyring=keys, replay_window=10)])
        with chain.open(Context(side="consumer", publish=letters.append)) as session:
            assert session.consume([signed]) == []
            fails[0] = False
            back = letters[0].replace(topic="orders", partition=3, offset=2000)
            (seen,) = session.consume([back])
            assert seen.headers == RECORD.headers
            assert session.consume_outcomes([back.replace(offset=2001)]) != [seen]


class TestRefused:
    def test_a_record_with_any(self, keys: str) -> None:
        with pytest.raises(SignatureError, match=r"does not cover \(1\), the first one 'x'"):
            read(keys, [appended(sent(keys)[0], ADDED)], uncovered="refuse")

    @pytest.mark.parametrize(
        "name", ["TENANT", "Tenant", "tenant", "HW.Compress", "Hw.x", "hW.sig", "hw.", "~B", "~C", "~L"]
    )
    @pytest.mark.parametrize("uncovered", ["strip", "refuse", "pass"])
    def test_a_signed_or_reserved_name_in_any_case(self, keys: str, name: str, uncovered: Any) -> None:
        with pytest.raises(SignatureError, match=r"after hw\.sig"):
            read(keys, [appended(sent(keys)[0], (name, b"red"))], uncovered=uncovered)


class TestPassed:
    def test_a_predicate_sees_none_either(self, keys: str) -> None:
        (signed,) = sent(keys)
        (seen,) = read(keys, [appended(signed, ("unmasked", b"1"))], *masking(), uncovered="pass")
        assert (seen.value, seen.headers.last("unmasked")) == ({"id": 0}, b"1")

    def test_the_application_alone_sees_them(self, keys: str) -> None:
        (seen,) = read(keys, [appended(sent(keys)[0], ADDED)], Spy(), uncovered="pass")
        assert Spy.seen == [RECORD.headers]
        assert seen.headers == RECORD.headers.add(*ADDED)
        assert seen.verified is not None
        assert seen.verified.uncovered == ("x",)

    def test_behind_a_step_that_makes_several_records(self, keys: str) -> None:
        found = read(keys, [appended(sent(keys)[0], ADDED)], Twice(), uncovered="pass")
        assert [record.headers for record in found] == [RECORD.headers.add(*ADDED)] * 2

    def test_behind_a_step_that_takes_batches(self, keys: str) -> None:
        records = [appended(sent(keys)[0], ADDED), *sent(keys)]
        found = read(keys, records, Spy(), InBatches(), uncovered="pass")
        assert Spy.seen == [RECORD.headers.add("batch", b"1")] * 2
        expected = RECORD.headers.add("batch", b"1")
        assert [record.headers for record in found] == [expected.add(*ADDED), expected]

    def test_behind_a_step_that_lets_them_wait(self, keys: str) -> None:
        (seen,) = read(keys, [appended(sent(keys)[0], ADDED)], Spy(), Late(), uncovered="pass")
        assert Spy.seen == [RECORD.headers]
        assert seen.headers == RECORD.headers.add(*ADDED)

    def test_those_of_the_first_slice_with_the_whole_message(self, keys: str) -> None:
        whole = RECORD.replace(value=bytes(3_000))
        slices = [
            appended(record, (f"x{index}", b"1"))
            for index, record in enumerate(sent(keys, Slice(max_bytes=1_500), record=whole))
        ]
        (seen,) = read(keys, slices, Spy(), Slice(), uncovered="pass")
        assert Spy.seen == [RECORD.headers]
        assert seen.headers == RECORD.headers.add("x0", b"1")
        assert seen.verified is not None
        assert seen.verified.uncovered == ("x0",)

    def test_a_second_content_type_decides_nothing(self, keys: str) -> None:
        steps = (Serialize(value=Polyglot(default=Text())),)
        (signed,) = sent(keys)
        (seen,) = read(
            keys, [appended(signed, ("content-type", b"application/json"))], *steps, uncovered="pass"
        )
        assert seen.value == '{"id":1}'
        assert seen.headers.last("content-type") == b"application/json"

    def test_a_dropped_record_stays_dropped(self, keys: str) -> None:
        class Drops:
            def on_consume(self, record: Record) -> Any:
                return DROP

        assert read(keys, [appended(sent(keys)[0], ADDED)], Drops(), uncovered="pass") == []
