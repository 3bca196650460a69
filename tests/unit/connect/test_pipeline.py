"""A connector's list of transforms."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from headerware.connect import (
    ConnectConfigError,
    ConnectDataError,
    ConnectError,
    Pipeline,
    SourceRecord,
    Stage,
    StageError,
)
from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.data import Schema
from headerware.connect.errors import ConnectPluginError
from headerware.connect.modes import Mode
from headerware.connect.predicates import Predicate
from headerware.connect.transforms import PartTransform, Plan, Transform
from headerware.connect.transforms.insert_header import InsertHeader
from headerware.connect.values import parse_string

PACKAGE = "org.apache.kafka.connect.transforms"
LINES = {
    "name": "people",
    "connector.class": "com.example.People",
    "tasks.max": "1",
    "topics": "a,b",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "transforms": "mark, route",
    "transforms.mark.type": f"{PACKAGE}.InsertHeader",
    "transforms.mark.header": "app",
    "transforms.mark.value.literal": "x",
    "transforms.mark.predicate": "isOrder",
    "transforms.route.type": "RegexRouter",
    "transforms.route.regex": "(.*)",
    "transforms.route.replacement": "new-$1",
    "transforms.route.predicate": "isOrder",
    "transforms.route.negate": "TRUE",
    "predicates": "isOrder",
    "predicates.isOrder.type": f"{PACKAGE}.predicates.TopicNameMatches",
    "predicates.isOrder.pattern": "order.*",
}


def without(*keys: str) -> dict[str, str]:
    return {key: value for key, value in LINES.items() if key not in keys}


class Told(Transform):
    """Write down what is done to it."""

    def __init__(self, told: list[str], name: str, error: Exception | None = None) -> None:
        super().__init__()
        self.told, self.name, self.error = told, name, error

    def apply(self, record: Any) -> Any:
        self.told.append(f"apply {self.name}")
        if self.error is not None:
            raise self.error
        return record

    def close(self) -> None:
        self.told.append(f"close {self.name}")


class Truthy(Predicate):
    """Say what is true without being True."""

    def test(self, record: Any) -> bool:
        found: bool = record.topic
        return found


class Renamed(Transform):
    """Give every record's topic a new name."""

    CONFIG = ConfigDef(ConfigKey(name="to", type="STRING"))

    def apply(self, record: Any) -> Any:
        return record.with_topic(self.options["to"])


class TestOwnClasses:
    def test_are_named_by_themselves(self, mode: Mode) -> None:
        lines = {
            "transforms": "a",
            "transforms.a.type": Renamed,
            "transforms.a.to": "b",
            "transforms.a.predicate": "p",
            "predicates": "p",
            "predicates.p.type": Truthy,
        }
        with Pipeline.from_config(lines, mode=mode) as pipeline:
            assert pipeline.apply(SourceRecord(topic="x")).topic == "b"

    def test_are_named_in_errors(self) -> None:
        with pytest.raises(ConnectConfigError, match="no default") as caught:
            Pipeline.from_config({"transforms": "a", "transforms.a.type": Renamed})
        assert caught.value.path == "transforms.a.to"

    @pytest.mark.parametrize("kind", [5, Truthy, Renamed({"to": "b"})])
    def test_must_be_transforms(self, kind: Any) -> None:
        with pytest.raises(ConnectPluginError, match="expected a subclass") as caught:
            Pipeline.from_config({"transforms": "a", "transforms.a.type": kind})
        assert caught.value.path == "transforms.a.type"


