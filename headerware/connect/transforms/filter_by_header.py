"""FilterByHeader: keep or drop records by a header.

transforms=ours
transforms.ours.type=FilterByHeader
transforms.ours.header.name=tenant
transforms.ours.header.values=acme,initech
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import ConfigDef, StrictConfig
from headerware.connect.modes import STRICT
from headerware.connect.predicates.header_matches import HEADER_KEYS, HeaderCondition
from headerware.connect.transforms.base import Transform
from headerware.connect.transforms.keys import FILTER_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.modes import Mode


class FilterByHeader(Transform):
    """Keep records in which a header meets a condition, or drop them (``filter.type=exclude``).

    The condition has the same keys as the predicate ``HeaderMatches``. A record that lacks the header is
    refused, kept (``missing.or.null.behavior=include``) or dropped (``exclude``), regardless of
    ``filter.type``.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(*HEADER_KEYS, FILTER_TYPE)

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._header: Final = HeaderCondition(self.options)
        self._wanted: Final = self.options["filter.type"] == "include"

    def apply(self, record: Any) -> Any:
        """Return the record, or None to drop it.

        Raises:
            ConnectDataError: the header cannot be compared, or it is missing and ``missing.or.null.behavior``
                is ``fail``.
        """
        found = self._header.holds(record)
        kept = self._header.condition.includes_absent if found is None else found is self._wanted
        return record if kept else None
