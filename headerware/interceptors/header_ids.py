"""HeaderIds: header names become 32-bit ids on send, and names again on consume (spec/header-ids.md).

A header's name is sent with every record. Its id takes one to five bytes of a packed block, which is one
header ``hw.ids`` for all, or two to seven characters as a compact key. This is the last step on send and the
first on consume, so all other steps see names, and a signature covers names. Records need no flag: a name on
the wire that is not an id is a plain name.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, get_args

from headerware.core.errors import ConfigError, of_file
from headerware.core.hooks import Interceptor, Place, Role
from headerware.core.native import NativeForm, NativeState
from headerware.core.options import path_unless
from headerware.core.topics import TopicPatterns
from headerware.registry.names import NamesSource
from headerware.registry.wire.codec import HEADER, Form, HeaderIdCodec
from headerware.registry.wire.packed_block import FIXED_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headerware.core.batch import Batch
    from headerware.core.context import Context
    from headerware.core.headers import Headers
    from headerware.core.record import Record
    from headerware.core.services import Direction
    from headerware.registry.names import Names

_CLOUD_EVENTS: Final = "ce_"
"""Anyone can name an extension of CloudEvents, so no registry can list all of them as foreign."""
_ESCAPE_BYTES: Final = 2
"""A marker, and the second byte of a name's length above 63."""
_PLAIN_BYTES: Final = 2
"""The largest number of bytes that a packed block adds for a plain header between others."""
_PATTERN_CHARACTERS: Final = frozenset("*?!")


def is_no_path(location: str) -> bool:
    """Return whether the location of a registry is no path of a file."""
    return location == "built-in" or location.startswith("kafka://")


