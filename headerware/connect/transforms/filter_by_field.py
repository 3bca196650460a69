"""FilterByField: keep or drop records by a field of the key or the value.

transforms=paid
transforms.paid.type=FilterByField$Value
transforms.paid.field.name=order.status
transforms.paid.field.value=paid
transforms.paid.missing.or.null.behavior=exclude
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigDef, StrictConfig
from headerware.connect.modes import STRICT
from headerware.connect.predicates.field_matches import FIELD_KEYS, FieldCondition
from headerware.connect.transforms.base import PartTransform
from headerware.connect.transforms.keys import FILTER_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.modes import Mode


class FilterByField(PartTransform):
    """Keep records in which a field meets a condition, or drop them (``filter.type=exclude``).

    The condition has the same keys as the predicate ``FieldMatches``. A record that lacks the field is
    refused, kept (``missing.or.null.behavior=include``) or dropped (``exclude``), regardless of
    ``filter.type``.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(*FIELD_KEYS, FILTER_TYPE)

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._field: Final = FieldCondition(self.options)
        self._wanted: Final = self.options["filter.type"] == "include"

    def apply(self, record: Any) -> Any:
        """Return the record, or None to drop it.

        Raises:
            ConnectDataError: the field cannot be compared, or it is missing and ``missing.or.null.behavior``
                is ``fail``.
        """
        found = self._field.holds(record.value if self.part == "value" else record.key)
        kept = self._field.condition.includes_absent if found is None else found is self._wanted
        return record if kept else None
