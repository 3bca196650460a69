"""The two functions of a polyglot serde: a dict look-up on the content type's bytes, then the serde's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from headerware.core.errors import SerdeError
from headerware.core.header_ids import header_name
from headerware.serdes.content.headers import ContentTypeContext, header_for, spellings
from headerware.serdes.content.types import WRITTEN, content_type_of
from headerware.serdes.formats.plain import Bytes, Plain
from headerware.serdes.plugins import opened
from headerware.serdes.polyglot.object_types import ObjectTypes

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.headers import Headers
    from headerware.serdes.polyglot.serde import Polyglot
    from headerware.serdes.serde import SerdeContext

    Function = Callable[[str, Headers, Any], tuple[Any, Headers]]

_OWN: Final = frozenset(WRITTEN.values())
_MAX_REMEMBERED: Final = 256
_MAX_REMEMBERED_BYTES: Final = 128


class PolyglotFunctions:
    """The functions for one client, and the serdes behind them.

    Args:
        options: what serves which content type.
        context: the client's surroundings.
    """

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
        self._object_types: Final = ObjectTypes(options.by_type, frozenset(self._serdes))
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
        self._readers: Final[dict[bytes | None, Function]] = {}
        self._writers: Final[dict[bytes | None, Function]] = {}
        self._by_class: Final[dict[type, Function]] = {}

    def serialize(self, topic: str, headers: Headers, value: Any) -> tuple[bytes | None, Headers]:
        """Write an object by the content type that the headers state, or by its own type.

        Raises:
            SerdeError: no serde is there for it, or the serde refuses it.
        """
        if value is None:
            return None, headers
        names = self._names
        for pair in reversed(headers):
            if pair[0] in names:
                stated = pair[1]
                write = self._writers.get(stated) or self._looked_up(stated, "serialize", self._writers)
                return write(topic, headers, value)
        write = self._by_class.get(value.__class__) or self._writer_for(value.__class__)
        return write(topic, headers, value)

    def deserialize(self, topic: str, headers: Headers, payload: bytes | None) -> tuple[Any, Headers]:
        """Read a payload by the content type that the headers state.

        Raises:
            SerdeError: no serde is there for it, or the serde refuses the payload.
        """
        if payload is None:
            return None, headers
        names = self._names
        for pair in reversed(headers):
            if pair[0] in names:
                stated = pair[1]
                read = self._readers.get(stated) or self._looked_up(stated, "deserialize", self._readers)
                return read(topic, headers, payload)
        return self._default(topic, headers, payload)

    def close(self) -> None:
        """Close the serdes that were opened here; an application's own stay open."""
        while self._opened:
            _, functions = self._opened.popitem()
            close = getattr(functions, "close", None)
            if close is not None:
                close()

    def _open(self, serde: Any, context: ContentTypeContext) -> Any:
        """Return a serde's functions; one that serves several content types is opened once."""
        if id(serde) in self._opened:
            return self._opened[id(serde)]
        # Of a format's own content type its serde says more, such as the message or the charset.
        served = {key for key, other in self._serdes.items() if other is serde} - _OWN
        functions = opened(serde, msgspec.structs.replace(context, served=frozenset(served)))
        if functions is not serde:
            self._opened[id(serde)] = functions
        return functions

    def _looked_up(self, stated: bytes | None, what: str, known: dict[bytes | None, Function]) -> Function:
        """Find the function for a content type, and remember it."""
        try:
            functions = content_type_of(stated).choose(self._table)
        except SerdeError:
            if self._unknown == "raise":
                raise
            functions = None
        if functions is None:
            if self._unknown == "raise":
                self._refuse("no serde is there for its content type")
            functions = self._bytes
        function = _function(functions, what)
        if stated is not None and len(stated) <= _MAX_REMEMBERED_BYTES:
            if len(known) >= _MAX_REMEMBERED:
                known.clear()  # a flood of types costs time, but no memory
            known[stated] = function
        return function

    def _writer_for(self, kind: type) -> Function:
        """Find the function for objects of a type, and remember it."""
        content_type = self._object_types.content_type_of(kind)
        if content_type is None:
            self._refuse(
                f"no content type is there for objects of type {kind.__qualname__}; add it to by_type"
            )
        write = self._writer_of(content_type)
        if len(self._by_class) >= _MAX_REMEMBERED:
            self._by_class.clear()
        self._by_class[kind] = write
        return write

    def _writer_of(self, content_type: str) -> Function:
        """Return the function that states a content type, unless the serde does, and lets the serde write."""
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


def _function(functions: Any, what: str) -> Function:
    """Return one of a serde's two functions, or one that says it is missing."""
    found: Function | None = getattr(functions, what, None)
    if found is not None:
        return found

    def missing(topic: str, headers: Headers, value: Any) -> tuple[Any, Headers]:  # noqa: ARG001
        raise SerdeError(f"the serde for its content type cannot {what}")

    return missing
