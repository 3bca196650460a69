"""tests/vectors/connect/cases.jsonl: what Kafka Connect 4.3.1 answered, answered again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.vectors.connect.compare import agrees, nearly_same, same
from tests.vectors.connect.nodes import read_json
from tests.vectors.connect.operations import OPERATIONS, answer

ROOT: Final = Path(__file__).parents[2]
CASES: Final[list[dict[str, Any]]] = [
    read_json(line)
    for line in (ROOT / "tests" / "vectors" / "connect" / "cases.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
ERROR: Final = {"error": "java.lang.NullPointerException", "stage": "apply"}
TRUE: Final = True
FLOAT: Final = {"t": "float32", "v": "1.49538433E12", "bits": "53ae15ed"}


def group_of(case: dict[str, Any]) -> str:
    """Name what a case is about: its operation, or the transform."""
    return str(case["class"]).partition("$")[0] if case["op"] == "smt" else str(case["op"])


def shown(node: Any) -> str:
    return json.dumps(node, ensure_ascii=False, default=str)[:600]


class TestCases:
    def test_has_every_operation(self) -> None:
        # Headers are written within header.roundtrip, too; header.from comes in further files.
        assert {case["op"] for case in CASES} == {*OPERATIONS} - {"header.from"}
        assert len(CASES) == 1_973

    @pytest.mark.parametrize("group", sorted({group_of(case) for case in CASES}))
    def test_agrees_with_kafka(self, group: str) -> None:
        differences = [
            f"{case['id']}\n  Kafka: {shown(case['expected'])}\n  found: {shown(found)}"
            for case in CASES
            if group_of(case) == group and not agrees(case, found := answer(case))
        ]
        assert not differences, f"{len(differences)} differ\n" + "\n".join(differences)


class TestRunner:
    def run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "tests.vectors.connect", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, timeout=120, check=False)

    def answers(self, tmp_path: Path, *lines: str) -> list[Any]:
        file = tmp_path / "cases.jsonl"
        file.write_text("\n".join(lines), encoding="utf-8")
        done = self.run(str(file))
        assert done.stderr == b""
        assert done.returncode == 0
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_answers_in_order(self, tmp_path: Path) -> None:
        case = {"op": "validate", "schema": "int8", "value": {"t": "int8", "v": 5}}
        found = self.answers(tmp_path, json.dumps({"id": "b", **case}), "", json.dumps({"id": "a", **case}))
        assert found == [{"id": "b", "answer": True}, {"id": "a", "answer": True}]

    def test_survives_what_is_no_case(self, tmp_path: Path) -> None:
        found = self.answers(
            tmp_path, "{", '{"id": 1}', '{"id": 2, "op": "nope"}', "[1]", '{"id": 3, "op": "smt"}'
        )
        assert [each["answer"]["error"] for each in found] == [
            "oracle.BadJson",
            "java.lang.NullPointerException",
            "java.lang.IllegalArgumentException",
            "java.lang.NullPointerException",
            "java.lang.NullPointerException",
        ]
        assert found[-1]["answer"]["stage"] == "build"

    def test_tells_javas_null_from_a_null_value(self, tmp_path: Path) -> None:
        found = self.answers(
            tmp_path,
            '{"id": 1, "op": "parseString", "s": "null"}',
            '{"id": 2, "op": "header.to", "utf8": "null"}',
            '{"id": 3, "op": "header.to"}',
            '{"id": 4, "op": "header.roundtrip", "schema": "string", "value": "null"}',
        )
        none = {"schema": None, "value": None}
        round_trip = {"bytes": {"b64": "bnVsbA==", "utf8": "null"}, "back": None}
        assert [each["answer"] for each in found] == [None, None, none, round_trip]

    def test_writes_half_a_surrogate_pair_as_java_does(self, tmp_path: Path) -> None:
        case = '{"id": 1, "op": "project", "source": "string", "target": "string", "value": "\\ud800x😀"}'
        assert self.answers(tmp_path, case) == [{"id": 1, "answer": {"t": "string", "v": "?x😀"}}]

    def test_says_how_it_is_used(self) -> None:
        done = self.run()
        assert done.returncode == 2
        assert done.stderr.startswith(b"usage: python -m tests.vectors.connect FILE")


class TestComparison:
    def test_errors_agree_in_class_and_stage(self) -> None:
        assert same("smt", {**ERROR, "message": "m", "cause": "c"}, ERROR)
        assert not same("smt", ERROR, {**ERROR, "stage": "build"})
        assert not same("smt", ERROR, {**ERROR, "error": "java.lang.ClassCastException"})

    def test_errors_within_steps_agree_without_their_text(self) -> None:
        assert same("headers", {"steps": [{**ERROR, "message": "m"}]}, {"steps": [ERROR]})

    def test_numbers_are_no_booleans(self) -> None:
        assert not same("predicate", {"ret": True}, {"ret": 1})
        assert not same("validate", TRUE, 1)

    def test_unordered_maps_agree_in_any_order(self) -> None:
        one, other = [["a"], ["b"]], [["b"], ["a"]]
        assert same("smt", {"order": "unspecified", "v": one}, {"order": "unspecified", "v": other})
        assert not same("smt", {"t": "map", "v": one}, {"t": "map", "v": other})

    def test_digits_of_floats_count_unless_the_jdk_tells(self) -> None:
        case = {"op": "convert", "expected": FLOAT}
        found = {**FLOAT, "v": "1.4953843E12"}
        assert not agrees(case, found)
        assert agrees({**case, "jdk_dependent": True}, found)
        assert not agrees({**case, "jdk_dependent": True}, {**found, "bits": "53ae15ee"})

    def test_digits_of_floats_in_texts_may_differ_alike(self) -> None:
        expected = {"b64": "OS45OTk5OTk5OTk5OTk5OTlFMjI=", "utf8": "9.999999999999999E22"}
        assert nearly_same("header.from", expected, {"b64": "MS4wRTIz", "utf8": "1.0E23"})
        assert not nearly_same("header.from", expected, {"b64": "MS4xRTIz", "utf8": "1.1E23"})

    def test_addresses_in_memory_are_not_compared(self) -> None:
        assert agrees({"op": "headers", "expected": "[B@1", "identity_hash": True}, "[B@2")

    def test_the_version_of_java_is_not_ours(self) -> None:
        assert same("version", {"kafka": "4.3.1", "java": "17"}, {"kafka": "4.3.1", "java": None})
