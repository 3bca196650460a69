"""A check of the addresses of network services: secrets must not travel unencrypted."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from headerware.core.errors import ConfigError


def require_safe_address(url: str, *, what: str, allow_http: bool, path: str) -> None:
    """Refuse an address to which ``what``, such as data keys, would travel unencrypted."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError("expected an address such as https://host:port", path=path)
    if parts.username is not None or parts.password is not None:
        raise ConfigError("expected an address without a user and a password", path=path)
    if parts.scheme == "http" and not allow_http and not _is_local(parts.hostname):
        raise ConfigError(
            f"{parts.hostname} would get {what} in the clear: use https://, or set allow_http in tests",
            path=path,
        )


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
