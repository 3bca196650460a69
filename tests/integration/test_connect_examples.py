"""The examples of Connect's transforms: what they show, on an embedded cluster and on a real broker."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from headerware.testing import KafkaBroker

pytestmark = pytest.mark.long

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
NAMES: Final = ("connect_producer", "connect_masking", "connect_routing")
DEADLINE_S: Final = 60.0
MAX_LINES: Final = 170

CHANGED: Final = """\
import runpy, sys
_, example, part, changed = sys.argv
main = runpy.run_path(example)["main"].callback
main.__globals__[part] = eval(changed, main.__globals__)
main(None)
"""

WITHOUT_CEL: Final = """\
import runpy, sys
sys.modules["cel_expr_python"] = None
runpy.run_path(sys.argv[1])["main"].callback(None)
"""


def ended(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )


def shown(folder: Path, name: str, said: str = "") -> str:
    done = ended(folder, str(EXAMPLES / f"{name}.py"))
    assert (done.returncode, done.stderr) == (0, said)
    return done.stdout


class TestProducer:
    def test_pastes_the_lines_of_the_connectors_file(self) -> None:
        lines = json.loads((EXAMPLES / "connect_airports.json").read_text(encoding="utf-8"))["config"]
        pasted = runpy.run_path(str(EXAMPLES / "connect_producer.py"))["PASTED"]
        heads = ("transforms", "predicates", "key.converter", "value.converter", "header.converter")
        assert pasted == {key: value for key, value in lines.items() if key.startswith(heads)}

    def test_shows_what_the_connector_makes_of_an_airport(self, tmp_path: Path) -> None:
        output = shown(tmp_path, "connect_producer")
        assert re.search(
            r'^  00M: {"code":"00M","name":"Thigpen","city":"Bay Springs","state":"MS",'
            r'"latitude":31\.95376472,"longitude":-89\.23450472} with state=MS, origin=geography-db$',
            output,
            re.MULTILINE,
        ), output
        assert "3,376 airports by pasted lines, and by the connector's file: the same records" in output


class TestMasking:
    def test_shows_what_is_left_and_what_leaks(self, tmp_path: Path) -> None:
        said = "MaskField: an object has none of the fields emial; it passes unmasked\n"
        output = shown(tmp_path, "connect_masking", said)
        wire, _, mistakes = output.partition("Mistakes")
        assert re.search(r'"email": "[0-9a-f]{64}", "phone": "\+\d\d \d\d \d{4} \d{4}"', wire), wire
        assert wire.count("tenant=north, privacy.masked=card.number card.cvc phone email") == 2
        assert mistakes.count("Kafka 4.3: LEAKS") == mistakes.count("strict: refused: ") == 4

    def test_keys_its_digests_by_the_environment(self, tmp_path: Path) -> None:
        example = str(EXAMPLES / "connect_masking.py")
        digests = [
            re.findall(r'"email": "([0-9a-f]{64})"', ended(tmp_path, example, PEPPER=pepper).stdout)
            for pepper in ("one", "one", "other")
        ]
        assert len(digests[0]) == 3
        assert digests[0] == digests[1] != digests[2]


class TestRouting:
    def test_shows_where_orders_go(self, tmp_path: Path) -> None:
        output = shown(tmp_path, "connect_routing")
        topics = re.split(r"^orders-\d+-", output, flags=re.MULTILINE)[1:]
        assert [(text.split()[0], text.count("\n│")) for text in topics] == [
            ("large", 2),
            ("eu", 1),
            ("world", 1),
        ]
        assert re.search(r"│ 2 +│ US .*│ high +│", topics[2])
        assert "order 5 was refused: transforms.route (ContentRouter): topic.expression reads parts" in output
        assert "dropped by the filter: [4]" in output

    def test_says_in_one_line_what_installs_the_expressions(self, tmp_path: Path) -> None:
        done = ended(tmp_path, "-c", WITHOUT_CEL, str(EXAMPLES / "connect_routing.py"))
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert re.search(r"expressions need the package cel-expr-python: .* -m pip install ", line)


@pytest.mark.parametrize("name", NAMES)
class TestEach:
    def test_is_short_enough_to_read(self, name: str) -> None:
        assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < MAX_LINES

    @pytest.mark.broker
    def test_runs_on_a_real_broker_again_and_again(
        self, name: str, kafka_broker: KafkaBroker, tmp_path: Path
    ) -> None:
        for _ in range(2):
            servers = kafka_broker.bootstrap_servers
            done = ended(tmp_path, str(EXAMPLES / f"{name}.py"), "--bootstrap-servers", servers)
            assert done.returncode == 0, done.stderr


class TestEachChecksItself:
    @pytest.mark.parametrize(
        ("name", "part", "changed", "said"),
        [
            (
                "connect_producer",
                "PASTED",
                "{**PASTED, 'transforms.origin.header': 'from'}",
                "as they were sent",
            ),
            ("connect_masking", "MISTAKES", "{'none': HIDE}", "as they were sent"),
            ("connect_routing", "EXPECTED", "{}", "where they should be"),
        ],
    )
    def test_ends_with_1_when_a_thing_is_not_as_it_should_be(
        self, name: str, part: str, changed: str, said: str, tmp_path: Path
    ) -> None:
        done = ended(tmp_path, "-c", CHANGED, str(EXAMPLES / f"{name}.py"), part, changed)
        assert done.returncode == 1
        assert re.fullmatch(rf"the \w+ (?:did not come back|are not) .*{said}.*\n", done.stderr), done.stderr
