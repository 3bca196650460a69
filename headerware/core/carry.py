"""Carry on lineage and headers from a record that is processed to the records that are sent meanwhile.

Clients set the records that are being processed (the records at work) in a context variable, so each thread
and each task has its own. A session that sends reads the variable once for each record, at its boundary,
before the first interceptor. Its chain decides which headers are carried on:

- the headers that its steps continue (:class:`~headerware.core.services.CarriesOn`);
- the headers whose names fit the chain's option ``carry``.

A header that the application sets itself takes precedence. If several records are at work, a header goes on
by its name only if all of them have it, with equal values.

The context variable holds messages as they are; headers are taken from them only when something is sent.
"""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self

from headerware.core.boundary import alike, is_own, is_wire_name, may_be_sent
from headerware.core.errors import ConfigError
from headerware.core.header_ids import HeaderId, header_name
from headerware.core.headers import Headers, Pair
from headerware.core.patterns import EXCLUDES
from headerware.core.topics import TopicPatterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headerware.core.batch import Batch
    from headerware.core.record import Record
    from headerware.core.step import Step

    CarriedOn = Callable[[Headers], Pair | Headers | None]

Carry = tuple[str, ...] | Literal[False]
"""Patterns of names of headers to carry on, besides headers that steps continue; False carries on nothing."""
MAX_CARRIED_BYTES: Final = 16_384
"""The most bytes, names included, of the headers that are carried on because of their names."""

_EXPECTED: Final = "expected false, or names of headers and patterns of them such as ['tenant', 'x-*']"
_log: Final = logging.getLogger("headerware")
_current: Final[ContextVar[AtWork | None]] = ContextVar("headerware_at_work", default=None)
_look: Final = _current.get


class AtWork:
    """Records that are processed while a block lasts, in its thread or task.

    Contexts that are copied meanwhile, such as those of new tasks, keep them.

    Args:
        given: the records, or the messages of which ``record_of`` makes records when something is first sent.
        record_of: makes a record of a message; None if ``given`` has records.
    """

    __slots__ = ("_given", "_record_of", "_thread", "before", "ended_elsewhere", "found")

    def __init__(self, given: Sequence[Any], record_of: Callable[[Any], Record] | None = None) -> None:
        self._given = given
        self._record_of = record_of
        self.before: AtWork | None = None
        """The block around this one."""
        self.ended_elsewhere: bool = False
        """Whether the block has ended in another context than its own, or before a block inside it."""
        self.found: dict[Carrying, _Found] | None = None
        """The headers that each chain carries on from these records; filled when it first sends something."""

    @property
    def records(self) -> Sequence[Record]:
        """The records."""
        return self._given if self._record_of is None else list(map(self._record_of, self._given))

    def __enter__(self) -> Self:
        self.before = _not_ended(_look())
        self._thread = get_ident()
        _current.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        inner = _look()
        if inner is self:
            _current.set(_not_ended(self.before))
            return
        self.ended_elsewhere = True
        # Blocks overlap if two consumers are polled in turn; each would else keep the block before it for
        # ever.
        while inner is not None and inner.before is not self:
            inner = inner.before
        if inner is not None:
            inner.before = self.before

    def was_left_behind(self) -> bool:
        """Return whether the block ended in another thread than this one, where it began."""
        return self.ended_elsewhere and self._thread == get_ident() and not _is_in_event_loop()


def _not_ended(at_work: AtWork | None) -> AtWork | None:
    """Return the innermost block that has not ended, from a block on outwards."""
    while at_work is not None and at_work.ended_elsewhere:
        at_work = at_work.before
    return at_work


