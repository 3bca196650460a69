"""``headerware schema``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from headerware.cli.main import main
from headerware.cli.schema import SCHEMAS


def run(*args: str) -> Any:
    return CliRunner().invoke(main, ["schema", *args])


class TestSchema:
    @pytest.mark.parametrize("kind", SCHEMAS)
    def test_prints_a_json_schema(self, kind: str) -> None:
        result = run(kind)
        assert result.exit_code == 0
        schema = json.loads(result.stdout)
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        assert schema["description"]

    @pytest.mark.parametrize("kind", SCHEMAS)
    def test_documents_each_property(self, kind: str) -> None:
        schema = json.loads(run(kind).stdout)
        tables = {"the file": schema, **{k: v for k, v in schema["$defs"].items() if "properties" in v}}
        missing = [
            f"{name}.{option}"
            for name, table in tables.items()
            for option, found in table["properties"].items()
            if "description" not in found
            and not (option == "type" and name.startswith(("table_", "interceptor_")))
        ]
        assert missing == []

    @pytest.mark.parametrize("kind", SCHEMAS)
    def test_has_patterns_that_all_validators_know(self, kind: str) -> None:
        patterns = set(re.findall(r'"pattern": "((?:[^"\\\\]|\\\\.)*)"', run(kind).stdout))
        assert not [each for each in patterns if re.search(r"\\[AZbz]|\(\?[^:]", each)]

    def test_writes_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "chain.json"
        assert run("chain", "--output", str(file)).stdout == ""
        assert json.loads(file.read_text(encoding="utf-8")) == json.loads(run("chain").stdout)

    def test_prints_the_schema_as_the_answer_with_json(self) -> None:
        answer = json.loads(run("rules", "--json").stdout)
        assert answer == {"ok": True, "result": json.loads(run("rules").stdout), "error": None}

    def test_says_which_file_it_wrote_with_json(self, tmp_path: Path) -> None:
        file = str(tmp_path / "rules.json")
        assert json.loads(run("rules", "--output", file, "--json").stdout)["result"] == {"output": file}

    def test_refuses_an_unknown_kind(self) -> None:
        assert run("keyring").exit_code == 2
