"""HeaderMatches: whether a header meets a condition.

predicates=tenant
predicates.tenant.type=HeaderMatches
predicates.tenant.header.name=tenant
predicates.tenant.header.value=acme
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import NOT_EMPTY_TEXT, ConfigDef, ConfigKey, StrictConfig
from headerware.connect.modes import STRICT
from headerware.connect.predicates.base import Predicate
from headerware.connect.predicates.conditions import Condition, condition_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.modes import Mode
    from headerware.connect.records import ConnectRecord

HEADER_KEYS: Final = (
    ConfigKey(
        name="header.name",
        type="STRING",
        importance="HIGH",
        check=NOT_EMPTY_TEXT,
        doc="The header's name; of several headers with this name, the last one counts.",
    ),
    *condition_keys("header", "header"),
)
"""The keys that choose a header and its condition."""


class HeaderCondition:
    """Test whether a header meets the condition of :data:`HEADER_KEYS`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._name: Final[str] = options["header.name"]
        self.condition: Final = Condition(options, "header", f"the header {self._name!r}")

    def holds(self, record: ConnectRecord) -> bool | None:
        """Return whether the condition holds; None if the header is missing: ``includes_absent`` decides."""
        header = record.headers.last_with_name(self._name)
        return self.condition.holds(None if header is None else header.value)


class HeaderMatches(Predicate):
    """Hold for records in which a header meets a condition.

    The condition is ``header.value``, ``header.values``, ``header.value.pattern``, ``header.exists``, or the
    bounds ``header.value.above``, ``.below``, ``.min`` and ``.max``. If the header is missing,
    ``missing.or.null.behavior`` says whether the predicate holds (include) or not (exclude).
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(*HEADER_KEYS)

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._header: Final = HeaderCondition(self.options)

    def test(self, record: Any) -> bool:
        """Return whether the predicate holds for a record.

        Raises:
            ConnectDataError: the header cannot be compared, or it is missing and ``missing.or.null.behavior``
                is ``fail``.
        """
        found = self._header.holds(record)
        return self._header.condition.includes_absent if found is None else found
