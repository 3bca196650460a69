"""InsertHeader: add a header with a fixed value (KIP-145).

transforms=app
transforms.app.type=org.apache.kafka.connect.transforms.InsertHeader
transforms.app.header=app.id
transforms.app.value.literal=best-app-ever
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from headerware.connect.config import NOT_NULL, ConfigDef, ConfigKey
from headerware.connect.data.schema import NULL
from headerware.connect.headers import ConnectHeader
from headerware.connect.modes import STRICT, Mode
from headerware.connect.transforms.base import Transform
from headerware.connect.values import parse_string


class InsertHeader(Transform):
    """Add a header after the existing headers, even if the record has a header of this name.

    The type of the value is inferred from the literal: ``42`` is a number, ``null`` a null, ``[1,2]`` an
    array. In the strict mode the literal stays text unless its value is written back as the same text.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        ConfigKey(
            name="header",
            type="STRING",
            importance="HIGH",
            check=NOT_NULL,
            doc="The header's name.",
        ),
        ConfigKey(
            name="value.literal",
            type="STRING",
            importance="HIGH",
            check=NOT_NULL,
            doc="The value, as text.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        schema, value = parse_string(self.options["value.literal"], mode=mode) or NULL
        self._header: Final = ConnectHeader(self.options["header"], schema, value)

    def apply(self, record: Any) -> Any:
        """Return the record with the header."""
        return record.with_headers(record.headers.duplicate().add_header(self._header))
