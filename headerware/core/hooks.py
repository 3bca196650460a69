"""Interceptors: their hooks, their options, their place in a chain, and what a hook may return.

An interceptor is one concern in both directions. It has those of these hooks that it needs:

    on_send(record)                  -> Record | DROP | iterable of Records
    on_consume(record)               -> Record | DROP | iterable of Records
    on_send_batch(batch)             -> the batch, with changed columns (headerware.core.batch)
    on_consume_batch(batch)          -> the batch, with changed columns
    on_acknowledgement(record, metadata, error)   once per record that the application sent
    on_processed(record, error)      the application has finished with this record
    on_commit(offsets)               offsets were committed

Returning None is an error, because a forgotten ``return`` must not lose a record. If a hook returns several
records (fan-out), each goes on as a record of its own. If it returns an empty list, it keeps the record for
later. If it raises, its ``on_error`` says what happens.

Sending hooks run on whichever thread sends, several at once; consuming hooks have one caller at a time.
Acknowledgements come on the thread that polls, and may overtake one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from headerware.core.record import Record
from headerware.core.typed_options import TypedOptions

if TYPE_CHECKING:
    from headerware.core.context import Context

HOOKS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "on_send": ("record",),
        "on_consume": ("record",),
        "on_send_batch": ("batch",),
        "on_consume_batch": ("batch",),
        "on_acknowledgement": ("record", "metadata", "error"),
        "on_processed": ("record", "error"),
        "on_commit": ("offsets",),
    }
)
"""Each hook with the arguments that it is called with."""
DeadLetterHeaders = Literal["connect", "spring", "headerware"]
"""The dialect of the header names of a dead letter's reason."""
DeadLetterUnavailable = Literal["hold", "refuse"]
"""What happens to a record whose dead letter cannot be stored."""
OnError = Literal["raise", "skip", "drop", "dead_letter"]


class _Drop(Enum):
    """The type of :data:`DROP`; an enumeration, so that type checkers tell it from records."""

    DROP = "DROP"

    def __repr__(self) -> str:
        return "DROP"


DROP: Final = _Drop.DROP
"""Returned by a hook to take a record out of the stream on purpose."""


class Stage(Enum):
    """Whether a hook sees objects, before they are serialized, or bytes."""

    OBJECTS = "objects"
    """On send before the serializer, on consume after the deserializer."""
    BYTES = "bytes"
    """On send after the serializer, on consume before the deserializer; the default."""


class Role(Enum):
    """The purpose of an interceptor; it decides which failures may be skipped."""

    OBSERVE = "observe"
    """It only looks at records. A failure is skipped unless ``on_error`` says otherwise."""
    TRANSFORM = "transform"
    """It may change records; the default. A failure is raised unless ``on_error`` says otherwise. ``skip`` is
    refused if the interceptor decodes records on consume."""
    PROTECT = "protect"
    """It protects records, as a signature does. A failure is raised unless ``on_error`` says otherwise, and
    ``skip`` is refused."""


class Place(IntEnum):
    """The positions in a chain, left to right on send.

    Some are for plug-ins only; a plug-in may take any.
    """

    TRANSFORM = 10
    SERIALIZE = 20
    SCHEMA = 25
    CONTRACT = 27
    METRICS = 30
    AUDIT = 40
    TRAIL = 50
    TRACE = 60
    DEDUP = 70
    COMPRESS = 80
    ENCRYPT = 90
    CLAIM_CHECK = 100
    EXPIRE = 110
    SLICE = 120
    ADMISSION = 125
    SIGN = 130
    HEADER_IDS = 150


class FanOut:
    """Several records made from one, each made when it is taken.

    Args:
        count: how many records there will be.
        records: called for each pass over them.
        size_bytes: how many bytes they take on the wire together, as far as it is known.
        whole: the record that they are made from; the session sets it.
    """

    __slots__ = ("_records", "count", "size_bytes", "whole")

    def __init__(
        self,
        count: int,
        records: Callable[[], Iterator[Record]],
        *,
        size_bytes: int = 0,
        whole: Record | None = None,
    ) -> None:
        self.count: Final = count
        self.size_bytes: Final = size_bytes
        self.whole: Final = whole
        self._records = records

    def __len__(self) -> int:
        """Count the records without making them."""
        return self.count

    def __iter__(self) -> Iterator[Record]:
        """Make the records, one at a time."""
        return self._records()


HookResult = Record | Iterable[Record] | Literal[_Drop.DROP]


