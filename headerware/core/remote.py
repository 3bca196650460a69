"""What services over a network have in common: one client a process, and addresses that are safe."""

from __future__ import annotations

import os
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from urllib.parse import urlsplit

from headerware.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

Client = TypeVar("Client")


class PerProcess(Generic[Client]):
    """Make a client once in each process: a forked child must not share its parent's connections.

    Likewise for a lock, which a thread of the parent may have held when the child was made.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Client]) -> None:
        self._make: Final = make
        self._made: tuple[int, Client] = (os.getpid(), make())

    def get(self) -> Client:
        """Return this process's client; threads that meet in a new child make one more at worst."""
        made = self._made
        if made[0] != os.getpid():
            made = self._made = (os.getpid(), self._make())
        return made[1]


def require_safe_address(url: str, *, what: str, allow_http: bool, path: str) -> None:
    """Refuse an address to which something, such as data keys, would travel in the clear."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError("expected an address such as https://host:port", path=path)
    if parts.username is not None or parts.password is not None:
        raise ConfigError("expected an address without a user and a password", path=path)
    if parts.scheme == "http" and not allow_http and not _is_here(parts.hostname):
        raise ConfigError(
            f"{parts.hostname} would get {what} in the clear: use https://, or set allow_http in tests",
            path=path,
        )


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
