"""An embedded cluster: the mock brokers inside librdkafka.

They listen on real ports of 127.0.0.1, so that any librdkafka client in any process can use them; Java
clients cannot. They keep about 5 MiB a partition, show aborted records, and answer no admin requests, so
topics are created through librdkafka's C interface. A topic that a client merely names has four partitions.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, get_args

from confluent_kafka import cimpl

from headerware.core.closing import Closing
from headerware.core.errors import MissingPartError
from headerware.core.printable import counted
from headerware.core.topics import TOPIC_NAME, is_topic_name
from headerware.testing.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

AUTO_CREATED_PARTITIONS: Final = 4
_MAX_REPLICAS = 3
_PRODUCER = 0
_ERROR_BYTES = 512

_POINTER, _TEXT, _INT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "rd_kafka_conf_new": (_POINTER, []),
    "rd_kafka_conf_set": (_INT, [_POINTER, _TEXT, _TEXT, _TEXT, ctypes.c_size_t]),
    "rd_kafka_new": (_POINTER, [_INT, _POINTER, _TEXT, ctypes.c_size_t]),
    "rd_kafka_destroy": (None, [_POINTER]),
    "rd_kafka_err2str": (_TEXT, [_INT]),
    "rd_kafka_mock_cluster_new": (_POINTER, [_POINTER, _INT]),
    "rd_kafka_mock_cluster_destroy": (None, [_POINTER]),
    "rd_kafka_mock_cluster_bootstraps": (_TEXT, [_POINTER]),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, [_POINTER, ctypes.c_int32]),
    "rd_kafka_mock_topic_create": (_INT, [_POINTER, _TEXT, _INT, _INT]),
    "rd_kafka_mock_push_request_errors_array": (
        None,
        [_POINTER, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(_INT)],
    ),
    "rd_kafka_mock_clear_request_errors": (None, [_POINTER, ctypes.c_int16]),
    "rd_kafka_mock_broker_set_rtt": (_INT, [_POINTER, ctypes.c_int32, _INT]),
    "rd_kafka_mock_broker_set_down": (_INT, [_POINTER, ctypes.c_int32]),
    "rd_kafka_mock_broker_set_up": (_INT, [_POINTER, ctypes.c_int32]),
}

Request = Literal[
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "SyncGroup",
    "InitProducerId",
    "AddPartitionsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
]
"""A kind of request, by its name in Kafka's protocol."""
_API_KEYS: Final = dict(
    zip(get_args(Request), (0, 1, 2, 3, 8, 9, 10, 11, 12, 14, 22, 24, 26, 28), strict=True)
)


