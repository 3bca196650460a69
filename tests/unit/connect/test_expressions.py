"""Expressions, and the predicate and the transform that evaluate them."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal as DecimalNumber
from typing import Any

import pytest

from headerware.connect.data import (
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    BigInteger,
    Decimal,
    Float32,
    Instant,
    SchemaBuilder,
    Struct,
    Timestamp,
)
from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.expressions import VARIABLES, AbsentValueError, CompiledExpression, Result, compiled
from headerware.connect.expressions.analysis import field_references
from headerware.connect.predicates.expression import Expression
from headerware.connect.records import SinkRecord, SourceRecord
from headerware.connect.transforms.filter_by_expression import FilterByExpression
from headerware.core.extras import install_command

INNER = SchemaBuilder.struct().field("x", INT32_SCHEMA).optional().build()
SCHEMA = (
    SchemaBuilder.struct()
    .field("amount", INT32_SCHEMA)
    .field("name", OPTIONAL_STRING_SCHEMA)
    .field("at", Timestamp.SCHEMA)
    .field("price", Decimal.schema(2))
    .field("inner", INNER)
    .field("kind", SchemaBuilder.string().optional().default("plain").build())
    .build()
)
PERSON = SchemaBuilder.struct().field("name", OPTIONAL_STRING_SCHEMA).build()
VALUES: dict[str, Any] = {
    "amount": 120,
    "at": datetime(2024, 1, 1, 12, tzinfo=UTC),
    "price": DecimalNumber("1.10"),
    "inner": {"x": 3},
}


def sample() -> SinkRecord:
    value = Struct.of(SCHEMA, VALUES)
    record = SinkRecord("orders", 2, None, {"id": 7}, SCHEMA, value, 41, 1_700_000_000_000)
    record.headers.add_string("tenant", "a").add_string("tenant", "b").add_byte("level", 3)
    return record


def evaluate(text: str, record: Any = None) -> Any:
    return CompiledExpression(text).evaluate(sample() if record is None else record)


class TestCompiledExpression:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ('value.amount > 100 && headers.tenant == "b"', True),
            ("value.amount > 100.5", True),
            ("value.name == null", True),
            ("has(value.name)", True),
            ("has(value.nope)", False),
            ("value.inner.x + value.amount", 123),
            ('value["inner"]["x"]', 3),
            ('timestamp(value.at) > timestamp("2023-12-31T00:00:00Z")', True),
            ("timestamp(value.at).getFullYear()", 2024),
            ("value.at", "2024-01-01T12:00:00.000Z"),
            ("value.price == 1.1", True),
            ("value.kind", "plain"),
            ('topic.startsWith("ord")', True),
            ("partition + offset", 43),
            ("timestamp / 1000", 1_700_000_000),
            ("key.id", 7),
            ("all_headers.tenant", ["a", "b"]),
            ('"tenant" in headers && !("nope" in headers)', True),
            ('headers.exists(name, name == "level")', True),
            ("headers.level", 3),
            ("value.?nope.orValue(5)", 5),
            ("[key.id, 1].exists(value, value == 7)", True),
            ('"%s-%d".format([topic, offset])', "orders-41"),
            ('{"a": [value.amount]}', {"a": [120]}),
            ("size(value.inner)", 1),
        ],
    )
    def test_sees_the_record(self, text: str, expected: Any) -> None:
        assert evaluate(text) == expected

    def test_sees_schemaless_values_alike(self) -> None:
        record = sample()
        schemaless = SinkRecord("t", value=VALUES)
        for text in ("value.amount", "value.at", "value.price", "value.inner.x"):
            assert evaluate(text, schemaless) == evaluate(text, record)

    def test_sees_a_complete_value(self) -> None:
        assert evaluate("value") == {
            "amount": 120,
            "name": None,
            "at": "2024-01-01T12:00:00.000Z",
            "price": 1.1,
            "inner": {"x": 3},
            "kind": "plain",
        }

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (DecimalNumber("3.00"), 3),
            (DecimalNumber("1E+3"), 1000),
            (DecimalNumber("0.25"), 0.25),
            (DecimalNumber("1E+30"), 1e30),
            (Float32(0.5), 0.5),
            (BigInteger(5), 5),
            ((1, 2), [1, 2]),
            (bytearray(b"x"), b"x"),
            (memoryview(b"x"), b"x"),
            ({1: "a"}, {1: "a"}),
            (True, True),
            (datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC), "2024-01-01T00:00:00.000001Z"),
        ],
    )
    def test_converts_what_the_language_has_otherwise(self, value: Any, expected: Any) -> None:
        found = evaluate("value.x", SinkRecord("t", value={"x": value}))
        assert (found, type(found)) == (expected, type(expected))

    @pytest.mark.parametrize(
        "value",
        [
            BigInteger(1 << 63),
            1 << 63,
            DecimalNumber("0.12345678901234567890"),
            DecimalNumber(123456789012345678901234567890),
            DecimalNumber("1E+999999"),
            DecimalNumber("NaN"),
            Instant(1 << 62),
            {1.5: 1},
            object(),
        ],
    )
    def test_refuses_what_the_language_would_change(self, value: Any) -> None:
        with pytest.raises(ConnectDataError):
            evaluate("value.x", SinkRecord("t", value={"x": value}))

    def test_converts_only_what_it_reads(self) -> None:
        record = SinkRecord("t", value={"good": 1, "bad": object()}, key=object())
        record.headers.add("bad", object())
        assert evaluate('value.good == 1 || headers.nope == "a"', record)

    @pytest.mark.parametrize("text", ["value.nope > 1", 'headers.nope == "a"', "value.name > 'a'", "key.a.b"])
    def test_names_missing_or_null_parts(self, text: str) -> None:
        with pytest.raises(AbsentValueError, match=r"missing or null.*: (value|headers|key)\."):
            evaluate(text)

    @pytest.mark.parametrize("value", [None, {"a": None}])
    def test_names_a_field_in_a_null(self, value: Any) -> None:
        with pytest.raises(AbsentValueError, match=r"value"):
            evaluate("value.a.b == 1", SinkRecord("t", value=value))

    def test_says_that_a_record_has_no_topic(self) -> None:
        with pytest.raises(AbsentValueError, match="topic"):
            evaluate("topic", SourceRecord(value={}))

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ('value.amount + "a"', "types"),
            ("value.amount / (key.id - 7)", "zero"),
            ("value.amount % (key.id - 7)", "zero"),
            ("value.amount * 9223372036854775807", "range"),
            ("all_headers.tenant[5]", "shorter"),
            ("int(headers.tenant)", "converted"),
            ("value.amount.x", "has none"),
            ("topic.matches(headers.tenant + '(')", "regular expression"),
        ],
    )
    def test_says_what_is_wrong_without_the_record(self, text: str, problem: str) -> None:
        with pytest.raises(ConnectDataError, match=problem) as caught:
            evaluate(text)
        assert not isinstance(caught.value, AbsentValueError)
        assert "120" not in str(caught.value)

    def test_never_quotes_a_value(self) -> None:
        record = SinkRecord("t", value={"a": "hunter2", "b": {"hunter2": 1}})
        for text in (
            "int(value.a)",
            "value.b[value.a + 'x']",
            "value.a > 1",
            "value.a.matches(value.a + '(')",
        ):
            with pytest.raises(ConnectDataError) as caught:
                evaluate(text, record)
            assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"

    def test_does_not_let_one_name_pass_for_another(self) -> None:
        record = SinkRecord("t", value={"tenant\0x": "evil"})
        record.headers.add_string("tenant\0x", "evil")
        for text in ("value", "headers", "all_headers"):
            with pytest.raises(ConnectDataError, match="zero character"):
                evaluate(text, record)
        assert evaluate("has(value.tenant) || has(headers.tenant)", record) is False
        with pytest.raises(ConnectConfigError, match="zero character"):
            CompiledExpression('value["tenant\\u0000x"] == 1')

    @pytest.mark.parametrize("schema", [None, PERSON])
    def test_does_not_let_one_text_pass_for_another(self, schema: Any) -> None:
        value = {"name": "acme\0x"}
        given = value if schema is None else Struct.of(schema, value)
        record = SinkRecord("t\0x", value_schema=schema, value=given)
        record.headers.add_string("tenant", "acme\0x")
        for text in ('value.name == "acme"', 'headers.tenant == "acme"', 'topic == "t"', "value"):
            with pytest.raises(ConnectDataError, match="zero character"):
                evaluate(text, record)

    def test_takes_bytes_with_zeros(self) -> None:
        assert evaluate("value", SinkRecord("t", value=b"a\0b")) == b"a\0b"
        assert evaluate("size(value)", SinkRecord("t", value=b"a\0b")) == 3

    def test_refuses_a_lone_surrogate(self) -> None:
        with pytest.raises(ConnectDataError, match="not valid Unicode"):
            evaluate("value", SinkRecord("t", value="\ud800"))
        with pytest.raises(ConnectConfigError):
            CompiledExpression('"\ud800"')

    @pytest.mark.parametrize("text", ["optional.none()", "value.?name"])
    def test_refuses_to_give_what_no_record_holds(self, text: str) -> None:
        with pytest.raises(ConnectDataError, match="no record can hold"):
            evaluate(text)

    def test_refuses_a_result_of_another_type(self) -> None:
        with pytest.raises(ConnectConfigError, match="returns BOOL, this one returns STRING"):
            CompiledExpression("topic", result=Result.BOOLEAN)
        with pytest.raises(ConnectDataError, match="returns INT"):
            CompiledExpression("value.amount", result=Result.BOOLEAN).evaluate(sample())

    @pytest.mark.parametrize("text", ["", "value.", "topic > 3", "nope == 1", "value.in", '"a', "a b"])
    def test_requires_an_expression_and_says_where(self, text: str) -> None:
        with pytest.raises(ConnectConfigError, match=r"my\.key: expected an expression") as caught:
            CompiledExpression(text, path="my.key")
        assert caught.value.path == "my.key"

    def test_is_safe_in_several_threads(self) -> None:
        expression = CompiledExpression("value.n * 2")

        def run(start: int) -> bool:
            records = [SinkRecord("t", value={"n": n}) for n in range(start, start + 500)]
            return all(expression.evaluate(record) == 2 * record.value["n"] for record in records)

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(run, range(0, 4000, 500)))

    def test_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(name: str, *_: Any) -> Any:
            raise ImportError(name)

        compiled._environment.cache_clear()
        monkeypatch.setattr(compiled, "import_module", refuse)
        with pytest.raises(ConnectConfigError, match=re.escape(install_command("connect"))):
            CompiledExpression("true")

    def test_is_loaded_only_when_it_is_used(self) -> None:
        program = (
            "import sys; from headerware.connect.predicates import expression; "
            "sys.exit('cel_expr_python' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


class TestHostileExpression:
    @pytest.mark.parametrize(
        "text",
        [
            'open("/etc/passwd")',
            '__import__("os").system("true")',
            "value.__class__.__mro__",
            "topic.__class__",
            'eval("1")',
            'getattr(value, "x")',
            "().__class__",
            "lambda: 1",
            "import os",
        ],
    )
    def test_cannot_reach_the_host(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> Any:
            pytest.fail("an expression opened a file")

        CompiledExpression("true")
        monkeypatch.setattr(builtins, "open", refuse)
        with pytest.raises((ConnectConfigError, ConnectDataError)):
            evaluate(text, SinkRecord("t", value={"a": 1}))

    def test_cannot_loop_for_ever(self) -> None:
        text = "true"
        for at in range(9):
            text = f"[0,1,2,3,4,5,6,7,8,9].all(x{at}, {text})"
        with pytest.raises(ConnectDataError, match="steps"):
            evaluate(text)

    def test_cannot_loop_over_a_square_of_a_records_list(self) -> None:
        record = SinkRecord("t", value={"a": list(range(1000))})
        with pytest.raises(ConnectDataError, match="steps"):
            evaluate("value.a.all(x, value.a.all(y, x + y >= 0))", record)

    def test_matches_a_catastrophic_pattern_in_linear_time(self) -> None:
        record = SinkRecord("t", value={"a": "a" * 50_000 + "b"})
        assert evaluate('value.a.matches("^(a+)+$")', record) is False

    @pytest.mark.parametrize(
        "text",
        [
            "(" * 5000 + "1" + ")" * 5000,
            "[" * 5000 + "]" * 5000,
            "value" + ".a" * 5000,
            "+".join(["1"] * 50_000),
            "(" * 200_000,
        ],
    )
    def test_cannot_nest_without_end(self, text: str) -> None:
        with pytest.raises(ConnectConfigError):
            CompiledExpression(text)

    def test_is_not_led_into_the_depth_by_a_record(self) -> None:
        deep: Any = []
        for _ in range(100_000):
            deep = [deep]
        with pytest.raises(ConnectDataError, match="deeper"):
            evaluate("value.a == 1", SinkRecord("t", value={"a": deep}))
        endless: dict[str, Any] = {}
        endless["a"] = endless
        with pytest.raises(ConnectDataError, match="deeper"):
            evaluate("value == 1", SinkRecord("t", value=endless))


class TestFieldReferences:
    def of(self, text: str) -> Any:
        return field_references(CompiledExpression(text)._program.serialize(), VARIABLES)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1 + 1", {}),
            ("value.a.b + value.a.c", {"value": {"a": {"b": None, "c": None}}}),
            ("value.a.b + value.a", {"value": {"a": None}}),
            ("value.a + value.a.b", {"value": {"a": None}}),
            ('value["a"].b', {"value": {"a": {"b": None}}}),
            ("value[topic]", {"value": None, "topic": None}),
            ("value.a[0].b", {"value": {"a": None}}),
            ("has(value.a)", {"value": {"a": None}}),
            ('"a" in headers', {"headers": {"a": None}}),
            ('"a" in value', {"value": None}),
            ('"a" in value.b', {"value": {"b": None}}),
            ('[value.a, {"x": key.b}].exists(i, i == headers.c)', {
                "value": {"a": None}, "key": {"b": None}, "headers": {"c": None},
            }),
            ("value.?a.?b", {"value": {"a": {"b": None}}}),
            ('value.a ? value.b : "c"', {"value": {"a": None, "b": None}}),
            ("value.a.size()", {"value": {"a": None}}),
        ],
    )  # fmt: skip
    def test_are_what_an_expression_reads(self, text: str, expected: Any) -> None:
        assert self.of(text) == expected

    @pytest.mark.parametrize("data", [b"", b"\xff", b"\x12\x7f", b"garbage", b"\x12\x02\x22\xff"])
    def test_are_everything_where_the_tree_is_not_understood(self, data: bytes) -> None:
        assert field_references(data, ("value", "key")) == {"value": None, "key": None}


class TestExpression:
    def test_holds_where_it_is_true(self) -> None:
        assert Expression({"expression": 'headers.tenant == "b"'}).test(sample())
        assert not Expression({"expression": "value.amount < 3"}).test(sample())

    @pytest.mark.parametrize(("behaviour", "expected"), [("include", True), ("exclude", False)])
    def test_follows_the_configuration_if_a_part_is_missing(self, behaviour: str, *, expected: bool) -> None:
        config = {"expression": "value.nope == 1", "missing.or.null.behavior": behaviour}
        assert Expression(config).test(sample()) is expected

    def test_refuses_missing_parts_by_default(self) -> None:
        with pytest.raises(AbsentValueError, match=r"value\.nope"):
            Expression({"expression": "value.nope == 1"}).test(sample())

    def test_refuses_a_wrong_type_whatever_is_configured(self) -> None:
        config = {"expression": 'value.amount > "a"', "missing.or.null.behavior": "exclude"}
        with pytest.raises(ConnectDataError, match="types"):
            Expression(config).test(sample())

    @pytest.mark.parametrize(
        "config", [{}, {"expression": ""}, {"expression": "topic"}, {"expresion": "true"}]
    )
    def test_requires_a_condition(self, config: dict[str, str]) -> None:
        with pytest.raises(ConnectConfigError):
            Expression(config)


class TestFilterByExpression:
    @pytest.mark.parametrize(("kind", "kept"), [("include", True), ("exclude", False)])
    def test_keeps_or_drops_matching_records(self, kind: str, *, kept: bool) -> None:
        record = sample()
        config = {"filter.condition": "value.amount == 120", "filter.type": kind}
        assert FilterByExpression(config).apply(record) is (record if kept else None)

    @pytest.mark.parametrize("kind", ["include", "exclude"])
    @pytest.mark.parametrize(("behaviour", "kept"), [("include", True), ("exclude", False)])
    def test_treats_missing_parts_alike_for_both_types(
        self, kind: str, behaviour: str, *, kept: bool
    ) -> None:
        config = {
            "filter.condition": "value.nope == 1",
            "filter.type": kind,
            "missing.or.null.behavior": behaviour,
        }
        record = sample()
        assert FilterByExpression(config).apply(record) is (record if kept else None)

    def test_refuses_missing_parts_by_default(self) -> None:
        with pytest.raises(AbsentValueError, match=r"filter\.condition reads"):
            FilterByExpression({"filter.condition": "value.nope == 1"}).apply(sample())
