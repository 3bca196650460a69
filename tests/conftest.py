"""Fixtures that every folder of tests may ask for."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import HealthCheck, settings

from headerware.testing import EmbeddedCluster, KafkaBroker, MissingPartError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent

# The links at the root must not be importable as top-level modules, however pytest was started.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]


# How many examples Hypothesis makes: `make test-exhaustive` asks for full; fast is for a quick look.
# Two cores shared with brokers and other tests say nothing about an example's time.
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("medium", settings.get_profile("full"), max_examples=30)
settings.register_profile("fast", settings.get_profile("full"), max_examples=15)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "medium"))


def cannot_run(reason: str) -> NoReturn:
    """Skip what needs a part that is missing here, or fail where HEADERWARE_REQUIRE_ALL is set."""
    if os.environ.get("HEADERWARE_REQUIRE_ALL"):
        pytest.fail(f"HEADERWARE_REQUIRE_ALL is set, and a part is missing: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def embedded_cluster() -> Iterator[EmbeddedCluster]:
    """Return librdkafka's mock cluster, with one broker; ask `unique_topic` for topics of your own."""
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """Return a real broker, shared by the whole run; do not stop it, start one of your own for that."""
    broker = KafkaBroker()
    try:
        try:
            broker.start()
        except MissingPartError as error:
            cannot_run(str(error))
        yield broker
    finally:
        broker.close()


@pytest.fixture
def unique_topic() -> Callable[[str], str]:
    """Return a function that makes a topic's name that no other test has: ``unique_topic("orders")``."""

    def name(prefix: str = "topic") -> str:
        return f"{prefix}-{uuid.uuid4().hex[:12]}"

    return name
