"""JSON for Connect's JsonConverter: envelopes, right and wrong, and anything else."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st

_scalars: Final = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-200, 200),
    st.integers(-(1 << 66), 1 << 66),
    st.sampled_from([0.5, 1.0, -1e300, 1e-7, 123456789.125]),
    st.sampled_from(["", "a", "eA==", "AJY=", "1.50", "NaN", "é"]),
)
trees: Final = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["a", "b", "schema", "payload"]), inner, max_size=3),
    ),
    max_leaves=5,
)
_types: Final = st.sampled_from(
    [
        *("int8", "int16", "int32", "int64", "float", "double", "boolean", "string", "bytes"),
        *("float32", "nope", 5),
    ]
)
_logical: Final = st.sampled_from(
    [
        {"type": "int32", "name": "org.apache.kafka.connect.data.Date", "version": 1},
        {"type": "int32", "name": "org.apache.kafka.connect.data.Time", "version": 1},
        {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp", "version": 1},
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "version": 1,
            "parameters": {"scale": "2"},
        },
    ]
)


@st.composite
def _plain_schemas(draw: st.DrawFn) -> Any:
    made: dict[str, Any] = {"type": draw(_types)}
    extra: dict[str, Any] = {
        "optional": st.sampled_from([True, False, "x"]),
        "name": st.sampled_from(["n", 5]),
        "version": st.sampled_from([1, "1"]),
        "doc": st.just("d"),
        "default": _scalars,
        "parameters": st.sampled_from([{"p": "1"}, {"p": 1}, "x"]),
        "other": st.just(1),
    }
    if draw(st.integers(0, 3)) == 0:
        made |= draw(st.fixed_dictionaries({}, optional=extra))
    else:
        made |= {"optional": draw(st.booleans())}
    return made


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    optional = st.booleans()
    return st.one_of(
        st.fixed_dictionaries({"type": st.just("array"), "items": inner, "optional": optional}),
        st.fixed_dictionaries(
            {
                "type": st.just("map"),
                "keys": st.sampled_from([{"type": "string"}, {"type": "int32"}]),
                "values": inner,
            }
        ),
        st.lists(inner, max_size=3).map(
            lambda fields: {
                "type": "struct",
                "fields": [{**schema, "field": name} for name, schema in zip("abc", fields, strict=False)],
            }
        ),
    )


schemas: Final = st.recursive(st.one_of(_plain_schemas(), _logical), _nested, max_leaves=4)


@st.composite
def _payloads(draw: st.DrawFn, schema: Any) -> Any:
    """Return a payload that fits a schema, as a rule."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if draw(st.integers(0, 6)) == 0:
        return draw(trees)
    if kind == "array":
        return draw(st.lists(_payloads(schema["items"]), max_size=2))
    if kind == "map":
        keys = draw(st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True))
        if schema["keys"]["type"] == "string":
            return {key: draw(_payloads(schema["values"])) for key in keys}
        return [[len(key), draw(_payloads(schema["values"]))] for key in keys]
    if kind == "struct":
        return {field["field"]: draw(_payloads(field)) for field in schema["fields"]}
    usual = {"string": st.just("a"), "boolean": st.booleans(), "bytes": st.sampled_from(["eA==", "", "AJY="])}
    return draw(usual.get(str(kind), st.integers(-150, 150)))


@st.composite
def envelopes(draw: st.DrawFn) -> str:
    """Return the text of an envelope of a schema and a payload, or of anything."""
    shape = draw(st.integers(0, 7))
    if shape == 0:
        return json.dumps(draw(trees))
    if shape == 1:
        return draw(
            st.sampled_from(["", "{", "nul", "[1,]", '{"a":1}x', "1 2", "1e400", "NaN", '"\\ud800"', "01"])
        )
    schema = draw(schemas)
    made = {"schema": schema, "payload": draw(_payloads(schema))}
    if shape == 2:
        made |= {"more": 1}
    return json.dumps(made, ensure_ascii=draw(st.booleans()))
