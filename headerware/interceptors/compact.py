"""Compact: header names become 32-bit ids on the wire, and names again (spec/header-ids.md).

A header's name travels with every record. An id takes one to five bytes of a packed block, which is one
header ``hw.ids`` for all, or two to seven characters as a compact key. The last step on send, and the first
on consume: all others see names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal, get_args

from headerware.core.errors import ConfigError
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.options import path_unless
from headerware.core.topics import TopicPatterns
from headerware.registry.names import NamesSource
from headerware.registry.wire.codec import HEADER, Form, HeaderIdCodec
from headerware.registry.wire.packed_block import FIXED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.core.context import Context
    from headerware.core.record import Record
    from headerware.registry.names import Names

_CLOUD_EVENTS: Final = "ce_"
"""CloudEvents' extensions are anyone's to name, so that no registry can list all of them as foreign."""
_ESCAPE_BYTES: Final = 2
"""A marker, and a second byte for the name's length where it passes 63."""
_PLACE_BYTES: Final = 2
"""What a packed block says of a plain header between others, at most."""
_PATTERN_CHARACTERS: Final = frozenset("*?[!")


def _is_no_path(location: str) -> bool:
    return location == "built-in" or location.startswith(("kafka://", "sqlite:"))


class Compact(Interceptor, frozen=True, kw_only=True):
    """Write ids for header names on send, and names for ids on consume.

    A name that has an id is written as that, and so is the dotted form of an id, unless this makes it longer.
    Names of others (W3C, CloudEvents, Confluent, Connect, and all that the registry calls foreign) stay, for
    others look for them. Consuming understands both forms and plain names, on one record too; an id without a
    name is shown in dotted form, and is the same id when it is sent again.

    A signature covers names: who verifies it needs the names that the signer had.

    Args:
        form: ``packed`` puts all headers that have ids into one; ``keys`` keeps one header for each, which
            every tool can show, and is smaller for up to four of Headerware's own.
        registry: where the ids are registered, as ``headerware registry`` takes it. A file is read once, on
            opening; a topic, ``kafka://host:port/topic``, is followed. None is the process's registry, as
            it stands at each record.
        also: patterns of foreign names that are written as ids all the same; a leading ``!`` excludes.
        never: patterns of names that are never written as ids.

    Raises:
        ConfigError: there is no such form; on opening, a name in ``also`` has no id.
        RegistryError: on opening, the registry cannot be read.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "compact"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.COMPACT
    decodes: ClassVar[tuple[str, ...]] = (HEADER,)
    compacts: ClassVar[bool] = True

    form: Literal["packed", "keys"] = "packed"
    registry: Annotated[str, path_unless(_is_no_path)] | None = None
    also: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an unknown form."""
        if self.form not in get_args(Form):  # in code nothing has checked it yet
            raise ConfigError(
                f"expected one of {', '.join(get_args(Form))}, found {self.form!r}", path="form"
            )

    def open(self, context: Context) -> CompactStep:  # noqa: ARG002 - it needs nothing of the session's
        """Read the registry, and give the hooks for one session.

        Raises:
            ConfigError: a name in ``also`` has no id.
            RegistryError: the registry cannot be read.
        """
        source = NamesSource(self.registry)
        names = source.current()
        for name in self.also:
            if names.id_of(name) is None and not _PATTERN_CHARACTERS & set(name):
                source.close()
                message = f"{name!r} has no id in the registry; register it, or take it off the list"
                raise ConfigError(message, path="also")
        return CompactStep(self, source)


class CompactStep:
    """The hooks of one session.

    Args:
        options: the form, and which names are written.
        source: the names, which may change while the session lasts.
    """

    __slots__ = (
        "_codec",
        "_compacted",
        "_current",
        "_expanded",
        "_fixed_bytes",
        "_names",
        "_options",
        "close",
    )

    def __init__(self, options: Compact, source: NamesSource) -> None:
        self._options = options
        self._current = source.current
        self.close: Callable[[], None] = source.close
        self._names = source.current()
        self._codec = _codec(options, self._names)
        self._fixed_bytes = FIXED_BYTES if options.form == "packed" else 0
        self._compacted = self._expanded = 0

    def on_send(self, record: Record) -> Record:
        """Write ids for names; the record itself where it has none that is written as an id."""
        if self._current() is not self._names:
            self._renew()
        headers = record.headers
        wire = self._codec.encode(headers)
        if wire is headers:
            return record
        self._compacted += 1
        return record.with_headers(wire)

    def on_consume(self, record: Record) -> Record:
        """Write names for ids; the record itself where it has none."""
        if self._current() is not self._names:
            self._renew()
        wire = record.headers
        headers = self._codec.decode(wire)
        if headers is wire:
            return record
        self._expanded += 1
        return record.with_headers(headers)

    def overhead_bytes(self, record: Record) -> int:
        """Return an upper bound of what this adds to a record on the wire, in bytes.

        No id is written that is longer than its name, so that only the block itself, what it says of plain
        headers, and escaped names add to a record.
        """
        return self._fixed_bytes + len(record.headers) * (_ESCAPE_BYTES + _PLACE_BYTES)

    def stats(self) -> dict[str, int]:
        """Count the records that were changed, the bytes of names saved, and headers read by unknown ids."""
        return {
            "compacted": self._compacted,
            "expanded": self._expanded,
            "bytes_saved": self._codec.saved_bytes,
            "unknown_ids": self._codec.unknown_ids,
        }

    def _renew(self) -> None:
        """Take up a registry that has changed; the counts go on."""
        names, before = self._current(), self._codec
        codec = _codec(self._options, names)
        codec.saved_bytes, codec.unknown_ids = before.saved_bytes, before.unknown_ids
        self._codec, self._names = codec, names


def _codec(options: Compact, names: Names) -> HeaderIdCodec:
    return HeaderIdCodec(
        names.id_of,
        names.name_of,
        form=options.form,
        stays=_staying(names.foreign, also=options.also, never=options.never),
    )


def _staying(
    foreign: frozenset[str], *, also: tuple[str, ...], never: tuple[str, ...]
) -> Callable[[str], bool]:
    """Tell which names stay as they are, whether or not they have an id."""
    asked_for = TopicPatterns(also).matches if also else None
    excluded = TopicPatterns(never).matches if never else None

    def stays(name: str) -> bool:
        if excluded is not None and excluded(name):
            return True
        theirs = name in foreign or name.startswith(_CLOUD_EVENTS)
        return theirs and not (asked_for is not None and asked_for(name))

    return stays
