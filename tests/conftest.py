"""Settings of every test; the fixtures that all may ask for come from headerware.testing.pytest_plugin."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from headerware.core.native import native_module

if TYPE_CHECKING:
    from headerware.testing import EmbeddedCluster
    from tests.subjects import World

ROOT = Path(__file__).resolve().parent.parent

# The links at the root must not be importable as top-level modules, however pytest was started.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]

# A shell's `make test &` ignores SIGINT, and what a test starts, to interrupt it, would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A child has no threads of the Kafka clients that other tests have left as garbage, and would crash on these.
os.register_at_fork(after_in_child=gc.disable)

# Java's second compiler takes half of the time of brokers and of Spark, and pays off only in longer runs.
# Without it there would be 48 MB for compiled code rather than 240, which a session of Spark fills.
os.environ.setdefault(
    "JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
)

# How many examples Hypothesis makes: `make test-exhaustive` asks for full; fast is for a quick look.
# Two cores shared with brokers and other tests say nothing about an example's time.
settings.register_profile("full", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("medium", settings.get_profile("full"), max_examples=30)
settings.register_profile("fast", settings.get_profile("full"), max_examples=15)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "medium"))


def pytest_report_header() -> str:
    """Say which native code the tests meet, if any."""
    return f"native: {native_module()[1]}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Leave the million objects of a collection out of garbage collections, then and later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Leave what a file's tests leave out of the collections during later files."""
    result = yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return result


@pytest.fixture
def world(
    tmp_path: Path, embedded_cluster: EmbeddedCluster, unique_topic: Callable[[str], str]
) -> Iterator[World]:
    """Make a keyring and an empty topic of subjects' keys."""
    from tests.subjects import World  # noqa: PLC0415 - for few tests

    topic = unique_topic("customer-keys")
    embedded_cluster.create_topic(topic)
    made = World(tmp_path, embedded_cluster.bootstrap_servers, topic)
    yield made
    made.close()
