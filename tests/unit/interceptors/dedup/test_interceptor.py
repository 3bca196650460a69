from __future__ import annotations

import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headerware.core.chain import Chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, InterceptorError, WireFormatError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP, Place, Role, Stage
from headerware.core.record import Record
from headerware.interceptors.compress import Compress
from headerware.interceptors.dedup.identity import ID_HEADER, Identity, layout_of
from headerware.interceptors.dedup.interceptor import Dedup, DedupStep
from headerware.interceptors.slice import Slice

PRODUCER = bytes(range(16))
RECORD = Record("orders", b"v", b"k", Headers([("a", b"1"), ("b", None)]), 0, offset=5)


def opened(context: Context | None = None, **options: Any) -> DedupStep:
    return Dedup(**options).open(context or Context())


def identity_in(record: Record) -> Identity:
    assert len(record.headers.all(ID_HEADER)) == 1
    return Identity.decode(record.headers.last(ID_HEADER))


def come(sequence: int, offset: int | None, *, partition: int = 0, topic: str = "orders") -> Record:
    """Return a numbered record as it comes from the wire."""
    value = Identity.numbered(PRODUCER, sequence).encode()
    headers = Headers([("a", b"1"), (ID_HEADER, value), ("b", None)])
    return Record(topic, b"v", b"k", headers, partition, offset=offset)


def took(step: DedupStep, record: Record) -> Any:
    """Return what becomes of a record that no other step refuses."""
    outcome: Any = step.on_consume(record)
    on_accepted = getattr(step, "on_accepted", None)
    return on_accepted(outcome) if on_accepted is not None and outcome is not DROP else outcome


def delivered(step: DedupStep, *records: Record) -> list[tuple[str, int | None, int | None]]:
    """Return the positions of the records that an application sees."""
    found = [took(step, record) for record in records]
    return [(r.topic, r.partition, r.offset) for r in found if isinstance(r, Record)]


def dead_letter(record: Record, *, topic: str, origin: int) -> Record:
    reason = [("__connect.errors.topic", b"orders"), ("__connect.errors.offset", str(origin).encode())]
    return record.replace(topic=topic, headers=Headers([*record.headers, *reason]))


class TestDedupOnSend:
    def test_numbers_the_records_of_a_session(self) -> None:
        step = opened()
        first, second = (identity_in(step.on_send(RECORD)) for _ in range(2))
        assert (first.sequence, second.sequence) == (0, 1)
        assert first.source == second.source

    def test_adds_its_header_behind_the_others_and_changes_nothing_else(self) -> None:
        sent = opened().on_send(RECORD)
        assert sent.headers.names() == ("a", "b", ID_HEADER)
        assert sent.replace(headers=RECORD.headers) == RECORD

    def test_each_session_is_another_producer(self) -> None:
        interceptor = Dedup()
        sources = {identity_in(interceptor.open(Context()).on_send(RECORD)).source for _ in range(20)}
        assert len(sources) == 20

    def test_threads_never_share_a_sequence(self) -> None:
        step = opened()
        with ThreadPoolExecutor(8) as threads:
            sent = list(threads.map(lambda _: step.on_send(RECORD), range(4_000)))
        assert {identity_in(record).sequence for record in sent} == set(range(4_000))

    def test_a_forked_process_is_another_producer(self) -> None:
        step = opened()
        read, write = os.pipe()
        child = os.fork()
        if not child:  # pragma: no cover - another process
            os.write(write, identity_in(step.on_send(RECORD)).source)
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 16) != identity_in(step.on_send(RECORD)).source
        os.close(read)
        os.close(write)

    def test_takes_the_identity_that_a_record_brings(self) -> None:
        given = Identity.derived(["a query"], [b"7"])
        step = opened(id_from=("a",))
        assert identity_in(step.on_send(RECORD.with_local("dedup", given))) == given
        assert identity_in(step.on_send(RECORD.with_local("trace", given))) != given

    def test_refuses_anything_else_in_its_place(self) -> None:
        with pytest.raises(InterceptorError, match=r'an Identity in record\.local\["dedup"\], found bytes$'):
            opened().on_send(RECORD.with_local("dedup", b"secret"))

    def test_a_tombstone_has_an_identity_too(self) -> None:
        assert identity_in(opened().on_send(RECORD.replace(value=None))).sequence == 0


