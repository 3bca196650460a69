"""confluent-kafka's Schema Registry client, shared by the serdes of a process that have equal settings."""

from __future__ import annotations

import inspect
import operator
import time
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from headerware.core.errors import ConfigError
from headerware.core.extras import install_command
from headerware.core.shared import Shared
from headerware.serdes.confluent.settings import flat
from headerware.serdes.stores.cache import Answers, Patience

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka.schema_registry import SchemaRegistryClient

_MOCK: Final = "mock://"
_CREDENTIALS: Final = "basic.auth.user.info"
_PATIENCE: Final = Patience(unknown_s=5.0)
_MAX_ANSWERS: Final = 1000


class SharedClient:
    __slots__ = ("_stays", "client")

    def __init__(self, settings: dict[str, Any]) -> None:
        self.client: Final = _client(settings)
        self._bound_look_ups()
        # A mock in memory stays open, because its schemas would be lost with it.
        self._stays: Final = settings["url"].startswith(_MOCK)

    def _bound_look_ups(self) -> None:
        """Make the client remember failures, as our stores do; otherwise it asks again for each record."""
        answers = Answers(_MAX_ANSWERS, _PATIENCE, time.monotonic)
        for name in ("get_schema", "get_schema_by_guid"):
            ask = getattr(self.client, name, None)
            if ask is not None:
                setattr(self.client, name, partial(_looked_up, answers, name, ask))

    def close(self) -> None:
        """Release one use; the client is closed with its last user."""
        if not self._stays and _clients.release(self):
            exit_: Any = self.client.__exit__  # it closes the client; close() came after 2.13
            exit_(None, None, None)


def _looked_up(answers: Answers, name: str, ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    request = (name, arguments, tuple(sorted(options.items())))
    return answers.look_up(request, lambda: ask(*arguments, **options))


_clients: Final[Shared[SharedClient]] = Shared(operator.eq)


def shared_client(url: str, registry: Mapping[str, Any]) -> SharedClient:
    """Return the client for a configuration; each call is one use, which ``close()`` releases."""
    settings = {**flat(registry, path="registry"), "url": url}
    return _clients.acquire(settings, lambda: SharedClient(settings))


def client_of(serde: Any) -> Any:
    """Return the registry client of one of confluent-kafka's serializers or deserializers; None if unknown.

    confluent-kafka has no public way to it. Without it, errors do not name the registry.
    """
    return getattr(inspect.unwrap(serde), "_registry", None)


def named_registry(client: Any) -> str:
    """Return ``schema registry at`` and the client's addresses, without users, passwords and queries."""
    config: Any = getattr(client, "config", None)
    found = config() if callable(config) else config
    url = found.get("url") if isinstance(found, dict) else None
    if not isinstance(url, str):
        return "schema registry"
    shown = [_bare(each)._replace(query="", fragment="").geturl() for each in _split(url)]
    return f"schema registry at {', '.join(shown)}"


def _split(urls: str) -> list[SplitResult]:
    return [urlsplit(url.strip()) for url in urls.split(",")]


def _bare(url: SplitResult) -> SplitResult:
    return url._replace(netloc=url.netloc.rpartition("@")[2])


def registry_module(name: str) -> Any:
    """Import a module of confluent-kafka's schema-registry package."""
    try:
        return import_module(f"confluent_kafka.schema_registry{name and '.'}{name}")
    except ImportError as error:
        what = f"schema-registry parts for {name}" if name else "registry client"
        raise ConfigError(
            f"confluent-kafka's {what} cannot be imported ({error}); "
            f"install their dependencies: {install_command('confluent')}"
        ) from error


def _without_passwords(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Move the credentials out of the addresses, because the client's HTTP library logs addresses."""
    urls = _split(settings["url"])
    name = unquote(urls[0].username or "")
    if not name or ":" in name or _CREDENTIALS in settings:
        return dict(settings)
    bare = ",".join(_bare(url).geturl() for url in urls)
    return {**settings, "url": bare, _CREDENTIALS: f"{name}:{unquote(urls[0].password or '')}"}


def _client(settings: Mapping[str, Any]) -> SchemaRegistryClient:
    package = registry_module("")
    try:
        bare = _without_passwords(settings)
        client: SchemaRegistryClient = package.SchemaRegistryClient.new_client(bare)
    except (ValueError, TypeError, OSError) as error:
        # The text may quote an address with a password in it.
        raise ConfigError(
            f"confluent-kafka's registry client refuses its settings ({type(error).__name__}); expected an "
            f"http, https or mock url, and settings that its SchemaRegistryClient knows",
            path="registry",
        ) from None
    return client
