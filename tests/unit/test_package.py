"""The package as others see it: its public names, and how little importing it loads."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.resources
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import traceback
import zipfile
from pathlib import Path
from typing import Any

import pytest

headerware: Any = importlib.import_module("headerware")
ROOT = Path(__file__).parents[2]
STABILITY = (ROOT / "docs" / "stability.md").read_text(encoding="utf-8")
PUBLIC = re.findall(r"^headerware\.(\w+)\b(?!\.)", STABILITY, re.MULTILINE)
PACKAGES = [
    "headerware",
    "headerware.clients.aio",
    "headerware.connect",
    "headerware.connect.converters",
    "headerware.connect.data",
    "headerware.connect.predicates",
    "headerware.connect.transforms",
    "headerware.connect.values",
    "headerware.interceptors",
    "headerware.keyring",
    "headerware.keyring.services",
    "headerware.object_store",
    "headerware.ops.audit",
    "headerware.ops.chargeback",
    "headerware.registry",
    "headerware.registry.stores",
    "headerware.serdes",
    "headerware.serdes.stores",
    "headerware.sources",
    "headerware.sources.extractors",
    "headerware.sources.ready",
    "headerware.sources.runtime",
    "headerware.spark_bridge",
    "headerware.spark_bridge.chargeback",
    "headerware.testing",
    "headerware.topic_table",
]
LAZY = [".".join(stub.relative_to(ROOT).parent.parts) for stub in (ROOT / "headerware").rglob("__init__.pyi")]
INTERCEPTORS = {"HeaderIds", "Compress", "Schema", "Serialize", "Sign", "Slice", "Trace", "Trail"}
HEAVY = [
    "confluent_kafka",
    "cryptography",
    "zstandard",
    "fastavro",
    "opentelemetry",
    "pyspark",
    "rich",
    "watchfiles",
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
        assert headerware.__all__ == sorted(PUBLIC)

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
        assert headerware.__version__ == importlib.metadata.version("headerware")

    def test_the_package_is_typed(self) -> None:
        files = importlib.resources.files("headerware")
        assert files.joinpath("py.typed").is_file()


class TestStubs:
    """The public names of packages that load them when they are first used."""

    @pytest.mark.parametrize("package", LAZY)
    def test_name_what_there_is(self, package: str) -> None:
        if package.startswith("headerware.spark_bridge"):
            pytest.importorskip("pyspark", reason="as with the oldest clients, Spark is not installed")
        module = importlib.import_module(package)
        assert module.__all__
        assert all(getattr(module, name) is not None for name in module.__all__)

    def test_are_read_in_a_zip_file(self, tmp_path: Path) -> None:
        """Spark's ``addPyFile`` and zipapps import the package from such a file."""
        with zipfile.ZipFile(tmp_path / "h.zip", "w") as archive:
            for file in (ROOT / "headerware").rglob("*.py*"):
                if file.suffix in {".py", ".pyi"}:
                    archive.write(file, file.relative_to(ROOT))
        program = (
            f"import sys; sys.path.insert(0, {str(tmp_path / 'h.zip')!r})\n"
            "import headerware; from headerware.interceptors import Trail\n"
            "assert 'h.zip' in headerware.__file__; headerware.Chain([Trail(service='s')]).open()"
        )
        subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


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


class TestLinksAtTheRoot:
    """What is imported through them would be there twice, under two names."""

    @pytest.mark.parametrize("link", ["interceptors", "registry", "serdes", "spark_bridge"])
    @pytest.mark.parametrize("statement", ["import {}", "from {} import Trail", "import {}.registry"])
    def test_say_what_to_import_instead(self, link: str, statement: str) -> None:
        done = _run_in_root(statement.format(link))
        assert done.returncode == 1
        last = done.stderr.splitlines()[-1]
        assert last.startswith(f"ImportError: {link!r} is a link for people to look at")
        hint = last.split("`")[1]
        assert hint.startswith(f"from headerware.{link} import ")
        if link != "spark_bridge":  # which needs pyspark
            assert _run_in_root(hint).returncode == 0


def _run_in_root(statement: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", statement], cwd=ROOT, capture_output=True, text=True, check=False
    )


def undocumented(name: str, found: Any) -> list[str]:
    """Return which of a class's own public methods, or the class or function itself, have no docstring."""
    missing = [] if inspect.getdoc(found) else [name]
    if inspect.isclass(found):
        members = {each: member for each, member in vars(found).items() if not each.startswith("_")}
        functions = (inspect.isroutine, inspect.isdatadescriptor)
        missing += [
            f"{name}.{each}"
            for each, member in members.items()
            if any(is_one(member) for is_one in functions)
            and not inspect.ismemberdescriptor(member)  # a field, which the class's own docstring tells
            and not inspect.getdoc(getattr(found, each))
        ]
    return missing


@pytest.mark.parametrize("package", PACKAGES)
def test_what_users_import_has_docstrings(package: str) -> None:
    if package.startswith("headerware.spark_bridge"):
        pytest.importorskip("pyspark", reason="as with the oldest clients, Spark is not installed")
    module = importlib.import_module(package)
    named = {name: getattr(module, name) for name in module.__all__}
    ours = {
        name: found for name, found in named.items() if inspect.isclass(found) or inspect.isroutine(found)
    }
    assert [gap for name, found in ours.items() for gap in undocumented(f"{package}.{name}", found)] == []


class TestANameFromElsewhere:
    @pytest.mark.parametrize(
        ("name", "package"),
        [
            ("Trail", "interceptors"),
            ("Sign", "interceptors"),
            ("EmbeddedCluster", "testing"),
            ("Avro", "serdes"),
            ("Keyring", "keyring"),
        ],
    )
    def test_is_told_where_it_is(self, name: str, package: str) -> None:
        expected = f"^{name} is not in headerware itself; write: from headerware.{package} import {name}$"
        with pytest.raises(ImportError, match=expected):
            exec(f"from headerware import {name}")  # noqa: S102 - as it is written
        exec(f"from headerware.{package} import {name}")  # noqa: S102 - as it is told

    def test_that_is_nearly_right_is_suggested(self) -> None:
        with pytest.raises(AttributeError, match="no attribute 'Producr'; did you mean 'Producer'"):
            _ = headerware.Producr

    def test_that_is_nearly_right_is_suggested_once(self) -> None:
        with pytest.raises(AttributeError) as caught:
            _ = headerware.Producr
        lines = traceback.format_exception(caught.value)
        assert lines[-1].lower().count("did you mean") == 1

    def test_of_confluent_kafka_leads_to_ours(self) -> None:
        with pytest.raises(ImportError, match="write: from headerware import AsyncProducer"):
            exec("from headerware import AIOProducer")  # noqa: S102 - as it is written

    @pytest.mark.parametrize("name", ["pytest_plugins", "Nothing", "_private", "trail"])
    def test_that_is_nowhere_is_an_attribute_error(self, name: str) -> None:
        assert not hasattr(headerware, name)


def test_dir_shows_what_is_public_and_no_more() -> None:
    assert dir(headerware) == sorted([*headerware.__all__, "__version__"])
    assert dir(importlib.import_module("headerware.interceptors")) == sorted(
        importlib.import_module("headerware.interceptors").__all__
    )
