"""FilterByExpression: keep or drop records by an expression.

transforms=large
transforms.large.type=FilterByExpression
transforms.large.filter.condition=value.amount > 100 && headers.tenant == "a"
transforms.large.missing.or.null.behavior=exclude
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import NOT_EMPTY_TEXT, ConfigDef, ConfigKey, StrictConfig
from headerware.connect.expressions import AbsentValueError, CompiledExpression, Result
from headerware.connect.modes import STRICT
from headerware.connect.predicates.conditions import MISSING, missing_key
from headerware.connect.transforms.base import Transform
from headerware.connect.transforms.keys import FILTER_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.modes import Mode

_CONDITION: Final = "filter.condition"


class FilterByExpression(Transform):
    """Keep records for which an expression is true, or drop them (``filter.type=exclude``).

    The language is the same as in the predicate ``Expression``: ``has(value.total)`` is true for a null
    field, so test it with ``has(value.total) && value.total != null && ...``, and times are text that
    ``timestamp(value.t)`` converts. A record in which the expression reads a missing or null part is refused,
    kept (``missing.or.null.behavior=include``) or dropped (``exclude``), regardless of ``filter.type``.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        ConfigKey(
            name=_CONDITION,
            type="STRING",
            importance="HIGH",
            check=NOT_EMPTY_TEXT,
            doc="An expression that is true or false.",
        ),
        FILTER_TYPE,
        missing_key("if the expression reads a missing or null part."),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._expression: Final = CompiledExpression(
            self.options[_CONDITION], result=Result.BOOLEAN, path=_CONDITION
        )
        self._wanted: Final = self.options[FILTER_TYPE.name] == "include"
        self._absent: Final[str] = self.options[MISSING]

    def apply(self, record: Any) -> Any:
        """Return the record, or None to drop it.

        Raises:
            AbsentValueError: the expression reads a missing part, and ``missing.or.null.behavior`` is
                ``fail``.
            ConnectDataError: the expression cannot be evaluated on this record.
        """
        try:
            kept = self._expression.evaluate(record) is self._wanted
        except AbsentValueError:
            if self._absent == "fail":
                raise
            kept = self._absent == "include"
        return record if kept else None
