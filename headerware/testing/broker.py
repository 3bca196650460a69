"""A real broker: Apache Kafka in KRaft mode, one node, started and stopped with this process.

``python -m headerware.testing.broker`` runs one in the foreground.
"""

from __future__ import annotations

import base64
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
import weakref
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic  # the type stubs have it only here

from headerware.core.errors import MissingPartError
from headerware.core.java import find_java
from headerware.core.printable import counted
from headerware.core.suggestions import with_equals
from headerware.testing.errors import BrokerError
from headerware.testing.jars import BROKER_JARS, find_jars
from headerware.testing.java import write_logging_file
from headerware.testing.process import WatchedProcess

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType, TracebackType


_START_S: Final = 120.0
_STOP_S: Final = 20.0
_REQUEST_S: Final = 5.0
_PAUSE_S: Final = 0.05
_WATCH_S: Final = 0.5
_START_ATTEMPTS: Final = 3
_TAIL_LINES: Final = 40
_PORT_TAKEN: Final = "Address already in use"
HOST: Final = "127.0.0.1"
# Below the range of ports for outgoing connections, so that no such connection takes a broker's port while
# the broker restarts.
_PORTS: Final = range(20_000, 32_000)
_PORT_PROBES: Final = 100


class KafkaBroker:
    """Run Apache Kafka in a process of its own, with its own ports and folder.

    ``with KafkaBroker() as broker`` starts the broker and waits until it answers; `stop`, `kill` and
    `restart` keep its ports and its data. The broker ends with the block, and with this process, even if this
    process is killed. Its methods are for one thread at a time.

    Args:
        config: broker properties, over the defaults for a single node.
        port: the listener's port; None or 0 chooses a free one.
        data_dir: the data folder, which is kept; None uses a temporary folder, which `close` removes.
        heap_mib: the maximal size of Java's heap, in MiB.
    """

    def __init__(
        self,
        config: Mapping[str, str | int | bool] | None = None,
        *,
        port: int | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        heap_mib: int = 512,
    ) -> None:
        self._config = dict(config or {})
        self._fixed_port = port
        self._heap = f"-Xmx{heap_mib}m"
        self._work = Path(tempfile.mkdtemp(prefix="headerware-kafka-"))
        self._data = Path(data_dir).resolve() if data_dir is not None else self._work / "data"
        self._log_file = self._work / "broker.log"
        self._ports: tuple[int, int] | None = None
        self._process: WatchedProcess | None = None
        self._finalizer = weakref.finalize(self, _remove_folder, self._work, os.getpid())

    @property
    def bootstrap_servers(self) -> str:
        """The broker's address, for ``bootstrap.servers``; known once it has been started.

        Raises:
            BrokerError: it has not been started yet.
        """
        if self._ports is None:
            raise BrokerError("the broker has no address yet: it has not been started")
        return f"{HOST}:{self._ports[0]}"

    @property
    def pid(self) -> int | None:
        """The process id of the broker, or None while it does not run."""
        process = self._process
        return None if process is None or process.exit_code() is not None else process.pid

    def start(self) -> None:
        """Start the broker and wait until it answers; do nothing if it runs already.

        Raises:
            MissingPartError: Java is missing, or Kafka's jars can neither be found nor fetched.
            BrokerError: the given port is in use; or the broker ended or did not answer in time, and the
                message ends with the tail of the broker's log.
        """
        if self.pid is not None:
            return
        if not self._finalizer.alive:
            raise BrokerError("the broker is closed")
        if self._ports is None and self._fixed_port and not _is_free(self._fixed_port):
            raise BrokerError(f"port {self._fixed_port} is in use; name another one, or none for a free port")
        for attempt in range(1, _START_ATTEMPTS + 1):
            ports = self._ports or self._choose_ports()
            logged = len(self.logs())
            try:
                self._launch(ports)
                self._wait_until_ready(ports[0])
            except BaseException as error:
                self.kill()
                is_taken = isinstance(error, BrokerError) and _PORT_TAKEN in self.logs()[logged:]
                others_are_possible = self._ports is None and (
                    not self._fixed_port or _is_free(self._fixed_port)
                )
                if not (is_taken and others_are_possible and attempt < _START_ATTEMPTS):
                    raise
            else:
                self._ports = ports
                return

    def stop(self) -> None:
        """Shut the broker down, and keep its ports and data for the next `start`."""
        if self._process is not None:
            self._process.end(grace_seconds=_STOP_S)

    def kill(self) -> None:
        """Kill the broker, as a crash would, and keep its ports and data."""
        if self._process is not None:
            self._process.kill()

    def restart(self) -> None:
        """Stop the broker and start it again, at the same address and with the same data.

        While the broker stops or starts, it may send clients metadata without any broker. librdkafka up to
        2.16 then never reconnects (issue 5301 of librdkafka); make a new client.

        Raises:
            BrokerError: the broker did not come back.
        """
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker for good and remove its temporary folder; a second call does nothing."""
        self.stop()
        self._finalizer()

    def create_topic(
        self, name: str, *, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic and wait until each partition has its leader.

        Args:
            name: its name.
            partitions: how many partitions.
            config: topic properties, such as ``{"cleanup.policy": "compact"}``.

        Raises:
            BrokerError: the broker refused, or did not answer in time.
        """
        admin = _admin(self.bootstrap_servers)
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        try:
            admin.create_topics([topic])[name].result(_START_S)
        except (KafkaException, TimeoutError) as error:
            raise BrokerError(
                f"cannot create topic {name!r} with {counted(partitions, 'partition')}: {error}"
            ) from error
        deadline = time.monotonic() + _START_S
        while not _has_leaders(admin, name, partitions):
            if time.monotonic() > deadline:
                raise BrokerError(f"topic {name!r} has no leaders for its partitions after {_START_S:.0f} s")
            time.sleep(_PAUSE_S)

    def logs(self) -> str:
        """Return what the broker has written to its log since it was first started."""
        return self._log_file.read_text(encoding="utf-8", errors="replace") if self._log_file.exists() else ""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _choose_ports(self) -> tuple[int, int]:
        """Return the ports of the listener and of the controller."""
        client, controller = _free_ports(2, besides=self._fixed_port)
        return self._fixed_port or client, controller

    def _launch(self, ports: tuple[int, int]) -> None:
        logging = write_logging_file(self._work, target="SYSTEM_OUT", level="INFO")
        java = [str(find_java()), self._heap, logging, "-cp", f"{find_jars(BROKER_JARS)}/*"]
        properties = self._work / "server.properties"
        properties.write_text(_server_properties(ports, self._data, self._config), encoding="utf-8")
        if not (self._data / "meta.properties").exists():
            self._format(java, properties)
        with self._log_file.open("ab") as output:
            command = [*java, "kafka.Kafka", str(properties)]
            self._process = WatchedProcess(command, output, temporary=self._work)

    def _format(self, java: list[str], properties: Path) -> None:
        command = [*java, "kafka.tools.StorageTool", "format", "-t", _new_cluster_id(), "-c", str(properties)]
        with self._log_file.open("ab") as output:
            done = subprocess.run(  # noqa: S603 - the command is the library's own
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
            )
        if done.returncode:
            raise self._failure(f"its storage could not be formatted (exit code {done.returncode})")

    def _wait_until_ready(self, port: int) -> None:
        deadline = time.monotonic() + _START_S
        own_id = _cluster_id_of(self._data)
        while _cluster_id_at(port) != own_id:
            if self._process is not None and (code := self._process.exit_code()) is not None:
                raise self._failure(f"it ended with exit code {code}")
            if time.monotonic() > deadline:
                raise self._failure(f"it did not answer within {_START_S:.0f} s")
            time.sleep(_PAUSE_S)

    def _failure(self, reason: str) -> BrokerError:
        tail = "\n".join(self.logs().splitlines()[-_TAIL_LINES:]) or "(empty)"
        return BrokerError(f"the broker did not start: {reason}; the end of its log:\n{tail}")


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


