"""Convert the defaults of a schema from JSON to the values that a reader needs, once.

fastavro returns the JSON itself to a reader: text for bytes, a number for a date.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastavro.read import LOGICAL_READERS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def give_defaults_their_values(named: Mapping[str, Any]) -> None:
    """Replace the defaults of a schema's fields by their values.

    A default that does not fit its type stays as it is; writing or reading with it fails.
    """
    fields = [field for node in named.values() for field in node.get("fields", ()) if "default" in field]
    made = [(field, _made(field["type"], field["default"], named)) for field in fields]
    for field, value in made:  # only now, because a default's value is made from the JSON of others
        field["default"] = value


def default_values(named: Mapping[str, Any]) -> int:
    """Return the most values that the defaults of a record add to the values that were sent."""
    return max((_defaults_of(node) for node in named.values()), default=0)


def has_mutable_default(named: Mapping[str, Any]) -> bool:
    """Return whether a default is a list or a dict, which all records with this default would share."""
    return any(
        isinstance(field.get("default"), dict | list)
        for node in named.values()
        for field in node.get("fields", ())
    )


def _defaults_of(node: Any) -> int:
    return sum(_count(field["default"]) for field in node.get("fields", ()) if "default" in field)


def _count(default: Any) -> int:
    inner = default.values() if isinstance(default, dict) else default if isinstance(default, list) else ()
    return 1 + sum(map(_count, inner))


def _made(node: Any, default: Any, named: Mapping[str, Any]) -> Any:
    try:
        return _value(node, default, named)
    except Exception:  # noqa: BLE001 - a default may be anything; RecursionError included
        return default


def _value(node: Any, default: Any, named: Mapping[str, Any]) -> Any:
    if isinstance(node, list):  # a default is of a union's first branch; of any branch since Avro 1.12
        return _value(next((branch for branch in node if _fits(branch, default)), node[0]), default, named)
    if isinstance(node, str):
        node = named.get(node, node)
    kind = node if isinstance(node, str) else node["type"]
    value = _PLAIN[kind](node, default, named) if kind in _PLAIN else default
    if isinstance(node, dict) and "logicalType" in node:
        reader = LOGICAL_READERS.get(f"{kind}-{node['logicalType']}")
        return value if reader is None else reader(value, node, None)
    return value


def _fits(branch: Any, default: Any) -> bool:
    """Return whether a union's branch and a default are both null, or neither is."""
    return bool((branch == "null") == (default is None))


def _bytes(_node: Any, default: Any, _named: Mapping[str, Any]) -> Any:
    return default.encode("latin-1")


def _floating(_node: Any, default: Any, _named: Mapping[str, Any]) -> Any:
    return float(default)


def _list(node: Any, default: Any, named: Mapping[str, Any]) -> Any:
    return [_value(node["items"], item, named) for item in default]


def _dict(node: Any, default: Any, named: Mapping[str, Any]) -> Any:
    return {key: _value(node["values"], item, named) for key, item in default.items()}


def _record(node: Any, default: Any, named: Mapping[str, Any]) -> Any:
    return {
        field["name"]: _value(field["type"], default.get(field["name"], field.get("default")), named)
        for field in node["fields"]
    }


_PLAIN: Final[dict[str, Callable[[Any, Any, Mapping[str, Any]], Any]]] = {
    "array": _list,
    "bytes": _bytes,
    "double": _floating,
    "error": _record,
    "fixed": _bytes,
    "float": _floating,
    "map": _dict,
    "record": _record,
}
