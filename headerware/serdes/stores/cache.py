"""A cache of schemas: threads share the fetch of a schema, and serdes share an opened store."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from headerware.core.errors import HeldBackError, KeptError, SerdeError, UnknownSchemaError
from headerware.core.shared import Shared
from headerware.serdes.stores.store import NumberedStore, SchemaStore, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from headerware.serdes.avro.schema import Fingerprint, Schema

Answer = TypeVar("Answer")


class Patience(NamedTuple):
    """How long failures are remembered, and how much time requests in vain may take.

    Senders choose the schemas that are requested, and each request may go over the network.
    """

    unknown_s: float = 30.0
    """How long a schema that the store does not have stays unknown."""
    failure_s: float = 1.0
    """How long after a failure the same request is not repeated."""
    share: float = 0.1
    """The part of the time that readers' requests in vain may take, all together."""
    burst_s: float = 2.0
    """How much time they may take at once."""
    longest_s: float = 10.0
    """How long no request is made after they have taken more, at most."""


_PATIENT: Final = Patience()
_NOT_FOUND: Final = 404
_TURN_S: Final = 15.0
"""How long a question keeps its turn: a record that waits is tried again every ten seconds at most."""
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
        return bool(getattr(self._store, "is_numbered", isinstance(self._store, NumberedStore)))

    def get(self, fingerprint: Fingerprint) -> str:
        """Fetch a schema's text; see :class:`SchemaStore`."""
        return self._answers.look_up(fingerprint, lambda: self._store.get(fingerprint))

    def put(self, schema: Schema) -> None:
        """Deposit a schema once; see :class:`SchemaStore`."""

        def deposit() -> str:
            self._store.put(schema)
            self._answers.tell(schema.fingerprint, schema.text)
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
        if self.is_numbered and isinstance(self._store, NumberedStore):
            return self._store
        raise SerdeError(
            "the schema store keeps no ids or GUIDs, which Confluent's framing needs; "
            "use a store of type 'registry'"
        )


class _Flight:
    """A fetch that is under way."""

    __slots__ = ("answer", "done", "error")

    def __init__(self) -> None:
        self.done: Final = threading.Event()
        self.answer: Any = None
        self.error: KeptError[Exception] | None = None

    def landed(self) -> Any:
        self.done.wait()
        if self.error is not None:
            raise self.error.again()
        return self.answer


class _NotAskedError(HeldBackError):
    """The request was not made, so there is no failure to remember, and the record waits."""


class _VainTime:
    """A budget for the time that requests in vain take.

    Questions of records that wait come again, and have their turn in the order in which they began to wait:
    else those of a flood, which come at once, would leave nothing to one that comes every ten seconds. A
    question that has come once alone has no turn, for its reader may not wait.
    """

    def __init__(self, patience: Patience, clock: Callable[[], float]) -> None:
        self._patience: Final = patience
        self._clock: Final = clock
        self._left = patience.burst_s
        self._at = clock()
        self._told = False
        self._came_once: Final[OrderedDict[Hashable, None]] = OrderedDict()
        self._waiting: Final[OrderedDict[Hashable, float]] = OrderedDict()
        """When each question that waits has come for the last time, the oldest question first."""

    def spend(self, seconds: float) -> None:
        """Charge the time of a request in vain."""
        patience = self._patience
        self._refill()
        self._left = max(self._left - seconds, -patience.share * patience.longest_s)

    def require_some(self, question: Hashable) -> None:
        """Refuse a request while no time is left for it, or while another question has its turn."""
        self._refill()
        if self._left >= 0 and self._has_its_turn(question):
            self._waiting.pop(question, None)
            self._told = self._told and self._left < self._patience.burst_s
            return
        self._let_wait(question)
        wait_s = max(0.0, -self._left / self._patience.share)
        message = (
            "the schema store is not asked for this schema: it was asked for too many that it does not have, "
            f"or did not answer; the record waits, and the store is asked again in {wait_s:.1f} s"
        )
        if not self._told:
            self._told = True
            _log.warning("%s", message)
        raise _NotAskedError(message)

    def _has_its_turn(self, question: Hashable) -> bool:
        while self._waiting:
            first, came_at = next(iter(self._waiting.items()))
            if first == question:
                return True
            if self._at - came_at < _TURN_S:
                return False
            del self._waiting[first]
        return True

    def _let_wait(self, question: Hashable) -> None:
        if question in self._waiting or (question in self._came_once and len(self._waiting) < _MOST_WAITING):
            self._came_once.pop(question, None)
            self._waiting[question] = self._at
            return
        self._came_once[question] = None
        if len(self._came_once) > _MOST_WAITING:
            self._came_once.popitem(last=False)

    def _refill(self) -> None:
        now = self._clock()
        self._left = min(self._left + self._patience.share * (now - self._at), self._patience.burst_s)
        self._at = now


