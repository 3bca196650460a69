"""The processing of consumed records, for all consumers: interceptors surround it, and hear of its end."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from headerware.clients.messages import record_with_local, wire_topic_and_local
from headerware.clients.sessions import InUse
from headerware.core.boundary import unread_without_a_chain
from headerware.core.carry import AtWork
from headerware.core.chain import Chain
from headerware.core.client_chain import HIDE_HEADERS, HOW_TO_GIVE_A_CHAIN, PROCESSING, is_disabled, truth
from headerware.core.errors import ConfigError, position
from headerware.core.headers import EMPTY
from headerware.core.record import VERIFIED, Operation, Record, Verified
from headerware.core.session import Session, exit_arguments
from headerware.kafka.messages import headers_of, unread_headers

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Message


_FIRST_MESSAGES: Final = 100
"""At how many messages a consumer without a chain looks; to look at all would take a tenth of the time."""
_log: Final = logging.getLogger("headerware")
HIDE_VARIABLE: Final = "HEADERWARE_HIDE_HEADERS"
Begun = tuple[AbstractContextManager[object], list[Record], InUse]
"""Implicit processing under way: its context manager, the records whose end is told, and the session."""


def handed_over(
    messages: Sequence[Message], in_use: InUse, began_ns: int, *, is_implicit: bool
) -> Begun | None:
    """Tell the interceptors which messages the application receives, and begin implicit processing.

    Records are made of the messages only if an interceptor asks for records.
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
    """The part of a consumer that knows when records are processed.

    Processing is implicit if the application does not know of the chain. Then the records that a call
    returned are processed until the next call.
    """

    _hw_chain: Chain
    _hw_chained: bool
    _hw_session: Session
    _hw_looks_at: int = 0
    """At how many more messages to look for encodings, because there is no chain that would decode them."""
    _hw_in_use: InUse
    _hw_is_given_later: bool = False
    """Whether the application gets the messages of a call only later, from a worker or in a task."""
    _hw_may_be_implicit: bool
    """Whether processing is implicit if there is a chain."""
    _hw_hides_headers: bool = False
    """Whether messages hide our headers; by default only messages of instrumented clients do."""
    _hw_is_implicit: bool
    _hw_observes: bool
    """Whether any interceptor has to know which records a call returns."""
    _hw_only_at_work: bool
    """Whether no interceptor has to know that, and the records are only noted as being at work."""
    _hw_in_process: Begun | None = None
    """The implicit processing that the next call ends."""

    if TYPE_CHECKING:

        def _hw_may_have_a_chain(self) -> bool: ...

    def _hw_take_options(self, conf: dict[str, Any], chain: Chain | None) -> str:
        """Take the options of processing and headers out of a configuration; return the processing mode."""
        mode = processing_mode(conf.pop(PROCESSING, None), chain)
        self._hw_may_be_implicit = mode == "implicit"
        hides = hides_headers(conf.pop(HIDE_HEADERS, None), default=self._hw_hides_headers)
        self._hw_hides_headers = hides and self._hw_may_have_a_chain()
        self._hw_looks_at = 0 if self._hw_chain or is_disabled() else _FIRST_MESSAGES
        return mode

    def _hw_look_at(self, messages: Sequence[Message]) -> None:
        """Warn once if one of the first messages needs a chain that decodes or verifies it."""
        looked_at = messages[: self._hw_looks_at]
        self._hw_looks_at -= len(looked_at)
        for message in looked_at:
            headers = headers_of(message) if message.error() is None else EMPTY
            if headers is None:
                # To ask confluent-kafka for these headers again would end the process.
                message.set_headers(unread_headers(message))  # type: ignore[arg-type]  # they raise when used
            elif warning := unread_without_a_chain(headers):
                where = position(message.topic() or "", message.partition(), message.offset())
                advice = f"{HOW_TO_GIVE_A_CHAIN} (further records are not looked at)"
                _log.warning("%s: %s; %s", where, warning, advice)
                self._hw_looks_at = 0
                return

    def _hw_observe(self, session: Session) -> None:
        """Find out what to tell the session."""
        self._hw_is_implicit = self._hw_may_be_implicit and not session.is_empty
        hears = session.hears_operations or (self._hw_is_implicit and session.hears_processing)
        self._hw_observes = hears and not self._hw_is_given_later
        self._hw_only_at_work = self._hw_is_implicit and not (hears or self._hw_is_given_later)

    def _hw_is_awaited(self) -> bool:
        """Return whether processing is implicit, or an interceptor would use received records now."""
        return self._hw_is_implicit or self._hw_session.awaits_operations()

    def _hw_hand_over(self, messages: Sequence[Message], began_ns: int) -> None:
        """Tell the interceptors which records the application receives and begins to process."""
        if self._hw_only_at_work:
            given = [message for message in messages if message.error() is None]
            if given:
                self._hw_put_to_work(given)
            return
        in_use = self._hw_in_use
        self._hw_in_process = handed_over(messages, in_use, began_ns, is_implicit=self._hw_is_implicit)

    def _hw_put_to_work(self, messages: Sequence[Message]) -> None:
        """Begin implicit processing without telling interceptors, because none wants to hear of it."""
        at_work = AtWork(messages, record_with_local)
        # This comes first, so that after an interrupt the next call still ends the processing.
        self._hw_in_process = at_work, [], self._hw_in_use
        at_work.__enter__()

    def _hw_end_implicit(self, error: BaseException | None = None) -> None:
        """End the processing of the records that the last call returned."""
        ended, self._hw_in_process = self._hw_in_process, None
        if ended is not None:
            ended[0].__exit__(*exit_arguments(error))

    def _hw_begin_explicit(self) -> None:
        """From now on, let the application say which record it processes, and when."""
        self._hw_may_be_implicit = False
        self._hw_observe(self._hw_session)
        if self._hw_in_process is not None:
            self._hw_in_process[1].clear()  # the application is about to say so itself
            self._hw_end_implicit()

    @contextmanager
    def processing(self, message: Message) -> Iterator[Message]:
        """Surround the processing of a message: interceptors surround the block, and hear of its end.

        The chain that is in force when the block begins is used. An exception of the block goes to its
        interceptors, and is raised again. Records that the block sends carry on the message's trail, and the
        headers that the producer's chain names. The first use ends implicit processing.
        """
        if message is None:
            raise _no_message()
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

        The state is lost if the message gets other headers.
        """
        if message is None:
            raise _no_message()
        return (wire_topic_and_local(message)[1] or {}) if self._hw_chained else {}

    def verified(self, message: Message) -> Verified | None:
        """Return the facts that a signature verified of a delivered message; None if no signature did.

        The facts are lost if the message gets other headers.
        """
        found: Verified | None = self.local(message).get(VERIFIED)
        return found


def _no_message() -> TypeError:
    return TypeError("expected a message, found None, which poll returns if no message came in time")


@contextmanager
def carrying(*messages: Message) -> Iterator[None]:
    """Carry on from messages: records that the block sends get their trail, and the headers that chains name.

    It is for queues, and for frameworks that poll on one thread and process on another. Elsewhere
    ``consumer.processing(message)`` does this and more, and implicit processing does it without a block. If
    there are several messages, a named header goes on only if all of them have it.

    Args:
        messages: messages from consumers that have a chain.
    """
    if None in messages:
        raise _no_message()
    with AtWork([message for message in messages if message.error() is None], record_with_local):
        yield


class MessageLoop:
    """Iterate over the messages of a consumer; each is in processing until the next one is asked for.

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
    """Return whether messages hide our headers, as the client's option or the environment says."""
    place, found = HIDE_HEADERS, said
    if said is None:
        place, found = HIDE_VARIABLE, os.environ.get(HIDE_VARIABLE) or default
    return truth(found, place)


def tell_received(session: Session, records: Sequence[Record], began_ns: int, ended_ns: int) -> None:
    """Tell the interceptors which records the application gets now, and when they were received."""
    if session.awaits_operations():
        session.operation(Operation(name="receive", began_ns=began_ns, ended_ns=ended_ns, records=records))


def processing_mode(said: object, chain: Chain | None) -> str:
    """Return ``implicit``, ``explicit``, or ``said`` if the option says that processing is explicit."""
    if said not in {None, "implicit", "explicit"}:
        raise ConfigError(f"expected 'implicit' or 'explicit', found {said!r}", path=PROCESSING)
    if said is None:
        return "explicit" if chain is not None else "implicit"
    return "said" if said == "explicit" else "implicit"
