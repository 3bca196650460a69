"""FieldMatches: ask for a field of the key or the value.

predicates=german
predicates.german.type=FieldMatches$Value
predicates.german.field.name=customer.country
predicates.german.field.values=de,at,ch
predicates.german.missing.or.null.behavior=exclude
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.modes import STRICT
from headerware.connect.predicates.base import Predicate
from headerware.connect.predicates.packs.conditions import Condition, condition_keys
from headerware.connect.predicates.packs.reading import FieldReader
from headerware.connect.predicates.packs.strict_config import StrictConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.modes import Mode
    from headerware.connect.records import Part

FIELD_KEYS: Final = (
    ConfigKey(
        name="field.name",
        type="STRING",
        default=None,
        importance="HIGH",
        doc="The field, as a.b; the whole key or value where it is not given.",
    ),
    *condition_keys("field", "field"),
)
"""The keys that say which field must be what."""


class FieldCondition:
    """Say whether a field of a key or value is as configured.

    Args:
        options: the values of :data:`FIELD_KEYS`.

    Raises:
        ConnectConfigError: no path, no condition, or more than one.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._read: Final = FieldReader(options["field.name"], "field.name")
        name = options["field.name"]
        self.condition: Final = Condition(options, "field", f"the field {name!r}" if name else "the whole")

    def holds(self, value: Any) -> bool | None:
        """Say whether the field of a value is as configured; None where it is missing and that is neither.

        Raises:
            ConnectDataError: the field is missing, and that is an error, or cannot be compared.
        """
        return self.condition.holds(self._read(value))


class FieldMatches(Predicate):
    """Hold for records of which a field of the key or the value is as configured.

    ``field.value``, ``field.values``, ``field.value.pattern``, ``field.exists``, or the bounds
    ``field.value.above``, ``.below``, ``.min`` and ``.max`` say what it must be; ``missing.or.null.behavior``
    whether the predicate holds (include) or not (exclude) where the field is missing.
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
        """Say whether it holds for a record.

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
