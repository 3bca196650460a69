from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkFiles, TaskContext

from headerware.core.chain import Chain
from headerware.core.errors import ConfigError, HeaderwareError, HeldBackError, SignatureError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Sign, Trail
from headerware.interceptors.trail import read_trail
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge.chain_source import ChainSource, chain_source
from headerware.spark_bridge.executors.opened import opened
from headerware.spark_bridge.executors.work import Work

if TYPE_CHECKING:
    from pathlib import Path

    from headerware.core.context import Context


@pytest.fixture(autouse=True)
def _worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Spark's files where they are in a worker."""
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)


class Closing:
    """Tell when it was opened and closed."""

    log: list[str] = []  # noqa: RUF012 - tests read it

    def __init__(self, name: str) -> None:
        self.word = name

    def open(self, _: Context) -> Closing:
        self.log.append(f"open {self.word}")
        return self

    def on_consume(self, record: Record) -> Record:
        return record

    def close(self) -> None:
        self.log.append(f"close {self.word}")


def work_of(*steps: object, **settings: Any) -> bytes:
    source = settings.pop("source", ChainSource(chain=Chain(steps)))
    return pickle.dumps(Work(source=source, **{"side": "consumer", "job": "job", **settings}))


class TestOpened:
    def test_once_for_equal_work(self) -> None:
        assert opened(work_of(Trail(service="once"))) is opened(work_of(Trail(service="once")))
        assert opened(work_of(Trail(service="once"))) is not opened(work_of(Trail(service="twice")))

    def test_the_one_that_was_used_longest_ago_is_closed(self) -> None:
        Closing.log.clear()
        opened(work_of(Closing("kept")))
        for number in range(16):
            opened(work_of(Closing("kept")))
            opened(work_of(Closing(f"{number}")))
        assert Closing.log.count("open kept") == 1
        assert "close kept" not in Closing.log
        assert "close 0" in Closing.log

    def test_what_a_task_left_is_gone_in_the_next(self) -> None:
        ready = opened(work_of(Trail()))
        ready.clock.ms = 5
        ready.identities["t", 0, 1] = b"left"
        again = opened(work_of(Trail()))
        assert (again.clock.ms, again.identities) == (None, {})

    def test_what_cannot_be_opened_is_tried_again(self, tmp_path: Path) -> None:
        work = work_of(Sign(keyring=str(tmp_path / "keys.json"), key_id="k"))
        for _ in range(2):
            with pytest.raises(HeaderwareError, match=r"keys\.json"):
                opened(work)


class TestTrailOfJobs:
    def seen(self, work: bytes) -> str | None:
        record = opened(work).session.consume([Record("t", b"v")])[0]
        return read_trail(record.headers)[-1].by_whom

    def test_names_the_job_where_there_are_no_batches(self) -> None:
        assert self.seen(work_of(Trail(service="shop"))) == "shop/job"

    def test_names_the_batch_that_the_task_is_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(TaskContext, "_taskContext", None)
        task = TaskContext()
        for batch in ("4", "5"):
            task._localProperties = {"streaming.sql.batchId": batch}
            assert self.seen(work_of(Trail(service="shop"))) == f"shop/job#{batch}"


class TestFilesOfOptions:
    def test_shipped_ones_are_found_by_name(self, tmp_path: Path) -> None:
        edit_keyring(tmp_path / "keys.json", lambda keys: with_new_key(keys, "k", "hmac-sha256"), create=True)
        step = Sign(keyring="/nowhere/keys.json", key_id="k", require="enforce")
        session = opened(work_of(step)).session
        with pytest.raises(SignatureError, match=r"hw\.sig"):
            session.consume([Record("t", b"v")])

    def test_variables_are_filled_in_where_it_is_opened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = {"interceptors": "trail", "interceptors.trail.service": "${env:HW_TEST_SERVICE}"}
        monkeypatch.setenv("HW_TEST_SERVICE", "driver")
        source, _ = chain_source(config)
        monkeypatch.setenv("HW_TEST_SERVICE", "executor")
        (sent,) = opened(work_of(source=source)).session.consume([Record("t", b"v")])
        assert read_trail(sent.headers)[0].by_whom == "executor/job"

    def test_a_missing_variable_says_which(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = {"interceptors": "trail", "interceptors.trail.service": "${env:HW_TEST_GONE}"}
        monkeypatch.setenv("HW_TEST_GONE", "here")
        source, _ = chain_source(config)
        monkeypatch.delenv("HW_TEST_GONE")
        with pytest.raises(ConfigError, match="HW_TEST_GONE"):
            opened(work_of(source=source))


class TestRefused:
    def test_what_nobody_can_judge_fails_the_job(self) -> None:
        ready = opened(work_of(Trail(), failures="route"))
        with pytest.raises(HeldBackError, match=r"chain at t\[1\]@2: keyring keys.json is older"):
            ready.refused(
                HeldBackError("keyring keys.json is older"), Record("t", b"v", partition=1, offset=2)
            )

    def test_an_error_without_a_place_gets_the_rows(self) -> None:
        ready = opened(work_of(Trail(), failures="route"))
        failure = ready.refused(HeaderwareError("no good"), Record("t", b"v", partition=1, offset=2))
        assert failure["reason"] == "chain at t[1]@2: no good"

    def test_a_letter_leaves_headers_without_a_name_out(self) -> None:
        ready = opened(work_of(Trail(), failures="route"))
        headers: Any = [(None, b"1"), ("a", b"2")]
        failure = ready.refused(HeaderwareError("no"), Record("t", b"v", headers=headers))
        assert failure["headers"][0] == {"key": "a", "value": b"2"}

    def test_a_letter_that_failed_before_has_one_reason(self) -> None:
        ready = opened(work_of(Trail(), failures="route"))
        old = Headers([("__connect.errors.exception.message", b"old"), ("kafka_dlt-original-topic", b"old")])
        failure = ready.refused(HeaderwareError("new"), Record("t", b"v", headers=old))
        assert b"old" not in [each["value"] for each in failure["headers"]]
