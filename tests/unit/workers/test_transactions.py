"""What follows from an error of a transaction, and how transactions begin and end after one."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, cimpl

from headerware.core.record import Record
from headerware.testing import EmbeddedCluster
from headerware.workers.transactions import Transactions, Verdict, refusals_in, verdict_of
from tests.waiting import until

TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, retriable=True)


class Scripted:
    """A producer whose next calls raise what a test wants; it notes them all."""

    def __init__(self, *errors: KafkaError | None) -> None:
        self.calls: list[str] = []
        self._errors = list(errors)

    def _called(self, name: str) -> None:
        self.calls.append(name)
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise KafkaException(error)

    def init_transactions(self, timeout: float) -> None:
        self._called("init")

    def begin_transaction(self) -> None:
        self._called("begin")

    def commit_transaction(self, timeout: float) -> None:
        self._called("commit")

    def abort_transaction(self, timeout: float) -> None:
        self._called("abort")

    def purge(self) -> None:
        self._called("purge")

    def close(self) -> None:
        self._called("close")


class TestVerdict:
    @pytest.mark.parametrize(
        ("error", "verdict"),
        [
            (KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), Verdict.REFUSED),
            (KafkaError(KafkaError.INVALID_TIMESTAMP, txn_requires_abort=True), Verdict.REFUSED),
            (KafkaError(KafkaError.ILLEGAL_GENERATION, txn_requires_abort=True), Verdict.STALE),
            (KafkaError(KafkaError.UNKNOWN_MEMBER_ID), Verdict.STALE),
            (KafkaError(KafkaError._FENCED, fatal=True), Verdict.TAKEN_OVER),
            (KafkaError(KafkaError.PRODUCER_FENCED), Verdict.TAKEN_OVER),
            (KafkaError(KafkaError.INVALID_PRODUCER_ID_MAPPING, fatal=True), Verdict.TAKEN_OVER),
            (KafkaError(KafkaError._TIMED_OUT, retriable=True), Verdict.AGAIN),
            (KafkaError(KafkaError._MSG_TIMED_OUT, txn_requires_abort=True), Verdict.AGAIN),
            (KafkaError(KafkaError._STATE), Verdict.AGAIN),
            (KafkaError(KafkaError._TIMED_OUT), Verdict.FINAL),
            (KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, fatal=True), Verdict.FINAL),
            (KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), Verdict.FINAL),
        ],
    )
    def test_is_by_code_and_then_by_kind(self, error: KafkaError, verdict: Verdict) -> None:
        assert verdict_of(error) is verdict

    def test_of_an_epoch_that_is_out_of_date_is_left_to_the_abort(self) -> None:
        """The transaction may have timed out; the abort fails if another process has the id."""
        error = KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, txn_requires_abort=True)
        assert verdict_of(error) is Verdict.AGAIN
        assert verdict_of(KafkaError(KafkaError.INVALID_PRODUCER_EPOCH)) is Verdict.TAKEN_OVER

    def test_of_a_fatal_error_is_that_of_its_cause(self) -> None:
        """``produce`` says only that there was one; the next call says which."""
        producer = Scripted(KafkaError(KafkaError._FENCED, "fenced by a newer instance", fatal=True))
        verdict, cause = Transactions(producer, 1.0).judge(KafkaException(KafkaError(KafkaError._FATAL)))
        assert (verdict, cause.str()) == (Verdict.TAKEN_OVER, "fenced by a newer instance")

    def test_of_records_takes_refusals_alone(self) -> None:
        refusal = KafkaError(KafkaError.INVALID_RECORD)
        assert refusals_in({1: refusal, 2: KafkaError(KafkaError._PURGE_QUEUE)}) == {1: refusal}


class TestTransactions:
    def test_that_failed_are_aborted_before_the_next_one(self) -> None:
        producer = Scripted()
        transactions = Transactions(producer, 1.0)
        transactions.begin()
        transactions.begin()
        assert producer.calls == ["begin", "abort", "begin"]

    def test_whose_commit_timed_out_are_asked_for_again(self) -> None:
        producer = Scripted(None, TIMED_OUT, TIMED_OUT)
        transactions = Transactions(producer, 1.0)
        transactions.begin()
        transactions.commit(time.monotonic() + 60)
        assert (producer.calls, transactions.is_open) == (["begin", "commit", "commit", "commit"], False)

    def test_whose_commit_is_unknown_are_not_aborted_by_the_next_one(self) -> None:
        """They may be committed; the client lets nobody abort them, and goes on with the commit."""
        producer = Scripted(None, TIMED_OUT)
        transactions = Transactions(producer, 1.0)
        transactions.begin()
        with pytest.raises(KafkaException):
            transactions.commit()
        transactions.begin()
        assert producer.calls == ["begin", "commit", "commit", "begin"]

    def test_whose_commit_failed_are_aborted_by_the_next_one(self) -> None:
        producer = Scripted(None, KafkaError(KafkaError._MSG_TIMED_OUT, txn_requires_abort=True))
        transactions = Transactions(producer, 1.0)
        transactions.begin()
        with pytest.raises(KafkaException):
            transactions.commit(time.monotonic() + 60)
        transactions.begin()
        assert producer.calls == ["begin", "commit", "abort", "begin"]


class TestClose:
    def made(self, *errors: KafkaError | None) -> tuple[Scripted, Transactions]:
        producer = Scripted(*errors)
        return producer, Transactions(producer, 1.0)

    def test_aborts_what_is_open(self) -> None:
        producer, transactions = self.made()
        transactions.init(1.0)
        transactions.begin()
        transactions.close()
        assert producer.calls == ["init", "begin", "purge", "abort", "close"]

    def test_lets_go_of_a_producer_that_cannot_abort(self) -> None:
        producer, transactions = self.made(None, None, None, TIMED_OUT)
        transactions.init(1.0)
        transactions.begin()
        transactions.close()
        assert producer.calls[-1] == "abort"

    def test_lets_go_of_a_producer_that_never_began(self) -> None:
        producer, transactions = self.made(TIMED_OUT)
        with pytest.raises(KafkaException):
            transactions.init(1.0)
        transactions.close()
        assert producer.calls == ["init", "purge"]

    def test_lets_go_of_a_producer_that_was_taken_over(self) -> None:
        producer, transactions = self.made(None, KafkaError(KafkaError._FENCED, fatal=True))
        transactions.init(1.0)
        with pytest.raises(KafkaException) as caught:
            transactions.begin()
        assert transactions.judge(caught.value)[0] is Verdict.TAKEN_OVER
        transactions.close()
        assert producer.calls == ["init", "begin", "purge"]


class TestProduce:
    def test_waits_for_room_in_the_queue(self, embedded_cluster: EmbeddedCluster, unique_topic: Any) -> None:
        topic = unique_topic("egress")
        embedded_cluster.create_topic(topic)
        producer = cimpl.Producer(
            {
                "bootstrap.servers": embedded_cluster.bootstrap_servers,
                "transactional.id": topic,
                "queue.buffering.max.messages": 10,
            }
        )
        transactions = Transactions(producer, 60.0)
        until(lambda: took(transactions))
        transactions.begin()
        for at in range(100):
            transactions.produce(Record(topic, b"%d" % at))
        transactions.drain(())
        assert len(producer) == 0
        transactions.commit(time.monotonic() + 60)
        transactions.close()


def took(transactions: Transactions) -> bool:
    try:
        transactions.init(60.0)
    except KafkaException:  # the embedded cluster has no coordinator yet
        return False
    return True
