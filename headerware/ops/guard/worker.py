"""Let into topics what a policy admits, each record exactly once, and keep the rest as dead letters.

One transaction has what a batch of ingress records leads to: the admitted records as they came, the dead
letters of the others, what is told about both, and the offsets. The group's metadata goes along, so a process
that the group has given up cannot commit any more. A process that is killed leaves a transaction that the
broker aborts; the next owner of its partitions waits for that, and goes on where the last one ended.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
    cimpl,
)
from opentelemetry.metrics import Observation, get_meter

from headerware.clients.dead_letters import DeadLetters
from headerware.clients.live_chain import FollowsFile
from headerware.core.backoff import Backoff
from headerware.core.chain import Chain
from headerware.core.client_chain import followed_file, is_disabled
from headerware.core.context import Context
from headerware.core.errors import ConfigError, InterceptorError, position
from headerware.core.file_versions import settle_young
from headerware.core.headers import EMPTY
from headerware.core.hooks import Interceptor, states
from headerware.core.record import Record, bytes_of
from headerware.core.services import Flushes, offered
from headerware.core.step import LoggedReasons
from headerware.core.stop_flag import StopFlag
from headerware.interceptors.admission.interceptor import Admission, AdmissionStep
from headerware.interceptors.sign import Sign
from headerware.kafka.errors import Kind, is_fatal, kind_of
from headerware.kafka.first_answer import Troubles
from headerware.kafka.messages import is_readable, record_of
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
_BATCH: Final = 500
_BATCH_BYTES: Final = 32 << 20
_WAIT_S: Final = 0.1
_LOOK_FOR_TOPICS_S: Final = 30.0
_LOOK_AGAIN_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 5.0
_TELL_S: Final = 1.0
_ASK_FOR_ENDS_S: Final = 10.0
_ASK_FOR_ENDS_TIMEOUT_S: Final = 1.0
_log: Final = logging.getLogger("headerware.ops.guard")


class _Judged(NamedTuple):
    topic: str
    verdict: Verdict
    reason: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What a guard has done, and what it waits for.

    Args:
        admitted: how many records were let through, by ingress topic.
        refused: how many were not, by ingress topic and reason.
        dropped: how many were dropped on purpose by a step, such as copies by ``dedup``, by ingress topic.
        sent_bytes: the size of the keys, values and headers that were let through.
        held: what holds a partition back now, by partition, such as ``orders[3]``.
        held_back: how often something has held a partition back, by what.
        at_ms: when that was so, in milliseconds since the epoch.
        lag: how many offsets are not decided yet, by partition.
        deleted: how many offsets retention took before they were judged.
        transactions: how many were committed.
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


class Guard(FollowsFile):
    """Forward what a chain and a policy admit; only :meth:`stop` and :meth:`status` are for any thread.

    Several processes of one group share the partitions. A record keeps its bytes, its headers, its time and
    its partition, and the order of its partition; a message in slices stands where its last slice stood.

    Args:
        conf: the settings of a client of confluent-kafka, for all clients that it makes; the chain's own keys
            (``headerware.config``, ``headerware.reload``) may be among them.
        routes: an egress topic for each ingress topic, see :class:`~headerware.ops.guard.rules.Routes`.
        chain: the chain that judges, as a consumer of the ingress topics would have it, if code makes it.
            What a step refuses is refused here, whether its ``on_error`` says ``raise``, ``drop`` or
            ``dead_letter``; and nothing passes that no step has verified.
        second: a chain whose sending side admitted records go through; None sends them as they came.
        group_id: the consumer group.
        instance: a name that each process of the group has for itself and keeps over restarts. A process
            that is started again then ends at once what the one before has left open, and has its
            partitions; one that is stopped for good keeps them for ``session.timeout.ms``. None draws one.
        dead_letter_topic: where refused records go; ``{topic}`` is the ingress topic.
        audit_topic: where an account of each transaction goes, as JSON; None keeps none.
        partitioner: refuse records whose key belongs to another partition by this partitioner of librdkafka,
            such as ``murmur2_random``.
        look_back_s: how far before the committed offset records are read again to know copies of them, in
            seconds; None means ``max_age_ms`` of ``sign`` where that has a ``replay_window``.
        max_headers: refuse records with more headers, before anything else is done with them.
        timeout_s: how long the cluster may take to answer, in seconds.

    Raises:
        ConfigError: a route that cannot work, or a chain that verifies nothing.
        HeaderwareError: an interceptor cannot be opened.
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
            raise ConfigError("HEADERWARE_DISABLED is set, and a guard without its chain would pass nothing")
        self._routes: Final = Routes(routes, dead_letter_topic=dead_letter_topic, audit_topic=audit_topic)
        if not group_id or instance == "":
            raise ConfigError("expected a name", path="instance" if group_id else "group_id")
        if max_headers < 1:
            raise ConfigError(f"expected 1 or more, not {max_headers}", path="max_headers")
        self._max_headers: Final = max_headers
        self._second_chain: Final = None if second is None else _raising(second)
        if (file := followed_file(conf, chain)) is not None:
            settle_young(file[0])
        first, rest = self._hw_chain_for(dict(conf), chain)
        self._hw_chain = self._hw_whole_chain(first)
        self._hw_chained = True
        self._conf: Final = {"log_level": 0, **rest}
        self._beside: Final = DeadLetters({**self._conf, "group.id": group_id})
        """What steps report, as audit does, goes by itself; it is made when the first report is due."""
        self._group: Final = group_id
        self._is_named: Final = instance is not None
        self._instance: Final = instance or uuid.uuid4().hex
        self._audit_topic: Final = audit_topic
        self._partitioner: Final = partitioner
        self._look_back_s: Final = look_back_s
        self._look_back(self._hw_chain)
        self._timeout_s: Final = timeout_s
        self._stop: Final = StopFlag()
        self._logged: Final = LoggedReasons()
        self._cluster_id: str | None = None
        self._session: Session | None = None
        self._judge: Judge | None = None
        self._topics: dict[str, int] = {}
        self._leaderless: set[TopicPartitionKey] = set()
        self._left_alone: set[TopicPartitionKey] = set()
        """Those of them that are this process's own; nobody can say where to begin there."""
        self._looked = 0.0
        self._paused: set[TopicPartitionKey] = set()
        self._paused_ends: dict[TopicPartitionKey, int] = {}
        self._ask_for_ends_at = 0.0
        self._lag: dict[str, int] = {}
        self._counts: Final[Counter[_Judged]] = Counter()
        self._sent_bytes = self._deleted = self._transactions = 0
        self._has_worked = self._looks_back_again = False
        meter = get_meter("headerware.ops.guard")
        self._counter: Final = meter.create_counter(
            "headerware.guard.records", unit="{record}", description="Records of ingress topics, by verdict."
        )
        meter.create_observable_gauge(
            "headerware.guard.lag",
            [self._observe_lag],
            unit="{record}",
            description="Offsets of ingress partitions that are not decided yet.",
        )

    # The chain

    def _hw_whole_chain(self, chain: Chain) -> Chain:
        """Return a chain whose steps leave refused records to the guard."""
        if not any(states(step, "verifies") for step in chain):
            raise ConfigError(
                "the guard's chain verifies nothing, so nothing could pass; it needs a sign step, and "
                "admission to judge by certificates"
            )
        self._look_back(chain)
        return _raising(chain)

    def _look_back(self, chain: Chain) -> float:
        """Return how far before a committed offset to begin, in seconds.

        What was read already goes through the chain once more, and is not decided about again. So the windows
        against copies are as before a restart, and hold only what the chain has verified.
        """
        windows = [step for step in chain if isinstance(step, Sign) and step.replay_window]
        stated: float | None = getattr(self, "_look_back_s", None)
        if stated is not None or not windows:
            return stated or 0.0
        if any(step.max_age_ms is None for step in windows):
            raise ConfigError(
                "sign has a replay_window and no max_age_ms: set that, or look_back_s, for it says how far a "
                "guard that is started again reads back to know copies of what it has let through",
                path="look_back_s",
            )
        return max((step.max_age_ms or 0) + step.clock_skew_ms for step in windows) / 1_000

    def _hw_use_chain(self, chain: Chain) -> None:
        if self._session is not None and self._judge is not None:
            earlier = self._session
            self._session = chain.open(earlier.context, previous=earlier)
            self._judge.use(self._session)
            # A window that is new is empty.
            self._looks_back_again = bool(_windows(self._session) - _windows(earlier))
            earlier.close()
        self._hw_chain = chain

    # Running

    def _say(self, mode: str) -> None:
        """Log what this guard will do."""
        _log.info(
            "group %s, instance %s: %s", self._group, self._instance if self._is_named else "drawn", mode
        )
        _log.info("routes %s; %s", ", ".join(self._routes.named), self._routes.kept)
        second = "as they came" if self._second_chain is None else " -> ".join(self._second_chain.names)
        _log.info("judged by the chain %s; sent on %s", " -> ".join(self._hw_chain.names), second)
        for step in self._hw_chain:
            if isinstance(step, Admission):
                _log.info("admitted by the policy %s, for certificates: %s", step.policy, step.require)

    def _say_idle(self, topics: Sequence[str]) -> None:
        """Warn of rules that are for none of the topics that are guarded."""
        steps = () if self._session is None else self._session.steps
        for step in steps:
            if isinstance(step.opened, AdmissionStep):
                for idle in step.opened.idle_on(topics):
                    _log.warning("no topic that is guarded fits %s of the policy; look at its spelling", idle)

    def stop(self) -> None:
        """Stop behind the transaction that is under way; for signal handlers and other threads."""
        self._stop.set()

    def run(self, tell: Callable[[Status], object] = lambda _: None) -> None:
        """Forward records until :meth:`stop`.

        ``tell`` is called behind each transaction, and every second while there is none.

        A cluster that does not answer is waited for, once it has answered.

        Raises:
            TakenOverError: another process has the same ``instance``, or the broker has forgotten this one,
                as it may behind an outage; without a name it goes on by itself.
            HeaderwareError: not even a stub of a dead letter is taken, or the group's offsets are of
                something else.
            confluent_kafka.KafkaException: the cluster cannot be reached at first, or forbids something.
        """
        self._say("forwards what is admitted")
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
                    _log.warning("%s; what was not committed is done again in %.1f s", error, pause_s)
                    self._stop.wait(pause_s)
        finally:
            self._close()

    def _goes_on_after(self, error: Exception) -> bool:
        if isinstance(error, StaleGroupError):
            return True
        if isinstance(error, TakenOverError):
            return not self._is_named
        cause = error.args[0]
        # Clients with a name that the broker does not know any more may have met another with that name.
        is_over = kind_of(cause) is Kind.FORBIDDEN or (_is_of_no_use(cause) and self._is_named)
        return self._has_worked and not is_over

    def _serve(self, tell: Callable[[Status], object]) -> None:
        """Read and send until something fails."""
        troubles = Troubles()
        consumer = cimpl.Consumer({"error_cb": troubles, **self._consumer_settings()})
        try:
            sender = self._sender(consumer, troubles)
        except BaseException:
            consumer.close()
            raise
        try:
            judge = self._begin(consumer, dry_run=False)
            self._has_worked, self._looks_back_again = True, False
            subscribed: list[str] = []
            look_at = tell_at = 0.0
            while not self._stop.is_set():
                if time.monotonic() >= look_at:
                    subscribed = self._subscribe(consumer, subscribed)
                    pause_s = _LOOK_FOR_TOPICS_S if subscribed else _LOOK_AGAIN_S
                    look_at = time.monotonic() + pause_s
                    if self._left_alone - self._leaderless:
                        _log.info("partitions have a leader again; all are begun with anew")
                        return
                if self._hw_next_chain is not None:
                    self._hw_take_next_chain()
                if self._looks_back_again:
                    _log.info("what was decided before is read again, for the new chain to know copies of it")
                    return
                self._read(consumer, judge)
                has_sent = self._send(consumer, sender, judge, judge.decide())
                self._pause_held(consumer, judge)
                if has_sent or time.monotonic() >= tell_at:
                    self._learn_lag(consumer, judge)
                    tell(self.status())
                    tell_at = time.monotonic() + _TELL_S
        finally:
            if self._judge is not None:
                self._judge.revoke(self._judge.done.partitions)
            self._paused.clear()
            self._leave_alone(set())
            self._lag = {}
            # First what is undone, then the partitions go to others.
            sender.close()
            consumer.close()

    def _sender(self, consumer: Any, troubles: Troubles) -> TransactionalSender:
        """Return a sender, which ends what an earlier process of this name has left open."""
        servers, deadline = self._conf.get("bootstrap.servers"), time.monotonic() + self._timeout_s
        troubles.first_metadata(consumer, servers, None, deadline)
        self._look(consumer)
        return TransactionalSender(
            self._conf,
            f"{self._group}-{self._instance}",
            what=f"guard {self._instance} of group {self._group}",
            topics=self._routes.written(self._topics) & self._topics.keys(),
            timeout_s=self._timeout_s,
            reports=self._second_chain is not None,
        )

    def dry_run(self, tell: Callable[[Status], object] = lambda _: None) -> Status:
        """Judge what is there now, from the group's offsets on, and return what would be done.

        Nothing is sent or committed, and the group is not joined. Quotas count as time passes, so they say
        little here; what they would hold back is counted and goes on.

        Raises:
            confluent_kafka.KafkaException: the cluster does not answer, or forbids something.
        """
        self._say("only shows what it would do (dry run)")
        settings = self._consumer_settings()
        settings.pop("group.instance.id", None)
        consumer = cimpl.Consumer(settings)
        try:
            judge = self._begin(consumer, dry_run=True)
            self._look(consumer)
            self._say_idle(self._ingress())
            partitions = [
                TopicPartition(topic, number)
                for topic in self._ingress()
                for number in range(self._topics[topic])
                if (topic, number) not in self._leaderless
            ]
            self._left_alone = {key for key in self._leaderless if key[0] in self._ingress()}
            begins = self._positions(consumer, partitions)
            consumer.assign(begins)
            reading = {(each.topic, each.partition) for each in begins}
            while reading and not self._stop.is_set():
                reading -= self._read(consumer, judge)
                self._count(judge.decide())
                self._learn_lag(consumer, judge)
                tell(self.status())
            return self.status()
        finally:
            consumer.close()
            self._close()

    def status(self) -> Status:
        """Return what was done so far, and what waits."""
        refused: dict[str, dict[str, int]] = {}
        by_verdict: dict[str, dict[str, int]] = {"admitted": {}, "dropped": {}}
        for (topic, verdict, reason), count in sorted(self._counts.items()):
            if verdict == "refused":
                refused.setdefault(topic, {})[reason] = count
            else:
                by_verdict[verdict][topic] = count
        judge, session = self._judge, self._session
        held: dict[TopicPartitionKey, object] = {} if judge is None else dict(judge.held())
        held |= dict.fromkeys(self._left_alone, "it has no leader")
        return Status(
            admitted=by_verdict["admitted"],
            refused=refused,
            dropped=by_verdict["dropped"],
            sent_bytes=self._sent_bytes,
            held={f"{topic}[{number}]": str(error) for (topic, number), error in held.items()},
            held_back={} if judge is None else dict(judge.held_back),
            at_ms=time.time_ns() // 1_000_000,
            lag=dict(self._lag),
            deleted=self._deleted,
            transactions=self._transactions,
            chain={} if session is None else session.stats(),
        )

    # Topics and partitions

    def _consumer_settings(self) -> dict[str, Any]:
        # So the partitions of a process that is started again are still its own.
        static = {"group.instance.id": f"{self._group}-{self._instance}"} if self._is_named else {}
        return {
            **static,
            **self._conf,
            # What is not judged yet is not skipped, whatever other clients with these settings do.
            "auto.offset.reset": "earliest",
            # So that it is known when a partition was read again, also if nothing new comes.
            "enable.partition.eof": True,
            # Also of the group's offsets: those of a transaction that is being ended are waited for.
            "isolation.level": "read_committed",
            "group.id": self._group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }

    def _begin(self, consumer: Any, *, dry_run: bool) -> Judge:
        """Open the chains, the first time."""
        self._look(consumer)
        if self._judge is None:
            context = Context(
                side="consumer",
                client_id=self._conf.get("client.id"),
                group_id=self._group,
                bootstrap_servers=self._conf.get("bootstrap.servers"),
                cluster_id=lambda: self._cluster_id,
                publish=self._beside.store,
                post=self._beside.post,
                dry_run=dry_run,
            )
            self._session = _opened(self._hw_chain, context)
            second = None
            if self._second_chain is not None:
                producing = msgspec.structs.replace(context, side="producer", transactional=True)
                second = _opened_second(self._second_chain, producing)
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

    def _look(self, consumer: Any) -> None:
        """Learn which topics there are."""
        found = consumer.list_topics(timeout=self._timeout_s)
        self._cluster_id = found.cluster_id
        self._topics = {name: len(topic.partitions) for name, topic in found.topics.items()}
        self._leaderless = {
            (name, number)
            for name, topic in found.topics.items()
            for number, partition in topic.partitions.items()
            if partition.leader < 0
        }
        self._looked = time.monotonic()

    def _count_partitions(self, consumer: Any, topic: str, at_least: int) -> int:
        """Return how many partitions a topic has; if it has too few, as it is known now."""
        count = self._topics.get(topic, 0)
        if count < at_least and time.monotonic() - self._looked > _LOOK_AGAIN_S:
            self._look(consumer)
            count = self._topics.get(topic, 0)
        return count

    def _ingress(self) -> list[str]:
        """Return the ingress topics that there are; one that cannot work leaves the others alone."""
        for route in self._routes.unused(self._topics):
            if self._logged.is_new("route", route):
                _log.warning("no topic fits the route from %s yet; it is looked for again", route)
        found = []
        for topic in sorted(self._topics):
            if self._routes.egress(topic) is None:
                continue
            try:
                self._routes.check(topic)
            except ConfigError as error:
                if self._logged.is_new("topic", str(error)):
                    _log.error("the topic %s is left alone: %s", topic, error)
            else:
                found.append(topic)
        return found

    def _subscribe(self, consumer: Any, subscribed: list[str]) -> list[str]:
        self._look(consumer)
        topics = self._ingress()
        if topics != subscribed:
            _log.info("guarding %s", ", ".join(topics) or "no topic yet")
            if topics:
                self._say_idle(topics)
                consumer.subscribe(
                    topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
                )
            else:
                consumer.unsubscribe()
        return topics

    def _on_assign(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._look(consumer)
        mine = {(each.topic, each.partition) for each in partitions}
        alone = [TopicPartition(*key, OFFSET_BEGINNING) for key in sorted(mine & self._leaderless)]
        rest = [TopicPartition(*key) for key in sorted(mine - self._leaderless)]
        begins = [*self._positions(consumer, rest), *alone]
        strategy = str(self._conf.get("partition.assignment.strategy", ""))
        if "cooperative" in strategy or self._conf.get("group.protocol") == "consumer":
            consumer.incremental_assign(begins)
        else:
            consumer.assign(begins)
        # librdkafka keeps a partition paused that was so when it went away, and nothing of it would come.
        consumer.resume(begins)
        if alone:
            consumer.pause(alone)
            self._leave_alone(self._left_alone | (mine & self._leaderless))

    def _leave_alone(self, partitions: set[TopicPartitionKey]) -> None:
        """Note the partitions that nothing can be read of; records of others may be copies of theirs."""
        self._left_alone = partitions
        if self._judge is not None:
            self._judge.is_blind = bool(partitions) and self._look_back(self._hw_chain) > 0

    def _on_revoke(self, _: Any, partitions: list[TopicPartition]) -> None:
        gone = [(each.topic, each.partition) for each in partitions]
        if self._judge is not None:
            self._judge.revoke(gone)
        self._paused.difference_update(gone)
        self._leave_alone(self._left_alone.difference(gone))
        for key in gone:
            self._lag.pop(f"{key[0]}[{key[1]}]", None)

    def _positions(self, consumer: Any, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return where to begin to read, and tell the judge from where on to decide.

        Raises:
            HeaderwareError: the group's offsets are of a topic that was made again, or of something else.
        """
        assert self._judge is not None  # noqa: S101 - it was made before anything is assigned
        asked = [TopicPartition(each.topic, each.partition) for each in partitions]
        if not asked:
            return []
        committed = consumer.committed(asked, timeout=self._timeout_s)
        earlier = self._seconds_before(consumer, asked)
        begins, deleted = [], self._judge.done.deleted
        for found in committed:
            if found.error is not None:
                raise KafkaException(found.error)
            key = found.topic, found.partition
            if found.offset < 0:
                self._judge.begin(key)
                begins.append(TopicPartition(*key, OFFSET_BEGINNING))
                continue
            low, high = consumer.get_watermark_offsets(TopicPartition(*key), timeout=self._timeout_s)
            known = found.offset, found.metadata or ""
            start = self._judge.begin(key, low, high, known, earliest=earlier.get(key))
            begins.append(TopicPartition(*key, start))
        self._deleted += self._judge.done.deleted - deleted
        return begins

    def _seconds_before(
        self, consumer: Any, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartitionKey, int]:
        """Return from where on records are known to be as young as copies may be."""
        look_back_s = self._look_back(self._hw_chain)
        if not look_back_s:
            return {}
        at_ms = max(0, int((time.time() - look_back_s) * 1_000))
        asked = [TopicPartition(each.topic, each.partition, at_ms) for each in partitions]
        found = consumer.offsets_for_times(asked, timeout=self._timeout_s)
        for each in found:
            if each.error is not None:  # without an offset, copies would pass
                raise KafkaException(each.error)
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    # Records

    def _read(self, consumer: Any, judge: Judge) -> set[TopicPartitionKey]:
        """Read what is there, and return the partitions that ended."""
        ended = set()
        count = size_bytes = 0
        until = time.monotonic() + _WAIT_S
        while count < _BATCH and size_bytes < _BATCH_BYTES:
            # One by one, for librdkafka unpacks the headers of all that it returns.
            message = consumer.poll(max(0.0, until - time.monotonic()))
            if message is None:
                break
            count += 1
            error = message.error()
            if error is None:
                record = record_of(message)
                size_bytes += _size_of(record)
                if not judge.add(record):
                    where = position(record.topic, record.partition, record.offset)
                    raise StaleGroupError(f"{where} came again: the group or the topic has begun anew")
            elif kind_of(error) is Kind.END_OF_PARTITION:
                ended.add((message.topic(), message.partition()))
                judge.ended((message.topic(), message.partition()))
            elif _is_of_no_use(error) or kind_of(error) is Kind.FORBIDDEN:
                raise KafkaException(error)
            else:
                _log.info("%s", error.str())
        return ended

    def _pause_held(self, consumer: Any, judge: Judge) -> None:
        """Read nothing of partitions that are held, and go on with those that are not."""
        held = set(judge.held())
        for change, call in ((held - self._paused, consumer.pause), (self._paused - held, consumer.resume)):
            if change:
                with suppress(KafkaException):  # it has gone meanwhile
                    call([TopicPartition(*key) for key in change])
        self._paused = held

    def _send(
        self, consumer: Any, sender: TransactionalSender, judge: Judge, outcomes: Sequence[Outcome]
    ) -> bool:
        """Write what outcomes lead to, with the offsets, and return whether there was anything."""
        commits = judge.done.commits()
        if not (outcomes or commits):
            return False
        offsets = topic_partitions(commits)
        began_ns = time.time_ns()
        delivered: dict[int, Message] = {}
        refused: set[Outcome] = set()

        def decide_again(outcome: Outcome, errors: Mapping[int, KafkaError]) -> Outcome:
            index, error = next(iter(errors.items()))
            if kind_of(error) is Kind.UNKNOWN_PARTITION:
                raise KafkaException(error)  # it holds its partition until the topic has it
            text = f"the topic {outcome.records[index].topic} refuses it: {error.str()}"
            refusal = InterceptorError(text).at("egress", outcome.unit.records[0])
            admitted: Admitted = outcome.about
            refused.add(outcome)
            return judge.refuse(outcome.unit, admitted, refusal)

        try:
            became = transact(
                sender,
                outcomes,
                lambda _: offsets,
                consumer.consumer_group_metadata(),
                decide_again=decide_again,
                account_of=self._account,
                delivered=delivered,
            )
        except BaseException as failure:
            judge.undone([each for each in outcomes if each not in refused], failure, began_ns=began_ns)
            raise
        judge.done.committed(commits)
        self._transactions += 1
        if judge.is_heard:
            places = [outcome for outcome in became for _ in outcome.records]
            told: dict[Outcome, list[Message]] = {outcome: [] for outcome in became}
            for at, outcome in enumerate(places):
                if at in delivered:
                    told[outcome].append(delivered[at])
            judge.committed(told.items(), offsets, began_ns=began_ns)
        self._count(became)
        return True

    def _account(self, outcomes: Sequence[Outcome], offsets: Sequence[TopicPartition]) -> Record | None:
        """Return what is told about a transaction, if anything is."""
        topic = self._audit_topic
        if topic is None or not outcomes:
            return None
        sizes: Counter[_Judged] = Counter()
        for outcome in outcomes:
            sizes[_judged(outcome)] += sum(map(_size_of, outcome.unit.records))
        done = {}
        for place in offsets:
            done[place.topic, place.partition] = place.offset
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
        for counted, count in _counted(outcomes).items():
            self._counts[counted] += count
            topic, verdict, reason = counted
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

    def _learn_lag(self, consumer: Any, judge: Judge) -> None:
        ends = {}
        for key in judge.done.partitions:
            with suppress(KafkaException):  # not known yet, or it has gone
                ends[key] = consumer.get_watermark_offsets(TopicPartition(*key), cached=True)[1]
        # Of what is paused librdkafka learns no end, and it is there that the lag grows.
        if self._paused and time.monotonic() >= self._ask_for_ends_at:
            self._ask_for_ends_at = time.monotonic() + _ASK_FOR_ENDS_S
            asked = [TopicPartition(*key, OFFSET_END) for key in self._paused]
            with suppress(KafkaException):
                for each in consumer.offsets_for_times(asked, timeout=_ASK_FOR_ENDS_TIMEOUT_S):
                    self._paused_ends[each.topic, each.partition] = each.offset
        self._paused_ends = {key: end for key, end in self._paused_ends.items() if key in self._paused}
        self._lag = {
            f"{key[0]}[{key[1]}]": max(0, max(end, self._paused_ends.get(key, 0)) - judge.done.position(key))
            for key, end in ends.items()
        }

    def _observe_lag(self, _options: CallbackOptions) -> Iterator[Observation]:
        for name, lag in list(self._lag.items()):
            topic, _, number = name.rpartition("[")
            yield Observation(
                lag,
                {
                    "messaging.destination.name": topic,
                    "messaging.destination.partition.id": number.removesuffix("]"),
                },
            )

    def _close(self) -> None:
        if self._hw_live is not None:
            self._hw_live.close(self)
        if self._judge is not None:
            self._judge.close()
        self._beside.close()


def _raising(chain: Chain) -> Chain:
    """Return a chain whose steps leave refused records to the guard."""
    return Chain(
        msgspec.structs.replace(step, on_error="raise")
        if isinstance(step, Interceptor) and step.on_error in ("drop", "dead_letter")
        else step
        for step in chain
    )


def _opened(chain: Chain, context: Context) -> Session:
    """Open the chain that judges; refuse one of which nobody could tell what becomes of which record."""
    session = chain.open(context)
    waiting = set(session.names_of_waiting)
    others = [each.name for each in session.steps if each.name in waiting and not each.states("splits")]
    if others:
        session.close()
        raise ConfigError(f"{', '.join(others)} of the guard's chain keeps records back, as only slice may")
    return session


def _opened_second(chain: Chain, context: Context) -> Session:
    """Open the chain that admitted records go through; refuse one that would keep some of them."""
    session = chain.open(context)
    keeping = [each.name for each in session.steps if offered(each.opened, Flushes) is not None]
    if keeping:
        session.close()
        raise ConfigError(
            f"{', '.join(keeping)} of the guard's second chain keeps records back while they are sent, and "
            "nobody could tell in which transaction they belong"
        )
    return session


def _windows(session: Session) -> set[int]:
    """Return which opened steps remember records against copies."""
    return {
        id(step.opened)
        for step in session.steps
        if isinstance(step.interceptor, Sign) and step.interceptor.replay_window
    }


def _is_of_no_use(error: KafkaError) -> bool:
    """Return whether a client is of no use any more."""
    return is_fatal(error) or kind_of(error) is Kind.MEMBER_FENCED


def _judged(outcome: Outcome) -> _Judged:
    """Return what is counted of an outcome."""
    return _Judged(outcome.unit.topic_partition[0], verdict_of(outcome), outcome.why)


def _counted(outcomes: Iterable[Outcome]) -> Counter[_Judged]:
    """Count original records by topic, verdict and reason."""
    counts: Counter[_Judged] = Counter()
    for outcome in outcomes:
        counts[_judged(outcome)] += len(outcome.unit.records)
    return counts


def _size_of(record: Record) -> int:
    """Return a record's size as chargeback counts it; headers that cannot be read have none."""
    return record_bytes(record.key, record.value, record.headers if is_readable(record) else EMPTY)
