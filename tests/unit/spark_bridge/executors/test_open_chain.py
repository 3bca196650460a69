from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkFiles, TaskContext

from headerware.core.chain import Chain
from headerware.core.errors import (
    ConfigError,
    HeaderwareError,
    HeldBackError,
    InterceptorError,
    SignatureError,
)
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Delay, Encrypt, Identity, Metrics, Sign, Trace, Trail
from headerware.interceptors.serialize import Serialize
from headerware.interceptors.trail import read_trail
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.spark_bridge.chain_source import ChainSource, TaskSpec, chain_source
from headerware.spark_bridge.executors.open_chain import TaskPartitionPicker, open_chain

if TYPE_CHECKING:
    from pathlib import Path

    from headerware.core.context import Context


COUNTS = {"t": 16}


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


def spec_of(*steps: object, **settings: Any) -> bytes:
    source = settings.pop("source", ChainSource(chain=Chain(steps)))
    return pickle.dumps(TaskSpec(source=source, **{"side": "consumer", "job": "job", **settings}))


class TestHidden:
    def test_what_is_to_be_encrypted_gets_no_dead_letter(self, tmp_path: Path) -> None:
        """It would have the value as it came, in plaintext; so the job fails."""
        path = tmp_path / "k.json"
        edit_keyring(path, lambda keys: with_new_key(keys, "cards", "aes-256"), create=True)
        encrypt = Encrypt(key_service=FileKeys(keyring=str(path)), key_id="cards", topics=("t",))
        refusal = InterceptorError("refused")
        cases = [("producer", "t", True), ("producer", "u", False), ("consumer", "t", False)]
        for side, topic, fails in cases:
            spec = spec_of(encrypt, side=side, failures="dead_letter", dead_letter_topic="dead")
            opened = open_chain(spec)
            if fails:
                with pytest.raises(InterceptorError):
                    opened.refused(refusal.again(), Record(topic, b"secret"))
            else:
                assert opened.refused(refusal.again(), Record(topic, b"secret"))["topic"] == "dead"


class TestOpened:
    def test_once_for_equal_work(self) -> None:
        assert open_chain(spec_of(Trail(service="once"))) is open_chain(spec_of(Trail(service="once")))
        assert open_chain(spec_of(Trail(service="once"))) is not open_chain(spec_of(Trail(service="twice")))

    def test_the_one_that_was_used_longest_ago_is_closed(self) -> None:
        Closing.log.clear()
        open_chain(spec_of(Closing("kept")))
        for number in range(16):
            open_chain(spec_of(Closing("kept")))
            open_chain(spec_of(Closing(f"{number}")))
        assert Closing.log.count("open kept") == 1
        assert "close kept" not in Closing.log
        assert "close 0" in Closing.log

    def test_what_a_task_left_is_gone_in_the_next(self) -> None:
        ready = open_chain(spec_of(Trail()))
        ready.clock.ms = 5
        ready.identities["t", 0, 1] = b"left"
        again = open_chain(spec_of(Trail()))
        assert (again.clock.ms, again.identities) == (None, {})

    def test_what_cannot_be_opened_is_tried_again(self, tmp_path: Path) -> None:
        spec = spec_of(Sign(keyring=str(tmp_path / "keys.json"), key_id="k"))
        for _ in range(2):
            with pytest.raises(HeaderwareError, match=r"keys\.json"):
                open_chain(spec)


class TestTrailOfJobs:
    def seen(self, spec: bytes) -> str | None:
        record = open_chain(spec).session.consume([Record("t", b"v")])[0]
        return read_trail(record.headers)[-1].by_whom

    def test_names_the_job_where_there_are_no_batches(self) -> None:
        assert self.seen(spec_of(Trail(service="shop"))) == "shop/job"

    def test_names_the_batch_that_the_task_is_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(TaskContext, "_taskContext", None)
        task = TaskContext()
        for batch in ("4", "5"):
            task._localProperties = {"streaming.sql.batchId": batch}
            assert self.seen(spec_of(Trail(service="shop"))) == f"shop/job#{batch}"


