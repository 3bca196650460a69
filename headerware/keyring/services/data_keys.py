"""Data keys of one session: made, wrapped, unwrapped and remembered.

A call to a key service takes a network's time, can fail, and costs money. So each call is made in a thread
that lives as long as the call, at most ``max_calls`` at once, and the caller waits for a limited time.
Threads that need the same data key share one call. After a time-out the key-encryption key counts as
unavailable: callers then hardly wait, and one call at a time tests whether the service is back. A late call
goes on, and its answer is used when the held-back record is tried again.

Anyone who can write to a topic can name any number of wrapped keys that nobody made, and only a call shows
that they are not genuine. So failed calls are limited for each key-encryption key. Remembered keys need no
call, and calls that succeed do not count. A service with ``is_local`` costs nothing to ask: it is called in
the caller's thread, without a limit. So is a service with ``is_at_hand(scope, wrapped)``, whenever that
returns true. A service with ``is_valid(wrapped)`` is asked each time before a remembered key is used again:
the keys of subjects can be erased at any time.

A record cannot be moved to another topic, because its data key can be unwrapped for its own topic only. To
test this, the first data key of each key-encryption key is also unwrapped for another context, which must
fail.
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
"""How many data keys a session remembers by default; each takes some 600 bytes."""
_MAX_REFUSED_BYTES: Final = 8 << 20
"""The total size of refused wrapped keys that are remembered; any writer of a topic can make such keys."""
_RENEW_AT: Final = 0.8
"""The fraction of a key's life after which its successor is requested, at the latest."""
_RENEW_SPREAD: Final = 0.2
"""How much earlier it is, at random; otherwise processes that start together would always call together."""
_PROBE_S: Final = 0.5
"""How long after a failure the service is called again, in seconds."""
_PROBE_WAIT_S: Final = 0.05
"""How long a caller waits for a service that was down."""
_REPEAT_S: Final = 5.0
"""How long a refusal is remembered if an administrator can resolve it."""
OTHER_SCOPE: Final = "headerware self-test"
"""A scope that no record has, because scopes of records have a slash."""
_START_S: Final = 2.0
"""How long the self-test at the start waits for a service."""
_BURST_S: Final = 2
"""For how many seconds the allowance of failed calls can be saved up."""


class DataKey(msgspec.Struct, frozen=True, gc=False):
    """A data key, plain and wrapped; its ``repr`` does not show the plain one."""

    key_id: str
    """The key-encryption key that it is wrapped under."""
    wrapped: bytes
    secret: bytes
    """32 bytes at random."""
    version: str = ""
    """The version of the key-encryption key; known only after wrapping, and if the service states it."""

    def __repr__(self) -> str:
        """Return a text without the secret."""
        return f"DataKey(key_id={self.key_id!r}, version={self.version!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Show no secret in rich's tracebacks either."""
        return [("key_id", self.key_id), ("version", self.version)]


_random: Final = SystemRandom()
"""Numbers from the operating system, so that forked children draw different ones."""
_Request = tuple[str, str, bytes | None]
"""A key-encryption key, a scope, and the wrapped key to unwrap; None requests a new data key."""


class _PendingCall:
    """A call that is under way."""

    __slots__ = ("answer", "done", "error", "shows_availability")

    def __init__(self, *, shows_availability: bool) -> None:
        self.shows_availability: Final = shows_availability
        """Whether its success shows that the service is back; a call at hand does not reach it."""
        self.done: Final = Event()
        self.answer: DataKey | None = None
        self.error: KeptError[KeyServiceError] | None = None


class _SendKey:
    """The data key that encrypts a scope now, and its remaining uses and bytes."""

    __slots__ = ("bytes_left", "key", "made_ms", "renew_ms", "uses_left")

    def __init__(self, key: DataKey, made_ms: int, renew_ms: int, uses_left: int, bytes_left: int) -> None:
        self.key: Final = key
        self.made_ms: Final = made_ms
        self.renew_ms: Final = renew_ms
        """The age at which its successor is requested."""
        self.uses_left = uses_left
        self.bytes_left = bytes_left