class TestDedupIdFrom:
    def test_the_same_record_is_the_same_in_every_process(self) -> None:
        one, other = (opened(id_from=("a",)).on_send(RECORD) for _ in range(2))
        assert identity_in(one) == identity_in(other)

    def test_it_is_the_value_that_counts_and_not_what_else_the_record_holds(self) -> None:
        step = opened(id_from=("a",))
        again = step.on_send(RECORD.replace(value=b"w", key=None, headers=Headers([("x", b""), ("a", b"1")])))
        assert identity_in(again) == identity_in(step.on_send(RECORD))

    @pytest.mark.parametrize(
        ("options", "record"),
        [
            ({"id_from": ("a",)}, RECORD.replace(topic="refunds")),
            ({"id_from": ("a",)}, RECORD.replace(headers=Headers({"a": b"2"}))),
            ({"id_from": ("a",), "producer": "shop"}, RECORD),
            ({"id_from": ("a", "c")}, RECORD.replace(headers=Headers({"a": b"1", "c": b"1"}))),
            ({"id_from": ("a",), "id_from_key": True}, RECORD),
            ({"id_from": ("c",)}, RECORD.replace(headers=Headers({"c": b"1"}))),
        ],
    )
    def test_another_topic_value_producer_or_set_of_names_is_another_record(
        self, options: dict[str, Any], record: Record
    ) -> None:
        plain = opened(id_from=("a",)).on_send(RECORD)
        assert identity_in(opened(**options).on_send(record)) != identity_in(plain)

    def test_parts_do_not_run_into_one_another(self) -> None:
        step = opened(id_from=("a", "b"))
        found = {
            step.on_send(RECORD.replace(headers=Headers({"a": one, "b": other}))).headers.last(ID_HEADER)
            for one, other in [(b"12", b"3"), (b"1", b"23"), (b"1\x00\x00\x00\x012", b"3")]
        }
        assert len(found) == 3

    def test_the_last_header_of_a_name_counts(self) -> None:
        step = opened(id_from=("a",))
        twice = RECORD.replace(headers=Headers([("a", b"0"), ("a", b"1")]))
        assert identity_in(step.on_send(twice)) == identity_in(step.on_send(RECORD))

    @pytest.mark.parametrize("headers", [{}, {"a": None}, {"a": b""}, {"A": b"1"}])
    def test_refuses_a_record_that_does_not_say_who_it_is(self, headers: dict[str, bytes | None]) -> None:
        with pytest.raises(InterceptorError, match=r"expected a header 'a' with a value .* found none"):
            opened(id_from=("a",)).on_send(RECORD.replace(headers=Headers(headers)))

    @pytest.mark.parametrize("key", [None, b""])
    def test_refuses_a_record_without_a_key_where_the_key_says_it(self, key: bytes | None) -> None:
        with pytest.raises(InterceptorError, match="expected a key"):
            opened(id_from_key=True).on_send(RECORD.replace(key=key))

    def test_the_key_alone_will_do(self) -> None:
        step = opened(id_from_key=True)
        found = {step.on_send(RECORD.replace(key=key)).headers.last(ID_HEADER) for key in (b"k", b"k", b"l")}
        assert len(found) == 2

    def test_goes_on_with_ever_more_topics(self) -> None:
        step = opened(id_from=("a",))
        found = {step.on_send(RECORD.replace(topic=f"t{n}")).headers.last(ID_HEADER) for n in range(3_000)}
        assert len(found) == 3_000
        assert len(step._scopes) <= 1_024


