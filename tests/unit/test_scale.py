"""The tables of docs/scale.md are what bench/simulate.py prints."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
NAMES = ["registry", "keys", "reassembly", "trails", "windows", "guard", "retention", "chargeback"]


@pytest.fixture(scope="module")
def simulate() -> Any:
    """Return the script as a module."""
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(ROOT / "bench")  # as for a script
        return importlib.import_module("simulate")


def section(simulate: Any, name: str) -> Any:
    return next(section for section in simulate.SECTIONS if section.name == name)


class TestTables:
    def test_are_of_these_sections(self, simulate: Any) -> None:
        assert [section.name for section in simulate.SECTIONS] == NAMES

    @pytest.mark.parametrize("name", NAMES)
    def test_of_the_document_are_those_of_the_simulation(self, simulate: Any, name: str) -> None:
        for table in section(simulate, name).tables(1.0):
            found = simulate.between(table.name).search(DOCUMENT)
            assert found is not None, table.name
            assert found[2].strip() == table.markdown(), "run: python bench/simulate.py --write"

    @pytest.mark.parametrize("name", NAMES)
    def test_have_the_same_form_at_a_small_size(self, simulate: Any, name: str) -> None:
        shown = [(table.columns, len(table.rows)) for table in section(simulate, name).tables(0.01)]
        for columns, rows in shown:
            assert rows > 3
            assert len(columns) > 2
        assert shown

    def test_of_what_was_measured_has_each_assumption(self, simulate: Any) -> None:
        found = simulate.between("anchors").search(DOCUMENT)
        assert found is not None
        rows = [line.split(" | ") for line in found[2].strip().splitlines()[2:]]
        assumed = [
            (anchor.what, each.name, simulate.count(anchor.assumed))
            for each in simulate.SECTIONS
            for anchor in each.anchors
        ]
        assert [(what.removeprefix("| "), name, number) for what, name, number, _ in rows] == assumed


class TestModels:
    def test_the_reassembler_holds_what_the_model_holds(self, simulate: Any) -> None:
        assert 0.95 < simulate.reassembly.measured_peak() < 1.05

    def test_a_full_window_of_the_model_gives_up_the_oldest(self, simulate: Any) -> None:
        few, many = (
            simulate.reassembly.reassemble(1, 1_000, seed=1),
            simulate.reassembly.reassemble(256, 1_000, seed=1),
        )
        assert few.given_up == 0
        assert few.complete == 1_000
        assert 0 < many.given_up == 1_000 - many.complete
        assert many.peak_bytes <= simulate.reassembly.PENDING_BYTES

    def test_all_calls_for_keys_are_counted(self, simulate: Any) -> None:
        calls = simulate.keys.renewals(1_000, 60.0, 1.0, 0.0, seed=1)
        assert round(calls.mean * 86_401) == 30_000  # one at the start, and one each 48 minutes and a second
        assert 10 < calls.last < calls.first < 100
        assert simulate.keys.renewals(1_000, 60.0, 1.0, simulate.keys.SPREAD, seed=1).last < 10
