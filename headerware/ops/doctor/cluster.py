"""The doctor's checks of a cluster, its topics and a consumer group."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, Final, TypeVar

from headerware.core.chain import Chain
from headerware.core.context import wall_clock_ms
from headerware.core.hooks import Interceptor
from headerware.core.order import idle_on
from headerware.core.printable import counted
from headerware.core.topics import topics_of, works_on
from headerware.interceptors.audit import Audit
from headerware.interceptors.encrypt.options import EncryptionOptions
from headerware.interceptors.slice import Slice
from headerware.kafka.admin import (
    TO_RUN_KAFKA,
    Admin,
    TopicDescription,
    embedded_text,
    is_embedded,
    operations,
)
from headerware.kafka.first_answer import TO_REACH_A_CLUSTER
from headerware.keyring.subjects.topic import MAX_COMPACTION_LAG_MS
from headerware.ops.doctor.finding import ABSENT, SIDES, Finding, Side, Status, absent, fail, ok

_Answer = TypeVar("_Answer")
_MAY: Final[Mapping[Side, str]] = {"producer": "WRITE", "consumer": "READ"}
CLIENT_MAX_BYTES: Final = 1_000_000
"""librdkafka's default of message.max.bytes."""
_SLICE_MAX_BYTES: Final = 900_000
_METADATA_BYTES: Final = 24
"""The size of the metadata of a commit of slices, by spec/commit-metadata.md."""
_CLOCK_TOLERANCE_MS: Final = 1_000
_NEVER_MS: Final = (1 << 63) - 1
"""Kafka's default of max.compaction.lag.ms."""
_NOT_TOLD: Final = "the cluster does not report this user's permissions"