class TestDedupOnConsume:
    def test_takes_the_header_off_and_nothing_else(self) -> None:
        record = took(opened(), come(0, 5))
        assert record == come(0, 5).replace(headers=Headers([("a", b"1"), ("b", None)]), local={})

    def test_drops_a_copy_and_counts_it(self) -> None:
        step = opened()
        assert delivered(step, come(0, 5), come(1, 6), come(0, 7)) == [("orders", 0, 5), ("orders", 0, 6)]
        assert took(step, come(1, 9)) is DROP
        assert step.stats() == {"duplicates": 2, "without_id": 0}

    def test_a_copy_in_another_partition_is_a_copy(self) -> None:
        assert delivered(opened(), come(0, 5), come(0, 5, partition=1)) == [("orders", 0, 5)]

    def test_a_copy_that_a_mirror_made_in_another_topic_is_a_copy(self) -> None:
        assert delivered(opened(), come(0, 5), come(0, 5, topic="orders-mirror")) == [("orders", 0, 5)]

    def test_a_record_that_is_read_again_is_delivered_again(self) -> None:
        records = [come(0, 5), come(1, 6), come(0, 7), come(2, 8)]
        step = opened()
        first = delivered(step, *records)
        assert delivered(step, *records) == first
        assert [offset for _, _, offset in first] == [5, 6, 8]

    def test_a_rewind_to_between_record_and_copy_still_knows_the_copy(self) -> None:
        step = opened()
        assert delivered(step, come(0, 5), come(0, 7), come(0, 7)) == [("orders", 0, 5)]

    def test_a_rewind_before_what_was_read_first_delivers_the_position_that_was_delivered(self) -> None:
        step = opened()
        assert delivered(step, come(0, 7), come(0, 5), come(0, 7)) == [("orders", 0, 7), ("orders", 0, 7)]

    def test_a_position_that_is_not_known_is_none_read_again(self) -> None:
        assert delivered(opened(), come(0, None), come(0, None)) == [("orders", 0, None)]

    def test_passes_a_record_without_an_identity_untouched(self) -> None:
        step = opened()
        assert step.on_consume(RECORD) is RECORD
        assert step.on_consume(RECORD.replace(headers=Headers())) is not DROP
        assert step.stats()["without_id"] == 2

    def test_what_one_producer_numbers_is_not_what_another_does(self) -> None:
        step = opened()
        other = Identity.numbered(PRODUCER[::-1], 0).encode()
        assert took(step, come(0, 5)) is not DROP
        assert took(step, RECORD.replace(headers=Headers({ID_HEADER: other}))) is not DROP

    def test_asks_whoever_remembers_for_the_session(self) -> None:
        asked: list[tuple[bytes, int | None]] = []

        def is_duplicate(identity: bytes, record: Record) -> bool:
            asked.append((identity, record.offset))
            return len(asked) == 1

        step = opened(Context(is_duplicate=is_duplicate), store="/nowhere/at/all.db")
        assert delivered(step, come(0, 5), come(0, 6)) == [("orders", 0, 6)]
        assert asked == [(layout_of(Identity.numbered(PRODUCER, 0).encode()), offset) for offset in (5, 6)]
        assert step.stats()["duplicates"] == 1


class TestDedupWindow:
    def test_knows_copies_out_of_order_within_it(self) -> None:
        step = opened(window=100)
        assert len(delivered(step, *(come(n, n) for n in reversed(range(100))))) == 100
        assert delivered(step, *(come(n, 1_000 + n) for n in range(100))) == []

    def test_what_is_older_is_delivered(self) -> None:
        step = opened(window=10)
        delivered(step, *(come(n, n) for n in range(30)))
        assert delivered(step, come(0, 99), come(20, 98)) == [("orders", 0, 99)]

    def test_bounds_each_producer_by_twice_its_size(self) -> None:
        step = opened(window=10)
        delivered(step, *(come(n, n) for n in range(1_000)))
        copies = len(delivered(step, *(come(n, 5_000 + n) for n in reversed(range(1_000)))))
        assert 980 <= copies <= 990


