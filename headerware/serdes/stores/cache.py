"""A cache of schemas: threads share the fetch of a schema, and serdes share an opened store."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from headerware.core.errors import HeldBackError, KeptError, SerdeError, UnknownSchemaError
from headerware.core.plugins import has_methods
from headerware.core.shared import Shared
from headerware.serdes.stores.store import SchemaStore, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from headerware.serdes.avro.schema import Fingerprint, Schema
    from headerware.serdes.stores.store import NumberedStore

Answer = TypeVar("Answer")


class Patience(NamedTuple):
    """How long failures are remembered, and how much time failed requests may take.

    Senders choose the schemas that are requested, and each request may go over the network.
    """

    unknown_s: float = 30.0
    """How long a schema that the store does not have counts as unknown."""
    failure_s: float = 1.0
    """How long after a failure the same request is not repeated."""
    share: float = 0.1
    """The share of time that the failed requests of all readers may take together."""
    burst_s: float = 2.0
    """The time that failed requests may take at once."""
    longest_s: float = 10.0
    """The longest pause after failed requests have taken more time."""


_NUMBERED: Final = ("by_id", "by_guid", "register")
"""The methods of :class:`NumberedStore`."""
_PATIENT: Final = Patience()
_NOT_FOUND: Final = 404
_TURN_S: Final = 15.0
"""How long a request keeps its turn: a waiting record is tried again after ten seconds at the latest."""
_MOST_WAITING: Final = 1_000
_log: Final = logging.getLogger("headerware.serdes")


class CachedStore:
    """Ask a store only once for each schema.

    Threads that request the same schema while a fetch is under way wait for its answer or its error. The most
    recently used schemas are remembered; a deposit is made once. Safe for use by several threads at once.
    """

    def __init__(
        self,
        store: SchemaStore,
        *,
        max_schemas: int = 1000,
        patience: Patience = _PATIENT,
        clock: Callable[[], float] = time.monotonic,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self._store: Final = store
        self._answers: Final = Answers(max_schemas, patience, clock)
        self._close: Final = store.close if on_close is None else on_close

    @property
    def is_numbered(self) -> bool:
        """Whether the store knows ids and GUIDs."""
        return bool(getattr(self._store, "is_numbered", has_methods(self._store, _NUMBERED)))

    def get(self, fingerprint: Fingerprint) -> str:
        """Fetch a schema's text; see :class:`SchemaStore`."""
        return self._answers.look_up(fingerprint, lambda: self._store.get(fingerprint))

    def put(self, schema: Schema) -> None:
        """Deposit a schema once; see :class:`SchemaStore`."""

        def deposit() -> str:
            self._store.put(schema)
            self._answers.put(schema.fingerprint, schema.text)
            return schema.text

        self._answers.ask(("put", schema.fingerprint), deposit)

    def by_id(self, schema_id: int) -> str:
        """Fetch the schema of an id; see :class:`NumberedStore`."""
        store = self._numbered()
        return self._answers.look_up(("id", schema_id), lambda: store.by_id(schema_id))

    def by_guid(self, guid: bytes) -> str:
        """Fetch the schema of a GUID; see :class:`NumberedStore`."""
        store = self._numbered()
        return self._answers.look_up(("guid", guid), lambda: store.by_guid(guid))

    def register(self, subject: str, text: str) -> tuple[int, bytes]:
        """Register a schema under a subject; see :class:`NumberedStore`."""
        store = self._numbered()
        return self._answers.ask(("register", subject, text), lambda: store.register(subject, text))

    def close(self) -> None:
        """Release one use; the store is closed with its last user."""
        self._close()

    def _numbered(self) -> NumberedStore:
        if self.is_numbered and has_methods(self._store, _NUMBERED):
            return cast("NumberedStore", self._store)
        raise SerdeError(
            "the schema store keeps no ids or GUIDs, which Confluent's framing needs; "
            "use a store of type 'registry'"
        )


class _Fetch:
    """A fetch that is under way."""

    __slots__ = ("answer", "done", "error")

    def __init__(self) -> None:
        self.done: Final = threading.Event()
        self.answer: Any = None
        self.error: KeptError[Exception] | None = None

    def result(self) -> Any:
        self.done.wait()
        if self.error is not None:
            raise self.error.again()
        return self.answer


class _NotAskedError(HeldBackError):
    """The request was not made, so there is no failure to remember, and the record waits."""