class Interceptor(TypedOptions, frozen=True, kw_only=True):
    """The options of an interceptor; :meth:`open` returns the object with its hooks.

    A subclass adds its options as fields, and either has the hooks itself (when it needs no state) or
    returns an object that has them from :meth:`open`. That object belongs to one session; besides
    the hooks it may have any of the methods in :mod:`headerware.core.services`, such as ``poll``.

    If an interceptor does nothing with its options, its attribute ``idle`` says why. Its ``needs_serializer``
    says what happens to records if no step of its chain serializes them. A client logs both when it starts,
    and ``headerware check`` and ``headerware doctor`` print both.

    docs/stability.md lists the stable members; the others serve Headerware's own interceptors.

    Args:
        name: its name in configuration, errors and statistics; None means its type.
        topics: patterns of the topics that it works on; a leading ``!`` excludes. Without this option it
            works on all topics; an empty list is refused.
        on_error: what happens to a record that it fails on. None means ``raise``, and ``skip`` for
            interceptors that observe.
        dead_letter_topic: the topic that ``dead_letter`` publishes to; ``{topic}`` is the record's own topic.
        dead_letter_headers: the dialect of the reason's headers: ``connect``, in decimal text, ``spring``,
            binary, or ``headerware``, text that also counts attempts.
        dead_letter_too_large: what a consumer does with a record whose dead letter the topic refuses as too
            large even with the shortest reason: ``stub`` publishes a dead letter without the payload and goes
            on, ``hold`` stays at the record.
        dead_letter_unavailable: what happens to a record whose dead letter cannot be stored, because its
            topic is missing, forbidden or out of reach: ``hold`` stays at the record (``produce`` raises a
            DeadLetterError), ``refuse`` raises the error of the record, as ``raise`` does, and goes on.
    """

    role: ClassVar[Role] = Role.TRANSFORM
    stage: ClassVar[Stage] = Stage.BYTES
    place: ClassVar[Place | None] = None
    """Its position in a chain; None means any position that its role allows."""
    decodes: ClassVar[tuple[str, ...]] = ()
    """The transport headers that it removes on consume."""
    atomic: ClassVar[bool] = False
    """Whether the records that it makes of one record are useless unless all of them go on."""
    splits: ClassVar[bool] = False
    """Whether its ``on_send`` splits a record that is too large; the session splits dead letters with it."""
    verifies: ClassVar[bool] = False
    """Whether it keeps verified facts in ``record.local``; records that later hooks make get them, too."""
    writes_ids: ClassVar[bool] = False
    """Whether it writes header names as ids, and ids as names again."""
    hides: ClassVar[bool] = False
    """Whether its ``on_send`` hides the content of records. If a step of its chain then fails while sending,
    the record gets no dead letter, because a dead letter would show the content."""
    acknowledges_own: ClassVar[bool] = False
    """Whether its ``on_acknowledgement`` only needs records with state that it has left in ``local``."""
    delays: ClassVar[bool] = False
    """Whether its ``on_consume`` holds records back until a moment, for which a client pauses partitions."""
    reorders: ClassVar[bool] = False
    """Whether a record may come after later records of its partition. If a client restarts while such a
    record waits, it repeats the later records."""
    blocks: ClassVar[bool] = False
    """Whether its ``on_send`` may wait for the network; the asyncio clients then call it on a thread."""
    names_cluster: ClassVar[bool] = False
    """Whether it asks the context for the cluster's id, which the asyncio clients then find out first."""
    needs_serializer: ClassVar[str | None] = None
    """What happens to records if no step of its chain serializes them; None if that does not matter."""

    name: str | None = None
    topics: tuple[str, ...] = ("*",)
    on_error: OnError | None = None
    dead_letter_topic: str = "{topic}.dead-letter"
    dead_letter_headers: DeadLetterHeaders = "connect"
    dead_letter_too_large: Literal["stub", "hold"] = "stub"
    dead_letter_unavailable: DeadLetterUnavailable = "hold"

    @property
    def idle(self) -> str | None:
        """Why it does nothing with its options; None if it does something."""
        return None

    def shown(self, option: str, written: Any) -> Any:  # noqa: ARG002 - an interceptor without secrets
        """Return an option as it may be printed, without its secrets."""
        return written

    def idle_on(self, topics: Iterable[str]) -> list[str]:  # noqa: ARG002 - a step without rules of its own
        """Return its own rules that fit none of the topics."""
        return []

    @property
    def unsignable(self) -> str | None:
        """Why it cannot be in a chain that signs; None if it can."""
        return None

    @property
    def reveals(self) -> str | None:
        """What its headers reveal of values that another step of its chain hides; None if nothing."""
        return None

    @property
    def caution(self) -> str | None:
        """What ``headerware check`` says of options that work, but not as all expect; None if nothing."""
        return None

    @property
    def carries_bytes(self) -> tuple[int, int] | None:
        """The sizes of values that it carries otherwise than in one record, above and up to; or None."""
        return None

    def open(self, context: Context) -> Any:  # noqa: ARG002 - a stateless interceptor needs no context
        """Return the object with the hooks for one session; the interceptor itself if it has no state."""
        return self


def states(interceptor: object, capability: str) -> bool:
    """Return whether an interceptor states a capability, such as ``atomic``.

    An option or a method of that name does not count.
    """
    stated = getattr(type(interceptor), capability, None)
    if stated is None:
        stated = getattr(interceptor, "__dict__", {}).get(capability)
    return stated is True


def has_hook(interceptor: object) -> bool:
    """Return whether an object has any hook."""
    return any(callable(getattr(interceptor, hook, None)) for hook in HOOKS)


def label(interceptor: object) -> str:
    """Return an interceptor's name: its own, else its type, else its class in lower case."""
    names = (getattr(interceptor, "name", None), getattr(interceptor, "type", None))
    return next(
        (name for name in names if name and isinstance(name, str)), type(interceptor).__name__.lower()
    )
