"""Count what was compared with Kafka Connect's own answers, and leave out what cannot be imported here."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from typing import Any, Final

import pytest

# Where Spark is not installed, as with the oldest clients, there is nothing of its bridge to try.
collect_ignore = (
    []
    if find_spec("pyspark") and find_spec("pyarrow")
    else ["test_reassembly_batches.py", "test_typed_columns.py"]
)
_compared: Final[Counter[str]] = Counter()


@pytest.fixture(scope="session")
def compared() -> Counter[str]:
    """Return how many answers were compared, by operation; ``digits`` differ in a float's digits alone."""
    return _compared


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what a parallel process has compared to the one that prints the summary."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["compared"] = dict(_compared)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add up what the parallel processes have compared."""
    _compared.update(getattr(node, "workeroutput", {}).get("compared", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how much was compared."""
    if _compared:
        digits = _compared.pop("digits", 0)
        listed = ", ".join(f"{name} {count:,}" for name, count in sorted(_compared.items()))
        total = _compared.total()
        terminalreporter.write_line(f"{total:,} answers compared with Kafka Connect's own: {listed}")
        terminalreporter.write_line(
            f"{digits:,} of them agree but for the digits of floats, of which this Java writes too many"
        )
