from __future__ import annotations

import datetime as dt
import json
import string
from typing import Any

import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from headerware.core.errors import ConfigError, SerdeError
from headerware.core.headers import EMPTY
from headerware.serdes.avro.serde import Avro
from headerware.serdes.serde import SerdeContext
from headerware.spark_bridge.frames.arrow_types import arrow_type
from headerware.spark_bridge.frames.avro_types import avro_type
from headerware.spark_bridge.frames.json_types import json_type
from headerware.spark_bridge.frames.typed_columns import column
from headerware.spark_bridge.frames.typed_objects import objects


def _logical(kind: str, name: str, **more: Any) -> str:
    return json.dumps({"type": kind, "logicalType": name, **more})


def _in_milliseconds(value: Any) -> Any:
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


EARLY, LATE = dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30)  # noqa: DTZ001 - local times have no zone
INSTANTS = st.datetimes(EARLY, LATE, timezones=st.just(dt.UTC))
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    '"null"': st.none(),
    '"boolean"': st.booleans(),
    '"int"': st.integers(-(1 << 31), (1 << 31) - 1),
    '"long"': st.integers(-(1 << 63), (1 << 63) - 1),
    '"float"': st.floats(width=32, allow_nan=False),
    '"double"': st.floats(allow_nan=False),
    '"bytes"': st.binary(max_size=20),
    '"string"': st.text(max_size=20),
    _logical("int", "date"): st.dates(),
    _logical("int", "time-millis"): st.times().map(_in_milliseconds),
    _logical("long", "time-micros"): st.times(),
    _logical("long", "timestamp-millis"): INSTANTS.map(_in_milliseconds),
    _logical("long", "timestamp-micros"): INSTANTS,
    _logical("long", "local-timestamp-micros"): st.datetimes(EARLY, LATE),
    _logical("string", "uuid"): st.uuids(),
    _logical("bytes", "decimal", precision=12, scale=3): st.decimals(
        -(10**9) + 1, 10**9 - 1, places=3, allow_nan=False
    ),
}


def _written_as(schema: str) -> str:
    plain = json.loads(schema)
    return plain if isinstance(plain, str) else str(plain["type"])


SCALAR_SCHEMAS = st.sampled_from(sorted(SCALARS))
# In a union with dates fastavro takes text and numbers for dates, also those that are none.
BESIDE_DATES = {'"boolean"', '"float"', '"double"', '"bytes"', '"null"', _logical("int", "date")}
UNIONS = st.lists(SCALAR_SCHEMAS, min_size=1, max_size=4, unique_by=_written_as).filter(
    lambda branches: _logical("int", "date") not in branches or {*branches} <= BESIDE_DATES
)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3) -> Any:
    """Make a schema of up to some levels; named types get names of their own from the second pass."""
    kind = draw(
        st.sampled_from(["scalar", "union", "enum", "fixed", *(["array", "map", "record"] * (depth > 0))])
    )
    if kind == "scalar":
        return json.loads(draw(SCALAR_SCHEMAS))
    if kind == "union":
        return [json.loads(branch) for branch in draw(UNIONS)]
    if kind == "enum":
        return {"type": "enum", "name": "?", "symbols": ["A", "B", "C"]}
    if kind == "fixed":
        return {"type": "fixed", "name": "?", "size": draw(st.integers(0, 4))}
    inner = schemas(depth=depth - 1)
    if kind in {"array", "map"}:
        return {"type": kind, "items" if kind == "array" else "values": draw(inner)}
    fields = [{"name": f"f{n}", "type": each} for n, each in enumerate(draw(st.lists(inner, max_size=4)))]
    return {"type": "record", "name": "?", "fields": fields}  # fmt: skip


def named(schema: Any) -> Any:
    text, count = json.dumps(schema), 0
    while '"?"' in text:
        text, count = text.replace('"?"', f'"N{count}"', 1), count + 1
    return json.loads(text)


def values(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.one_of(list(map(values, schema)))
    scalar = SCALARS.get(json.dumps(schema))
    if scalar is not None:
        return scalar
    kind = schema["type"]
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=4)
    if kind == "map":
        return st.dictionaries(st.text(max_size=5), values(schema["values"]), max_size=4)
    return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})


