"""Mistakes in a client's configuration: which name the application may have meant."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, cimpl

from headerware import (
    Chain,
    ConfigError,
    Consumer,
    DeserializingConsumer,
    Producer,
    SerializingProducer,
)
from headerware.clients.aio import (
    AsyncConsumer,
    AsyncDeserializingConsumer,
    AsyncProducer,
    AsyncSerializingProducer,
)
from headerware.interceptors import Trail
from headerware.kafka.settings import COMMON_PROPERTIES
from headerware.kafka.wrong_properties import ALIASES, CHOICES

UNREACHABLE: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
CHAIN = Chain([Trail()])


class TestAChainWithoutItsName:
    @pytest.mark.parametrize(
        "client",
        [
            Producer,
            Consumer,
            SerializingProducer,
            DeserializingConsumer,
            AsyncProducer,
            AsyncConsumer,
            AsyncSerializingProducer,
            AsyncDeserializingConsumer,
        ],
    )
    def test_is_refused_with_what_to_write(self, client: Any) -> None:
        name = client.__name__
        told = re.escape(f"{name} takes the chain by name; write {name}(conf, chain=...)")
        for given in (CHAIN, "headerware.toml", [Trail()], Trail()):
            with pytest.raises(TypeError, match=f"^{told}$"):
                client({**UNREACHABLE, "group.id": "g"}, given)
        with pytest.raises(TypeError, match=f"^{told}$"):
            client(CHAIN)


class TestAnUnknownProperty:
    @pytest.mark.parametrize(
        ("name", "advice"),
        [
            ("interceptor", "did you mean 'interceptors'?"),
            ("bootstrap.server", "did you mean 'bootstrap.servers'?"),
            ("value.serializer", "SerializingProducer takes it, and so does AsyncSerializingProducer"),
            ("key.deserializer", "DeserializingConsumer takes it, and so does AsyncDeserializingConsumer"),
            ("key.serializer.schema", "SerializingProducer takes it, and so does AsyncSerializingProducer"),
        ],
    )
    def test_comes_with_advice(self, name: str, advice: str) -> None:
        conf = {**UNREACHABLE, name: "x"}
        for make in (
            lambda: Producer(conf),
            lambda: Producer(conf, chain=CHAIN),
            lambda: Consumer({**conf, "group.id": "g"}),
            lambda: Consumer({**conf, "group.id": "g"}, chain=CHAIN),
            lambda: AsyncProducer(conf),
        ):
            with pytest.raises(KafkaException) as caught:
                make()
            error = caught.value.args[0]
            assert error.code() == KafkaError._INVALID_ARG
            assert error.str() == f'No such configuration property: "{name}"; {advice}'

    def test_without_a_name_like_it_is_as_confluent_kafka_has_it(self) -> None:
        conf = {**UNREACHABLE, "zzzzzzzzzz": "x"}
        with pytest.raises(KafkaException) as theirs:
            cimpl.Producer(conf)
        with pytest.raises(KafkaException, match=f"^{re.escape(str(theirs.value))}$"):
            Producer(conf, chain=CHAIN)


class TestAWrongValue:
    @pytest.mark.parametrize(
        ("name", "value", "told"),
        [
            ("acks", "alll", "; did you mean 'all'? expected all or a whole number of -1..1000"),
            ("acks", True, "; expected all or a whole number of -1..1000"),
            ("request.required.acks", "x", "; expected all or a whole number of -1..1000"),
            ("compression.type", "gzp", "; did you mean 'gzip'? expected none, gzip, snappy, lz4, zstd"),
            ("partitioner", "murmr2", "; did you mean 'murmur2'? expected consistent_random, "),
            ("linger.ms", "soon", "; expected a whole number of 0..900000"),
            ("retries", None, "; expected a whole number of 0..2147483647"),
        ],
    )
    def test_is_told_with_the_name_that_was_written_and_what_is_right(
        self, name: str, value: object, told: str
    ) -> None:
        for make in (Producer, AsyncProducer, lambda conf: Consumer({**conf, "group.id": "g"})):
            with pytest.raises(KafkaException) as caught:
                make({**UNREACHABLE, name: value})
            assert caught.value.args[0].code() == KafkaError._INVALID_ARG
            text = caught.value.args[0].str()
            assert f'onfiguration property "{name}"' in text
            assert told in text

    def test_beyond_its_limits_is_told_with_them_once(self) -> None:
        with pytest.raises(KafkaException) as caught:
            Producer({**UNREACHABLE, "linger.ms": 10**9})
        text = caught.value.args[0].str()
        assert text.startswith('Configuration property "linger.ms" value ')
        assert text.endswith(" is outside allowed range 0..900000")

    @pytest.mark.parametrize(("ours", "theirs"), ALIASES.items())
    def test_of_an_alias_is_told_by_librdkafka_under_its_own_name(self, ours: str, theirs: str) -> None:
        for name in (ours, theirs):
            with pytest.raises(KafkaException, match=f'"{theirs}"') as caught:
                cimpl.Producer({**UNREACHABLE, name: None})
            assert ours == theirs or f'"{ours}"' not in str(caught.value)

    @pytest.mark.parametrize(("name", "choices"), CHOICES.items())
    def test_is_none_of_the_words_that_are_suggested(self, name: str, choices: tuple[str, ...]) -> None:
        user = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "a", "sasl.password": "a"}
        for word in choices:
            cimpl.Producer({**UNREACHABLE, **user, name: word})
        with pytest.raises(KafkaException):
            cimpl.Producer({**UNREACHABLE, name: "no-such-word"})


@pytest.mark.parametrize("kind", [Producer, Consumer])
def test_the_address_of_a_web_server_is_refused_at_once(kind: type) -> None:
    conf = {"bootstrap.servers": "PLAINTEXT://127.0.0.1:9,http://user:hunter2@127.0.0.1:9", "group.id": "g"}
    with pytest.raises(KafkaException) as caught:
        kind(conf, chain=Chain([Trail(service="a")]))
    assert caught.value.args[0].str() == (
        "bootstrap.servers: expected HOST:PORT, found an address that begins with http://"
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    conf = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem")}
    with pytest.raises(
        KafkaException, match=r"; ssl.ca.location names '.*/ca.pem', which does not exist here"
    ):
        Producer({**UNREACHABLE, **conf}, chain=Chain([Trail(service="a")]))


class TestDeadLetterSettings:
    @pytest.mark.parametrize(
        ("key", "value", "problem"),
        [
            ("ack", "all", "No such configuration property: \"ack\"; did you mean 'acks'?"),
            ("linger.ms", "soon", "Invalid value for configuration property "),
        ],
    )
    def test_that_are_wrong_are_refused_when_the_client_is_made(
        self, key: str, value: str, problem: str
    ) -> None:
        with pytest.raises(ConfigError, match=r"^headerware\.dead_letter\.<producer key>: ") as caught:
            Consumer({**UNREACHABLE, "group.id": "g", f"headerware.dead_letter.{key}": value}, chain=CHAIN)
        assert caught.value.message.startswith(problem)

    def test_that_are_right_are_taken(self) -> None:
        conf = {**UNREACHABLE, "group.id": "g", "headerware.dead_letter.acks": "all"}
        Consumer(conf, chain=CHAIN).close()

    def test_are_checked_once_and_without_a_token(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made, tokens = [], []

        def producer(conf: dict[str, Any]) -> cimpl.Producer:
            made.append(conf)
            return cimpl_producer(conf)

        def token(_: str) -> tuple[str, float]:
            tokens.append("token")
            return "token", time.time() + 3600

        cimpl_producer = cimpl.Producer
        monkeypatch.setattr(cimpl, "Producer", producer)
        oauth = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "OAUTHBEARER", "oauth_cb": token}
        conf = {**UNREACHABLE, **oauth, "group.id": "g", "headerware.dead_letter.acks": "all"}
        Consumer(conf, chain=CHAIN).close()
        assert len(made) == len(tokens) == 1, "the token is the consumer's"

    def test_are_not_blamed_for_a_connection_that_is_wrong(self) -> None:
        wrong = {"security.protocol": "ssl", "ssl.ca.location": "/nowhere/ca.pem"}
        conf = {**UNREACHABLE, **wrong, "group.id": "g", "headerware.dead_letter.acks": "all"}
        with pytest.raises(KafkaException, match="ssl"):
            Consumer(conf, chain=CHAIN)


class TestCommonProperties:
    @pytest.mark.parametrize("name", COMMON_PROPERTIES)
    def test_are_properties(self, name: str) -> None:
        told = ""
        try:
            cimpl.Consumer({"group.id": "g", "log_level": 0, name: "5"})
        except (KafkaException, TypeError, ValueError) as error:
            told = str(error)
        assert "No such configuration property" not in told
