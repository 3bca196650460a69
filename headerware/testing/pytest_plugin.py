"""Fixtures for pytest: clusters to test against.

Name it in the ``conftest.py`` at the root of the tests::

    pytest_plugins = ["headerware.testing.pytest_plugin"]

``embedded_cluster`` is librdkafka's mock cluster, inside the process. ``kafka_broker`` is an Apache Kafka; it
needs Java 17. Both start when a test first asks for them, and live until all tests are done.
``unique_topic`` makes names of topics that no other test has. If a part is missing, a test that needs it is
skipped; with ``HEADERWARE_REQUIRE_ALL=1`` in the environment it fails.
"""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, NoReturn

import pytest

from headerware.testing import EmbeddedCluster, KafkaBroker, MissingPartError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["cannot_run", "embedded_cluster", "kafka_broker", "unique_topic"]


def cannot_run(reason: str) -> NoReturn:
    """Skip a test for which a part is missing, or fail it if ``HEADERWARE_REQUIRE_ALL`` is set.

    Args:
        reason: what is missing.
    """
    if os.environ.get("HEADERWARE_REQUIRE_ALL"):
        pytest.fail(f"HEADERWARE_REQUIRE_ALL is set, and a part is missing: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def embedded_cluster() -> Iterator[EmbeddedCluster]:
    """Return librdkafka's mock cluster, with one broker, shared by the whole run.

    Ask `unique_topic` for topics of your own.
    """
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """Return a real broker, shared by the whole run; do not stop it, but start one of your own."""
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
    """Return a function that makes a topic's name for one test: ``unique_topic("orders")``."""

    def name(prefix: str = "topic") -> str:
        return f"{prefix}-{uuid.uuid4().hex[:12]}"

    return name
