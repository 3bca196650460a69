"""What comes through an admission guard, and what does not: each row of docs/guard.md's table of attacks."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headerware import Chain, ConfigError, Headers, Record
from headerware.clients.partition_picker import partition_of_key
from headerware.core.commit_metadata import decode_metadata
from headerware.interceptors import Admission, Sign, Slice
from headerware.kafka.messages import UnreadHeaders
from headerware.keyring import read_keyring
from headerware.keyring.writing import edit_keyring
from headerware.ops.guard import Guard, Routes
from headerware.testing import EmbeddedCluster
from tests.ingress import (
    INGRESS,
    LETTERS,
    MAX_AGE_MS,
    PARTITIONS,
    POLICY,
    ROUTES,
    Gate,
    Ingress,
    values,
    verdicts,
)
from tests.waiting import DEADLINE_S

SIGN = "refused sign: SignatureError"
ADMISSION = "refused admission: AdmissionError"
GUARD = "refused guard: AdmissionError"
QUOTA = """
[[quotas]]
subjects = ["shop"]
records_per_s = 2
over = "{over}"
"""


@pytest.fixture
def ingress(tmp_path: Path) -> Ingress:
    return Ingress(tmp_path)


@pytest.fixture
def gate(ingress: Ingress) -> Any:
    made = Gate(ingress)
    yield made
    made.close()


class TestAdmitted:
    def test_goes_on_as_it_came_with_time_and_partition(self, ingress: Ingress, gate: Gate) -> None:
        (came,) = ingress.sent(b"v", headers=[("a", b"1"), ("a", None)])
        came = came.replace(timestamp_ms=1_700_000_000_000, timestamp_type=1)
        (decision,) = gate.take([came])
        (sent,) = decision.records
        assert (sent.topic, sent.partition, sent.timestamp_ms) == ("orders", 0, came.timestamp_ms)
        assert (sent.key, sent.value, sent.headers) == (came.key, came.value, came.headers)
        assert {name for name, _ in sent.headers} == {"a", "hw.admit", "hw.sig"}


class TestRefused:
    def test_without_a_signature(self, gate: Gate) -> None:
        assert verdicts(gate.take([Record(INGRESS, b"v", b"k")])) == [SIGN]

    @pytest.mark.parametrize("part", ["value", "key"])
    def test_changed(self, ingress: Ingress, gate: Gate, part: str) -> None:
        (came,) = ingress.sent(b"v")
        assert verdicts(gate.take([came.replace(**{part: b"other"})])) == [SIGN]

    def test_who_the_rules_do_not_know(self, ingress: Ingress, gate: Gate) -> None:
        assert verdicts(gate.take(ingress.sent(b"v", who="thief"))) == [ADMISSION]

    def test_another_issuer(self, ingress: Ingress, gate: Gate) -> None:
        key = read_keyring(ingress.folder / "shop.json").keys[0]
        ingress.certificate("shop", key, issuer="somebody")
        assert verdicts(gate.take(ingress.sent(b"v"))) == [ADMISSION]

    def test_a_stolen_certificate(self, ingress: Ingress, gate: Gate) -> None:
        token = (ingress.folder / "shop.jwt").read_bytes()
        assert verdicts(gate.take([ingress.signed("thief", [("hw.admit", token)])])) == [ADMISSION]

    @pytest.mark.parametrize("name", ["subject", "hw.subject", "principal", "HW.ADMIT"])
    def test_an_identity_that_a_header_claims(self, ingress: Ingress, gate: Gate, name: str) -> None:
        own, token = ((ingress.folder / f"{who}.jwt").read_bytes() for who in ("thief", "shop"))
        for claim in (b"shop", token):
            forged = ingress.signed("thief", [(name, claim), ("hw.admit", own)])
            assert verdicts(gate.take([forged])) == [ADMISSION]

    def test_an_identity_that_was_appended(self, ingress: Ingress, gate: Gate) -> None:
        (came,) = ingress.sent(b"v", who="thief")
        token = (ingress.folder / "shop.jwt").read_bytes()
        assert verdicts(gate.take([came.with_headers(came.headers.add("hw.admit", token))])) == [SIGN]

    def test_moved_from_another_topic(self, ingress: Ingress, gate: Gate) -> None:
        assert verdicts(gate.take(ingress.sent(b"v", topic="ingress.payments"))) == [SIGN]

    def test_a_header_that_a_rule_denies(self, ingress: Ingress, gate: Gate) -> None:
        assert verdicts(gate.take(ingress.sent(b"v", headers=[("class", b"secret")]))) == [ADMISSION]

    def test_a_name_that_is_no_utf_8(self, gate: Gate) -> None:
        unreadable = Record(INGRESS, b"v", b"k").replace(headers=UnreadHeaders("there", "no UTF-8"))
        assert verdicts(gate.take([unreadable])) == ["refused guard: InterceptorError"]

    def test_one_of_many_leaves_the_others_in_their_order(self, ingress: Ingress, gate: Gate) -> None:
        came = ingress.sent(b"1", b"2", b"3")
        decisions = gate.take([came[0], came[1].replace(value=b"x"), came[2]])
        assert values(decisions) == [b"1", b"3"]
        assert verdicts(decisions) == ["admitted", SIGN, "admitted"]
        assert gate.commit() == (3, "")


class TestAChainThatLetsPass:
    """Whatever is configured, nothing passes that nothing has verified."""

    @pytest.mark.parametrize("options", [{"require": "off"}, {"require": "warn"}, {"topics": ("others",)}])
    def test_unsigned_records(self, ingress: Ingress, options: dict[str, Any]) -> None:
        gate = Gate(ingress, Chain([Sign(keyring=str(ingress.folder / "public.json"), **options)]))
        assert verdicts(gate.take([Record(INGRESS, b"v")])) == [GUARD]

    def test_records_of_topics_that_admission_does_not_work_on(self, ingress: Ingress) -> None:
        policy, public = str(ingress.folder / "policy.toml"), str(ingress.folder / "public.json")
        admission = Admission(policy=policy, topics=("others",))
        gate = Gate(ingress, Chain([admission, Sign(keyring=public, cluster="c")]))
        assert verdicts(gate.take(ingress.sent(b"v", who="thief"))) == [GUARD]

    @pytest.mark.parametrize("topics", [None, ("others",)])
    def test_slices_without_a_slice(self, ingress: Ingress, topics: tuple[str, ...] | None) -> None:
        """A rule's conditions on headers count for first slices, so others alone would go round them."""
        steps = [step for step in ingress.guard_chain() if not isinstance(step, Slice)]
        own = [] if topics is None else [Slice(topics=topics)]
        gate = Gate(ingress, Chain([*own, *steps]))
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        assert set(verdicts(gate.take(slices[1:]))) == {"refused chain: TransportHeaderError"}

    def test_a_chain_that_verifies_nothing_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(ConfigError, match="expected a chain that verifies records"):
            Guard({"bootstrap.servers": "nowhere"}, {"ingress.{topic}": "{topic}"}, chain=Chain([Slice()]))

    def test_switched_off_it_does_not_run(self, ingress: Ingress, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        with pytest.raises(ConfigError, match="HEADERWARE_DISABLED"):
            Guard({}, {"ingress.{topic}": "{topic}"}, chain=ingress.guard_chain())


class TestReplayed:
    def test_is_refused(self, ingress: Ingress, gate: Gate) -> None:
        came = ingress.sent(b"v")
        assert verdicts(gate.take(came * 2)) == ["admitted", SIGN]

    def test_is_refused_behind_a_restart(self, ingress: Ingress) -> None:
        """What was let through is read again, and nothing of it goes on once more."""
        came = ingress.sent(b"1", b"2")
        again = Gate(ingress, begin=2)
        decisions = again.take([*came, came[0], *ingress.sent(b"3")])
        assert verdicts(decisions) == [SIGN, "admitted"]
        assert values(decisions) == [b"3"]

    def test_a_forged_record_does_not_keep_the_genuine_one_out_behind_a_restart(
        self, ingress: Ingress
    ) -> None:
        (came,) = ingress.sent(b"v")
        again = Gate(ingress, begin=1)
        assert verdicts(again.take([came.replace(value=b"forged"), came])) == ["admitted"]

    def test_is_refused_by_its_age_where_nothing_remembers(self, ingress: Ingress) -> None:
        came = ingress.sent(b"v")
        ingress.now_ms += MAX_AGE_MS + 1
        assert verdicts(Gate(ingress, begin=1).take(came, at=7)) == [SIGN]

    def test_in_another_partition_is_refused_by_its_key(self, ingress: Ingress) -> None:
        gate = Gate(ingress, partitioner="murmur2_random")
        keys = [b"%d" % number for number in range(20)]
        own = [partition_of_key(key, "murmur2_random", 3) == 0 for key in keys]
        assert 0 < sum(own) < 20
        found = verdicts(gate.take([record for key in keys for record in ingress.sent(b"v", key=key)]))
        assert found == ["admitted" if is_own else GUARD for is_own in own]
        assert verdicts(gate.take(ingress.sent(b"v", key=None))) == ["admitted"]

    def test_in_another_partition_does_not_keep_the_genuine_one_out(self, ingress: Ingress) -> None:
        """The window would remember the copy, if it came first, and take the genuine record for one."""
        gate = Gate(ingress, partitioner="murmur2_random")
        key = next(b"%d" % n for n in range(20) if partition_of_key(b"%d" % n, "murmur2_random", 3) == 0)
        came = [*ingress.sent(b"v", key=key), *ingress.sent(bytes(5_000), slice_bytes=2_000, key=key)]
        gate.begin((INGRESS, 1), 0)
        assert set(verdicts(gate.take(came, partition=1))) == {GUARD}
        assert values(gate.take(came, at=0)) == [each.value for each in came]

    def test_in_another_partition_waits_until_all_are_read_again(self, ingress: Ingress) -> None:
        """Behind a restart partitions come in any order, and the copy before what it is a copy of."""
        (came,) = ingress.sent(b"v")
        gate = Gate(ingress, begin=1, start=0)
        gate.begin((INGRESS, 1), 0)
        assert gate.take([came, *ingress.sent(b"new")], partition=1) == []
        assert "read again" in str(gate.judge.held()[INGRESS, 1])
        assert gate.take([came], at=0) == []
        assert gate.again() == []
        gate.judge.ended(gate.place)
        assert verdicts(gate.again()) == [SIGN, "admitted"]

    def test_in_another_partition_waits_for_one_that_cannot_be_read(self, ingress: Ingress) -> None:
        gate = Gate(ingress)
        gate.judge.is_blind = True
        assert gate.take(ingress.sent(b"v")) == []
        gate.judge.is_blind = False
        assert values(gate.again()) == [b"v"]

    def test_what_is_read_again_is_over_when_something_new_comes(self, ingress: Ingress) -> None:
        came = ingress.sent(b"1", b"2")
        gate = Gate(ingress, begin=1, start=0)
        gate.begin((INGRESS, 1), 0)
        assert values(gate.take(came, at=0)) == [b"2"]
        assert verdicts(gate.take([came[0]], partition=1)) == [SIGN]

    def test_if_the_time_before_the_outage_is_not_known(self, ingress: Ingress) -> None:
        """A transaction's marker is before the commit; so the partition is read again from its beginning."""
        (came,) = ingress.sent(b"v")
        headers = list(came.headers)
        with EmbeddedCluster(topics={INGRESS: 1, "orders": 1, LETTERS: 1}) as embedded:
            conf = {"bootstrap.servers": embedded.bootstrap_servers}
            with Producer({**conf, "transactional.id": "t"}) as producer:
                producer.init_transactions()
                producer.begin_transaction()
                down_since_ms = ingress.now_ms - 700_000
                producer.produce(INGRESS, came.value, came.key, 0, timestamp=down_since_ms, headers=headers)
                producer.commit_transaction()
            with Consumer({**conf, "group.id": "headerware-guard"}) as consumer:
                consumer.commit(offsets=[TopicPartition(INGRESS, 0, 2)], asynchronous=False)
            with Producer(conf) as producer:
                producer.produce(INGRESS, came.value, came.key, 0, headers=headers)
            guard = Guard(conf, ROUTES, chain=ingress.guard_chain(), look_back_s=600)
            stopping = threading.Timer(DEADLINE_S, guard.stop)
            stopping.start()
            guard.run(lambda status: guard.stop() if status.admitted or status.refused else None)
            stopping.cancel()
        assert guard.status().admitted == {}
        assert guard.status().refused == {INGRESS: {"sign: SignatureError": 1}}

    def test_a_window_that_no_restart_can_rebuild_is_refused(self, ingress: Ingress) -> None:
        chain = ingress.guard_chain(max_age_ms=None)
        with pytest.raises(ConfigError, match="max_age_ms"):
            Guard({"bootstrap.servers": "nowhere"}, {"ingress.{topic}": "{topic}"}, chain=chain)


class TestOverQuota:
    def test_waits(self, ingress: Ingress) -> None:
        ingress.policy(POLICY + QUOTA.format(over="wait"))
        gate = Gate(ingress)
        came = [*ingress.sent(b"1", b"2", b"3"), *ingress.sent(b"bank", who="bank")]
        assert values(gate.take(came)) == [b"1", b"2"]
        assert gate.commit() == (2, "")
        assert "above the quota of 'shop'" in str(gate.judge.held()[gate.place])
        ingress.now_ms += 1_000
        waited = gate.judge
        waited._partitions[gate.place].until = 0.0  # the monotonic clock is the machine's
        # It keeps the order of the partition, so others wait behind it.
        assert values(waited.decide()) == [b"3", b"bank"]
        assert waited.held() == {}

    def test_is_refused(self, ingress: Ingress) -> None:
        ingress.policy(POLICY + QUOTA.format(over="refuse"))
        gate = Gate(ingress)
        decisions = gate.take([*ingress.sent(b"1", b"2", b"3"), *ingress.sent(b"bank", who="bank")])
        assert verdicts(decisions) == ["admitted", "admitted", "refused quota: QuotaError", "admitted"]

    def test_what_was_refused_may_come_again(self, ingress: Ingress) -> None:
        ingress.policy(POLICY + QUOTA.format(over="refuse"))
        gate = Gate(ingress)
        came = ingress.sent(b"1", b"2", b"3")
        gate.take(came)
        ingress.now_ms += 1_000
        assert verdicts(gate.take([came[2]])) == ["admitted"]

    def test_does_not_wait_for_longer_than_a_larger_quota_takes(self, ingress: Ingress) -> None:
        """What was larger than the bucket is paid for over a long time, by the quota of then."""
        ingress.policy(f"{POLICY}\n[[quotas]]\nbytes_per_s = 0.01\n")
        gate = Gate(ingress)
        assert values(gate.take(ingress.sent(b"1", b"2"))) == [b"1"]
        assert gate.judge._partitions[gate.place].until - time.monotonic() < 11
        ingress.policy(POLICY)
        ingress.now_ms += 2_000
        assert values(gate.again()) == [b"2"]

    def test_a_message_of_which_the_first_slice_comes_last_may_come_again(self, ingress: Ingress) -> None:
        ingress.policy(POLICY + QUOTA.format(over="refuse"))
        gate = Gate(ingress)
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        gate.take(ingress.sent(b"1", b"2"))
        in_their_order = [*slices[1:], slices[0]]
        assert set(verdicts(gate.take(in_their_order))) == {"refused quota: QuotaError"}
        ingress.policy(POLICY)
        ingress.now_ms += 2_000
        gate.judge.revoke([gate.place])  # as a rebalance does, so that they are no late ones
        gate.begin(gate.place, 100)
        assert set(verdicts(gate.take(in_their_order, at=100))) == {"admitted"}

    def test_counts_bytes_of_whole_messages(self, ingress: Ingress) -> None:
        ingress.policy(f'{POLICY}\n[[quotas]]\nbytes_per_s = 4_000\nover = "refuse"\n')
        gate = Gate(ingress)
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        assert set(verdicts(gate.take(slices))) == {"admitted"}
        assert verdicts(gate.take(ingress.sent(b"v"))) == ["refused quota: QuotaError"]


class TestAPolicy:
    def test_that_is_bad_is_refused_and_the_last_good_one_goes_on(self, ingress: Ingress, gate: Gate) -> None:
        endless = f"{POLICY}\n[[quotas]]\nrecords_per_s = 1e-310\n"
        for text in ("version = 1", POLICY.replace("allow", "permit"), "", endless):
            ingress.policy(text)
            ingress.now_ms += 2_000
            decisions = gate.take([*ingress.sent(b"v"), *ingress.sent(b"w", who="thief")])
            assert verdicts(decisions) == ["admitted", ADMISSION]
        stats = gate.session.stats()["admission"]
        assert (stats["reload_failures"], stats["reloads"]) == (4, 0)

    def test_counts_at_once(self, ingress: Ingress, gate: Gate) -> None:
        assert verdicts(gate.take(ingress.sent(b"v"))) == ["admitted"]
        ingress.policy(POLICY.replace('subjects = ["shop", "bank"]', 'subjects = ["bank"]'))
        ingress.now_ms += 2_000
        assert verdicts(gate.take(ingress.sent(b"v"))) == [ADMISSION]


class TestWhatCannotBeJudged:
    def test_is_neither_passed_nor_refused(self, ingress: Ingress) -> None:
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        gate = Gate(ingress, ingress.guard_chain(keyring_max_stale_ms=1_000))
        public = ingress.folder / "public.json"
        known = public.read_bytes()
        assert verdicts(gate.take(ingress.sent(b"1"))) == ["admitted"]
        public.write_text("broken")
        ingress.now_ms += 5_000
        assert gate.take([*ingress.sent(b"2"), Record(INGRESS, b"unsigned"), *slices]) == []
        assert gate.commit() == (1, "")
        assert "keyring" in str(gate.judge.held()[gate.place])
        public.write_bytes(known)
        ingress.now_ms += 2_000
        gate.judge._partitions[gate.place].until = 0.0
        assert verdicts(gate.judge.decide()) == ["admitted", SIGN, *["admitted"] * len(slices)]
        assert gate.commit() == (3 + len(slices), "")

    def test_holds_a_message_of_which_some_slices_have_come(self, ingress: Ingress) -> None:
        gate = Gate(ingress, ingress.guard_chain(keyring_max_stale_ms=1_000))
        public = ingress.folder / "public.json"
        known = public.read_bytes()
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        gate.take(slices[:3])
        public.write_text("broken")
        ingress.now_ms += 5_000
        assert gate.take(slices[3:]) == []
        assert decode_metadata(*gate.commit())[:2] == (3, frozenset({0, 1, 2}))
        public.write_bytes(known)
        ingress.now_ms += 2_000
        gate.judge._partitions[gate.place].until = 0.0
        assert values(gate.judge.decide()) == [each.value for each in slices]
        assert gate.commit() == (len(slices), "")

    def test_waits_for_its_dead_letter_topic(self, ingress: Ingress) -> None:
        """Else one record of one topic, which anybody can write, would stop all topics."""
        partitions = {"orders": 1}
        gate = Gate(ingress, partitions=partitions)
        assert gate.take([*ingress.sent(b"v"), Record(INGRESS, b"unsigned")]) == []
        assert f"the dead-letter topic {LETTERS} does not exist" in str(gate.judge.held()[gate.place])
        partitions[LETTERS] = 1
        assert verdicts(gate.again()) == ["admitted", SIGN]

    def test_waits_for_the_topic_of_the_accounts(self, ingress: Ingress) -> None:
        gate = Gate(ingress, audit_topic="guard-audit")
        assert gate.take(ingress.sent(b"v")) == []
        assert "the audit topic guard-audit does not exist" in str(gate.judge.held()[gate.place])

    def test_waits_while_nobody_knows_its_partitions(self, ingress: Ingress) -> None:
        partitions = {LETTERS: 1, "orders": 3}
        gate = Gate(ingress, partitions=partitions, partitioner="murmur2")
        assert gate.take(ingress.sent(b"v", key=None)) == []
        partitions[INGRESS] = 1
        assert values(gate.again()) == [b"v"]

    def test_does_not_count_twice_in_a_dry_run(self, ingress: Ingress) -> None:
        gate = Gate(ingress, ingress.guard_chain(keyring_max_stale_ms=1_000), waits=False)
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        gate.take(slices[:-1])
        (ingress.folder / "public.json").write_text("broken")
        ingress.now_ms += 5_000
        assert gate.take(slices[-1:]) == []
        assert gate.judge.held_back == {"sign: HeldBackError": 1}

    def test_waits_for_its_egress_topic(self, ingress: Ingress) -> None:
        partitions = {LETTERS: 1}
        gate = Gate(ingress, partitions=partitions)
        assert gate.take(ingress.sent(b"v")) == []
        assert "the egress topic orders does not exist" in str(gate.judge.held()[gate.place])
        partitions["orders"] = 1
        gate.judge._partitions[gate.place].until = 0.0
        assert values(gate.judge.decide()) == [b"v"]

    def test_is_judged_anew_when_it_goes_on(self, ingress: Ingress) -> None:
        """Else a record that waits would pass though its writer may write no more."""
        partitions = {LETTERS: 1}
        gate = Gate(ingress, partitions=partitions)
        assert gate.take(ingress.sent(b"1", b"2")) == []
        ingress.policy(POLICY.replace('subjects = ["shop", "bank"]', 'subjects = ["bank"]'))
        ingress.now_ms += 2_000
        partitions |= PARTITIONS
        assert verdicts(gate.again()) == [ADMISSION] * 2


class TestSlices:
    def test_go_on_together_as_they_came(self, ingress: Ingress, gate: Gate) -> None:
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        plain = ingress.sent(b"1", b"2")
        assert len(slices) > 3
        assert values(gate.take([slices[0], plain[0], *slices[1:-1]])) == [b"1"]
        position, stays, _ = decode_metadata(*gate.commit())
        assert (position, stays) == (len(slices), frozenset({0, *range(2, len(slices))}))
        decisions = gate.take([slices[-1], plain[1]])
        assert values(decisions) == [*(each.value for each in slices), b"2"]
        sent = [record for decision in decisions for record in decision.records]
        assert [each.headers for each in sent[:-1]] == [each.headers for each in slices]
        assert gate.commit() == (len(slices) + 2, "")

    def test_go_on_together_over_a_restart(self, ingress: Ingress) -> None:
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        wire = [slices[0], *ingress.sent(b"1"), *slices[1:]]
        first = Gate(ingress)
        assert values(first.take(wire[:3])) == [b"1"]
        offset, metadata = first.commit()
        assert offset == 0
        position, stays, _ = decode_metadata(offset, metadata)
        assert position is not None
        second = Gate(ingress, begin=position, stays=stays)
        # Read again from the first that stays; what was between is not sent again.
        assert values(second.take(wire)) == [each.value for each in slices]
        assert second.commit() == (len(wire), "")

    def test_one_that_is_refused_keeps_all_out(self, ingress: Ingress, gate: Gate) -> None:
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        forged = [slices[0], slices[1].replace(value=bytes(len(slices[1].value))[:-1] + b"x"), *slices[2:]]
        assert verdicts(gate.take(forged)) == [SIGN]
        ingress.now_ms += 24 * 3_600_000
        rest = gate.judge.decide()
        assert values(rest) == []
        assert verdicts(rest) == ["refused slice: ReassemblyError"] * (len(slices) - 1)
        assert gate.commit() == (len(slices), "")

    def test_of_a_stranger_do_not_get_into_a_message(self, ingress: Ingress, gate: Gate) -> None:
        genuine = ingress.sent(bytes(5_000), slice_bytes=2_000)
        stranger = [
            Record(
                INGRESS,
                each.value,
                each.key,
                Headers([pair for pair in each.headers if pair[0] == "hw.slice"]),
            )
            for each in genuine
        ]
        decisions = gate.take([genuine[0], *stranger, *genuine[1:]])
        assert values(decisions) == [each.value for each in genuine]
        assert verdicts(decisions).count(SIGN) == len(stranger)

    def test_a_denied_header_of_the_first_keeps_all_out(self, ingress: Ingress, gate: Gate) -> None:
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000, headers=[("class", b"secret")])
        assert verdicts(gate.take(slices)) == [ADMISSION]
        ingress.now_ms += 24 * 3_600_000
        assert len(verdicts(gate.judge.decide())) == len(slices) - 1
        assert gate.commit() == (len(slices), "")

    @pytest.mark.parametrize("at", [0, 1, -1])
    def test_repeated_at_once_do_not_spoil_their_message(self, ingress: Ingress, gate: Gate, at: int) -> None:
        """Whoever can write may copy a slice, and producers that are not idempotent send some twice."""
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        wire = list(slices)
        wire.insert(at % len(slices), slices[at])
        decisions = gate.take(wire)
        assert values(decisions) == [each.value for each in slices]
        refused = [each for each in decisions if each.disposition == "dead_letter"]
        assert len(refused) == 1 or at == -1
        if at == -1:  # the last one came behind the whole
            ingress.now_ms += 24 * 3_600_000
            assert verdicts(gate.judge.decide()) == ["refused slice: ReassemblyError"]
        assert gate.commit() == (len(wire), "")

    def test_that_wait_and_cannot_be_noted_are_refused_and_do_not_go_on_later(
        self, ingress: Ingress, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        partitions = {LETTERS: 1}
        gate = Gate(ingress, partitions=partitions)
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        monkeypatch.setattr("headerware.core.commit_metadata.MAX_PENDING_BYTES", 10)
        assert verdicts(gate.take(slices)) == ["refused slice: ReassemblyError"] * len(slices)
        partitions |= PARTITIONS
        assert gate.again() == []
        assert gate.commit() == (len(slices), "")

    def test_repeated_ones_are_kept_apart(self, ingress: Ingress, gate: Gate) -> None:
        slices = ingress.sent(bytes(5_000), slice_bytes=2_000)
        decisions = gate.take([*slices, *slices[:2]])
        assert values(decisions) == [each.value for each in slices]
        assert verdicts(decisions)[-1] == SIGN
        assert gate.commit()[0] == len(slices) + 1
        ingress.now_ms += 24 * 3_600_000
        assert verdicts(gate.judge.decide()) == ["refused slice: ReassemblyError"]
        assert gate.commit() == (len(slices) + 2, "")


class TestRoutes:
    @pytest.mark.parametrize(
        "table",
        [
            {"{topic}": "clean.{topic}"},
            {"a": "b", "b": "c"},
            {"a": "a"},
            {"in.{topic}": "in.{topic}.out"},
        ],
    )
    def test_that_go_round_are_refused(self, table: dict[str, str]) -> None:
        with pytest.raises(ConfigError, match="which is an ingress topic too"):
            Routes(table)

    @pytest.mark.parametrize("letters", ["orders", "{topic}"])
    def test_that_would_let_refused_records_in(self, letters: str) -> None:
        with pytest.raises(ConfigError):
            Routes({"ingress.orders": "orders"}, dead_letter_topic=letters)

    @pytest.mark.parametrize("topic", ["orders", "ingress.orders", "ingress.orders.dead-letter"])
    def test_that_would_let_records_among_the_accounts_are_refused(self, topic: str) -> None:
        with pytest.raises(ConfigError, match="is also the ingress, egress or dead-letter topic"):
            Routes({"ingress.orders": "orders"}, audit_topic=topic)

    def test_into_the_accounts_by_a_pattern_are_refused_when_they_are_met(self) -> None:
        routes = Routes({"ingress.{topic}": "{topic}"}, audit_topic="guard-audit")
        with pytest.raises(ConfigError, match="is also the ingress, egress or dead-letter topic"):
            routes.check("ingress.guard-audit")

    def test_dead_letters_are_never_ingress(self) -> None:
        routes = Routes({"ingress.{topic}": "{topic}"})
        assert routes.egress("ingress.orders.dead-letter") is None
        assert routes.egress("ingress.orders") == "orders"

    def test_names_count_before_patterns(self) -> None:
        routes = Routes({"ingress.{topic}": "{topic}", "ingress.old": "archive"})
        assert (routes.egress("ingress.old"), routes.egress("ingress.new")) == ("archive", "new")
        assert routes.egress("orders") is None


def test_a_revoked_key_counts_at_once(ingress: Ingress, gate: Gate) -> None:
    assert verdicts(gate.take(ingress.sent(b"v"))) == ["admitted"]
    public = ingress.folder / "public.json"
    edit_keyring(public, lambda ring: type(ring)(keys=tuple(k for k in ring.keys if k.id != "shop")))
    ingress.now_ms += 2_000
    assert verdicts(gate.take(ingress.sent(b"w"))) == [SIGN]
