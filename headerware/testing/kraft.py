"""What one KRaft node needs before it starts: ports, an id, its properties."""

from __future__ import annotations

import base64
import random
import socket
import uuid
from typing import TYPE_CHECKING, Final

from headerware.testing.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HOST: Final = "127.0.0.1"
# Below the range from which systems take ports for outgoing connections, so that none of those sits on a
# broker's port while it restarts.
_PORTS = range(20_000, 32_000)
_TRIES = 100


def free_port() -> int:
    """Return a port of this machine that nothing listens on.

    Raises:
        BrokerError: none of a hundred was free.
    """
    # SystemRandom: a program that has set random's seed must not get the same ports in each of its processes.
    for port in random.SystemRandom().sample(_PORTS, k=_TRIES):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    message = f"no free port among {_TRIES} tried from {_PORTS.start} to {_PORTS.stop}"
    raise BrokerError(message)


def new_cluster_id() -> str:
    """Make a cluster's id: a UUID in Kafka's form, with no leading dash, which would pass for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def cluster_id_of(data: Path) -> str:
    """Read the cluster's id from a formatted folder.

    Raises:
        BrokerError: the folder holds none.
    """
    for line in (data / "meta.properties").read_text(encoding="utf-8").splitlines():
        if line.startswith("cluster.id="):
            return line.removeprefix("cluster.id=")
    raise BrokerError(f"no cluster.id in {data / 'meta.properties'}")


def server_properties(ports: tuple[int, int], data: Path, config: Mapping[str, str | int | bool]) -> str:
    """Write the properties file of a node that is broker and controller in one.

    Args:
        ports: of the listener and of the controller.
        data: the folder of its data.
        config: properties over the defaults here.
    """
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
        # After a kill the controller waits for the old session to end before it lets the broker back.
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 4_000,
        **config,
    }
    return "".join(f"{key}={_text(value)}\n" for key, value in properties.items())


def _text(value: str | int | bool) -> str:  # noqa: FBT001 - a property's value
    return str(value).lower() if isinstance(value, bool) else str(value)
