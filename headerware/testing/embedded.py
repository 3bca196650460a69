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
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import cimpl

from headerware.core.errors import MissingPartError
from headerware.core.printable import counted
from headerware.core.topics import TOPIC_NAME, is_topic_name
from headerware.testing.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

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
}


class EmbeddedCluster:
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
        if not self._finalizer.alive:
            message = f"cannot create topic {name!r}: the embedded cluster is closed"
            raise BrokerError(message)
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

    def close(self) -> None:
        """Stop the brokers and forget all records; a second call does nothing."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


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
