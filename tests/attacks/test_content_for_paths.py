"""The content of a file, often a secret, where the file's path belongs: refused, and never shown.

A Kubernetes secret in an environment variable is the usual way: ``keyring = "${env:KEYRING}"``.
"""

from __future__ import annotations

import os
import re
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from headerware import Chain, Consumer, Producer, instrument, load_chain
from headerware.cli import main
from headerware.core.errors import ConfigError, HeaderwareError, KeyringError
from headerware.core.plain_files import is_content, read_plain, require_path
from headerware.interceptors import Admission, Encrypt, PolicyFile, Serialize, Sign, read_policy
from headerware.keyring import KeyringFile, read_keyring, with_new_key
from headerware.keyring.services import FileKeys
from headerware.keyring.writing import edit_keyring
from headerware.registry.stores.locations import open_store
from headerware.serdes import ConfluentAvro, ConfluentJson
from headerware.sources.toml_files import read_source_file, source_files

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSED = "expected a path, found the content of a file"
CHAIN = "[[interceptors]]\ntype = 'sign'\nkeyring = '${env:KEYRING}'\nkey_id = 'shop'\n"
PROPERTIES = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    edit_keyring("keys.json", lambda keyring: with_new_key(keyring, "shop", "ed25519"), create=True)
    edit_keyring("keys.json", lambda keyring: with_new_key(keyring, "pii", "aes-256"))
    return (tmp_path / "keys.json").read_text()


def test_a_path_of_windows_with_an_escape_is_told_as_such() -> None:
    with pytest.raises(ConfigError, match="a backslash begins an escape: write / or two backslashes"):
        require_path("C:\temp\new.json")


def assert_hidden(text: str, content: str) -> None:
    secrets = re.findall(r'"(?:secret|private)": *"([^"]+)"', content)
    assert secrets
    assert not any(secret[:12] in text for secret in secrets)


def refused(content: str, call: Callable[[], Any]) -> str:
    with pytest.raises(HeaderwareError) as caught:
        call()
    shown = "".join(traceback.format_exception(caught.value))
    assert_hidden(shown, content)
    error: BaseException | None = caught.value
    while error is not None:
        assert_hidden(repr(error) + repr(vars(error)), content)
        error = error.__cause__ or error.__context__
    assert REFUSED in str(caught.value)
    return str(caught.value)


FORMS: dict[str, Callable[[str], str]] = {
    "with lines": lambda text: text,
    "in one line": lambda text: "".join(text.split()),
    "in one line after a space": lambda text: " " + "".join(text.split()),
    "in a list": lambda text: f"[{''.join(text.split())}]",
    "PEM": lambda text: f"-----BEGIN PRIVATE KEY-----{''.join(text.split())}",
    "without a beginning": lambda text: "".join(text.split()).lstrip("{") * 20,
}


@pytest.fixture(params=FORMS)
def given(request: pytest.FixtureRequest, content: str) -> str:
    return FORMS[request.param](content)


