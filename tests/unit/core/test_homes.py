"""``~`` is the user's home in every option that names a file, however it is given."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from headerware import Chain, load_chain
from headerware.cli.main import main
from headerware.dictionaries import FolderDictionaries
from headerware.interceptors import Compress, Sign
from headerware.keyring import Keyring, encode_keyring, with_new_key
from headerware.registry.registry import built_in
from headerware.registry.stores import create_store, open_store

TOML = '[[interceptors]]\ntype = "sign"\nkeyring = "~/keys.json"\nkey_id = "k"\n'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a keyring and a chain; the working folder is another one."""
    found = tmp_path / "home"
    (tmp_path / "elsewhere").mkdir()
    found.mkdir()
    monkeypatch.setenv("HOME", str(found))
    monkeypatch.chdir(tmp_path / "elsewhere")
    (found / "keys.json").write_bytes(encode_keyring(with_new_key(Keyring(), "k", "hmac-sha256")))
    (found / "keys.json").chmod(0o600)
    (found / "chain.toml").write_text(TOML)
    (tmp_path / "elsewhere" / "including.toml").write_text('include = ["~/chain.toml"]\n')
    return found


@pytest.mark.parametrize(
    "made",
    [
        lambda: Chain([Sign(keyring="~/keys.json", key_id="k")]),
        lambda: load_chain("~/chain.toml"),
        lambda: load_chain("including.toml"),
        lambda: Chain.from_config({"headerware.config": "~/chain.toml"}),
        lambda: Chain.from_config(
            {
                "interceptors": "sign",
                "interceptors.sign.keyring": "~/keys.json",
                "interceptors.sign.key_id": "k",
            }
        ),
    ],
    ids=["code", "file", "included", "named", "flat"],
)
def test_of_a_chain(made: Any, home: Path) -> None:
    chain = made()
    assert chain.interceptors[0].keyring == str(home / "keys.json")
    chain.open().close()


def test_of_what_an_option_names(home: Path) -> None:
    chain = Chain([Compress(codec="zstd", dictionaries=FolderDictionaries(path="~/dictionaries"))])
    step: Any = chain.interceptors[0]
    assert step.dictionaries.path == str(home / "dictionaries")


def test_of_a_chain_without_it_stays_the_same_object() -> None:
    sign = Sign(keyring="keys.json", key_id="k")
    assert Chain([sign]).interceptors[0] is sign


def test_of_a_registry(home: Path) -> None:
    create_store("~/ids.toml", built_in())
    assert (home / "ids.toml").exists()
    with open_store("~/ids.toml") as store:
        assert store.load() == built_in()


@pytest.mark.parametrize("argument", ["~/chain.toml"])
def test_of_an_argument(argument: str) -> None:
    done = CliRunner().invoke(main, ["check", argument])
    assert done.exit_code == 0, done.output


def test_of_an_option_with_an_equals_sign() -> None:
    done = CliRunner().invoke(main, ["keys", "list", "--keyring=~/keys.json"])
    assert (done.exit_code, "k" in done.output) == (0, True), done.output


def test_of_every_path_of_every_command(home: Path) -> None:
    def paths(command: click.Command) -> list[click.Parameter]:
        own = [each for each in command.params if isinstance(each.type, click.Path)]
        below = command.commands.values() if isinstance(command, click.Group) else ()
        return own + [each for under in below for each in paths(under)]

    found = paths(main)
    assert len(found) > 30
    for param in found:
        given = "~" if param.type.file_okay is False else "~/keys.json"  # type: ignore[attr-defined]  # of a path
        whole = os.fspath(param.type.convert(given, param, None))
        assert Path(whole).is_relative_to(home)
