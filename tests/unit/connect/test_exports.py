"""The public names of the packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headerware import connect
from headerware.connect import converters, data, predicates, transforms, values
from headerware.connect.catalogue import Catalogue

PACKAGES = (connect, converters, data, predicates, transforms, values)


def typed_names(package: ModuleType) -> set[str]:
    """Return the names that type checkers see of a package whose names are loaded when asked for."""
    tree = ast.parse(Path(package.__file__ or "").with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    return {alias.asname or alias.name for line in imports for alias in line.names}


class TestPublicNames:
    @pytest.mark.parametrize("package", PACKAGES)
    def test_are_all_there(self, package: ModuleType) -> None:
        assert [name for name in package.__all__ if not hasattr(package, name)] == []
        assert set(package.__all__) <= set(dir(package))

    @pytest.mark.parametrize("package", [connect, converters, transforms, predicates])
    def test_are_what_type_checkers_see(self, package: ModuleType) -> None:
        assert typed_names(package) == set(package.__all__)

    @pytest.mark.parametrize("package", PACKAGES)
    def test_others_are_not(self, package: ModuleType) -> None:
        with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
            _ = package.Nothing

    @pytest.mark.parametrize(("one", "other"), list(combinations(PACKAGES, 2)))
    def test_have_one_home(self, one: ModuleType, other: ModuleType) -> None:
        assert set(one.__all__) & set(other.__all__) == set()

    @pytest.mark.parametrize(
        ("package", "known"),
        [
            (transforms, transforms.transform_type),
            (predicates, predicates.predicate_type),
            (converters, converters.converter_type),
            (converters, converters.header_converter_type),
        ],
    )
    def test_are_those_of_the_catalogues_at_least(self, package: ModuleType, known: Catalogue[Any]) -> None:
        simple = {name.rpartition(".")[2] for name in known.built_in}
        assert simple - set(package.__all__) == set()

    def test_load_nothing_before_they_are_asked_for(self) -> None:
        program = "import sys, headerware.connect\nassert 'headerware.connect.records' not in sys.modules\n"
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
