from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

package = importlib.import_module("headerware.serdes")
HEAVY = ("confluent_kafka", "fastavro", "cbor2", "google.protobuf", "cloudevents", "httpx")
LIGHT = ("Bytes", "CloudEvent", "CloudEvents", "Json", "Polyglot", "Protobuf", "Text", "parse_content_type")


class TestSerdesPackage:
    @pytest.mark.parametrize("names", [(), LIGHT])
    def test_loads_nothing_heavy_by_itself(self, names: tuple[str, ...]) -> None:
        code = (
            f"import sys, headerware.serdes as package; [getattr(package, name) for name in {names}]\n"
            f"print([module for module in {HEAVY} if module in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "[]"

    @pytest.mark.parametrize("name", package.__all__)
    def test_gives_every_public_name(self, name: str) -> None:
        assert getattr(package, name).__module__.startswith("headerware.serdes.")
        assert name in dir(package)

    def test_has_no_other_names(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'Jason'"):
            _ = package.Jason
