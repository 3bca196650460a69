"""Share consumers, as far as they need no broker; tests/integration has the rest."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, ConfigError
from headerware.interceptors import Slice

if TYPE_CHECKING:
    from collections.abc import Callable


def test_refuses_what_waits_for_other_records(
    connection: dict[str, Any], unique_topic: Callable[..., str]
) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka", minversion="2.16")
    assert confluent_kafka.ShareConsumer
    from headerware import ShareConsumer  # noqa: PLC0415 - this confluent-kafka has it

    with pytest.raises(ConfigError, match="chain: slice waits for other records of a partition"):
        ShareConsumer({**connection, "group.id": unique_topic("g")}, chain=Chain([Slice()]))


def test_an_older_confluent_kafka_has_the_other_clients_and_says_what_is_missing() -> None:
    program = """
import confluent_kafka
vars(confluent_kafka).pop("ShareConsumer", None)
from headerware import Consumer, ShareConsumer
from headerware.core.errors import MissingPartError
try:
    ShareConsumer({"group.id": "g"})
except MissingPartError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("share consumers need confluent-kafka 2.16 or later")
