"""Records, in the oracle's JSON."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from tests.property.connect.oracle_values import (
    LOGICAL,
    SCALARS,
    Nodes,
    fitting,
    maps,
    names,
    schemaless,
    schemas,
    struct_schemas,
)

HEADERS: Final = ("h", "x", "a", "")
_scalar: Final = st.sampled_from([*SCALARS, *LOGICAL])


@st.composite
def headers(draw: st.DrawFn) -> Any:
    """Return headers."""
    made = []
    for name in draw(st.lists(st.sampled_from(HEADERS), max_size=3)):
        schema = draw(st.one_of(st.none(), _scalar, _scalar.map("{}?".format)))
        value = draw(schemaless if schema is None else fitting(schema))
        made.append({"key": name, "schema": schema, "value": value})
    return made


@st.composite
def part(draw: st.DrawFn, struct_schema: Nodes | None = None) -> tuple[Any, Any]:
    """Return a schema, or none, and a value: most are structs and maps, as transforms expect them."""
    shape = draw(st.integers(0, 9))
    if shape == 0:
        return draw(st.one_of(st.none(), st.just("string?"))), None
    if shape < 4:
        return None, draw(maps)
    if shape == 4:
        return None, draw(schemaless)
    schema = draw(schemas() if shape == 5 else (struct_schemas() if struct_schema is None else struct_schema))
    return schema, draw(fitting(schema))


@st.composite
def records(
    draw: st.DrawFn, of: str = "value", parts: st.SearchStrategy[tuple[Any, Any]] | None = None
) -> Any:
    """Return a record.

    Args:
        draw: what Hypothesis draws with.
        of: the part, ``key`` or ``value``, that is looked at; the other one is simple.
        parts: what that part is; anything by default.
    """
    other = "key" if of == "value" else "value"
    schema, value = draw(part() if parts is None else parts)
    made: dict[str, Any] = {"topic": draw(st.sampled_from(["test", "a-topic", "t.1", ""]))}
    made |= {f"{of}Schema": schema, of: value}
    made |= draw(st.sampled_from([{}, {}, {f"{other}Schema": "string", other: "k"}, {other: 5}]))
    made |= {"headers": draw(headers())} if draw(st.booleans()) else {}
    made |= {"timestamp": draw(st.integers(-(10**13), 10**14))} if draw(st.booleans()) else {}
    made |= draw(st.sampled_from([{}, {"partition": 3}]))
    if draw(st.booleans()):
        made |= {"kind": "sink", "offset": 17, "timestampType": "CREATE_TIME"}
    return made


@st.composite
def name_lists(draw: st.DrawFn, *, at_least: int = 0) -> str:
    """Return a list of fields as configuration writes it."""
    chosen = draw(st.lists(names, min_size=at_least, max_size=3))
    return draw(st.sampled_from([",", ",", " , "])).join(chosen)
