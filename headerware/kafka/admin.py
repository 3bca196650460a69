"""Requests to a cluster, and the few changes that are made there, through confluent-kafka's admin client.

An error names its topic or group, which the cluster's own error does not.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from headerware.kafka.errors import Kind, kind_of, with_text
from headerware.kafka.settings import bootstrap_servers, connection_settings
from headerware.kafka.wrong_properties import explaining_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from confluent_kafka import KafkaError, KafkaException

_Answer = TypeVar("_Answer")
Isolation = Literal["read_uncommitted", "read_committed"]
"""Whether the end of a partition comes after its open transactions, or before the first of them."""
_LEAST_TIMEOUT_S: Final = 0.05
"""Requests refuse a timeout of 0."""
_EMBEDDED_ID: Final = "mockCluster"
"""How the cluster's id begins that librdkafka's mock brokers give themselves."""
TO_RUN_KAFKA: Final = "headerware dev --kafka runs a real Kafka; see headerware dev --help"
"""What to do if an embedded cluster is not enough."""
_PAUSE_S: Final = 0.05
"""How long to wait before a coordinator that moves is asked again."""


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic as the cluster describes it.

    Args:
        id: the topic's id, which changes if the topic is deleted and made again.
        partitions: the number of partitions.
        replicas: the number of copies of the partition that has the fewest.
        operations: the operations that this user may do, such as ``WRITE``; empty if they are not known.
    """

    id: str
    partitions: int
    replicas: int
    operations: frozenset[str]


