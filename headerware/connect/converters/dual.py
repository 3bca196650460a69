"""Converters that do for headers what they do for keys and values, as most of Connect's do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey, one_of
from headerware.connect.converters.base import Converter, HeaderConverter
from headerware.connect.data.schema import Schema, SchemaAndValue
from headerware.connect.modes import STRICT, Mode

TYPE_KEY: Final = "converter.type"
TYPE: Final = ConfigKey(
    name=TYPE_KEY,
    type="STRING",
    importance="LOW",
    doc="What the converter is for: keys, values or headers.",
    check=one_of("key", "value", "header"),
)
"""The key that all of them have; nothing depends on its value."""


class DualConverter(Converter, HeaderConverter):
    """Convert headers as keys and values are converted.

    Args:
        config: the keys that :meth:`config` describes; ``converter.type`` may be left out.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: a key is not known, or has a value that it cannot have.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(TYPE)

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__({TYPE_KEY: "value", **(config or {})}, mode=mode)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002 - the name makes no difference
        """Return the bytes of a header's value, as those of a record's value."""
        return self.from_connect_data(topic, schema, value)

    def to_connect_header(self, topic: str, key: str, data: bytes | None) -> SchemaAndValue:  # noqa: ARG002 - the name makes no difference
        """Return the value of a header's bytes, as that of a record's value."""
        return self.to_connect_data(topic, data)
