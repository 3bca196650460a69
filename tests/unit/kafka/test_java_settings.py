from __future__ import annotations

import pytest

from headerware import ConfigError
from headerware.kafka.java_settings import librdkafka_settings

PLAIN = (
    "kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule required\n"
    ' username="user" password="a \\"b\\";=c";'
)


class TestLibrdkafkaSettings:
    def test_keeps_what_has_the_same_name_and_leaves_out_the_rest(self) -> None:
        same = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
        other = {
            "max.request.size": "1",
            "sasl.login.refresh.window.factor": "0.8",
            "ssl.protocol": "TLSv1.3",
        }
        assert librdkafka_settings({**same, **other}) == same

    @pytest.mark.parametrize(
        ("jaas", "password"),
        [
            (PLAIN, 'a "b";=c'),
            (
                "org.apache.kafka.common.scram.ScramLoginModule required password=p username='user' ;",
                "p",
            ),
        ],
    )
    def test_finds_user_and_password(self, jaas: str, password: str) -> None:
        assert librdkafka_settings({"sasl.jaas.config": jaas}) == {
            "sasl.username": "user",
            "sasl.password": password,
        }

    def test_takes_stores_that_are_pem_or_pkcs12(self) -> None:
        java = {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": "/key.p12",
            "ssl.keystore.password": "secret",
            "ssl.endpoint.identification.algorithm": "",
        }
        assert librdkafka_settings(java) == {
            "ssl.ca.location": "/ca.pem",
            "ssl.keystore.location": "/key.p12",
            "ssl.keystore.password": "secret",
            "ssl.endpoint.identification.algorithm": "none",
        }

    def test_takes_pem_as_text(self) -> None:
        assert librdkafka_settings({"ssl.truststore.certificates": "--"}) == {"ssl.ca.pem": "--"}

    @pytest.mark.parametrize(
        ("java", "says"),
        [
            (
                {"sasl.jaas.config": "my.Module required password='hidden';"},
                "give x.sasl.username or x.sasl.oa",
            ),
            ({"ssl.truststore.location": "/trust.jks"}, "give x.ssl.ca.location or x.ssl.ca.pem as well"),
            ({"sasl.login.callback.handler.class": "Mine"}, "leave it out"),
        ],
    )
    def test_refuses_what_it_cannot_translate(self, java: dict[str, str], says: str) -> None:
        with pytest.raises(ConfigError, match=says) as caught:
            librdkafka_settings(java, prefix="x.")
        assert str(caught.value).startswith(f"x.{next(iter(java))}: ")
        assert "hidden" not in str(caught.value)

    def test_librdkafkas_own_settings_stand_for_javas(self) -> None:
        java = {
            "ssl.truststore.location": "/trust.jks",
            "ssl.ca.location": "/ca.pem",
            "sasl.jaas.config": "my.Module required;",
            "sasl.username": "u",
            "sasl.password": "p",
        }
        assert librdkafka_settings(java) == {
            "ssl.ca.location": "/ca.pem",
            "sasl.username": "u",
            "sasl.password": "p",
        }