class _Found:
    """The headers of the records at work that a chain carries on.

    Args:
        named: the headers that its option names.
        continued: for each step the headers that it continues, with the topics on which it works.
    """

    __slots__ = ("_by_topic", "_continued", "_named")

    def __init__(
        self, named: Sequence[Pair], continued: Sequence[tuple[TopicPatterns, tuple[Pair, ...]]]
    ) -> None:
        self._named = named
        self._continued = continued
        self._by_topic: dict[str, _ForTopic] = {}

    def for_topic(self, topic: str) -> _ForTopic:
        """Return the headers to carry on into a topic."""
        found = self._by_topic.get(topic)
        if found is None:
            own = (pairs for topics, pairs in self._continued if topics.matches(topic))
            together = (*((pair,) for pair in self._named), *own)
            pairs = tuple(pair for each in together for pair in each)
            found = self._by_topic[topic] = _ForTopic(pairs, _names_of(pairs), together)
        return found


class _ForTopic(NamedTuple):
    """The headers that go on into one topic, and the names that an application may use for them."""

    pairs: tuple[Pair, ...]
    names: frozenset[str]
    together: tuple[tuple[Pair, ...], ...]
    """The same headers: those of one step go on together, or none of them."""


def _names_of(pairs: Iterable[Pair]) -> frozenset[str]:
    return frozenset[str]().union(*(alike(name) for name, _ in pairs))


class Carrying:
    """Add the headers that one session carries on to the records that it sends.

    Args:
        carry: the chain's option.
        steps: the steps of the chain.
        continuing: for each step that continues a header, its topics and the function that returns the
            header.
    """

    def __init__(
        self, carry: Carry, steps: Iterable[Step], continuing: Sequence[tuple[TopicPatterns, CarriedOn]]
    ) -> None:
        self._continuing = () if carry is False else continuing
        self._stated = frozenset(carry or ())
        self._names = TopicPatterns(map(_resolved, carry)) if carry else None
        self._decoded = frozenset[str]().union(*(getattr(step.interceptor, "decodes", ()) for step in steps))
        self._has_warned = False

    def __bool__(self) -> bool:
        """Return whether the session may carry on any header."""
        return bool(self._continuing or self._names)

    def after(self, check: Callable[[Record], Record]) -> Callable[[Record], Record]:
        """Return a check that also adds the carried headers to the records that it admits."""
        if not self:
            return check

        def carrying_check(record: Record) -> Record:
            at_work = _look()
            return check(record) if at_work is None else self.added_to(check(record), at_work)

        return carrying_check

    def unless_at_work(self, passes: Callable[[Batch], bool]) -> Callable[[Batch], bool]:
        """Return a check that passes no batch while a record is at work; each record then goes alone."""
        if not self:
            return passes

        def passing_check(batch: Batch) -> bool:
            at_work = _look()
            return (at_work is None or at_work.was_left_behind()) and passes(batch)

        return passing_check

    def added_to(self, record: Record, at_work: AtWork) -> Record:
        """Return a record that is sent with the headers that go on from the records at work."""
        if at_work.was_left_behind():
            return record
        found = None if at_work.found is None else at_work.found.get(self)
        if found is None:
            found = self._find(list(map(_readable, at_work.records)))
            at_work.found = {**(at_work.found or {}), self: found}  # another thread may do the same
        pairs, names, together = found.for_topic(record.topic)
        if not pairs:
            return record
        # A plain loop, because this runs for each record.
        for name, _ in record.headers:
            if name in names or name.casefold() in names:
                own = _names_of(record.headers)
                pairs = tuple(pair for each in together if own.isdisjoint(_names_of(each)) for pair in each)
                break
        return record.with_headers(Headers.trusted((*record.headers, *pairs)))

    def _find(self, records: Sequence[tuple[Headers, frozenset[str]]]) -> _Found:
        continued: list[tuple[TopicPatterns, tuple[Pair, ...]]] = []
        if len(records) == 1:  # several records have no common lineage
            for topics, carried_on in self._continuing:
                found = carried_on(records[0][0])
                if found is not None:
                    continued.append((topics, found if isinstance(found, Headers) else (found,)))
        named: tuple[Pair, ...] = ()
        if self._names is not None and records:
            shared = self._named_in(*records[0])
            for other in records[1:]:
                theirs = self._named_in(*other) if shared else {}
                shared = {name: values for name, values in shared.items() if theirs.get(name) == values}
            for _, pairs in continued:
                for name, _ in pairs:
                    shared.pop(name, None)
            names = self._within_limit(shared)
            named = tuple(pair for pair in records[0][0] if pair[0] in names)
        return _Found(named, tuple(continued))

    def _named_in(self, headers: Headers, unverified: frozenset[str]) -> dict[str, list[bytes | None]]:
        values: dict[str, list[bytes | None]] = {}
        for name, value in headers:
            if name in values or (name not in unverified and self._takes(name)):
                values.setdefault(name, []).append(value)
        return values

    def _takes(self, name: str) -> bool:
        """Return whether headers of a name go on; headers that mark an encoding never do."""
        assert self._names is not None  # noqa: S101 - the callers have checked it
        return (
            len(name) <= MAX_CARRIED_BYTES
            and self._names.matches(name)
            and name not in self._decoded
            and (name in self._stated or not is_own(name))
            and is_wire_name(name)
        )

    def _within_limit(self, shared: Mapping[str, Sequence[bytes | None]]) -> frozenset[str]:
        """Return the names whose headers fit into the limit together."""
        left = MAX_CARRIED_BYTES
        names: set[str] = set()
        for name, values in shared.items():
            size = sum(len(name.encode()) + len(value or b"") for value in values)
            if size <= left:
                names.add(name)
                left -= size
            elif not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "header %r is not carried on: the headers that are carried on from a record may have %s "
                    "bytes in total, names included (further headers are not logged)",
                    name[:100],
                    MAX_CARRIED_BYTES,
                )
        return frozenset(names)


