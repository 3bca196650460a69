"""Errors of librdkafka about a property: with the application's own name for it, and what is right."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headerware.core.suggestions import did_you_mean
from headerware.kafka.errors import with_text
from headerware.kafka.settings import COMMON_PROPERTIES, bootstrap_servers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import KafkaException

ALIASES: Final[Mapping[str, str]] = {
    "acks": "request.required.acks",
    "compression.type": "compression.codec",
    "delivery.timeout.ms": "message.timeout.ms",
    "linger.ms": "queue.buffering.max.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "retries": "message.send.max.retries",
    "sasl.mechanism": "sasl.mechanisms",
}
"""librdkafka's own name for a property, which its errors have, by the name that applications write."""
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "auto.offset.reset": ("earliest", "latest", "error", "beginning", "end", "smallest", "largest"),
    "broker.address.family": ("any", "v4", "v6"),
    "client.dns.lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "compression.codec": ("none", "gzip", "snappy", "lz4", "zstd"),
    "group.protocol": ("classic", "consumer"),
    "isolation.level": ("read_committed", "read_uncommitted"),
    "partitioner": (
        *("consistent_random", "consistent", "random", "murmur2_random", "murmur2"),
        *("fnv1a_random", "fnv1a"),
    ),
    "queuing.strategy": ("fifo", "lifo"),
    "request.required.acks": ("all",),
    "sasl.oauthbearer.method": ("default", "oidc"),
    "security.protocol": ("plaintext", "ssl", "sasl_plaintext", "sasl_ssl"),
    "ssl.endpoint.identification.algorithm": ("https", "none"),
}
"""The words that a property takes, by librdkafka's name; its errors do not list them."""
_UNKNOWN: Final = re.compile(r'No such configuration property: "([^"]+)"')
_WRONG: Final = re.compile(r'[Cc]onfiguration property "([^"]+)"')
_SERDE: Final = re.compile(r"(?:key|value)\.(serializer|deserializer)(?:\.|$)")
_RANGE: Final = re.compile(r"allowed range (-?\d+\.\.\d+)")
_TOO_LARGE: Final = str(10**15)
_FILES: Final = (
    *("ssl.ca.location", "ssl.certificate.location", "ssl.crl.location", "ssl.key.location"),
    *("ssl.keystore.location", "sasl.kerberos.keytab"),
)
"""The properties that name a file; an error of OpenSSL does not say that there is none."""


@contextmanager
def explaining_properties(conf: Mapping[str, Any]) -> Iterator[None]:
    """Let an error about a property of a new client say what the application may write instead."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - slow to import

    _require_servers(conf)
    try:
        yield
    except KafkaException as error:
        text = explained(error, conf)
        if text == error.args[0].str():
            raise
        raise with_text(error.args[0], text) from None


def _require_servers(conf: Mapping[str, Any]) -> None:
    """Raise KafkaException for the address of a web server; librdkafka would go on, and reach nothing."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - slow to import

    for server in (bootstrap_servers(conf) or "").split(","):
        protocol, mark, _ = server.strip().partition("://")  # what follows may have a password
        if mark and protocol.lower() not in CHOICES["security.protocol"]:
            text = f"bootstrap.servers: expected HOST:PORT, found an address that begins with {protocol}://"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, text))  # noqa: SLF001 - the code's public name


def explained(error: KafkaException, conf: Mapping[str, Any]) -> str:
    """Return the text of an error of a new client; an error about a property says what is right."""
    text = str(error.args[0].str()).strip()
    if unknown := _UNKNOWN.search(text):
        return text + _advice(unknown[1])
    wrong = _WRONG.search(text)
    if wrong is None:
        missing = [name for name in _FILES if conf.get(name) and not Path(str(conf[name])).exists()]
        return text + "".join(f"; {name} names {conf[name]!r}, which does not exist here" for name in missing)
    name = wrong[1]
    written = next((own for own, theirs in ALIASES.items() if theirs == name and own in conf), name)
    text = text.replace(f'"{name}"', f'"{written}"')
    choices = CHOICES.get(name, ())
    limits = None if "allowed range" in text else _limits(name)
    expected = [", ".join(choices), f"a whole number of {limits}" if limits else ""]
    then = " or ".join(filter(None, expected))
    return text + did_you_mean(conf.get(written), choices, then=f"expected {then}" if then else "")


def _advice(name: str) -> str:
    """Return what the application may have meant by a property that librdkafka does not know, or nothing."""
    serde = _SERDE.match(name)
    if serde is not None:
        kind = "SerializingProducer" if serde[1] == "serializer" else "DeserializingConsumer"
        return f"; {kind} takes it, and so does Async{kind}"
    return did_you_mean(name, (*COMMON_PROPERTIES, "interceptors"))


def _limits(name: str) -> str | None:
    """Return the limits of a property that is a number, from librdkafka's answer to a number beyond them."""
    from confluent_kafka import KafkaException, cimpl  # noqa: PLC0415 - slow to import

    try:
        cimpl.Producer({name: _TOO_LARGE, "log_level": 0})
    except KafkaException as error:
        found = _RANGE.search(str(error.args[0].str()))
        return found[1] if found else None
    return None
