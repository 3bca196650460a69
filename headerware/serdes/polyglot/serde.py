"""Polyglot: one topic, many formats; each record's content type chooses its serde.

On the way out an application's own content type chooses, or else the object's type does. A record of a
type that nobody reads is refused, and goes where the step's ``on_error`` says: with ``dead_letter`` it
leaves the stream with all its headers.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from headerware.core.errors import ConfigError
from headerware.core.options import from_option, kinds
from headerware.serdes.content.headers import require_content_type
from headerware.serdes.content.types import FORMATS, parse_content_type
from headerware.serdes.formats.cbor_codec import cbor_is_there
from headerware.serdes.formats.plain import Bytes, Cbor, Json, MessagePack, Text
from headerware.serdes.plugins import first_unsignable, require_serde, serde_type
from headerware.serdes.polyglot.functions import PolyglotFunctions
from headerware.serdes.polyglot.object_types import require_object_type
from headerware.serdes.serde import Serde, SerdeContext

_DEFAULTS: Final[dict[str, Serde]] = {
    "json": Json(),
    "msgpack": MessagePack(),
    "text": Text(),
    "bytes": Bytes(),
}
_CBOR: Final = Cbor()


class Polyglot(Serde, frozen=True, kw_only=True):
    """Choose the serde by content type, and on send without one by the object's type.

    Args:
        types: the serde for each content type, without parameters. It also reads the type's aliases,
            and, where it is a format's own type (``application/avro-binary``), types with the format's
            suffix (``+avro``). JSON, MessagePack, text, bytes, and CBOR where cbor2 is installed
            (the extra ``cbor``), are there by themselves. CloudEvents are for structured mode
            here, for those in binary mode state the content type of their data.
        default: the serde for records without a content type; None is ``bytes``.
        unknown: ``raise`` refuses records of other content types, ``bytes`` gives their bytes.
        header: the name or dotted id of the header with the content type; empty is ``content-type`` for
            values and ``key-content-type`` for keys.
        by_type: the content type for objects of a type and its subtypes: the type's name (``dict``,
            ``shop.orders:Order``), or in code the class. Bytes, text, what JSON can hold, Structs,
            dataclasses and, where ``types`` has Protobuf, messages are there by themselves.

    Raises:
        ConfigError: a content type is malformed, has parameters where it must not, or has no serde.

    A null goes through as a tombstone, without a content type. Safe for use by several threads at once
    where the serdes are; ours are.
    """

    type: ClassVar[str] = "polyglot"

    types: dict[str, Annotated[Any, kinds(serde_type)]] = msgspec.field(default_factory=dict)
    default: Annotated[Any, kinds(serde_type)] = None
    unknown: Literal["raise", "bytes"] = "raise"
    header: str = ""
    by_type: dict[Any, str] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the serdes that are named by words, and refuse what cannot work."""
        if self.unknown not in {"raise", "bytes"}:  # in code nothing has checked it yet
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
            require_object_type(kind, path="by_type")
            require_content_type(content_type, path=f"by_type.{kind}")
            if not content_type or parse_content_type(content_type).choose(table) is None:
                raise ConfigError("expected a content type that a serde is there for", path=f"by_type.{kind}")

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
        """Why it cannot be used where records are signed; None where it can."""
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