class TestApply:
    def test_goes_through_the_stages_by_their_predicates(self, mode: Mode) -> None:
        with Pipeline.from_config(LINES, mode=mode) as pipeline:
            order = pipeline.apply(SourceRecord(topic="orders"))
            other = pipeline.apply(SourceRecord(topic="users"))
        assert (order.topic, [header.key for header in order.headers]) == ("orders", ["app"])
        assert (other.topic, len(other.headers)) == ("new-users", 0)

    @pytest.mark.parametrize("config", [{}, {"name": "x"}, {"transforms": ""}])
    def test_without_transforms_gives_the_record_itself(self, config: dict[str, str]) -> None:
        record = SourceRecord(topic="t")
        assert Pipeline.from_config(config).apply(record) is record

    def test_stops_where_a_transform_drops_the_record(self) -> None:
        told: list[str] = []
        lines = {
            "transforms": "none",
            "transforms.none.type": "Filter",
            "transforms.none.predicate": "p",
            "predicates": "p",
            "predicates.p.type": "RecordIsTombstone",
        }
        stages = [*Pipeline.from_config(lines).stages, Stage("after", "Told", Told(told, "after"))]
        pipeline = Pipeline(stages)
        assert pipeline.apply(SourceRecord(value=None)) is None
        assert told == []
        assert pipeline.apply(SourceRecord(value=1)) is not None

    def test_takes_what_is_true_for_true(self) -> None:
        told: list[str] = []
        pipeline = Pipeline([Stage("a", "Told", Told(told, "a"), Truthy(), negate=True)])
        pipeline.apply(SourceRecord(topic="t"))
        assert told == []
        pipeline.apply(SourceRecord(topic=""))
        assert told == ["apply a"]

    def test_later_transforms_see_what_earlier_ones_gave(self) -> None:
        lines = {
            "transforms": "a,b",
            "transforms.a.type": "RegexRouter",
            "transforms.a.regex": "(.*)",
            "transforms.a.replacement": "x-$1",
            "transforms.b.type": "RegexRouter",
            "transforms.b.regex": "x-(.*)",
            "transforms.b.replacement": "$1-y",
        }
        assert Pipeline.from_config(lines).apply(SourceRecord(topic="t")).topic == "t-y"


class TestErrors:
    def test_name_the_stage_and_javas_exception(self) -> None:
        lines = {
            "transforms": "h",
            "transforms.h.type": f"{PACKAGE}.HeaderFrom$Value",
            "transforms.h.fields": "a",
            "transforms.h.headers": "a",
            "transforms.h.operation": "move",
        }
        with pytest.raises(StageError) as caught:
            Pipeline.from_config(lines).apply(SourceRecord(value="secret"))
        error = caught.value
        assert (error.alias, error.transform) == ("h", f"{PACKAGE}.HeaderFrom$Value")
        assert error.java == "org.apache.kafka.connect.errors.DataException"
        assert str(error).startswith(f"transforms.h ({PACKAGE}.HeaderFrom$Value): expected a dict")
        assert "secret" not in str(error)

    def test_of_others_do_not_quote_the_record(self) -> None:
        pipeline = Pipeline([Stage("a", "Told", Told([], "a", ValueError("secret")))])
        with pytest.raises(
            StageError, match=r"^transforms\.a \(Told\): it raised ValueError at \w+\.py:\d+ in apply$"
        ) as caught:
            pipeline.apply(SourceRecord())
        assert caught.value.java == "org.apache.kafka.connect.errors.ConnectException"
        assert isinstance(caught.value.__cause__, ValueError)

    def test_of_predicates_name_the_stage_too(self) -> None:
        class Failing(Predicate):
            def test(self, record: Any) -> bool:
                raise ConnectError("no")

        with pytest.raises(StageError, match=r"transforms\.a \(Told\): no"):
            Pipeline([Stage("a", "Told", Told([], "a"), Failing())]).apply(SourceRecord())

    def test_survive_a_pickle(self) -> None:
        error = StageError("no", alias="a", transform="T", java="java.lang.Error")
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
        assert (str(again), again.alias, again.transform, again.java) == ("no", "a", "T", "java.lang.Error")


