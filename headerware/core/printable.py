"""Text for people: untrusted text escaped for a terminal, counts with nouns, and text without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from headerware.core.plain_words import plain_words

_VALUE: Final = re.compile(
    r"(?<=^Invalid enum value) (?:'.*'|[0-9-]+)(?= - at|$)|(?<=^Invalid value) '.*'(?= - at|$)", re.DOTALL
)
_FIELD: Final = re.compile(r"(?<=^Object contains unknown field) `(?![a-z_]{1,32}`).*`(?= - at|$)", re.DOTALL)
HIDDEN: Final = "[hidden]"
"""Stands for a value that is not shown."""
_HIDDEN_NAME_PART: Final = (
    r"(?:passw|pwd|passphrase|secret|token|credential|authorization|cookie|jaas|user[._-]?info"
    r"|(?:api|access|account|private|sas)[._-]?key(?![._-]?id)|ssl[._-](?:keystore[._-])?key(?:[._-]pem)?\b)"
)
_SECRET_NAME: Final = re.compile(_HIDDEN_NAME_PART, re.IGNORECASE)
_PLACE_NAME: Final = re.compile(r"[._-](?:class|file|id|location|ms|name|path|type|ur[il])$", re.IGNORECASE)
"""The end of a name such as ``token_file``, whose value says where a secret is, or how it is used."""
_USER: Final = re.compile(r"(?<=://)(?:[^/:@]*:(?:(?!://).)*|[^/?#]*)(?=@)", re.DOTALL)
"""Everything before the last @, because some clients accept passwords with slashes and @."""
_NAMED: Final = rf"[\w.-]*{_HIDDEN_NAME_PART}[\w.-]*"
_LINE: Final = re.compile(
    rf"^(?P<name>[ \t]*{_NAMED}[ \t]*[=:](?!=|//)[ \t]*)(?P<value>.+)", re.IGNORECASE | re.MULTILINE
)
"""A line of properties."""
_PARAMETER: Final = re.compile(
    rf"(?<=[?&;\s])(?P<name>(?:{_NAMED}|sig|x-amz-signature)=(?!=))(?P<value>[^&;\s]+)", re.IGNORECASE
)
"""A parameter of an address, or of the text of a connection."""
_VARIABLE: Final = re.compile(r"\$\{env:[A-Za-z0-9_]+\}")
"""A variable of the environment without a default value, which could be a secret."""


def printable(text: str) -> str:
    """Escape characters that a terminal acts on, such as escape sequences, line breaks and text direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun, such as ``1 record`` and ``2 records``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def without_values(error: Exception) -> str:
    """Return the text of an error of msgspec in plain words, without quoted values and odd names."""
    problem, _, place = _FIELD.sub("", _VALUE.sub("", str(error))).partition(" - at `$")
    where = place.removesuffix("`").removeprefix(".")
    problem = plain_words(problem, where.rpartition(".")[2])
    return f"{problem}, at {where}" if where else problem


def names_only_variables(text: str) -> bool:
    """Return whether a text has nothing but variables of the environment, and marks between them."""
    return re.search(r"[^:@/&= ]", _VARIABLE.sub("", text)) is None and bool(_VARIABLE.search(text))


def without_secrets(value: Any, name: str = "") -> Any:
    """Return the value of an option as it may be printed, with passwords hidden.

    Values whose names look secret are hidden, such as ``basic.auth.user.info``, and so are the users of
    addresses and the secret parameters in a text. Names of variables are shown.
    """
    secret = bool(_SECRET_NAME.search(name)) and not _PLACE_NAME.search(name)
    if isinstance(value, Mapping):
        return {
            key: without_secrets(own, name if secret and key != "type" else str(key))
            for key, own in value.items()
        }
    if isinstance(value, list | tuple):
        return [without_secrets(own, name) for own in value]
    if value is None or isinstance(value, bool) or (isinstance(value, str) and names_only_variables(value)):
        return value
    if secret:
        return HIDDEN
    if not isinstance(value, str):
        return value
    without_users = _USER.sub(_without_user, value)
    return _PARAMETER.sub(_without_value, _LINE.sub(_without_value, without_users))


def _without_user(found: re.Match[str]) -> str:
    _, colon, password = found[0].partition(":") if found[0][:2] != "${" else ("", "", found[0])
    public = names_only_variables(found[0]) or (colon and names_only_variables(password))
    return found[0] if public else HIDDEN


def _without_value(found: re.Match[str]) -> str:
    return found[0] if names_only_variables(found["value"]) else f"{found['name']}{HIDDEN}"
