"""Passwords of a configuration are in nothing that is printed of it."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from headerware import Chain, ConfigError
from headerware.cli.main import main
from headerware.connect.pipeline import Pipeline
from headerware.interceptors.transforms import Transforms

PASSWORD: Final = "hunter2"
LINES: Final = {
    "transforms": "hash",
    "transforms.hash.type": "Hash$Value",
    "transforms.hash.function": "sha256",
    "transforms.hash.secret": PASSWORD,
}
TEXT: Final = "\n".join(f"{key}={value}" for key, value in LINES.items())


@pytest.mark.parametrize("config", [LINES, TEXT], ids=["mapping", "text"])
class TestPasswords:
    def test_are_not_in_what_is_printed_of_the_interceptor(self, config: Any) -> None:
        step = Transforms(config=config)
        for shown in (repr(step), str(step), repr(Chain([step])), repr(step.__rich_repr__()), f"{[step]}"):
            assert PASSWORD not in shown
        assert "mode='strict'" in repr(step)

    def test_are_not_in_the_options_of_the_transform(self, config: Any) -> None:
        del config
        for stage in Pipeline.from_config(LINES).stages:
            assert PASSWORD not in str(vars(stage.transform))

    def test_are_not_explained(self, tmp_path: Path, config: Any) -> None:
        path = tmp_path / "chain.toml"
        path.write_text(f"[[interceptors]]\ntype = 'transforms'\nconfig = {_toml(config)}\n")
        for options in ([], ["--json"]):
            found = CliRunner(env={"COLUMNS": "400"}).invoke(main, ["explain", str(path), *options])
            assert found.exit_code == 0, found.output
            assert PASSWORD not in found.output
            assert "sha256" in found.output


def _toml(config: Any) -> str:
    if isinstance(config, str):
        return json.dumps(config)
    return f"{{ {', '.join(f'{json.dumps(key)} = {json.dumps(value)}' for key, value in config.items())} }}"


class TestRefusals:
    @pytest.mark.parametrize(
        "keys",
        [
            {"secret": [PASSWORD]},
            {"secret": PASSWORD, "salt": PASSWORD},
            {"secret": f"{PASSWORD}\ud800"},
            {"secret": PASSWORD, "function": "md5"},
            {"secert": PASSWORD},
            {"secret": PASSWORD, "encoding": PASSWORD},
        ],
    )
    def test_quote_no_password(self, keys: dict[str, Any]) -> None:
        lines: dict[str, Any] = {**LINES, **{f"transforms.hash.{key}": value for key, value in keys.items()}}
        if "secret" not in keys:
            del lines["transforms.hash.secret"]
        with pytest.raises(ConfigError) as refusal:
            Transforms(config=lines)
        words = "".join(traceback.format_exception_only(refusal.value))
        cause = refusal.value.__cause__
        words += "" if cause is None else "".join(traceback.format_exception_only(cause))
        assert PASSWORD not in words
