"""Ask the cluster, with the ``kafka.*`` options of Spark's source and sink.

In a classic session Kafka's own AdminClient in the driver's JVM asks. It comes with the connector's jars and
takes the options as they are, so that security settings need no translation for another client. Each topic,
partition and group costs a few calls from Python into the JVM, of about 0.2 ms each.

A session of Spark Connect has no JVM. There confluent-kafka's AdminClient asks from this process, with the
options translated, so the client's machine, and in ``foreachBatch`` the server's, must reach the brokers.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from headerware.core.closing import Closing
from headerware.core.errors import ConfigError, HeaderwareError
from headerware.kafka.errors import Kind, kind_of
from headerware.kafka.java_settings import librdkafka_settings
from headerware.spark_bridge.driver import driver_of, spark_errors
from headerware.spark_bridge.session import require_connector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyspark.sql import SparkSession

    from headerware.kafka.admin import Isolation

_PREFIX = "kafka."
_SERVERS = "bootstrap.servers"
_CALL_MS, _REQUEST_MS = "default.api.timeout.ms", "request.timeout.ms"
_UNKNOWN_TOPIC = "UnknownTopicOrPartitionException"
_LONGEST_REQUEST_MS = 30_000  # Kafka's own default
_INTERNAL = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


class AdminError(HeaderwareError):
    """A request that the cluster refused or did not answer in time.

    ``cause`` is the class of Java's exception, such as ``UnknownTopicOrPartitionException``, or the name of
    librdkafka's error, such as ``UNKNOWN_TOPIC_OR_PART``.
    """

    cause: str = ""


class KafkaAdmin(Closing):
    """Ask a cluster through an AdminClient; close it, or use it in a ``with``.

    Any thread may call it.

    Args:
        spark: the session in whose driver it runs; for a session of Spark Connect it runs in this process.
        options: options of Spark's Kafka source or sink; only those that begin with ``kafka.`` are used.
        timeout_s: how long one request may take, in seconds, unless the options set it.

    Raises:
        AdminError: Kafka refuses the options.
        ConfigError: ``kafka.bootstrap.servers`` is not among the options; or, with Spark Connect, an option
            cannot be translated for confluent-kafka.
        MissingPartError: the session has no Kafka connector.
    """

    def __init__(self, spark: SparkSession, options: Mapping[str, Any], *, timeout_s: float = 30) -> None:
        require_connector(spark)
        settings = admin_settings(options, int(timeout_s * 1000))
        jvm = driver_of(spark).jvm
        self._admin: Final = _LibrdkafkaAdmin(settings) if jvm is None else _JavaAdmin(jvm, settings)

    def cluster_id(self) -> str:
        """Return the cluster's id.

        Raises:
            AdminError: no answer.
        """
        return self._admin.cluster_id()

    def partition_counts(self, topics: Iterable[str] | None = None) -> dict[str, int]:
        """Return the number of partitions of topics, or of all topics that are not internal to Kafka.

        Raises:
            AdminError: no answer, or a topic does not exist.
        """
        return self._admin.partition_counts(topics)

    def matching_topics(self, pattern: str) -> list[str]:
        """Return the topics that a Java regular expression fits completely, sorted, without internal ones.

        Raises:
            AdminError: no answer, or the pattern is not valid.
        """
        return self._admin.matching_topics(pattern)

    def require_topics(self, topics: Iterable[str], *, path: str) -> None:
        """Raise an error that names the topics that do not exist; ``path`` is the option that names them.

        Raises:
            ConfigError: a topic does not exist.
            AdminError: no answer.
        """
        self._admin.require_topics(topics, path=path)

    def groups(self) -> list[str]:
        """Return the ids of all consumer groups, sorted.

        Raises:
            AdminError: no answer.
        """
        return self._admin.groups()

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group: by topic and partition, the next offset that it reads.

        A group that does not exist has committed nothing.

        Raises:
            AdminError: no answer.
        """
        return self._admin.group_offsets(group)

    def begin_offsets(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Return the first offset that each partition still has.

        Raises:
            AdminError: no answer, or a topic does not exist.
        """
        return self._admin.begin_offsets(topics)

    def end_offsets(self, topics: Iterable[str], *, committed: bool = False) -> dict[tuple[str, int], int]:
        """Return the offset that each partition's next record will get.

        Args:
            topics: the topics.
            committed: whether to return the beginning of the first open transaction instead, if there is one.

        Raises:
            AdminError: no answer, or a topic does not exist.
        """
        return self._admin.end_offsets(topics, committed=committed)

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of topics, defaults included, such as ``cleanup.policy``.

        Raises:
            AdminError: no answer, or a topic does not exist.
        """
        return self._admin.topic_configs(topics)

    def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        """Fence the producers of transactional ids, which aborts their open transactions.

        Raises:
            AdminError: no answer.
            ConfigError: the session is Spark Connect's.
        """
        self._admin.fence_producers(transactional_ids)

    def close(self) -> None:
        """Close the client, without waiting for answers; closing twice is fine."""
        self._admin.close()


class _JavaAdmin:
    """Kafka's AdminClient in the driver's JVM."""

    def __init__(self, jvm: Any, settings: Mapping[str, str]) -> None:
        self._jvm = jvm
        self._kafka = _kafka_of(jvm)
        self._timeout_ms = int(settings[_CALL_MS])
        self._servers = settings[_SERVERS]
        admin = self._kafka.clients.admin.Admin
        self._admin = self._guarded(
            "its AdminClient refuses the settings", lambda: admin.create(self._map(settings))
        )

    def cluster_id(self) -> str:
        return str(self._ask("the cluster's id", lambda: self._admin.describeCluster().clusterId()))

    def partition_counts(self, topics: Iterable[str] | None = None) -> dict[str, int]:
        if topics is None:
            topics = self._ask("which topics there are", lambda: self._admin.listTopics().names())
        names = self._list(topics)
        found = self._ask("the topics' partitions", lambda: self._admin.describeTopics(names).allTopicNames())
        return {str(topic): int(found[topic].partitions().size()) for topic in found}

    def matching_topics(self, pattern: str) -> list[str]:
        names = self._ask("which topics there are", lambda: self._admin.listTopics().names())
        compiled = self._guarded(
            f"{pattern!r} is not a valid pattern", lambda: self._jvm.java.util.regex.Pattern.compile(pattern)
        )
        found = self._jvm.java.util.TreeSet(names)
        found.removeIf(compiled.asMatchPredicate().negate())
        return [str(name) for name in found]

    def require_topics(self, topics: Iterable[str], *, path: str) -> None:
        names = list(dict.fromkeys(topics))
        answers = self._admin.describeTopics(self._list(names)).topicNameValues()
        missing = [topic for topic in names if not self._exists(topic, answers)]
        _require_none_missing(self._servers, missing, path)

    def groups(self) -> list[str]:
        found = self._ask("which consumer groups there are", lambda: self._admin.listConsumerGroups().all())
        return sorted(str(group.groupId()) for group in found)

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        found = self._ask(
            f"the offsets of group {group}",
            lambda: self._admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata(),
        )
        offsets = {(str(each.topic()), int(each.partition())): found[each] for each in found}
        return {key: int(offset.offset()) for key, offset in offsets.items() if offset is not None}

    def begin_offsets(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        return self._offsets(topics, self._kafka.clients.admin.OffsetSpec.earliest())

    def end_offsets(self, topics: Iterable[str], *, committed: bool = False) -> dict[tuple[str, int], int]:
        return self._offsets(topics, self._kafka.clients.admin.OffsetSpec.latest(), committed=committed)

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
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
        ids = self._list(transactional_ids)
        if not ids.isEmpty():
            self._ask("whether producers are fenced", lambda: self._admin.fenceProducers(ids).all())

    def close(self) -> None:
        self._admin.close(self._jvm.java.time.Duration.ZERO)

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
        try:
            return call()
        except spark_errors() as error:
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


class _LibrdkafkaAdmin:
    """confluent-kafka's AdminClient in this process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        from headerware.kafka.admin import Admin  # noqa: PLC0415 - only where there is no JVM

        self._servers = settings[_SERVERS]
        self._timeout_ms = int(settings[_CALL_MS])
        conf = librdkafka_settings(settings, prefix=_PREFIX)
        with self._guarded("its AdminClient refuses the settings"):
            self._admin: Final = Admin(conf, timeout_s=self._timeout_ms / 1000)

    def cluster_id(self) -> str:
        with self._answered("the cluster's id"):
            return str(self._admin.first_metadata().cluster_id)

    def partition_counts(self, topics: Iterable[str] | None = None) -> dict[str, int]:
        with self._answered("the topics' partitions"):
            if topics is not None:
                return {topic: self._admin.describe_topic(topic).partitions for topic in topics}
            found = self._admin.metadata().topics
            return {topic: len(found[topic].partitions) for topic in found.keys() - _INTERNAL}

    def matching_topics(self, pattern: str) -> list[str]:
        try:
            compiled = re.compile(pattern)
        except re.error as error:
            raise AdminError(
                f"Kafka at {self._servers}: {pattern!r} is not a valid pattern: {error}"
            ) from error
        with self._answered("which topics there are"):
            names = self._admin.metadata().topics.keys() - _INTERNAL
        return sorted(name for name in names if compiled.fullmatch(name))

    def require_topics(self, topics: Iterable[str], *, path: str) -> None:
        missing = [topic for topic in dict.fromkeys(topics) if not self._exists(topic)]
        _require_none_missing(self._servers, missing, path)

    def groups(self) -> list[str]:
        with self._answered("which consumer groups there are"):
            return sorted(self._admin.groups())

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        with self._answered(f"the offsets of group {group}"):
            found = self._admin.committed([group])
        return {(topic, number): offset for (_, topic, number), offset in found.items()}

    def begin_offsets(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        counts = self.partition_counts(topics)
        with self._answered("the partitions' offsets"):
            return _by_partition(
                {topic: self._admin.beginnings(topic, count) for topic, count in counts.items()}
            )

    def end_offsets(self, topics: Iterable[str], *, committed: bool = False) -> dict[tuple[str, int], int]:
        counts = self.partition_counts(topics)
        level: Isolation = "read_committed" if committed else "read_uncommitted"
        with self._answered("the partitions' offsets"):
            return _by_partition(
                {topic: self._admin.ends(topic, count, isolation=level) for topic, count in counts.items()}
            )

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        with self._answered("the topics' settings"):
            return {topic: self._admin.topic_settings(topic) for topic in topics}

    def fence_producers(self, transactional_ids: Iterable[str]) -> None:
        raise ConfigError(
            f"only Kafka's own AdminClient fences producers ({', '.join(transactional_ids)}), and a session "
            "of Spark Connect cannot reach it: use a classic session"
        )

    def close(self) -> None:
        """Do nothing: the client ends with its last reference."""

    def _exists(self, topic: str) -> bool:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

        with self._answered(f"topic {topic}"):
            error = self._admin.metadata(topic).topics[topic].error
            if error is not None and kind_of(error) is not Kind.UNKNOWN_TOPIC:
                raise KafkaException(error)
            return error is None

    def _answered(self, what: str) -> AbstractContextManager[None]:
        return self._guarded(f"it did not tell {what} within {self._timeout_ms} ms")

    @contextmanager
    def _guarded(self, problem: str) -> Iterator[None]:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

        try:
            yield
        except KafkaException as error:
            cause = error.args[0]
            failure = AdminError(f"Kafka at {self._servers}: {problem}: {cause.name()}: {cause.str()}")
            failure.cause = cause.name()
            raise failure from error


def _kafka_of(jvm: Any) -> Any:
    """Return the package of Kafka's classes in a JVM; Databricks has them under another name."""
    from py4j.java_gateway import JavaClass  # noqa: PLC0415 - with a JVM only

    shaded = jvm.kafkashaded.org.apache.kafka
    # py4j takes an unknown class for a package.
    return shaded if isinstance(shaded.clients.admin.Admin, JavaClass) else jvm.org.apache.kafka


def _require_none_missing(servers: str, missing: list[str], path: str) -> None:
    if missing:
        raise ConfigError(
            f"Kafka at {servers} has no topic {', '.join(missing)}; create it, or correct its name",
            path=path,
        )


def _by_partition(found: Mapping[str, Mapping[int, int]]) -> dict[tuple[str, int], int]:
    return {(topic, number): offset for topic, offsets in found.items() for number, offset in offsets.items()}


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
    java = getattr(error, "java_exception", None)
    if java is None:  # pyspark has made an exception of its own of it
        return type(error).__name__, str(error).partition("\n")[0]
    while (deeper := java.getCause()) is not None:
        java = deeper
    return java.getClass().getSimpleName(), java.getMessage()
