"""Plans of faults and what they do to records of a session; ``test_faults_in_clients.py`` has the clients."""

from __future__ import annotations

import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from headerware.cli.main import main
from headerware.core.chain import Chain, load_chain
from headerware.core.context import Context
from headerware.core.errors import ConfigError, DelayedError, InterceptorError, PluginError
from headerware.core.headers import Headers
from headerware.core.hooks import DROP
from headerware.core.plugins import interceptor_type
from headerware.core.record import Record
from headerware.core.runner import flat
from headerware.interceptors.slice import Slice
from headerware.testing.faults import Fault, Faults, InjectedError, request_errors

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from headerware.core.session import Session

RATES: Any = {"drop": 0.1, "double": 0.2, "corrupt": 0.1, "refuse": 0.1}
PARTITION = ("orders", 0)


def record(number: int, topic: str = "orders", partition: int = 0) -> Record:
    return Record(topic, b"%d" % number, b"key", Headers({"a": b"1"}), partition, offset=number)


def consumed(session: Session, numbers: Iterable[int]) -> list[int]:
    """Return the offsets that come out, record by record."""
    return [each.offset or 0 for number in numbers for each in session.consume([record(number)])]


def released(session: Session, now_ms: int) -> list[Record]:
    return [each for outcome in session.poll(now_ms) for each in flat(outcome)]


class Refusing:
    """Refuse the records with these offsets, once each."""

    name = "refusing"

    def __init__(self, *offsets: int) -> None:
        self.offsets = set(offsets)

    def on_consume(self, record: Record) -> Record:
        if record.offset in self.offsets:
            self.offsets.remove(record.offset)
            raise InterceptorError("refused")
        return record


class TestPlans:
    def test_of_one_seed_are_equal_for_all_topics_and_sessions(self) -> None:
        logs = []
        for topic in ("orders", "payments"):
            faults = Faults("consume", seed=7, **RATES)
            with Chain([faults]).open() as session:
                session.consume_outcomes([record(number, topic) for number in range(200)])
            logs.append([(fault.kind, fault.number, fault.detail) for fault in faults.log])
        assert logs[0] == logs[1]

    def test_of_another_seed_are_others(self) -> None:
        kinds = [[Faults("send", seed=seed, **RATES).planned(n)[0] for n in range(50)] for seed in (1, 2)]
        assert kinds[0] != kinds[1]

    def test_differ_by_partition(self) -> None:
        plan = Faults("consume", **RATES)
        assert [plan.planned(n, 0)[0] for n in range(50)] != [plan.planned(n, 1)[0] for n in range(50)]

    def test_meet_the_rates(self) -> None:
        plan = Faults("consume", **RATES)
        found = Counter(plan.planned(number, 0)[0] for number in range(10_000))
        assert {kind: round(found[kind] / 10_000, 1) for kind in RATES} == RATES

    def test_do_not_depend_on_threads(self) -> None:
        faults = Faults("send", seed=3, double=0.3)
        with Chain([faults]).open() as session, ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda number: session.send([record(number)]), range(400)))
        planned = {number for number in range(400) if faults.planned(number)[0]}
        assert {fault.number for fault in faults.log} == planned

    def test_number_the_records_of_each_topic(self) -> None:
        faults = Faults("send", at={1: "refuse"}, topics=("orders", "payments"))
        with Chain([faults]).open() as session:
            session.send_outcomes(
                [record(0), record(0, "payments"), record(1, "other"), record(1), record(1, "payments")]
            )
        assert faults.log == (Fault("refuse", "orders", 0, 1), Fault("refuse", "payments", 0, 1))

    def test_meet_a_record_again_that_is_read_again(self) -> None:
        faults = Faults("consume", seed=1, double=0.5)
        with Chain([faults]).open() as session:
            assert consumed(session, range(20)) == consumed(session, range(20))

    def test_prefer_single_records_to_rates(self) -> None:
        faults = Faults("consume", double=1, at={1: "drop"})
        with Chain([faults]).open() as session:
            assert consumed(session, range(3)) == [0, 0, 2, 2]
        assert faults.counts == {"double": 2, "drop": 1}

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({"direction": "both"}, "direction: expected one of send, consume, found 'both'"),
            ({"drop": 1.5}, "drop: expected a rate from 0 to 1, such as 0.1, found 1.5"),
            ({"drop": 0.7, "double": 0.7}, "add up to 1 at most, found 1.4"),
            ({"drop": "10%"}, "drop: expected a rate from 0 to 1, such as 0.1, found '10%'"),
            (
                {"at": {1: "lose"}},
                r"at: expected one of drop, double, .* found 'lose'; did you mean 'drop'\?",
            ),
            ({"direction": "produce"}, r"found 'produce'; did you mean 'send'\?"),
            ({"at": {"1": "drop"}}, "at: expected numbers of records, found '1'"),
            ({"corrupts": ["headers", "topic"]}, "corrupts: expected one of value, .* found 'topic'"),
            ({"delay_ms": 0}, "delay_ms: expected 1 or more, found 0"),
            ({"direction": "send", "delay": 0.1, "at": {1: "reorder"}}, r"\(delay, reorder\)"),
        ],
    )
    def test_that_cannot_be_are_refused(self, options: dict[str, Any], expected: str) -> None:
        with pytest.raises(ConfigError, match=expected):
            Faults(**{"direction": "consume", **options})

    @pytest.mark.parametrize(("option", "meant"), [("duplicate", "double"), ("reoder", "reorder")])
    def test_say_what_an_unknown_option_may_mean(self, option: str, meant: str) -> None:
        options: dict[str, Any] = {option: 0.1}
        with pytest.raises(TypeError, match=rf"Faults has no option '{option}'; did you mean '{meant}'\?"):
            Faults("consume", **options)

    def test_pass_the_other_direction(self) -> None:
        with Chain([Faults("send", drop=1)]).open() as session:
            assert session.consume([record(0)]) == [record(0)]

    def test_are_counted_by_the_session_and_in_all(self) -> None:
        faults = Faults("consume", drop=1)
        chain = Chain([faults])
        for _ in range(2):
            with chain.open() as session:
                consumed(session, range(3))
                assert session.stats()["faults"]["drop"] == 3
        assert faults.counts == {"drop": 6}