class Answers:
    """Answers and failures by question, both remembered for a while."""

    def __init__(self, max_answers: int, patience: Patience, clock: Callable[[], float]) -> None:
        self._max: Final = max_answers
        self._patience: Final = patience
        self._clock: Final = clock
        self._lock: Final = threading.Lock()
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._refused: OrderedDict[Hashable, tuple[float, KeptError[Exception]]] = OrderedDict()
        self._flights: dict[Hashable, _Flight] = {}
        self._vain: Final = _VainTime(patience, clock)

    def look_up(self, question: Hashable, fetch: Callable[[], Answer]) -> Answer:
        """Return the answer to a record's question; a flood of those in vain takes bounded time."""
        return self.ask(question, lambda: self._looked_up(question, fetch))

    def _looked_up(self, question: Hashable, fetch: Callable[[], Answer]) -> Answer:
        with self._lock:
            self._vain.require_some(question)
        began = self._clock()
        try:
            return fetch()
        except Exception:
            with self._lock:
                self._vain.spend(self._clock() - began)
            raise

    def ask(self, question: Hashable, fetch: Callable[[], Answer]) -> Answer:
        """Return the answer; an unknown one is fetched by one thread."""
        with self._lock:
            if question in self._known:
                self._known.move_to_end(question)
                known: Answer = self._known[question]
                return known
            self._raise_refusal(question)
            flight = self._flights.get(question)
            if flight is None:
                mine = self._flights[question] = _Flight()
        if flight is not None:
            landed: Answer = flight.landed()
            return landed
        return self._fetched(question, mine, fetch)

    def tell(self, question: Hashable, answer: Any) -> None:
        """Remember an answer that came without a question."""
        with self._lock:
            self._keep(question, answer)

    def _fetched(self, question: Hashable, flight: _Flight, fetch: Callable[[], Answer]) -> Answer:
        try:
            answer = fetch()
        except BaseException as error:
            flight.error = KeptError(
                error if isinstance(error, Exception) else SerdeError("the fetch was interrupted")
            )
            with self._lock:
                if isinstance(error, Exception) and not isinstance(error, _NotAskedError):
                    self._refuse(question, error)
                del self._flights[question]
            raise
        else:
            flight.answer = answer
            with self._lock:
                self._keep(question, answer)
                del self._flights[question]
            return answer
        finally:
            flight.done.set()

    def _keep(self, question: Hashable, answer: Any) -> None:
        self._known[question] = answer
        self._refused.pop(question, None)
        if len(self._known) > self._max:
            self._known.popitem(last=False)

    def _refuse(self, question: Hashable, error: Exception) -> None:
        unknown = isinstance(error, UnknownSchemaError) or getattr(error, "http_status_code", 0) == _NOT_FOUND
        wait_s = self._patience.unknown_s if unknown else self._patience.failure_s
        self._refused[question] = (self._clock() + wait_s, KeptError(error))
        if len(self._refused) > self._max:
            self._refused.popitem(last=False)

    def _raise_refusal(self, question: Hashable) -> None:
        refused = self._refused.get(question)
        if refused is None:
            return
        until, error = refused
        if self._clock() < until:
            raise error.again()
        del self._refused[question]


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
