"""Translate the connection settings of Kafka's Java clients into librdkafka's.

Most have the same names. The credentials of Java are in a line of JAAS, and its stores are files that may be
of Java's own format, which librdkafka does not read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headerware.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_JAAS: Final = "sasl.jaas.config"
_SAME: Final = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.dns.lookup",
        "security.protocol",
        "sasl.mechanism",
        "sasl.kerberos.service.name",
        "sasl.kerberos.kinit.cmd",
        "ssl.key.password",
    }
)
_OWN: Final = frozenset(
    {
        *("sasl.username", "sasl.password", "sasl.oauthbearer.config", "sasl.oauthbearer.method"),
        *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem"),
        *("ssl.key.location", "ssl.key.pem"),
    }
)
"""Names that only librdkafka has; Java's clients ignore them, so they may stand next to Java's."""
_PEM: Final = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}
_REPLACED: Final = {
    "ssl.truststore.location": ("ssl.ca.location", "ssl.ca.pem"),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.certificate.pem"),
    _JAAS: ("sasl.username", "sasl.oauthbearer.config"),
}
"""Java's settings that are not needed if one of librdkafka's is given."""
_IDLE: Final = re.compile(
    r"sasl\.login\.(?!callback|class).*|sasl\.kerberos\.(min|ticket).*|ssl\.(truststore|keystore)\.(type|password)"
    r"|ssl\.(protocol|provider|enabled\.protocols|secure\.random\.implementation|.*manager\.algorithm)"
)
"""Settings that tune Java's clients, or say how to read a file that another setting names."""
_LOGIN: Final = re.compile(r"\s*[\w.$]*\.(?:Plain|Scram)LoginModule\s+required\b(.*);\s*", re.DOTALL)
_OPTION: Final = re.compile(
    r"""([\w.]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL
)


def librdkafka_settings(java: Mapping[str, str], *, prefix: str = "") -> dict[str, str]:
    """Return librdkafka's settings for the same cluster, without what does not concern the connection.

    Args:
        java: the settings of a Java client, by their names; librdkafka's own may stand among them, and win.
        prefix: what stands before the names where the user writes them, for errors.

    Raises:
        ConfigError: a setting of the connection cannot be translated.
    """
    found = {name: value for name, value in java.items() if name in _SAME | _OWN}
    for name, value in java.items():
        if not name.startswith(("sasl.", "ssl.")) or name in _SAME | _OWN or _IDLE.fullmatch(name):
            continue
        if any(own in java for own in _REPLACED.get(name, ())):
            continue
        translated = _translated(name, value, java)
        if translated is None:
            own = " or ".join(f"{prefix}{each}" for each in _REPLACED.get(name, ()))
            advice = f"give {own} as well" if own else "leave it out"
            raise ConfigError(
                f"librdkafka, which asks the cluster here, has nothing like it; {advice}",
                path=f"{prefix}{name}",
            )
        found |= translated
    return found


def _translated(name: str, value: str, java: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return the settings for one of Java's, or None if there are none."""
    if name in _PEM:
        return {_PEM[name]: value}
    if name == _JAAS:
        return _credentials(value)
    if name == "ssl.endpoint.identification.algorithm":
        return {name: value or "none"}
    kind = java.get(name.replace(".location", ".type"), "JKS").upper()
    if name == "ssl.truststore.location" and kind == "PEM":
        return {"ssl.ca.location": value}
    if (
        name == "ssl.keystore.location" and kind == "PEM"
    ):  # Java wants the key and its certificates in one file
        return {"ssl.certificate.location": value, "ssl.key.location": value}
    if name == "ssl.keystore.location" and kind == "PKCS12":
        return {name: value, "ssl.keystore.password": java.get("ssl.keystore.password", "")}
    return None


def _credentials(jaas: str) -> Mapping[str, str] | None:
    login = _LOGIN.fullmatch(jaas)
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single or plain)
        for name, double, single, plain in _OPTION.findall(login[1] if login else "")
    }
    if not {"username", "password"} <= options.keys():
        return None
    return {"sasl.username": options["username"], "sasl.password": options["password"]}