class TestDedupDeadLetters:
    def test_a_dead_letter_that_is_put_back_is_no_copy_of_what_was_refused(self) -> None:
        step = opened()
        back = dead_letter(come(0, 9), topic="orders", origin=5)
        assert delivered(step, come(0, 5), back) == [("orders", 0, 5), ("orders", 0, 9)]

    def test_a_dead_letter_that_is_put_back_twice_comes_once_and_whenever_it_is_read_again(self) -> None:
        step = opened()
        back, twice = (dead_letter(come(0, offset), topic="orders", origin=5) for offset in (9, 11))
        assert delivered(step, come(0, 5), back, twice, back) == [
            ("orders", 0, 5),
            ("orders", 0, 9),
            ("orders", 0, 9),
        ]

    def test_one_that_failed_again_can_be_put_back_again(self) -> None:
        step = opened()
        letters = [
            dead_letter(come(0, 9), topic="orders", origin=5),
            dead_letter(come(0, 11), topic="orders", origin=9),
        ]
        assert len(delivered(step, come(0, 5), *letters)) == 3

    def test_reading_the_dead_letters_themselves_does_not_keep_one_from_coming_back(self) -> None:
        step = opened()
        there = dead_letter(come(0, 0), topic="orders.dead-letter", origin=5)
        back = dead_letter(come(0, 9), topic="orders", origin=5)
        assert len(delivered(step, there, come(0, 5), back)) == 3

    def test_a_dead_letter_keeps_its_reason(self) -> None:
        found = took(opened(), dead_letter(come(0, 9), topic="orders", origin=5))
        assert isinstance(found, Record)
        assert found.headers.names() == ("a", "b", "__connect.errors.topic", "__connect.errors.offset")

    def test_a_chain_makes_dead_letters_that_can_be_put_back(self) -> None:
        letters: list[Record] = []
        fails = [True]

        class Reads:
            on_error = "dead_letter"

            def on_consume(self, record: Record) -> Record:
                if fails[0]:
                    raise InterceptorError("not today")
                return record

        with Chain([Reads(), Dedup()]).open(Context(publish=letters.append)) as session:
            assert session.consume([come(0, 5)]) == []
            fails[0] = False
            back = letters[0].replace(topic="orders", partition=0, offset=9)
            assert [record.offset for record in session.consume([back, back.replace(offset=11)])] == [9]

    def test_a_refused_record_leaves_no_trace(self) -> None:
        class Reads:
            def on_consume(self, record: Record) -> Record:
                if record.offset == 5:
                    raise InterceptorError("not today")
                return record

        with Chain([Reads(), Dedup()]).open() as session:
            outcomes = session.consume_outcomes([come(0, 5), come(0, 9), come(0, 12)])
            assert isinstance(outcomes[0], InterceptorError)
            assert [outcome is DROP for outcome in outcomes[1:]] == [False, True]

    def test_keeps_nothing_for_itself_in_what_it_delivers(self) -> None:
        with Chain([Dedup()]).open() as session:
            assert not session.consume([come(0, 5)])[0].local

    def test_a_record_that_moved_to_another_topic_is_known_by_where_it_was_read(self) -> None:
        class Moves:
            stage = Stage.OBJECTS

            def on_consume(self, record: Record) -> Record:
                return record.replace(topic="elsewhere")

        with Chain([Moves(), Dedup()]).open() as session:
            assert len(session.consume([come(0, 5), come(0, 5), come(0, 6)])) == 2


class TestDedupInChains:
    def test_a_whole_message_in_slices_that_is_sent_twice_comes_once(self) -> None:
        chain = Chain([Dedup(), Compress(), Slice(max_bytes=1_200)])
        with chain.open() as session:
            value = os.urandom(5_000)
            slices = session.send([Record("orders", value, b"k", partition=0)])
            assert len(slices) > 4
            twice = [piece.replace(offset=n) for n, piece in enumerate([*slices, *slices])]
            first = session.consume(twice)
            assert [(record.value, record.offset) for record in first] == [(value, len(slices) - 1)]
            assert [record.offset for record in session.consume(twice[: len(slices)])] == [len(slices) - 1]

    def test_an_application_never_sees_the_identity(self) -> None:
        with Chain([Dedup()]).open() as session:
            sent = session.send([RECORD])
            assert session.consume(sent)[0].headers == RECORD.headers

    def test_what_an_application_sends_again_is_another_record(self) -> None:
        with Chain([Dedup()]).open() as session:
            sent = [r.replace(offset=n) for n, r in enumerate(session.send([RECORD, RECORD]))]
            assert len(session.consume(sent)) == 2

    def test_a_step_that_forwards_what_it_read_gives_it_an_identity_of_its_own(self) -> None:
        with Chain([Dedup()]).open() as session:
            sent = session.send([RECORD])
            again = session.send(session.consume(sent))
            assert identity_in(again[0]) != identity_in(sent[0])

    def test_counts_drops_with_the_chain_s_own(self) -> None:
        with Chain([Dedup()]).open() as session:
            session.consume([come(0, 5), come(0, 6)])
            assert session.stats()["dedup"]["dropped"] == session.stats()["dedup"]["duplicates"] == 1


