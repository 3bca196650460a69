"""One oracle for the whole run."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from headerware.testing import MissingPartError
from headerware.testing.pytest_plugin import cannot_run
from tests.connect_oracle.oracle import ConnectOracle
from tests.vectors.connect.compare import nearly_same, same
from tests.vectors.connect.nodes import write_json
from tests.vectors.connect.operations import answer

Question = dict[str, Any]
Check = Callable[[list[Question]], None]

EXAMPLES: Final = "HEADERWARE_ORACLE_EXAMPLES"
"""The variable that says how many examples each test makes; they are other ones each time."""
_given: Final = os.environ.get(EXAMPLES)
_SHARE: Final = {"full": 1, "medium": 4, "fast": 20}
"""A profile makes one in so many of the examples that a test asks for."""
_DIGITS: Final = "digits"


def oracle_settings(examples: int) -> settings:
    """Return the settings of a test: always the same examples, unless their number is given."""
    return settings(
        max_examples=int(_given or examples // _SHARE[settings.get_current_profile_name()]),
        derandomize=_given is None,
        deadline=None,
        database=None,
        suppress_health_check=[*HealthCheck],
    )


@pytest.fixture(scope="session")
def connect_oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectOracle]:
    """Return Kafka Connect's own classes; where they cannot be had, the tests are skipped or fail."""
    try:
        oracle = ConnectOracle(tmp_path_factory.mktemp("connect-oracle"))
    except MissingPartError as error:
        cannot_run(str(error))
    with oracle:
        yield oracle


@pytest.fixture(scope="session")
def agree(connect_oracle: ConnectOracle, compared: Counter[str]) -> Check:
    """Return a function that asks both sides, and fails where they differ."""

    def check(questions: list[Question]) -> None:
        for question, expected in zip(questions, connect_oracle.ask(questions), strict=True):
            operation = question["op"]
            found = json.loads(write_json(answer(question)))
            compared[operation] += 1
            if same(operation, expected, found):
                continue
            if not connect_oracle.writes_floats_anew and nearly_same(operation, expected, found):
                compared[_DIGITS] += 1
                continue
            raise AssertionError(f"{question}\nKafka Connect: {expected}\nHeaderware:    {found}")

    return check