class Admin:
    """A client for requests that consumers and producers do not make; threads may share it.

    A request for a topic that does not exist does not create it.

    Args:
        conf: the settings of a client of confluent-kafka; only the settings of the connection are used.
        timeout_s: how long an answer may take, in seconds.

    Raises:
        confluent_kafka.KafkaException: the settings are wrong. All methods raise it if the cluster refuses a
            request, or does not answer in time.
    """

    def __init__(self, conf: Mapping[str, Any], *, timeout_s: float) -> None:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - slow to import

        from headerware.kafka.first_answer import Troubles  # noqa: PLC0415 - as above

        self._timeout_s: Final = max(timeout_s, _LEAST_TIMEOUT_S)
        self._servers: Final = bootstrap_servers(conf)
        self._troubles: Final = Troubles()
        settings: dict[str, Any] = {**_settings(conf), "error_cb": self._troubles}
        with explaining_properties(settings):
            self._client: Final[Any] = AdminClient(settings)
        self._is_real = False

    def metadata(self, topic: str | None = None) -> Any:
        """Return confluent-kafka's ClusterMetadata: the id, the brokers, and one topic or all topics."""
        return self._client.list_topics(topic, timeout=self._timeout_s)

    def first_metadata(self, topic: str | None = None) -> Any:
        """Return the metadata of one or all topics; the error says which broker does not answer, and why."""
        deadline = time.monotonic() + self._timeout_s
        return self._troubles.first_metadata(self._client, self._servers, topic, deadline)

    def _require_real(self, request: str, topic: str | None = None) -> None:
        """Raise KafkaException if the cluster is embedded: it would leave this kind of request unanswered.

        Without this, librdkafka waits for the controller, which an embedded cluster does not have. If the
        request is about a topic, the cluster is only asked for this topic.
        """
        if self._is_real:
            return
        if is_embedded(self.first_metadata(topic).cluster_id):
            raise _unsupported(
                f"{embedded_text(self._servers)}: it answers no {request} requests; {TO_RUN_KAFKA}"
            )
        self._is_real = True

    def describe_cluster(self) -> Any:
        """Return confluent-kafka's DescribeClusterResult, with the operations that this user may do."""
        self._require_real("DescribeCluster")
        return self._client.describe_cluster(
            include_authorized_operations=True, request_timeout=self._timeout_s
        ).result()

    def broker_settings(self, broker: int) -> dict[str, str]:
        """Return a broker's settings by their names, without settings that have no value."""
        return _values(*self._asked_settings("BROKER", [str(broker)]).popitem())

    # Topics

    def describe_topic(self, topic: str) -> TopicDescription:
        """Return a topic as the cluster describes it."""
        from confluent_kafka import TopicCollection  # noqa: PLC0415 - slow to import

        self._require_real("DescribeTopics", topic)
        (asked,) = self._client.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=self._timeout_s
        ).values()
        found = _answer(topic, asked)
        return TopicDescription(
            id=str(found.topic_id),
            partitions=len(found.partitions),
            replicas=min((len(each.replicas) for each in found.partitions), default=0),
            operations=operations(found),
        )

    def topic_settings(self, topic: str) -> dict[str, str]:
        """Return a topic's settings by their names, without settings that have no value."""
        return _values(*self._asked_settings("TOPIC", [topic]).popitem())

    def told_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of topics, without topics that do not exist or that this user may not see.

        The result is empty if no broker can answer; an embedded cluster does not.
        """
        from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

        names = list(dict.fromkeys(topics))
        told: dict[str, dict[str, str]] = {}
        with suppress(KafkaException):
            for name, asked in (self._asked_settings("TOPIC", names) if names else {}).items():
                with suppress(KafkaException):
                    told[name] = _values(name, asked)
        return told

    def create_topic(
        self, topic: str, *, partitions: int, replication_factor: int, settings: Mapping[str, str]
    ) -> None:
        """Create a topic; a replication factor of -1 leaves it to the brokers."""
        from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415 - slow to import; its stub shows it here only

        self._require_real("CreateTopics")
        wanted = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(settings),
        )
        (asked,) = self._client.create_topics([wanted], request_timeout=self._timeout_s).values()
        _answer(topic, asked)

    # Offsets

    def beginnings(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the first offset of each partition of a topic with this number of partitions."""
        return {number: each.offset for number, each in self._offsets(topic, partitions, "earliest").items()}

    def ends(
        self, topic: str, partitions: int, *, isolation: Isolation = "read_uncommitted"
    ) -> dict[int, int]:
        """Return the offset at which each partition ends, of a topic with this number of partitions."""
        found = self._offsets(topic, partitions, "latest", isolation)
        return {number: each.offset for number, each in found.items()}

    def latest_timestamps(self, topic: str, partitions: int) -> dict[int, int]:
        """Return the latest timestamp of each partition of a topic, in milliseconds; -1 without records.

        The markers of transactions count, too.
        """
        found = self._offsets(topic, partitions, "max_timestamp")
        return {number: each.timestamp for number, each in found.items()}

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records of a partition below an offset."""
        from confluent_kafka import TopicPartition  # noqa: PLC0415 - slow to import

        self._require_real("DeleteRecords", topic)
        first_kept = TopicPartition(topic, partition, before)
        (asked,) = self._client.delete_records([first_kept], request_timeout=self._timeout_s).values()
        _answer(topic, asked)

    # Groups

    def describe_group(self, group: str) -> Any:
        """Return confluent-kafka's ConsumerGroupDescription."""
        self._require_real("DescribeGroups")

        def ask() -> Any:
            (asked,) = self._client.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=self._timeout_s
            ).values()
            return _answer(f"group {group}", asked)

        return self._from_coordinator(ask)

    def groups(self) -> list[str]:
        """Return the ids of all groups; some brokers that do not answer are an error."""
        self._require_real("ListGroups")
        listed = self._client.list_consumer_groups(request_timeout=self._timeout_s).result()
        for error in listed.errors or ():
            raise _about("the list of groups", error)
        return [each.group_id for each in listed.valid or ()]

    def committed(self, groups: Iterable[str]) -> dict[tuple[str, str, int], int]:
        """Return the committed offsets of groups, by group, topic and partition."""
        from confluent_kafka import ConsumerGroupTopicPartitions  # noqa: PLC0415 - slow to import

        # One request takes one group; all are sent before an answer is waited for.
        asked = {
            group: self._client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=self._timeout_s
            )[group]
            for group in groups
        }
        return {
            (group, place.topic, place.partition): place.offset
            for group, future in asked.items()
            for place in _answer(f"group {group}", future).topic_partitions
            if place.error is None and place.offset >= 0
        }

    def set_committed(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets of a topic's partitions for a group, which has no members."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition  # noqa: PLC0415 - slow to import

        def ask() -> None:
            places = [TopicPartition(topic, number, offset) for number, offset in offsets.items()]
            (asked,) = self._client.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group, places)], request_timeout=self._timeout_s
            ).values()
            for place in _answer(f"group {group}", asked).topic_partitions:
                if place.error is not None:
                    raise _about(f"group {group}", place.error)

        self._from_coordinator(ask)

    def _from_coordinator(self, ask: Callable[[], _Answer]) -> _Answer:
        """Return the answer of a group's coordinator; ask again if the coordinator moves, or is new."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except KafkaException as error:
                if kind_of(error) is not Kind.COORDINATOR_MOVED or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_S)

    def _asked_settings(self, kind: str, names: list[str]) -> dict[str, Future[Any]]:
        from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]  # noqa: PLC0415 - its stub; slow

        self._require_real("DescribeConfigs", names[0] if kind == "TOPIC" else None)
        resources = [ConfigResource(getattr(ConfigResource.Type, kind), name) for name in names]
        asked = self._client.describe_configs(resources, request_timeout=self._timeout_s)
        return {resource.name: future for resource, future in asked.items()}

    def _offsets(
        self, topic: str, partitions: int, spec: str, isolation: Isolation = "read_uncommitted"
    ) -> dict[int, Any]:
        from confluent_kafka import IsolationLevel, TopicPartition  # noqa: PLC0415 - slow to import
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # noqa: PLC0415 - its stub; slow

        at = getattr(OffsetSpec, spec)()
        asked = self._client.list_offsets(
            {TopicPartition(topic, number): at for number in range(partitions)},
            isolation_level=IsolationLevel[isolation.upper()],
            request_timeout=self._timeout_s,
        )
        return {place.partition: _answer(topic, future) for place, future in asked.items()}


def require_reachable(conf: Mapping[str, Any], topic: str, *, timeout_s: float = 60.0) -> None:
    """Ask for a topic, whether it is there or not, and raise a KafkaException soon if no broker answers.

    Args:
        conf: the settings of a client of confluent-kafka.
        topic: the topic; asking does not make it.
        timeout_s: how long an answer may take, in seconds.
    """
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - slow to import

    from headerware.kafka.first_answer import Troubles  # noqa: PLC0415 - as above

    troubles = Troubles()
    settings: dict[str, Any] = {**_settings(conf), "error_cb": troubles}
    with explaining_properties(settings):
        client = AdminClient(settings)
    troubles.first_metadata(client, bootstrap_servers(conf), topic, time.monotonic() + timeout_s)


def is_embedded(cluster_id: str | None) -> bool:
    """Return whether a cluster is librdkafka's mock, as in ``headerware dev`` without ``--kafka``."""
    return cluster_id is not None and cluster_id.startswith(_EMBEDDED_ID)


