"""The documents hold: commands exist, code compiles, configurations load."""

from __future__ import annotations

import ast
import fnmatch
import importlib.metadata
import json
import random
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import click
import msgspec
import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from headerware import Context, Headers, Interceptor, Record, load_chain
from headerware.cli import main
from headerware.cli.main import REMOVED
from headerware.cli.schema import SCHEMAS
from headerware.connect.converters.catalogue import converter_type, header_converter_type
from headerware.connect.predicates.catalogue import predicate_type
from headerware.connect.transforms.catalogue import transform_type
from headerware.core import plugins
from headerware.core.context import wall_clock_ms
from headerware.core.hooks import HOOKS
from headerware.core.plugins import interceptor_type
from headerware.core.services import SERVICE_ARGUMENTS
from headerware.dictionaries import dictionaries_type
from headerware.interceptors import built_in
from headerware.keyring import read_keyring
from headerware.keyring.services import key_service_type
from headerware.object_store import object_store_type
from headerware.serdes.plugins import serde_type
from headerware.serdes.stores.store import Store, store_type
from headerware.sources import ItemContext
from headerware.sources.extractor import extractor_type
from headerware.sources.extractors import StreamExtractor
from headerware.sources.runtime import RunConfig, SourceRunner, offsets_type
from headerware.sources.source import source_type
from headerware.sources.transformers import transformer_type
from headerware.testing import EmbeddedCluster
from tests.links import CODE, FENCE, ROOT, documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

TEMPLATE = ROOT / "examples" / "plugin_template"
TEMPLATE_PAGE = "examples/plugin_template/README.md"
DOCUMENTS = documents()
METHODS: dict[str, tuple[str, ...]] = {**HOOKS, **SERVICE_ARGUMENTS}
CATALOGUES = (
    *(interceptor_type, serde_type, store_type, key_service_type, dictionaries_type, object_store_type),
    *(converter_type, header_converter_type, predicate_type, transform_type),
    *(extractor_type, source_type, transformer_type, offsets_type),
)
# Their blocks are run by tests/integration/test_guides.py.
GUIDES = "docs/guides/"
HISTORY = ("CHANGELOG.md", "docs/decisions/")
"""Documents that may tell of commands of earlier versions."""
# Its configurations are those of sources.
SOURCES = "docs/sources.md"


@cache
def text_of(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def prose(document: str) -> str:
    return FENCE.sub("", text_of(document))


def blocks(kind: str, documents: Iterable[str] = DOCUMENTS) -> list[Any]:
    """Return the fenced blocks of a kind, each as a parameter with its place as its id."""
    return [
        pytest.param(
            document, found[2], id=f"{document}:{text_of(document).count(chr(10), 0, found.start()) + 1}"
        )
        for document in documents
        for found in FENCE.finditer(text_of(document))
        if found[1] == kind
    ]


def commands(word: str) -> list[Any]:
    """Return the command lines that begin with a word, fenced or in the middle of a sentence."""
    found: list[tuple[str, str]] = []
    removed = tuple(f"{word} {each} " for each in REMOVED)
    for document in DOCUMENTS:
        fences = [] if document.startswith(GUIDES) else FENCE.findall(text_of(document))
        fenced = [line.strip() for _, block in fences for line in block.splitlines()]
        inline = [code[1] for code in CODE.finditer(prose(document))]
        lines = (line.partition("  #")[0].strip() for line in [*fenced, *inline])
        found += [
            (document, line)
            for line in lines
            if line.startswith(f"{word} ") and not (document.startswith(HISTORY) and line.startswith(removed))
        ]
    return [pytest.param(line, id=f"{document}: {line}") for document, line in dict.fromkeys(found)]


def table(document: str, first: str) -> list[list[str]]:
    """Return the rows of the table whose first heading this is."""
    lines = text_of(document).splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip()[1:-1].split("|")])
    return rows


