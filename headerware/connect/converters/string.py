"""StringConverter: text in a character set."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal as DecimalNumber
from typing import Any, ClassVar, Final

from headerware.connect.config import ConfigDef, ConfigKey
from headerware.connect.converters.base import TYPE, DualConverter
from headerware.connect.converters.charsets import charset_of
from headerware.connect.data.schema import OPTIONAL_STRING_SCHEMA, Schema, SchemaAndValue
from headerware.connect.errors import ConnectConfigError, ConnectDataError, ConversionError
from headerware.connect.modes import STRICT, Mode
from headerware.connect.values import java_text

_ENCODING: Final = "converter.encoding"
_CLEAR: Final = (str, bool, int, float, DecimalNumber)
"""The classes whose text in Java is unambiguous: it can be read back."""


class StringConverter(DualConverter):
    """Convert text; other values are written as the text that Java has for them.

    The ``strict`` mode writes only text, numbers and booleans, because Java's text of other values cannot be
    read back. It refuses characters that the character set does not have, and bytes that are not text.

    Args:
        config: ``converter.encoding``, the character set.
        mode: ``strict`` or ``kafka_4_3``.

    Raises:
        ConnectConfigError: an unknown key or, in the strict mode, an unknown character set.
        ConversionError: an unknown character set in the ``kafka_4_3`` mode.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef(
        TYPE,
        ConfigKey(
            name=_ENCODING,
            type="STRING",
            default="UTF-8",
            importance="HIGH",
            doc="The character set, by Java's name.",
        ),
    )

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        super().__init__(config, mode=mode)
        name = self.options[_ENCODING]
        try:
            self._charset: Final = charset_of("UTF-8" if name is None else name)
        except ConversionError as error:
            if mode == STRICT:
                raise ConnectConfigError(str(error), path=_ENCODING) from None
            raise

    def from_connect_data(self, topic: str, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002 - the text depends on the value alone
        """Return the bytes of a value's text.

        Raises:
            ConnectDataError: in the strict mode, the value is of another class, or the character set does
                not have its text.
        """
        if value is None:
            return None
        if self.mode != STRICT:
            return self._charset.encode_as_java(value if value.__class__ is str else java_text(value))
        if not isinstance(value, _CLEAR):
            raise ConnectDataError(
                f"StringConverter expected text, a number or a boolean, found {type(value).__name__}"
            )
        return self._charset.encode(value if isinstance(value, str) else java_text(value))

    def to_connect_data(self, topic: str, data: bytes | None) -> SchemaAndValue:  # noqa: ARG002 - the same for all topics
        """Return the text of bytes, with the schema of optional text.

        Raises:
            ConnectDataError: in the strict mode, the bytes are not text in the character set.
        """
        if data is None:
            return SchemaAndValue(OPTIONAL_STRING_SCHEMA, None)
        decode = self._charset.decode if self.mode == STRICT else self._charset.decode_as_java
        return SchemaAndValue(OPTIONAL_STRING_SCHEMA, decode(data))
