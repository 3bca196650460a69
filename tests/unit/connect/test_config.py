"""What can be configured, and how."""

from __future__ import annotations

from typing import Any

import pytest

from headerware.connect.config import DISTINCT_SOME, NOT_EMPTY_TEXT, ConfigDef, ConfigKey, Configured, one_of
from headerware.connect.errors import ConnectConfigError
from headerware.core.errors import ConfigError

KEYS = ConfigDef(
    ConfigKey(name="fields", type="LIST", check=DISTINCT_SOME),
    ConfigKey(name="replacement", type="STRING", default=None, check=NOT_EMPTY_TEXT),
    ConfigKey(name="count", type="INT", default=3),
    ConfigKey(name="on", type="BOOLEAN", default=True),
    ConfigKey(name="way", type="STRING", default="copy", check=one_of("copy", "move")),
    ConfigKey(name="ours", type="STRING", default=None, strict_only=True),
)


def parsed(**given: Any) -> dict[str, Any]:
    return KEYS.parse({"fields": "a", **given})


class TestConfigDef:
    def test_reads_text_as_each_keys_type(self) -> None:
        assert parsed(fields=" a , b ", count=" 7 ", on="FALSE", way="move") == {
            "fields": ["a", "b"],
            "replacement": None,
            "count": 7,
            "on": False,
            "way": "move",
            "ours": None,
        }

    def test_takes_values_as_python_has_them(self) -> None:
        assert parsed(fields=["a", "b"], count=7, on=False)["fields"] == ["a", "b"]

    @pytest.mark.parametrize(
        ("given", "key"),
        [
            ({"count": "x"}, "count"),
            ({"count": str(1 << 31)}, "count"),
            ({"count": True}, "count"),
            ({"on": "yes"}, "on"),
            ({"way": "clone"}, "way"),
            ({"fields": ""}, "fields"),
            ({"fields": "a,,b"}, "fields"),
            ({"replacement": ""}, "replacement"),
            ({"replacement": 1}, "replacement"),
            ({"way": None}, "way"),
        ],
    )
    def test_refuses_an_invalid_value_and_says_where(self, given: dict[str, Any], key: str) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            parsed(**given)
        assert caught.value.path == key

    def test_never_quotes_a_value(self) -> None:
        with pytest.raises(ConnectConfigError) as caught:
            parsed(count="secret")
        assert "secret" not in str(caught.value)

    def test_wants_what_has_no_default(self) -> None:
        with pytest.raises(ConnectConfigError, match=r"fields.*no default"):
            KEYS.parse({})

    def test_counts_repeated_values_of_a_distinct_list_once(self) -> None:
        assert parsed(fields="a,b,a")["fields"] == ["a", "b"]

    def test_refuses_unknown_keys_and_names_the_nearest(self) -> None:
        with pytest.raises(ConnectConfigError, match="did you mean 'replacement'"):
            parsed(replacment="x")

    def test_ignores_unknown_keys_as_kafka_does_where_that_is_asked_for(self) -> None:
        assert "replacment" not in KEYS.parse({"fields": "a", "replacment": "x"}, "kafka_4_3")

    def test_knows_its_own_keys_in_the_strict_mode_only(self) -> None:
        assert [key.name for key in KEYS.keys("kafka_4_3")] == ["fields", "replacement", "count", "on", "way"]
        assert "ours" not in KEYS.parse({"fields": "a", "ours": "x"}, "kafka_4_3")


class Thing(Configured):
    CONFIG = KEYS


class TestConfigured:
    def test_is_configured_when_it_is_made(self) -> None:
        with Thing({"fields": "a"}) as thing:
            assert thing.options["fields"] == ["a"]

    def test_describes_its_keys(self) -> None:
        assert [key.name for key in Thing.config()][-1] == "ours"

    def test_refuses_with_one_of_our_configuration_errors(self) -> None:
        with pytest.raises(ConfigError):
            Thing()
