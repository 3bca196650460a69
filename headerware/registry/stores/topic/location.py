"""Where a registry's topic is, in one text: ``kafka://HOST:PORT[,HOST:PORT]/TOPIC[?OPTION=VALUE&...]``.

Options are ``snapshot`` (a file, or nothing for none), ``config`` (a file of client properties, a
``name=value`` on each line) and client properties themselves, such as ``security.protocol=ssl``. Secrets
belong into the file: a location is shown by process lists and logs.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, parse_qsl, urlsplit

from headerware.core.errors import RegistryError
from headerware.core.files import read_text

_FORM: Final = "kafka://HOST:PORT[,HOST:PORT]/TOPIC"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SECRET: Final = re.compile(
    r"password|passphrase|secret|\.pem$|token(?!\.endpoint)|jaas|oauthbearer\.config", re.IGNORECASE
)


class TopicLocation(NamedTuple):
    """A location, read.

    Attributes:
        conf: the client's properties.
        topic: the topic.
        snapshot: the snapshot file, or None for none.
    """

    conf: dict[str, Any]
    topic: str
    snapshot: Path | None


def read_location(location: str) -> TopicLocation:
    """Read a location.

    Raises:
        RegistryError: it is not of the form above, or its file cannot be read.
    """
    scheme, servers, path, query, fragment = _parts(location)
    topic = path.removeprefix("/")
    if "@" in servers:
        raise RegistryError("a registry's location holds no user and password: name a file with ?config=FILE")
    if scheme != "kafka" or not servers or not _TOPIC.fullmatch(topic):
        raise RegistryError(f"expected a registry's location {_FORM}, found {location.partition('?')[0]!r}")
    if fragment:
        raise RegistryError(f"a registry's location {_FORM} ends before a '#', which is %23 in an option")
    options = dict(parse_qsl(query, keep_blank_values=True))
    snapshot = options.pop("snapshot", None)
    properties = _properties(options.pop("config", None))
    return TopicLocation(
        {**properties, **_checked(options), "bootstrap.servers": servers},
        topic,
        _default_snapshot(servers, topic) if snapshot is None else Path(snapshot) if snapshot else None,
    )


def _parts(location: str) -> SplitResult:
    try:
        return urlsplit(location)
    except ValueError:  # brackets and characters that no host has; what it says may quote a password
        raise RegistryError(f"expected a registry's location {_FORM}; its HOST:PORT cannot be read") from None


def _checked(options: dict[str, str]) -> dict[str, str]:
    for name in options:
        if _SECRET.search(name):
            raise RegistryError(f"{name} is no option of a location, for it is secret: use ?config=FILE")
        if "." not in name:
            raise RegistryError(
                f"{name!r} is no option of a registry's location; known: snapshot, config, and properties of "
                "Kafka clients such as security.protocol"
            )
    return options


def _properties(path: str | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        lines = read_text(Path(path)).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RegistryError(f"the client properties in {path} cannot be read: {reason}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        name, separator, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not separator:
            raise RegistryError(f"{path}, line {number}: expected name=value")
        found[name.strip()] = value.strip()
    return found


def _default_snapshot(servers: str, topic: str) -> Path:
    """Return a file in the user's cache, by topic and cluster."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cluster = hashlib.sha256(",".join(sorted(servers.split(","))).encode()).hexdigest()[:16]
    return Path(cache) / "headerware" / "registry" / f"{topic}-{cluster}.snapshot"
