"""The states of a consumed record, from the wire to the application and through ``run``.

``TRANSITIONS`` says, for each state and each event, which state follows and which action the consumer takes.
:class:`~headerware.clients.delivery.Delivery` follows the table until the application has the record, and
:class:`~headerware.clients.progress.WorkInProgress` follows it while ``run`` processes the record. A pair
that is not in the table cannot happen. ``docs/reliability.md`` shows the table. A record that the application
gets at once is read, ready and given in one step, without an entry in the inbox.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal

# Text rather than enumerations, because Python computes the hash of an enumeration's member anew each time.
State = Literal[
    "read",
    "ready",
    "pending",
    "delayed",
    "held back",
    "waiting",
    "refused",
    "given",
    "told",
    "at work",
    "postponed",
    "passed",
    "processed",
]
Event = Literal[
    "accepted",
    "dropped",
    "dead letter sent",
    "dead letter stored",
    "delayed",
    "held back",
    "refused",
    "due",
    "taken",
    "delivered before",
    "interrupted",
    "started",
    "ended",
    "failed",
]
Action = Literal[
    "queue",
    "wait",
    "give",
    "tell",
    "pass",
    "hold",
    "pause",
    "try again",
    "call",
    "postpone",
    "store",
]

STATES: Final[Mapping[State, str]] = MappingProxyType(
    {
        "read": "it came from the wire and goes through the chain",
        "ready": "it waits until the application asks for it",
        "pending": "its dead letter was sent and is not stored yet; all records after it wait",
        "delayed": "its moment has not come; its partition is paused, and the others go on",
        "held back": "its dead letter could not be stored, or no step can judge it; not told yet",
        "waiting": "the application was told that it is held back; it is tried again after a pause",
        "refused": "the chain refused it; the application was not told yet",
        "given": "the application has it, or `run` has it and no worker yet",
        "told": "the application was told that the chain refused it",
        "at work": "a worker of `run` calls the handler with it",
        "postponed": "the handler failed, or its dead letter was not stored; `run` tries again after a pause",
        "passed": "the application does not get it: dropped, kept as a dead letter, or delivered before",
        "processed": "the handler of `run` is done with it, or `run` skipped it or stored its dead letter",
    }
)
"""Each state, and its meaning."""

ACTIONS: Final[Mapping[Action, str]] = MappingProxyType(
    {
        "queue": "keep it in the inbox, in the order of the wire",
        "wait": "keep it, and all records after it",
        "give": "give it to the application; store the offset after it, unless `run` or the application does",
        "tell": "raise the error, or give a message with an `error()`; commit the offset after it at once",
        "pass": "store the offset after it",
        "hold": "tell the application of the error; store nothing, and begin a pause",
        "pause": "pause its partition",
        "try again": "take it through the chain again, or read it again if it was made of several records",
        "call": "call the handler",
        "postpone": "keep it, and what follows it in its order, until the pause is over",
        "store": "store the offset after it once everything before it is processed",
    }
)
"""Each action, and its meaning."""

TRANSITIONS: Final[Mapping[tuple[State, Event], tuple[State, Action]]] = MappingProxyType(
    {
        # The outcome of the chain
        ("read", "accepted"): ("ready", "queue"),
        ("read", "dropped"): ("passed", "pass"),
        ("read", "dead letter sent"): ("pending", "wait"),
        ("read", "delayed"): ("delayed", "pause"),
        ("read", "held back"): ("held back", "wait"),
        ("read", "refused"): ("refused", "wait"),
        # Its dead letter
        ("pending", "dead letter stored"): ("passed", "pass"),
        ("pending", "held back"): ("held back", "wait"),
        ("pending", "refused"): ("refused", "wait"),
        # The record waits
        ("delayed", "due"): ("read", "try again"),
        ("held back", "taken"): ("waiting", "hold"),
        ("held back", "due"): ("read", "try again"),
        ("waiting", "due"): ("read", "try again"),
        # The application asks for the record
        ("ready", "taken"): ("given", "give"),
        ("refused", "taken"): ("told", "tell"),
        ("passed", "taken"): ("passed", "pass"),
        ("given", "interrupted"): ("ready", "queue"),
        ("told", "interrupted"): ("refused", "wait"),
        # An earlier consumer has delivered the record, or this consumer did before it went back
        ("ready", "delivered before"): ("passed", "pass"),
        ("delayed", "delivered before"): ("passed", "pass"),
        ("held back", "delivered before"): ("passed", "pass"),
        ("waiting", "delivered before"): ("passed", "pass"),
        ("refused", "delivered before"): ("passed", "pass"),
        # The application uses `run`
        ("given", "started"): ("at work", "call"),
        ("at work", "ended"): ("processed", "store"),
        ("at work", "failed"): ("postponed", "postpone"),
        ("postponed", "due"): ("given", "queue"),
    }
)
"""The state and the action that follow from a state and an event."""


def table() -> Iterator[tuple[State, Event, State, Action]]:
    """Yield the rows of the table."""
    for (state, event), (following, action) in TRANSITIONS.items():
        yield state, event, following, action
