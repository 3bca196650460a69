"""Polyglot: one topic, many formats; each record's content type chooses its serde.

On send, the application's own content type chooses, or else the object's type. On consume, a record with an
unknown content type is refused, and the step's ``on_error`` decides: with ``dead_letter`` the record leaves
the stream with all its headers.
"""

from __future__ import annotations

import builtins
import importlib
from dataclasses import is_dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NoReturn

import msgspec

from headerware.core.bounded_cache import BoundedCache
from headerware.core.errors import ConfigError, SerdeError
from headerware.core.header_ids import header_name
from headerware.core.options import from_option, kinds
from headerware.serdes.content_types import (
    FORMATS,
    WRITTEN,
    ContentTypeContext,
    content_type_of,
    header_for,
    parse_content_type,
    require_content_type,
    spellings,
)
from headerware.serdes.formats.cbor import Cbor, cbor_is_there
from headerware.serdes.formats.msgpack import MessagePack
from headerware.serdes.formats.plain import Bytes, Json, Plain, Text
from headerware.serdes.plugins import first_unsignable, open_serde, require_serde, serde_type
from headerware.serdes.serde import Serde, SerdeContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.headers import Headers
    from headerware.serdes.serde import SerdeContext

    Function = Callable[[str, Headers, Any], tuple[Any, Headers]]
    from collections.abc import Mapping

_DEFAULTS: Final[dict[str, Serde]] = {
    "json": Json(),
    "msgpack": MessagePack(),
    "text": Text(),
    "bytes": Bytes(),
}
_CBOR: Final = Cbor()
_OWN: Final = frozenset(WRITTEN.values())
_MAX_CACHED: Final = 256
_MAX_CACHED_BYTES: Final = 128

_CLOUD_EVENTS: Final = "application/cloudevents+json"

_BUILT_IN: Final[dict[type, str]] = {
    **dict.fromkeys((bytes, bytearray, memoryview), "application/octet-stream"),
    str: "text/plain",
    **dict.fromkeys((bool, int, float, dict, list, tuple, msgspec.Struct), "application/json"),
}
_WHERE_SERVED: Final = (
    ("protobuf", "google.protobuf.message:Message", "application/protobuf"),
    (_CLOUD_EVENTS, "headerware.serdes.cloudevents.event:CloudEvent", _CLOUD_EVENTS),
)
"""A format or content type; the class of its objects; and the content type by which they are written."""


