"""The public names of the packages."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

from headerware import connect
from headerware.connect import predicates, transforms
from headerware.connect.catalogue import Catalogue


class TestPublicNames:
    @pytest.mark.parametrize("package", [connect, transforms, predicates])
    def test_are_all_there(self, package: ModuleType) -> None:
        assert [name for name in package.__all__ if not hasattr(package, name)] == []
        assert set(package.__all__) <= set(dir(package))

    @pytest.mark.parametrize("package", [connect, transforms, predicates])
    def test_others_are_not(self, package: ModuleType) -> None:
        with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
            _ = package.Nothing

    @pytest.mark.parametrize(
        ("package", "known"),
        [
            (transforms, transforms.transform_type),
            (predicates, predicates.predicate_type),
            (connect, transforms.transform_type),
            (connect, predicates.predicate_type),
        ],
    )
    def test_are_those_of_the_catalogues_at_least(self, package: ModuleType, known: Catalogue[Any]) -> None:
        simple = {name.rpartition(".")[2] for name in known.built_in}
        assert simple - set(package.__all__) == set()

    def test_load_nothing_before_they_are_asked_for(self) -> None:
        program = "import sys, headerware.connect\nassert 'headerware.connect.records' not in sys.modules\n"
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