class TestSend:
    def send(self, kind: Any, **options: Any) -> tuple[Any, Faults]:
        faults = Faults("send", at={0: kind}, **options)
        with Chain([faults]).open() as session:
            return session.send_outcome(record(0)), faults

    def test_drops(self) -> None:
        assert self.send("drop")[0] is DROP

    def test_doubles(self) -> None:
        assert self.send("double")[0] == [record(0), record(0)]

    def test_doubles_into_one_partition(self) -> None:
        partitions = iter(range(9))
        context = Context(pick_partition=lambda _: next(partitions))
        with Chain([Faults("send", double=1)]).open(context) as session:
            sent = session.send([Record("orders", b"1") for _ in range(3)])
        assert [each.partition for each in sent] == [0, 0, 1, 1, 2, 2]

    def test_refuses(self) -> None:
        outcome, _ = self.send("refuse")
        assert isinstance(outcome, InjectedError)
        assert outcome.step == "faults"

    @pytest.mark.parametrize("part", ["value", "key"])
    def test_corrupts_a_bit(self, part: Any) -> None:
        outcome, faults = self.send("corrupt", corrupts=[part])
        before, after = getattr(record(0), part), getattr(outcome, part)
        bits = int.from_bytes(before) ^ int.from_bytes(after)
        assert bits.bit_count() == 1
        assert faults.log[0].detail == f"{part} bit {8 * len(after) - bits.bit_length()}"
        assert outcome.replace(**{part: before}) == record(0)

    def test_corrupts_headers_in_both_ways(self) -> None:
        faults = Faults("send", corrupt=1, corrupts=["headers"])
        with Chain([faults]).open() as session:
            sent = session.send(map(record, range(50)))
        assert {len(each.headers) for each in sent} == {0, 1}
        changed = [each.headers.last("a") for each in sent if each.headers]
        assert all((value[0] ^ ord("1")).bit_count() == 1 for value in changed if value)
        assert {fault.detail[:12] for fault in faults.log} == {"header a bit", "header a rem"}

    def test_leaves_a_record_without_content_as_it_is(self) -> None:
        faults = Faults("send", corrupt=1)
        with Chain([faults]).open() as session:
            assert session.send([Record("orders")]) == [Record("orders")]
        assert not faults.log


