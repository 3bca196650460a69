"""Warn of fields that an object has and its schema does not: Avro writes the object without them.

To look at every object would take a good part of the time that it takes to write it. So the writer shows the
first objects of a schema, and one of many later objects.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from itertools import chain, cycle, islice, repeat
from typing import TYPE_CHECKING, Any, Final

from headerware.core.step import LoggedReasons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headerware.serdes.avro.schema import AvroSchema

_FIRST: Final = 64
_ONE_OF: Final = 257
"""A prime, so that objects of another kind in each second place, say, are looked at, too."""
_MOST_ITEMS: Final = 8
"""How many items of an array or a map are looked at."""
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""A field's name; any other key may be a part of the payload, and is not logged."""
_log: Final = logging.getLogger("headerware.serdes.avro")


def is_due() -> Callable[[], bool]:
    """Return a function that says of each object in turn whether to look at it."""
    return chain(repeat(True, _FIRST), cycle([*repeat(False, _ONE_OF - 1), True])).__next__  # noqa: FBT003 - itertools


def dropped_fields_warner(schema: AvroSchema) -> Callable[[Any], None]:
    """Return a function that gets a written object, and warns once of each field that is dropped."""
    tree, named = schema.tree, schema.named
    logged = LoggedReasons()

    def warn(value: Any) -> None:
        for record, field in _dropped(value, tree, named):
            shown = repr(field) if _NAME.fullmatch(field) else "whose name Avro does not allow"
            if logged.is_new(record, shown):
                _log.warning(
                    "a field %s is not in the schema %r, and is dropped from all objects; add it to the "
                    "schema, or set strict = true to refuse such objects",
                    shown,
                    record,
                )

    return warn


def _dropped(value: Any, tree: Any, named: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields that an object has and its schema does not, each after the name of its record."""
    tree = named.get(tree, tree) if isinstance(tree, str) else tree
    if isinstance(tree, list):
        yield from _in_union(value, tree, named)
    elif not isinstance(tree, dict):
        return
    elif tree["type"] == "record" and isinstance(value, Mapping):
        fields = {field["name"]: field["type"] for field in tree["fields"]}
        for name, own in value.items():
            if name in fields:
                yield from _dropped(own, fields[name], named)
            elif isinstance(name, str) and name != "-type":  # fastavro's hint at a branch of a union
                yield tree["name"], name
    elif tree["type"] == "array" and isinstance(value, list):
        for item in value[:_MOST_ITEMS]:
            yield from _dropped(item, tree["items"], named)
    elif tree["type"] == "map" and isinstance(value, Mapping):
        for item in islice(value.values(), _MOST_ITEMS):
            yield from _dropped(item, tree["values"], named)


def _in_union(value: Any, union: list[Any], named: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Look into the only branch of a union that an object can be of; into none if several could be."""
    branches = [named.get(each, each) if isinstance(each, str) else each for each in union]
    fitting = [each for each in branches if isinstance(each, dict)]
    if isinstance(value, tuple):  # fastavro's notation: the name of the branch, and the object
        chosen, value = value if len(value) == 2 else (None, None)
        fitting = [each for each in fitting if each.get("name") == chosen]
    else:
        kinds = ("record", "map") if isinstance(value, Mapping) else ("array",)
        fitting = [each for each in fitting if each["type"] in kinds]
    if len(fitting) == 1:
        yield from _dropped(value, fitting[0], named)