class TestClose:
    def test_closes_each_once(self) -> None:
        told: list[str] = []
        both = Told(told, "both")
        pipeline = Pipeline([Stage("a", "Told", both), Stage("b", "Told", both)])
        pipeline.close()
        pipeline.close()
        assert told == ["close both"]

    def test_closes_the_others_where_one_fails(self) -> None:
        told: list[str] = []

        class Failing(Told):
            def close(self) -> None:
                super().close()
                raise OSError

        pipeline = Pipeline([Stage(name, "Told", Failing(told, name)) for name in "ab"])
        with pytest.raises(OSError):
            pipeline.close()
        assert sorted(told) == ["close a", "close b"]

    def test_closes_what_was_made_where_a_later_one_cannot_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        told: list[str] = []
        monkeypatch.setattr(InsertHeader, "close", lambda _: told.append("closed"))
        with pytest.raises(ConnectConfigError):
            Pipeline.from_config({**LINES, "transforms.route.regex": "("})
        assert told == ["closed"]


class TestConfiguration:
    @pytest.mark.parametrize(
        ("config", "path"),
        [
            ({**LINES, "transforms": "mark,mark,route"}, "transforms"),
            ({**LINES, "transforms": None}, "transforms"),
            ({**LINES, "transforms": "mark,,route"}, "transforms"),
            (without("transforms.mark.type"), "transforms.mark.type"),
            ({**LINES, "transforms.mark.type": "InsrtHeader"}, "transforms.mark.type"),
            ({**LINES, "transforms.mark.type": "HeaderFrom"}, "transforms.mark.type"),
            ({**LINES, "transforms.mark.type": "TopicNameMatches"}, "transforms.mark.type"),
            ({**LINES, "transforms.mark.type": None}, "transforms.mark.type"),
            (without("transforms.mark.header"), "transforms.mark.header"),
            ({**LINES, "transforms.route.regex": "("}, "transforms.route.regex"),
            ({**LINES, "transforms.mark.predicate": "isOther"}, "transforms.mark.predicate"),
            (without("predicates"), None),
            (without("transforms.route.predicate"), "transforms.route.negate"),
            ({**LINES, "transforms.route.negate": "maybe"}, "transforms.route.negate"),
            (without("predicates.isOrder.type"), "predicates.isOrder.type"),
            ({**LINES, "predicates.isOrder.pattern": ""}, "predicates.isOrder.pattern"),
            ({**LINES, "predicates": "isOrder,isOrder"}, "predicates"),
        ],
    )
    def test_that_cannot_work_names_the_full_key(
        self, config: dict[str, Any], path: str | None, mode: Mode
    ) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            Pipeline.from_config(config, mode=mode)
        if path is not None:
            assert caught.value.path == path
        assert str(caught.value).count(caught.value.path) == 1

    @pytest.mark.parametrize(
        ("key", "value", "hint"),
        [
            ("transforms.mark.haeder", "x", "did you mean 'header'?"),
            ("transforms.mrak.type", "Filter", "did you mean 'mark'?"),
            ("transforms.route", "Filter", "belongs to none of the aliases"),
            ("transforms.mark.plugin.version", "4.3.1", "there is no such key"),
            ("predicates.isorder.pattern", "x", "did you mean 'isOrder'?"),
            ("transform.mark.header", "x", "did you mean 'transforms.mark.header'?"),
            ("Transforms", "mark", "did you mean 'transforms'?"),
            ("predicate.isOrder.type", "x", "did you mean 'predicates.isOrder.type'?"),
        ],
    )
    def test_with_a_slip_of_the_pen_is_refused_by_strict_only(self, key: str, value: str, hint: str) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            Pipeline.from_config({**LINES, key: value})
        assert caught.value.path == key
        assert hint in str(caught.value)
        assert len(Pipeline.from_config({**LINES, key: value}, mode="kafka_4_3").stages) == 2

    def test_without_the_list_of_transforms_is_refused_by_strict_only(self) -> None:
        with pytest.raises(ConnectConfigError, match="there are: none"):
            Pipeline.from_config(without("transforms"))
        assert Pipeline.from_config(without("transforms"), mode="kafka_4_3").stages == ()

    def test_with_a_predicate_that_nobody_uses_is_refused_by_strict_only(self) -> None:
        lines = {
            **LINES,
            "predicates": "isOrder,isNull",
            "predicates.isNull.type": "RecordIsTombstone",
        }
        with pytest.raises(ConnectConfigError, match="no transform uses predicate 'isNull'"):
            Pipeline.from_config(lines)
        assert len(Pipeline.from_config(lines, mode="kafka_4_3").stages) == 2

    def test_that_would_drop_everything_is_refused_by_strict_only(self) -> None:
        lines = {"transforms": "f", "transforms.f.type": "Filter"}
        with pytest.raises(ConnectConfigError, match="would drop every record"):
            Pipeline.from_config(lines)
        assert Pipeline.from_config(lines, mode="kafka_4_3").apply(SourceRecord()) is None

    def test_an_alias_may_begin_with_another(self) -> None:
        lines = {
            "transforms": "a,a.b",
            "transforms.a.type": "DropHeaders",
            "transforms.a.headers": "x",
            "transforms.a.b.type": "DropHeaders",
            "transforms.a.b.headers": "y",
        }
        record = SourceRecord()
        record.headers.add_string("x", "1").add_string("y", "2").add_string("z", "3")
        made = Pipeline.from_config(lines).apply(record)
        assert [header.key for header in made.headers] == ["z"]

    def test_may_have_python_values(self) -> None:
        lines = {
            **LINES,
            "transforms": ["mark", "route"],
            "predicates": ("isOrder",),
            "transforms.route.negate": True,
        }
        assert [stage.alias for stage in Pipeline.from_config(lines).stages] == ["mark", "route"]

    def test_errors_keep_secrets(self) -> None:
        lines = {
            "transforms": "h",
            "transforms.h.type": "InsertHeader",
            "transforms.h.header": "a",
            "transforms.h.value.literal": "secret",
            "transforms.h.vlaue": "secret",
        }
        with pytest.raises(ConnectConfigError) as caught:
            Pipeline.from_config(lines)
        assert "secret" not in str(caught.value)

    def test_describes_all_its_keys(self) -> None:
        keys = {key.name: key for key in Pipeline.from_config(LINES).config()}
        assert list(keys) == [
            "transforms",
            "predicates",
            *("transforms.mark.type", "transforms.mark.predicate", "transforms.mark.negate"),
            *("transforms.mark.header", "transforms.mark.value.literal"),
            *("transforms.route.type", "transforms.route.predicate", "transforms.route.negate"),
            *("transforms.route.regex", "transforms.route.replacement"),
            *("predicates.isOrder.type", "predicates.isOrder.pattern"),
        ]
        assert keys["transforms.mark.header"].doc == "The header's name."


