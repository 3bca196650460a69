from __future__ import annotations

import pytest

from headerware.connect.modes import KAFKA_4_3, STRICT, Mode


@pytest.fixture(scope="session", params=[STRICT, KAFKA_4_3])
def mode(request: pytest.FixtureRequest) -> Mode:
    found: Mode = request.param
    return found
