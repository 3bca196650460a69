"""What a judge makes of records: a second chain, chains that change, and messages in slices in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import KafkaError, KafkaException
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headerware import DROP, Chain, Headers, Interceptor, InterceptorError, Record
from headerware.core.commit_metadata import decode_metadata
from headerware.core.hooks import Role, Stage
from headerware.interceptors import Sign, Slice
from tests.ingress import INGRESS, LETTERS, PARTITIONS, POLICY, Gate, Ingress, values, verdicts


@pytest.fixture(scope="module")
def ingress(tmp_path_factory: pytest.TempPathFactory) -> Ingress:
    return Ingress(Path(tmp_path_factory.mktemp("ingress")))


class Upper(Interceptor, frozen=True, kw_only=True):
    """Write values in capital letters, with who wrote them; refuse numbers, drop what is empty."""

    type: ClassVar[str] = "upper"
    stage: ClassVar[Stage] = Stage.OBJECTS

    def on_send(self, record: Record) -> Any:
        """Return another record, or none."""
        if not record.value:
            return DROP
        if record.value.isdigit():
            raise InterceptorError("a number")
        assert record.verified is not None
        headers = record.headers.add("by", record.verified.subject.encode())
        topic = "elsewhere" if record.value == b"route" else record.topic
        return record.replace(topic=topic, value=record.value.upper(), headers=headers)


class Chooses(Interceptor, frozen=True, kw_only=True):
    """Send records into another topic, and there into a partition that it may not have."""

    type: ClassVar[str] = "chooses"
    stage: ClassVar[Stage] = Stage.OBJECTS

    def on_send(self, record: Record) -> Record:
        """Choose it."""
        return record.replace(topic="elsewhere", partition=7)


class Hears(Interceptor, frozen=True, kw_only=True):
    """Tell what becomes of each record that goes through it."""

    type: ClassVar[str] = "hears"
    told: Any

    def on_send(self, record: Record) -> Record:
        """Mark it."""
        return record.with_local("seen", record.value)

    def on_acknowledgement(self, record: Record, metadata: Any, error: Any) -> None:
        """Tell it."""
        self.told((record.value, type(error)))


class TestASecondChain:
    def test_takes_what_was_admitted(self, ingress: Ingress) -> None:
        gate = Gate(ingress, second=Chain([Upper()]))
        (decision,) = gate.take(ingress.sent(b"v", headers=[("a", b"1")]))
        (sent,) = decision.records
        assert (sent.topic, sent.partition, sent.key, sent.value) == ("orders", 0, b"k", b"V")
        # Certificate and signature were for the record as it came.
        assert sent.headers == Headers([("a", b"1"), ("by", b"shop")])

    def test_sees_nothing_that_was_not(self, ingress: Ingress) -> None:
        gate = Gate(ingress, second=Chain([Upper()]))
        assert verdicts(gate.take(ingress.sent(b"v", who="thief"))) == ["refused admission: AdmissionError"]

    def test_may_refuse_drop_and_route(self, ingress: Ingress) -> None:
        gate = Gate(ingress, second=Chain([Upper()]))
        decisions = gate.take(ingress.sent(b"1", b"", b"route"))
        assert verdicts(decisions) == ["refused upper: InterceptorError", "dropped", "admitted"]
        (sent,) = decisions[-1].records
        assert (sent.topic, sent.partition, sent.key) == ("elsewhere", None, b"k")

    def test_waits_for_a_partition_that_a_step_has_chosen(self, ingress: Ingress) -> None:
        gate = Gate(ingress, second=Chain([Chooses()]))
        assert gate.take(ingress.sent(b"v")) == []
        (held,) = gate.judge.held().values()
        assert "has 1 partition, but the record is for partition 7; add partitions" in str(held)

    def test_gets_messages_whole_and_may_split_them(self, ingress: Ingress) -> None:
        second = Chain(
            [Slice(max_bytes=1_000), Sign(keyring=str(ingress.folder / "bank.json"), key_id="bank")]
        )
        gate = Gate(ingress, second=second)
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        (decision,) = gate.take(slices)
        assert len(decision.unit.records) == len(slices) < len(decision.records)
        assert {each.partition for each in decision.records} == {0}

    def test_hears_of_what_it_has_sent_if_no_decision_comes_of_it(self, ingress: Ingress) -> None:
        """The cluster may fail between two records of a batch; then all of them come again."""
        told: list[Any] = []
        gate = Gate(ingress, second=Chain([Hears(told=told.append)]))
        ask, asked = gate.judge.count_partitions, list[str]()

        def answer(topic: str, at_least: int) -> int:
            asked.append(topic)
            if asked.count("orders") > 2:  # of the first record it is asked twice
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            return ask(topic, at_least)

        gate.judge.count_partitions = answer
        with pytest.raises(KafkaException):
            gate.take(ingress.sent(b"a", b"b"))
        assert told == [(b"a", KafkaException)]


class TestAnotherChain:
    def test_judges_slices_that_wait_anew(self, ingress: Ingress) -> None:
        gate = Gate(ingress)
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        assert gate.take(slices[:2]) == []
        other = ingress.guard_chain(replay_window=7).open(gate.context, previous=gate.session)
        gate.judge.use(other)
        assert values(gate.take(slices[2:])) == [each.value for each in slices]

    def test_goes_on_with_slices_that_wait(self, ingress: Ingress) -> None:
        gate = Gate(ingress)
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        assert gate.take(slices[:2]) == []
        gate.judge.use(ingress.guard_chain().open(gate.context, previous=gate.session))
        assert values(gate.take(slices[2:])) == [each.value for each in slices]


class TestPartitions:
    def test_that_went_away_are_forgotten(self, ingress: Ingress) -> None:
        gate = Gate(ingress)
        gate.take(ingress.sent(bytes(5_000), slice_bytes=2_000)[:2])
        gate.judge.revoke([gate.place])
        assert gate.take(ingress.sent(b"late")) == []
        assert gate.judge.done.partitions == []

    def test_records_that_come_twice_in_a_batch_count_once(self, ingress: Ingress) -> None:
        gate = Gate(ingress)
        for record in ingress.sent(b"v") * 2:
            gate.judge.add(record.replace(topic=INGRESS, partition=0, offset=4))
        assert values(gate.judge.decide()) == [b"v"]

    def test_more_slices_than_a_commit_can_note_are_refused(
        self, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headerware.core.commit_metadata.MAX_PENDING_BYTES", 10)
        gate = Gate(ingress)
        decisions = gate.take(ingress.sent(bytes(5_000), slice_bytes=2_000)[:3])
        assert verdicts(decisions) == ["refused slice: ReassemblyError"] * 3
        assert gate.commit() == (3, "")

    def test_slices_that_were_read_and_not_judged_again_are_refused_with_them(
        self, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waiting = ingress.sent(bytes(5_000), slice_bytes=2_000)[:2]
        complete = ingress.sent(bytes(3_000), slice_bytes=2_000)
        wire = [waiting[0], *complete, waiting[1]]
        gate = Gate(ingress, begin=len(wire), stays=range(len(wire)), partitions={INGRESS: 3, LETTERS: 1})
        monkeypatch.setattr("headerware.core.commit_metadata.MAX_PENDING_BYTES", 10)
        decisions = gate.take(
            wire, at=0
        )  # the complete message has no egress topic, and holds the last slice
        assert verdicts(decisions) == ["refused slice: ReassemblyError"] * len(wire)
        assert gate.again() == []
        assert gate.commit() == (len(wire), "")

    def test_slices_that_were_not_read_again_yet_stay_pending(
        self, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = (ingress.sent(bytes(5_000), slice_bytes=2_000) for _ in range(2))
        gate = Gate(ingress, begin=5, stays={0, 1, 3, 4})
        monkeypatch.setattr("headerware.core.commit_metadata.MAX_PENDING", 3)
        assert verdicts(gate.take(first[:2], at=0)) == ["refused slice: ReassemblyError"] * 2
        assert gate.take(second[:2], at=3) == []
        assert values(gate.take(second[2:], at=5)) == [each.value for each in second]

    def test_what_stays_and_is_gone_from_the_topic_does_not_stay_for_ever(self, ingress: Ingress) -> None:
        gate = Gate(ingress, begin=5, stays={1, 3})
        gate.take(ingress.sent(b"v"), at=6)
        assert gate.commit() == (7, "")


class Notes(Interceptor, frozen=True, kw_only=True):
    """Tell how many records come at once."""

    type: ClassVar[str] = "notes"
    role: ClassVar[Role] = Role.OBSERVE
    told: Any

    def on_consume(self, record: Record) -> Record:
        """Tell of one."""
        self.told(1)
        return record

    def on_consume_batch(self, batch: Any) -> Any:
        """Tell of many."""
        self.told(len(batch))
        return batch


class Single(Interceptor, frozen=True, kw_only=True):
    """Take records one by one."""

    type: ClassVar[str] = "single"

    def on_consume(self, record: Record) -> Record:
        """Return it as it is."""
        return record


def noting(ingress: Ingress, told: list[int], window: int = 100_000) -> Chain:
    """Return the guard's chain, which tells how many records the first step gets at once."""
    return Chain([*ingress.guard_chain(replay_window=window), Notes(told=told.append)])


