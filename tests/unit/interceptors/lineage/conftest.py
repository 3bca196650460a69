"""What the tests of lineage share: where events go, and how they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.openlineage_events import Events

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Events:
    """Let OpenLineage's client write its events to a file, and return what reads them."""
    return Events.to_file(tmp_path / "events.json", monkeypatch)
