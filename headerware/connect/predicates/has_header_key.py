"""HasHeaderKey: whether a record has a header of a name (KIP-585).

predicates=traced
predicates.traced.type=org.apache.kafka.connect.transforms.predicates.HasHeaderKey
predicates.traced.name=traceparent
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from headerware.connect.config import NOT_EMPTY_TEXT, ConfigDef, ConfigKey
from headerware.connect.modes import STRICT, Mode
from headerware.connect.predicates.base import Predicate


class HasHeaderKey(Predicate):
    """Hold for records with at least one header of this name."""

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(name="name", type="STRING", check=NOT_EMPTY_TEXT, doc="The header's name."),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._name: Final[str] = self.options["name"]

    def test(self, record: Any) -> bool:
        """Return whether the record has the header."""
        name = self._name
        for header in record.headers:  # noqa: SIM110 - a loop takes half the time of any()
            if header.key == name:
                return True
        return False