def _cluster_id_at(port: int) -> str | None:
    """Return the id of the cluster that answers at a port; another broker may have taken the port."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
        answer = _admin(f"{HOST}:{port}").list_topics(timeout=_REQUEST_S)
    except (OSError, KafkaException):
        return None
    return answer.cluster_id if answer.brokers else None


def _has_leaders(admin: AdminClient, name: str, partitions: int) -> bool:
    try:
        topic = admin.list_topics(timeout=_REQUEST_S).topics.get(name)
    except KafkaException:
        return False
    return topic is not None and sum(each.leader >= 0 for each in topic.partitions.values()) == partitions


def _remove_folder(folder: Path, owner_pid: int) -> None:
    if os.getpid() == owner_pid:
        shutil.rmtree(folder, ignore_errors=True)


def _free_ports(count: int, *, besides: int | None = None) -> list[int]:
    """Return different free ports of this machine, without another port."""
    # SystemRandom: with a fixed seed, each process of a program would get the same ports.
    tried = random.SystemRandom().sample(_PORTS, k=min(_PORT_PROBES, len(_PORTS)))
    free = list(islice((port for port in tried if port != besides and _is_free(port)), count))
    if len(free) < count:
        raise BrokerError(f"no free port among {len(tried)} tried from {min(_PORTS)} to {max(_PORTS)}")
    return free


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _new_cluster_id() -> str:
    """Return a UUID in Kafka's form, without a leading dash, which would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _cluster_id_of(data: Path) -> str:
    """Read the cluster's id from a formatted folder."""
    for line in (data / "meta.properties").read_text(encoding="utf-8").splitlines():
        if line.startswith("cluster.id="):
            return line.removeprefix("cluster.id=")
    raise BrokerError(f"no cluster.id in {data / 'meta.properties'}")


