"""Programs of changes to headers, in the oracle's JSON."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from tests.property.connect.oracle_records import headers
from tests.property.connect.oracle_values import LOGICAL, SCALARS, schemaless, typed, with_schema

_keys: Final = st.sampled_from(["h", "x", "a", "b", "", None])
_programs: Final = st.sampled_from(
    [["drop"], ["identity"], ["rename", "z"], ["rename", ""], ["rename"], ["upper"], ["toString"], ["boom"]]
)
_small: Final = st.integers(-200, 300)
_nulls: Final = st.none()
_strings: Final = typed("string", st.sampled_from(["", "a", "é", "1"]))
_points: Final = st.one_of(_nulls, *(LOGICAL[name] for name in ("Date", "Time", "Timestamp")))
_lists: Final = st.one_of(_nulls, typed("array", st.lists(SCALARS["int32"], max_size=2)))
_list_schemas: Final = st.sampled_from([{"type": "array", "valueSchema": "int32"}, "string", None])
_step: Final = st.one_of(
    st.sampled_from(
        ["size", "isEmpty", "clear", "retainLatest", "duplicate", "original", "equalsOriginal"]
    ).map(lambda name: [name]),
    st.tuples(st.sampled_from(["allWithName", "lastWithName", "remove", "retainLatest"]), _keys).map(list),
    st.tuples(st.just("add"), _keys, with_schema()).map(lambda step: [step[0], step[1], *step[2][::-1]]),
    st.tuples(st.just("add"), _keys, schemaless, st.none()).map(list),
    st.tuples(st.just("addSV"), _keys, with_schema()).map(
        lambda step: [step[0], step[1], {"schema": step[2][0], "value": step[2][1]}]
    ),
    st.tuples(st.just("addString"), _keys, st.one_of(_nulls, _strings)).map(list),
    st.tuples(st.just("addBytes"), _keys, st.one_of(_nulls, typed("bytes", st.just("eA==")))).map(list),
    st.tuples(st.just("addBoolean"), _keys, st.booleans()).map(list),
    st.tuples(st.sampled_from(["addByte", "addShort", "addInt", "addLong"]), _keys, _small).map(list),
    st.tuples(st.sampled_from(["addFloat", "addDouble"]), _keys, st.sampled_from(["1.5", "-0.0", "NaN"])).map(
        list
    ),
    st.tuples(st.sampled_from(["addDate", "addTime", "addTimestamp"]), _keys, _points).map(list),
    st.tuples(st.just("addDecimal"), _keys, st.one_of(_nulls, LOGICAL["Decimal(2)"])).map(list),
    st.tuples(st.just("addList"), _keys, _lists, _list_schemas).map(list),
    st.tuples(st.just("apply"), _keys, _programs).map(lambda step: [step[0], step[1], *step[2]]),
    st.tuples(st.just("applyAll"), _programs).map(lambda step: [step[0], *step[1]]),
    st.tuples(st.just("equals"), headers()).map(list),
)


@st.composite
def programs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return a question about some headers and what is done to them."""
    return [{"op": "headers", "init": draw(headers()), "ops": draw(st.lists(_step, max_size=8))}]
