"""The examples of serdes and header ids: what they show, on an embedded cluster and on a real broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from headerware.testing import KafkaBroker

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
NAMES: Final = ("avro_schema_in_headers", "polyglot_topic", "header_registry", "cloudevents")
DEADLINE_S: Final = 60.0
MAX_LINES: Final = 150


WITHOUT_THE_SDK: Final = """\
import runpy, sys
sys.modules["cloudevents"] = None
runpy.run_path(sys.argv.pop(), run_name="__main__")
"""

CHANGED: Final = """\
import runpy, sys
_, example, part, changed = sys.argv
main = runpy.run_path(example)["main"].callback
main.__globals__[part] = eval(changed)
main(None)
"""


def completed(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ended(folder, str(EXAMPLES / f"{name}.py"), *arguments)


def ended(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


@pytest.fixture
def shown(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that runs an example on an embedded cluster, and gives what it prints."""

    def run(name: str) -> str:
        done = completed(tmp_path, name)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return run


@pytest.fixture(scope="module")
def polyglot(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run that example once, and give what it prints."""
    done = completed(tmp_path_factory.mktemp("polyglot"), "polyglot_topic")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


class TestAvroSchemaInHeaders:
    def test_shows_bare_payloads_and_fingerprints(self, shown: Callable[[str], str]) -> None:
        found = re.findall(
            r"^  ([0-9a-f]+) +as application/avro-binary, hw.schema value:sha256:([0-9a-f]{64})$",
            shown("avro_schema_in_headers"),
            re.MULTILINE,
        )
        payloads, prints = zip(*found, strict=True)
        assert payloads == ("020403e7", "040403e706555344", "060403e7")
        assert prints[0] == prints[2] != prints[1]

    def test_goes_on_after_what_it_cannot_read(self, shown: Callable[[str], str]) -> None:
        seen = shown("avro_schema_in_headers").partition("What the application sees")[2].splitlines()[1:]
        patterns = [
            "1,.*EUR",
            "2,.*USD",
            "3,.*EUR",
            "@3: no file in",
            "@4: the payload is truncated",
            "1,.*EUR",
        ]
        assert len(seen) == len(patterns)
        assert all(re.search(pattern, line) for pattern, line in zip(patterns, seen, strict=True))


class TestPolyglotTopic:
    @pytest.mark.parametrize(
        ("content_type", "payload", "value"),
        [
            ("application/avro-binary", "0000000000803540", "{'celsius': 21.5}"),
            ("application/vnd.example.reading+json", b'{"celsius":21.5}'.hex(), "{'celsius': 21.5}"),
            ("application/msgpack", "81a763656c73697573cb4035800000000000", "{'celsius': 21.5}"),
            ("application/cbor", "a16763656c73697573fb4035800000000000", "{'celsius': 21.5}"),
            ("application/protobuf;", "085a", "seconds: 90"),
            ("text/plain; charset=iso-8859-1", "32312c3520b043", "'21,5 °C'"),
            ("application/octet-stream", "1505", r"b'\x15\x05'"),
            ("(none)", b"no content type".hex(), "b'no content type'"),
        ],
    )
    def test_reads_each_format(self, content_type: str, payload: str, value: str, polyglot: str) -> None:
        rows = [line.strip("│").split("│") for line in polyglot.splitlines() if line.startswith("│")]
        assert [content_type, payload, value] in [[cell.strip() for cell in row] for row in rows]

    def test_puts_unknown_types_aside(self, polyglot: str) -> None:
        letter = " ".join(polyglot.split()).partition("dead letter 010203, and its reason in a header: ")[2]
        assert "there is no serde for its content type; there are: application/avro-binary, " in letter


class TestHeaderRegistry:
    def test_shows_names_as_ids_and_ids_as_names(self, shown: Callable[[str], str]) -> None:
        output = shown("header_registry")
        assert "refused: 0.1.0.5: the id lies in 0.1.0.0/16, which is shop's, not billing's" in output
        assert re.search(r"^  packed +\d+ bytes  'hw.ids'$", output, re.MULTILINE)
        assert output.count("0.1.0.5 = -10%") == output.count("shop.coupon = -10%") == 2

    def test_leaves_nothing_behind(self, tmp_path: Path) -> None:
        places = {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
        assert ended(tmp_path, str(EXAMPLES / "header_registry.py"), **places).returncode == 0
        assert list(tmp_path.iterdir()) == []


class TestCloudEvents:
    def test_understands_the_sdk_and_is_understood(self, shown: Callable[[str], str]) -> None:
        output = shown("cloudevents")
        assert "The SDK sees the same event in 4 of 4 messages" in output
        assert output.count("com.example.order.placed 1042 at 2026-01-31 12:00:00+00:00") == 4

    def test_runs_without_the_sdk(self, tmp_path: Path) -> None:
        done = ended(tmp_path, "-c", WITHOUT_THE_SDK, str(EXAMPLES / "cloudevents.py"))
        assert (done.returncode, done.stderr) == (0, "")
        assert "the SDK is not installed" in done.stdout


@pytest.mark.parametrize("name", NAMES)
class TestEach:
    def test_is_short_enough_to_read(self, name: str) -> None:
        assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < MAX_LINES

    @pytest.mark.broker
    def test_runs_on_a_real_broker_again_and_again(
        self, name: str, kafka_broker: KafkaBroker, tmp_path: Path
    ) -> None:
        for _ in range(2):
            done = completed(tmp_path, name, "--bootstrap-servers", kafka_broker.bootstrap_servers)
            assert done.returncode == 0, done.stderr


class TestEachChecksItself:
    @pytest.mark.parametrize(
        ("name", "part", "changed"),
        [
            ("avro_schema_in_headers", "BARE", "b'?'"),
            ("polyglot_topic", "samples", "lambda: iter([(b'another', {})])"),
            ("header_registry", "sizes", "lambda *_: False"),
            ("cloudevents", "sdk_reads", "lambda _: False"),
        ],
    )
    def test_ends_with_1_when_a_thing_is_not_as_it_should_be(
        self, name: str, part: str, changed: str, tmp_path: Path
    ) -> None:
        done = ended(tmp_path, "-c", CHANGED, str(EXAMPLES / f"{name}.py"), part, changed)
        assert done.returncode == 1
        assert re.fullmatch(r"the \w+ did not come back as they were sent\n", done.stderr), done.stderr
