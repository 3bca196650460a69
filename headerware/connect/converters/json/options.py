"""What JsonConverter is configured with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headerware.connect.config import ConfigDef, ConfigKey, one_of_any_case
from headerware.connect.converters.dual import TYPE
from headerware.connect.errors import ConnectConfigError, NullValueError
from headerware.connect.modes import STRICT, Mode

SCHEMAS_ENABLE: Final = "schemas.enable"
SCHEMAS_CACHE_SIZE: Final = "schemas.cache.size"
SCHEMA_CONTENT: Final = "schema.content"
DECIMAL_FORMAT: Final = "decimal.format"
REPLACE_NULL: Final = "replace.null.with.default"

JSON_CONFIG: Final = ConfigDef(
    TYPE,
    ConfigKey(
        name=SCHEMAS_ENABLE,
        type="BOOLEAN",
        default=True,
        importance="HIGH",
        doc="Whether each value stands in an envelope with its schema.",
    ),
    ConfigKey(
        name=SCHEMAS_CACHE_SIZE,
        type="INT",
        default=1000,
        importance="HIGH",
        doc="How many schemas are remembered in each direction.",
    ),
    ConfigKey(
        name=SCHEMA_CONTENT,
        type="STRING",
        default=None,
        importance="HIGH",
        doc="The schema of all values that are read, as JSON; they then come without an envelope.",
    ),
    ConfigKey(
        name=DECIMAL_FORMAT,
        type="STRING",
        default="BASE64",
        importance="LOW",
        doc="How decimals are written: BASE64, or NUMERIC for JSON numbers.",
        check=one_of_any_case("BASE64", "NUMERIC"),
    ),
    ConfigKey(
        name=REPLACE_NULL,
        type="BOOLEAN",
        default=True,
        importance="LOW",
        doc="Whether the default takes the place of null where there is one.",
    ),
)


def check_options(options: Mapping[str, Any], mode: Mode) -> None:
    """Refuse what the keys alone do not.

    Raises:
        NullValueError: a null, in the ``kafka_4_3`` mode.
        ConnectConfigError: a negative size, in the strict mode.
    """
    for name in (SCHEMAS_ENABLE, SCHEMAS_CACHE_SIZE, REPLACE_NULL):
        if options[name] is None:
            raise NullValueError(f"expected a value for {name}, found null")
    if mode == STRICT and options[SCHEMAS_CACHE_SIZE] < 0:
        raise ConnectConfigError("expected a size of 0 or more", path=SCHEMAS_CACHE_SIZE)
