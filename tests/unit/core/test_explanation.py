"""What a configuration comes to, option by option, without a secret in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headerware import DROP, Chain, ConfigError, Interceptor, Record
from headerware.core.explanation import ExplainedInterceptor, explain, growth
from headerware.interceptors import Encrypt, Metrics, Trace
from headerware.keyring import with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from tests.unit.interceptors.test_metrics import set_provider

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2"


@pytest.fixture
def files(tmp_path: Path, gadgets: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOKEN", SECRET)
    (tmp_path / "platform.toml").write_text(
        '[[interceptors]]\ntype = "late"\nlevel = 5\ntoken = "${env:TOKEN}"\nnames = ["${env:TOKEN}"]\n'
    )
    main = tmp_path / "main.toml"
    main.write_text(
        'include = "platform.toml"\n[[interceptors]]\ntype = "late"\nlevel = 6\n'
        '[[interceptors]]\ntype = "early"\nname = "mine"\ntopics = ["orders.*"]\non_error = "skip"\n'
    )
    return main


def options(interceptor: ExplainedInterceptor) -> dict[str, tuple[object, str]]:
    return {option.name: (option.value, option.origin) for option in interceptor.options}


class TestExplain:
    def test_gives_the_chain_in_the_order_of_sending(self, files: Path, gadgets: str) -> None:
        mine, late = explain(files)
        assert (mine.name, mine.type, mine.implementation) == ("mine", "early", f"{gadgets}.Early")
        assert (mine.role, mine.stage, mine.on_error) == ("transform", "bytes", "skip")
        assert (late.name, late.on_error) == ("late", "raise")
        assert [option.value for option in late.options if option.name == "on_error"] == ["raise"]

    def test_tells_where_each_option_comes_from(self, files: Path) -> None:
        found = options(explain(files)[1])
        assert found["level"] == (6, str(files))
        assert found["token"][1] == str(files.parent / "platform.toml")
        assert found["ratio"] == (0.5, "default")

    def test_shows_every_option_and_only_a_given_name(self, files: Path) -> None:
        mine, late = explain(files)
        assert "name" not in options(late)
        assert {"topics", "on_error", "dead_letter_topic", "level", "keyring"} <= options(mine).keys()

    def test_never_shows_what_came_from_the_environment(self, files: Path) -> None:
        explained = explain(files)
        assert options(explained[1])["token"][0] == "${env:TOKEN}"
        assert SECRET not in msgspec.json.encode(explained).decode()
        assert SECRET not in repr(explained)

    def test_for_a_topic_gives_those_that_work_there(self, files: Path) -> None:
        assert [item.name for item in explain(files, "orders.eu")] == ["mine", "late"]
        assert [item.name for item in explain(files, "payments")] == ["late"]

    def test_refuses_what_load_chain_refuses(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read"):
            explain(tmp_path / "absent.toml")


class Reading(Interceptor, frozen=True):
    def on_consume(self, record: Record) -> Record:
        return record


class Adding(Interceptor, frozen=True):
    def on_send(self, record: Record) -> Record:
        return record.with_value(record.value + bytes(7))


class Dropping(Interceptor, frozen=True):
    def on_send(self, record: Record) -> Any:
        return DROP


class TestGrowth:
    def test_measures_a_step_or_says_why_not(self) -> None:
        chain = Chain([Reading(name="reading"), Adding(name="adding"), Dropping(name="dropping")])
        measured, not_measured = growth(chain, "orders")
        assert [(each.name, each.size_bytes) for each in measured] == [("adding", 7)]
        assert [(each.name, each.reason) for each in not_measured] == [
            ("reading", "it does nothing while a record is sent"),
            ("dropping", "no record of the sample came out of it"),
        ]

    def test_leaves_out_steps_of_other_topics(self) -> None:
        chain = Chain([Adding(topics=("payments",)), Dropping(topics=("payments",))])
        assert growth(chain, "orders") == ((), ())

    def test_asks_the_key_service_once(self, tmp_path: Path) -> None:
        path = tmp_path / "keys.json"
        edit_keyring(path, lambda ring: with_new_key(ring, "orders", "aes-256"), create=True)
        asked: list[str] = []

        class Counted(FileKeys, frozen=True, kw_only=True):
            type = "counted"

            def open(self, context: Any) -> Any:
                return Counting(super().open(context), asked)

        # This data key is used up with each record.
        step = Encrypt(key_service=Counted(keyring=str(path)), key_id="orders", data_key_max_uses=1)
        ((measured,), _) = growth(Chain([step]), "orders")
        assert measured.size_bytes > 100
        assert asked == ["wrap"]

    def test_exports_no_span_and_no_metric(self, monkeypatch: pytest.MonkeyPatch) -> None:
        spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(spans))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracers)
        set_provider(monkeypatch, MeterProvider([reader], shutdown_on_exit=False))
        measured, _ = growth(Chain([Metrics(), Trace()]), "measured-here-alone")
        assert [each.size_bytes for each in measured] == [0, len("traceparent") + 55 + 2]
        assert spans.get_finished_spans() == ()
        # Clients that other tests have left open may have metrics.
        assert "measured-here-alone" not in str(reader.get_metrics_data())


class Counting:
    """A key service that notes which requests it gets."""

    def __init__(self, service: Any, asked: list[str]) -> None:
        self._service = service
        self._asked = asked

    def wrap(self, *arguments: Any) -> Any:
        self._asked.append("wrap")
        return self._service.wrap(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)