def embedded_text(servers: object) -> str:
    """Return the beginning of a text about an embedded cluster."""
    return f"{servers} is an embedded cluster (librdkafka's mock brokers)"


def operations(described: Any) -> frozenset[str]:
    """Return the operations that this user may do, from confluent-kafka's description; empty if unknown."""
    return frozenset(operation.name for operation in getattr(described, "authorized_operations", None) or ())


def _settings(conf: Mapping[str, Any]) -> dict[str, Any]:
    return {**connection_settings(conf), "log_level": 0, "allow.auto.create.topics": False}


def _answer(what: str, asked: Future[Any]) -> Any:
    """Wait for an answer, and return it; an error begins with ``what``."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

    try:
        return asked.result()
    except KafkaException as error:
        raise _about(what, error.args[0]) from error


def _unsupported(text: str) -> KafkaException:
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - slow to import

    return KafkaException(KafkaError(KafkaError._UNSUPPORTED_FEATURE, text))  # noqa: SLF001 - the code's public name


def _about(what: str, error: KafkaError) -> KafkaException:
    return with_text(error, f"{what}: {error.str()}")


def _values(what: str, asked: Future[Any]) -> dict[str, str]:
    return {name: entry.value for name, entry in _answer(what, asked).items() if entry.value is not None}
