"""Forward the records that a policy admits, each exactly once, and keep the others as dead letters.

One transaction contains the results of a batch of ingress records: the admitted records unchanged, the dead
letters of the refused records, the account, and the offsets. The transaction includes the group's metadata,
so a process that was removed from the group cannot commit. A process that is killed leaves a transaction
open, and the broker aborts it; the next owner of the partitions waits for the abort, and continues from the
committed offsets.
"""

from __future__ import annotations

import logging
import math
import time
import uuid
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakMethod

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)
from opentelemetry.metrics import Observation, get_meter

from headerware.clients.dead_letters import DeadLetters
from headerware.clients.live_chain import FollowsFile
from headerware.clients.raw import TIMED_OUT
from headerware.core.backoff import Backoff
from headerware.core.chain import Chain, raising
from headerware.core.client_chain import followed_file, is_disabled
from headerware.core.context import Context
from headerware.core.errors import ConfigError, HeaderwareError, InterceptorError, position
from headerware.core.file_versions import settle_young
from headerware.core.headers import EMPTY
from headerware.core.hooks import states
from headerware.core.printable import counted
from headerware.core.record import Record, bytes_of
from headerware.core.services import Flushes, offered
from headerware.core.step import LoggedReasons
from headerware.core.stop_flag import StopFlag
from headerware.interceptors.admission.interceptor import Admission, AdmissionStep
from headerware.interceptors.sign import Sign
from headerware.kafka.errors import Kind, is_fatal, kind_of
from headerware.kafka.first_answer import Troubles
from headerware.kafka.messages import is_readable, record_of
from headerware.kafka.settings import bootstrap_servers
from headerware.ops.audit.accounts import Account, Done, Verdicts
from headerware.ops.chargeback.sizes import record_bytes
from headerware.ops.guard.judge import MAX_HEADERS, Admitted, Judge, Verdict, verdict_of
from headerware.ops.guard.rules import Routes
from headerware.workers.done import topic_partitions
from headerware.workers.outcomes import Outcome, transact
from headerware.workers.transactions import TIMEOUT_S, StaleGroupError, TakenOverError, TransactionalSender

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from opentelemetry.metrics import CallbackOptions

    from headerware.core.services import TopicPartitionKey
    from headerware.core.session import Session

GROUP: Final = "headerware-guard"
_BATCH_RECORDS: Final = 500
_BATCH_BYTES: Final = 32 << 20
_WAIT_S: Final = 0.1
_TOPICS_INTERVAL_S: Final = 30.0
_SHORT_TOPICS_INTERVAL_S: Final = 1.0
"""Applies while there is no ingress topic, or while a topic has fewer partitions than are needed."""
_LONGEST_PAUSE_S: Final = 5.0
_STATUS_INTERVAL_S: Final = 1.0
_ENDS_INTERVAL_S: Final = 10.0
_ENDS_TIMEOUT_S: Final = 1.0
_log: Final = logging.getLogger("headerware.ops.guard")


