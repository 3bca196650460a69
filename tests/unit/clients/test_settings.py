"""Mistakes in a client's configuration: which name the application may have meant."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, cimpl

from headerware import Chain, ConfigError, Consumer, Producer
from headerware.clients.aio import AsyncProducer
from headerware.interceptors import Trail
from headerware.kafka.settings import COMMON_PROPERTIES

UNREACHABLE: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
CHAIN = Chain([Trail()])


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
            assert error.str() == f'No such configuration property: "{name}" ({advice})'

    def test_without_a_name_like_it_is_as_confluent_kafka_has_it(self) -> None:
        for conf in ({**UNREACHABLE, "zzzzzzzzzz": "x"}, {**UNREACHABLE, "acks": "x"}):
            with pytest.raises(KafkaException) as theirs:
                cimpl.Producer(conf)
            with pytest.raises(KafkaException, match=f"^{re.escape(str(theirs.value))}$"):
                Producer(conf, chain=CHAIN)


class TestDeadLetterSettings:
    @pytest.mark.parametrize(
        ("key", "value", "problem"),
        [
            ("ack", "all", "No such configuration property: \"ack\" (did you mean 'acks'?)"),
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