class Forgetful(Transform):
    """A transform that returns something else than a record."""

    def apply(self, record: Any) -> Any:
        return record.value


class TestWhatATransformGives:
    def test_must_be_a_record(self) -> None:
        stage = Stage("a", "Forgetful", Forgetful())
        with pytest.raises(StageError, match=r"transforms\.a .*expected a record or None.*found dict"):
            Pipeline([stage]).apply(SourceRecord(topic="t", value={"a": 1}))


class TestMode:
    @pytest.mark.parametrize("mode", ["Strict", "kafka", "KAFKA_4_3", ""])
    def test_that_there_is_not_is_refused_and_not_taken_for_kafkas(self, mode: Any) -> None:
        with pytest.raises(ConnectConfigError, match="strict"):
            Pipeline.from_config({"transforms": ""}, mode=mode)
        with pytest.raises(ConnectConfigError, match="strict"):
            parse_string("1,000", mode=mode)


class SchemaOnly(PartTransform):
    """One that says nothing of values without a schema."""

    def plan(self, schema: Schema) -> Plan:
        return Plan(schema, lambda value, _: value)


class TestATransformThatSaysHalf:
    def test_refuses_the_other_half(self) -> None:
        with pytest.raises(ConnectDataError, match="with a schema only"):
            SchemaOnly.Value().apply(SourceRecord(topic="t", value={"a": 1}))

    @pytest.mark.parametrize("kind", [Transform, Predicate])
    def test_cannot_be_made_without_its_method(self, kind: Any) -> None:
        with pytest.raises(TypeError, match="abstract"):
            kind()
