"""Which subject a record is about: the option ``key_of``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headerware.connect.errors import ConnectConfigError, ConnectDataError
from headerware.connect.expressions import CompiledExpression
from headerware.connect.headers import ConnectHeader
from headerware.connect.records import ConnectRecord
from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, InterceptorError
from headerware.core.headers import Headers
from headerware.keyring.subjects.rows import MAX_SUBJECT_BYTES
from headerware.registry.encodings import read_json

FindSubject = Callable[[str, Any, Any, Headers], str]
"""Takes topic, value, key and headers, and returns the subject; raises InterceptorError."""
_MAX_SUBJECTS: Final = 16_384
_HEADER: Final = "header:"
_VARIABLES: Final = frozenset({"topic", "key", "value", "headers", "all_headers"})
"""What an expression may read: a record sent again must have the same subject."""


class SubjectOf:
    """Find the subject that a record is about; safe for use by several threads.

    Args:
        text: ``header:NAME``, or an expression in the Common Expression Language over topic, key, value and
            headers. Bytes of keys and headers are text to it if they are UTF-8, and a value of bytes is JSON.

    Raises:
        ConfigError: the text is neither.
    """

    def __init__(self, text: str) -> None:
        expression = None if text.startswith(_HEADER) else _compiled(text)
        self.of: Final[FindSubject] = (
            _from_header(text.removeprefix(_HEADER)) if expression is None else _from_expression(expression)
        )
        self.is_constant: Final = expression is not None and not expression.reads
        """Whether all records have the same subject."""


def _from_header(name: str) -> FindSubject:
    if not name:
        raise ConfigError("expected header:NAME, found no name", path="key_of")

    checked: BoundedCache[bytes | None, str] = BoundedCache(_MAX_SUBJECTS, _checked)

    def subject(_topic: str, _value: Any, _key: Any, headers: Headers) -> str:
        for header, content in reversed(headers):
            if header == name and content:
                return checked[content]
            if header == name:
                break
        raise InterceptorError(
            f"expected a header {name!r} that names the record's subject (key_of), found none, or an empty "
            "one"
        )

    return subject


def _compiled(text: str) -> CompiledExpression:
    try:
        expression = CompiledExpression(text, path="key_of")
    except ConnectConfigError as error:
        raise ConfigError(str(error).removeprefix("key_of: "), path="key_of") from error
    if extra := expression.reads - _VARIABLES:
        raise ConfigError(
            f"expected an expression over {', '.join(sorted(_VARIABLES))}; it reads "
            f"{', '.join(sorted(extra))}",
            path="key_of",
        )
    return expression


def _from_expression(expression: CompiledExpression) -> FindSubject:
    reads_value = "value" in expression.reads
    reads_headers = not expression.reads.isdisjoint({"headers", "all_headers"})

    def subject(topic: str, value: Any, key: Any, headers: Headers) -> str:
        if reads_value and isinstance(value, bytes):
            try:
                value = read_json(value)
            except ValueError:
                raise InterceptorError(
                    "expected a value in JSON, in which key_of finds the record's subject; found other bytes"
                ) from None
        given = ConnectRecord(
            topic,
            key=_text_or_bytes(key),
            value=value if reads_value else None,
            headers=[ConnectHeader(name, None, _text_or_bytes(content)) for name, content in headers]
            if reads_headers
            else None,
        )
        try:
            found = expression.evaluate(given)
        except ConnectDataError as error:
            raise InterceptorError(f"the record's subject cannot be found: {error}") from None
        return _checked(found)

    return subject


def _text_or_bytes(content: Any) -> Any:
    if isinstance(content, bytes):
        try:
            return content.decode()
        except UnicodeDecodeError:
            return content
    return content


def _checked(found: Any) -> str:
    """Return a subject as text; no error shows it."""
    if type(found) is int:
        found = str(found)
    if isinstance(found, str):
        found = found.encode("utf-8", "replace")
    if not isinstance(found, bytes):
        raise InterceptorError(
            f"expected text, bytes or a whole number as the record's subject (key_of), found "
            f"{type(found).__name__}"
        )
    if not 1 <= len(found) <= MAX_SUBJECT_BYTES:
        raise InterceptorError(
            f"expected a subject of 1 to {MAX_SUBJECT_BYTES:,} bytes (key_of), found {len(found):,}"
        )
    try:
        return found.decode()
    except UnicodeDecodeError:
        raise InterceptorError("expected a subject in UTF-8 (key_of), found other bytes") from None
