"""The lifecycle of consumed records, for all consumers: interceptors are there while one is processed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from headerware.clients.messages import record_with_local, wire_topic_and_local
from headerware.clients.sessions import InUse
from headerware.core.carry import AtWork
from headerware.core.chain import Chain
from headerware.core.client_chain import HIDE_HEADERS, PROCESSING, truth
from headerware.core.errors import ConfigError
from headerware.core.record import VERIFIED, Operation, Record, Verified
from headerware.core.session import Session, exit_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message


HIDE_VARIABLE: Final = "HEADERWARE_HIDE_HEADERS"
Begun = tuple[AbstractContextManager[object], list[Record], InUse]
"""Implicit processing under way: what surrounds it, the records that are told of its end, and the session."""


def handed_over(
    messages: Sequence[Message], in_use: InUse, began_ns: int, *, is_implicit: bool
) -> Begun | None:
    """Tell the interceptors which messages the application receives, and begin implicit processing.

    Records are made of them only if an interceptor asks for them.
    """
    given = [message for message in messages if message.error() is None]
    session = in_use.session
    if not given:
        return None
    if not (session.hears_operations or session.hears_processing):
        return (AtWork(given, record_with_local).__enter__(), [], in_use) if is_implicit else None
    records = list(map(record_with_local, given))
    tell_received(session, records, began_ns, time.time_ns())
    if not is_implicit:
        return None
    scope = session.processing(records)
    return scope, scope.__enter__(), in_use


class Processes:
    """A consumer's part that says when records are processed.

    Processing is implicit if the application does not know of the chain: then the records that a call
    returned are processed until the next call.
    """

    _hw_chained: bool
    _hw_session: Session
    _hw_in_use: InUse
    _hw_is_given_later: bool = False
    """Whether the application gets what a call returns only later, from a worker or in a task."""
    _hw_may_be_implicit: bool
    """Whether processing is implicit if there is a chain."""
    _hw_hides_headers: bool = False
    """Whether messages show no headers of ours; by default only those of instrumented clients."""
    _hw_is_implicit: bool
    _hw_observes: bool
    """Whether any interceptor has to know which records a call returns."""
    _hw_only_at_work: bool
    """Whether no interceptor has to know it: the records are only noted as being at work."""
    _hw_in_process: Begun | None = None
    """The implicit processing that the next call ends."""

    if TYPE_CHECKING:

        def _hw_may_have_a_chain(self) -> bool: ...

    def _hw_take_options(self, conf: dict[str, Any], chain: Chain | None) -> str:
        """Take what says how records are processed and shown out of a configuration; return the mode."""
        mode = processing_mode(conf.pop(PROCESSING, None), chain)
        self._hw_may_be_implicit = mode == "implicit"
        hides = hides_headers(conf.pop(HIDE_HEADERS, None), default=self._hw_hides_headers)
        self._hw_hides_headers = hides and self._hw_may_have_a_chain()
        return mode

    def _hw_observe(self, session: Session) -> None:
        """Find out what the session has to be told."""
        self._hw_is_implicit = self._hw_may_be_implicit and not session.is_empty
        hears = session.hears_operations or (self._hw_is_implicit and session.hears_processing)
        self._hw_observes = hears and not self._hw_is_given_later
        self._hw_only_at_work = self._hw_is_implicit and not (hears or self._hw_is_given_later)

    def _hw_is_awaited(self) -> bool:
        """Return whether anybody would do something now with the records that the application gets."""
        return self._hw_is_implicit or self._hw_session.awaits_operations()

    def _hw_hand_over(self, messages: Sequence[Message], began_ns: int) -> None:
        """Tell the interceptors which records the application receives, and processes from now on."""
        if self._hw_only_at_work:
            given = [message for message in messages if message.error() is None]
            if given:
                self._hw_put_to_work(given)
            return
        in_use = self._hw_in_use
        self._hw_in_process = handed_over(messages, in_use, began_ns, is_implicit=self._hw_is_implicit)

    def _hw_put_to_work(self, messages: Sequence[Message]) -> None:
        """Begin implicit processing that no interceptor hears of."""
        at_work = AtWork(messages, record_with_local)
        # First, so that an interrupt leaves no record at work that nothing ends.
        self._hw_in_process = at_work, [], self._hw_in_use
        at_work.__enter__()

    def _hw_end_implicit(self, error: BaseException | None = None) -> None:
        """End the processing of the records that were given last; the next call shows that it is over."""
        ended, self._hw_in_process = self._hw_in_process, None
        if ended is not None:
            ended[0].__exit__(*exit_arguments(error))

    def _hw_begin_explicit(self) -> None:
        """Leave it to the application, from now on, to say which record it processes, and when."""
        self._hw_may_be_implicit = False
        self._hw_observe(self._hw_session)
        if self._hw_in_process is not None:
            self._hw_in_process[1].clear()  # the application is about to say so itself
            self._hw_end_implicit()

    @contextmanager
    def processing(self, message: Message) -> Iterator[Message]:
        """Surround the processing of a message: interceptors are there meanwhile, and hear of its end.

        They are those of the chain that is in force when the block begins. What the block raises is passed to
        them, and on. What it sends carries on the message's trail, and the headers that the producer's chain
        names. The first use ends implicit processing.
        """
        if not self._hw_chained or message.error() is not None:
            yield message
            return
        if self._hw_may_be_implicit:
            self._hw_begin_explicit()
        in_use = self._hw_in_use  # so that its interceptors are not closed before the block ends
        with in_use.session.processing([record_with_local(message)]):
            yield message

    def local(self, message: Message) -> Mapping[str, Any]:
        """Return the interceptors' state of a delivered message, by interceptor; empty if there is none.

        It is there as long as the message is, and as the message keeps the headers that it came with.
        """
        return (wire_topic_and_local(message)[1] or {}) if self._hw_chained else {}

    def verified(self, message: Message) -> Verified | None:
        """Return what a signature verified of a delivered message; None if no signature did.

        It is there as long as the message is, and as the message keeps the headers that it came with.
        """
        found: Verified | None = self.local(message).get(VERIFIED)
        return found


@contextmanager
def carrying(*messages: Message) -> Iterator[None]:
    """Carry on from messages: what the block sends gets their trail, and the headers that chains name.

    It is for frameworks that poll on another thread than the one that processes, and for queues. Elsewhere
    ``consumer.processing(message)`` does this and more, and implicit processing without a block. Of several
    messages only the named headers that all of them have go on.

    Args:
        messages: messages from consumers that have a chain.
    """
    with AtWork([message for message in messages if message.error() is None], record_with_local):
        yield


class MessageLoop:
    """The messages of a consumer, each in processing until the next one is asked for.

    Args:
        next_message: returns the next message, or None at the end of the loop.
        processing: surrounds the processing of a message.
    """

    def __init__(
        self,
        next_message: Callable[[], Message | None],
        processing: Callable[[Message], AbstractContextManager[Message]],
    ) -> None:
        self._next_message: Final = next_message
        self._processing: Final = processing
        self._scope: AbstractContextManager[Message] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        """End the processing of the message before, and return the next one."""
        self.end()
        message = self._next_message()
        if message is None:
            raise StopIteration
        return self.begin(message)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, exc_traceback: object
    ) -> None:
        self.end(exc_value)

    def __del__(self) -> None:
        if self._scope is not None:
            self.end(GeneratorExit("the loop was left, and did not say why"))

    def begin(self, message: Message) -> Message:
        """Begin to process a message, and return it."""
        self._scope = self._processing(message)
        return self._scope.__enter__()

    def end(self, error: BaseException | None = None) -> None:
        """End the processing of the message before, if there is one."""
        scope, self._scope = self._scope, None
        if scope is not None:
            scope.__exit__(*exit_arguments(error))


def hides_headers(said: object, *, default: bool) -> bool:
    """Return whether messages show no headers of ours, as said for the client or in the environment."""
    place, found = HIDE_HEADERS, said
    if said is None:
        place, found = HIDE_VARIABLE, os.environ.get(HIDE_VARIABLE) or default
    return truth(found, place)


def tell_received(session: Session, records: Sequence[Record], began_ns: int, ended_ns: int) -> None:
    """Tell the interceptors that the application gets records now, and when they were received."""
    if session.awaits_operations():
        session.operation(Operation(name="receive", began_ns=began_ns, ended_ns=ended_ns, records=records))


def processing_mode(said: object, chain: Chain | None) -> str:
    """Return whether processing is ``implicit``, ``explicit``, or ``said`` to be explicit."""
    if said not in {None, "implicit", "explicit"}:
        raise ConfigError(f"expected 'implicit' or 'explicit', found {said!r}", path=PROCESSING)
    if said is None:
        return "explicit" if chain is not None else "implicit"
    return "said" if said == "explicit" else "implicit"
