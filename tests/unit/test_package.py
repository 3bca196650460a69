"""The package as others see it: its public names, and how little importing it loads."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.resources
import importlib.util
import json
import subprocess
import sys

import pytest

import headerware

PUBLIC = [
    "DROP",
    "Chain",
    "CompressionError",
    "ConfigError",
    "Consumer",
    "Context",
    "DeadLetterError",
    "DeserializingConsumer",
    "FanOut",
    "HeaderError",
    "HeaderId",
    "Headers",
    "HeaderwareError",
    "HeldBackError",
    "Interceptor",
    "InterceptorError",
    "KeyringError",
    "Place",
    "PluginError",
    "Producer",
    "ReassemblyError",
    "Record",
    "RecordError",
    "RecordMetadata",
    "RegistryError",
    "Role",
    "SerdeError",
    "SerializingProducer",
    "SignatureError",
    "Stage",
    "TimestampType",
    "TransformError",
    "TransportHeaderError",
    "UnknownSchemaError",
    "Verified",
    "WireFormatError",
    "load_chain",
]
INTERCEPTORS = {"Compact", "Compress", "Schema", "Serialize", "Sign", "Slice", "Trace", "Trail"}
HEAVY = [
    "confluent_kafka",
    "cryptography",
    "zstandard",
    "fastavro",
    "opentelemetry",
    "pyspark",
    "rich",
    "click",
]


def loaded_by(program: str) -> set[str]:
    """Run a program in a fresh interpreter, and give the top-level packages that it loaded."""
    program += (
        "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return set(json.loads(done.stdout))


class TestPublicNames:
    def test_are_these(self) -> None:
        assert headerware.__all__ == PUBLIC

    @pytest.mark.parametrize("name", PUBLIC)
    def test_are_all_there(self, name: str) -> None:
        assert getattr(headerware, name) is not None
        assert name in dir(headerware)

    def test_every_interceptor_is_in_their_package(self) -> None:
        package = importlib.import_module("headerware.interceptors")
        assert set(package.__all__) >= INTERCEPTORS
        assert all(isinstance(getattr(package, name), type) for name in INTERCEPTORS)

    def test_an_unknown_name_is_an_attribute_error(self) -> None:
        with pytest.raises(AttributeError, match="has no attribute 'Producre'"):
            headerware.Producre  # noqa: B018 - asking is the test

    def test_the_version_is_the_distributions(self) -> None:
        assert headerware.__version__ == importlib.metadata.version("kafka-headerware")

    def test_the_package_is_typed(self) -> None:
        files = importlib.resources.files("headerware")
        assert files.joinpath("py.typed").is_file()


class TestImporting:
    @pytest.mark.parametrize("module", ["headerware", "headerware.interceptors", "headerware.core.config"])
    def test_loads_nothing_heavy(self, module: str) -> None:
        assert loaded_by(f"import {module}").isdisjoint(HEAVY)

    def test_a_chain_of_ones_own_needs_nothing_heavy(self) -> None:
        program = """
from headerware import Chain, Record
class Mine:
    def on_send(self, record): return record
assert Chain([Mine()]).open().send([Record("t", b"v")])
"""
        assert loaded_by(program).isdisjoint(HEAVY)

    def test_a_client_brings_the_kafka_client_when_it_is_named(self) -> None:
        assert "confluent_kafka" in loaded_by("import headerware; headerware.Producer")

    def test_the_doors_at_the_root_are_no_top_level_modules(self) -> None:
        for name in ("interceptors", "registry", "serdes", "spark_bridge"):
            assert importlib.util.find_spec(name) is None, name
