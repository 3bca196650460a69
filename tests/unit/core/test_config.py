"""The flat form: aliases and options as text among a client's own keys."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest

from headerware import Chain, ConfigError, PluginError, Record

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("gadgets")


def only(config: dict[str, Any]) -> Any:
    (interceptor,) = Chain.from_config(config)
    return interceptor


class TestAliases:
    def test_stand_for_the_type_of_their_name(self) -> None:
        assert only({"interceptors": "gadget"}).type == "gadget"

    def test_may_be_of_another_type_and_give_the_name(self) -> None:
        interceptor = only({"interceptors": "mine", "interceptors.mine.type": "gadget"})
        assert (interceptor.type, interceptor.name) == ("gadget", "mine")

    @pytest.mark.parametrize("aliases", ["b,a", " b , a ,", ["b", "a"], ("b", "a")])
    def test_are_in_the_order_of_sending(self, aliases: Any) -> None:
        chain = Chain.from_config(
            {
                "interceptors.a.type": "gadget",
                "interceptors": aliases,
                "interceptors.b.type": "gadget",
            }
        )
        assert chain.names == ("b", "a")

    def test_of_one_type_work_on_topics_of_their_own(self) -> None:
        chain = Chain.from_config(
            {
                "interceptors": "eu,us",
                "interceptors.eu.type": "gadget",
                "interceptors.eu.topics": "*.eu",
                "interceptors.us.type": "gadget",
                "interceptors.us.topics": "*.us, !internal.*",
            }
        )
        sent = chain.open().send([Record("orders.eu"), Record("orders.us"), Record("internal.us")])
        assert [record.headers.all("gadget") for record in sent] == [(b"eu",), (b"us",), ()]

    @pytest.mark.parametrize(
        "config", [{}, {"interceptors": ""}, {"interceptors": []}, {"interceptors": " , "}]
    )
    def test_may_be_none_at_all(self, config: dict[str, Any]) -> None:
        assert len(Chain.from_config(config)) == 0

    def test_are_unique(self) -> None:
        with pytest.raises(
            ConfigError,
            match=r"interceptors: 'gadget' is listed twice; .* interceptors\.gadget-2\.type = gadget",
        ):
            Chain.from_config({"interceptors": "gadget,early,gadget"})

    @pytest.mark.parametrize("aliases", [5, None, True, [1], {"gadget": {}}, object()])
    def test_of_a_wrong_type_are_refused(self, aliases: Any) -> None:
        with pytest.raises(ConfigError, match="interceptors: expected aliases"):
            Chain.from_config({"interceptors": aliases})


class TestConversion:
    @pytest.mark.parametrize(
        ("option", "text", "value"),
        [
            ("level", "7", 7),
            ("ratio", "0.25", 0.25),
            ("ratio", "1", 1.0),
            ("strict", "true", True),
            ("strict", "0", False),
            ("mode", "small", "small"),
            ("names", "a, b,,c", ("a", "b", "c")),
            ("names", "", ()),
            ("names", "one", ("one",)),
            ("accept", "a,b", ("a", "b")),
            ("limit", "12", 12),
            ("limit", "null", None),
            ("token", "12", "12"),
            ("token", "true", "true"),
            ("token", "", ""),
            ("topics", "orders.*,!orders.eu", ("orders.*", "!orders.eu")),
            ("on_error", "dead_letter", "dead_letter"),
            ("name", "other", "other"),
        ],
    )
    def test_is_loose_for_text(self, option: str, text: str, value: object) -> None:
        found = getattr(only({"interceptors": "gadget", f"interceptors.gadget.{option}": text}), option)
        assert found == value
        assert type(found) is type(value)

    @pytest.mark.parametrize(
        ("option", "value"),
        [("level", 7), ("strict", True), ("names", ["a"]), ("names", ("a", "b")), ("limit", None)],
    )
    def test_takes_right_types_as_they_are(self, option: str, value: Any) -> None:
        found = getattr(only({"interceptors": "gadget", f"interceptors.gadget.{option}": value}), option)
        assert found == (tuple(value) if isinstance(value, list) else value)

    @pytest.mark.parametrize(
        ("option", "value", "told"),
        [
            ("level", "seven", "expected a whole number, found text"),
            ("level", "10", "of at most 9"),
            ("level", 7.5, "expected a whole number"),
            ("strict", "maybe", "expected true or false"),
            ("strict", 1, "expected true or false, found a whole number"),
            ("token", 5, "expected text, found a whole number"),
            ("mode", "hunter2", "expected one of 'fast', 'small'"),
            ("on_error", "hunter2", "expected one of 'raise', 'skip', 'drop', 'dead_letter'"),
            ("token", "wrong", "expected another token"),
        ],
    )
    def test_that_fails_names_the_full_path_and_not_the_value(
        self, option: str, value: Any, told: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            Chain.from_config({"interceptors": "gadget", f"interceptors.gadget.{option}": value})
        assert str(caught.value).startswith(f"interceptors.gadget.{option}: ")
        assert told in str(caught.value)
        assert "hunter2" not in str(caught.value)
        assert caught.value.path == f"interceptors.gadget.{option}"

    @pytest.mark.parametrize(
        ("option", "value", "told"),
        [
            ("mode", "fsat", "expected one of 'fast', 'small', found 'fsat'; did you mean 'fast'?"),
            ("level", 10, "expected a whole number of at most 9, found 10"),
        ],
    )
    def test_names_a_choice_that_is_nearly_right_and_a_number(
        self, option: str, value: Any, told: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            Chain.from_config({"interceptors": "gadget", f"interceptors.gadget.{option}": value})
        assert caught.value.message == told

    def test_of_an_item_of_a_list_names_its_place(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Chain.from_config({"interceptors": "gadget", "interceptors.gadget.names": ["a", 5]})
        assert caught.value.path == "interceptors.gadget.names[1]"


class TestMistakes:
    def refused(self, config: dict[Any, Any]) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            Chain.from_config(config)
        return caught.value

    def test_an_unknown_option_gets_the_nearest_one_and_the_full_path(self) -> None:
        error = self.refused({"interceptors": "gadget", "interceptors.gadget.levle": "5"})
        assert error.path == "interceptors.gadget.levle"
        assert "'gadget' has no such option; did you mean 'level'? it has: accept, cache" in str(error)

    def test_an_option_of_an_earlier_version_says_what_to_do_now(self) -> None:
        error = self.refused({"interceptors": "slice", "interceptors.slice.stream_above_bytes": "1000000"})
        assert error.path == "interceptors.slice.stream_above_bytes"
        assert "'slice' no longer has this option: slice keeps messages in memory; claim_check" in str(error)

    def test_an_option_without_a_default_is_asked_for_by_its_path(self) -> None:
        error = self.refused({"interceptors": "sign"})
        assert str(error) == (
            "interceptors.sign.keyring: is missing, and has no default; an example: headerware docs sign"
        )
        nested = {"interceptors": "serialize", "interceptors.serialize.value": "protobuf"}
        assert self.refused(nested).path == "interceptors.serialize.value.message"

    def test_an_option_of_a_plain_option_is_refused(self) -> None:
        error = self.refused({"interceptors": "gadget", "interceptors.gadget.level.x": "5"})
        assert error.path == "interceptors.gadget.level"

    @pytest.mark.parametrize("word", ["role", "stage", "place", "decodes"])
    def test_what_a_class_says_of_itself_is_no_option(self, word: str) -> None:
        assert "no such option" in str(
            self.refused({"interceptors": "gadget", f"interceptors.gadget.{word}": "x"})
        )

    def test_options_of_an_alias_that_is_not_listed_get_the_nearest_one(self) -> None:
        error = self.refused({"interceptors": "gadget", "interceptors.gadgte.level": "5"})
        assert str(error) == (
            "interceptors.gadgte.level: 'interceptors' does not list the alias 'gadgte'; did you mean "
            "'gadget'? listed: gadget"
        )

    def test_options_without_any_alias_say_so(self) -> None:
        error = self.refused({"interceptors.gadget.level": "5"})
        assert str(error).endswith('does not list the alias \'gadget\'; write "interceptors": "gadget"')

    @pytest.mark.parametrize("key", ["interceptors.", "interceptors.gadget", "interceptors.gadget."])
    def test_a_key_that_names_no_option(self, key: str) -> None:
        assert str(self.refused({"interceptors": "gadget", key: "5"})).startswith(
            f"{key}: expected interceptors.<alias>.<option>"
        )

    @pytest.mark.parametrize(
        "key", ["bootstrap.servers", "Interceptors", "interceptor", "headerware.confg", 5]
    )
    def test_a_key_that_is_not_a_chains(self, key: Any) -> None:
        assert "unknown key; a chain's configuration has" in str(self.refused({key: "x"}))

    def test_an_unknown_type_names_the_alias(self) -> None:
        error = self.refused({"interceptors": "mine", "interceptors.mine.type": "gadgte"})
        assert isinstance(error, PluginError)
        assert str(error).startswith(
            "interceptors.mine: there is no interceptor type 'gadgte'; did you mean 'gadget'"
        )

    def test_a_type_that_is_no_text(self) -> None:
        assert self.refused({"interceptors": "x", "interceptors.x.type": 5}).path == "interceptors.x.type"


class TestEnvironment:
    def test_is_put_into_text_and_converted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LEVEL", "7")
        assert only({"interceptors": "gadget", "interceptors.gadget.level": "${env:LEVEL}"}).level == 7

    def test_never_shows_in_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SECRET", "hunter2")
        for option in ("level", "strict", "mode", "on_error", "ratio"):
            with pytest.raises(ConfigError) as caught:
                Chain.from_config(
                    {"interceptors": "gadget", f"interceptors.gadget.{option}": "${env:SECRET}"}
                )
            assert "hunter2" not in "".join(traceback.format_exception(caught.value))


class TestOverAFile:
    @pytest.fixture
    def config(self, tmp_path: Path) -> str:
        path = tmp_path / "platform.toml"
        path.write_text(
            """
            [[interceptors]]
            type = "late"
            level = 5
            token = "platform"

            [[interceptors]]
            type = "gadget"
            name = "mine"
            """
        )
        return str(path)

    def test_flat_options_override_and_the_rest_stays(self, config: str) -> None:
        late, mine = Chain.from_config({"headerware.config": config, "interceptors.late.level": "6"})
        assert (late.level, late.token, mine.name) == (6, "platform", "mine")  # type: ignore[attr-defined]

    def test_an_alias_of_the_file_keeps_its_type(self, config: str) -> None:
        chain = Chain.from_config({"headerware.config": config, "interceptors.mine.level": "6"})
        assert [getattr(item, "level", None) for item in chain] == [5, 6]

    def test_a_flat_alias_is_put_into_its_place(self, config: str) -> None:
        assert Chain.from_config({"headerware.config": config, "interceptors": "early"}).names == (
            "early",
            "late",
            "mine",
        )

    def test_another_type_for_a_name_of_the_file_is_refused(self, config: str) -> None:
        with pytest.raises(ConfigError, match="is of type 'early', but") as caught:
            Chain.from_config({"headerware.config": config, "interceptors.late.type": "early"})
        assert caught.value.path == "interceptors.late"

    def test_an_alias_of_neither_is_refused_with_both_known(self, config: str) -> None:
        with pytest.raises(ConfigError, match=r"did you mean 'mine'\? listed: early, late, mine"):
            Chain.from_config(
                {"headerware.config": config, "interceptors": "early", "interceptors.mien.level": "1"}
            )