class TestConsume:
    def test_drops_without_telling_the_chain(self) -> None:
        faults = Faults("consume", at={1: "drop"})
        with Chain([faults]).open() as session:
            assert consumed(session, range(3)) == [0, 2]
            assert session.stats()["faults"]["dropped"] == 0

    def test_doubles_at_one_offset(self) -> None:
        with Chain([Faults("consume", at={1: "double"})]).open() as session:
            assert consumed(session, range(3)) == [0, 1, 1, 2]

    def test_delays_until_the_clock_of_the_context(self) -> None:
        times = iter((1_000, 1_049, 1_050))
        faults = Faults("consume", at={0: "delay"}, delay_ms=50)
        with Chain([faults]).open(Context(now_ms=lambda: next(times))) as session:
            for _ in range(2):
                outcome = session.consume_outcome(record(0))
                assert isinstance(outcome, DelayedError)
                assert outcome.until_ms == 1_050
            assert session.consume_outcome(record(0)) == record(0)
        assert faults.counts == {"delay": 1}

    def test_delays_anew_after_the_partition_has_gone(self) -> None:
        now_ms = 0
        with Chain([Faults("consume", delay=1)]).open(Context(now_ms=lambda: now_ms)) as session:
            assert isinstance(session.consume_outcome(record(0)), DelayedError)
            session.revoke([PARTITION])
            now_ms = 10_000
            assert isinstance(session.consume_outcome(record(0)), DelayedError)

    @pytest.mark.parametrize("kind", ["delay", "reorder"])
    def test_refuses_a_client_that_cannot_wait(self, kind: Any) -> None:
        with pytest.raises(ConfigError, match="'faults' holds records back, and it cannot wait"):
            Chain([Faults("consume", at={0: kind})]).open(Context(cannot_wait="it cannot wait"))

    def test_refuses_a_record_without_an_offset(self) -> None:
        with (
            Chain([Faults("consume", drop=1)]).open() as session,
            pytest.raises(InterceptorError, match="has none"),
        ):
            session.consume([Record("orders")])


