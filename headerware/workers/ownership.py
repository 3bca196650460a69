"""Ownership: only one of several processes works on a task.

There are two ways to own a task, and each has its errors:

    a transactional id   the latest process owns it: making a TransactionalSender ends the former owner
                         (TakenOverError), and undoes what the former owner had not committed
    a lease              the first process owns it (LeaseHeldError) until it leaves or dies (LeaseLostError)

If tasks are divided in a new way, the former owners have other ids; :func:`succeed` ends them.

A lease is partition 0 of a topic in a group of its own. The member that has the partition reads nothing: its
partitions are paused, and it commits nothing. A process that comes later asks for the members of the group,
and gives up without joining if there are any. If several processes begin at once and find no members, the
group assigns partition 0 to one of them, and the others leave.

A process that was killed loses the lease when its session times out (``session.timeout.ms``, 45 s unless the
settings say otherwise), and so does a process that stood still for as long. Such a process leaves the group,
so that it does not hold up later ones, and learns of the loss from :meth:`Lease.require`, which asks the
group's coordinator. Work that it began before may still take effect. So a lease saves work, but does not
replace fencing.
"""

from __future__ import annotations

import os
import socket
import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import TopicPartition, cimpl

from headerware.core.closing import Closing
from headerware.core.errors import HeaderwareError
from headerware.core.printable import printable
from headerware.kafka.admin import Admin
from headerware.kafka.errors import Kind, kind_of, with_text
from headerware.kafka.wrong_properties import explaining_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_Owner = TypeVar("_Owner")
_POLL_S: Final = 0.05
_ASK_S: Final = 0.5


def succeed(
    owner: _Owner,
    recorded: Callable[[], Sequence[_Owner]],
    record: Callable[[Sequence[_Owner]], object],
    end: Callable[[_Owner], object],
) -> None:
    """Replace former owners, whose tasks have other names, and end them.

    The new owner is recorded together with the former ones before these are ended, and alone afterwards. So
    an owner that begins meanwhile finds that it is out of date, and if this process is killed here, the next
    one does the rest.

    Args:
        owner: the new owner.
        recorded: returns the recorded owners.
        record: replaces the recorded owners.
        end: ends the processes of an owner.
    """
    former = [each for each in recorded() if each != owner]
    if former:
        record([owner, *former])
    for each in former:
        end(each)
    record([owner])


class LeaseHeldError(HeaderwareError):
    """Another process has the lease.

    Args:
        message: the text of the error.
        client_id: the id of that process's client.
        host: the address of that process, as the broker sees it.
    """

    def __init__(self, message: str, *, client_id: str, host: str) -> None:
        super().__init__(message)
        self.client_id: Final = client_id
        self.host: Final = host


class LeaseLostError(HeaderwareError):
    """This process has lost the lease, and no other is known to have it."""