class TestDedupOptions:
    def test_are_those_of_a_transform_left_of_compress(self) -> None:
        assert (Dedup.type, Dedup.role, Dedup.place) == ("dedup", Role.TRANSFORM, Place.DEDUP)
        assert Dedup.decodes == (ID_HEADER,)

    def test_a_producer_names_only_what_comes_from_content(self) -> None:
        with pytest.raises(
            ConfigError, match=r"^producer: expected id_from or id_from_key together with producer"
        ):
            Dedup(producer="shop")

    def test_the_window_of_one_producer_fits_the_whole(self) -> None:
        with pytest.raises(
            ConfigError, match=r"^max_identities: expected at least twice the window \(10\), .* found 19"
        ):
            Dedup(window=10, max_identities=19)
        assert Dedup(window=10, max_identities=1, store="ids.db").max_identities == 1

    def test_an_empty_path_is_none(self) -> None:
        assert Dedup(store="").store is None
        chain = Chain.from_config({"interceptors": "dedup", "interceptors.dedup.store": ""})
        assert chain.interceptors == (Dedup(),)

    def test_come_from_flat_keys(self) -> None:
        flat = {"type": "dedup", "id_from": "ce_source, ce_id", "id_from_key": "true", "window": "5"}
        chain = Chain.from_config(
            {"interceptors": "d", **{f"interceptors.d.{k}": v for k, v in flat.items()}}
        )
        expected = Dedup(name="d", id_from=("ce_source", "ce_id"), id_from_key=True, window=5)
        assert chain.interceptors == (expected,)

    @pytest.mark.parametrize("wrong", [{"window": "0"}, {"retain_ms": "0"}, {"max_identities": "0"}])
    def test_that_cannot_work_are_refused(self, wrong: dict[str, str]) -> None:
        (option,) = wrong
        flat = {f"interceptors.dedup.{option}": wrong[option]}
        with pytest.raises(ConfigError, match=rf"^interceptors\.dedup\.{option}: "):
            Chain.from_config({"interceptors": "dedup", **flat})


class TestIdentity:
    @pytest.mark.parametrize("identity", [Identity.numbered(PRODUCER, 7), Identity.derived(["a"], [b"b"])])
    def test_comes_back_from_its_bytes_and_from_a_pickle(self, identity: Identity) -> None:
        assert Identity.decode(identity.encode()) == identity
        assert pickle.loads(pickle.dumps(identity)) == identity  # noqa: S301 - our own

    @pytest.mark.parametrize(
        "fields",
        [
            {"source": PRODUCER},
            {"source": PRODUCER, "sequence": 1, "digest": PRODUCER},
            {"source": PRODUCER[1:], "sequence": 1},
            {"source": PRODUCER, "sequence": -1},
            {"source": PRODUCER, "sequence": 2**64},
            {"source": PRODUCER, "digest": b""},
        ],
    )
    def test_refuses_what_has_no_place_on_the_wire(self, fields: dict[str, Any]) -> None:
        with pytest.raises(WireFormatError):
            Identity(**fields)

    def test_scope_and_content_are_apart(self) -> None:
        found = {
            Identity.derived(scope, parts).encode()
            for scope, parts in [
                (["a", "b"], [b"c"]),
                (["ab"], [b"c"]),
                (["a"], [b"b", b"c"]),
                (["a"], [b"bc"]),
            ]
        }
        assert len(found) == 4
        same = Identity.derived(["a"], [b"a"])
        assert same.source != same.digest