class _CountKey(NamedTuple):
    topic: str
    verdict: Verdict
    reason: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The counters of a guard, and the partitions that it holds back.

    Args:
        admitted: how many records were admitted, by ingress topic.
        refused: how many records were refused, by ingress topic and reason.
        dropped: how many records a step dropped on purpose, such as copies by ``dedup``, by ingress topic.
        sent_bytes: the size of the keys, values and headers of the admitted records.
        held: why partitions are held back now, by partition, such as ``orders[3]``.
        held_back: how often partitions were held back, by cause.
        at_ms: the time of this status, in milliseconds since the epoch.
        lag: how many offsets are not decided yet, by partition.
        deleted: how many offsets retention deleted before they were decided.
        transactions: how many transactions were committed.
        chain: the counters of the chain's interceptors.
    """

    admitted: dict[str, int]
    refused: dict[str, dict[str, int]]
    dropped: dict[str, int]
    sent_bytes: int
    held: dict[str, str]
    held_back: dict[str, int]
    at_ms: int
    lag: dict[str, int]
    deleted: int
    transactions: int
    chain: dict[str, dict[str, int]]


class _Assignment:
    """The partitions that one consumer was assigned: which are paused or cannot be read, and their lag."""

    def __init__(self) -> None:
        self.unreadable: set[TopicPartitionKey] = set()
        """Partitions that have no leader, so that their committed offsets cannot be read."""
        self.lag: dict[TopicPartitionKey, int] = {}
        self._paused: set[TopicPartitionKey] = set()
        self._paused_ends: dict[TopicPartitionKey, int] = {}
        self._ends_due_at = 0.0

    def revoke(self, partitions: Iterable[TopicPartitionKey]) -> None:
        """Forget that partitions are paused, and their lag."""
        for key in partitions:
            self._paused.discard(key)
            self.lag.pop(key, None)

    def pause_held(self, consumer: Any, judge: Judge) -> None:
        """Pause the partitions that are held back, and resume the others."""
        held = set(judge.held())
        for change, call in ((held - self._paused, consumer.pause), (self._paused - held, consumer.resume)):
            if change:
                with suppress(KafkaException):  # the partition was revoked in the meantime
                    call([TopicPartition(*key) for key in change])
        self._paused = held

    def learn_lag(self, consumer: Any, judge: Judge) -> None:
        """Set the lag of each partition from its current end."""
        ends = {}
        for key in judge.done.partitions:
            with suppress(KafkaException):  # not known yet, or the partition was revoked
                ends[key] = consumer.get_watermark_offsets(TopicPartition(*key), cached=True)[1]
        # librdkafka does not learn the ends of paused partitions, whose lag grows.
        if self._paused and time.monotonic() >= self._ends_due_at:
            self._ends_due_at = time.monotonic() + _ENDS_INTERVAL_S
            asked = [TopicPartition(*key, OFFSET_END) for key in self._paused]
            with suppress(KafkaException):
                for each in consumer.offsets_for_times(asked, timeout=_ENDS_TIMEOUT_S):
                    self._paused_ends[each.topic, each.partition] = each.offset
        self._paused_ends = {key: end for key, end in self._paused_ends.items() if key in self._paused}
        self.lag = {
            key: max(0, max(end, self._paused_ends.get(key, 0)) - judge.done.position(key))
            for key, end in ends.items()
        }


class Guard(FollowsFile):
    """Forward the records that a chain and a policy admit.

    Only :meth:`stop` and :meth:`status` may be called by any thread. Several processes of one group share the
    partitions. A record keeps its bytes, headers, timestamp and partition, and records keep their order
    within a partition; a message in slices takes the position of its last slice.

    Args:
        conf: the settings of a client of confluent-kafka, used for all clients; may include the chain's keys
            (``headerware.config``, ``headerware.reload``).
        routes: an egress topic for each ingress topic, see :class:`~headerware.ops.guard.rules.Routes`.
        chain: the chain that judges, as for a consumer of the ingress topics; None reads it from the file in
            ``conf``. If a step refuses a record, the guard refuses it, whether the step's ``on_error`` is
            ``raise``, ``drop`` or ``dead_letter``. A record that no step has verified is refused too.
        second: a chain whose sending side admitted records go through; None sends them unchanged.
        group_id: the consumer group.
        instance: a name that is unique in the group and that the process keeps over restarts. A restarted
            process then aborts the open transaction of the former process at once and gets its partitions; a
            process that is not restarted keeps its partitions for ``session.timeout.ms``. None makes a random
            name.
        dead_letter_topic: the topic for refused records; ``{topic}`` stands for the ingress topic.
        audit_topic: the topic for an account of each transaction, as JSON; None writes no accounts.
        partitioner: a partitioner of librdkafka, such as ``murmur2_random``; refuse a record whose partition
            is not the one that this partitioner chooses for its key. None permits any partition.
        look_back_s: from how long before the committed offset records are read again to detect copies, in
            seconds. The time counts from the timestamp of the record before that offset; if there is none,
            the whole partition is read again. None reads all records again whose timestamps are within the
            ``max_age_ms`` of a ``sign`` with a ``replay_window``. Ingress topics therefore need
            ``message.timestamp.type=LogAppendTime``: with CreateTime, a producer may sign a record now and
            give it an older timestamp, and its copy passes after a restart. The guard warns of CreateTime.
        max_headers: refuse records with more headers, before any other check.
        timeout_s: how long the cluster may take to answer, in seconds.

    Raises:
        ConfigError: a route or another option cannot work, or the chain verifies no records.
        MissingPartError: the chain's file is to be watched, and the package watchfiles is not installed.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        routes: Mapping[str, str],
        *,
        chain: Chain | None = None,
        second: Chain | None = None,
        group_id: str = GROUP,
        instance: str | None = None,
        dead_letter_topic: str = "{topic}.dead-letter",
        audit_topic: str | None = None,
        partitioner: str | None = None,
        look_back_s: float | None = None,
        max_headers: int = MAX_HEADERS,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        if is_disabled():
            raise ConfigError(
                "HEADERWARE_DISABLED is set; unset it, because a guard without its chain would admit no "
                "record"
            )
        self._routes: Final = Routes(routes, dead_letter_topic=dead_letter_topic, audit_topic=audit_topic)
        if not group_id or instance == "":
            raise ConfigError("expected a non-empty name", path="instance" if group_id else "group_id")
        if max_headers < 1:
            raise ConfigError(f"expected 1 or more, found {max_headers}", path="max_headers")
        if look_back_s is not None and not 0 <= look_back_s < math.inf:
            raise ConfigError(f"expected 0 or more seconds, found {look_back_s}", path="look_back_s")
        if not 0 < timeout_s < math.inf:
            raise ConfigError(f"expected more than 0 seconds, found {timeout_s}", path="timeout_s")
        self._max_headers: Final = max_headers
        self._look_back_s: Final = look_back_s
        self._timeout_s: Final = timeout_s
        self._second_chain: Final = None if second is None else raising(second)
        if (file := followed_file(conf, chain)) is not None:
            settle_young(file[0])
        first, rest = self._hw_chain_for(dict(conf), chain)
        self._hw_chain = self._hw_complete_chain(first)
        self._hw_chained = True
        self._conf: Final = {"log_level": 0, **rest}
        self._side_records: Final = DeadLetters({**self._conf, "group.id": group_id})
        """Sends the records that steps publish, such as audit reports, outside the transactions."""
        self._group: Final = group_id
        self._is_named: Final = instance is not None
        self._instance: Final = instance or uuid.uuid4().hex
        self._audit_topic: Final = audit_topic
        self._partitioner: Final = partitioner
        self._stop: Final = StopFlag()
        self._logged: Final = LoggedReasons()
        self._cluster_id: str | None = None
        self._session: Session | None = None
        self._judge: Judge | None = None
        self._topics: dict[str, int] = {}
        self._leaderless: set[TopicPartitionKey] = set()
        self._refreshed_at = 0.0
        self._assignment = _Assignment()
        self._counts: Final[Counter[_CountKey]] = Counter()
        self._sent_bytes = self._transactions = 0
        self._has_begun = False
        self._was_connected = False
        self._looks_back_again = False
        meter = get_meter("headerware.ops.guard")
        self._counter: Final = meter.create_counter(
            "headerware.guard.records", unit="{record}", description="Records of ingress topics, by verdict."
        )
        meter.create_observable_gauge(
            "headerware.guard.lag",
            [partial(_observed, WeakMethod(self._observe_lag))],
            unit="{record}",
            description="Offsets of ingress partitions that are not decided yet.",
        )

    # The chain

    def _hw_complete_chain(self, chain: Chain) -> Chain:
        """Check that a chain verifies records, and return it with refusals raised to the guard."""
        if not any(states(step, "verifies") for step in chain):
            raise ConfigError(
                "expected a chain that verifies records, found none of its steps does; add a sign step, and "
                "admission to judge by certificates"
            )
        self._look_back_ms_of(chain)  # raises an error if nothing says how far to read back
        return raising(chain)

    def _look_back_ms_of(self, chain: Chain) -> int:
        """Return from how long before a committed offset a chain has records read again, in milliseconds.

        These records go through the chain again, but are not decided again. The windows that detect copies
        are therefore the same as before a restart, and contain only records that the chain has verified.
        """
        windows = [step for step in chain if isinstance(step, Sign) and step.replay_window]
        if self._look_back_s is not None or not windows:
            return math.ceil((self._look_back_s or 0) * 1_000)
        if any(step.max_age_ms is None for step in windows):
            raise ConfigError(
                "sign has a replay_window but no max_age_ms; set max_age_ms or look_back_s, so that a "
                "restarted guard knows how far to read back to detect copies",
                path="look_back_s",
            )
        return max((step.max_age_ms or 0) + step.clock_skew_ms for step in windows)

    def _hw_use_chain(self, chain: Chain) -> None:
        if self._session is not None and self._judge is not None:
            earlier = self._session
            self._session = chain.open(earlier.context, previous=earlier, check=_require_only_slice_waits)
            self._judge.use(self._session)
            # A new window is empty, so earlier records must be read again.
            self._looks_back_again = bool(_windows(self._session) - _windows(earlier))
            earlier.close()
        self._hw_chain = chain

    # Running

    def _log_start(self, mode: str) -> None:
        """Log the mode, the routes and the chains."""
        _log.info(
            "group %s, instance %s: %s", self._group, self._instance if self._is_named else "random", mode
        )
        _log.info("routes %s; %s", ", ".join(self._routes.named), self._routes.kept)
        second = "unchanged" if self._second_chain is None else " -> ".join(self._second_chain.names)
        _log.info("judged by the chain %s; sent on %s", " -> ".join(self._hw_chain.names), second)
        for step in self._hw_chain:
            if isinstance(step, Admission):
                _log.info("admitted by the policy %s, for certificates: %s", step.policy, step.require)

    def _warn_of_unmatched_rules(self, topics: Sequence[str]) -> None:
        """Warn of rules of the policy that match none of the ingress topics."""
        steps = () if self._session is None else self._session.steps
        for step in steps:
            if isinstance(step.opened, AdmissionStep):
                for idle in step.opened.idle_on(topics):
                    _log.warning("no ingress topic fits %s of the policy; check its spelling", idle)

    def stop(self) -> None:
        """Stop after the transaction that is under way; for signal handlers and other threads."""
        self._stop.set()

    def run(self, tell: Callable[[Status], object] = lambda _: None) -> None:
        """Forward records until :meth:`stop`.

        ``tell`` is called after each transaction, and every second while there is none.

        If the cluster stops answering after the start, the guard waits for it.

        Raises:
            TakenOverError: another process has the same ``instance``, or the broker has forgotten this
                process, which can happen after an outage. A guard without ``instance`` continues in these
                cases.
            ConfigError: a step keeps records back: in the first chain a step other than ``slice``, in the
                second chain any step.
            HeaderwareError: an interceptor cannot be opened, the dead-letter topic refuses even a stub, the
                group's offsets belong to another command, or this Guard has run before.
            confluent_kafka.KafkaException: the cluster cannot be reached at the start, or forbids a request.
        """
        self._require_first_run()
        self._log_start("forwards what is admitted")
        if self._hw_live is not None:
            self._hw_live.follow(self)
        backoff = Backoff(_WAIT_S, _LONGEST_PAUSE_S)
        try:
            while not self._stop.is_set():
                transactions = self._transactions
                try:
                    self._serve(tell)
                except (StaleGroupError, TakenOverError, KafkaException) as error:
                    if not self._goes_on_after(error):
                        raise
                    if self._transactions > transactions:
                        backoff.reset()
                    pause_s = backoff.next_s()
                    _log.warning("%s; uncommitted records are read again in %.1f s", error, pause_s)
                    self._stop.wait(pause_s)
        finally:
            self._close()

    def _require_first_run(self) -> None:
        """Raise a HeaderwareError for a second run, which would use closed chains."""
        if self._has_begun:
            raise HeaderwareError("this Guard has run, and its chains are closed; make a new Guard")
        self._has_begun = True

    def _goes_on_after(self, error: Exception) -> bool:
        """Return whether the guard tries again after an error."""
        if isinstance(error, StaleGroupError):
            return True
        if isinstance(error, TakenOverError):
            return not self._is_named
        cause = error.args[0]
        # A fenced client with a configured instance stops: another process may be using that instance.
        is_over = kind_of(cause) is Kind.FORBIDDEN or (_makes_client_unusable(cause) and self._is_named)
        return self._was_connected and not is_over

    def _serve(self, tell: Callable[[Status], object]) -> None:
        """Read and send with one consumer until an error, or until partitions must be assigned again."""
        troubles = Troubles()
        consumer = cimpl.Consumer({"error_cb": troubles, **self._consumer_settings()})
        try:
            sender = self._sender(consumer, troubles)
        except BaseException:
            consumer.close()
            raise
        try:
            judge = self._open_judge(consumer, dry_run=False)
            self._was_connected, self._looks_back_again = True, False
            subscribed: list[str] = []
            refresh_at = status_at = 0.0
            while not self._stop.is_set():
                if time.monotonic() >= refresh_at:
                    subscribed = self._subscribe(consumer, subscribed)
                    pause_s = _TOPICS_INTERVAL_S if subscribed else _SHORT_TOPICS_INTERVAL_S
                    refresh_at = time.monotonic() + pause_s
                    if self._assignment.unreadable - self._leaderless:
                        _log.info("partitions have a leader again; all partitions are assigned again")
                        return
                if self._hw_next_chain is not None:
                    self._hw_take_next_chain()
                if self._looks_back_again:
                    _log.info("earlier records are read again, so that the new chain detects copies of them")
                    return
                self._read(consumer, judge)
                has_sent = self._send(consumer, sender, judge, judge.decide())
                self._assignment.pause_held(consumer, judge)
                if has_sent or time.monotonic() >= status_at:
                    self._assignment.learn_lag(consumer, judge)
                    tell(self.status())
                    status_at = time.monotonic() + _STATUS_INTERVAL_S
        finally:
            if self._judge is not None:
                self._judge.revoke(self._judge.done.partitions)
            self._set_unreadable(set())
            self._assignment = _Assignment()
            try:
                # Abort the transaction before other processes get the partitions.
                sender.close()
            finally:
                consumer.close()

    def _sender(self, consumer: Any, troubles: Troubles) -> TransactionalSender:
        """Return a sender; making it aborts a transaction that a former process of this name left open."""
        servers, deadline = self._conf.get("bootstrap.servers"), time.monotonic() + self._timeout_s
        troubles.first_metadata(consumer, servers, None, deadline)
        self._refresh_topics(consumer)
        return TransactionalSender(
            self._conf,
            f"{self._group}-{self._instance}",
            what=f"guard {self._instance} of group {self._group}",
            topics=self._routes.written(self._topics) & self._topics.keys(),
            timeout_s=self._timeout_s,
            reports=self._second_chain is not None,
        )

    def dry_run(self, tell: Callable[[Status], object] = lambda _: None) -> Status:
        """Judge the records from the group's offsets to the current ends, and return what would be done.

        Nothing is sent or committed, and the group is not joined. Quotas depend on the time at which records
        come, so they tell little here: records that they would hold back are counted and not delayed.

        Raises:
            ConfigError: a step keeps records back, as for :meth:`run`.
            HeaderwareError: an interceptor cannot be opened, the group's offsets belong to another command,
                or this Guard has run before.
            confluent_kafka.KafkaException: the cluster does not answer, or forbids a request.
        """
        self._require_first_run()
        self._log_start("only shows what it would do (dry run)")
        try:
            consumer = cimpl.Consumer(self._consumer_settings(joins=False))
            try:
                self._judge_to_ends(consumer, tell)
            finally:
                consumer.close()
            return self.status()
        finally:
            self._close()

    def _judge_to_ends(self, consumer: Any, tell: Callable[[Status], object]) -> None:
        """Judge the records from the group's offsets to the current ends, without sending."""
        judge = self._open_judge(consumer, dry_run=True)
        self._refresh_topics(consumer)
        topics = self._ingress()
        self._warn_of_unmatched_rules(topics)
        self._warn_of_missing_topics(topics)
        partitions = {(topic, number) for topic in topics for number in range(self._topics[topic])}
        self._set_unreadable(partitions & self._leaderless)
        readable = [TopicPartition(*key) for key in sorted(partitions - self._leaderless)]
        begins = self._begin_partitions(consumer, readable)
        consumer.assign(begins)
        reading = {(each.topic, each.partition) for each in begins}
        waited_s = 0.0  # in reads alone: to decide about records may take longer
        while reading and not self._stop.is_set():
            began = time.monotonic()
            count, ended = self._read(consumer, judge)
            reading -= ended
            waited_s = 0.0 if count or ended else waited_s + time.monotonic() - began
            if waited_s > self._timeout_s:
                missing = f"{counted(len(reading), 'partition')}, such as {position(*min(reading), None)},"
                text = f"neither a record nor the end of {missing} came within {self._timeout_s:g} s"
                raise KafkaException(KafkaError(TIMED_OUT, text))
            self._count(judge.decide())
            self._assignment.learn_lag(consumer, judge)
            tell(self.status())

    def status(self) -> Status:
        """Return the counters so far, and the partitions that are held back."""
        refused: dict[str, dict[str, int]] = {}
        by_verdict: dict[str, dict[str, int]] = {"admitted": {}, "dropped": {}}
        for (topic, verdict, reason), count in sorted(self._counts.items()):
            if verdict == "refused":
                refused.setdefault(topic, {})[reason] = count
            else:
                by_verdict[verdict][topic] = count
        judge, session, assignment = self._judge, self._session, self._assignment
        held: dict[TopicPartitionKey, object] = {} if judge is None else dict(judge.held())
        held |= dict.fromkeys(assignment.unreadable, "the partition has no leader")
        return Status(
            admitted=by_verdict["admitted"],
            refused=refused,
            dropped=by_verdict["dropped"],
            sent_bytes=self._sent_bytes,
            held={position(*key, None): str(error) for key, error in held.items()},
            held_back={} if judge is None else dict(judge.held_back),
            at_ms=time.time_ns() // 1_000_000,
            lag={position(*key, None): lag for key, lag in [*assignment.lag.items()]},
            deleted=0 if judge is None else judge.done.deleted,
            transactions=self._transactions,
            chain={} if session is None else session.stats(),
        )

    # Topics and partitions

    def _consumer_settings(self, *, joins: bool = True) -> dict[str, Any]:
        """Return the settings of a consumer that joins the group, or only reads."""
        # A static member keeps its partitions over a restart.
        static = {"group.instance.id": f"{self._group}-{self._instance}"} if self._is_named else {}
        settings = {
            **static,
            **self._conf,
            # Never skip records that are not decided, even if the settings say "latest".
            "auto.offset.reset": "earliest",
            # Tells when a partition has been read again, even if no new record comes.
            "enable.partition.eof": True,
            # Also makes the request for the group's offsets wait for an open transaction.
            "isolation.level": "read_committed",
            "group.id": self._group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
        if not joins:
            settings.pop("group.instance.id", None)
        return settings

    def _open_judge(self, consumer: Any, *, dry_run: bool) -> Judge:
        """Open the chains at the first call, and return the judge."""
        self._refresh_topics(consumer)
        if self._judge is None:
            context = Context(
                side="consumer",
                client_id=self._conf.get("client.id"),
                group_id=self._group,
                bootstrap_servers=bootstrap_servers(self._conf),
                cluster_id=lambda: self._cluster_id,
                publish=self._side_records.store,
                post=self._side_records.post,
                dry_run=dry_run,
            )
            self._session = self._hw_chain.open(context, check=_require_only_slice_waits)
            second = None
            if self._second_chain is not None:
                producing = msgspec.structs.replace(context, side="producer", transactional=True)
                second = self._second_chain.open(producing, check=_require_none_flushes)
            self._judge = Judge(
                self._session,
                self._routes,
                second=second,
                count_partitions=partial(self._count_partitions, consumer),
                partitioner=self._partitioner,
                max_headers=self._max_headers,
                waits=not dry_run,
            )
        self._judge.count_partitions = partial(self._count_partitions, consumer)
        return self._judge

    def _refresh_topics(self, consumer: Any) -> None:
        """Ask the cluster for its topics."""
        found = consumer.list_topics(timeout=self._timeout_s)
        self._cluster_id = found.cluster_id
        self._topics = {name: len(topic.partitions) for name, topic in found.topics.items()}
        self._leaderless = {
            (name, number)
            for name, topic in found.topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader < 0
        }
        self._refreshed_at = time.monotonic()

    def _count_partitions(self, consumer: Any, topic: str, at_least: int) -> int:
        """Return the number of a topic's partitions; ask the cluster again if the known number is too low."""
        count = self._topics.get(topic, 0)
        if count < at_least and time.monotonic() - self._refreshed_at > _SHORT_TOPICS_INTERVAL_S:
            self._refresh_topics(consumer)
            count = self._topics.get(topic, 0)
        return count

    def _ingress(self) -> list[str]:
        """Return the existing ingress topics, without those whose routes cannot work."""
        for route in self._routes.unused(self._topics):
            if self._logged.is_new("route", route):
                _log.warning("no topic fits the route from %s yet; the guard will look again", route)
        found = []
        for topic in sorted(self._topics):
            if self._routes.egress(topic) is None:
                continue
            try:
                self._routes.check(topic)
            except ConfigError as error:
                if self._logged.is_new("topic", str(error)):
                    _log.error("the topic %s is not guarded: %s", topic, error)
            else:
                found.append(topic)
        return found

    def _subscribe(self, consumer: Any, subscribed: list[str]) -> list[str]:
        self._refresh_topics(consumer)
        topics = self._ingress()
        if topics != subscribed:
            _log.info("guarding %s", ", ".join(topics) or "no topic yet")
            if topics:
                self._warn_of_unmatched_rules(topics)
                self._warn_of_missing_topics(topics)
                consumer.subscribe(
                    topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
                )
            else:
                consumer.unsubscribe()
        return topics

    def _warn_of_missing_topics(self, topics: Iterable[str]) -> None:
        """Name all topics at once that the guard needs and the cluster does not have."""
        missing = ", ".join(sorted(self._routes.written(topics) - self._topics.keys()))
        if missing and self._logged.is_new("missing", missing):
            _log.warning("records are held back until these topics exist: %s; create them", missing)

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._refresh_topics(consumer)
        assigned = {(each.topic, each.partition) for each in partitions}
        leaderless = [TopicPartition(*key, OFFSET_BEGINNING) for key in sorted(assigned & self._leaderless)]
        readable = [TopicPartition(*key) for key in sorted(assigned - self._leaderless)]
        begins = [*self._begin_partitions(consumer, readable), *leaderless]
        strategy = str(self._conf.get("partition.assignment.strategy", ""))
        if "cooperative" in strategy or self._conf.get("group.protocol") == "consumer":
            consumer.incremental_assign(begins)
        else:
            consumer.assign(begins)
        # librdkafka remembers that a partition was paused when it was revoked, and would deliver no records.
        consumer.resume(begins)
        if leaderless:
            consumer.pause(leaderless)
            self._set_unreadable(self._assignment.unreadable | (assigned & self._leaderless))

    def _set_unreadable(self, partitions: set[TopicPartitionKey]) -> None:
        """Set the partitions that cannot be read.

        While there are any, the judge decides no new record, which may be a copy of an unread one.
        """
        self._assignment.unreadable = partitions
        if self._judge is not None:
            self._judge.is_blind = bool(partitions) and self._look_back_ms_of(self._hw_chain) > 0

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        gone = [(each.topic, each.partition) for each in partitions]
        if self._judge is not None:
            self._judge.revoke(gone)
        self._assignment.revoke(gone)
        self._set_unreadable(self._assignment.unreadable.difference(gone))

    def _begin_partitions(self, consumer: Any, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Add partitions to the judge, and return the offsets to read them from."""
        assert self._judge is not None  # noqa: S101 - made before partitions are assigned
        asked = [TopicPartition(each.topic, each.partition) for each in partitions]
        if not asked:
            return []
        committed = consumer.committed(asked, timeout=self._timeout_s)
        for found in committed:
            if found.error is not None:
                raise KafkaException(found.error)
        earliest = self._look_back_offsets(consumer, [found for found in committed if found.offset >= 0])
        begins = []
        for found in committed:
            key = found.topic, found.partition
            if found.offset < 0:
                self._judge.begin(key)
                begins.append(TopicPartition(*key, OFFSET_BEGINNING))
                continue
            low, high = consumer.get_watermark_offsets(TopicPartition(*key), timeout=self._timeout_s)
            known = found.offset, found.metadata or ""
            start = self._judge.begin(key, low, high, known, earliest=earliest.get(key))
            begins.append(TopicPartition(*key, start))
        return begins

    def _look_back_offsets(
        self, consumer: Any, committed: Sequence[TopicPartition]
    ) -> dict[TopicPartitionKey, int]:
        """Return the offsets from which records are read again to detect copies."""
        look_back_ms = self._look_back_ms_of(self._hw_chain)
        if not (look_back_ms and committed):
            return {}
        now_ms = time.time_ns() // 1_000_000
        if self._look_back_s is None:
            # Copies of older records are refused by max_age_ms, however long the guard was away.
            known = {(each.topic, each.partition): now_ms for each in committed}
        else:
            known = {key: min(at_ms, now_ms) for key, at_ms in self._times_before(committed).items()}
        asked = [TopicPartition(*key, max(0, at_ms - look_back_ms)) for key, at_ms in known.items()]
        found = consumer.offsets_for_times(asked, timeout=self._timeout_s) if asked else []
        for each in found:
            if each.error is not None:  # without an offset, copies would pass
                raise KafkaException(each.error)
        offsets = {(each.topic, each.partition): 0 for each in committed}
        offsets |= {(each.topic, each.partition): each.offset for each in found}
        return {key: offset for key, offset in offsets.items() if offset >= 0}  # else no record is so new

    def _times_before(self, committed: Sequence[TopicPartition]) -> dict[TopicPartitionKey, int]:
        """Return the timestamps of the records before committed offsets, in milliseconds since the epoch.

        Partitions without such a record are missing: a transaction's marker has no timestamp, and
        compaction and retention remove records.
        """
        wanted = {(each.topic, each.partition): each.offset - 1 for each in committed if each.offset > 0}
        times: dict[TopicPartitionKey, int] = {}
        deadline = time.monotonic() + self._timeout_s
        reader = cimpl.Consumer({**self._consumer_settings(joins=False), "queued.min.messages": 1})
        try:
            reader.assign([TopicPartition(*key, offset) for key, offset in wanted.items()])
            while wanted:
                message: Any = reader.poll(max(0.0, deadline - time.monotonic()))
                if message is None:
                    text = (
                        f"the records before the committed offsets are not known after {self._timeout_s:g} s"
                    )
                    raise KafkaException(KafkaError(TIMED_OUT, text))
                error = message.error()
                if error is None or kind_of(error) is Kind.END_OF_PARTITION:
                    key = message.topic(), message.partition()
                    kind, at_ms = message.timestamp()
                    before = wanted.pop(key, None)
                    if error is None and message.offset() == before and kind != TIMESTAMP_NOT_AVAILABLE:
                        times[key] = at_ms
                    reader.pause([TopicPartition(*key)])
                elif _makes_client_unusable(error) or kind_of(error) is Kind.FORBIDDEN:
                    raise KafkaException(error)
        finally:
            reader.close()
        return times

    # Records

    def _read(self, consumer: Any, judge: Judge) -> tuple[int, set[TopicPartitionKey]]:
        """Read a batch into the judge; return the number of records, and the partitions that have no more."""
        ended = set()
        checks_times = self._look_back_ms_of(self._hw_chain) > 0
        count = records = size_bytes = 0
        until = time.monotonic() + _WAIT_S
        while count < _BATCH_RECORDS and size_bytes < _BATCH_BYTES:
            # One by one, because librdkafka unpacks the headers of all messages that it returns.
            message = consumer.poll(max(0.0, until - time.monotonic()))
            if message is None:
                break
            count += 1
            error = message.error()
            if error is None:
                record = record_of(message)
                if checks_times and record.timestamp_type == TIMESTAMP_CREATE_TIME:
                    self._warn_of_create_time(record.topic)
                records += 1
                size_bytes += _size_of(record)
                if not judge.add(record):
                    where = position(record.topic, record.partition, record.offset)
                    raise StaleGroupError(f"{where} came again: the group was reset or the topic recreated")
            elif kind_of(error) is Kind.END_OF_PARTITION:
                ended.add((message.topic(), message.partition()))
                judge.ended((message.topic(), message.partition()))
            elif _makes_client_unusable(error) or kind_of(error) is Kind.FORBIDDEN:
                raise KafkaException(error)
            else:
                _log.info("%s", error.str())
                if kind_of(error) in (Kind.UNKNOWN_TOPIC, Kind.UNKNOWN_PARTITION):
                    ended.add((message.topic(), message.partition()))
        return records, ended

    def _warn_of_create_time(self, topic: str) -> None:
        if self._logged.is_new("timestamps", topic):
            _log.warning(
                "the topic %s has message.timestamp.type=CreateTime, so producers choose the timestamps by "
                "which the guard reads records again, and after a restart copies of records with old "
                "timestamps may pass; set LogAppendTime",
                topic,
            )

    def _send(
        self, consumer: Any, sender: TransactionalSender, judge: Judge, outcomes: Sequence[Outcome]
    ) -> bool:
        """Write outcomes and offsets in one transaction; return False if there is nothing to write."""
        commits = judge.done.commits()
        if not (outcomes or commits):
            return False
        offsets = topic_partitions(commits)
        began_ns = time.time_ns()
        reports_by_outcome: dict[Outcome, list[Message]] = {}
        refused: set[Outcome] = set()

        def decide_again(outcome: Outcome, errors: Mapping[int, KafkaError]) -> Outcome:
            index, error = next(iter(errors.items()))
            if kind_of(error) is Kind.UNKNOWN_PARTITION:
                raise KafkaException(error)  # the topic had the partition when the judge asked
            text = f"the topic {outcome.records[index].topic} refuses the record: {error.str()}"
            refusal = InterceptorError(text).at("egress", outcome.unit.records[0])
            admitted: Admitted = outcome.about
            refused.add(outcome)
            return judge.refuse(outcome.unit, admitted, refusal)

        try:
            written = transact(
                sender,
                outcomes,
                lambda _: offsets,
                consumer.consumer_group_metadata(),
                decide_again=decide_again,
                account_of=self._account,
                reports_by_outcome=reports_by_outcome,
            )
        except BaseException as failure:
            judge.undone([each for each in outcomes if each not in refused], failure, began_ns=began_ns)
            raise
        judge.done.committed(commits)
        self._transactions += 1
        if judge.is_heard:
            judge.committed(reports_by_outcome.items(), offsets, began_ns=began_ns)
        self._count(written)
        return True

    def _account(self, outcomes: Sequence[Outcome], offsets: Sequence[TopicPartition]) -> Record | None:
        """Return the account of a transaction as a record; None without an audit topic or outcomes."""
        topic = self._audit_topic
        if topic is None or not outcomes:
            return None
        sizes: Counter[_CountKey] = Counter()
        for outcome in outcomes:
            sizes[_count_key(outcome)] += sum(map(_size_of, outcome.unit.records))
        done = {}
        for each in offsets:
            done[each.topic, each.partition] = each.offset
        account = Account(
            group=self._group,
            instance=self._instance,
            at_ms=time.time_ns() // 1_000_000,
            records=tuple(
                Verdicts(
                    topic=each.topic,
                    verdict=each.verdict,
                    reason=each.reason or None,
                    count=count,
                    bytes=sizes[each],
                )
                for each, count in sorted(_counted(outcomes).items())
            ),
            done=tuple(
                Done(topic=name, partition=number, offset=offset)
                for (name, number), offset in sorted(done.items())
            ),
        )
        return Record(topic, account.encode(), self._instance.encode())

    def _count(self, outcomes: Sequence[Outcome]) -> None:
        for key, count in _counted(outcomes).items():
            self._counts[key] += count
            topic, verdict, reason = key
            attributes = {"messaging.destination.name": topic, "headerware.guard.verdict": verdict}
            if reason:
                attributes["headerware.guard.reason"] = reason
            self._counter.add(count, attributes)
        self._sent_bytes += sum(
            bytes_of(record)
            for outcome in outcomes
            if outcome.disposition == "sent"
            for record in outcome.records
        )

    def _observe_lag(self, _options: CallbackOptions) -> Iterator[Observation]:
        for (topic, partition), lag in [*self._assignment.lag.items()]:
            attributes = {
                "messaging.destination.name": topic,
                "messaging.destination.partition.id": str(partition),
            }
            yield Observation(lag, attributes)

    def _close(self) -> None:
        if self._hw_live is not None:
            self._hw_live.close(self)
        if self._judge is not None:
            self._judge.close()
        elif self._session is not None:
            self._session.close()
        self._side_records.close()


def _require_only_slice_waits(session: Session) -> None:
    """Raise a ConfigError if steps of the chain that judges, other than slice, keep records back."""
    waiting = set(session.names_of_waiting)
    others = [each.name for each in session.steps if each.name in waiting and not each.states("splits")]
    if others:
        names = ", ".join(others)
        raise ConfigError(
            f"{names} of the guard's chain keeps records back, which only slice may do; remove: {names}"
        )


def _require_none_flushes(session: Session) -> None:
    """Raise a ConfigError if steps of the second chain keep records back."""
    keeping = [each.name for each in session.steps if offered(each.opened, Flushes) is not None]
    if keeping:
        names = ", ".join(keeping)
        raise ConfigError(
            f"{names} of the guard's second chain keeps records back, so they would miss their transaction; "
            f"remove: {names}"
        )


def _observed(
    observe: WeakMethod[Callable[[CallbackOptions], Iterable[Observation]]], options: CallbackOptions
) -> Iterable[Observation]:
    """Return a guard's observations, or none if the guard was freed; a meter keeps its callbacks for ever."""
    found = observe()
    return () if found is None else found(options)


def _windows(session: Session) -> set[int]:
    """Return the ids of the opened steps that remember records to detect copies."""
    return {
        id(step.opened)
        for step in session.steps
        if isinstance(step.interceptor, Sign) and step.interceptor.replay_window
    }


def _makes_client_unusable(error: KafkaError) -> bool:
    """Return whether a client cannot be used any more after an error."""
    return is_fatal(error) or kind_of(error) is Kind.MEMBER_FENCED


def _count_key(outcome: Outcome) -> _CountKey:
    """Return the topic, verdict and reason by which an outcome is counted."""
    return _CountKey(outcome.unit.topic_partition[0], verdict_of(outcome), outcome.why)


def _counted(outcomes: Iterable[Outcome]) -> Counter[_CountKey]:
    """Count original records by topic, verdict and reason."""
    counts: Counter[_CountKey] = Counter()
    for outcome in outcomes:
        counts[_count_key(outcome)] += len(outcome.unit.records)
    return counts


def _size_of(record: Record) -> int:
    """Return a record's size as chargeback counts it; headers that cannot be read do not count."""
    return record_bytes(record.key, record.value, record.headers if is_readable(record) else EMPTY)
