"""Take a schema as an option gives it: a file, JSON text, or what the JSON stands for."""

from __future__ import annotations

from typing import Any

from headerware.core.errors import ConfigError
from headerware.core.plain_files import read_plain
from headerware.serdes.avro.limits import Limits
from headerware.serdes.avro.schema import AvroSchema, BadSchemaError

_JSON_BEGINS = ("{", "[", '"')


def schema_option(given: Any, limits: Limits, *, path: str) -> AvroSchema | None:
    """Make the schema that an option gives.

    Args:
        given: JSON text, which begins with ``{``, ``[`` or a quote; the path of a file, in any other text;
            a dict or list; or None.
        limits: what the schema may ask for.
        path: the option's name, for errors.

    Raises:
        ConfigError: there is no such file, or there is no schema in it.
    """
    if given is None:
        return None
    try:
        return AvroSchema.of(_read(given, limits, path) if isinstance(given, str) else given, limits)
    except BadSchemaError as error:
        detail = f" ({error.detail})" if error.detail else ""
        where = f"{given}: " if isinstance(given, str) and not is_json(given) else ""
        raise ConfigError(f"{where}{error.message}{detail}", path=path) from None


def is_json(text: str) -> bool:
    """Return whether an option's text is a schema itself, not the path of a file with one."""
    return text.lstrip().startswith(_JSON_BEGINS)


def _read(text: str, limits: Limits, path: str) -> str | bytes:
    if is_json(text):
        return text
    try:
        return read_plain(text, limits.max_schema_bytes)[0]
    except (OSError, ValueError) as error:
        problem = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            f"cannot read {text}: {problem}; expected a file with a schema, or the schema as JSON", path=path
        ) from error
