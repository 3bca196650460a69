"""Ask the cluster through Kafka's own AdminClient in the driver's JVM.

The client comes with the connector's jars and takes Spark's ``kafka.*`` options as they are, so that security
settings need no translation for another client. Each topic, partition and group costs a few calls
from Python into the JVM, of about 0.2 ms each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from headerware.core.errors import ConfigError, HeaderwareError
from headerware.spark_bridge.session import require_connector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from pyspark.sql import SparkSession

_PREFIX = "kafka."
_SERVERS = "bootstrap.servers"
_CALL_MS, _REQUEST_MS = "default.api.timeout.ms", "request.timeout.ms"
_UNKNOWN_TOPIC = "UnknownTopicOrPartitionException"
_LONGEST_REQUEST_MS = 30_000  # Kafka's own default


class AdminError(HeaderwareError):
    """A request that the cluster refused or did not answer in time.

    ``cause`` is the class of Java's exception, such as ``UnknownTopicOrPartitionException``.
    """

    cause: str = ""


class KafkaAdmin:
    """Ask a cluster through Kafka's AdminClient; close it, or use it in a ``with``.

    Any thread may call it.

    Args:
        spark: the session in whose driver it runs.
        options: options of Spark's Kafka source or sink; only those that begin with ``kafka.`` are used.
        timeout_s: how long one request may take, in seconds, unless the options set it.

    Raises:
        AdminError: Kafka refuses the options.
        ConfigError: ``kafka.bootstrap.servers`` is not among the options, or the session is Spark Connect's.
        MissingPartError: the session has no Kafka connector.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, Any], *, timeout_s: float = 30) -> None:
        require_connector(spark)
        self._jvm: Any = spark._jvm  # noqa: SLF001 - a classic session's way to its JVM
        settings = admin_settings(options, int(timeout_s * 1000))
        self._timeout_ms = int(settings[_CALL_MS])
        self._servers = settings[_SERVERS]
        admin = self._kafka.clients.admin.Admin
        self._admin = self._guarded(
            "its AdminClient refuses the settings", lambda: admin.create(self._map(settings))
        )

    def cluster_id(self) -> str:
        """Return the cluster's id.

        Raises:
            AdminError: no answer.
        """
        return str(self._ask("the cluster's id", lambda: self._admin.describeCluster().clusterId()))

    def partition_counts(self, topics: Iterable[str] | None = None) -> dict[str, int]:
        """Return the number of partitions of topics, or of all topics that are not internal to Kafka.

        Raises:
            AdminError: no answer, or a topic does not exist.
        """
        if topics is None:
            topics = self._ask("which topics there are", lambda: self._admin.listTopics().names())
        names = self._list(topics)
        found = self._ask("the topics' partitions", lambda: self._admin.describeTopics(names).allTopicNames())
        return {str(topic): int(found[topic].partitions().size()) for topic in found}

    def matching_topics(self, pattern: str) -> list[str]:
        """Return the topics that a Java regular expression fits completely, sorted, without internal ones.

        Raises:
            AdminError: no answer, or the pattern is not valid.
        """
        names = self._ask("which topics there are", lambda: self._admin.listTopics().names())
        compiled = self._guarded(
            f"{pattern!r} is not a valid pattern", lambda: self._jvm.java.util.regex.Pattern.compile(pattern)
        )
        found = self._jvm.java.util.TreeSet(names)
        found.removeIf(compiled.asMatchPredicate().negate())
        return [str(name) for name in found]

    def require_topics(self, topics: Iterable[str], *, path: str) -> None:
        """Raise an error that names the topics that do not exist; ``path`` is the option that names them.

        Raises:
            ConfigError: a topic does not exist.
            AdminError: no answer.
        """
        names = list(dict.fromkeys(topics))
        answers = self._admin.describeTopics(self._list(names)).topicNameValues()
        missing = [topic for topic in names if not self._exists(topic, answers)]
        if missing:
            raise ConfigError(
                f"Kafka at {self._servers} has no topic {', '.join(missing)}; create it, or correct its name",
                path=path,
            )

    def groups(self) -> list[str]:
        """Return the ids of all consumer groups, sorted.

        Raises:
            AdminError: no answer.
        """
        found = self._ask("which consumer groups there are", lambda: self._admin.listConsumerGroups().all())
        return sorted(str(group.groupId()) for group in found)

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group: by topic and partition, the next offset that it reads.

        A group that does not exist has committed nothing.

        Raises:
            AdminError: no answer.
        """
        found = self._ask(
            f"the offsets of group {group}",
            lambda: self._admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata(),
        )
        offsets = {(str(each.topic()), int(each.partition())): found[each] for each in found}
        return {key: int(offset.offset()) for key, offset in offsets.items() if offset is not None}

    def begin_offsets(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return the first offset that each partition still has.

        Raises:
            AdminError: no answer, or a topic does not exist.
        """
        return self._offsets(topics, self._kafka.clients.admin.OffsetSpec.earliest())

    def end_offsets(self, topics: Iterable[str], *, committed: bool = False) -> dict[tuple[str, int], int]:
        """Return the offset that each partition's next record will get.

        Args:
            topics: the topics.
            committed: whether to return the beginning of the first open transaction instead, if there is one.

        Raises:
            AdminError: no answer, or a topic does not exist.
        """
        return self._offsets(topics, self._kafka.clients.admin.OffsetSpec.latest(), committed=committed)

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of topics, defaults included, such as ``cleanup.policy``.

        Raises:
            AdminError: no answer, or a topic does not exist.
        """
        resource = self._kafka.common.config.ConfigResource
        asked = {topic: resource(resource.Type.TOPIC, topic) for topic in topics}
        names = self._list(asked.values())
        found = self._ask("the topics' settings", lambda: self._admin.describeConfigs(names).all())
        return {
            topic: {
                str(entry.name()): str(entry.value())
                for entry in found[of_topic].entries().toArray()  # Python cannot iterate over the collection
                if entry.value() is not None
            }
            for topic, of_topic in asked.items()
        }

    def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        """Fence the producers of transactional ids, which aborts their open transactions.

        Raises:
            AdminError: no answer.
        """
        ids = self._list(transactional_ids)
        if not ids.isEmpty():
            self._ask("whether producers are fenced", lambda: self._admin.fenceProducers(ids).all())

    def close(self) -> None:
        """Close the client, without waiting for answers; closing twice is fine."""
        self._admin.close(self._jvm.java.time.Duration.ZERO)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _kafka(self) -> Any:
        return self._jvm.org.apache.kafka

    def _offsets(
        self, topics: Iterable[str], when: Any, *, committed: bool = False
    ) -> dict[tuple[str, int], int]:
        level = self._kafka.common.IsolationLevel
        options = self._kafka.clients.admin.ListOffsetsOptions(
            level.READ_COMMITTED if committed else level.READ_UNCOMMITTED
        )
        topic_partition = self._kafka.common.TopicPartition
        counts = self.partition_counts(topics)
        asked = {(topic, number): when for topic, count in counts.items() for number in range(count)}
        specs = self._map({topic_partition(*key): spec for key, spec in asked.items()})
        found = self._ask("the partitions' offsets", lambda: self._admin.listOffsets(specs, options).all())
        return {(str(key.topic()), int(key.partition())): int(found[key].offset()) for key in found}

    def _exists(self, topic: str, answers: Any) -> bool:
        try:
            self._ask(f"topic {topic}", lambda: answers.get(topic))
        except AdminError as error:
            if error.cause == _UNKNOWN_TOPIC:
                return False
            raise
        return True

    def _ask(self, what: str, question: Any) -> Any:
        unit = self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        # The client's own timeout comes first and says more; this one is for a client that hangs.
        problem = f"it did not tell {what} within {self._timeout_ms} ms"
        return self._guarded(problem, lambda: question().get(self._timeout_ms + 5_000, unit))

    def _guarded(self, problem: str, call: Any) -> Any:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415

        try:
            return call()
        except Py4JJavaError as error:
            name, said = _cause(error)
            failure = AdminError(f"Kafka at {self._servers}: {problem}: {name}: {said}")
            failure.cause = name
            raise failure from error

    def _map(self, pairs: Mapping[Any, Any]) -> Any:
        made = self._jvm.java.util.HashMap()
        for key, value in pairs.items():
            made.put(key, value)
        return made

    def _list(self, items: Iterable[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for item in items:
            made.add(item)
        return made


def admin_settings(options: Mapping[str, Any], timeout_ms: int) -> dict[str, str]:
    """Return the AdminClient's settings from Spark's options."""
    own = {key: str(value) for key, value in options.items() if key.lower().startswith(_PREFIX)}
    settings = {key[len(_PREFIX) :]: value for key, value in own.items()}
    if not settings.get(_SERVERS):
        raise ConfigError("the brokers' addresses are missing", path=_PREFIX + _SERVERS)
    # Kafka refuses a request timeout above the call timeout, and users set the former for Spark's consumers.
    call_ms = _milliseconds(settings, _CALL_MS, max(timeout_ms, _milliseconds(settings, _REQUEST_MS, 0)))
    request_ms = _milliseconds(settings, _REQUEST_MS, min(call_ms, _LONGEST_REQUEST_MS))
    return settings | {_CALL_MS: str(call_ms), _REQUEST_MS: str(request_ms)}


def _milliseconds(settings: Mapping[str, str], key: str, default: int) -> int:
    try:
        return int(settings.get(key, default))
    except ValueError as error:
        message = f"expected a number of milliseconds, found {settings[key]!r}"
        raise ConfigError(message, path=_PREFIX + key) from error


def _cause(error: Any) -> tuple[str, str]:
    """Return the class and the message of the innermost cause of a Java exception."""
    java = error.java_exception
    while (deeper := java.getCause()) is not None:
        java = deeper
    return java.getClass().getSimpleName(), java.getMessage()