class TestReorder:
    def test_gives_a_record_after_later_ones_of_its_partition(self) -> None:
        faults = Faults("consume", at={1: "reorder"}, reorder_by=1)
        with Chain([faults]).open() as session:
            found = session.consume([record(0), record(1), record(9, partition=1), record(2), record(3)])
        assert [(each.partition, each.offset) for each in found] == [(0, 0), (1, 9), (0, 2), (0, 1), (0, 3)]

    def test_loses_and_repeats_nothing(self) -> None:
        faults = Faults("consume", reorder=0.4, reorder_by=5)
        with Chain([faults]).open(Context(now_ms=lambda: 0)) as session:
            found = consumed(session, range(500))
            found += [each.offset or 0 for each in released(session, 1_000)]
        assert found != sorted(found)
        assert sorted(found) == list(range(500))
        assert faults.counts["reorder"] > 150

    def test_holds_the_offset_back(self) -> None:
        with Chain([Faults("consume", at={1: "reorder"}, reorder_by=1)]).open() as session:
            consumed(session, range(2))
            assert session.safe_offset(*PARTITION, 2) == 1
            assert session.safe_offsets() == {PARTITION: 1}
            assert session.waiting_offsets() == {PARTITION: [1]}
            assert session.stats()["faults"]["pending_records"] == 1
            consumed(session, [2])
            assert session.safe_offset(*PARTITION, 3) == 3
            assert session.safe_offsets() == {}

    def test_gives_a_record_that_has_waited_long_enough(self) -> None:
        faults = Faults("consume", at={0: "reorder"}, reorder_ms=200)
        with Chain([faults]).open(Context(now_ms=lambda: 1_000)) as session:
            consumed(session, [0])
            assert released(session, 1_199) == []
            assert released(session, 1_200) == [record(0)]
            assert released(session, 9_999) == []

    def test_forgets_what_is_read_again(self) -> None:
        with Chain([Faults("consume", at={1: "reorder", 2: "reorder"})]).open() as session:
            consumed(session, [1, 2])
            session.seek(*PARTITION, 2)
            assert session.waiting_offsets() == {PARTITION: [1]}
            session.revoke([PARTITION])
            assert session.waiting_offsets() == {}

    @pytest.mark.parametrize("refused", [1, 2])
    def test_loses_no_record_to_the_refusal_of_another(self, refused: int) -> None:
        faults = Faults("consume", at={1: "reorder"}, reorder_by=1)
        with Chain([Refusing(refused), faults]).open() as session:
            outcomes = session.consume_outcomes(list(map(record, range(4))))
            errors = [each for each in outcomes if isinstance(each, InterceptorError)]
            assert [error.offset for error in errors] == [refused]
            found = [each for out in outcomes if isinstance(out, list) for each in out]
            found += [each for each in outcomes if isinstance(each, Record)]
        assert sorted(each.offset or 0 for each in found) == [each for each in range(4) if each != refused]

    def test_leaves_slices_in_no_order_to_their_message(self) -> None:
        faults = Faults("consume", reorder=0.5)
        value = bytes(range(256)) * 40
        with Chain([Slice(max_bytes=1_000), faults]).open(Context(now_ms=lambda: 0)) as session:
            slices = session.send([Record("orders", value, b"key")])
            read = [each.replace(partition=0, offset=offset) for offset, each in enumerate(slices)]
            found = session.consume(read)
            found += released(session, 10_000)
        assert faults.counts["reorder"] > 2
        assert [each.value for each in found] == [value]


class TestConfigurations:
    """No configuration can name a fault, and no other process gets one."""

    @pytest.mark.parametrize(
        "kind", ["faults", "headerware.testing.faults:Faults", "headerware.testing.faults.Faults"]
    )
    def test_do_not_know_them(self, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "headerware.toml"
        file.write_text(f'[[interceptors]]\ntype = "{kind}"\nname = "x"\ndirection = "consume"\ndrop = 0.5\n')
        with pytest.raises(PluginError, match=f"there is no interceptor type '{kind}'") as caught:
            load_chain(file)
        assert caught.value.file == str(file)
        with pytest.raises(PluginError, match="there is no interceptor type"):
            Chain.from_config({"interceptors": "x", "interceptors.x.type": kind})
        monkeypatch.setenv("HEADERWARE_CONFIG", str(file))
        checked = CliRunner().invoke(main, ["check"])
        assert checked.exit_code != 0
        assert "there is no interceptor type" in checked.stderr

    def test_refuse_them_even_as_a_plug_in(self) -> None:
        with pytest.raises(PluginError, match="expected a subclass of headerware"):
            interceptor_type.checked(Faults, "faults")

    def test_have_no_word_for_them(self) -> None:
        assert not [home for home in interceptor_type.built_in.values() if "testing" in home]

    def test_cannot_be_pickled(self) -> None:
        with pytest.raises(TypeError, match="a chain with 'faults' stays in its process"):
            pickle.dumps(Chain([Faults("consume", drop=1)]))


class TestRequestErrors:
    def test_are_planned_by_a_seed(self) -> None:
        planned = request_errors(6, count=1_000, rate=0.3, seed=1)
        assert planned == request_errors(6, count=1_000, rate=0.3, seed=1)
        assert planned != request_errors(6, count=1_000, rate=0.3, seed=2)
        assert set(planned) == {0, 6}
        assert 200 < planned.count(6) < 400

    def test_are_all_or_none(self) -> None:
        assert request_errors(6, count=3, rate=1) == [6, 6, 6]
        assert request_errors(6, count=3, rate=0) == [0, 0, 0]
