"""Which chain a client gets: from code, from its own configuration, from the environment, or none."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace as Hooks
from typing import Any

import pytest

from headerware import Chain, ConfigError
from headerware.core.client_chain import Side, client_chain
from headerware.core.config import is_ours

pytestmark = pytest.mark.usefixtures("gadgets")

CLIENTS = {"bootstrap.servers": "localhost:9092", "group.id": "g"}
IN_CODE = Chain([Hooks(name="code", on_send=lambda record: record)])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADERWARE_CONFIG", raising=False)
    monkeypatch.delenv("HEADERWARE_DISABLED", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "headerware.toml"
    path.write_text('[[interceptors]]\ntype = "early"')
    return str(path)


class TestSources:
    def test_nothing_gives_an_empty_chain_and_the_same_configuration(self) -> None:
        assert client_chain(CLIENTS) == (Chain(), CLIENTS)

    def test_a_chain_in_code_is_the_one(self) -> None:
        assert client_chain(CLIENTS, IN_CODE) == (IN_CODE, CLIENTS)

    def test_own_keys_make_a_chain_and_are_taken_out(self) -> None:
        config = {**CLIENTS, "interceptors": "gadget", "interceptors.gadget.level": "5"}
        chain, rest = client_chain(config)
        assert (chain.names, rest) == (("gadget",), CLIENTS)
        assert "interceptors" in config

    def test_a_file_named_in_the_configuration(self, file: str) -> None:
        chain, rest = client_chain({**CLIENTS, "headerware.config": file})
        assert (chain.names, rest) == (("early",), CLIENTS)

    def test_a_file_named_in_the_environment(self, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", file)
        assert client_chain(CLIENTS)[0].names == ("early",)

    def test_own_keys_and_code_come_before_the_environment(
        self, file: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", file)
        assert client_chain({"interceptors": "gadget"})[0].names == ("gadget",)
        assert client_chain(CLIENTS, IN_CODE)[0] is IN_CODE

    def test_an_empty_variable_names_no_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", "")
        assert len(client_chain(CLIENTS)[0]) == 0

    def test_a_missing_file_in_the_environment_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_CONFIG", "/no/such/file.toml")
        with pytest.raises(ConfigError, match="cannot be read") as caught:
            client_chain(CLIENTS)
        assert caught.value.__notes__ == ["HEADERWARE_CONFIG names /no/such/file.toml"]


class TestConflicts:
    @pytest.mark.parametrize("key", ["interceptors", "interceptors.gadget.level", "headerware.config"])
    def test_a_chain_in_code_and_one_in_configuration(self, key: str) -> None:
        with pytest.raises(ConfigError, match="given a chain in code and") as caught:
            client_chain({**CLIENTS, key: "gadget"}, IN_CODE)
        assert key in str(caught.value)

    @pytest.mark.parametrize("chain", [[], [Hooks(on_send=lambda record: record)], "trail"])
    def test_what_is_no_chain_in_code(self, chain: Any) -> None:
        with pytest.raises(ConfigError, match=f"expected a Chain, found {type(chain).__name__}; write Chain"):
            client_chain(CLIENTS, chain)

    @pytest.mark.parametrize(
        ("key", "meant"),
        [
            ("headerware.cofig", "did you mean 'headerware.config'? "),
            ("headerware.proccessing", "did you mean 'headerware.processing'? "),
            ("headerware.zzzzzzzzzzzzz", ""),
        ],
    )
    def test_an_unknown_key_of_ours(self, key: str, meant: str) -> None:
        expected = f"unknown key; {meant}known: headerware.config"
        with pytest.raises(ConfigError, match=re.escape(expected)) as caught:
            client_chain({**CLIENTS, key: "x"})
        assert caught.value.path == key

    @pytest.mark.parametrize("chain", ["headerware.toml", Path("headerware.toml")])
    def test_a_path_in_place_of_a_chain(self, chain: Any) -> None:
        expected = r"or for a file load_chain\(path\) or the client's key headerware\.config$"
        with pytest.raises(ConfigError, match=expected):
            client_chain(CLIENTS, chain)

    def test_a_file_that_is_no_path(self) -> None:
        with pytest.raises(ConfigError, match=r"^headerware\.config: expected the path of a file, found"):
            client_chain({**CLIENTS, "headerware.config": 5})

    def test_overrides_for_the_dead_letter_producer_are_left_to_the_client(self) -> None:
        config = {**CLIENTS, "headerware.dead_letter.linger.ms": 5}
        assert client_chain(config) == (Chain(), config)

    @pytest.mark.parametrize(
        ("key", "answer"),
        [
            ("interceptors", True),
            ("interceptors.x.y", True),
            ("headerware.config", True),
            ("headerware.dead_letter.acks", False),
            ("interceptor.classes", False),
            ("bootstrap.servers", False),
            (5, False),
            (None, False),
        ],
    )
    def test_keys_are_told_apart(self, key: object, answer: bool) -> None:  # noqa: FBT001 - parametrized
        assert is_ours(key) is answer


class TestDisabled:
    @pytest.mark.parametrize("value", ["1", "true", "TRUE", "yes", "on"])
    def test_switches_every_chain_off(self, value: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", value)
        monkeypatch.setenv("HEADERWARE_CONFIG", file)
        assert client_chain(CLIENTS) == (Chain(), CLIENTS)
        assert client_chain(CLIENTS, IN_CODE) == (Chain(), CLIENTS)
        assert client_chain({**CLIENTS, "interceptors": "gadget"}) == (Chain(), CLIENTS)

    def test_passes_over_a_configuration_that_is_wrong(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        assert len(client_chain({"interceptors": "no-such", "headerware.config": "/no/such"})[0]) == 0
        assert "HEADERWARE_DISABLED is set, so this is ignored: /no/such" in caplog.text

    def test_says_what_is_off(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        client_chain({"interceptors": "gadget"})
        assert "HEADERWARE_DISABLED is set, so these are off: gadget" in caplog.text

    @pytest.mark.parametrize(
        ("value", "side", "require", "told"),
        [
            ("send", "producer", "enforce", True),
            ("1", "producer", "true", True),
            ("send", "producer", "warn", False),
            ("1", "consumer", "enforce", False),
        ],
    )
    def test_says_who_refuses_what_is_sent_meanwhile(
        self,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        value: str,
        side: Side,
        require: str,
        told: bool,  # noqa: FBT001 - parametrized
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", value)
        config = {
            "interceptors": "sign",
            "interceptors.sign.keyring": "k",
            "interceptors.sign.require": require,
        }
        client_chain(config, side=side)
        assert (
            'refuse the records that are sent now, because of require = "enforce" in sign;' in caplog.text
        ) == told

    def test_leaves_what_serializes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        config = {"interceptors": "serialize,trail", "interceptors.serialize.value": "json"}
        assert client_chain(config)[0] == Chain.from_config({**config, "interceptors": "serialize"})

    def test_says_what_consumers_get(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "1")
        client_chain({"interceptors": "gadget"}, side="producer")
        assert "as they are on the wire" not in caplog.text
        client_chain({"interceptors": "gadget"}, side="consumer")
        assert "as they are on the wire" in caplog.text
        assert "HEADERWARE_DISABLED=send" in caplog.text

    @pytest.mark.parametrize("value", ["send", " Send "])
    def test_send_switches_producers_off_alone(self, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", value)
        config = {"interceptors": "gadget"}
        assert client_chain(config, side="producer")[0].names == ()
        assert client_chain(config, side="consumer")[0].names == ("gadget",)

    def test_send_passes_over_what_is_wrong_for_producers_alone(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", "send")
        assert client_chain({"interceptors": "no-such"}, side="producer") == (Chain(), {})
        assert "this is ignored" in caplog.text
        with pytest.raises(ConfigError, match="no-such"):
            client_chain({"interceptors": "no-such"}, side="consumer")

    @pytest.mark.parametrize("value", ["sned", "2", "consume", "-"])
    @pytest.mark.parametrize("side", ["producer", "consumer"])
    def test_another_value_is_an_error(self, side: Any, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", value)
        with pytest.raises(
            ConfigError, match=f"^HEADERWARE_DISABLED: expected 1 .*, send .*, found '{value}'"
        ):
            client_chain(CLIENTS, side=side)

    @pytest.mark.parametrize("value", ["", "0", "false", "no", "off"])
    def test_is_off_otherwise(self, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HEADERWARE_DISABLED", value)
        assert client_chain({"interceptors": "gadget"})[0].names == ("gadget",)
