"""Both modes, for the tests of this folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headerware.connect.modes import Mode


@pytest.fixture(params=["strict", "kafka_4_3"])
def mode(request: pytest.FixtureRequest) -> Mode:
    """Run a test in each mode."""
    chosen: Mode = request.param
    return chosen
