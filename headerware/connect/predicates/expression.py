"""Expression: whether an expression in the Common Expression Language is true.

predicates=large
predicates.large.type=Expression
predicates.large.expression=value.amount > 100 && headers.tenant == "a"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.connect.config import NOT_EMPTY_TEXT, ConfigDef, ConfigKey, StrictConfig
from headerware.connect.expressions import AbsentValueError, CompiledExpression, Result
from headerware.connect.modes import STRICT
from headerware.connect.predicates.base import Predicate
from headerware.connect.predicates.conditions import MISSING, missing_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headerware.connect.modes import Mode


class Expression(Predicate):
    """Hold for records for which an expression is true.

    The expression sees ``topic``, ``partition``, ``offset``, ``timestamp``, ``key``, ``value``, ``headers``
    and ``all_headers``, see :mod:`headerware.connect.expressions.compiled`. If it reads something that a
    record lacks, ``missing.or.null.behavior`` says whether the predicate holds (include) or not (exclude);
    ``has(value.amount)`` and ``value.?amount.orValue(0)`` decide it in the expression itself. ``has`` is true
    for a field that is null; if a field may be null, write
    ``has(value.total) && value.total != null && value.total > 100``. Times are text;
    ``timestamp(value.t)`` can be compared.
    """

    CONFIG: ClassVar[ConfigDef] = StrictConfig(
        ConfigKey(
            name="expression",
            type="STRING",
            importance="HIGH",
            check=NOT_EMPTY_TEXT,
            doc="An expression that is true or false.",
        ),
        missing_key("if the expression reads a missing or null part."),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._expression: Final = CompiledExpression(self.options["expression"], result=Result.BOOLEAN)
        self._absent: Final[str] = self.options[MISSING]

    def test(self, record: Any) -> bool:
        """Return whether the expression is true for a record.

        Raises:
            AbsentValueError: the expression reads a missing part, and ``missing.or.null.behavior`` is
                ``fail``.
            ConnectDataError: the expression cannot be evaluated on this record.
        """
        try:
            return bool(self._expression.evaluate(record))
        except AbsentValueError:
            if self._absent == "fail":
                raise
            return self._absent == "include"
