"""Data keys of one session: made, wrapped, unwrapped and remembered.

Key services take a network's time, fail, and are paid by the call; so each is called off the caller's thread,
in a few threads that live as long as the call, and the caller waits for a bounded time. One call is made for
a question, however many threads ask it. After a wait in vain the key-encryption key counts as out of reach:
callers hardly wait again, and one call at a time finds out whether it is back. The call that came too late
goes on, and its answer is there when the record that was held back is tried again.

Anyone who can write to a topic can name any number of wrapped keys that nobody made. Each of them takes a
call to find out, so calls in vain are limited for each key-encryption key. Keys that are remembered are found
without any call, and calls that give a key do not count. A service that says that it ``is_local`` costs
nothing to ask: it is called in the caller's thread, and not limited.

What keeps a record in its topic is that its data key is unwrapped for this topic alone. So the first data key
of each key-encryption key is unwrapped for another context, too, which must fail.
"""

from __future__ import annotations

import os
import time
from random import SystemRandom
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import msgspec

from headerware.core.bounded_cache import BoundedCache
from headerware.core.context import wall_clock_ms
from headerware.core.errors import (
    HeldBackError,
    InvalidWrappedKeyError,
    KeptError,
    KeyDeletedError,
    KeyServiceError,
    KeyServiceUnavailableError,
    UnboundKeyError,
)
from headerware.keyring.services.service import KeyService

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

SECRET_BYTES: Final = 32
MAX_WRAPPED_BYTES: Final = 8192
_MAX_SCOPE_BYTES: Final = 1024
CACHE_ENTRIES: Final = 16_384
"""How many data keys a session remembers unless told otherwise: some 600 bytes each, if there are so many."""
_MAX_REFUSED_BYTES: Final = 8 << 20
"""How much of wrapped keys that were refused is remembered; whoever writes to a topic can make these."""
_RENEW_AT: Final = 0.8
"""The part of a key's life after which its successor is asked for, at the latest."""
_RENEW_SPREAD: Final = 0.2
"""How much earlier that may be, at random: else processes that start together ask together for ever."""
_PROBE_S: Final = 0.5
"""How long after a failure the service is called again."""
_PROBE_WAIT_S: Final = 0.05
"""How long a caller waits for a service that was down."""
_REPEAT_S: Final = 5.0
"""How long a refusal is remembered, at most, that an administrator may mend."""
OTHER_SCOPE: Final = "headerware self-test"
"""A scope that no record has, for scopes of records have a slash."""
_START_S: Final = 2.0
"""How long the self-test at the start waits for a service."""
_BURST_S: Final = 2
"""For how many seconds calls in vain may be saved up."""


class DataKey(msgspec.Struct, frozen=True, gc=False):
    """A data key, plain and wrapped; its ``repr`` does not show the plain one."""

    key_id: str
    """The key-encryption key that it is wrapped under."""
    wrapped: bytes
    secret: bytes
    """32 bytes at random."""
    version: str = ""
    """The version of the key-encryption key; known to the one who wrapped it, if the service tells."""

    def __repr__(self) -> str:
        """Return a text without the secret."""
        return f"DataKey(key_id={self.key_id!r}, version={self.version!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show no secret in rich's tracebacks either."""
        return [("key_id", self.key_id), ("version", self.version)]


_chance: Final = SystemRandom()
"""Of the operating system, so that forked children do not draw the same."""
_Question = tuple[str, str, bytes | None]
"""A key-encryption key, a scope, and the wrapped key that is asked for; None asks for a new one."""


class _Flight:
    """A call that is under way."""

    __slots__ = ("answer", "done", "error")

    def __init__(self) -> None:
        self.done: Final = Event()
        self.answer: DataKey | None = None
        self.error: KeptError[KeyServiceError] | None = None


class _Sending:
    """The key with which a scope is encrypted now, and what is left of it."""

    __slots__ = ("bytes_left", "key", "made_ms", "renew_ms", "uses_left")

    def __init__(self, key: DataKey, made_ms: int, renew_ms: int, uses_left: int, bytes_left: int) -> None:
        self.key: Final = key
        self.made_ms: Final = made_ms
        self.renew_ms: Final = renew_ms
        """The age at which its successor is asked for."""
        self.uses_left = uses_left
        self.bytes_left = bytes_left