class TestFilesOfOptions:
    def test_shipped_ones_are_found_by_name(self, tmp_path: Path) -> None:
        edit_keyring(tmp_path / "keys.json", lambda keys: with_new_key(keys, "k", "hmac-sha256"), create=True)
        step = Sign(keyring="/nowhere/keys.json", key_id="k", require="enforce")
        session = open_chain(spec_of(step)).session
        with pytest.raises(SignatureError, match=r"hw\.sig"):
            session.consume([Record("t", b"v")])

    def test_variables_are_filled_in_where_it_is_opened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = {"interceptors": "trail", "interceptors.trail.service": "${env:HW_TEST_SERVICE}"}
        monkeypatch.setenv("HW_TEST_SERVICE", "driver")
        source, _ = chain_source(config)
        monkeypatch.setenv("HW_TEST_SERVICE", "executor")
        (sent,) = open_chain(spec_of(source=source)).session.consume([Record("t", b"v")])
        assert read_trail(sent.headers)[0].by_whom == "executor/job"

    def test_a_missing_variable_says_which(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = {"interceptors": "trail", "interceptors.trail.service": "${env:HW_TEST_GONE}"}
        monkeypatch.setenv("HW_TEST_GONE", "here")
        source, _ = chain_source(config)
        monkeypatch.delenv("HW_TEST_GONE")
        with pytest.raises(ConfigError, match="HW_TEST_GONE"):
            open_chain(spec_of(source=source))


class TestRefused:
    def test_what_nobody_can_judge_fails_the_job(self) -> None:
        ready = open_chain(spec_of(Trail(), failures="route"))
        with pytest.raises(HeldBackError, match=r"chain at t\[1\]@2: keyring keys.json is older"):
            ready.refused(
                HeldBackError("keyring keys.json is older"), Record("t", b"v", partition=1, offset=2)
            )

    def test_an_error_without_a_place_gets_the_rows(self) -> None:
        ready = open_chain(spec_of(Trail(), failures="route"))
        failure = ready.refused(HeaderwareError("no good"), Record("t", b"v", partition=1, offset=2))
        assert failure["reason"] == "chain at t[1]@2: no good"

    def test_a_letter_leaves_headers_without_a_name_out(self) -> None:
        ready = open_chain(spec_of(Trail(), failures="route"))
        headers: Any = [(None, b"1"), ("a", b"2")]
        failure = ready.refused(HeaderwareError("no"), Record("t", b"v", headers=headers))
        assert failure["headers"][0] == {"key": "a", "value": b"2"}

    def test_a_letter_that_failed_before_has_one_reason(self) -> None:
        ready = open_chain(spec_of(Trail(), failures="route"))
        old = Headers([("__connect.errors.exception.message", b"old"), ("kafka_dlt-original-topic", b"old")])
        failure = ready.refused(HeaderwareError("new"), Record("t", b"v", headers=old))
        assert b"old" not in [each["value"] for each in failure["headers"]]


class TestPicker:
    def test_a_key_leaves_it_to_kafka(self) -> None:
        assert TaskPartitionPicker(COUNTS)(Record("t", b"v", b"")) is None

    def test_the_identity_decides_whatever_became_of_its_header(self) -> None:
        identity = Identity.numbered(bytes(16), 5)
        record = Record("t", b"v").with_local("dedup", identity)
        sliced = record.with_headers(Headers([("hw.id", identity.encode())]))
        packed = record.replace(value=b"encrypted", headers=Headers([("hw.ids", b"1")]))
        assert len({TaskPartitionPicker(COUNTS)(each) for each in (record, sliced, packed)}) == 1
        assert TaskPartitionPicker(COUNTS)(sliced.replace(local=None)) == TaskPartitionPicker(COUNTS)(record)

    def test_without_one_the_value_decides(self) -> None:
        assert TaskPartitionPicker(COUNTS)(Record("t", b"v")) == TaskPartitionPicker(COUNTS)(
            Record("t", b"v", headers=Headers([("a", b"")]))
        )
        assert (
            len({TaskPartitionPicker(COUNTS)(Record("t", b"%d" % number)) for number in range(99)})
            == COUNTS["t"]
        )

    @pytest.mark.parametrize("counts", [{}, {"t": 0}])
    def test_a_topic_of_unknown_size_has_one(self, counts: dict[str, int]) -> None:
        assert TaskPartitionPicker(counts)(Record("t", None)) == 0


class TestDelay:
    def test_reading_refuses_what_waits_and_writing_takes_it(self) -> None:
        with pytest.raises(ConfigError, match="no partition to pause"):
            open_chain(spec_of(Delay()))
        record = Record("t", b"v", b"k")
        sent = open_chain(spec_of(Delay(after_ms=5), side="producer")).session.send([record])
        assert [each.headers.names() for each in sent] == [("hw.not-before",)]


class TestSilence:
    def test_what_does_nothing_is_not_said_by_each_worker(self, caplog: pytest.LogCaptureFixture) -> None:
        open_chain(spec_of(Serialize(), Trace(), Metrics(), typed=frozenset({"value"})))
        assert [each.getMessage() for each in caplog.records if each.name.startswith("headerware")] == []
