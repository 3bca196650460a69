from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

package = importlib.import_module("headerware.interceptors")
HEAVY = ("cryptography", "zstandard", "opentelemetry", "confluent_kafka", "rich", "click")


class TestInterceptorsPackage:
    def test_loads_nothing_heavy_by_itself(self) -> None:
        code = f"import sys, headerware.interceptors; print([m for m in {HEAVY} if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    @pytest.mark.parametrize("name", package.__all__)
    def test_gives_every_public_name(self, name: str) -> None:
        assert getattr(package, name).__module__.startswith("headerware.interceptors.")
        assert name in dir(package)

    def test_has_no_other_names(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'Compres'"):
            _ = package.Compres
