"""``headerware check`` reads the files that a chain names: an error is told at its own line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from headerware import Context, load_chain
from headerware.cli import main
from headerware.core.errors import ConfigError
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

if TYPE_CHECKING:
    from pathlib import Path

ADMISSION = 'type = "admission"\npolicy = "rules.toml"\n[[interceptors]]\ntype = "sign"\nkeyring = "k.json"'
SIGN = 'type = "sign"\nkeyring = "k.json"'
ISSUER = '[[issuers]]\nissuer = "a"\njwks = "a.json"\nalgorithms = ["EdDSA"]\n'
REGISTRY = 'version = 1\nregistrar = "a"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def checked(tmp_path: Path, step: str, *options: str) -> Result:
    (tmp_path / "chain.toml").write_text(f"[[interceptors]]\n{step}\n")
    return CliRunner().invoke(main, ["check", str(tmp_path / "chain.toml"), *options])


@pytest.mark.parametrize(
    ("step", "file", "text", "place", "told"),
    [
        (
            ADMISSION,
            "rules.toml",
            'audience = "a"\nrule = []',
            "rules.toml:2:1",
            "rule: unknown key; did you",
        ),
        (ADMISSION, "rules.toml", 'audience = "a"\nrules = [', "rules.toml:2:10", "is not TOML"),
        (ADMISSION, "rules.toml", f'audience = "a"\n{ISSUER}rules = 1', "rules.toml:6:1", "issuers[0].rules"),
        (
            'type = "transforms"\nfile = "c.properties"',
            "c.properties",
            "transforms=a\ntransforms.a.type=InsertHeadr\n",
            "c.properties:2:1",
            "did you mean 'InsertHeader'?",
        ),
        (
            'type = "transforms"\nfile = "c.properties"',
            "c.properties",
            '{"name": "x",\n "config": {"transforms": "a",\n  "transforms.a.type": "InsertHeadr"}}',
            "c.properties:3:3",
            "did you mean 'InsertHeader'?",
        ),
        (
            'type = "header_ids"\nregistry = "r.toml"',
            "r.toml",
            f"{REGISTRY}blok = 1\n",
            "r.toml:3:1",
            "blok: unknown key; did you mean",
        ),
        ('type = "header_ids"\nregistry = "r.toml"', "r.toml", f"{REGISTRY}x = \n", "r.toml:3:1", "not TOML"),
        (
            'type = "serialize"\nvalue = { type = "avro", schema = "o.avsc" }',
            "o.avsc",
            '{"type":\n "recor',
            "o.avsc:2:2",
            "is not JSON",
        ),
        (
            'type = "serialize"\nvalue = { type = "confluent-avro", url = "http://x", schema = "o.avsc" }',
            "o.avsc",
            '{"type":\n "recor',
            "o.avsc:2:2",
            "is not JSON",
        ),
    ],
)
@pytest.mark.parametrize("opened", [False, True])
def test_a_bad_file_is_told_at_its_own_line_with_the_line_that_names_it(
    tmp_path: Path, step: str, file: str, text: str, place: str, told: str, *, opened: bool
) -> None:
    (tmp_path / file).write_text(text)
    edit_keyring(tmp_path / "k.json", lambda ring: with_new_key(ring, "k", "ed25519"), create=True)
    result = checked(tmp_path, step, *(["--open", "--side", "consumer"] if opened else []))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert result.stderr.startswith(f"{tmp_path / place}: error: ")
    assert told in result.stderr
    assert f"; {tmp_path / 'chain.toml'}:3:" in result.stderr
    assert " names this file\n" in result.stderr


@pytest.mark.parametrize(
    ("step", "told"),
    [
        (ADMISSION, "3:1: error: interceptors[0] (admission).policy: {}/rules.toml: cannot be read: No such"),
        (
            'type = "transforms"\nfile = "none"',
            "3:1: error: interceptors[0] (transforms).file: {}/none: cannot",
        ),
        ('type = "header_ids"\nregistry = "r.toml"', "3:1: error: {}/r.toml: there is no such file"),
        (
            'type = "serialize"\nvalue = { type = "confluent-json", url = "http://x", schema = "none" }',
            "3:54: error: interceptors[0] (serialize).value.schema: cannot read {}/none",
        ),
    ],
)
def test_a_missing_file_is_told_at_the_line_that_names_it(tmp_path: Path, step: str, told: str) -> None:
    result = checked(tmp_path, step)
    assert result.stderr.startswith(f"{tmp_path / 'chain.toml'}:{told.format(tmp_path)}")


def test_a_bad_key_set_is_told_at_the_line_of_the_policy_that_names_it(tmp_path: Path) -> None:
    rules = '[[rules]]\neffect = "allow"\ntopics = ["*"]\n'
    (tmp_path / "rules.toml").write_text(f'audience = "a"\nversion = 1\n{ISSUER}{rules}')
    for text in (None, "{}"):
        if text is not None:
            (tmp_path / "a.json").write_text(text)
        result = checked(tmp_path, ADMISSION)
        told = f"{tmp_path / 'rules.toml'}:5:1: error: issuers[0].jwks: {tmp_path / 'a.json'}: "
        assert result.stderr.startswith(told)


def test_a_policy_that_others_can_change_is_well_here_and_refused_where_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('audience = "a"\nrule = []')
    (tmp_path / "rules.toml").chmod(0o666)
    assert "rule: unknown key" in checked(tmp_path, ADMISSION, "--topic", "orders").stderr


@pytest.mark.parametrize(
    ("step", "option"),
    [
        (SIGN, "keyring"),
        (f'{SIGN}\nkeyring_root = "roots.json"', "keyring"),
        ('type = "encrypt"\nkey_id = "a"\nkey_service = { type = "file", keyring = "k.json" }', "keyring"),
        (f'type = "admission"\ncertificate = "cert.jwt"\n[[interceptors]]\n{SIGN}', "certificate"),
        ('type = "compress"\ndictionaries = { type = "folder", path = "none" }', ""),
        ('type = "schema"\nstore = { type = "folder", path = "none" }', ""),
    ],
)
def test_the_files_of_another_machine_may_be_missing_but_not_bad(
    tmp_path: Path, step: str, option: str
) -> None:
    assert checked(tmp_path, step).exit_code == 0
    for name in ("k.json", "cert.jwt", "none"):
        (tmp_path / name).write_text('{"keys": [')
    (tmp_path / "k.json").chmod(0o644)
    if "roots.json" in step:
        assert checked(tmp_path, step).exit_code == 0  # a snapshot needs its root
        (tmp_path / "roots.json").write_text('{"keys": [')
    result = checked(tmp_path, step)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"{tmp_path / 'chain.toml'}:")
    assert option in result.stderr
    assert "Traceback" not in result.output


def test_a_client_says_the_same_when_it_starts(tmp_path: Path) -> None:
    (tmp_path / "rules.toml").write_text('audience = "a"\nrule = []')
    told = checked(tmp_path, ADMISSION).stderr.replace(": error: ", ": ").strip()
    edit_keyring(tmp_path / "k.json", lambda ring: with_new_key(ring, "k", "ed25519"), create=True)
    with pytest.raises(ConfigError) as caught:
        load_chain(tmp_path / "chain.toml").open(Context(side="consumer"))
    assert str(caught.value) == told


def test_two_problems_of_one_file_are_each_on_a_line_and_the_first_says_who_names_it(tmp_path: Path) -> None:
    (tmp_path / "ids.toml").write_text(f"{REGISTRY}foo = 1\nbar = 2\n")
    result = checked(tmp_path, 'type = "header_ids"\nregistry = "ids.toml"')
    first, second = result.stderr.splitlines()
    assert first.endswith("chain.toml:3:1 names this file")
    assert "ids.toml:3:" in first
    assert "ids.toml:4:" in second


def test_a_client_of_one_side_needs_no_files_of_the_other(tmp_path: Path) -> None:
    edit_keyring(tmp_path / "k.json", lambda ring: with_new_key(ring, "k", "ed25519"), create=True)
    told = checked(tmp_path, ADMISSION, "--open", "--side", "producer").stderr
    assert "sending needs a certificate" in told
    assert "rules.toml" not in told