class TestRecordsTogether:
    def test_are_judged_like_each_alone(self, ingress: Ingress) -> None:
        told: list[int] = []
        gate = Gate(ingress, noting(ingress, told))
        good, thief = ingress.sent(b"a", b"b", b"c"), ingress.sent(b"t", who="thief")
        forged = good[0].replace(value=b"forged")
        wire = [good[0], *thief, forged, good[1], good[0], ingress.sent(b"")[0], good[2]]
        refused = ["refused admission: AdmissionError", "refused sign: SignatureError"]
        expected = ["admitted", *refused, "admitted", refused[1], "admitted", "admitted"]
        decisions = gate.take(wire)
        assert verdicts(decisions) == expected
        assert values(decisions) == [b"a", b"b", b"", b"c"]
        assert told == [len(wire)]
        assert gate.commit() == (len(wire), "")

    def test_end_before_slices_and_before_what_is_refused_at_once(self, ingress: Ingress) -> None:
        told: list[int] = []
        gate = Gate(ingress, noting(ingress, told), max_headers=4)
        headers = [("h", b"")] * 4
        slices = ingress.sent(bytes(3_000), slice_bytes=2_000)
        wire = [*ingress.sent(b"a", b"b"), *slices, *ingress.sent(b"c", b"d")]
        many = ingress.sent(b"m", headers=headers)
        assert len(gate.take([*wire, *many, *ingress.sent(b"e")])) == 7
        assert told == [2, *[1] * len(slices), 2, 1]

    def test_that_are_read_again_come_apart_from_new_ones(self, ingress: Ingress) -> None:
        told: list[int] = []
        sent = ingress.sent(b"a", b"b", b"c", b"d")
        gate = Gate(ingress, noting(ingress, told), begin=2, start=0)
        assert values(gate.take([*sent, sent[1]], at=0)) == [b"c", b"d"]
        assert told == [2, 3]

    def test_come_one_by_one_if_a_step_takes_no_batches(self, ingress: Ingress) -> None:
        """It may wait for a service, and would wait for each record of a batch while the service is down."""
        told: list[int] = []
        chain = Chain([Single(), *noting(ingress, told)])
        gate = Gate(ingress, chain)
        assert values(gate.take(ingress.sent(b"a", b"b", b"c"))) == [b"a", b"b", b"c"]
        assert told == [1, 1, 1]

    def test_are_fewer_if_a_window_is_small(self, ingress: Ingress) -> None:
        told: list[int] = []
        gate = Gate(ingress, noting(ingress, told, window=512))
        sent = ingress.sent(b"a", b"b", b"c", b"d", b"e")
        assert values(gate.take(sent)) == [b"a", b"b", b"c", b"d", b"e"]
        assert told == [2, 2, 1]

    def test_behind_one_that_waits_push_nothing_out_of_a_window(self, ingress: Ingress) -> None:
        """A copy that was refused once is refused also after a pause."""
        known = dict(PARTITIONS)
        gate = Gate(ingress, noting(ingress, [], window=40), partitions=known)
        sent = ingress.sent(*(b"%d" % number for number in range(90)))
        assert len(gate.take(sent[:30])) == 30
        known["orders"] = 0
        assert gate.take([sent[30], sent[10], *sent[31:]]) == []
        known["orders"], ingress.now_ms = 3, ingress.now_ms + 2_000
        decisions = gate.again()
        assert verdicts(decisions) == ["admitted", "refused sign: SignatureError", *["admitted"] * 59]

    def test_are_decided_as_they_were_judged_after_a_short_pause(self, ingress: Ingress) -> None:
        """Nothing counts twice but the record that waits."""
        told: list[int] = []
        known = {**PARTITIONS, "orders": 0}
        gate = Gate(ingress, noting(ingress, told), partitions=known)
        thief = ingress.sent(b"t", who="thief")
        assert gate.take([*ingress.sent(b"a"), *thief, *ingress.sent(b"b", b"c")]) == []
        assert gate.again() == []
        known["orders"] = 3
        assert values(gate.again()) == [b"a", b"b", b"c"]
        assert told == [4, 1, 1]
        assert gate.session.stats()["admission"]["not_admitted"] == 1
        assert gate.commit() == (4, "")

    def test_are_judged_again_after_a_longer_pause_and_then_fewer(self, ingress: Ingress) -> None:
        """Behind a record that has to wait, nothing is decided; what was judged ahead is judged anew."""
        told: list[int] = []
        known = {**PARTITIONS, "orders": 0}
        gate = Gate(ingress, noting(ingress, told), partitions=known)
        assert gate.take(ingress.sent(b"a", b"b", b"c", b"d")) == []
        ingress.now_ms += 2_000
        assert gate.again() == gate.again() == []
        known["orders"] = 3
        assert values(gate.again()) == [b"a", b"b", b"c", b"d"]
        assert told == [4, 1, 1, 1, 2, 1]
        assert gate.commit() == (4, "")

    def test_are_judged_anew_by_another_chain(self, ingress: Ingress) -> None:
        told: list[int] = []
        known = {**PARTITIONS, "orders": 0}
        gate = Gate(ingress, noting(ingress, told), partitions=known)
        assert gate.take(ingress.sent(b"a", b"b")) == []
        gate.judge.use(noting(ingress, told).open(gate.context, previous=gate.session))
        known["orders"] = 3
        assert values(gate.again()) == [b"a", b"b"]
        assert told == [2, 1, 1]

    def test_see_another_policy_after_a_pause(self, ingress: Ingress) -> None:
        known = {**PARTITIONS, "orders": 0}
        gate = Gate(ingress, partitions=known)
        assert gate.take(ingress.sent(b"a", b"b")) == []
        try:
            ingress.policy(POLICY.replace('["shop", "bank"]', '["bank"]'))
            known["orders"], ingress.now_ms = 3, ingress.now_ms + 2_000
            assert verdicts(gate.again()) == ["refused admission: AdmissionError"] * 2
        finally:
            ingress.policy(POLICY)
            ingress.now_ms += 2_000


