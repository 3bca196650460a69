"""Protobuf: plain messages, without the framing of a schema registry.

The content type names the message, as ``application/protobuf; proto=shop.Order``, because the bytes of one
message can often be read as another. A payload whose content type names another message is refused.
"""

from __future__ import annotations

import importlib
import re
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from headerware.core.errors import ConfigError, SerdeError
from headerware.core.extras import install_command
from headerware.serdes.content_types import ContentTypeHeader, content_type_of, require_content_type
from headerware.serdes.serde import Serde, SerdeContext

if TYPE_CHECKING:
    from headerware.core.headers import Headers

_NAMES: Final = ("proto", "messagetype")
"""The parameters that name a message: ours and Google's, and Spring's."""
_WITHOUT_COLON: Final = re.compile(r"((?:\w+\.)*?(?:\w+_pb2|[a-z_]\w*))\.([A-Z]\w*(?:\.\w+)*)")
"""The name of a class after a dot. Modules that protoc makes end in ``_pb2``; others are in lower case."""


class Protobuf(Serde, frozen=True, kw_only=True):
    """Write and read plain Protobuf messages of one type; keys have one form only.

    Safe for use by several threads at once.

    Args:
        message: the generated class, as ``package.module_pb2:Message``, or ``...:Message.Inner`` for a
            nested message; in code also the class itself.
        content_type: the content type to state in place of ``application/protobuf; proto=...``; empty for
            none.

    Raises:
        ConfigError: ``message`` has another form, or ``content_type`` is not a content type. :meth:`open`
            raises it if the class cannot be imported.
    """

    type: ClassVar[str] = "protobuf"

    message: Any
    content_type: str | None = None

    def __post_init__(self) -> None:
        """Check the options."""
        require_content_type(self.content_type)
        require_message(self.message)

    def open(self, context: SerdeContext) -> ProtobufFunctions:
        """Return the functions for one client.

        Raises:
            ConfigError: the class cannot be imported, or is not a message's class.
        """
        return ProtobufFunctions(message_class(self.message), context, self.content_type)


class ProtobufFunctions:
    __slots__ = ("_class", "_deterministic", "_header", "_name", "_refusals")

    def __init__(self, message: Any, context: SerdeContext, content_type: str | None) -> None:
        runtime = _message_runtime()
        self._class: Final = message
        self._name: Final[str] = message.DESCRIPTOR.full_name
        own = f"application/protobuf; proto={self._name}" if content_type is None else content_type
        self._header: Final = ContentTypeHeader(context, own)
        self._deterministic: Final = context.part == "key"
        self._refusals: Final = (runtime.DecodeError, runtime.EncodeError, ValueError, RecursionError)

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:  # noqa: ARG002
        """Write a message, and state its content type."""
        if value is None:
            return None, headers
        if not isinstance(value, self._class):
            raise SerdeError(f"expected a message {self._name}, found {type(value).__qualname__}")
        try:
            payload = value.SerializeToString(deterministic=self._deterministic)
        except self._refusals:
            raise SerdeError(
                f"cannot write {self._name}: a required field is missing, or it nests too deep"
            ) from None
        return payload, self._header.state(headers)

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:  # noqa: ARG002
        if payload is None:
            return None, headers
        self._require_name(headers)
        try:
            message = self._class.FromString(payload)
        except self._refusals:
            raise SerdeError(
                f"expected {self._name}, but the payload of {len(payload)} bytes is corrupt"
            ) from None
        if not message.IsInitialized():
            raise SerdeError(f"expected {self._name}, but required fields are missing")
        return message, headers

    def _require_name(self, headers: Headers) -> None:
        """Refuse a payload whose content type names another message or encoding."""
        stated = self._header.stated(headers)
        if stated is None:
            return
        read = content_type_of(stated)
        if read.format != "protobuf":
            return
        for name in _NAMES:
            if read.parameters.get(name, self._name) != self._name:
                raise SerdeError(f"expected {self._name}, but the content type names another message")
        if read.parameters.get("encoding", "binary").lower() != "binary":
            raise SerdeError("expected binary Protobuf, but the content type names another encoding")


type_of: Final = type


def _message_runtime() -> Any:
    """Return Protobuf's module of messages and errors."""
    try:
        return importlib.import_module("google.protobuf.message")
    except ImportError:
        raise ConfigError(f"Protobuf needs the package protobuf: {install_command('protobuf')}") from None


def require_message(given: Any) -> None:
    """Raise ConfigError unless an option is a class, or has the form of a class's name."""
    if isinstance(given, type_of) or (isinstance(given, str) and given.count(":") == 1):
        return
    found = repr(given) if isinstance(given, str) else f"an object of type {type_of(given).__name__}"
    if isinstance(given, str) and (dotted := _WITHOUT_COLON.fullmatch(given)):
        found += f"; write {dotted[1]}:{dotted[2]}"
    raise ConfigError(f'expected "package.module_pb2:Message" or its class, found {found}', path="message")


def message_class(given: Any) -> Any:
    """Return the class that an option names."""
    runtime = _message_runtime()
    if isinstance(given, str):
        module, _, name = given.partition(":")
        try:
            given = attrgetter(name)(importlib.import_module(module))
        except Exception as error:  # the module may raise any error, such as Protobuf's VersionError
            raise ConfigError(f"{given!r} cannot be imported: {error}", path="message") from error
    if not (isinstance(given, type_of) and issubclass(given, runtime.Message)):
        raise ConfigError("expected the class of a message, found another object", path="message")
    return given
