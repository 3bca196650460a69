"""FieldMatches: whether a field of the key or the value meets a condition.

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
        doc="The field, as a.b; by default the key or value itself.",
    ),
    *condition_keys("field", "field"),
)
"""The keys that choose a field and its condition."""


_GETTERS: Final = 64
"""The number of schemas whose getters are kept."""


def _null(_struct: Struct) -> None:
    """Return None, the value of a field that the schema lacks."""


class FieldReader:
    """Read a field of a key or value, which may be nested; null if it is missing.

    An empty path reads the key or value itself. Safe for use by several threads.
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
        raise ConnectDataError(f"expected a struct or dict with the field {self._path.text!r}, found {found}")

    def _new_getter(self, schema: Schema) -> Callable[[Struct], Any]:
        assert self._path is not None  # noqa: S101 - the caller has checked
        getter = _null if self._path.find(schema) is None else self._path.getter(schema)
        self._getters[id(schema)] = (schema, getter)
        return getter


class FieldCondition:
    """Test whether a field of a key or value meets the condition of :data:`FIELD_KEYS`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._read: Final = FieldReader(options["field.name"], "field.name")
        name = options["field.name"]
        self.condition: Final = Condition(
            options, "field", f"the field {name!r}" if name else "the key or value"
        )

    def holds(self, value: Any) -> bool | None:
        """Return whether the condition holds; None if the field is missing: ``includes_absent`` decides."""
        return self.condition.holds(self._read(value))


class FieldMatches(Predicate):
    """Hold for records in which a field of the key or value meets a condition.

    The condition is ``field.value``, ``field.values``, ``field.value.pattern``, ``field.exists``, or the
    bounds ``field.value.above``, ``.below``, ``.min`` and ``.max``. If the field is missing,
    ``missing.or.null.behavior`` says whether the predicate holds (include) or not (exclude).
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(*FIELD_KEYS)
    part: ClassVar[Part | None] = None
    """``key`` or ``value``; None in the base class."""
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
        """Return whether the predicate holds for a record.

        Raises:
            ConnectDataError: the field cannot be compared, or it is missing and ``missing.or.null.behavior``
                is ``fail``.
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
