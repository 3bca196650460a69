"""How a broker chooses its ports; tests/integration/test_broker.py starts real ones."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from headerware.testing import BrokerError, KafkaBroker, broker
from headerware.testing.broker import HOST, _free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator


class PortsOnly(KafkaBroker):
    """Fails as Kafka does if a port is taken; else it is up at once, because there is no Java."""

    def __init__(self, *, port: int | None = None) -> None:
        super().__init__(port=port)
        self.tried: list[tuple[int, int]] = []

    def _launch(self, ports: tuple[int, int]) -> None:
        self.tried.append(ports)
        for port in ports:
            with socket.socket() as probe:
                try:
                    probe.bind((HOST, port))
                except OSError as error:
                    with self._log_file.open("a") as log:
                        log.write(f"Socket server failed to bind to {HOST}:{port}: {error.strerror}.\n")
                    raise BrokerError("it ended with exit code 1") from error

    def _wait_until_ready(self, port: int) -> None:
        pass


@pytest.fixture
def taken() -> Iterator[int]:
    """Return a port that another process, as it were, listens at."""
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        yield other.getsockname()[1]


def test_chooses_different_ports() -> None:
    assert len(set(_free_ports(50))) == 50


def test_never_chooses_the_given_port_for_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    given, *others = _free_ports(3)
    monkeypatch.setattr(broker, "_PORTS", (given, *others))
    with PortsOnly(port=given) as made:
        client, controller = made.tried[0]
        assert client == given
        assert controller in others


@pytest.mark.parametrize("port", [None, 0])
def test_chooses_both_ports_if_none_is_given(port: int | None) -> None:
    with PortsOnly(port=port) as made:
        assert made.bootstrap_servers == f"{HOST}:{made.tried[0][0]}"
        assert 0 not in made.tried[0]


@pytest.mark.parametrize("is_given", [True, False])
def test_tries_another_controller_port_if_it_was_taken_meanwhile(
    is_given: bool,  # noqa: FBT001 - a parameter
    taken: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, controller = _free_ports(2)
    found = iter([[client, taken], [client, controller]])
    monkeypatch.setattr(broker, "_free_ports", lambda *_, **__: next(found))
    with PortsOnly(port=client if is_given else None) as made:
        assert made.tried == [(client, taken), (client, controller)]


def test_says_that_a_given_port_is_taken_before_it_starts(taken: int) -> None:
    made = PortsOnly(port=taken)
    with pytest.raises(BrokerError, match=f"^port {taken} is in use; name another one"), made:
        pass
    assert made.tried == []


def test_tries_a_given_port_once_if_it_is_taken_meanwhile(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = PortsOnly(port=taken)
    looks = iter([True, False])  # free at the first look, taken after the start
    monkeypatch.setattr(broker, "_is_free", lambda port: port != taken or next(looks))
    with pytest.raises(BrokerError, match="it ended"), made:
        pass
    assert len(made.tried) == 1
