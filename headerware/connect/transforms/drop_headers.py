"""DropHeaders: remove headers by name (KIP-145).

transforms=drop
transforms.drop.type=org.apache.kafka.connect.transforms.DropHeaders
transforms.drop.headers=trace.id,debug
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from headerware.connect.config import DISTINCT_SOME, ConfigDef, ConfigKey
from headerware.connect.fields.lists import items
from headerware.connect.headers import ConnectHeaders
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.base import Transform


class DropHeaders(Transform):
    """Remove all headers of some names; a name that no header has is ignored."""

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name="headers",
            type="LIST",
            importance="HIGH",
            check=DISTINCT_SOME,
            doc="The names of the headers to remove.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        self._names: Final = frozenset(items(self.options["headers"], mode, "headers"))

    def apply(self, record: Any) -> Any:
        """Return the record without these headers."""
        names = self._names
        kept = [header for header in record.headers if header.key not in names]
        return record.with_headers(ConnectHeaders(kept))