class _KeyState:
    """The state of the calls for one key-encryption key."""

    __slots__ = ("down", "left", "probe_at", "refilled_at")

    def __init__(self, left: float, now: float) -> None:
        self.left = left
        """How many failed calls are allowed now; the allowance grows each second, for up to two seconds."""
        self.refilled_at = now
        self.down: KeptError[KeyServiceError] | None = None
        """The reason why this key is unavailable, or None; another key can have another store."""
        self.probe_at = 0.0
        """When the next call tests whether the key is available again."""


class DataKeys:
    """Give data keys to encrypt and to decrypt with, for one session.

    Safe for use by several threads at once. A forked child makes its own keys to encrypt with.

    Args:
        service: the key service; it is closed with this object.
        key_ids: the key-encryption keys that records may name; any other is refused without a call. None
            accepts every one.
        max_age_ms: how long a key encrypts, in milliseconds.
        max_uses: how many records it encrypts.
        max_bytes: how many bytes it encrypts.
        cache_entries: how many unwrapped keys are remembered at most, and how many refused ones; the half
            that was used last is always remembered.
        cache_age_ms: how long an unwrapped key is remembered, in milliseconds. During this time its records
            can be read even if the key-encryption key is deleted or the service is down.
        timeout_ms: how long a caller waits for the service, in milliseconds.
        negative_ms: how long a wrapped key that was refused is not asked for again, in milliseconds.
        max_failed_unwraps_per_s: how many failed calls to unwrap are allowed a second for each key-encryption
            key; records above this limit wait.
        max_calls: how many calls may be under way at once.
        now_ms: the clock by which keys age, in milliseconds since the epoch.
        monotonic: the clock by which calls are paced, in seconds.

    Raises:
        ValueError: a limit is below 1.
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
            raise ValueError("ages, uses, bytes, entries, calls and their rates must be 1 or more")
        self._service: Final = service
        self._is_local: Final = bool(getattr(service, "is_local", False))
        self._is_at_hand: Final[Callable[[str, bytes | None], bool] | None] = getattr(
            service, "is_at_hand", None
        )
        self._is_valid: Final[Callable[[bytes], bool] | None] = getattr(service, "is_valid", None)
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
        self._known: BoundedCache[_Request, tuple[DataKey, int] | None] = BoundedCache(cache_entries)
        self._bound: BoundedCache[str, bool] = BoundedCache(cache_entries)
        """The key-encryption keys that passed the self-test: they do not unwrap for another context."""
        self._closed = False
        self._begin()
        _open.add(self)

    def accepts(self, key_id: str) -> bool:
        """Return whether records may name this key-encryption key."""
        return self._key_ids is None or key_id in self._key_ids

    def require_bound(self, key_id: str) -> None:
        """Raise UnboundKeyError if the service unwraps a data key for another scope than its own.

        If the service does not answer or denies the call, the first data key of a record is tested instead.

        Raises:
            UnboundKeyError: the service does not bind a data key to its scope.
        """
        request, deadline = (key_id, OTHER_SCOPE, None), self._monotonic() + min(_START_S, self._timeout_s)
        try:
            call = self._pending_call(request, deadline)
        except KeyServiceError:
            return
        self._wait(call, deadline)
        if call.error is not None and call.error.is_a(UnboundKeyError):
            raise call.error.again()

    def to_send(self, key_id: str, scope: str, size_bytes: int) -> DataKey:
        """Return the key to encrypt a record with.

        A key serves its scope until it is too old or used up. Its successor is made ahead of time in the
        background, so a caller waits for the first key only, or if the service was down for too long.

        Args:
            key_id: the key-encryption key.
            scope: what the key is for, such as ``cluster/topic``, 1 to 1,024 bytes of text; the wrapped key
                cannot be unwrapped for any other scope.
            size_bytes: the size of the plaintext.

        Raises:
            KeyServiceError: there is no key, and a new one cannot be made; the error's class gives the
                reason.
        """
        request = (key_id, scope, None)
        key = self._take(request, size_bytes)
        if key is None:
            deadline = self._monotonic() + self._timeout_s
            while key is None:
                # Other threads may use up a small key before this thread takes it.
                self._answer(request, deadline)
                key = self._take(request, size_bytes)
        return key

    def note_use(self, key: DataKey, scope: str, *, records: int, size_bytes: int) -> None:
        """Count records that a key has encrypted without a call of :meth:`to_send` for each.

        A caller that keeps a key for several records reports their number and size afterwards.
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
            HeldBackError: the key cannot be unwrapped now, so the record must wait: the service is down or
                slow, denies the call, or does not have the key-encryption key yet.
            KeyDeletedError: the key-encryption key is deleted or disabled: the record can no longer be read.
            InvalidWrappedKeyError: the wrapped key is not genuine: the record must be refused.
        """
        request = (key_id, scope, wrapped)
        key = self._remembered(request)
        if key is not None:
            return key
        try:
            self._require_plausible(request)
            return self._answer(request, self._monotonic() + self._timeout_s)
        except (KeyDeletedError, InvalidWrappedKeyError):
            raise
        except KeyServiceError as error:
            raise HeldBackError(f"its data key is not available now: {error}") from error

    def prefetch(self, wanted: Iterable[tuple[str, bytes, str]]) -> None:
        """Unwrap several keys at once, so that :meth:`to_read` finds them; wait no longer than it would.

        Args:
            wanted: the arguments of :meth:`to_read`. Failures are ignored here; :meth:`to_read` raises them.
        """
        now_ms = self._now_ms()
        deadline = self._monotonic() + self._timeout_s
        calls = []
        for key_id, wrapped, scope in dict.fromkeys(wanted):
            request = (key_id, scope, wrapped)
            known = self._known.get(request)
            if known is not None and 0 <= now_ms - known[1] < self._cache_age_ms:
                continue
            try:
                self._require_plausible(request)
                calls.append((key_id, self._pending_call(request, deadline)))
            except KeyServiceError:
                continue
        for key_id, call in calls:
            if self._state(key_id).down is None and not self._wait(call, deadline):
                self._note_down(key_id, self._late())

    def stats(self) -> dict[str, int]:
        """Return counts of calls and look-ups; ``oldest_ms`` is the age of the oldest key that encrypts."""
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
        """Reset a forked child, which makes its own keys to encrypt with and has no calls."""
        self._begin()

    def _begin(self) -> None:
        entries = self._cache_entries
        self._lock = Lock()
        self._slots = BoundedSemaphore(self._max_calls)
        self._sending: BoundedCache[_Request, _SendKey | None] = BoundedCache(entries)
        self._pending: dict[_Request, _PendingCall] = {}
        self._refused: BoundedCache[_Request, tuple[float, KeptError[KeyServiceError]]] = BoundedCache(
            entries, max_cost=_MAX_REFUSED_BYTES, cost=lambda request, _: len(request[2] or b"")
        )
        self._states: BoundedCache[str, _KeyState] = BoundedCache(
            entries, lambda _: _KeyState(self._most_failures, self._monotonic())
        )

    def _take(self, request: _Request, size_bytes: int) -> DataKey | None:
        """Return the scope's key if it can encrypt one more record."""
        now_ms = self._now_ms()
        with self._lock:
            sending = self._sending.get(request)
            if sending is None:
                return None
            age_ms = now_ms - sending.made_ms
            if not 0 <= age_ms < self._max_age_ms or sending.uses_left <= 0 or sending.bytes_left <= 0:
                return None
            if self._is_valid is not None and not self._is_valid(sending.key.wrapped):
                self._sending[request] = None
                return None
            sending.uses_left -= 1
            sending.bytes_left -= size_bytes
            due = (
                age_ms >= sending.renew_ms
                or sending.uses_left < self._low_uses
                or sending.bytes_left < self._low_bytes
            )
        if due:
            self._ask_ahead(request)
        return sending.key

    def _remembered(self, request: _Request) -> DataKey | None:
        now_ms = self._now_ms()
        with self._lock:
            known = self._known.get(request)
            age_ms = -1 if known is None else now_ms - known[1]
            if known is not None and self._is_valid is not None and not self._is_valid(known[0].wrapped):
                known = self._known[request] = None
            if known is None or not 0 <= age_ms < self._cache_age_ms:
                self._counts["misses"] += 1
                return None
            self._counts["hits"] += 1
        if age_ms >= self._refresh_ms:
            self._ask_ahead(request)
        return known[0]

    def _require_plausible(self, request: _Request) -> None:
        key_id, _, wrapped = request
        if not self.accepts(key_id):
            raise InvalidWrappedKeyError(
                f"it names the key-encryption key {key_id!r}, which is not accepted here"
            )
        if wrapped is None or not 0 < len(wrapped) <= MAX_WRAPPED_BYTES:
            raise InvalidWrappedKeyError(
                f"a wrapped key has 1 to {MAX_WRAPPED_BYTES} bytes, this one has {len(wrapped or b'')}"
            )

    def _ask_ahead(self, request: _Request) -> None:
        """Start a call in the background, unless the same call is under way or has just failed."""
        try:
            self._pending_call(request, self._monotonic())
        except KeyServiceError:
            return

    def _answer(self, request: _Request, deadline: float) -> DataKey:
        """Return the service's answer, or raise its refusal."""
        key_id = request[0]
        down = self._state(key_id).down
        if down is not None:
            deadline = min(deadline, self._monotonic() + _PROBE_WAIT_S)
        call = self._pending_call(request, deadline)
        if not self._wait(call, deadline):
            raise self._note_down(key_id, self._late() if down is None else down.again())
        if call.error is not None:
            raise call.error.again()
        if call.answer is None:
            raise KeyServiceUnavailableError("the call to the key service was given up")
        return call.answer

    def _wait(self, call: _PendingCall, deadline: float) -> bool:
        return call.done.wait(max(0.0, deadline - self._monotonic()))

    def _late(self) -> KeyServiceUnavailableError:
        return KeyServiceUnavailableError(f"the key service did not answer within {self._timeout_s:g} s")

    def _pending_call(self, request: _Request, deadline: float) -> _PendingCall:
        """Return the call for a request, and start it if there is none; raise a recent failure again."""
        key_id, scope, wrapped = request
        is_at_hand = self._is_at_hand is not None and self._is_at_hand(scope, wrapped)
        with self._lock:
            if self._closed:
                raise KeyServiceError("the data keys are closed")
            if (under_way := self._pending.get(request)) is not None:
                return under_way
            now = self._monotonic()
            if not is_at_hand:
                self._raise_known(request, now)
            costs_nothing = wrapped is None or self._is_local or is_at_hand
            pause_s = 0.0 if costs_nothing else self._charge(key_id, now, most_s=deadline - now)
            call = self._pending[request] = _PendingCall(shows_availability=not is_at_hand)
        try:
            if pause_s:
                time.sleep(pause_s)
            if self._is_local or is_at_hand:
                self._make_call(request, call)
            else:
                self._start(request, call, deadline)
        except BaseException:
            self._finish(request, call)
            raise
        return call

    def _start(self, request: _Request, call: _PendingCall, deadline: float) -> None:
        wait_s = max(0.0, deadline - self._monotonic())
        slots = self._slots
        if not slots.acquire(timeout=wait_s):
            busy = KeyServiceUnavailableError(f"all {self._max_calls} calls to the key service are under way")
            raise self._note_down(request[0], busy) if wait_s else busy
        try:
            Thread(
                target=self._make_call_in_thread, args=(request, call, slots), name=_THREAD, daemon=True
            ).start()
        except BaseException:
            slots.release()
            raise

    def _raise_known(self, request: _Request, now: float) -> None:
        """Raise the recent failure of the same call, or of the service, again."""
        refused = self._refused.get(request)
        if refused is not None and now < refused[0]:
            self._counts["refused_again"] += 1
            raise refused[1].again()
        state = self._states[request[0]]
        if state.down is not None:
            if now < state.probe_at:
                raise state.down.again()
            state.probe_at = now + _PROBE_S

    def _charge(self, key_id: str, now: float, *, most_s: float) -> float:
        """Count a call as failed until it succeeds; return how long it must wait.

        So a flood cannot start more calls than may fail, and calls for genuine keys are refunded.
        """
        state = self._states[key_id]
        refilled = state.left + (now - state.refilled_at) * self._rate
        state.left, state.refilled_at = min(self._most_failures, refilled), now
        wait_s = max(0.0, (1 - state.left) / self._rate)
        if wait_s > most_s:
            self._counts["rate_limited"] += 1
            raise KeyServiceError(
                f"{self._rate} wrapped keys a second were refused under {key_id!r}; this one must wait"
            )
        state.left -= 1
        return wait_s

    def _make_call_in_thread(self, request: _Request, call: _PendingCall, slots: BoundedSemaphore) -> None:
        try:
            self._make_call(request, call)
        finally:
            slots.release()

    def _make_call(self, request: _Request, call: _PendingCall) -> None:
        """Make one call."""
        answer: DataKey | None = None
        error: KeptError[KeyServiceError] | None = None
        try:
            answer = self._call(request)
        except KeyServiceError as raised:
            error = KeptError(raised)
        except Exception as raised:  # noqa: BLE001 - a service may be anybody's plug-in
            # The text is not quoted: only Headerware's own texts are known to hold no secret.
            failure = KeyServiceUnavailableError(f"the key service raised {type(raised).__name__}")
            failure.__cause__ = raised
            error = KeptError(failure)
        finally:
            self._finish(request, call, answer=answer, error=error)

    def _call(self, request: _Request) -> DataKey:
        key_id, scope, wrapped = request
        context = _context(scope)
        if wrapped is None:
            secret = os.urandom(SECRET_BYTES)
            wrapped, version = self._service.wrap(key_id, secret, context)
            if not 0 < len(wrapped) <= MAX_WRAPPED_BYTES:
                raise KeyServiceError(
                    f"the key service wrapped a key into {len(wrapped)} bytes, expected 1 to "
                    f"{MAX_WRAPPED_BYTES}"
                )
            if secret in wrapped:
                raise KeyServiceError(
                    "the key service did not wrap the data key: its answer contains the plain key"
                )
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
            return  # the next data key is tested instead
        except KeyServiceError:
            self._bound[key_id] = True
            return
        raise UnboundKeyError(
            f"the key service unwraps a data key under {key_id!r} for another context than it was wrapped "
            "for, so records could be moved between topics; docs/key-services.md lists the keys that bind it"
        )

    def _finish(
        self,
        request: _Request,
        call: _PendingCall,
        *,
        answer: DataKey | None = None,
        error: KeptError[KeyServiceError] | None = None,
    ) -> None:
        call.answer, call.error = answer, error
        now_ms = self._now_ms()
        with self._lock:
            if self._pending.get(request) is call:  # a forked child has reset its calls
                del self._pending[request]
            if answer is not None:
                if call.shows_availability:
                    self._states[request[0]].down = None
                self._keep(request, answer, now_ms)
            elif error is not None and call.shows_availability:
                self._note_failure(request, error)
        call.done.set()

    def _keep(self, request: _Request, answer: DataKey, now_ms: int) -> None:
        key_id, _, wrapped = request
        if request[1] == OTHER_SCOPE:
            return
        self._counts["wraps" if wrapped is None else "unwraps"] += 1
        if wrapped is not None:
            self._refund(key_id)
        if self._closed:
            return
        if wrapped is None:
            renew_ms = int(self._max_age_ms * (_RENEW_AT - _RENEW_SPREAD * _random.random()))
            self._sending[request] = _SendKey(answer, now_ms, renew_ms, self._max_uses, self._max_bytes)
        else:
            self._known[request] = (answer, now_ms)

    def _note_failure(self, request: _Request, error: KeptError[KeyServiceError]) -> None:
        self._counts["failures"] += 1
        now, state = self._monotonic(), self._states[request[0]]
        if error.is_a(KeyServiceUnavailableError):
            state.down, state.probe_at = error, now + _PROBE_S
            self._refund(request[0])
            return
        state.down = None
        final = error.is_a(KeyDeletedError, InvalidWrappedKeyError)
        self._refused[request] = (now + (self._negative_s if final else _REPEAT_S), error)
        if error.is_a(KeyDeletedError):
            for known in (self._known, self._sending):
                if known.get(request) is not None:  # otherwise a flood would push genuine keys out
                    known[request] = None

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
        raise InvalidWrappedKeyError(  # the scope can come from a record
            f"a data key's scope has 1 to {_MAX_SCOPE_BYTES} bytes, this one has {len(context)}"
        )
    return context
