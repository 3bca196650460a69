from __future__ import annotations

from pathlib import Path

import pytest

from headerware.core.errors import RegistryError
from headerware.registry.stores.topic import read_location


class TestLocation:
    def test_names_brokers_and_topic(self) -> None:
        location = read_location("kafka://one:9092,two:9093/header-ids?snapshot=")
        assert location == ({"bootstrap.servers": "one:9092,two:9093"}, "header-ids", None)

    def test_keeps_its_snapshot_in_the_users_cache(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        one, same, other = (
            read_location(f"kafka://{servers}/ids").snapshot for servers in ("a:1,b:1", "b:1,a:1", "c:1")
        )
        assert one == same != other
        assert one is not None
        assert one.is_relative_to(tmp_path)
        assert not one.exists()

    def test_names_a_snapshot_and_properties(self, tmp_path: Path) -> None:
        path = tmp_path / "client.properties"
        path.write_text("# how we connect\n\nsasl.password = a=b\nsasl.username=me\n")
        location = read_location(f"kafka://a:1/ids?config={path}&snapshot=/x&security.protocol=ssl")
        assert location.snapshot == Path("/x")
        assert location.conf == {
            "sasl.password": "a=b",
            "sasl.username": "me",
            "security.protocol": "ssl",
            "bootstrap.servers": "a:1",
        }

    @pytest.mark.parametrize(
        ("location", "message"),
        [
            ("kafka:///ids", "expected a registry's location"),
            ("kafka://a:1", "expected a registry's location"),
            ("kafka://a:1/", "expected a registry's location"),
            ("kafka://a:1/two/parts", "expected a registry's location"),
            ("kafka://a:1/" + "x" * 250, "expected a registry's location"),
            ("http://a:1/ids", "expected a registry's location"),
            ("kafka://me:hunter2@a:1/ids", "must not have a user and a password"),
            ("kafka://[a:hunter2/ids", "its HOST:PORT cannot be read"),
            ("kafka://\u2100:hunter2/ids", "its HOST:PORT cannot be read"),
            ("kafka://a:1/ids?snapshot=/x#hunter2", "ends before a '#'"),
            ("kafka://a:1/ids?sasl.password=hunter2", "is secret, and is not allowed in a location"),
            (
                "kafka://a:1/ids?sasl.oauthbearer.config=hunter2",
                "is secret, and is not allowed in a location",
            ),
            (
                "kafka://a:1/ids?sasl.oauthbearer.assertion.private.key.passphrase=hunter2",
                "is secret, and is not allowed in a location",
            ),
            ("kafka://a:1/ids?ssl.key.pem=hunter2", "is secret, and is not allowed in a location"),
            ("kafka://a:1/ids?snapshoot=hunter2", "'snapshoot' is no option"),
            ("kafka://a:1/ids?config=/no/such/file", "cannot be read"),
        ],
    )
    def test_refuses_what_is_none_without_telling_secrets(self, location: str, message: str) -> None:
        with pytest.raises(RegistryError, match=message) as caught:
            read_location(location)
        assert "hunter2" not in str(caught.value)

    def test_where_tokens_come_from_is_no_secret(self) -> None:
        location = read_location("kafka://a:1/ids?sasl.oauthbearer.token.endpoint.url=https://id.example")
        assert location.conf["sasl.oauthbearer.token.endpoint.url"] == "https://id.example"

    def test_names_the_line_of_a_property_that_is_none(self, tmp_path: Path) -> None:
        path = tmp_path / "client.properties"
        path.write_text("a=b\nhunter2\n")
        with pytest.raises(RegistryError, match=r"line 2: expected name=value$"):
            read_location(f"kafka://a:1/ids?config={path}")