def run_lines(text: str) -> None:
    """Run the command lines of a part of a page, in this folder."""
    for _, block in FENCE.findall(text):
        for line in block.splitlines():
            if line.startswith("headerware "):
                result = CliRunner().invoke(main, shlex.split(line)[1:])
                assert result.exit_code == 0, f"{line}: {result.output}"


def make_files(chain: str) -> None:
    """Make the keys, certificates, contracts and schemas that the text of a chain names, in this folder."""
    if 'certificate = "shop.jwt"' in chain:
        run_lines(text_of("docs/admission.md").partition("\nThe producer's chain")[0])
    for step in chain.split("[[interceptors]]"):
        algorithm = "aes-256" if 'type = "encrypt' in step else "ed25519"
        for key in re.findall(r'key_id = "(?:\$\{env:\w+:-)?([\w-]+)', step):
            if not Path(f"{key}.json").exists():
                made = ["keys", "generate", "--keyring", "keys.json", "--id", key, "--algorithm", algorithm]
                assert CliRunner().invoke(main, made).exit_code == 0
    for folder in re.findall(r'^path = "(\w+)"$', chain, re.MULTILINE):
        Path(folder).mkdir()
    for document in re.findall(r'^file = "([\w-]+\.yaml)"$', chain, re.MULTILINE):
        message = {"headers": {"required": ["order-id"]}}
        channels = {"orders": {"address": "orders", "messages": {"Order": message}}}
        Path(document).write_text(json.dumps({"asyncapi": "3.0.0", "channels": channels}))
    for schema in re.findall(r'"([\w-]+\.avsc)"', chain):
        fields = [{"name": "id", "type": "long"}]
        Path(schema).write_text(json.dumps({"type": "record", "name": "Order", "fields": fields}))