class _FailureBudget:
    """A budget for the time that failed requests take.

    The requests of waiting records are repeated, and take turns in the order in which they began to wait.
    Otherwise a flood of requests at once would leave no time for a request that comes every ten seconds.
    A request that came only once gets no turn, because its reader may not wait.
    """

    def __init__(self, patience: Patience, clock: Callable[[], float]) -> None:
        self._patience: Final = patience
        self._clock: Final = clock
        self._left = patience.burst_s
        self._at = clock()
        self._warned = False
        self._seen_once: Final[OrderedDict[Hashable, None]] = OrderedDict()
        self._waiting: Final[OrderedDict[Hashable, float]] = OrderedDict()
        """The time at which each waiting request last came, the oldest request first."""

    def spend(self, seconds: float) -> None:
        """Charge the time of a failed request."""
        patience = self._patience
        self._refill()
        self._left = max(self._left - seconds, -patience.share * patience.longest_s)

    def require_time(self, request: Hashable) -> None:
        """Refuse a request while no time is left for it, or while another request has its turn."""
        self._refill()
        if self._left >= 0 and self._has_its_turn(request):
            self._waiting.pop(request, None)
            self._warned = self._warned and self._left < self._patience.burst_s
            return
        self._enqueue(request)
        wait_s = max(0.0, -self._left / self._patience.share)
        message = (
            "the schema store is not asked for this schema, because too many requests for schemas failed; "
            f"the record waits, and the store is asked again in {wait_s:.1f} s"
        )
        if not self._warned:
            self._warned = True
            _log.warning("%s", message)
        raise _NotAskedError(message)

    def _has_its_turn(self, request: Hashable) -> bool:
        while self._waiting:
            first, came_at = next(iter(self._waiting.items()))
            if first == request:
                return True
            if self._at - came_at < _TURN_S:
                return False
            del self._waiting[first]
        return True

    def _enqueue(self, request: Hashable) -> None:
        if request in self._waiting or (request in self._seen_once and len(self._waiting) < _MOST_WAITING):
            self._seen_once.pop(request, None)
            self._waiting[request] = self._at
            return
        self._seen_once[request] = None
        if len(self._seen_once) > _MOST_WAITING:
            self._seen_once.popitem(last=False)

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(self._left + self._patience.share * (now - self._at), self._patience.burst_s)
        self._at = now


class Answers:
    """Cache answers and failures by request."""

    def __init__(self, max_answers: int, patience: Patience, clock: Callable[[], float]) -> None:
        self._max: Final = max_answers
        self._patience: Final = patience
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._refused: OrderedDict[Hashable, tuple[float, KeptError[Exception]]] = OrderedDict()
        self._fetches: dict[Hashable, _Fetch] = {}
        self._failures: Final = _FailureBudget(patience, clock)

    def look_up(self, request: Hashable, fetch: Callable[[], Answer]) -> Answer:
        """Return the answer to a record's request; a flood of failed requests takes bounded time."""
        return self.ask(request, lambda: self._looked_up(request, fetch))

    def _looked_up(self, request: Hashable, fetch: Callable[[], Answer]) -> Answer:
        with self._lock:
            self._failures.require_time(request)
        began = self._clock()
        try:
            return fetch()
        except Exception:
            with self._lock:
                self._failures.spend(self._clock() - began)
            raise

    def ask(self, request: Hashable, fetch: Callable[[], Answer]) -> Answer:
        """Return the answer; an unknown answer is fetched by one thread."""
        with self._lock:
            if request in self._known:
                self._known.move_to_end(request)
                known: Answer = self._known[request]
                return known
            self._raise_refusal(request)
            under_way = self._fetches.get(request)
            if under_way is None:
                mine = self._fetches[request] = _Fetch()
        if under_way is not None:
            shared: Answer = under_way.result()
            return shared
        return self._fetched(request, mine, fetch)

    def put(self, request: Hashable, answer: Any) -> None:
        """Remember an answer that the store was not asked for."""
        with self._lock:
            self._keep(request, answer)

    def _fetched(self, request: Hashable, under_way: _Fetch, fetch: Callable[[], Answer]) -> Answer:
        try:
            answer = fetch()
        except BaseException as error:
            under_way.error = KeptError(
                error if isinstance(error, Exception) else SerdeError("the fetch was interrupted")
            )
            with self._lock:
                if isinstance(error, Exception) and not isinstance(error, _NotAskedError):
                    self._refuse(request, error)
                del self._fetches[request]
            raise
        else:
            under_way.answer = answer
            with self._lock:
                self._keep(request, answer)
                del self._fetches[request]
            return answer
        finally:
            under_way.done.set()

    def _keep(self, request: Hashable, answer: Any) -> None:
        self._known[request] = answer
        self._refused.pop(request, None)
        if len(self._known) > self._max:
            self._known.popitem(last=False)

    def _refuse(self, request: Hashable, error: Exception) -> None:
        unknown = isinstance(error, UnknownSchemaError) or getattr(error, "http_status_code", 0) == _NOT_FOUND
        wait_s = self._patience.unknown_s if unknown else self._patience.failure_s
        self._refused[request] = (self._clock() + wait_s, KeptError(error))
        if len(self._refused) > self._max:
            self._refused.popitem(last=False)

    def _raise_refusal(self, request: Hashable) -> None:
        refused = self._refused.get(request)
        if refused is None:
            return
        until, error = refused
        if self._clock() < until:
            raise error.again()
        del self._refused[request]


def open_shared(store: Any) -> CachedStore:
    """Open a store, or share it if a store with equal options is open in this process.

    Each call is one use, which ``close()`` releases. A store that the caller has opened itself is not closed.
    """
    return _stores.acquire(store, lambda: _opened(store))


def _opened(store: Any) -> CachedStore:
    owned = isinstance(store, Store)
    opened: SchemaStore = store.open() if owned else store
    settings = store if owned else Store()

    def release() -> None:
        if _stores.release(cached) and owned:
            opened.close()

    patience = Patience(settings.unknown_for_s)
    cached = CachedStore(opened, max_schemas=settings.max_schemas, patience=patience, on_close=release)
    return cached


def _same(ours: Any, theirs: Any) -> bool:
    return ours is theirs or (isinstance(theirs, Store) and ours == theirs)


_stores: Final[Shared[CachedStore]] = Shared(_same)