class TestOptionsFromConfiguration:
    def test_names_the_line_of_a_chains_file(self, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
        Path("chain.toml").write_text(CHAIN)
        monkeypatch.setenv("KEYRING", given)

        told = refused(given, lambda: load_chain("chain.toml"))

        assert "chain.toml:3:1" in told

    def test_names_the_key_of_a_client(self, given: str) -> None:
        step = {
            "interceptors": "sign",
            "interceptors.sign.keyring": given,
            "interceptors.sign.key_id": "shop",
        }

        client: Callable[[dict[str, Any]], Any]
        for client in (Producer, Consumer):
            told = refused(given, partial(client, {**PROPERTIES, **step}))
            assert told.startswith("interceptors.sign.keyring: ")

    @pytest.mark.parametrize(
        "step",
        [
            "type = 'admission'\ncertificate = '${env:KEYRING}'",
            "type = 'admission'\npolicy = '${env:KEYRING}'",
            "type = 'encrypt'\nkey_id = 'pii'\nkey_service = { type = 'file', keyring = '${env:KEYRING}' }",
            (
                "type = 'encrypt'\nkey_id = 'pii'\n"
                "key_service = { type = 'vault', url = 'https://v', token_file = '${env:KEYRING}' }"
            ),
            "type = 'sign'\nkeyring = 'keys.json'\nkeyring_root = '${env:KEYRING}'",
            "type = 'transforms'\nfile = '${env:KEYRING}'",
            "type = 'header_ids'\nregistry = '${env:KEYRING}'",
            "type = 'dedup'\nstore = '${env:KEYRING}'",
            "type = 'compress'\ndictionaries = { type = 'folder', path = '${env:KEYRING}' }",
        ],
    )
    def test_names_the_option_of_each_kind(
        self, step: str, given: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("chain.toml").write_text(f"[[interceptors]]\n{step}\n")
        monkeypatch.setenv("KEYRING", given)

        assert "chain.toml:" in refused(given, lambda: load_chain("chain.toml"))

    def test_refuses_an_included_file(self, given: str) -> None:
        Path("chain.toml").write_text(f"include = ['''{given}''']\n")

        refused(given, lambda: load_chain("chain.toml"))

    @pytest.mark.parametrize(
        "token", ["hvs.CAESIJ" + "x" * 85, "hvs." + "x" * 24, "s." + "x" * 24, "hvb." + "-_" * 70 + ".ns1"]
    )
    def test_refuses_a_token_in_place_of_its_file(
        self, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        service = "{ type = 'vault', url = 'https://v', token_file = '${env:TOKEN}' }"
        (chain := tmp_path / "chain.toml").write_text(
            f"[[interceptors]]\ntype = 'encrypt'\nkey_id = 'pii'\nkey_service = {service}\n"
        )
        monkeypatch.setenv("TOKEN", token)

        with pytest.raises(
            HeaderwareError, match="expected a path, found a token; give it by token"
        ) as caught:
            load_chain(chain)
        assert token not in "".join(traceback.format_exception(caught.value))


class TestOptionsFromCode:
    def test_names_the_option_of_a_step(self, given: str) -> None:
        told = refused(given, lambda: Chain([Sign(keyring=given, key_id="shop")]))

        assert told.startswith("sign.keyring: ")

    def test_names_the_option_of_a_key_service(self, given: str) -> None:
        told = refused(given, lambda: Chain([Encrypt(key_id="pii", key_service=FileKeys(keyring=given))]))

        assert told.startswith("encrypt.key_service.keyring: ")

    @pytest.mark.parametrize(
        "call",
        [
            read_keyring,
            KeyringFile,
            lambda path: read_keyring("keys.json", root=path),
            lambda path: edit_keyring(path, lambda keyring: keyring),
            read_policy,
            PolicyFile,
            load_chain,
            instrument,
            open_store,
            lambda path: read_source_file(path, {}),
            source_files,
            lambda path: read_plain(path, 1_000),
            lambda path: Chain([Admission(certificate=path)]),
            lambda path: Producer({**PROPERTIES, "headerware.config": path}),
        ],
    )
    def test_is_refused_wherever_a_file_is_read(self, given: str, call: Callable[[str], Any]) -> None:
        refused(given, lambda: call(given))


class TestEnvironment:
    def test_clients_name_the_variable(self, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", given)

        client: Callable[[dict[str, Any]], Any]
        for client in (Producer, Consumer):
            assert "HEADERWARE_CONFIG" in refused(given, partial(client, PROPERTIES))

    @pytest.mark.parametrize(
        "command",
        [
            ["check"],
            ["run", "true"],
            ["send", "orders", "-b", "127.0.0.1:1"],
            ["tail", "orders", "-b", "127.0.0.1:1"],
            ["doctor"],
            ["verify", "orders", "-b", "127.0.0.1:1"],
        ],
    )
    def test_commands_name_the_variable(
        self, command: list[str], given: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", given)

        result = CliRunner().invoke(main, command)

        assert result.exit_code
        assert REFUSED in result.output
        assert "HEADERWARE_CONFIG" in result.output
        assert_hidden(result.output, given)

    def test_a_command_about_another_file_does_not_show_it(
        self, given: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("bad.toml").write_text("interceptors = 1")
        monkeypatch.setenv("HEADERWARE_CONFIG", given)

        result = CliRunner().invoke(main, ["check", "bad.toml"])

        assert result.exit_code == 1
        assert "bad.toml" in result.output
        assert_hidden(result.output, given)

    @pytest.mark.parametrize(
        "command",
        [
            ["keys", "list"],
            ["keys", "list", "--keyring"],
            ["check", "--"],
            ["check", "--open", "--"],
            ["doctor", "-c"],
        ],
    )
    def test_paths_of_commands(self, command: list[str], given: str, monkeypatch: pytest.MonkeyPatch) -> None:
        in_environment = command == ["keys", "list"]
        monkeypatch.setenv("HEADERWARE_KEYRING", given if in_environment else "keys.json")

        result = CliRunner().invoke(main, command if in_environment else [*command, given])

        assert result.exit_code == 2
        assert REFUSED in result.output
        assert_hidden(result.output, given)

    @pytest.mark.parametrize("command", [["check"], ["check", "--open"], ["doctor", "-c"]])
    def test_chains_that_name_the_content(
        self, command: list[str], given: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Path("chain.toml").write_text(CHAIN)
        monkeypatch.setenv("KEYRING", given)

        result = CliRunner().invoke(main, [*command, "chain.toml"])

        assert result.exit_code
        assert REFUSED in result.output
        assert_hidden(result.output, given)


class TestWhatIsNoContent:
    @pytest.mark.parametrize(
        "path",
        ["keys.json", "~/keys.json", "a folder/of {braces}.json", "/" + "/".join(["a" * 200] * 15), ""],
    )
    def test_is_a_path(self, path: str) -> None:
        assert not is_content(path)

    @pytest.mark.parametrize("serde", [ConfluentAvro, ConfluentJson])
    def test_a_schema_may_be_text(self, serde: Any) -> None:
        schema = '{"type": "object"}'

        (step,) = Chain([Serialize(value=serde(url="http://127.0.0.1:1", schema=schema))])

        assert isinstance(step, Serialize)
        assert step.value.schema == schema

    def test_bytes_of_a_name_that_is_no_utf_8_are_counted(self) -> None:
        assert not is_content(os.fsdecode(b"\xff" * 255))
        assert is_content(os.fsdecode(b"\xff" * 256))


@pytest.mark.parametrize("read", [load_chain, read_keyring])
def test_a_path_with_a_zero_byte_cannot_be_read(read: Any) -> None:
    with pytest.raises(HeaderwareError, match="cannot be read"):
        read("chain\0.toml")


def test_a_keyring_has_the_error_of_keyrings(content: str) -> None:
    with pytest.raises(KeyringError, match="expected a path, found the content of a file"):
        read_keyring(content)
