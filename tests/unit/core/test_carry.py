"""Headers go on from a record that is processed to records that are sent meanwhile, in the core."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import pickle
import weakref
from collections import deque
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from headerware import Chain, ConfigError, HeaderId, Headers, Interceptor, Record, Verified, load_chain
from headerware.core.batch import Batch, HeaderColumns
from headerware.core.carry import MAX_CARRIED_BYTES, AtWork
from headerware.core.client_chain import client_chain, followed_file
from headerware.core.record import VERIFIED

if TYPE_CHECKING:
    from pathlib import Path

    from headerware.core.headers import Pair


class Continues(Interceptor, frozen=True, kw_only=True):
    """Continue the header ``line``, by one ``+`` for each record that is sent."""

    type: ClassVar[str] = "continues"

    def carried_on(self, headers: Headers) -> Pair | None:
        value = headers.last("line")
        return None if value is None else ("line", value)

    def on_send(self, record: Record) -> Record:
        line = record.headers.last("line", b"") or b""
        return record.with_headers(record.headers.put("line", line + b"+"))


class Decodes(Interceptor, frozen=True, kw_only=True):
    """Claim to take off the header ``mark`` on consume."""

    type: ClassVar[str] = "decodes"
    decodes: ClassVar[tuple[str, ...]] = ("mark",)

    def on_consume(self, record: Record) -> Record:
        return record


def read(headers: Any = None, **more: Any) -> Record:
    return Record("in", b"value", headers=Headers(headers), **more)


def sent(chain: Chain, *at_work: Record, headers: Any = None, topic: str = "out") -> list[Pair]:
    """Return the headers of a record that is sent while records are at work."""
    with chain.open() as session, AtWork(at_work):
        (record,) = session.send([Record(topic, b"value", headers=headers)])
    return list(record.headers)


class TestNamedHeaders:
    def test_go_on_in_their_order(self) -> None:
        work = read([("tenant", "north"), ("x-b", "1"), ("other", "2"), ("x-a", "3"), ("tenant", None)])
        found = sent(Chain(carry=["tenant", "x-*"]), work)
        assert found == [("tenant", b"north"), ("x-b", b"1"), ("x-a", b"3"), ("tenant", None)]

    def test_none_goes_on_unless_it_is_named(self) -> None:
        assert sent(Chain([Continues()]), read({"tenant": "north"})) == [("line", b"+")]

    def test_none_goes_on_without_a_record_at_work(self) -> None:
        assert sent(Chain(carry=["*"])) == []

    def test_an_exclusion_wins(self) -> None:
        assert sent(Chain(carry=["!b", "*"]), read({"a": "1", "b": "2"})) == [("a", b"1")]

    def test_the_case_counts_in_patterns(self) -> None:
        assert sent(Chain(carry=["tenant"]), read({"Tenant": "north"})) == []

    def test_an_id_stands_for_a_name(self) -> None:
        work = read({HeaderId("10.0.0.7"): "north"})
        assert sent(Chain(carry=[HeaderId("10.0.0.7")]), work) == [("10.0.0.7", b"north")]

    def test_stand_behind_those_of_the_application(self) -> None:
        found = sent(Chain(carry=["tenant"]), read({"tenant": "north"}), headers={"z": "1"})
        assert found == [("z", b"1"), ("tenant", b"north")]

    @pytest.mark.parametrize("own", ["tenant", "Tenant", "TENANT"])
    def test_what_the_application_sets_wins_in_any_case(self, own: str) -> None:
        assert sent(Chain(carry=["tenant"]), read({"tenant": "north"}), headers={own: None}) == [(own, None)]

    def test_an_id_of_the_application_wins_over_its_name(self) -> None:
        work, own = read({"10.0.0.7": "north"}), {HeaderId("10.0.0.7"): "south"}
        assert sent(Chain(carry=["*"]), work, headers=own) == [("10.0.0.7", b"south")]


class TestWhatAStepContinues:
    def test_goes_on(self) -> None:
        assert sent(Chain([Continues()]), read({"line": "+"})) == [("line", b"++")]

    def test_goes_on_only_to_its_topics(self) -> None:
        chain = Chain([Continues(topics=("out",))])
        assert sent(chain, read({"line": "+"}), topic="elsewhere") == []

    def test_is_not_taken_twice_if_it_is_named_as_well(self) -> None:
        assert sent(Chain([Continues(topics=("out",))], carry=["line"]), read({"line": "+"})) == [
            ("line", b"++")
        ]

    def test_does_not_go_on_if_carrying_is_off(self) -> None:
        assert sent(Chain([Continues()], carry=False), read({"line": "+"})) == [("line", b"+")]

    def test_a_failure_is_counted_and_takes_nothing_along(self) -> None:
        class Fails(Continues, frozen=True, kw_only=True):
            def carried_on(self, headers: Headers) -> Pair | None:
                raise ValueError("secret")

        with Chain([Fails()]).open() as session, AtWork([read({"line": "+"})]):
            (record,) = session.send([Record("out")])
            assert session.stats()["continues"]["failed"] == 1
        assert list(record.headers) == [("line", b"+")]

    def test_the_applications_own_wins(self) -> None:
        found = sent(Chain([Continues()]), read({"line": "+"}), headers={"line": "own"})
        assert found == [("line", b"own+")]


class TestSeveralHeaders:
    class Pair(Continues, frozen=True, kw_only=True):
        def carried_on(self, headers: Headers) -> Headers | None:
            return Headers([(name, value) for name, value in headers if name.startswith("line")])

    def test_of_one_step_go_on_together(self) -> None:
        work = read({"line": "+", "line.more": "x", "other": "y"})
        assert sent(Chain([self.Pair()], carry=["line.more"]), work) == [("line.more", b"x"), ("line", b"++")]

    @pytest.mark.parametrize("name", ["line", "Line.More"])
    def test_do_not_go_on_if_the_application_sets_one_of_them(self, name: str) -> None:
        found = sent(Chain([self.Pair()]), read({"line": "+", "line.more": "x"}), headers={name: "own"})
        assert dict(found).get("line.more") is None
        assert (name, b"own+" if name == "line" else b"own") in found


class TestMarks:
    @pytest.mark.parametrize("name", ["hw.sig", "HW.ENCRYPT", "hw.slice", "Hw.trail", "~C", "~F", "0.0.0.6"])
    def test_never_go_on(self, name: str) -> None:
        with Chain(carry=["*", "?w.*"]).open() as session:
            work = AtWork([read(Headers.trusted([(name, b"x"), ("tenant", b"north")]))])
            record = session.carrying.added_to(Record("out"), work)
        assert list(record.headers) == [("tenant", b"north")]

    def test_lineage_goes_on_by_its_full_name_only(self) -> None:
        work = read({"hw.owner": "shop", "hw.trail": "1"})
        assert sent(Chain(carry=["*"]), work) == []
        assert sent(Chain(carry=["hw.owner"]), work) == [("hw.owner", b"shop")]

    def test_what_a_step_decodes_does_not_go_on(self) -> None:
        assert sent(Chain([Decodes()], carry=["*"]), read({"mark": "1", "a": "2"})) == [("a", b"2")]

    def test_what_no_signature_covers_does_not_go_on(self) -> None:
        verified = Verified("k", 1, 0, "c", "in", b"p", 1, uncovered=("added",))
        work = read({"tenant": "north", "added": "1"}, local={VERIFIED: verified})
        assert sent(Chain(carry=["*"]), work) == [("tenant", b"north")]

    @pytest.mark.parametrize("name", ["a\0b", "\udc80"])
    def test_a_name_that_no_client_can_write_does_not_go_on(self, name: str) -> None:
        work = read(Headers.trusted([(name, b"1"), ("a", b"2")]))
        assert sent(Chain(carry=["*"]), work) == [("a", b"2")]


class TestSeveralRecords:
    def test_what_all_of_them_have_goes_on(self) -> None:
        works = [
            read([("tenant", "north"), ("id", "1"), ("tag", "a"), ("tag", "b")]),
            read([("tag", "a"), ("tenant", "north"), ("id", "2"), ("tag", "b")]),
        ]
        assert sent(Chain(carry=["*"]), *works) == [("tenant", b"north"), ("tag", b"a"), ("tag", b"b")]

    def test_one_that_lacks_a_header_keeps_it_from_going_on(self) -> None:
        assert sent(Chain(carry=["*"]), read({"a": "1"}), read()) == []

    def test_what_a_step_continues_does_not_go_on(self) -> None:
        assert sent(Chain([Continues()]), read({"line": "+"}), read({"line": "+"})) == [("line", b"+")]


class TestLimit:
    def test_a_header_that_does_not_fit_is_left_out_and_logged_once(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Chain(carry=["*"]).open() as session, caplog.at_level(logging.WARNING, "headerware"):
            for _ in range(2):
                with AtWork([read([("a", b"1"), ("large", b"x" * 100_000), ("b", b"2")])]):
                    (record,) = session.send([Record("out")])
                assert list(record.headers) == [("a", b"1"), ("b", b"2")]
        (warning,) = caplog.messages
        assert "'large' is not carried on" in warning
        assert "xx" not in warning

    def test_many_small_ones_fit_together_only_up_to_it(self) -> None:
        work = read([(f"x-{number:05}", b"") for number in range(10_000)])
        found = sent(Chain(carry=["x-*"]), work)
        assert len(found) == MAX_CARRIED_BYTES // len("x-00000")

    def test_a_name_alone_can_be_too_long(self) -> None:
        assert sent(Chain(carry=["*"]), read({"x" * 100_000: "1"})) == []


class Message:
    """What a record is made of."""


def at_work_noted(kept: weakref.WeakSet[Message], before: AtWork | None = None) -> AtWork:
    """End a block, begin another one with a message, and note the message as long as anything keeps it."""
    if before is not None:
        before.__exit__()
    message = Message()
    kept.add(message)
    return AtWork([message], lambda _: read()).__enter__()


class TestContexts:
    def test_the_innermost_counts_and_the_outer_one_comes_back(self) -> None:
        with Chain(carry=["*"]).open() as session, AtWork([read({"a": "outer"})]):
            with AtWork([read({"a": "inner"})]):
                (inner,) = session.send([Record("out")])
            (outer,) = session.send([Record("out")])
        assert (inner.headers.last("a"), outer.headers.last("a")) == (b"inner", b"outer")

    def test_threads_do_not_see_each_others(self) -> None:
        found: list[Record] = []
        with Chain(carry=["*"]).open() as session, AtWork([read({"a": "1"})]):
            copied = contextvars.copy_context()

            def send() -> None:
                found.extend(session.send([Record("out")]))

            for target in (send, partial(copied.run, send)):
                thread = Thread(target=target)
                thread.start()
                thread.join()
        assert [record.headers.last("a") for record in found] == [None, b"1"]

    def test_a_task_keeps_its_records_when_the_block_is_over(self) -> None:
        async def main() -> list[Record]:
            with Chain(carry=["*"]).open() as session:
                with AtWork([read({"a": "1"})]):
                    task = asyncio.create_task(asyncio.to_thread(session.send, [Record("out")]))
                return [*(await task), *session.send([Record("out")])]

        assert [record.headers.last("a") for record in asyncio.run(main())] == [b"1", None]

    def test_what_ends_in_another_thread_is_at_work_nowhere(self) -> None:
        with Chain(carry=["*"]).open() as session:
            work = AtWork([read({"a": "1"})])
            work.__enter__()
            thread = Thread(target=work.__exit__)
            thread.start()
            thread.join()
            (record,) = session.send([Record("out")])
            with AtWork([read({"b": "2"})]):
                pass
            (after,) = session.send([Record("out")])
        assert not record.headers
        assert not after.headers

    def test_what_ended_in_another_thread_does_not_keep_batches_apart(self) -> None:
        class TakesBatches(Interceptor, frozen=True, kw_only=True):
            type: ClassVar[str] = "takes"

            def on_send_batch(self, batch: Batch) -> Batch:
                return batch

        batch = Batch("out", [b"v"], headers=HeaderColumns([], 1))
        with Chain([TakesBatches()], carry=["*"]).open() as session:
            work = AtWork([read({"a": "1"})])
            work.__enter__()
            apart = session.send_outcomes(batch)
            thread = Thread(target=work.__exit__)
            thread.start()
            thread.join()
            together = session.send_outcomes(batch)
        assert not isinstance(apart.headers, HeaderColumns)  # type: ignore[attr-defined]
        assert isinstance(together.headers, HeaderColumns)  # type: ignore[attr-defined]

    @pytest.mark.parametrize("is_in_event_loop", [False, True])
    def test_blocks_that_overlap_leave_nothing_at_work(self, *, is_in_event_loop: bool) -> None:
        def main() -> list[Record]:
            with Chain(carry=["*"]).open() as session, AtWork([read({"a": "outer"})]):
                first, second = AtWork([read({"a": "1"})]), AtWork([read({"a": "2"})])
                first.__enter__()
                second.__enter__()
                first.__exit__()
                inner = session.send([Record("out")])
                second.__exit__()
                return [*inner, *session.send([Record("out")])]

        async def in_event_loop() -> list[Record]:
            return main()

        found = asyncio.run(in_event_loop()) if is_in_event_loop else main()
        assert [record.headers.last("a") for record in found] == [b"2", b"outer"]

    def test_blocks_that_overlap_in_turn_do_not_keep_each_other(self) -> None:
        kept: weakref.WeakSet[Message] = weakref.WeakSet()
        blocks = deque([at_work_noted(kept)])
        for _ in range(10):
            blocks.append(at_work_noted(kept))
            blocks.popleft().__exit__()
        found = len(kept)
        blocks.popleft().__exit__()
        assert found == 1

    def test_tasks_that_end_each_others_blocks_do_not_keep_them(self) -> None:
        kept: weakref.WeakSet[Message] = weakref.WeakSet()

        async def main() -> int:
            contexts = [contextvars.copy_context() for _ in range(2)]
            before: AtWork | None = None
            for turn in range(20):
                before = contexts[turn % 2].run(at_work_noted, kept, before)
            return len(kept)

        assert asyncio.run(main()) == 2  # the latest of each

    def test_records_are_made_when_something_is_sent_and_once(self) -> None:
        made: list[str] = []

        def record_of(name: str) -> Record:
            made.append(name)
            return read({"a": name})

        with Chain(carry=["*"]).open() as session, AtWork(["1"], record_of):
            assert not made
            session.send([Record("out"), Record("out")])
        assert made == ["1"]


class TestSessions:
    def test_processing_puts_its_records_to_work(self) -> None:
        with Chain(carry=["*"]).open() as session:
            with session.processing([read({"a": "1"})]):
                (meanwhile,) = session.send([Record("out")])
            (after,) = session.send([Record("out")])
        assert (meanwhile.headers.last("a"), after.headers.last("a")) == (b"1", None)

    def test_many_records_and_batches_get_the_same(self) -> None:
        class Batches:
            def on_send_batch(self, batch: Batch) -> Batch:
                return batch

        with Chain([Batches()], carry=["*"]).open() as session, AtWork([read({"a": "1"})]):
            records = session.send([Record("out"), Record("out")])
        assert [record.headers.last("a") for record in records] == [b"1", b"1"]

    def test_a_batch_gets_the_same_by_columns(self) -> None:
        class Batches:
            def on_send_batch(self, batch: Batch) -> Batch:
                return batch

        batch = Batch("out", [b"v"], keys=[b"k"], headers=HeaderColumns([], 1), timestamps_ms=[1])
        with Chain([Batches()], carry=["*"]).open() as session:
            assert session.send_outcomes(batch) is batch
            with AtWork([read({"a": "1"})]):
                (record,) = session.send_outcomes(batch)
        assert isinstance(record, Record)
        assert record.headers.last("a") == b"1"

    def test_a_chain_that_carries_nothing_does_not_look(self) -> None:
        chain = Chain([Decodes()])
        with chain.open() as session:
            assert not session.carrying
            assert session.carrying.after(len) is len  # type: ignore[arg-type,comparison-overlap]


class TestOption:
    @pytest.mark.parametrize(
        ("given", "found"),
        [
            (None, ()),
            ([], ()),
            ("", ()),
            (False, False),
            ("false", False),
            (" False ", False),
            ("tenant", ("tenant",)),
            ("tenant, x-*", ("tenant", "x-*")),
            (["false"], ("false",)),
            (("a", "!b"), ("a", "!b")),
        ],
    )
    def test_is_taken(self, given: Any, found: object) -> None:
        assert Chain(carry=given).carry == found

    @pytest.mark.parametrize(
        ("given", "problem"),
        [
            (True, "expected false, or names of headers and patterns of them .*, found true"),
            (3, "found int"),
            ({"tenant": 1}, "found dict"),
            ([b"tenant"], "found bytes among them"),
            ([True], "found true among them"),
            ([""], "found an empty name"),
            (["!"], "found an empty name"),
            (["hw.sig"], r"'hw\.sig' names headers of Headerware's own"),
            (["HW.encrypt"], "of Headerware's own"),
            (["hw.*"], "of Headerware's own"),
            (["~F"], "of Headerware's own"),
            (["0.0.0.6"], "of Headerware's own"),
        ],
    )
    def test_is_refused(self, given: Any, problem: str) -> None:
        with pytest.raises(ConfigError, match=problem) as caught:
            Chain(carry=given)
        assert caught.value.path == "carry"

    def test_is_a_part_of_the_chain(self) -> None:
        chain = Chain(carry=["tenant"])
        assert chain != Chain()
        assert chain
        assert not Chain(carry=False)
        assert pickle.loads(pickle.dumps(chain)) == chain  # noqa: S301 - our own


class TestConfiguration:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        (tmp_path / "platform.toml").write_text('carry = ["tenant"]\n[[interceptors]]\ntype = "trail"\n')
        file = tmp_path / "chain.toml"
        file.write_text('include = ["platform.toml"]\n')
        return file

    def test_a_file_says_it_at_its_top(self, file: Path) -> None:
        assert load_chain(file).carry == ("tenant",)

    @pytest.mark.parametrize(
        ("text", "carry"), [('["id"]', ("id",)), ("false", False), ('"a,b"', ("a", "b")), ("[]", ())]
    )
    def test_a_file_replaces_what_it_includes(self, file: Path, text: str, carry: object) -> None:
        file.write_text(f'carry = {text}\ninclude = ["platform.toml"]\n')
        assert load_chain(file).carry == carry

    def test_variables_are_filled_in(self, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("CARRY", "tenant,id")
        file.write_text('carry = "${env:CARRY}"\n')
        assert load_chain(file).carry == ("tenant", "id")

    @pytest.mark.parametrize("text", ["true", "3", '["hw.sig"]', '{ names = ["a"] }', "[1.5]"])
    def test_a_wrong_value_names_the_file(self, file: Path, text: str) -> None:
        (file.parent / "platform.toml").write_text(f"carry = {text}\n")
        file.write_text('carry = []\ninclude = ["platform.toml"]\n')
        with pytest.raises(ConfigError) as caught:
            load_chain(file)
        assert caught.value.path == f"{file.parent / 'platform.toml'}: carry"

    def test_a_stack_has_none(self, file: Path) -> None:
        file.write_text('[stacks.own]\ncarry = ["a"]\n')
        with pytest.raises(ConfigError, match="unknown key; known: interceptors"):
            load_chain(file)

    @pytest.mark.parametrize(
        ("given", "carry"), [("a,b", ("a", "b")), (["a"], ("a",)), ("false", False), (False, False)]
    )
    def test_a_clients_own_key_comes_last(self, file: Path, given: object, carry: object) -> None:
        chain = Chain.from_config({"headerware.config": str(file), "headerware.carry": given})
        assert (chain.carry, chain.names) == (carry, ("trail",))

    def test_an_alias_may_be_called_carry(self) -> None:
        config = {"interceptors": "carry", "interceptors.carry.type": "trail", "headerware.carry": "a"}
        chain = Chain.from_config(config)
        assert (chain.names, chain.carry) == (("carry",), ("a",))

    def test_a_wrong_value_names_the_key(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Chain.from_config({"headerware.carry": "hw.sig"})
        assert caught.value.path == "headerware.carry"

    def test_alone_it_is_laid_over_the_chain_of_the_environment(
        self, file: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", str(file))
        config = {"headerware.carry": "id", "client.id": "own"}
        chain, rest = client_chain(config)
        assert (chain.names, chain.carry, rest) == (("trail",), ("id",), {"client.id": "own"})
        followed = followed_file(config)
        assert followed is not None
        assert followed[0] == str(file)

    def test_is_off_with_everything_else(
        self, file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        chain, _ = client_chain({"headerware.config": str(file)})
        assert not chain
        assert "these are off: trail, carry" in caplog.text