class ClusterChecks:
    """The checks that ask the cluster; if the cluster refuses an answer, only that check is unknown."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        loaded: Chain,
        topics: Sequence[str],
        group: str | None,
        side: Side | None,
        timeout_s: float,
    ) -> None:
        self._settings = settings
        self._chain = loaded
        self._topics = tuple(dict.fromkeys(topics))
        self._group = group
        self._side = side
        self._timeout_s = timeout_s
        self._admin: Admin
        self._known: frozenset[str] = frozenset()
        self._broker_configs: dict[str, str] = {}
        self._topic_configs: dict[str, dict[str, str] | None] = {}

    def findings(self) -> Iterator[Finding]:
        """Yield the findings; if the cluster cannot be reached, yield only one finding that says so."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

        try:
            self._admin = Admin(self._settings, timeout_s=self._timeout_s)
            metadata = self._admin.first_metadata()
        except KafkaException as error:
            found = error.args[0].str().removesuffix(f"; {TO_REACH_A_CLUSTER}")
            yield fail("cluster", found, TO_REACH_A_CLUSTER)
            return
        self._known = frozenset(metadata.topics)
        yield ok("cluster", f"{metadata.cluster_id}, {counted(len(metadata.brokers), 'broker')}")
        embedded = is_embedded(metadata.cluster_id)
        if len(metadata.brokers) == 1 and not embedded:
            yield Finding(
                check="cluster",
                status="warn",
                found="one broker: while it restarts, librdkafka may forget the cluster (its issue 5301)",
                advice="make new clients if they find no broker after a restart, or run several brokers",
            )
        for name, found in idle_on(tuple(self._chain), {*self._topics, *self._known}):
            yield Finding(
                check=f"chain: {name}",
                status="warn",
                found=f"{found}: neither a topic that was named nor a topic of the cluster",
                advice="correct the topics of that step or rule, or name the topic that will be created",
            )
        if embedded:
            yield from self._of_embedded()
            return
        yield from self._of_cluster()
        yield from self._of_group()
        for topic in self._topics:
            yield from self._of_topic(topic)

    def _ask(
        self, check: str, right: str, ask: Callable[[], _Answer]
    ) -> Generator[Finding, None, _Answer | None]:
        """Return the cluster's answer; if the cluster refuses it, yield a finding and return None."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

        try:
            return ask()
        except KafkaException as error:
            found = f"the cluster does not answer this: {error.args[0].str()}"
            yield Finding(
                check=check, status="unknown", found=found, advice=f"{right} lets the doctor see it"
            )
            return None

    def _of_embedded(self) -> Iterator[Finding]:
        """Yield what can be said of a cluster that answers no admin requests."""
        what = embedded_text(self._settings.get("bootstrap.servers"))
        yield Finding(
            check="cluster",
            status="unknown",
            found=f"{what}: it tells no settings, rights or groups, so topics are only looked for",
            advice=TO_RUN_KAFKA,
        )
        for topic in self._topics:
            there = topic in self._known
            yield ok(f"topic {topic}", "it is there") if there else absent(topic)

    def _of_cluster(self) -> Iterator[Finding]:
        found = yield from self._ask("cluster", "DESCRIBE on the cluster", self._admin.describe_cluster)
        may_create = "CREATE" in operations(found)
        if found is not None and found.controller is not None:
            ask = partial(self._admin.broker_settings, found.controller.id)
            right = "DESCRIBE_CONFIGS on the cluster"
            configs = yield from self._ask("cluster: settings", right, ask)
            self._broker_configs = configs or {}
        metadata_bytes = int(self._broker_configs.get("offset.metadata.max.bytes", 4096))
        if metadata_bytes < _METADATA_BYTES:
            yield fail(
                "commits",
                f"offset.metadata.max.bytes is {metadata_bytes}, so commits of slices are refused",
                f"raise it to {_METADATA_BYTES} or more; Kafka's default is 4096",
            )
        yield from self._dead_letters(may_create=may_create)
        yield from self._audit_topics()
        yield from self._subject_keys()

    def _subject_keys(self) -> Iterator[Finding]:
        for name, step in zip(self._chain.names, self._chain, strict=True):
            place = step.subject_keys if isinstance(step, EncryptionOptions) else None
            if place is None or place.servers is not None:  # other brokers are not asked here
                continue
            check = f"keys of subjects of {name}"
            if place.topic not in self._known:
                status: Status = "warn" if place.create else "fail"
                found = f"topic {place.topic} {ABSENT}"
                advice = "create it with one partition, or grant READ on it: without it, records wait"
                yield Finding(check=check, status=status, found=found, advice=advice)
                continue
            configs = yield from self._settings_of(place.topic)
            if configs is None:
                continue
            lag_ms = int(configs.get("max.compaction.lag.ms", _NEVER_MS))
            if configs["cleanup.policy"] != "compact":
                found = f"cleanup.policy of {place.topic} is {configs['cleanup.policy']}"
                yield fail(check, found, "set it to compact: otherwise brokers delete keys that are in use")
            elif lag_ms >= _NEVER_MS:
                yield Finding(
                    check=check,
                    status="warn",
                    found=f"max.compaction.lag.ms of {place.topic} is not set, so the brokers may keep "
                    "erased keys for ever",
                    advice="set it to the time that you promise for erasures, such as "
                    f"{MAX_COMPACTION_LAG_MS}, a day",
                )
            else:
                yield ok(check, f"{place.topic}, compacted within {lag_ms} ms")

    def _audit_topics(self) -> Iterator[Finding]:
        for name, step in zip(self._chain.names, self._chain, strict=True):
            if not isinstance(step, Audit) or step.audit_topic is None:
                continue
            check = f"reports of {name}"
            if step.audit_topic not in self._known:
                found = f"topic {step.audit_topic} {ABSENT}"
                yield fail(check, found, "create it, or grant WRITE on it: otherwise reports are lost")
                continue
            description = yield from self._description(check, step.audit_topic)
            if description is None:
                continue
            if not description.operations:
                yield Finding(check=check, status="unknown", found=_NOT_TOLD)
            elif "WRITE" in description.operations:
                yield ok(check, f"this user may write to {step.audit_topic}")
            else:
                found = f"this user may not write to {step.audit_topic}"
                yield fail(check, found, "grant WRITE: otherwise reports are lost")

    def _description(self, check: str, topic: str) -> Generator[Finding, None, TopicDescription | None]:
        """Return the cluster's description of a topic, including this user's permissions."""
        ask = partial(self._admin.describe_topic, topic)
        return (yield from self._ask(check, f"DESCRIBE on {topic}", ask))

    def _dead_letters(self, *, may_create: bool) -> Iterator[Finding]:
        if self._broker_configs.get("auto.create.topics.enable") == "true":
            may_create = True
        for name, step in zip(self._chain.names, self._chain, strict=True):
            if not isinstance(step, Interceptor) or step.on_error != "dead_letter":
                continue
            for topic in filter(topics_of(step).matches, self._topics):
                dead = step.dead_letter_topic.replace("{topic}", topic)
                check = f"dead letters of {name} from {topic}"
                if dead in self._known:
                    yield ok(check, dead)
                    yield from self._dead_letter_topic(check, topic, dead)
                else:
                    yield Finding(
                        check=check,
                        status="warn" if may_create else "fail",
                        found=f"topic {dead} does not exist",
                        advice="create the topic, before the broker creates it with default settings"
                        if may_create
                        else "create the topic: otherwise a refused record stops its partition",
                    )

    def _dead_letter_topic(self, check: str, topic: str, dead: str) -> Iterator[Finding]:
        if topic not in self._known:
            return
        settings = []
        for one in (topic, dead):
            configs = yield from self._settings_of(one)
            if configs is None:
                return
            settings.append(configs)
        own_ms, other_ms = map(_retention_ms, settings)
        if other_ms <= own_ms and settings[1]["message.timestamp.type"] == "CreateTime" and other_ms < inf:
            yield Finding(
                check=check,
                status="warn",
                found=f"{dead} keeps dead letters no longer than {topic} keeps records",
                advice="set retention.ms=-1, or message.timestamp.type=LogAppendTime: a dead letter has the "
                "timestamp of its record, so the dead letter of an old record is soon deleted",
            )
        own, other = (int(configs["max.message.bytes"]) for configs in settings)
        if other < own:
            yield Finding(
                check=check,
                status="warn",
                found=f"max.message.bytes is {other}, less than the {own} of {topic}",
                advice=f"raise it above {own}: a dead letter has more headers than its record",
            )

    def _of_group(self) -> Iterator[Finding]:
        if self._group is None:
            return
        check = f"group {self._group}"
        ask = partial(self._admin.describe_group, self._group)
        group = yield from self._ask(check, "DESCRIBE on the group", ask)
        if group is None:
            return
        allowed = operations(group)
        state = "not there yet" if group.state.name == "DEAD" else str(group.state.name).lower()
        if not allowed:
            yield Finding(check=check, status="unknown", found=f"{state}; {_NOT_TOLD}")
        elif "READ" not in allowed:
            advice = "grant READ on the group: otherwise its consumers can neither join nor commit"
            yield fail(check, "this user may not read in the group", advice)
        else:
            yield ok(check, f"{state}; this user may read in it")

    def _of_topic(self, topic: str) -> Iterator[Finding]:
        check = f"topic {topic}"
        if topic not in self._known:
            yield absent(topic)
            return
        description = yield from self._description(check, topic)
        configs = yield from self._settings_of(topic)
        if description is not None:
            yield from self._rights(check, description.operations)
        if configs is not None:
            if description is not None:
                yield from _replication(check, description.replicas, int(configs["min.insync.replicas"]))
            yield from self._sizes(topic, int(configs["max.message.bytes"]))
            yield from self._compaction(topic, configs["cleanup.policy"])
        if description is not None:
            kind = "" if configs is None else configs["message.timestamp.type"]
            yield from self._clock(topic, description.partitions, kind)

    def _rights(self, check: str, allowed: frozenset[str]) -> Iterator[Finding]:
        wanted = {_MAY[side] for side in (SIDES if self._side is None else (self._side,))}
        missing = sorted(wanted - allowed)
        if not allowed:
            yield Finding(check=check, status="unknown", found=_NOT_TOLD)
        elif not missing:
            yield ok(check, f"this user may {' and '.join(sorted(wanted)).lower()}")
        else:
            status: Status = "fail" if len(missing) == len(wanted) else "warn"
            words = " or ".join(missing)
            yield Finding(
                check=check,
                status=status,
                found=f"this user may not {words.lower()}",
                advice=f"grant {words}, or name the application's side with --side if it does not need that",
            )

    def _slicing(self, topic: str) -> Iterator[Slice]:
        return (step for step in self._chain if isinstance(step, Slice) and works_on(step, topic))

    def _sizes(self, topic: str, limit: int) -> Iterator[Finding]:
        check = f"topic {topic}: size"
        client = int(self._settings.get("message.max.bytes", CLIENT_MAX_BYTES))
        slicing = next(self._slicing(topic), None)
        if slicing is None:
            if limit < client:
                yield Finding(
                    check=check,
                    status="warn",
                    found=f"the topic takes {limit} bytes, and the client sends up to {client}",
                    advice="raise max.message.bytes of the topic, lower message.max.bytes of the client, or "
                    "add slice to the chain",
                )
            else:
                yield ok(check, f"the topic takes {limit} bytes, the client sends up to {client}")
            return
        largest = min(_SLICE_MAX_BYTES, client) if slicing.max_bytes is None else slicing.max_bytes
        if largest > limit:
            yield fail(
                check,
                f"slices are up to {largest} bytes, and the topic takes {limit}",
                f"set max_bytes of slice to {limit} or less, or raise max.message.bytes of the topic",
            )
        elif largest > client:
            yield fail(
                check,
                f"slices are up to {largest} bytes, and the client takes {client}",
                f"set max_bytes of slice to {client} or less, or raise message.max.bytes of the client",
            )
        else:
            yield ok(check, f"slices are up to {largest} bytes, and the topic takes {limit}")

    def _compaction(self, topic: str, policy: str) -> Iterator[Finding]:
        check = f"topic {topic}: compaction"
        if "compact" not in policy:
            return
        if next(self._slicing(topic), None) is not None:
            yield fail(
                check,
                "the topic is compacted and slice applies to it: all slices of a message have the same key, "
                "so compaction would keep only the last slice",
                f"exclude the topic from slice (topics = ['*', '!{topic}']) and add claim_check to the chain "
                "for large values, or set cleanup.policy=delete",
            )
        else:
            yield ok(check, f"cleanup.policy is {policy}")

    def _clock(self, topic: str, partitions: int, kind: str) -> Iterator[Finding]:
        """Compare the topic's latest timestamps with this machine's clock: Kafka does not tell its time."""
        check, now_ms = f"topic {topic}: clocks", wall_clock_ms()
        latest_ms = yield from self._ask(
            check,
            f"DESCRIBE on {topic}",
            lambda: max(self._admin.latest_timestamps(topic, partitions).values(), default=-1),
        )
        if latest_ms is None:
            return
        owners = {"LogAppendTime": "the brokers'", "CreateTime": "a producer's"}
        owner = owners.get(kind, "a producer's or the brokers'")
        if latest_ms < 0:
            yield Finding(
                check=check,
                status="unknown",
                found="the topic has no record whose time could be compared; Kafka does not tell its time",
                advice="compare the machines by NTP, with `chronyc tracking` for instance",
            )
        elif latest_ms > now_ms + _CLOCK_TOLERANCE_MS:
            yield Finding(
                check=check,
                status="warn",
                found=f"the latest record is {latest_ms - now_ms} ms in the future: {owner} clock is fast, "
                "or this machine's clock is slow",
                advice="synchronize the clocks with NTP; signatures, expiry and trails compare times",
            )
        else:
            yield ok(check, f"no record is in the future{f' ({kind})' if kind else ''}")

    def _settings_of(self, topic: str) -> Generator[Finding, None, dict[str, str] | None]:
        """Return a topic's settings; ask once for each topic, and yield only one finding for a refusal."""
        if topic not in self._topic_configs:
            ask = partial(self._admin.topic_settings, topic)
            self._topic_configs[topic] = yield from self._ask(
                f"topic {topic}: settings", f"DESCRIBE_CONFIGS on {topic}", ask
            )
        return self._topic_configs[topic]


def _replication(check: str, replicas: int, in_sync: int) -> Iterator[Finding]:
    check = f"{check}: replicas"
    found = f"{counted(replicas, 'replica')}, min.insync.replicas {in_sync}"
    if in_sync > replicas:
        advice = "lower min.insync.replicas or add replicas: as it is, the topic refuses acks=all"
        yield fail(check, found, advice)
    elif replicas == 1:
        advice = "use three replicas: with one, records are lost when the broker is lost"
        yield Finding(check=check, status="warn", found=found, advice=advice)
    elif in_sync == replicas:
        advice = "add one replica: as it is, the topic refuses records with acks=all while a broker is down"
        yield Finding(check=check, status="warn", found=found, advice=advice)
    else:
        yield ok(check, found)


def _retention_ms(configs: Mapping[str, str]) -> float:
    """Return how long a topic keeps records by their time; infinity if age deletes no record."""
    ms = int(configs["retention.ms"])
    return float(ms) if "delete" in configs["cleanup.policy"] and ms >= 0 else inf