ALL = schemas().map(named)
WITH_VALUES = ALL.flatmap(lambda schema: st.tuples(st.just(schema), st.lists(values(schema), max_size=6)))
GARBAGE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(st.characters(), max_size=3),
        st.binary(max_size=3),
        st.decimals(),
        st.dates(),
        st.times(),
        st.datetimes(),
        st.datetimes(timezones=st.timezones()),
        st.timedeltas(),
        st.uuids(),
        st.just(object()),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner)
        | st.dictionaries(
            st.sampled_from(["f0", "f1", "f2", "member0", "member1", "A", ""]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


def arrow(schema: Any) -> pa.DataType:
    """Return the column of a schema; assume that there is one."""
    try:
        return arrow_type(avro_type(json.dumps(schema)))
    except ConfigError as error:
        assume("union" not in str(error))
        raise


def same(left: Any, right: Any) -> bool:
    """Return whether two objects are equal and of the same classes; a NaN is itself, and 0.0 not -0.0."""
    return repr(left) == repr(right)


class TestTypedColumns:
    @given(WITH_VALUES)
    def test_any_avro_goes_through_a_column_to_the_same_bytes(self, case: tuple[Any, list[Any]]) -> None:
        schema, rows = case
        kind = arrow(schema)
        serde = Avro(schema=json.dumps(schema)).open(SerdeContext())
        payloads = [serde.serialize("t", EMPTY, row)[0] for row in rows]
        array, failures = column([serde.deserialize("t", EMPTY, each)[0] for each in payloads], kind)
        assert failures == {}
        assert array.type == kind
        array.validate(full=True)
        assert [serde.serialize("t", EMPTY, each)[0] for each in objects(array)] == payloads

    @given(WITH_VALUES, GARBAGE)
    def test_garbage_fails_alone_or_is_kept(self, case: tuple[Any, list[Any]], garbage: Any) -> None:
        schema, rows = case
        kind = arrow(schema)
        alone = objects(column(rows, kind).array)
        array, failures = column([*rows, garbage, *rows], kind)
        assert array.type == kind
        array.validate(full=True)
        assert failures.keys() <= {len(rows)}
        back = objects(array)
        assert same(back[: len(rows)], alone)
        assert same(back[len(rows) + 1 :], alone)
        again, none = column(back, kind)
        assert none == {}
        assert again.equals(array) or same(objects(again), back)

    @given(WITH_VALUES, st.integers(0, 6), st.integers(0, 6))
    def test_a_slice_of_a_column_is_a_slice_of_its_objects(
        self, case: tuple[Any, list[Any]], start: int, length: int
    ) -> None:
        schema, rows = case
        array = column([None, *rows], arrow(schema)).array
        assert same(objects(array.slice(start, length)), objects(array)[start : start + length])

    @given(st.lists(st.decimals() | st.integers(), max_size=5), st.integers(1, 38), st.data())
    def test_a_decimal_is_kept_as_it_is_or_not_at_all(
        self, rows: list[Any], precision: int, data: st.DataObject
    ) -> None:
        kind = pa.decimal128(precision, data.draw(st.integers(0, precision)))
        array, failures = column(rows, kind)
        for row, (value, found) in enumerate(zip(rows, objects(array), strict=True)):
            assert (found is None) == (row in failures)
            assert found is None or found == value

    @given(st.lists(st.floats() | st.integers() | st.booleans(), max_size=5), st.sampled_from(
        [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64()]
    ))  # fmt: skip
    def test_a_number_is_kept_as_it_is_or_not_at_all(self, rows: list[Any], kind: pa.DataType) -> None:
        array, failures = column(rows, kind)
        for row, (value, found) in enumerate(zip(rows, objects(array), strict=True)):
            assert (found is None) == (row in failures)
            assert found is None or found == value or (found != found and value != value)  # noqa: PLR0124 - NaN
            assert found is None or not isinstance(value, bool)

    @given(st.text(string.ascii_letters, min_size=12, max_size=20), ALL)
    def test_an_error_never_quotes_the_value(self, secret: str, schema: Any) -> None:
        kind = arrow(schema)
        for value in (secret, {secret: secret}, [secret], secret.encode(), {"f0": {secret: [secret]}}):
            for text in column([value], kind).failures.values():
                assert secret not in text

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.sampled_from(["string", "object", "array", "null", "#", "#/properties/a", "#/allOf/0"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from([
                        "type", "properties", "items", "additionalProperties", "required", "enum", "const",
                        "$ref", "allOf", "anyOf", "oneOf", "a", "prefixItems",
                    ]),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=15,
        )
    )  # fmt: skip
    def test_json_that_is_no_schema_is_refused_or_is_a_type(self, schema: Any) -> None:
        try:
            kind = arrow_type(json_type(schema))
        except ConfigError:
            return
        array, _ = column([None, {}, [], "x", 1], kind)
        assert all(not isinstance(each, SerdeError) for each in objects(array))
