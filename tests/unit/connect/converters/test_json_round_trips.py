"""Whatever the schema, a value comes out of JSON as it went in, and with its schema, in both modes."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headerware.connect.converters.json.converter import JsonConverter
from headerware.connect.data import (
    Date,
    Decimal,
    Field,
    Float32,
    Int8,
    Int16,
    Int32,
    Schema,
    Struct,
    Time,
    Timestamp,
    Type,
)
from headerware.connect.data.equality import alike
from headerware.connect.data.logical import of_unscaled
from headerware.connect.data.times import DAY_MS, from_epoch_ms
from headerware.connect.modes import KAFKA_4_3, STRICT, Mode

Sample = tuple[Schema, st.SearchStrategy[Any]]
"""A schema, and the values that fit it."""
_TEXT: Final = st.text(max_size=5)


def _integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


def _floats(width: Any) -> st.SearchStrategy[float]:
    return st.floats(width=width, allow_nan=False, allow_infinity=False)


def _scalars(*, signed_zero: bool) -> list[Sample]:
    def zero(number: float) -> float:
        return number if signed_zero else number or 0.0

    return [
        (Schema(Type.INT8), _integers(8).map(Int8)),
        (Schema(Type.INT16), _integers(16).map(Int16)),
        (Schema(Type.INT32), _integers(32).map(Int32)),
        (Schema(Type.INT64), _integers(64)),
        (Schema(Type.FLOAT32), _floats(32).map(zero).map(Float32)),
        (Schema(Type.FLOAT64), _floats(64).map(zero)),
        (Schema(Type.BOOLEAN), st.booleans()),
        (Schema(Type.STRING), _TEXT),
        (Schema(Type.BYTES), st.binary(max_size=4)),
        (Date.SCHEMA, _integers(32).map(lambda days: from_epoch_ms(days * DAY_MS))),
        (Time.SCHEMA, st.integers(0, DAY_MS - 1).map(from_epoch_ms)),
        (Timestamp.SCHEMA, _integers(64).map(from_epoch_ms)),
        *((Decimal.schema(scale), _decimals(scale)) for scale in (0, 2, 30, -3)),
    ]


def _decimals(scale: int) -> st.SearchStrategy[Any]:
    return _integers(90).map(lambda unscaled: of_unscaled(unscaled, scale))


def _schema(schema: Schema, **facts: Any) -> Schema:
    """Return a schema with other facts."""
    own = {name: getattr(schema, name) for name in ("optional", "name", "version", "doc", "parameters")}
    if schema.type is Type.STRUCT:
        own["fields"] = schema.fields
    if schema.type is Type.MAP:
        own["key_schema"] = schema.key_schema
    if schema.type in {Type.MAP, Type.ARRAY}:
        own["value_schema"] = schema.value_schema
    return Schema(schema.type, **{**own, **facts})


@st.composite
def _described(draw: st.DrawFn, inner: st.SearchStrategy[Sample], *, struct_defaults: bool) -> Sample:
    """Return a sample with a name, a doc and so on, that may be optional, or have a default."""
    schema, values = draw(inner)
    facts = draw(
        st.fixed_dictionaries({"optional": st.booleans()}, optional={"doc": _TEXT, "version": _integers(32)})
    )
    if schema.name is None:
        own = {"name": _TEXT, "parameters": st.dictionaries(_TEXT, _TEXT, min_size=1, max_size=2)}
        facts |= draw(st.fixed_dictionaries({}, optional=own))
    bare = _schema(schema, **facts)
    is_struct = schema.type is Type.STRUCT
    made = bare
    if draw(st.integers(0, 3)) == 0 and (struct_defaults or not is_struct):
        default = draw(values)
        made = _schema(bare, default=Struct.trusted(bare, default) if is_struct else default)
    if is_struct:
        values = values.map(lambda items: Struct.trusted(made, items))
    return made, values | st.none() if made.optional and made.default is None else values


def _containers(inner: st.SearchStrategy[Sample], keys: list[Sample]) -> st.SearchStrategy[Sample]:
    def array(item: Sample) -> Sample:
        return Schema(Type.ARRAY, value_schema=item[0]), st.lists(item[1], max_size=3)

    def mapping(parts: tuple[Sample, Sample]) -> Sample:
        (of_key, each_key), (of_value, each_value) = parts
        schema = Schema(Type.MAP, key_schema=of_key, value_schema=of_value)
        return schema, st.dictionaries(each_key, each_value, max_size=3)

    def struct(parts: dict[str, Sample]) -> Sample:
        fields = tuple(Field(name, at, schema) for at, (name, (schema, _)) in enumerate(parts.items()))
        return Schema(Type.STRUCT, fields=fields), st.tuples(*(each for _, each in parts.values())).map(list)

    return (
        inner.map(array)
        | st.tuples(st.sampled_from(keys), inner).map(mapping)
        | st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=4).map(struct)
    )


def samples(mode: Mode) -> st.SearchStrategy[tuple[Schema, Any]]:
    # Kafka knows neither a struct that is a default, nor the sign of zero.
    strict = mode == STRICT
    scalars = _scalars(signed_zero=strict)
    described = st.recursive(
        _described(st.sampled_from(scalars), struct_defaults=strict),
        lambda inner: _described(_containers(inner, scalars), struct_defaults=strict),
        max_leaves=6,
    )
    return described.flatmap(lambda sample: st.tuples(st.just(sample[0]), sample[1]))


SAMPLES: Final = {mode: samples(mode) for mode in (STRICT, KAFKA_4_3)}


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(["BASE64", "NUMERIC"]), st.booleans())
def test_json_gives_back_what_it_was_given(mode: Mode, data: st.DataObject, form: str, replace: bool) -> None:  # noqa: FBT001 - Hypothesis passes it by position
    schema, value = data.draw(SAMPLES[mode])
    converter = JsonConverter({"decimal.format": form, "replace.null.with.default": replace}, mode=mode)
    written = converter.from_connect_data("t", schema, value)
    found = converter.to_connect_data("t", written)
    assert found.schema == schema
    assert alike(found.value, value)
    assert converter.from_connect_data("t", found.schema, found.value) == written


class TestStrictJson:
    def test_keeps_the_sign_of_zero_in_a_default_and_next_to_a_decimal(self) -> None:
        default = Schema(Type.FLOAT64, default=-0.0)
        decimal = Decimal.schema(2)
        schema = Schema(Type.STRUCT, fields=(Field("z", 0, default), Field("d", 1, decimal)))
        value = Struct.trusted(schema, [-0.0, of_unscaled(150, 2)])
        converter = JsonConverter({"decimal.format": "NUMERIC"})
        found = converter.to_connect_data("t", converter.from_connect_data("t", schema, value))
        assert alike(found.value.values, value.values)
        assert found.schema == schema

    def test_gives_a_struct_that_is_a_default_the_schema_that_says_so(self) -> None:
        data = (
            b'{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"a"}],'
            b'"optional":true,"default":{"a":"x"}},"payload":%s}'
        )
        converter = JsonConverter()
        found = converter.to_connect_data("t", data % b"null")
        assert found.value.schema is found.schema
        assert converter.from_connect_data("t", found.schema, None) == data % b'{"a":"x"}'
        assert converter.from_connect_data("t", found.schema, found.value) == data % b'{"a":"x"}'