class Lease(Closing):
    """Hold a lease until :meth:`close`, which a thread of its own keeps; for one caller at a time.

    Args:
        conf: the settings of a client of confluent-kafka.
        topic: the topic whose partition 0 stands for the lease.
        group_id: the group; only workers with this task join it.
        what: the task, for messages, such as ``retention of orders``.
        timeout_s: how long the cluster may take to answer, in seconds.

    Raises:
        LeaseHeldError: another process has the lease.
        HeaderwareError: the group has not assigned the lease in time.
        confluent_kafka.KafkaException: the settings are wrong, or the cluster refuses or does not answer.
    """

    def __init__(
        self, conf: Mapping[str, Any], topic: str, group_id: str, *, what: str, timeout_s: float
    ) -> None:
        self._topic: Final = topic
        self._group: Final = group_id
        self._what: Final = what
        self._timeout_s: Final = timeout_s
        self._admin: Final = Admin(conf, timeout_s=timeout_s)
        members = self._members()
        if members:
            raise self._held(next(filter(self._has_it, members), members[0]))
        self._has, self._lost, self._closing = Event(), Event(), Event()
        # With another strategy, a member that joins would interrupt the lease of the present owner.
        strategy = {"partition.assignment.strategy": "cooperative-sticky"}
        # A static member keeps its partitions when it leaves, until its session times out.
        own = {name: value for name, value in conf.items() if name != "group.instance.id"}
        # Also with a client.id of the settings, which processes may share.
        self._client_id: Final = f"{conf.get('client.id', group_id)}-{socket.gethostname()}-{os.getpid()}"
        with explaining_properties(conf):
            self._consumer: Final = cimpl.Consumer(
                {
                    "log_level": 0,  # errors are raised
                    **own,
                    "client.id": self._client_id,
                    **({} if conf.get("group.protocol") == "consumer" else strategy),
                    "group.id": group_id,
                    "enable.auto.commit": False,
                }
            )
        try:
            self._member_id: Final[str] = self._acquire()
        except BaseException:
            self._consumer.close()
            raise
        self._thread: Final = Thread(target=self._keep, name=group_id, daemon=True)
        self._thread.start()

    def _acquire(self) -> str:
        """Join the group, and return the member's id once it has partition 0."""
        self._consumer.subscribe(
            [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        deadline = time.monotonic() + self._timeout_s
        ask_at = time.monotonic() + _ASK_S
        while True:
            message = self._consumer.poll(_POLL_S)
            if self._has.is_set():
                return str(self._consumer.memberid())
            error = None if message is None else message.error()
            if error is not None and not error.retriable() and kind_of(error) is not Kind.ALL_UNREACHABLE:
                raise with_text(error, f"group {self._group}: {error.str()}")
            now = time.monotonic()
            if now > ask_at:
                ask_at = now + _ASK_S
                for member in filter(self._has_it, self._members()):
                    if not self._is_own(member):
                        raise self._held(member)
            if now > deadline:
                raise HeaderwareError(
                    f"group {self._group} has not assigned the lease of the {self._what} within "
                    f"{self._timeout_s:g} s: start it again, or allow more time (timeout)"
                )

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        # With an offset, librdkafka need not look one up; nothing is read.
        paused = [TopicPartition(each.topic, each.partition, 0) for each in partitions]
        consumer.incremental_assign(paused)
        consumer.pause(paused)
        if any(each.partition == 0 for each in partitions):
            self._has.set()

    def _on_revoke(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        consumer.incremental_unassign(partitions)
        if any(each.partition == 0 for each in partitions):
            self._lost.set()

    def _on_lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._on_revoke(consumer, partitions)

    def _keep(self) -> None:
        has_left = False
        while not self._closing.is_set():
            self._consumer.poll(_POLL_S)
            if self._lost.is_set() and not has_left:
                self._consumer.unsubscribe()  # else it would join again, and be taken for another process
                has_left = True

    @property
    def is_lost(self) -> bool:
        """Whether this process knows that it has lost the lease; no broker is asked."""
        return self._lost.is_set()

    def require(self) -> None:
        """Ask the group's coordinator, and raise an error if this process no longer has the lease.

        Raises:
            LeaseHeldError: another process has the lease now, or is about to.
            LeaseLostError: the lease is lost, and no other process has joined the group.
            confluent_kafka.KafkaException: the coordinator does not answer.
        """
        members = self._members()
        others = [each for each in members if not self._is_own(each)]
        is_lost = self._lost.is_set() or all(each.member_id != self._member_id for each in members)
        # During a rebalance perhaps no member has the partition; this process is then still a member.
        holders = [each for each in others if self._has_it(each)] or (others if is_lost else [])
        if holders:
            raise self._held(holders[0])
        if is_lost:
            raise LeaseLostError(
                f"the {self._what} has lost its lease (group {self._group}), because its process stood still "
                f"or could not reach the cluster: it stops; start it again"
            )

    def _is_own(self, member: Any) -> bool:
        """Return whether the member is this process, perhaps with a new member id.

        librdkafka joins the group again when it learns that the session has timed out, before this process
        is told of it.
        """
        return bool(member.client_id == self._client_id)

    def _has_it(self, member: Any) -> bool:
        found = member.assignment.topic_partitions
        return any(each.topic == self._topic and each.partition == 0 for each in found)

    def _held(self, member: Any) -> LeaseHeldError:
        client, host = printable(member.client_id), printable(member.host.removeprefix("/"))
        return LeaseHeldError(
            f"another {self._what} is at work: client {client} on {host} has the lease (group "
            f"{self._group}); if it was killed, the lease is free when its session has timed out",
            client_id=member.client_id,
            host=member.host.removeprefix("/"),
        )

    def _members(self) -> list[Any]:
        return list(self._admin.describe_group(self._group).members)

    def close(self) -> None:
        """Give the lease back."""
        self._closing.set()
        self._thread.join()
        self._consumer.close()