class _KeyState:
    """How it stands with one key-encryption key."""

    __slots__ = ("down", "left", "probe_at", "refilled_at")

    def __init__(self, left: float, now: float) -> None:
        self.left = left
        """How many calls in vain may be made: so many a second, and what was saved up for two seconds."""
        self.refilled_at = now
        self.down: KeptError[KeyServiceError] | None = None
        """Why it is out of reach, or None; others may not be, for a key can have a store of its own."""
        self.probe_at = 0.0
        """When the next call finds out whether it is back."""


class DataKeys:
    """Give data keys to encrypt and to decrypt with, for one session.

    Safe for use by several threads at once. A forked child makes its own keys to send with.

    Args:
        service: the key service; it is closed with this object.
        key_ids: the key-encryption keys that records may name; any other is refused without a call. None
            accepts every one.
        max_age_ms: how long a key encrypts, in milliseconds.
        max_uses: how many records it encrypts.
        max_bytes: how many bytes it encrypts.
        cache_entries: how many unwrapped keys are remembered at most, and how many refused ones; the half
            that was used last always is.
        cache_age_ms: how long an unwrapped key is remembered, in milliseconds: as long, a key-encryption key
            may be deleted or the service be down without any effect on its records.
        timeout_ms: how long a caller waits for the service, in milliseconds.
        negative_ms: how long a wrapped key that was refused is not asked for again, in milliseconds.
        max_failed_unwraps_per_s: how many calls in vain a second are made under each key-encryption key to
            unwrap; records beyond that wait for their turn.
        max_calls: how many calls may be under way at once.
        now_ms: the clock by which keys age, in milliseconds since the epoch.
        monotonic: the clock by which calls are paced, in seconds.

    Raises:
        ValueError: a limit of nothing.
    """

    def __init__(
        self,
        service: KeyService,
        *,
        key_ids: Collection[str] | None = None,
        max_age_ms: int = 3_600_000,
        max_uses: int = 1 << 30,
        max_bytes: int = 1 << 40,
        cache_entries: int = CACHE_ENTRIES,
        cache_age_ms: int = 7_200_000,
        timeout_ms: int = 5_000,
        negative_ms: int = 30_000,
        max_failed_unwraps_per_s: int = 100,
        max_calls: int = 8,
        now_ms: Callable[[], int] = wall_clock_ms,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = (max_age_ms, max_uses, max_bytes, cache_entries, max_failed_unwraps_per_s, max_calls)
        if min(limits) < 1:
            raise ValueError("ages, uses, bytes, entries, calls and their rates are 1 or more")
        self._service: Final = service
        self._is_local: Final = bool(getattr(service, "is_local", False))
        self._key_ids: Final = None if key_ids is None else frozenset(key_ids)
        self._max_age_ms: Final = max_age_ms
        self._max_uses: Final = max_uses
        self._max_bytes: Final = max_bytes
        self._low_uses: Final = int(max_uses * (1 - _RENEW_AT))
        self._low_bytes: Final = int(max_bytes * (1 - _RENEW_AT))
        self._cache_entries: Final = cache_entries
        self._cache_age_ms: Final = cache_age_ms
        self._refresh_ms: Final = int(cache_age_ms * _RENEW_AT)
        self._timeout_s: Final = timeout_ms / 1000
        self._negative_s: Final = negative_ms / 1000
        self._rate: Final = max_failed_unwraps_per_s
        self._most_failures: Final = float(max_failed_unwraps_per_s * _BURST_S)
        self._max_calls: Final = max_calls
        self._now_ms: Final = now_ms
        self._monotonic: Final = monotonic
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._known: BoundedCache[_Question, tuple[DataKey, int] | None] = BoundedCache(cache_entries)
        self._bound: BoundedCache[str, bool] = BoundedCache(cache_entries)
        """The key-encryption keys that did not unwrap a data key for another context."""
        self._closed = False
        self._begin()
        _open.add(self)

    def require_bound(self, key_id: str) -> None:
        """Wrap a key for a scope of no record, and refuse a service that unwraps it for another.

        A service that does not answer, or forbids it, is not judged now: the first data key that it wraps or
        unwraps is.

        Raises:
            UnboundKeyError: it binds nothing.
        """
        question, deadline = (key_id, OTHER_SCOPE, None), self._monotonic() + min(_START_S, self._timeout_s)
        try:
            flight = self._flight(question, deadline)
        except KeyServiceError:
            return
        self._wait(flight, deadline)
        if flight.error is not None and flight.error.is_a(UnboundKeyError):
            raise flight.error.again()

    def to_send(self, key_id: str, scope: str, size_bytes: int) -> DataKey:
        """Return the key to encrypt a record with.

        A key serves its scope until it is too old or used up. Its successor is made ahead of time in the
        background, so a caller waits for the first one alone, or if the service was down for too long.

        Args:
            key_id: the key-encryption key.
            scope: what the key is for, such as ``cluster/topic``, 1 to 1,024 bytes of text; the wrapped key
                cannot be unwrapped for any other.
            size_bytes: the size of what is encrypted.

        Raises:
            KeyServiceError: there is no key, and no new one can be had; its class says why.
        """
        question = (key_id, scope, None)
        key = self._take(question, size_bytes)
        if key is None:
            deadline = self._monotonic() + self._timeout_s
            while key is None:
                # Other threads may use up a small key before this one is here again.
                self._answer(question, deadline)
                key = self._take(question, size_bytes)
        return key

    def note_use(self, key: DataKey, scope: str, *, records: int, size_bytes: int) -> None:
        """Count records that a key has encrypted beside those for which it was asked.

        A caller that keeps a key for a while tells afterwards what it was used for.
        """
        with self._lock:
            sending = self._sending.get((key.key_id, scope, None))
            if sending is not None and sending.key is key:
                sending.uses_left -= records
                sending.bytes_left -= size_bytes

    def to_read(self, key_id: str, wrapped: bytes, scope: str) -> DataKey:
        """Return the key to decrypt a record with.

        Args:
            key_id: the key-encryption key that the record names.
            wrapped: the wrapped data key that it carries.
            scope: what the key is for, as it was given to :meth:`to_send`.

        Raises:
            HeldBackError: it is not known now, so the record must wait: the service is down or slow, denies
                it, or does not have the key-encryption key yet.
            KeyDeletedError: the key-encryption key is deleted or disabled: the record can no longer be read.
            InvalidWrappedKeyError: nobody wrapped it so: the record is to be refused.
        """
        question = (key_id, scope, wrapped)
        key = self._remembered(question)
        if key is not None:
            return key
        try:
            self._require_plausible(question)
            return self._answer(question, self._monotonic() + self._timeout_s)
        except (KeyDeletedError, InvalidWrappedKeyError):
            raise
        except KeyServiceError as error:
            raise HeldBackError(f"its data key cannot be had now: {error}") from error

    def prefetch(self, wanted: Iterable[tuple[str, bytes, str]]) -> None:
        """Unwrap several keys at once, which :meth:`to_read` then finds; wait no longer than it would.

        Args:
            wanted: the arguments of :meth:`to_read`; what fails there fails silently here.
        """
        now_ms = self._now_ms()
        deadline = self._monotonic() + self._timeout_s
        flights = []
        for key_id, wrapped, scope in dict.fromkeys(wanted):
            question = (key_id, scope, wrapped)
            known = self._known.get(question)
            if known is not None and 0 <= now_ms - known[1] < self._cache_age_ms:
                continue
            try:
                self._require_plausible(question)
                flights.append((key_id, self._flight(question, deadline)))
            except KeyServiceError:
                continue
        for key_id, flight in flights:
            if self._state(key_id).down is None and not self._wait(flight, deadline):
                self._note_down(key_id, self._late())

    def stats(self) -> dict[str, int]:
        """Count calls and look-ups; ``oldest_ms`` is the age of the oldest key that still encrypts."""
        now_ms = self._now_ms()
        with self._lock:
            made = [sending.made_ms for sending in self._sending.entries().values() if sending]
            return {**self._counts, "oldest_ms": max(0, now_ms - min(made, default=now_ms))}

    def close(self) -> None:
        """Forget all keys and close the service; a second call does nothing."""
        with self._lock:
            closed, self._closed = self._closed, True
            self._known.clear()
            self._sending.clear()
        if not closed:
            self._service.close()

    def renew_in_child(self) -> None:
        """Begin anew in a forked child: with other keys to send with, and without the parent's calls."""
        self._begin()

    def _begin(self) -> None:
        entries = self._cache_entries
        self._lock = Lock()
        self._slots = BoundedSemaphore(self._max_calls)
        self._sending: BoundedCache[_Question, _Sending | None] = BoundedCache(entries)
        self._flights: dict[_Question, _Flight] = {}
        self._refused: BoundedCache[_Question, tuple[float, KeptError[KeyServiceError]]] = BoundedCache(
            entries, max_cost=_MAX_REFUSED_BYTES, cost=lambda question, _: len(question[2] or b"")
        )
        self._states: BoundedCache[str, _KeyState] = BoundedCache(
            entries, lambda _: _KeyState(self._most_failures, self._monotonic())
        )

    def _take(self, question: _Question, size_bytes: int) -> DataKey | None:
        """Return the scope's key if it is good for one more record."""
        now_ms = self._now_ms()
        with self._lock:
            sending = self._sending.get(question)
            if sending is None:
                return None
            age_ms = now_ms - sending.made_ms
            if not 0 <= age_ms < self._max_age_ms or sending.uses_left <= 0 or sending.bytes_left <= 0:
                return None
            sending.uses_left -= 1
            sending.bytes_left -= size_bytes
            due = (
                age_ms >= sending.renew_ms
                or sending.uses_left < self._low_uses
                or sending.bytes_left < self._low_bytes
            )
        if due:
            self._ask_ahead(question)
        return sending.key

    def _remembered(self, question: _Question) -> DataKey | None:
        now_ms = self._now_ms()
        with self._lock:
            known = self._known.get(question)
            age_ms = -1 if known is None else now_ms - known[1]
            if known is None or not 0 <= age_ms < self._cache_age_ms:
                self._counts["misses"] += 1
                return None
            self._counts["hits"] += 1
        if age_ms >= self._refresh_ms:
            self._ask_ahead(question)
        return known[0]

    def _require_plausible(self, question: _Question) -> None:
        key_id, _, wrapped = question
        if self._key_ids is not None and key_id not in self._key_ids:
            raise InvalidWrappedKeyError(
                f"it names the key-encryption key {key_id!r}, which is not among those accepted here"
            )
        if wrapped is None or not 0 < len(wrapped) <= MAX_WRAPPED_BYTES:
            raise InvalidWrappedKeyError(
                f"a wrapped key has 1 to {MAX_WRAPPED_BYTES} bytes, this one has {len(wrapped or b'')}"
            )

    def _ask_ahead(self, question: _Question) -> None:
        """Begin a call that nobody waits for, unless one is under way or has just failed."""
        try:
            self._flight(question, self._monotonic())
        except KeyServiceError:
            return

    def _answer(self, question: _Question, deadline: float) -> DataKey:
        """Return the service's answer, or raise its refusal."""
        key_id = question[0]
        down = self._state(key_id).down
        if down is not None:
            deadline = min(deadline, self._monotonic() + _PROBE_WAIT_S)
        flight = self._flight(question, deadline)
        if not self._wait(flight, deadline):
            raise self._note_down(key_id, self._late() if down is None else down.again())
        if flight.error is not None:
            raise flight.error.again()
        if flight.answer is None:
            raise KeyServiceUnavailableError("the call to the key service was given up")
        return flight.answer

    def _wait(self, flight: _Flight, deadline: float) -> bool:
        return flight.done.wait(max(0.0, deadline - self._monotonic()))

    def _late(self) -> KeyServiceUnavailableError:
        return KeyServiceUnavailableError(f"the key service did not answer within {self._timeout_s:g} s")

    def _flight(self, question: _Question, deadline: float) -> _Flight:
        """Return the call for a question, when its turn has come; raise what is known to fail."""
        key_id, _, wrapped = question
        with self._lock:
            if self._closed:
                raise KeyServiceError("the data keys are closed")
            if (under_way := self._flights.get(question)) is not None:
                return under_way
            now = self._monotonic()
            self._raise_known(question, now)
            costs_nothing = wrapped is None or self._is_local
            pause_s = 0.0 if costs_nothing else self._charge(key_id, now, most_s=deadline - now)
            flight = self._flights[question] = _Flight()
        try:
            if pause_s:
                time.sleep(pause_s)
            self._take_off(question, flight, deadline)
        except BaseException:
            self._land(question, flight)
            raise
        return flight

    def _take_off(self, question: _Question, flight: _Flight, deadline: float) -> None:
        if self._is_local:
            self._fly(question, flight)
            return
        wait_s = max(0.0, deadline - self._monotonic())
        slots = self._slots
        if not slots.acquire(timeout=wait_s):
            busy = KeyServiceUnavailableError(f"all {self._max_calls} calls to the key service are under way")
            raise self._note_down(question[0], busy) if wait_s else busy
        try:
            Thread(target=self._fly_apart, args=(question, flight, slots), name=_THREAD, daemon=True).start()
        except BaseException:
            slots.release()
            raise

    def _raise_known(self, question: _Question, now: float) -> None:
        """Raise the failure of a call that was made a short while ago."""
        refused = self._refused.get(question)
        if refused is not None and now < refused[0]:
            self._counts["refused_again"] += 1
            raise refused[1].again()
        state = self._states[question[0]]
        if state.down is not None:
            if now < state.probe_at:
                raise state.down.again()
            state.probe_at = now + _PROBE_S

    def _charge(self, key_id: str, now: float, *, most_s: float) -> float:
        """Charge a call as one in vain, until it is known to be none; return how long it must wait.

        So a flood cannot begin more calls than may be in vain, and genuine keys pay nothing in the end.
        """
        state = self._states[key_id]
        refilled = state.left + (now - state.refilled_at) * self._rate
        state.left, state.refilled_at = min(self._most_failures, refilled), now
        wait_s = max(0.0, (1 - state.left) / self._rate)
        if wait_s > most_s:
            self._counts["rate_limited"] += 1
            raise KeyServiceError(
                f"{self._rate} wrapped keys a second were refused under {key_id!r}; it waits for its turn"
            )
        state.left -= 1
        return wait_s

    def _fly_apart(self, question: _Question, flight: _Flight, slots: BoundedSemaphore) -> None:
        try:
            self._fly(question, flight)
        finally:
            slots.release()

    def _fly(self, question: _Question, flight: _Flight) -> None:
        """Make one call."""
        answer: DataKey | None = None
        error: KeptError[KeyServiceError] | None = None
        try:
            answer = self._call(question)
        except KeyServiceError as raised:
            error = KeptError(raised)
        except Exception as raised:  # noqa: BLE001 - a service may be anybody's plug-in
            # Only Headerware's own texts are known to quote no secret.
            failure = KeyServiceUnavailableError(f"the key service raised {type(raised).__name__}")
            failure.__cause__ = raised
            error = KeptError(failure)
        finally:
            self._land(question, flight, answer=answer, error=error)

    def _call(self, question: _Question) -> DataKey:
        key_id, scope, wrapped = question
        context = _context(scope)
        if wrapped is None:
            secret = os.urandom(SECRET_BYTES)
            wrapped, version = self._service.wrap(key_id, secret, context)
            if not 0 < len(wrapped) <= MAX_WRAPPED_BYTES:
                raise KeyServiceError(f"the key service wrapped a key into {len(wrapped)} bytes")
            if secret in wrapped:
                raise KeyServiceError("the key service wrapped nothing: its answer shows the data key")
            key = DataKey(key_id, wrapped, secret, version)
            self._require_bound(key, context)
            return key
        secret = self._service.unwrap(key_id, wrapped, context)
        if len(secret) != SECRET_BYTES:
            raise InvalidWrappedKeyError(f"it wraps {len(secret)} bytes, expected {SECRET_BYTES}")
        key = DataKey(key_id, wrapped, secret)
        self._require_bound(key, context)
        return key

    def _require_bound(self, key: DataKey, context: bytes) -> None:
        """Unwrap the first data key of a key-encryption key for another context, which must fail."""
        key_id = key.key_id
        if self._bound.get(key_id):
            return
        other = _context(OTHER_SCOPE)
        try:
            self._service.unwrap(key_id, key.wrapped, other if context != other else other + b", another")
        except KeyServiceUnavailableError:
            return  # the next data key will tell
        except KeyServiceError:
            self._bound[key_id] = True
            return
        raise UnboundKeyError(
            f"the key service unwraps a data key under {key_id!r} for another context than it was wrapped "
            "for, so that records could be moved between topics; docs/key-services.md says which keys bind it"
        )

    def _land(
        self,
        question: _Question,
        flight: _Flight,
        *,
        answer: DataKey | None = None,
        error: KeptError[KeyServiceError] | None = None,
    ) -> None:
        flight.answer, flight.error = answer, error
        now_ms = self._now_ms()
        with self._lock:
            if self._flights.get(question) is flight:  # not so in a child that has begun anew
                del self._flights[question]
            if answer is not None:
                self._keep(question, answer, now_ms)
            elif error is not None:
                self._note_failure(question, error)
        flight.done.set()

    def _keep(self, question: _Question, answer: DataKey, now_ms: int) -> None:
        key_id, _, wrapped = question
        self._states[key_id].down = None
        if question[1] == OTHER_SCOPE:
            return
        self._counts["wraps" if wrapped is None else "unwraps"] += 1
        if wrapped is not None:
            self._refund(key_id)
        if self._closed:
            return
        if wrapped is None:
            renew_ms = int(self._max_age_ms * (_RENEW_AT - _RENEW_SPREAD * _chance.random()))
            self._sending[question] = _Sending(answer, now_ms, renew_ms, self._max_uses, self._max_bytes)
        else:
            self._known[question] = (answer, now_ms)

    def _note_failure(self, question: _Question, error: KeptError[KeyServiceError]) -> None:
        self._counts["failures"] += 1
        now, state = self._monotonic(), self._states[question[0]]
        if error.is_a(KeyServiceUnavailableError):
            state.down, state.probe_at = error, now + _PROBE_S
            self._refund(question[0])
            return
        state.down = None
        final = error.is_a(KeyDeletedError, InvalidWrappedKeyError)
        self._refused[question] = (now + (self._negative_s if final else _REPEAT_S), error)
        if error.is_a(KeyDeletedError):
            for known in (self._known, self._sending):
                if known.get(question) is not None:  # else a flood would push genuine keys out
                    known[question] = None

    def _refund(self, key_id: str) -> None:
        state = self._states[key_id]
        state.left = min(state.left + 1, self._most_failures)

    def _state(self, key_id: str) -> _KeyState:
        with self._lock:
            return self._states[key_id]

    def _note_down(self, key_id: str, error: KeyServiceError) -> KeyServiceError:
        with self._lock:
            state = self._states[key_id]
            if state.down is None:
                state.down, state.probe_at = KeptError(error), self._monotonic() + _PROBE_S
        return error


_COUNTS: Final = ("wraps", "unwraps", "hits", "misses", "failures", "refused_again", "rate_limited")
_THREAD: Final = "headerware-data-key"
_open: WeakSet[DataKeys] = WeakSet()


def _renew_all() -> None:
    for data_keys in tuple(_open):
        data_keys.renew_in_child()


os.register_at_fork(after_in_child=_renew_all)


def _context(scope: str) -> bytes:
    context = scope.encode()
    if not 0 < len(context) <= _MAX_SCOPE_BYTES:
        raise InvalidWrappedKeyError(  # whatever a record may say
            f"a data key's scope has 1 to {_MAX_SCOPE_BYTES} bytes, this one has {len(context)}"
        )
    return context