class HeaderIds(Interceptor, frozen=True, kw_only=True):
    """Write header names as ids on send, and ids as names on consume.

    A name that has an id is written as the id, and so is the dotted form of an id, unless the id is longer.
    Foreign names (of W3C, CloudEvents, Confluent and Connect, and others that the registry calls foreign) are
    kept, because other software looks for them. On consume both forms and plain names are understood, even on
    one record. An id without a name is shown in dotted form, and is the same id when it is sent again.

    A signature covers names, so a verifier needs the same names as the signer.

    Args:
        form: ``packed`` puts all headers that have ids into one header; ``keys`` keeps one header for each,
            which every tool can show, and which is smaller for up to four of Headerware's own.
        registry: where the ids are registered, as ``headerware header-ids`` takes it. A file is read once, on
            opening; a topic, ``kafka://host:port/topic``, is followed. ``built-in`` is Headerware's own
            registry. None is the registry of the process, with all its changes.
        also: patterns of foreign names that are written as ids, too; a leading ``!`` excludes.
        never: patterns of names that are never written as ids.

    Raises:
        ConfigError: there is no such form; on opening, a name in ``also`` has no id.
        RegistryError: on opening, the registry cannot be read.

    Safe for use by several threads at once.
    """

    type: ClassVar[str] = "header_ids"
    role: ClassVar[Role] = Role.TRANSFORM
    place: ClassVar[Place | None] = Place.HEADER_IDS
    decodes: ClassVar[tuple[str, ...]] = (HEADER,)
    writes_ids: ClassVar[bool] = True

    form: Literal["packed", "keys"] = "packed"
    registry: Annotated[str, path_unless(is_no_path)] | None = None
    also: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an unknown form."""
        if self.form not in get_args(Form):  # options from code are not checked before
            raise ConfigError(
                f"expected one of {', '.join(get_args(Form))}, found {self.form!r}", path="form"
            )

    def check_files(self) -> None:
        """Read the registry if it is a file."""
        if self.registry is not None and not is_no_path(self.registry):
            with of_file("registry"):
                NamesSource(self.registry).close()

    def open(self, context: Context) -> HeaderIdsStep:  # noqa: ARG002 - the codec needs no context
        """Read the registry, and return the hooks for one session.

        Raises:
            ConfigError: a name in ``also`` has no id.
            RegistryError: the registry cannot be read.
        """
        with of_file("registry"):
            source = NamesSource(self.registry)
        names = source.current()
        for name in self.also:
            if names.id_of(name) is None and not _PATTERN_CHARACTERS & set(name):
                source.close()
                message = f"{name!r} has no id in the registry; register it, or remove it from the list"
                raise ConfigError(message, path="also")
        return HeaderIdsStep(self, source)


class HeaderIdsStep:
    """The hooks of one session; the names of the source may change while it lasts."""

    __slots__ = (
        "_codec",
        "_current",
        "_decoded",
        "_encoded",
        "_fixed_bytes",
        "_names",
        "_options",
        "close",
    )

    def __init__(self, options: HeaderIds, source: NamesSource) -> None:
        self._options = options
        self._current = source.current
        self.close: Callable[[], None] = source.close
        self._names = source.current()
        self._codec = _codec(options, self._names)
        self._fixed_bytes = FIXED_BYTES if options.form == "packed" else 0
        self._encoded = self._decoded = 0

    def on_send(self, record: Record) -> Record:
        """Write names as ids; return the record itself if none of its names becomes an id."""
        made = self._encode(record.headers)
        return record if made is None else record.with_headers(*made)

    def on_send_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_send` for each record."""
        return batch.remake(("headers",), self._encode, batch.headers)

    def on_consume(self, record: Record) -> Record:
        """Write ids as names; return the record itself if it has no ids."""
        made = self._decode(record.headers)
        return record if made is None else record.with_headers(*made)

    def on_consume_batch(self, batch: Batch) -> Batch:
        """Do as :meth:`on_consume` for each record."""
        return batch.remake(("headers",), self._decode, batch.headers)

    def _encode(self, headers: Headers) -> tuple[Headers] | None:
        if self._current() is not self._names:
            self._renew()
        wire = self._codec.encode(headers)
        if wire is headers:
            return None
        self._encoded += 1
        return (wire,)

    def _decode(self, wire: Headers) -> tuple[Headers] | None:
        if self._current() is not self._names:
            self._renew()
        headers = self._codec.decode(wire)
        if headers is wire:
            return None
        self._decoded += 1
        return (headers,)

    def native_form(self, direction: Direction, topic: str) -> NativeForm | None:  # noqa: ARG002 - a hook
        """Return the native form of a batch hook, unless patterns keep names that no registry lists."""
        if self._options.never:
            return None
        sends = direction == "send"

        def arguments(names: Names) -> tuple[Any, ...]:
            stays = _stays(names.foreign, also=self._options.also, never=())
            entries = [
                (each, name, names.id_of(name) == each and not stays(name)) for each, name in names.items()
            ]
            return self._options.form == "packed", entries

        def note(_batch: Batch, _not_taken: Sequence[int], facts: tuple[int, int]) -> None:
            if sends:
                self._encoded += facts[0]
                self._codec.saved_bytes += facts[1]
            else:
                self._decoded += facts[0]
                self._codec.unknown_ids += facts[1]

        def state(_batch: Batch) -> NativeState:
            if self._current() is not self._names:
                self._renew()
            names = self._names
            return NativeState(
                "write_ids" if sends else "read_ids", names, partial(arguments, names), note=note
            )

        return NativeForm(state, pays=True)

    def overhead_bytes(self, record: Record) -> int:
        """Return an upper bound of the bytes that this step adds to a record on the wire.

        An id is never longer than its name. So only the block itself, its bytes for plain headers, and
        escaped names add to a record.
        """
        return self._fixed_bytes + len(record.headers) * (_ESCAPE_BYTES + _PLAIN_BYTES)

    def stats(self) -> dict[str, int]:
        """Return the counts of changed records, of saved bytes, and of headers with unknown ids."""
        return {
            "encoded": self._encoded,
            "decoded": self._decoded,
            "bytes_saved": self._codec.saved_bytes,
            "unknown_ids": self._codec.unknown_ids,
        }

    def _renew(self) -> None:
        """Use the names of a registry that has changed; the counts continue."""
        names, before = self._current(), self._codec
        codec = _codec(self._options, names)
        codec.saved_bytes, codec.unknown_ids = before.saved_bytes, before.unknown_ids
        self._codec, self._names = codec, names


def _codec(options: HeaderIds, names: Names) -> HeaderIdCodec:
    return HeaderIdCodec(
        names.id_of,
        names.name_of,
        form=options.form,
        stays=_stays(names.foreign, also=options.also, never=options.never),
    )


def _stays(
    foreign: frozenset[str], *, also: tuple[str, ...], never: tuple[str, ...]
) -> Callable[[str], bool]:
    """Return a function that returns whether a name is kept even if it has an id."""
    asked_for = TopicPatterns(also).matches if also else None
    excluded = TopicPatterns(never).matches if never else None

    def stays(name: str) -> bool:
        if excluded is not None and excluded(name):
            return True
        theirs = name in foreign or name.startswith(_CLOUD_EVENTS)
        return theirs and not (asked_for is not None and asked_for(name))

    return stays
