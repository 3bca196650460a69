"""Questions about transforms, predicates and chains: configurations, right and wrong, and records."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from tests.property.connect import oracle_texts
from tests.property.connect.oracle_records import HEADERS, name_lists, part, records
from tests.property.connect.oracle_values import (
    DAY_MS,
    LOGICAL,
    SCALARS,
    fitting,
    names,
    typed,
)

Configs = st.SearchStrategy[dict[str, Any]]

_flags: Final = st.sampled_from(["true", "false", "true", "TRUE", "no"])
_topics: Final = st.sampled_from(
    ["test", "t-(.*)", "(a)-(?<n>.*)", "te", ".*", "", "(", "t(e)?(x)?st", r"\w+"]
)
_types: Final = st.sampled_from(
    [
        *("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string", "string"),
        *("bytes", "array", "INT32", "nope", ""),
    ]
)
_headers: Final = st.lists(st.sampled_from(HEADERS), max_size=3).map(",".join)
_markers: Final = st.sampled_from(["", "", "!", "?"])
_marked: Final = st.tuples(names, _markers).map("".join)
_patterns: Final = st.one_of(
    st.sampled_from(
        [
            *("yyyy-MM-dd", "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", "yyyy-MM-dd HH:mm:ss", "yy/M/d h:mm a", "", "[x"),
            *("EEE MMM d HH:mm:ss z yyyy", "yyyyMMdd", "HH:mm", "S", "G yyyy DDD", "Y-'W'ww-u", "''yyyy''"),
            *("yyyy-MM-dd'T'HH:mm:ssXXX", "yyyy-MM-dd'T'HH:mm:ssZ", "k K E L", "b", "'open"),
        ]
    ),
    st.lists(st.sampled_from("GyyyYMMLwWDdFEuaHkKhmsSzZX-/: .T'"), max_size=7).map("".join),
)


def _configs(optional: dict[str, Any], **required: Any) -> Configs:
    """Return configurations; now and then one lacks what it must have, or has what it does not know."""
    usual = st.fixed_dictionaries(required, optional=optional)
    loose = st.fixed_dictionaries({}, optional={**required, **optional, "unknown": st.just("1")})
    return st.one_of(usual, usual, usual, usual, loose).map(
        lambda config: {name.replace("_", "."): value for name, value in config.items()}
    )


_null: Final = {"replace_null_with_default": _flags}
_pairs: Final = st.lists(st.tuples(names, _types).map(":".join), min_size=1, max_size=3).map(",".join)
_renames: Final = st.lists(st.tuples(names, names).map(":".join), max_size=3).map(",".join)
_wrong_list: Final = st.sampled_from(["", ",", "a:", ":b", "a:b:c", "a,,b", " "])
_paths: Final = st.one_of(
    names, st.sampled_from(["a.b", "b.c", "`a.b`", "a.`b`", "`a", "a..b", ".", "a.b.c", ""])
)
CONFIGS: Final[dict[str, Configs]] = {
    "Cast": _configs(_null, spec=st.one_of(_pairs, _pairs, _types, _wrong_list)),
    "ExtractField": _configs(
        {**_null, "field_syntax_version": st.sampled_from(["V1", "V2", "v2", "V3"])}, field=_paths
    ),
    "Flatten": _configs({"delimiter": st.sampled_from([".", "_", "", "::"])}),
    "HeaderFrom": _configs(
        _null,
        fields=name_lists(at_least=1),
        headers=st.lists(st.sampled_from(HEADERS), min_size=1, max_size=3).map(",".join),
        operation=st.sampled_from(["copy", "move", "copy", "move", "COPY", "x"]),
    ),
    "HoistField": _configs({}, field=names),
    "InsertField": _configs(
        {
            **_null,
            **{f"{what}_field": _marked for what in ("topic", "partition", "offset", "timestamp", "static")},
            "static_value": st.sampled_from(["v", "", "1"]),
        }
    ),
    "MaskField": _configs(
        {
            **_null,
            "replacement": st.one_of(
                st.sampled_from(["", "x", "1", "-5", "1.5", "1e400", "300"]), oracle_texts.numbers
            ),
        },
        fields=name_lists(at_least=1),
    ),
    "ReplaceField": _configs(
        {
            **_null,
            "include": name_lists(),
            "exclude": name_lists(),
            "renames": st.one_of(_renames, _renames, _wrong_list),
            "whitelist": names,
        }
    ),
    "SetSchemaMetadata": _configs(
        {
            **_null,
            "schema_name": st.sampled_from(["N", "", "S"]),
            "schema_version": st.sampled_from(["1", "-3", "x"]),
        }
    ),
    "TimestampConverter": _configs(
        {
            **_null,
            "field": names,
            "format": _patterns,
            "unix_precision": st.sampled_from(
                ["seconds", "milliseconds", "microseconds", "nanoseconds", "x"]
            ),
        },
        target_type=st.sampled_from(["string", "unix", "Date", "Time", "Timestamp", "date"]),
    ),
}
"""Configurations of the transforms that have a class for keys and one for values."""
WHOLE: Final[dict[str, Configs]] = {
    "DropHeaders": _configs({}, headers=_headers),
    "Filter": _configs({}),
    "InsertHeader": _configs({}, header=st.sampled_from(HEADERS), value_literal=oracle_texts.texts),
    "RegexRouter": _configs(
        {},
        regex=_topics,
        replacement=st.sampled_from(["x-$1", "$0", "${n}", "y", "", "$9", "\\$", "$", "$2-$1", "\\"]),
    ),
    "TimestampRouter": _configs(
        {
            "topic_format": st.sampled_from(["${topic}-${timestamp}", "x", "${topic}", "$1${timestamp}", ""]),
            "timestamp_format": _patterns,
        }
    ),
    "ValueToKey": _configs(_null, fields=name_lists(at_least=1)),
}
"""Those of the other transforms."""
PREDICATES: Final[dict[str, Configs]] = {
    "HasHeaderKey": _configs({}, name=st.sampled_from(HEADERS)),
    "RecordIsTombstone": _configs({}),
    "TopicNameMatches": _configs({}, pattern=_topics),
}
_point: Final = st.one_of(
    typed("string", oracle_texts.times),
    typed(
        "string", st.sampled_from(["2017-01-02", "Mon Jan 2 03:04:05 UTC 2017", "17/1/2 3:04 PM", "20170102"])
    ),
    typed("int64", st.one_of(st.integers(-(10**13), 10**14), st.integers(-(1 << 63), (1 << 63) - 1))),
    LOGICAL["Timestamp"],
    typed("date", st.integers(0, 20_000).map(DAY_MS.__mul__)),
    SCALARS["int32"],
    st.none(),
)
_point_schemas: Final = st.sampled_from(
    ["string", "int64", "Date", "Time", "Timestamp", "string?", "int64?", "int32"]
)


@st.composite
def _points(draw: st.DrawFn) -> tuple[Any, Any]:
    """Return a value that is, or holds, points in time."""
    shape = draw(st.integers(0, 3))
    if shape == 0:
        return None, draw(_point)
    if shape == 1:
        chosen = draw(st.lists(names, min_size=1, max_size=3, unique=True))
        return None, {"t": "map", "v": [[name, draw(_point)] for name in chosen]}
    if shape == 2:
        schema = draw(_point_schemas)
        text = schema.startswith("string")
        return schema, draw(typed("string", oracle_texts.times) if text else fitting(schema))
    chosen = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    fields = [[name, draw(_point_schemas)] for name in chosen]
    return draw(part(st.just({"type": "struct", "fields": fields})))


_PARTS: Final[dict[str, Any]] = {"TimestampConverter": _points()}


@st.composite
def questions(draw: st.DrawFn, kind: str, *, records_each: int = 3) -> list[dict[str, Any]]:
    """Return questions about one transform, configured once for several records."""
    if kind in WHOLE:
        config, of, suffix = draw(WHOLE[kind]), "value", ""
    else:
        of = draw(st.sampled_from(["value", "value", "value", "key"]))
        config, suffix = draw(CONFIGS[kind]), f"${of.title()}"
    made = st.lists(records(of, _PARTS.get(kind)), min_size=1, max_size=records_each)
    asked = {"op": "smt", "class": kind + suffix, "config": config}
    return [{**asked, "record": record} for record in draw(made)]


@st.composite
def tests(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return questions about predicates."""
    kind = draw(st.sampled_from([*PREDICATES]))
    asked = {"op": "predicate", "class": kind, "config": draw(PREDICATES[kind])}
    return [{**asked, "record": draw(records())} for _ in range(2)]


@st.composite
def chains(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Return a question about transforms in a row, some of them under a predicate."""
    stages: list[dict[str, Any]] = []
    for kind in draw(st.lists(st.sampled_from([*CONFIGS, *WHOLE]), min_size=1, max_size=4)):
        if kind == "Flatten" and stages:
            continue  # It keeps the order of a map, which is Java's own where a transform has made a HashMap.
        config = draw(WHOLE[kind] if kind in WHOLE else CONFIGS[kind])
        stage: dict[str, Any] = {"class": kind if kind in WHOLE else f"{kind}$Value", "config": config}
        if draw(st.integers(0, 2)) == 0:
            name = draw(st.sampled_from([*PREDICATES]))
            predicate = {"class": name, "config": draw(PREDICATES[name])}
            stage |= {"predicate": predicate, "negate": draw(st.booleans())}
        stages.append(stage)
    return [{"op": "chain", "stages": stages, "record": draw(records())}]