class Polyglot(Serde, frozen=True, kw_only=True):
    """Choose the serde by content type; on send without a content type, by the object's type.

    A null stays a tombstone, and gets no content type. Safe for use by several threads at once if the serdes
    are, like the built-in serdes.

    Args:
        types: the serde for each content type, without parameters. The serde of a format's own type
            (``application/avro-binary``) also reads the aliases of that type, and types with the format's
            suffix (``+avro``). JSON, MessagePack, text and bytes are built in, and so is CBOR if cbor2 is
            installed (the extra ``cbor``). The content type of CloudEvents chooses events in structured mode,
            because events in binary mode state the content type of their data.
        default: the serde for records without a content type; None is ``bytes``.
        unknown: ``raise`` refuses records of other content types, ``bytes`` returns their bytes.
        header: the name or dotted id of the header with the content type; empty is ``content-type`` for
            values and ``key-content-type`` for keys.
        by_type: the content type for objects of a type and its subtypes, by the type's name (``dict``,
            ``shop.orders:Order``), or in code by the class. Built in are bytes, text, the types that JSON
            can hold, Structs, dataclasses and, if ``types`` has Protobuf, messages.

    Raises:
        ConfigError: a content type is malformed, has parameters where it must not, or has no serde.
    """

    type: ClassVar[str] = "polyglot"

    types: dict[str, Annotated[Any, kinds(serde_type)]] = msgspec.field(default_factory=dict)
    default: Annotated[Any, kinds(serde_type)] = None
    unknown: Literal["raise", "bytes"] = "raise"
    header: str = ""
    by_type: dict[Any, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the serdes that words name, and check the options."""
        if self.unknown not in {"raise", "bytes"}:  # a value from code is not checked yet
            raise ConfigError("expected one of 'raise', 'bytes'", path="unknown")
        types = {key.lower(): _made(serde, f"types.{key}") for key, serde in self.types.items()}
        msgspec.structs.force_setattr(self, "types", types)
        msgspec.structs.force_setattr(self, "default", _made(self.default, "default"))
        for key in types:
            require_content_type(key, path=f"types.{key}")
            if ";" in key or not key:
                raise ConfigError("expected a content type without parameters", path=f"types.{key}")
        table = self.table()
        for kind, content_type in self.by_type.items():
            _require_object_type(kind, path="by_type")
            require_content_type(content_type, path=f"by_type.{kind}")
            if not content_type or parse_content_type(content_type).choose(table) is None:
                raise ConfigError("expected a content type that has a serde", path=f"by_type.{kind}")

    def table(self) -> dict[str, Any]:
        """Return the serdes by content type, and by format for aliases and suffixes."""
        formats: dict[str, Any] = {}
        for essence, serde in self.types.items():
            if essence in FORMATS:
                formats.setdefault(FORMATS[essence], serde)
        installed = {"cbor": _CBOR} if cbor_is_there() else {}
        return {**_DEFAULTS, **installed, **formats, **self.types}

    @property
    def unsignable(self) -> str | None:
        """The reason why the serde cannot be used for signed records, or None if it can."""
        return first_unsignable([*self.types.values(), self.default])

    def open(self, context: SerdeContext) -> PolyglotFunctions:
        """Return the functions for one client, and open the serdes.

        Raises:
            ConfigError: a serde cannot be opened, or a type of ``by_type`` cannot be imported.
        """
        return PolyglotFunctions(self, context)


def _made(serde: Any, path: str) -> Any:
    made = from_option(serde, serde_type, path=path)
    require_serde(made, path=path)
    return made


class PolyglotFunctions:
    __slots__ = (
        "_by_class",
        "_bytes",
        "_default",
        "_name",
        "_names",
        "_object_types",
        "_opened",
        "_readers",
        "_serdes",
        "_table",
        "_unknown",
        "_writers",
    )

    def __init__(self, options: Polyglot, context: SerdeContext) -> None:
        self._name: Final = header_name(options.header) if options.header else header_for(context)
        self._names: Final = spellings(self._name)
        self._unknown: Final = options.unknown
        self._serdes: Final = options.table()
        self._object_types: Final = _ObjectTypes(options.by_type, frozenset(self._serdes))
        self._opened: Final[dict[int, Any]] = {}
        inner = ContentTypeContext(
            part=context.part, side=context.side, signed=context.signed, header=self._name
        )
        self._bytes: Final = Bytes(content_type="").open(inner)
        try:
            self._table: Final = {key: self._open(serde, inner) for key, serde in self._serdes.items()}
            default = self._bytes if options.default is None else self._open(options.default, inner)
        except BaseException:
            self.close()
            raise
        self._default: Final = _function(default, "deserialize")
        self._readers: Final[BoundedCache[bytes | None, Function]] = BoundedCache(
            _MAX_CACHED, partial(self._looked_up, "deserialize"), cost=_is_long
        )
        self._writers: Final[BoundedCache[bytes | None, Function]] = BoundedCache(
            _MAX_CACHED, partial(self._looked_up, "serialize"), cost=_is_long
        )
        self._by_class: Final[BoundedCache[type, Function]] = BoundedCache(_MAX_CACHED, self._writer_for)

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Write an object by the content type that the headers state, or by its own type."""
        if value is None:
            return None, headers
        names = self._names
        for pair in reversed(headers):
            if pair[0] in names:
                return self._writers[pair[1]](topic, headers, value)
        return self._by_class[value.__class__](topic, headers, value)

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read a payload by the content type that the headers state."""
        if payload is None:
            return None, headers
        names = self._names
        for pair in reversed(headers):
            if pair[0] in names:
                return self._readers[pair[1]](topic, headers, payload)
        return self._default(topic, headers, payload)

    def close(self) -> None:
        """Close the serdes that were opened here; the application's own serdes stay open."""
        while self._opened:
            _, functions = self._opened.popitem()
            close = getattr(functions, "close", None)
            if close is not None:
                close()

    def _open(self, serde: Any, context: ContentTypeContext) -> Any:
        """Return a serde's functions; a serde for several content types is opened once."""
        if id(serde) in self._opened:
            return self._opened[id(serde)]
        # A format's own content type is left out, because the serde states more: a message or a charset.
        served = {key for key, other in self._serdes.items() if other is serde} - _OWN
        functions = open_serde(serde, msgspec.structs.replace(context, served=frozenset(served)))
        if functions is not serde:
            self._opened[id(serde)] = functions
        return functions

    def _looked_up(self, what: str, stated: bytes | None) -> Function:
        """Return the function for a content type."""
        try:
            functions = content_type_of(stated).choose(self._table)
        except SerdeError:
            if self._unknown == "raise":
                raise
            functions = None
        if functions is None:
            if self._unknown == "raise":
                self._refuse("there is no serde for its content type")
            functions = self._bytes
        return _function(functions, what)

    def _writer_for(self, kind: type) -> Function:
        """Return the function for objects of a type."""
        content_type = self._object_types.content_type_of(kind)
        if content_type is None:
            self._refuse(
                f"there is no content type for objects of type {kind.__qualname__}; add it to by_type"
            )
        return self._writer_of(content_type)

    def _writer_of(self, content_type: str) -> Function:
        """Return the function that writes by a content type, and states it unless the serde does."""
        read = content_type_of(content_type.encode())
        serde, functions = read.choose(self._serdes), read.choose(self._table)
        serialize = _function(functions, "serialize")
        if isinstance(serde, Plain) and serde.stated() and content_type == WRITTEN.get(read.format or ""):
            return serialize
        pair = (self._name, content_type.encode())

        def write(topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
            return serialize(topic, headers.append(pair), value)

        return write

    def _refuse(self, problem: str) -> NoReturn:
        known = ", ".join(sorted({WRITTEN.get(key, key) for key in self._serdes}))
        raise SerdeError(f"{problem}; there are: {known}")


def _is_long(stated: bytes | None, _: object) -> bool:
    """Return whether a content type is too long to be cached: a flood of them must not displace others."""
    return stated is None or len(stated) > _MAX_CACHED_BYTES


def _function(functions: Any, what: str) -> Function:
    """Return one of a serde's two functions, or a function that raises because it is missing."""
    found: Function | None = getattr(functions, what, None)
    if found is not None:
        return found

    def missing(topic: str, headers: Headers, value: Any) -> tuple[Any, Headers]:  # noqa: ARG001
        raise SerdeError(f"the serde for its content type cannot {what}")

    return missing


class _ObjectTypes:
    __slots__ = ("_content_types",)

    def __init__(self, by_type: Mapping[Any, str], served: frozenset[str]) -> None:
        extra = {_imported(name): written for form, name, written in _WHERE_SERVED if form in served}
        named = {_imported(kind): content_type for kind, content_type in by_type.items()}
        self._content_types: Final = {**_BUILT_IN, **extra, **named}

    def content_type_of(self, kind: type) -> str | None:
        """Return the content type of a type's nearest ancestor, or None."""
        for ancestor in kind.__mro__:
            found = self._content_types.get(ancestor)
            if found is not None:
                return found
        return self._content_types[dict] if is_dataclass(kind) else None


def _require_object_type(kind: object, *, path: str) -> None:
    if not isinstance(kind, type) and not (isinstance(kind, str) and kind):
        raise ConfigError(f"expected a class or its name, found {type(kind).__name__}", path=path)


def _imported(kind: Any) -> type:
    """Return the class with a name such as ``dict``, ``builtins.dict`` or ``module:Class``."""
    if isinstance(kind, type):
        return kind
    module, _, name = kind.partition(":") if ":" in kind else kind.rpartition(".")
    try:
        home = importlib.import_module(module) if module else builtins
        found = attrgetter(name)(home)
    except Exception as error:  # the module may raise any error
        raise ConfigError(f"cannot be imported: {error}", path=f"by_type.{kind}") from error
    if not isinstance(found, type):
        raise ConfigError(f"expected a class, found {type(found).__name__}", path=f"by_type.{kind}")
    return found