def known_to_click(tokens: list[str]) -> None:
    """Follow a command line through the groups, and look for each of its options."""
    command: click.Command = main
    while isinstance(command, click.Group) and tokens:
        word = tokens.pop(0)
        assert word in command.commands, word
        command = command.commands[word]
    options = {
        name: parameter
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    arguments = 0
    while tokens:
        token = tokens.pop(0)
        if token not in options and any(parameter.nargs == -1 for parameter in command.params):
            return  # from here on it is another program's command line
        if not token.startswith("-"):
            arguments += 1
            continue
        assert token in options, token
        if not getattr(options[token], "is_flag", False):
            tokens.pop(0)
    taken = [parameter.nargs for parameter in command.params if isinstance(parameter, click.Argument)]
    assert arguments <= len(taken) or -1 in taken


class TestCommands:
    @pytest.mark.parametrize("line", commands("headerware"))
    def test_of_ours_are_understood(self, line: str) -> None:
        known_to_click(shlex.split(line.replace("[", "").replace("]", ""))[1:])

    @pytest.mark.parametrize("line", commands("make"))
    def test_of_make_have_a_target(self, line: str) -> None:
        targets = re.findall(r"^([a-z-]+):", text_of("Makefile"), re.MULTILINE)
        for word in shlex.split(line)[1:]:
            assert word in targets or "=" in word, word

    def test_there_are_some(self) -> None:
        assert len(commands("headerware")) > 5
        assert len(commands("make")) > 5


class TestConfigurations:
    @pytest.fixture
    def _template(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
        """Install the template of plug-ins, which one of the documents configures."""
        information = tmp_path / "site" / "headerware_stamp-0.1.0.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: headerware-stamp\nVersion: 0.1.0\n"
        )
        (information / "entry_points.txt").write_text(f"[{built_in.GROUP}]\nstamp = headerware_stamp:Stamp\n")
        monkeypatch.syspath_prepend(tmp_path / "site")
        monkeypatch.syspath_prepend(TEMPLATE / "src")
        plugins._entry_points.cache_clear()
        yield
        plugins._entry_points.cache_clear()
        for module in [name for name in sys.modules if name.partition(".")[0] == "headerware_stamp"]:
            del sys.modules[module]

    @pytest.mark.usefixtures("_template")
    @pytest.mark.parametrize(
        ("document", "block"),
        blocks("toml", [each for each in DOCUMENTS if not each.startswith(GUIDES) and each != SOURCES]),
    )
    def test_load_and_open(
        self, document: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for variable in re.findall(r"\$\{env:(\w+)\}", block):
            monkeypatch.setenv(variable, "orders")
        monkeypatch.chdir(tmp_path)
        make_files(block)
        for included in re.findall(r'include = \["([^"]+)"\]', block):
            (tmp_path / included).touch()
        (tmp_path / "headerware.toml").write_text(block)
        chain = load_chain(tmp_path / "headerware.toml")
        assert len(chain) > 0
        chain.open(Context(side="producer")).close()

    @pytest.mark.parametrize("word", interceptor_type.built_in)
    def test_of_each_interceptor_gives_the_record_back(
        self, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        ((_, block),) = (found.values for found in blocks("toml", [f"docs/interceptors/{word}.md"]))
        make_files(str(block))
        (tmp_path / "chain.toml").write_text(str(block))
        chain = load_chain("chain.toml")
        large = random.Random(1).randbytes(1_500_000)
        order = {"id": 1, "ssn": "078-05-1120", "card": {"number": "4111"}}
        sent, read = {
            "claim_check": (large, large),
            "slice": (large, large),
            "encrypt_fields": (order, order),
            "transforms": (order, {**order, "ssn": ""}),
            "schema": ({"id": 1}, {"id": 1}),
            "serialize": ({"id": 1}, {"id": 1}),
        }.get(word, (b"value", b"value"))
        key = "k" if word == "serialize" else b"k"
        topic = "orders.retry" if word == "delay" else "orders"
        record = Record(topic, sent, key, Headers([("order-id", b"1")]))
        in_a_minute = wall_clock_ms() + 60_000
        producer = Context(side="producer", cluster_id=lambda: "c")
        consumer = Context(side="consumer", cluster_id=lambda: "c", now_ms=lambda: in_a_minute)
        with chain.open(producer) as session:
            wire = [
                each.replace(partition=0, offset=offset) for offset, each in enumerate(session.send([record]))
            ]
        if word == "admission":  # a reader has another chain: see the test of docs/admission.md
            assert [name for name, _ in wire[0].headers] == ["order-id", "hw.admit", "hw.sig"]
            return
        with chain.open(consumer) as session:
            (got,) = [each for one in wire for each in session.consume([one])]
        assert (got.key, got.value) == (key, read)
        assert ("order-id", b"1") in got.headers

    def test_of_each_interceptor_have_at_most_twelve_lines(self) -> None:
        for found in blocks("toml", [f"docs/interceptors/{word}.md" for word in interceptor_type.built_in]):
            assert len([line for line in str(found.values[1]).splitlines() if line]) <= 12, found.id

    def test_of_a_wrong_order_is_refused_in_the_words_of_its_page(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (_, chain), (_, words) = FENCE.findall(text_of("docs/order.md"))
        (tmp_path / "headerware.toml").write_text(chain)
        result = CliRunner().invoke(main, ["check", "headerware.toml"])
        assert (result.exit_code, result.output) == (1, words)

    def test_there_are_some(self) -> None:
        assert len(blocks("toml")) >= 3

    def test_the_template_is_what_its_document_calls_it(self) -> None:
        project = text_of("examples/plugin_template/pyproject.toml")
        assert 'stamp = "headerware_stamp:Stamp"' in project

    @pytest.mark.parametrize("method", METHODS)
    def test_the_page_about_hooks_names_the_methods_of_all_services(self, method: str) -> None:
        arguments = ", ".join(METHODS[method])
        assert f"`{method}({arguments})`" in text_of("docs/hooks.md")

    def test_the_template_lists_its_files(self) -> None:
        files = {
            path.relative_to(TEMPLATE).as_posix()
            for path in TEMPLATE.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and path.name != "README.md"
        }
        assert {row[0].partition("](")[2].rstrip(")") for row in table(TEMPLATE_PAGE, "file")} == files

    def test_the_page_of_hooks_names_all_groups_of_entry_points(self) -> None:
        groups = {each.group for each in CATALOGUES} - {None}
        named = " ".join(row[0] for row in table("docs/hooks.md", "group"))
        assert set(re.findall(r"headerware\.\w+", named)) == groups


class TestPython:
    @pytest.mark.parametrize(("document", "block"), blocks("python"))
    def test_compiles(self, document: str, block: str) -> None:
        compile(block, document, "exec")

    def test_there_is_some(self) -> None:
        assert len(blocks("python")) >= 3

    def test_of_the_page_on_key_services_runs_and_shows_what_it_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = "docs/key-services.md"
        monkeypatch.chdir(tmp_path)
        lines = [
            shlex.split(line)[1:]
            for _, block in FENCE.findall(text_of(page))
            for line in block.splitlines()
            if line.startswith("headerware ")
        ]
        assert CliRunner().invoke(main, lines.pop(0)).exit_code == 0
        namespace: dict[str, Any] = {"__name__": "page"}
        for found in blocks("python", [page]):
            exec(compile(found.values[1], found.id or "", "exec"), namespace)  # noqa: S102 - our own
            shown = re.findall(r"print\(.*\)  # (.*)$", found.values[1], re.MULTILINE)
            assert capsys.readouterr().out.splitlines() == shown
        suite = namespace["TestVitrine"]()
        suite.test_serves_several_threads_at_once()
        suite.test_refuses_changed_bytes()
        for line in lines:
            result = CliRunner().invoke(main, line)
            assert result.exit_code == 0, result.output

    def test_of_the_page_on_sources_runs(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        namespace: dict[str, Any] = {"__name__": "page"}
        monkeypatch.setitem(sys.modules, "page", ModuleType("page"))
        for found in blocks("python", [SOURCES]):
            if "spark" in found.values[1]:  # tests/spark/test_native_source.py runs these
                continue
            exec(compile(found.values[1], found.id or "", "exec"), namespace)  # noqa: S102 - our own
        vars(sys.modules["page"]).update(namespace)
        for word, kind in (("zip", "Zip"), ("csv_rows", "CsvRows")):
            catalogue = source_type if word == "zip" else extractor_type
            monkeypatch.setitem(catalogue._built_in, word, f"page:{kind}")
        whole, *others = (tomllib.loads(found.values[1]) for found in blocks("toml", [SOURCES]))
        bare = {name: whole[name] for name in ("name", "topic", "kafka")}
        (points,) = (shown["project"]["entry-points"] for shown in others if "project" in shown)
        for group, catalogue in (
            ("headerware.sources", source_type),
            ("headerware.extractors", extractor_type),
        ):
            assert catalogue.group == group
            for word, place in points[group].items():
                assert getattr(sys.modules["page"], place.partition(":")[2]) is catalogue(word)
        for shown in others:
            if "project" not in shown:
                RunConfig.from_table((bare if "source" in shown else whole) | shown)
        (tmp_path / "tables").mkdir()
        (tmp_path / "tables" / "orders-3.csv").write_text("id\n1\n2\n")
        whole["source"]["folder"] = str(tmp_path / "tables")
        (keyed,) = (shown["kafka"] for shown in others if "kafka" in shown)
        with EmbeddedCluster(topics={"tables": 1, "headerware-offsets": 1}) as cluster:
            for name, kafka in (("plain", whole["kafka"]), ("keyed", keyed)):
                kafka["bootstrap.servers"] = cluster.bootstrap_servers
                runner = SourceRunner(RunConfig.from_table(whole | {"name": name, "kafka": kafka}), once=True)
                runner.run()
                assert runner.statistics[0].acknowledged == 2
        (routes,) = (shown for shown in others if "key_pattern" in shown)
        routed = RunConfig.from_table(whole | routes)
        assert routed.route(ItemContext(key="orders-3.csv")) == ("orders", 3)
        suite = namespace["TestZip"]()
        suite.test_starts_at_each_key()
        suite.test_gives_the_same_records_again()
        namespace["TestCsvRows"]().test_resumes_after_each_record()

    def test_of_the_page_on_encryption_runs_and_shows_what_it_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        page = "docs/encryption.md"
        monkeypatch.chdir(tmp_path)
        [chain, *_] = [found.values[1] for found in blocks("toml", [page])]
        (tmp_path / "chain.toml").write_text(str(chain))
        lines = [
            shlex.split(line)[1:]
            for _, block in FENCE.findall(text_of(page))
            for line in block.splitlines()
            if line.startswith("headerware ")
        ]
        for _ in "encrypts", "signs":
            assert CliRunner().invoke(main, lines.pop(0)).exit_code == 0
        assert CliRunner().invoke(main, ["check", "--open", "chain.toml"]).exit_code == 0
        for found in blocks("python", [page]):
            exec(compile(found.values[1], found.id or "", "exec"), {"__name__": "page"})  # noqa: S102 - our own
            shown = re.findall(r"print\(.*\)  # (.*)$", found.values[1], re.MULTILINE)
            assert capsys.readouterr().out.splitlines() == shown
        for line in sorted(lines, reverse=True):  # the secret is made before its key is deleted
            result = CliRunner().invoke(main, line)
            assert result.exit_code == 0, result.output

    def test_of_the_page_on_admission_admits_what_the_page_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        found = [block for kind, block in FENCE.findall(text_of("docs/admission.md")) if not kind]
        for line in "".join(found[:2]).splitlines():
            result = CliRunner().invoke(main, shlex.split(line)[1:])
            assert result.exit_code == 0, result.output
        for name, block in zip(("producer.toml", "reader.toml", "policy.toml"), found[2:], strict=True):
            Path(name).write_text(block)
        with load_chain("producer.toml").open(Context(side="producer", cluster_id=lambda: "c")) as session:
            sent = session.send([Record("orders", b"1")])
        with load_chain("reader.toml").open(Context(side="consumer", cluster_id=lambda: "c")) as session:
            (read,) = session.consume(sent)
        assert read.verified is not None
        assert (read.verified.subject, read.verified.issuer) == ("shop", "security team")

    def test_of_the_page_on_serdes_runs_and_shows_what_it_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        namespace: dict[str, Any] = {"__name__": "page"}
        monkeypatch.setitem(sys.modules, "page", ModuleType("page"))  # where dataclasses look their types up
        with EmbeddedCluster() as cluster:
            for found in blocks("python", ["docs/serdes.md"]):
                program = found.values[1].replace("localhost:9092", cluster.bootstrap_servers)
                exec(compile(program, found.id or "", "exec"), namespace)  # noqa: S102 - our own
                shown = re.findall(r"print\(.*\)  # (.*)$", program, re.MULTILINE)
                printed = capsys.readouterr().out.splitlines()
                assert [line for line in shown if "..." not in line and line not in printed] == []
            namespace.clear()  # a client that outlived the cluster would look for it


class TestSecurity:
    """What a security team goes by: the tables name tests that exist, and the procedures work."""

    PAGE = "docs/security.md"

    def test_names_every_file_of_attacks(self) -> None:
        named = {code.rstrip("/") for code in CODE.findall(text_of(self.PAGE))}
        attacks = ROOT / "tests" / "attacks"
        files = [path.relative_to(ROOT) for path in attacks.rglob("test_*.py")]
        by_folder = {file for file in files if file.parent.as_posix() in named and len(file.parts) > 3}
        assert [file for file in files if file.as_posix() not in named and file not in by_folder] == []
        assert files

    def test_names_no_test_that_does_not_exist(self) -> None:
        found = {code.rsplit("/")[-1] for code in CODE.findall(text_of(self.PAGE))}
        tests = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py")]
        files = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
        for name in found:
            if re.fullmatch(r"test_\w+\.py", name):
                assert name in files, name
            elif re.fullmatch(r"Test\w+|test_\w+", name):
                defined = re.compile(rf"^ *(class|def|async def) {name}\b", re.MULTILINE)
                assert any(map(defined.search, tests)), name

    def test_each_file_of_attacks_says_what_it_is_about(self) -> None:
        for path in (ROOT / "tests" / "attacks").rglob("test_*.py"):
            assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path

    def test_key_procedures_work_as_they_are_written(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        blocks = FENCE.findall(text_of("docs/key-procedures.md"))
        lines = [line for _, block in blocks for line in block.splitlines()]
        for line in lines:
            if line.startswith("headerware "):
                result = CliRunner().invoke(main, shlex.split(line)[1:])
                assert result.exit_code == 0, f"{line}: {result.output}"
            else:
                subprocess.run(shlex.split(line), check=True)
            if "--root-id root " in line:
                shutil.copy("keys.snapshot", "of-the-stolen-root")

        shop = {key.version: key for key in read_keyring("keys.json").keys}
        assert [shop[version].status for version in (1, 2, 3)] == ["retired", "revoked", "active"]
        assert shop[2].revoked_from == {"lkc-1/orders[0]": 1042, "lkc-1/orders[1]": 980}
        public = read_keyring("public.json")
        assert not public.is_secret
        assert {key.id for key in public.keys} == {"shop", "shop-b"}
        assert public.verifying_key("shop", 1).status == "retired"
        assert read_keyring("found.json").current_key("shop-b", "sign", 0).version == 1
        assert {key["kid"] for key in json.loads(Path("issuer.jwks.json").read_text())["keys"]} == {
            "issuer-2:1"
        }
        assert [key.status for key in read_keyring("cards.json").keys] == ["deleted", "revoked", "active"]
        verify = ["keys", "verify-snapshot", "--root", "root.pub", "--snapshot"]
        assert CliRunner().invoke(main, [*verify, "keys.snapshot"]).exit_code == 0
        refused = CliRunner().invoke(main, [*verify, "of-the-stolen-root"])
        assert refused.exit_code == 1
        assert "revoked" in refused.output


class TestOptions:
    """The tables of options, against the code."""

    def test_that_all_have_are_these(self) -> None:
        rows = table("docs/configuration.md", "option")
        assert {row[0] for row in rows} == set(Interceptor.__struct_fields__)

    def test_of_each_interceptor_are_these_with_their_defaults(self) -> None:
        every = Interceptor.__struct_fields__
        for word in interceptor_type.built_in:
            rows = table(f"docs/interceptors/{word}.md", "option")
            documented = {option: default for option, _, default, _ in rows}
            assert documented == self.options(interceptor_type(word), every), word

    def test_of_each_serde_are_these_with_their_defaults(self) -> None:
        documented = self.documented("docs/serdes.md", "serde")
        in_common = {
            word: options
            for pattern in [word for word in documented if "*" in word]
            for options in [documented.pop(pattern)]
            for word in fnmatch.filter(documented, pattern)
        }
        assert {word: {**in_common.get(word, {}), **own} for word, own in documented.items()} == {
            word: self.options(serde_type(word)) for word in serde_type.built_in
        }

    def test_of_each_schema_store_are_these_with_their_defaults(self) -> None:
        documented = self.documented("docs/serdes.md", "store")
        every = self.options(Store)
        assert documented.pop("*") == every
        assert documented == {word: self.options(store_type(word), every) for word in store_type.built_in}

    def test_of_each_store_of_dictionaries_are_these_with_their_defaults(self) -> None:
        documented = self.documented("docs/dictionaries.md", "store")
        assert documented == {
            word: self.options(dictionaries_type(word)) for word in dictionaries_type.built_in
        }

    def test_of_each_object_store_are_these_with_their_defaults(self) -> None:
        documented = self.documented("docs/claim-check.md", "store")
        assert documented == {
            word: self.options(object_store_type(word)) for word in object_store_type.built_in
        }

    def test_of_each_key_service_are_these_with_their_defaults(self) -> None:
        documented = self.documented("docs/key-services.md", "service")
        assert documented == {
            word: self.options(key_service_type(word)) for word in key_service_type.built_in
        }

    def test_of_sources_are_these_with_their_defaults(self) -> None:
        documented = self.documented(SOURCES, "of")
        every = self.options(StreamExtractor)
        assert documented.pop("the file") == self.options(RunConfig)
        assert documented.pop("every extractor") == every
        for word in offsets_type.built_in:
            assert documented.pop(f"offsets: {word}") == self.options(offsets_type(word))
        sources = {word: self.options(source_type(word)) for word in source_type.built_in}
        extractors = {
            word: dict(self.options(extractor_type(word)).items() - every.items())
            for word in extractor_type.built_in
        }
        assert documented == sources | extractors

    def documented(self, document: str, first: str) -> dict[str, dict[str, str]]:
        """Return the options with their defaults by what has them, as a table says."""
        found: dict[str, dict[str, str]] = {}
        for word, option, default, _ in table(document, first):
            own = found.setdefault(word or list(found)[-1], {})
            if option:
                own[option] = default
        return found

    def options(self, kind: type[msgspec.Struct], every: Iterable[str] = ()) -> dict[str, str]:
        """Return a type's own options with their defaults as the documents write them."""
        return {
            field.name: self.written(field)
            for field in msgspec.structs.fields(kind)
            if field.name not in every
        }

    def written(self, field: msgspec.structs.FieldInfo) -> str:
        if field.required:
            return "-"
        if field.default_factory is not msgspec.NODEFAULT:
            return json.dumps(field.default_factory())
        if isinstance(field.default, msgspec.Struct):
            return str(vars(type(field.default))["type"])
        if isinstance(field.default, str):
            return field.default or '""'
        return "a list" if field.default and isinstance(field.default, tuple) else json.dumps(field.default)


@cache
def schema_of(kind: str) -> dict[str, Any]:
    return SCHEMAS[kind]()


class TestSchemas:
    """What ``headerware schema`` prints, against all files in the documents and examples."""

    OPTIONS: ClassVar[dict[str, str]] = {
        "interceptors": "chain",
        "stacks": "chain",
        "carry": "chain",
        "source": "source",
        "issuers": "policy",
        "incoming": "prices",
        "lifetimes": "rules",
    }
    """The kind of a file by an option that only this kind has."""

    @pytest.mark.parametrize(("document", "block"), [*blocks("toml"), *blocks("")])
    def test_accept_the_files_in_documents(self, document: str, block: str) -> None:
        if document not in {TEMPLATE_PAGE, f"{GUIDES}write-an-interceptor.md"}:  # not installed here
            self.require_valid(block)

    @pytest.mark.parametrize("file", sorted((ROOT / "examples").rglob("*.toml")), ids=lambda file: file.name)
    def test_accept_the_examples(self, file: Path) -> None:
        self.require_valid(file.read_text(encoding="utf-8"))

    def test_each_is_used_for_some_file(self) -> None:
        shown = [str(parameter.values[1]) for parameter in [*blocks("toml"), *blocks("")]]
        examples = [file.read_text(encoding="utf-8") for file in (ROOT / "examples").rglob("*.toml")]
        assert {self.kind(text) for text in shown + examples} == {*SCHEMAS, None}

    def kind(self, text: str) -> str | None:
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return None
        return next((self.OPTIONS[key] for key in found if key in self.OPTIONS), None)

    def require_valid(self, text: str) -> None:
        if kind := self.kind(text):
            schema = schema_of(kind)
            if kind == "source":  # the page shows parts of files
                schema = {**schema, "required": []}
            errors = Draft202012Validator(schema).iter_errors(tomllib.loads(text))
            assert [f"{error.json_path}: {error.message}" for error in errors] == []


class TestVersions:
    def test_the_changelog_has_this_one(self) -> None:
        release = re.escape(importlib.metadata.version("headerware"))
        assert re.search(rf"^## \[{release}\] - \d{{4}}-\d\d-\d\d$", text_of("CHANGELOG.md"), re.MULTILINE)