class EmbeddedCluster(Closing):
    """Run librdkafka's mock brokers in this process, from construction until `close`.

    Args:
        brokers: the number of brokers, one or more.
        topics: topics to create at once, by name, with their number of partitions.

    Raises:
        MissingPartError: this build of confluent-kafka does not export librdkafka's mock cluster.
        BrokerError: the brokers did not start, or a topic could not be created.

    It may be shared between threads; a forked child must not use or close it.

    After the last member has left a consumer group, nobody can join the group until the members'
    ``session.timeout.ms`` is over, 45 seconds by default: give each consumer a group of its own, or a shorter
    timeout, such as 6,000.
    """

    def __init__(self, brokers: int = 1, topics: Mapping[str, int] | None = None) -> None:
        if brokers < 1:
            message = f"expected one broker or more, found {brokers}"
            raise BrokerError(message)
        self._brokers = brokers
        self._lib = _librdkafka()
        self._client = _new_client(self._lib)
        self._cluster = self._lib.rd_kafka_mock_cluster_new(self._client, brokers)
        if not self._cluster:
            self._lib.rd_kafka_destroy(self._client)
            message = f"librdkafka could not start {brokers} mock brokers"
            raise BrokerError(message)
        self._finalizer = weakref.finalize(
            self, _destroy, self._lib, self._cluster, self._client, os.getpid()
        )
        # By default each new consumer group waits three seconds for further members.
        self._lib.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.bootstrap_servers: str = self._lib.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()
        """The brokers' addresses, for ``bootstrap.servers``."""
        try:
            for name, partitions in (topics or {}).items():
                self.create_topic(name, partitions=partitions)
        except BrokerError:
            self.close()
            raise

    def create_topic(self, name: str, *, partitions: int = 1) -> None:
        """Create a topic.

        Args:
            name: its name.
            partitions: how many partitions, one or more.

        Raises:
            BrokerError: the topic exists, its name or the number is refused, or the cluster is closed.
        """
        self._require_open(f"create topic {name!r}")
        if not is_topic_name(name):  # librdkafka's brokers take any name
            message = f"cannot create topic {name!r}: expected a name of {TOPIC_NAME}"
            raise BrokerError(message)
        if partitions < 1:
            message = f"cannot create topic {name!r}: expected one partition or more, found {partitions}"
            raise BrokerError(message)
        replicas = min(self._brokers, _MAX_REPLICAS)
        code = self._lib.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, replicas)
        if code:
            reason = self._lib.rd_kafka_err2str(code).decode()
            message = f"cannot create topic {name!r} with {counted(partitions, 'partition')}: {reason}"
            raise BrokerError(message)

    def fail_requests(self, request: Request, errors: Iterable[int]) -> None:
        """Answer the next requests of a kind with errors, whichever client sends them to whichever broker.

        Args:
            request: the kind.
            errors: the code of each answer, such as ``KafkaError.NOT_LEADER_FOR_PARTITION``; 0 is no error.
                They replace the errors of an earlier call. A produce request that fails stores nothing.

        Raises:
            BrokerError: the kind is unknown, or the cluster is closed.
        """
        if request not in _API_KEYS:
            message = f"expected one of the requests {', '.join(_API_KEYS)}, found {request!r}"
            raise BrokerError(message)
        self._require_open(f"fail {request} requests")
        codes = list(errors)
        self._lib.rd_kafka_mock_clear_request_errors(self._cluster, _API_KEYS[request])
        self._lib.rd_kafka_mock_push_request_errors_array(
            self._cluster, _API_KEYS[request], len(codes), (_INT * len(codes))(*codes)
        )

    def set_latency(self, latency_ms: int, *, broker: int | None = None) -> None:
        """Let brokers answer later, from now on.

        A request is carried out at once. So if a producer without idempotence does not wait as long
        (``socket.timeout.ms``), it sends again what was stored, and the topic has it twice.

        Args:
            latency_ms: how long each answer takes, in milliseconds; 0 for no delay.
            broker: the number of a broker, from 1; None for all.

        Raises:
            BrokerError: there is no such broker, the latency is negative, or the cluster is closed.
        """
        if latency_ms < 0:
            message = f"expected a latency of 0 ms or more, found {latency_ms}"
            raise BrokerError(message)
        self._tell_brokers("rd_kafka_mock_broker_set_rtt", broker, latency_ms)

    @contextlib.contextmanager
    def broker_down(self, broker: int | None = None) -> Iterator[None]:
        """Stop brokers for the time of a ``with`` block; they keep their records.

        Args:
            broker: the number of a broker, from 1; None for all.

        Raises:
            BrokerError: there is no such broker, or the cluster is closed.
        """
        self._tell_brokers("rd_kafka_mock_broker_set_down", broker)
        try:
            yield
        finally:
            if self._finalizer.alive:
                self._tell_brokers("rd_kafka_mock_broker_set_up", broker)

    def _tell_brokers(self, function: str, broker: int | None, *arguments: int) -> None:
        self._require_open("change brokers")
        everyone = range(1, self._brokers + 1)
        if broker is not None and broker not in everyone:
            message = f"expected a broker from 1 to {self._brokers}, found {broker}"
            raise BrokerError(message)
        for number in everyone if broker is None else [broker]:
            code = getattr(self._lib, function)(self._cluster, number, *arguments)
            if code:
                reason = self._lib.rd_kafka_err2str(code).decode()
                message = f"cannot change broker {number}: {reason}"
                raise BrokerError(message)

    def _require_open(self, wish: str) -> None:
        if not self._finalizer.alive:
            message = f"cannot {wish}: the embedded cluster is closed"
            raise BrokerError(message)

    def close(self) -> None:
        """Stop the brokers and forget all records; a second call does nothing."""
        self._finalizer()


@cache
def _librdkafka() -> ctypes.CDLL:
    # The extension module leads to the library that the clients use, wherever it is installed.
    lib = ctypes.CDLL(cimpl.__file__)
    try:
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        message = f"this build of confluent-kafka does not show librdkafka's mock cluster: {error}"
        raise MissingPartError(message) from error
    return lib


def _new_client(lib: ctypes.CDLL) -> int:
    reason = ctypes.create_string_buffer(_ERROR_BYTES)
    config = lib.rd_kafka_conf_new()
    # This client only hosts the brokers; do not log that it has no bootstrap.servers.
    lib.rd_kafka_conf_set(config, b"log_level", b"3", reason, _ERROR_BYTES)
    client: int | None = lib.rd_kafka_new(_PRODUCER, config, reason, _ERROR_BYTES)
    if not client:
        message = f"librdkafka could not make a client: {reason.value.decode()}"
        raise BrokerError(message)
    return client


def _destroy(lib: ctypes.CDLL, cluster: int, client: int, owner_pid: int) -> None:
    # librdkafka's threads do not survive a fork; a child that frees the handle would wait for them for ever.
    if os.getpid() != owner_pid:
        return
    with contextlib.ExitStack() as stack:
        stack.callback(lib.rd_kafka_destroy, client)
        stack.callback(lib.rd_kafka_mock_cluster_destroy, cluster)
