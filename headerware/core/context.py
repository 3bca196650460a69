"""The ports by which a session reaches its client and the cluster; interceptors do no I/O of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

from headerware.core.record import Record


def wall_clock_ms() -> int:
    """Return the milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


def _no_cluster() -> str | None:
    return None


def _no_signer(topic: str) -> str | None:  # noqa: ARG001 - a port's signature
    return None


def _no_wait() -> None:
    """Return at once, because waiting would not help."""


def _no_partition(record: Record) -> int | None:  # noqa: ARG001 - a port's signature
    return None


def _no_policy(topic: str) -> bool | None:  # noqa: ARG001 - a port's signature
    return None


def _no_overhead(record: Record) -> int:  # noqa: ARG001 - a port's signature
    return 0


class Publication(Protocol):
    """A record on its way to its topic; a ``concurrent.futures.Future`` has the same methods."""

    def done(self) -> bool:
        """Return whether sending has ended, with success or with an error."""

    def result(self) -> object:
        """Return once the record is stored; raise if it is not."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """The facts and ports that a session gets from a client, from Spark or from a test.

    docs/stability.md lists the stable ones; the others serve Headerware's own interceptors.

    Args:
        side: which half of a chain will be used: ``producer`` sends, ``consumer`` consumes; None for both, as
            in tests.
        client_id: the client's name, or None.
        group_id: the consumer group, or None.
        now_ms: the clock, in milliseconds since the epoch; the only one that interceptors read.
        bootstrap_servers: the addresses by which the client reaches its cluster, as configured, or None if
            there is no client, as in Spark's tasks.
        instrumented_by: the package of another instrumentation that the client's calls go through, or None.
        cluster_id: returns the cluster's id, or None as long as it is unknown; never blocks.
        wait_for_cluster_id: returns once the cluster's id is known, or cannot be found out soon. It blocks
            for two seconds at most, and only once; see :meth:`awaited_cluster_id`.
        publish: sends a finished record without the chain. It returns None if the record is stored, or a
            :class:`Publication` whose result comes later. Both raise if the record is not stored: a
            :class:`~headerware.DeadLetterError` with ``unfit`` if the topic refuses this record, for
            instance because of its size. None if there is no producer.
        is_duplicate: returns whether a record of this identity has come before from another position; None
            if interceptors have to remember identities themselves.
        post: queues a finished record without the chain, apart from the application's own queue, and returns
            at once. It calls back later, on any thread, with None or the error. It raises if the queue is
            full. None if there is no producer.
        pick_partition: chooses a partition for a record whose key does not decide it, or None.
        is_compacted: returns whether the cluster compacts a topic, or None if that is unknown. It asks the
            cluster the first time.
        max_message_bytes: the largest message that the client takes, or None if it is unknown.
        transactional: whether the client sends in transactions only; ``on_operation`` reports their ends.
        overhead_bytes: an upper bound of what the steps to the right add to a record, set by the
            session for each step.
        stats: returns the counters by interceptor, set by the session. The counters belong to the client:
            sessions that replaced each other share one such function, and their counts are added up.
        signed: whether the records that a step works on are signed, set by the chain for each step. The
            content of the headers of signed records must be hard to forge.
        cannot_wait: the reason why the client cannot delay a record while it goes on with other partitions,
            as a sentence without a full stop; None if the client can.
        signer: returns the id of the key that records of a topic are signed with, set by the chain; empty if
            the step that signs states no ``key_id``, None if no step signs them.
        dry_run: whether the session only shows what the chain does. An interceptor then writes nothing that
            outlives the session, such as a file.
        warns: whether a warning is logged for a step that does nothing, when the session opens. False if
            another process logs it, such as the driver for Spark's tasks.
    """

    side: Literal["producer", "consumer"] | None = None
    client_id: str | None = None
    group_id: str | None = None
    now_ms: Callable[[], int] = wall_clock_ms
    bootstrap_servers: str | None = None
    instrumented_by: str | None = None
    cluster_id: Callable[[], str | None] = _no_cluster
    wait_for_cluster_id: Callable[[], None] = _no_wait
    publish: Callable[[Record], Publication | None] | None = None
    is_duplicate: Callable[[bytes, Record], bool] | None = None
    post: Callable[[Record, Callable[[BaseException | None], None]], None] | None = None
    pick_partition: Callable[[Record], int | None] = _no_partition
    is_compacted: Callable[[str], bool | None] = _no_policy
    max_message_bytes: int | None = None
    transactional: bool = False
    overhead_bytes: Callable[[Record], int] = _no_overhead
    stats: Callable[[], Mapping[str, Mapping[str, int]]] = dict
    signed: bool = False
    cannot_wait: str | None = None
    signer: Callable[[str], str | None] = _no_signer
    dry_run: bool = False
    warns: bool = True

    @property
    def tries_again(self) -> bool:
        """Whether a record that a step holds back is tried again; tasks of Spark and tools refuse it."""
        return self.bootstrap_servers is not None and not self.dry_run

    def awaited_cluster_id(self) -> str | None:
        """Return the cluster's id, and wait for it the first time; None if it cannot be found out soon.

        Hooks call this that write the id into records, or compare it, because the first record of a client
        comes before its first answer from a broker. An interceptor that calls this states ``names_cluster =
        True``, so that it is not called on the thread of an event loop.
        """
        self.wait_for_cluster_id()
        return self.cluster_id()
