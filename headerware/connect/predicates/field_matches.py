"""FieldMatches: whether a field of the key or the value is as configured.

predicates=german
predicates.german.type=FieldMatches$Value
predicates.german.field.name=customer.country
predicates.german.field.values=de,at,ch
predicates.german.missing.or.null.behavior=exclude
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey, StrictConfig
from headerware.connect.data.struct import Struct
from headerware.connect.errors import ConnectDataError
from headerware.connect.fields.paths import parse_path
from headerware.connect.modes import STRICT
from headerware.connect.predicates.base import Predicate
from headerware.connect.predicates.conditions import Condition, condition_keys
from headerware.core.bounded_cache import BoundedCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headerware.connect.data.schema import Schema
    from headerware.connect.modes import Mode
    from headerware.connect.records import Part

FIELD_KEYS: Final = (
    ConfigKey(
        name="field.name",
        type="STRING",
        default=None,
        importance="HIGH",
        doc="The field, as a.b; the whole key or value if it is not given.",
    ),
    *condition_keys("field", "field"),
)
"""The keys that choose a field and its condition."""


_GETTERS: Final = 64
"""The number of schemas whose getters are kept."""


def _null(_struct: Struct) -> None:
    """Return null, the field of a schema that does not have it."""


class FieldReader:
    """Read a field of a key or value, which may be nested; null if it is missing.

    An empty path reads the whole key or value. Safe for use by several threads.
    """

    __slots__ = ("_getters", "_path")

    def __init__(self, path: str | None, key: str) -> None:
        self._path: Final = parse_path(path, STRICT, key) if path else None
        # The schemas are kept alive, because their getters are found by identity.
        self._getters: Final[BoundedCache[int, tuple[Schema, Callable[[Struct], Any]]]] = BoundedCache(
            _GETTERS
        )

    def __call__(self, value: Any) -> Any:
        """Return the field of a key or value."""
        if self._path is None or value is None:
            return value
        if isinstance(value, Struct):
            try:
                getter = self._getters[id(value.schema)][1]
            except KeyError:
                getter = self._new_getter(value.schema)
            return getter(value)
        if isinstance(value, dict):
            return self._path.from_dict(value)
        found = type(value).__name__
        raise ConnectDataError(
            f"expected a struct or dict to read the field {self._path.text!r} of, found {found}"
        )

    def _new_getter(self, schema: Schema) -> Callable[[Struct], Any]:
        assert self._path is not None  # noqa: S101 - the caller has looked
        getter = _null if self._path.find(schema) is None else self._path.getter(schema)
        self._getters[id(schema)] = (schema, getter)
        return getter


class FieldCondition:
    """Test whether a field of a key or value is as configured by :data:`FIELD_KEYS`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._read: Final = FieldReader(options["field.name"], "field.name")
        name = options["field.name"]
        self.condition: Final = Condition(options, "field", f"the field {name!r}" if name else "the whole")

    def holds(self, value: Any) -> bool | None:
        """Return whether the field is as configured; None if it is missing and no condition applies."""
        return self.condition.holds(self._read(value))


class FieldMatches(Predicate):
    """Hold for records whose key or value has a field as configured.

    ``field.value``, ``field.values``, ``field.value.pattern``, ``field.exists``, or the bounds
    ``field.value.above``, ``.below``, ``.min`` and ``.max`` say what it must be; ``missing.or.null.behavior``
    whether the predicate holds (include) or not (exclude) if the field is missing.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(*FIELD_KEYS)
    part: ClassVar[Part | None] = None
    """Which of the two; None for the class that has both."""
    Key: ClassVar[type[FieldMatches]]
    """The predicate on keys."""
    Value: ClassVar[type[FieldMatches]]
    """The predicate on values."""

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        if self.part is None:
            raise TypeError(
                "FieldMatches looks at keys or at values: use FieldMatches.Key or FieldMatches.Value"
            )
        super().__init__(config, mode=mode)
        self._field: Final = FieldCondition(self.options)

    def test(self, record: Any) -> bool:
        """Return whether it holds for a record.

        Raises:
            ConnectDataError: the field is missing, and that is an error, or cannot be compared.
        """
        found = self._field.holds(record.value if self.part == "value" else record.key)
        return self._field.condition.includes_absent if found is None else found


class _OfKey(FieldMatches):
    part: ClassVar[Part | None] = "key"


class _OfValue(FieldMatches):
    part: ClassVar[Part | None] = "value"


for _name, _class in (("Key", _OfKey), ("Value", _OfValue)):
    _class.__name__, _class.__qualname__ = _name, f"FieldMatches.{_name}"
    setattr(FieldMatches, _name, _class)
