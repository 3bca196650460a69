"""The JSON event format of CloudEvents 1.0.2: a whole event as one JSON object.

The data stands in ``data``, as JSON or as text, or in ``data_base64``; its own content type says which.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from headerware.core.errors import SerdeError
from headerware.serdes.cloudevents.event import attribute_text
from headerware.serdes.content.types import codec_of, content_type_of, parse_content_type
from headerware.serdes.formats.refusals import REFUSALS, cannot_read

if TYPE_CHECKING:
    from headerware.serdes.cloudevents.event import CloudEvent

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode
_members: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_syntax: Final = msgspec.json.Decoder(msgspec.Raw).decode


_NON_ASCII: Final = re.compile(r"[^\x00-\x7f]")


class JsonData(NamedTuple):
    """Data as it stands in the ``data`` member."""

    raw: bytes


def write_event(event: CloudEvent, payload: bytes | None, content_type: bytes | None) -> bytes:
    """Write an event.

    Args:
        event: the event.
        payload: its data, encoded.
        content_type: what the data was encoded as.
    """
    members = event.attributes()
    members.pop("datacontenttype", None)
    for name, value in members.items():
        members[name] = value if isinstance(value, bool | int) else attribute_text(value)
    if content_type is not None:
        members["datacontenttype"] = content_type.decode()
    if payload is not None:
        members.update(_data_member(event, payload, content_type))
    return _encode(members)


def read_event(payload: bytes, codec: str) -> tuple[dict[str, Any], JsonData | bytes | None]:
    """Read an event, and give its attributes and its data.

    Args:
        payload: the JSON object.
        codec: Python's codec for its charset.

    Raises:
        SerdeError: it is no JSON object, an attribute is an object, an array or no whole number, or the
            data is there twice or no Base64.
    """
    try:
        members = _members(payload if codec == "utf-8" else payload.decode(codec))
        data, base64 = members.pop("data", None), members.pop("data_base64", None)
        attributes = {name: _decode(raw) for name, raw in members.items()}
        encoded = None if base64 is None else _decode(base64)
    except REFUSALS as error:
        raise cannot_read("a CloudEvent as a JSON object", payload, error) from None
    if any(isinstance(value, dict | list | float) for value in attributes.values()):
        raise SerdeError(
            "expected attributes of text, whole numbers and booleans in a CloudEvent, found another"
        )
    if encoded is None:
        return attributes, None if data is None or bytes(data) == b"null" else JsonData(bytes(data))
    if data is not None:
        raise SerdeError("expected data or data_base64 in a CloudEvent, found both")
    return attributes, _base64(encoded)


def encoded_data(data: JsonData | bytes | None, content_type: str | None) -> Any:
    """Return data as the bytes that its own serde reads, or, where JSON holds it as it is, as the object."""
    if not isinstance(data, JsonData) or content_type is None:
        return data
    read = parse_content_type(content_type)
    try:
        if read.format == "json":
            return _in_charset(data.raw, codec_of(read.charset or "utf-8"))
        value = _decode(data.raw)
        return value.encode(codec_of(read.charset or "utf-8")) if isinstance(value, str) else value
    except REFUSALS as error:
        raise cannot_read("a CloudEvent's data", data.raw, error) from None


def _in_charset(raw: bytes, codec: str) -> bytes:
    """Return JSON in the charset that its content type states, with escapes for what that may not have."""
    if codec == "utf-8":
        return raw
    return _NON_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], raw.decode()).encode(codec)


def _data_member(event: CloudEvent, payload: bytes, content_type: bytes | None) -> dict[str, Any]:
    """Return data as the member that fits its content type; bytes of the application's stay bytes."""
    read = None if content_type is None else content_type_of(content_type)
    if read is None or isinstance(event.data, bytes | bytearray | memoryview):
        return {"data_base64": payload}
    try:
        if read.format == "json":
            payload.decode()  # the look at the syntax passes over what strings hold
            return {"data": _syntax(payload)}
        if read.format == "text":
            return {"data": payload.decode(codec_of(read.charset or "utf-8"))}
    except (*REFUSALS, SerdeError):  # framed, as a schema registry's serializers do: not what it is called
        pass
    return {"data_base64": payload}


def _base64(encoded: object) -> bytes:
    try:
        return b64decode(encoded, validate=True)  # type: ignore[arg-type]  # of another type: TypeError
    except (binascii.Error, ValueError, TypeError):
        raise SerdeError("expected Base64 as data_base64 of a CloudEvent, found something else") from None