def _server_properties(ports: tuple[int, int], data: Path, config: Mapping[str, str | int | bool]) -> str:
    """Return the properties file of a node that is broker and controller in one."""
    client, controller = ports
    properties: dict[str, str | int | bool] = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A killed member leaves its group soon, so that tests need not wait.
        "group.min.session.timeout.ms": 500,
        # A member of a share group gets its partitions with its second heartbeat.
        "group.share.min.heartbeat.interval.ms": 500,
        "group.share.heartbeat.interval.ms": 500,
        # After a kill the controller waits for the end of the old session before it admits the broker again.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 4_000,
        # The open transaction of a killed producer ends at its timeout, and not up to ten seconds later.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1_000,
        # An idle node would write a record into its metadata twice a second, which is two thirds of its work.
        "metadata.max.idle.interval.ms": 0,
        # Tests write records with times of long ago, which would be deleted within minutes.
        "log.retention.hours": -1,
        **config,
    }
    return "".join(f"{key}={_property_value(value)}\n" for key, value in properties.items())


def _property_value(value: str | int | bool) -> str:  # noqa: FBT001 - a property's value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _property(pair: str) -> tuple[str, str]:
    key, equals, value = pair.partition("=")
    meant = with_equals(pair)
    hint = f"; did you mean {meant}?" if meant else ""
    if not equals:
        raise click.BadParameter(f"expected KEY=VALUE, found no '=' in {pair!r}{hint}", param_hint="--config")
    return key, value


@click.command(name="python -m headerware.testing.broker")
@click.option("--port", type=int, help="The listener's port; a free one unless given.")
@click.option("--data-dir", type=click.Path(file_okay=False, path_type=Path), help="Keep the data here.")
@click.option("--config", "pairs", multiple=True, metavar="KEY=VALUE", help="A broker property; repeatable.")
def main(port: int | None, data_dir: Path | None, pairs: tuple[str, ...]) -> None:
    """Run Apache Kafka in the foreground until Ctrl-C."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with KafkaBroker(dict(map(_property, pairs)), port=port, data_dir=data_dir) as broker:
            click.echo(f"Apache Kafka is up; Ctrl-C stops it\nbootstrap.servers={broker.bootstrap_servers}")
            while broker.pid is not None:
                time.sleep(_WATCH_S)
            click.echo(f"the broker ended by itself; its log:\n{broker.logs()}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        click.echo("stopped")
    except (BrokerError, MissingPartError) as error:
        click.echo(str(error), err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
