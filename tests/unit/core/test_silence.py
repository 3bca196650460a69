"""What does nothing says so: as a client starts, in `check`, and when a reader lacks steps."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, Context, Headers, Record, TransportHeaderError
from headerware.core.order import idle_on, idle_steps, weaknesses
from headerware.interceptors import Compress, EncryptFields, HeaderIds, Serialize, Slice, Trail
from headerware.keyring.services import FileKeys
from headerware.serdes import Json

if TYPE_CHECKING:
    from pathlib import Path

VALUE = random.Random(7).randbytes(20_000) + bytes(50_000)
"""It can be compressed, and is too large for a slice all the same."""


def opened(*interceptors: object, **ports: Any) -> None:
    Chain(interceptors).open(Context(**ports)).close()


def fields(path: Path) -> EncryptFields:
    return EncryptFields(fields=("card",), key_id="k", key_service=FileKeys(keyring=str(path)))


class TestAStepThatDoesNothing:
    def test_says_so_as_the_client_starts(self, caplog: pytest.LogCaptureFixture) -> None:
        opened(Serialize(), Trail())
        (told,) = caplog.messages
        assert told.startswith("serialize: it has a serde neither for keys nor for values")

    def test_is_silent_where_it_does_something(self, caplog: pytest.LogCaptureFixture) -> None:
        opened(Serialize(value=Json()), Trail())
        assert not caplog.messages

    def test_is_silent_for_a_tool_that_only_looks(self, caplog: pytest.LogCaptureFixture) -> None:
        opened(Serialize(), dry_run=True)
        assert not caplog.messages

    def test_is_silent_where_somebody_else_says_it(self, caplog: pytest.LogCaptureFixture) -> None:
        opened(Serialize(), warns=False)
        assert not caplog.messages

    def test_is_told_once_and_not_with_each_reload(self, caplog: pytest.LogCaptureFixture) -> None:
        with Chain([Serialize()]).open() as first:
            Chain([Serialize()]).open(previous=first).close()
        assert len(caplog.messages) == 1

    def test_may_be_of_a_plug_in(self) -> None:
        class Sleeper:
            idle = "nothing to do today"

            def on_send(self, record: Record) -> Record:
                return record

        assert idle_steps([Sleeper()]) == [("sleeper", "nothing to do today")]

    def test_takes_no_variable_without_its_prefix_in_silence(self, caplog: pytest.LogCaptureFixture) -> None:
        Chain([Trail(service="${SERVICE}")]).open().close()
        assert caplog.messages == [
            "trail: service = '${SERVICE}' stands as it is; for a variable write '${env:SERVICE}'"
        ]

    def test_is_among_the_warnings_of_check(self) -> None:
        assert [name for name, _ in weaknesses([Serialize()])] == ["serialize"]


class TestATelemetryWithoutAnSdk:
    PROGRAM = (
        "import sys; {before}\n"
        "from headerware import Chain, Context\n"
        "from headerware.interceptors import Metrics, Trace\n"
        "from headerware.core.order import idle_steps\n"
        "steps = [Metrics(), Trace(), Trace(name='only-carried', mode='propagate')]\n"
        "print([name for name, _ in idle_steps(steps)])\n"
        "Chain(steps).open(Context(side='producer')).close()\n"
    )
    SET_UP = (
        "from opentelemetry import metrics, trace;"
        "from opentelemetry.sdk.trace import TracerProvider;"
        "from opentelemetry.sdk.metrics import MeterProvider;"
        "trace.set_tracer_provider(TracerProvider());"
        "metrics.set_meter_provider(MeterProvider())"
    )

    def run(self, before: str) -> subprocess.CompletedProcess[str]:
        program = self.PROGRAM.format(before=before)
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    def test_that_is_not_installed(self) -> None:
        done = self.run("sys.modules['opentelemetry.sdk'] = None")
        assert done.stdout.strip() == "['metrics', 'trace']"
        assert done.stderr.count("pip install opentelemetry-sdk") == 2

    def test_that_is_not_set_up(self) -> None:
        done = self.run("pass")
        assert done.stdout.strip() == "[]"
        assert "trace makes no spans until" in done.stderr
        assert "metrics makes no metrics until" in done.stderr
        assert "only-carried" not in done.stderr

    def test_that_is_set_up(self) -> None:
        assert self.run(self.SET_UP).stderr == ""


class TestTopics:
    def test_that_no_step_works_on_are_told_with_the_first_record(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with Chain([Trail(topics=("order",)), Compress(topics=("order-*",))]).open() as session:
            for topic in ("orders", "orders", "payments"):
                session.send([Record(topic, b"1")])
            (told,) = [each for each in caplog.messages if "no step of the chain" in each]
            assert "works on topic 'orders', so its records pass as they are; topics: order, order-*" in told

    def test_of_others_are_no_news_where_the_chain_works(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING)
        with Chain([Trail(topics=("orders",))]).open() as session:
            session.send([Record("orders", b"1"), Record("payments", b"1")])
            assert not caplog.messages

    def test_that_fit_no_pattern(self) -> None:
        steps = [Trail(topics=("order", "payments")), Compress()]
        assert idle_on(steps, ["orders", "payments"]) == [("trail", "no topic fits 'order'")]
        assert idle_on(steps, []) == []


class TestAReaderThatLacksSteps:
    """It learns of all of them at once, in the order in which they stand in a chain."""

    WRITER = (Compress(), Slice(max_bytes=5_000), HeaderIds())

    def wire(self, *steps: object) -> list[Record]:
        with Chain(steps).open() as session:
            return session.send([Record("orders", VALUE, b"k")])

    def test_is_told_all_that_its_chain_lacks(self) -> None:
        first = self.wire(Compress(), Slice(max_bytes=5_000))[0]
        with Chain([Trail()]).open() as session, pytest.raises(TransportHeaderError) as raised:
            session.consume([first])
        assert "the consumer's chain needs, in this order: 'compress', 'slice'" in str(raised.value)

    def test_also_where_names_are_ids(self) -> None:
        first = self.wire(Compress(), Slice(max_bytes=5_000), HeaderIds(form="keys"))[0]
        with Chain([Trail()]).open() as session, pytest.raises(TransportHeaderError) as raised:
            session.consume([first])
        assert "the consumer's chain needs, in this order: 'compress', 'slice', 'header_ids'" in str(
            raised.value
        )

    def test_a_step_that_fails_for_it_names_what_is_missing_behind_it(self) -> None:
        first = self.wire(Compress(), Slice(max_bytes=5_000))[0]
        with Chain([Compress()]).open() as session, pytest.raises(TransportHeaderError) as raised:
            session.consume([first])
        assert "the consumer's chain needs, in this order: 'slice'" in str(raised.value)
        assert raised.value.step == "compress"

    def test_a_step_that_fails_by_itself_says_its_own(self) -> None:
        record = Record("orders", b"damaged", headers=Headers([("hw.compress", b"zstd")]))
        with Chain([Compress(), Slice()]).open() as session, pytest.raises(Exception) as raised:
            session.consume([record])
        assert not isinstance(raised.value, TransportHeaderError)

    def test_one_that_has_them_all_reads(self) -> None:
        steps = self.WRITER
        with Chain(steps).open() as session:
            assert len(session.consume(self.wire(*steps))) == 1


def test_fields_without_a_serializer_are_told(tmp_path: Path) -> None:
    step = fields(tmp_path / "keys.json")
    assert [name for name, _ in idle_steps([step])] == ["encrypt_fields"]
    assert idle_steps([step, Serialize(value=Json())]) == []
    apart = EncryptFields(fields=("card",), key_id="k", key_service=step.key_service, topics=("orders",))
    assert [name for name, _ in idle_steps([apart, Serialize(value=Json(), topics=("other",))])] == [
        "encrypt_fields"
    ]