def carry_option(value: object, *, path: str = "carry") -> Carry:
    """Return the option ``carry`` as it was given in code or in configuration.

    Args:
        value: None for the default, False (or the text ``false``), or names and patterns: text, separated by
            commas, or several texts or ids.
        path: its path, for errors.

    Raises:
        ConfigError: the value is anything else, or names headers that only a chain sets.
    """
    if value is None:
        return ()
    if value is False or (isinstance(value, str) and value.strip().lower() == "false"):
        return False
    found = value
    if isinstance(value, str):
        found = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(found, list | tuple):
        raise ConfigError(f"{_EXPECTED}, found {_shown(value)}", path=path)
    return tuple(_pattern(each, path) for each in found)


def _pattern(value: object, path: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(HeaderId(value))
    if not isinstance(value, str):
        raise ConfigError(f"{_EXPECTED}, found {_shown(value)} among them", path=path)
    if not value.removeprefix(EXCLUDES):
        raise ConfigError(f"{_EXPECTED}, found an empty name among them", path=path)
    if not (value.startswith(EXCLUDES) or may_be_sent(value)):
        raise ConfigError(
            f"{value!r} names headers of Headerware's own, which the steps of a chain set for each record; "
            "leave it out",
            path=path,
        )
    return value


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else type(value).__name__


def _resolved(pattern: str) -> str:
    """Return a pattern; if it is an id, return the name of this id instead."""
    excludes = EXCLUDES if pattern.startswith(EXCLUDES) else ""
    return excludes + header_name(pattern.removeprefix(excludes))


def _readable(record: Record) -> tuple[Headers, frozenset[str]]:
    """Return the headers of a record, and the names of the headers that no signature covers."""
    headers: object = record.headers
    verified = record.verified
    unverified = frozenset[str]() if verified is None else frozenset(verified.uncovered)
    return (headers if isinstance(headers, Headers) else Headers()), unverified


def _is_in_event_loop() -> bool:
    """Return whether this thread runs an event loop, whose tasks have copies of the context."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None  # noqa: SLF001 - asyncio documents it
