"""CloudEvent: one event and its attributes, with the rules of CloudEvents 1.0.2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from headerware.core.errors import SerdeError
from headerware.serdes.content_types import parse_content_type

SPECVERSION: Final = "1.0"
REQUIRED: Final = ("specversion", "id", "source", "type")
OPTIONAL: Final = ("datacontenttype", "dataschema", "subject", "time")
_RESERVED: Final = frozenset((*REQUIRED, *OPTIONAL, "data"))
_MAX_INTEGER: Final = 2**31 - 1
_MIN_INTEGER: Final = -(2**31)

_NAME: Final = re.compile(r"[a-z0-9]+")
_REFERENCE: Final = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:.")
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

Extension = str | bool | int | bytes | datetime
"""The types of an extension attribute; it is always read as text."""


class CloudEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Hold an event: its attributes and its data (CloudEvents 1.0.2).

    Args:
        id: the event's id, unique within its source.
        source: the event's origin, a URI reference.
        type: the kind of event, such as ``com.example.order.placed``.
        specversion: always ``1.0``.
        datacontenttype: the content type of the data; None lets the data's own type decide.
        dataschema: the URI of the data's schema.
        subject: the subject of the event within the source.
        time: the time of the event, with a time zone.
        data: the data: an object for the serde of its content type, bytes that are already encoded, or None.
        extensions: further attributes by name; names have lower-case letters and digits.

    Raises:
        SerdeError: CloudEvents does not allow an attribute; the text has its name, not its value.
    """

    id: str
    source: str
    type: str
    specversion: str = SPECVERSION
    datacontenttype: str | None = None
    dataschema: str | None = None
    subject: str | None = None
    time: datetime | None = None
    data: Any = None
    extensions: Mapping[str, Extension] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the attributes."""
        for name in (*REQUIRED, "datacontenttype", "dataschema", "subject"):
            value = getattr(self, name)
            if value is not None or name in REQUIRED:
                _require_text(name, value)
        if self.specversion != SPECVERSION:
            raise SerdeError(f"expected a CloudEvent of specversion {SPECVERSION}, found another")
        _require(_REFERENCE.fullmatch(self.source), "source", "a URI reference")
        if self.dataschema is not None:
            absolute = _REFERENCE.fullmatch(self.dataschema) and _SCHEME.match(self.dataschema)
            _require(absolute, "dataschema", "a URI with its scheme")
        if self.datacontenttype is not None:
            _require_content_type(self.datacontenttype)
        if self.time is not None:
            _require_time("time", self.time)
        for name, value in self.extensions.items():
            _require_extension(name, value)

    @classmethod
    def of(cls, attributes: Mapping[str, Any], data: Any = None) -> CloudEvent:
        """Make an event from its attributes and its data.

        Args:
            attributes: the attributes by name, as text or as the types of CloudEvents; None is no attribute.
            data: the event's data.

        Raises:
            SerdeError: a required attribute is missing, or an attribute is not allowed.
        """
        given = {name: value for name, value in attributes.items() if value is not None}
        missing = [name for name in REQUIRED if name not in given]
        if missing:
            raise SerdeError(f"expected a CloudEvent, found none of its required {', '.join(missing)}")
        if "data" in given:
            raise SerdeError("expected the attributes of a CloudEvent, found one called data")
        if isinstance(given.get("time"), str):
            given["time"] = parse_time(given["time"])
        core = {name: given.pop(name) for name in (*REQUIRED, *OPTIONAL) if name in given}
        return cls(**core, data=data, extensions=given)

    def attributes(self) -> dict[str, Any]:
        """Return the attributes by name, without attributes that are None.

        The official SDK makes its own event from them: ``CloudEvent(event.attributes(), event.data)``.
        """
        core = {name: getattr(self, name) for name in (*REQUIRED, *OPTIONAL)}
        return {**{name: value for name, value in core.items() if value is not None}, **self.extensions}

    @property
    def key(self) -> str | None:
        """The ``partitionkey`` extension, for the record's key, or None if there is none.

        A value's serde does not see the key, so the application passes it: ``key=event.key``.
        """
        found = self.extensions.get("partitionkey")
        return None if found is None else attribute_text(found)


def parse_time(text: str) -> datetime:
    """Read a time as RFC 3339 writes it; a fraction keeps six digits."""
    if _TIME.fullmatch(text):
        try:
            return datetime.fromisoformat(text.upper())
        except ValueError:
            pass
    raise SerdeError("expected a time as RFC 3339 writes it in a CloudEvent, found something else")


def attribute_text(value: Extension) -> str:
    """Write an attribute as the canonical string of CloudEvents."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, bytes):
        return msgspec.to_builtins(value)  # type: ignore[no-any-return]  # Base64, as CloudEvents has it
    offset = value.utcoffset()
    # RFC 3339 has no seconds in an offset.
    shown = value if offset is None or not offset.seconds % 60 else value.astimezone(UTC)
    return shown.isoformat().replace("+00:00", "Z")


def _require(holds: object, name: str, expected: str) -> None:
    if not holds:
        raise SerdeError(f"expected {expected} as {name} of a CloudEvent, found something else")


def _require_text(name: str, value: object) -> None:
    _require(
        isinstance(value, str) and value and not _CONTROL.search(value),
        name,
        "text without control characters",
    )


def _require_content_type(text: str) -> None:
    try:
        parse_content_type(text)
    except SerdeError:
        _require(None, "datacontenttype", "a content type")


def _require_time(name: str, value: object) -> None:
    aware = isinstance(value, datetime) and value.utcoffset() is not None
    _require(aware, name, "a datetime with a time zone")


def _require_extension(name: object, value: object) -> None:
    if not (isinstance(name, str) and _NAME.fullmatch(name)) or name in _RESERVED:
        raise SerdeError(
            "expected extensions of a CloudEvent named by small letters and digits, found another"
        )
    if isinstance(value, str):
        _require(not _CONTROL.search(value), name, "text without control characters")
    elif isinstance(value, datetime):
        _require_time(name, value)
    elif isinstance(value, int) and not isinstance(value, bool):
        _require(_MIN_INTEGER <= value <= _MAX_INTEGER, name, "an integer of 32 bits")
    else:
        _require(isinstance(value, bool | bytes), name, "text, a boolean, an integer, bytes or a datetime")
