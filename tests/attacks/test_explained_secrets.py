"""Passwords in the options of a chain: the commands that show a chain show none of them."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from headerware import Record, load_chain
from headerware.cli.main import main
from headerware.core.context import Context
from headerware.core.printable import without_secrets

PASSWORD: Final = "hunter2"
IN_A_STORE: Final = f"""
[[interceptors]]
type = "serialize"
[interceptors.value]
type = "avro"
[interceptors.value.store]
type = "registry"
url = "http://user:{PASSWORD}@127.0.0.1:1"
"""
IN_A_SETTING: Final = f"""
[[interceptors]]
type = "serialize"
[interceptors.value]
type = "confluent-avro"
url = "http://127.0.0.1:1"
registry = {{ "basic.auth.user.info" = "user:{PASSWORD}" }}
"""
IN_A_TABLE: Final = f"""
[[interceptors]]
type = "serialize"
[interceptors.value]
type = "confluent-avro"
url = "http://127.0.0.1:1"
registry = {{ bearer = {{ auth = {{ token = "{PASSWORD}" }} }} }}
"""
IN_A_SERIALIZER: Final = f"""
[[interceptors]]
type = "serialize"
[interceptors.value]
type = "confluent-avro"
url = "http://127.0.0.1:1"
settings = {{ "rule.password" = "{PASSWORD}" }}
"""
CHAINS: Final = pytest.mark.parametrize(
    "text",
    [IN_A_STORE, IN_A_SETTING, IN_A_TABLE, IN_A_SERIALIZER],
    ids=["store", "setting", "table", "serializer"],
)


@CHAINS
class TestPasswords:
    @pytest.mark.parametrize(
        "command",
        [
            ["explain"],
            ["explain", "--json"],
            ["check"],
            ["check", "--json", "--open"],
        ],
        ids=" ".join,
    )
    def test_are_not_printed_by_a_command(self, tmp_path: Path, text: str, command: list[str]) -> None:
        config = tmp_path / "chain.toml"
        config.write_text(text)
        found = CliRunner(env={"COLUMNS": "400"}).invoke(main, [*command, str(config)])
        assert PASSWORD not in found.output
        assert "[hidden]" in found.output or command[0] == "check", found.output

    def test_are_not_in_what_is_printed_of_the_chain(self, tmp_path: Path, text: str) -> None:
        config = tmp_path / "chain.toml"
        config.write_text(text)
        chain = load_chain(config)
        assert PASSWORD not in f"{chain!r} {[*chain]!r}"

    def test_are_not_in_the_error_of_an_unreachable_registry(self, tmp_path: Path, text: str) -> None:
        config = tmp_path / "chain.toml"
        config.write_text(text)
        with pytest.raises(Exception, match=r".") as caught:  # noqa: PT012 - some chains fail when they are opened
            session = load_chain(config).open(Context(side="consumer"))
            session.consume([Record("orders", b"\x00\x00\x00\x00\x01abc", b"key")])
        assert PASSWORD not in "".join(traceback.format_exception(caught.value))


class TestWithoutSecrets:
    @pytest.mark.parametrize(
        ("written", "shown"),
        [
            ("http://user:hunter2@host:81/path", "http://[hidden]@host:81/path"),
            ("https://hunter2@host", "https://[hidden]@host"),
            ("http://a:hunter2@one,http://b:hunter2@two", "http://[hidden]@one,http://[hidden]@two"),
            ("postgresql://u:hunter2/hunter2@hunter2@host/shop", "postgresql://[hidden]@host/shop"),
            ("${env:URL:-http://user:hunter2@host}", "${env:URL:-http://[hidden]@host}"),
            ("http://${env:USER}:hunter2@host", "http://[hidden]@host"),
            ("http://host/?a=1&password=hunter2&b=2", "http://host/?a=1&password=[hidden]&b=2"),
            ("host=one password=hunter2 user=me", "host=one password=[hidden] user=me"),
            ("a.b=1\nsasl.password = hunter2 x\nc=2", "a.b=1\nsasl.password = [hidden]\nc=2"),
            ({"sasl.jaas.config": 'P required password="hunter2";'}, {"sasl.jaas.config": "[hidden]"}),
            ({"ssl.key.pem": "hunter2"}, {"ssl.key.pem": "[hidden]"}),
            ({"headers": {"Authorization": "hunter2"}}, {"headers": {"Authorization": "[hidden]"}}),
            ({"passwords": ["hunter2", {"a": "hunter2"}]}, {"passwords": ["[hidden]", {"a": "[hidden]"}]}),
            ({"aws_secret_access_key": "hunter2"}, {"aws_secret_access_key": "[hidden]"}),
            ({"token": "${env:TOKEN:-hunter2}"}, {"token": "[hidden]"}),
            ({"pwd": 1234}, {"pwd": "[hidden]"}),
        ],
    )
    def test_hides(self, written: Any, shown: Any) -> None:
        assert without_secrets(written) == shown

    @pytest.mark.parametrize(
        "written",
        [
            "s3://bucket/a@b",
            "kafka://host:9092/orders",
            "http://user:${env:PASSWORD}@host",
            "http://${env:USER}:${env:PASSWORD}@host",
            "http://host/?password=${env:PASSWORD}",
            {"basic.auth.user.info": "${env:USER}:${env:PASSWORD}"},
            {"token_file": "/run/token", "ssl.key.location": "client.key", "aws_access_key_id": "me"},
            {"type": "vault", "keyring": "keys.json", "key_id": "orders", "token": None},
            'record.headers["token"] == "a"',
        ],
    )
    def test_shows_what_is_no_secret(self, written: Any) -> None:
        assert without_secrets(written) == written

    def test_hides_an_option_with_a_secret_name(self) -> None:
        assert without_secrets("hunter2", "proxy_password") == "[hidden]"