class TestMessagesInSlices:
    """Whatever stands among whose slices, and wherever it is begun again: all or nothing, once, in order."""

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
    @given(data=st.data())
    def test_in_any_order_over_any_restarts(self, ingress: Ingress, data: st.DataObject) -> None:
        sequences = [[each] for each in ingress.sent(b"1", b"2", b"3")]
        sequences += [ingress.sent(bytes([65 + n]) * 3_000, slice_bytes=2_000) for n in range(2)]
        order = data.draw(st.permutations([n for n, each in enumerate(sequences) for _ in each]))
        left = [list(each) for each in sequences]
        wire = [left[number].pop(0).replace(topic=INGRESS, partition=0) for number in order]
        # A message stands where its last slice stood.
        ends = sorted(range(len(sequences)), key=lambda n: max(at for at, m in enumerate(order) if m == n))
        expected = [each.value for number in ends for each in sequences[number]]
        sent: list[Any] = []
        begin, position, stays = 0, 0, frozenset[int]()
        while position < len(wire):
            upto = data.draw(st.integers(position + 1, len(wire)))
            gate = Gate(ingress, begin=position, stays=stays)
            sent += values(gate.take(wire[begin:upto], at=begin))
            begin, metadata = gate.commit()
            found, stays, _ = decode_metadata(begin, metadata)
            position = begin if found is None else found
            gate.close()
        assert sent == expected
        assert stays == frozenset()
