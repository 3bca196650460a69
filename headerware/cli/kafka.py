"""The options by which a command reaches a cluster, and the client's errors as one line."""

from __future__ import annotations

from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from headerware.cli.options import is_from_environment
from headerware.core.plain_files import why_unreadable
from headerware.core.suggestions import with_equals
from headerware.kafka.errors import Kind, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

QUIET: Final[Mapping[str, Any]] = {"log_level": 0}
"""The settings of every client: it logs nothing, because the exception shows the error."""
"""The name of a client's property."""
SERVERS_VARIABLE: Final = "HEADERWARE_BOOTSTRAP_SERVERS"


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """The options by which a command reaches a cluster, and the servers that the environment names."""

    bootstrap_servers: str | None
    properties: tuple[str, ...]
    client_config: str | None
    default_servers: str | None = None

    def settings(self) -> dict[str, Any]:
        """Return a client's settings from all three options; the environment's servers count least."""
        settings = dict(QUIET)
        if self.default_servers is not None:
            settings["bootstrap.servers"] = self.default_servers
        if self.client_config is not None:
            lines = _text_of(self.client_config).splitlines()
            settings |= dict(
                _property(line, "--client-config", f"{self.client_config}:{number}: ")
                for number, line in enumerate(lines, 1)
                if line.strip() and not line.lstrip().startswith("#")
            )
        settings |= dict(_property(text, "--property") for text in self.properties)
        if self.bootstrap_servers is not None:
            settings["bootstrap.servers"] = self.bootstrap_servers
        return settings

    def settings_for(self, what: str) -> dict[str, Any]:
        """Return a client's settings; raise UsageError if they lack the servers, which ``what`` needs."""
        settings = self.settings()
        require_servers(settings, what)
        return settings


def require_servers(settings: Mapping[str, Any], what: str) -> None:
    """Raise UsageError if a client's settings lack the servers, which ``what`` needs."""
    if not settings.get("bootstrap.servers"):
        raise click.UsageError(
            f"{what} needs --bootstrap-servers, {SERVERS_VARIABLE}, or bootstrap.servers in --property or "
            f"--client-config"
        )


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--bootstrap-servers``, ``-X`` and ``--client-config``; the command gets them as ``cluster``."""

    @wraps(command)
    def with_cluster(
        *given: Any,
        bootstrap_servers: str | None,
        properties: tuple[str, ...],
        client_config: str | None,
        **options: Any,
    ) -> Any:
        is_default = is_from_environment("bootstrap_servers")
        cluster = Cluster(
            bootstrap_servers=None if is_default else bootstrap_servers,
            properties=properties,
            client_config=client_config,
            default_servers=bootstrap_servers if is_default else None,
        )
        return command(*given, cluster=cluster, **options)

    for option in (
        click.option(
            "-F",
            "--client-config",
            type=click.Path(exists=True, dir_okay=False),
            help="A file of client properties, one KEY=VALUE a line; -X overrides it.",
        ),
        click.option(
            "-X", "--property", "properties", multiple=True, help="A client property, KEY=VALUE; repeatable."
        ),
        click.option(
            "-b",
            "--bootstrap-servers",
            envvar=SERVERS_VARIABLE,
            show_envvar=True,
            help="The brokers' addresses.",
        ),
    ):
        option(with_cluster)
    return with_cluster


def _text_of(client_config: str) -> str:
    try:
        return Path(client_config).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        found = why_unreadable(client_config, error)
        raise click.BadParameter(
            f"{client_config} cannot be read: {found}; expected lines of KEY=VALUE",
            param_hint="--client-config",
        ) from error


def _property(text: str, option: str, where: str = "") -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        meant = with_equals(text) or ""
        hint = (
            f"; did you mean {meant.partition('=')[0]}=...?" if meant else ""
        )  # the value may be a password
        raise click.BadParameter(f"{where}expected KEY=VALUE, found no '='{hint}", param_hint=option)
    return name.strip(), value.strip()


@contextmanager
def kafka_errors(what: str | None = None) -> Iterator[None]:
    """Show an error of the client as one line, after its subject."""
    from confluent_kafka import KafkaException  # noqa: PLC0415 - only few commands need a client

    try:
        yield
    except KafkaException as error:
        text = error.args[0].str()
        if kind_of(error) is Kind.UNREACHABLE:
            from headerware.kafka.first_answer import TO_REACH_A_CLUSTER  # noqa: PLC0415 - as above

            text = text if TO_REACH_A_CLUSTER in text else f"{text}; {TO_REACH_A_CLUSTER}"
        raise click.ClickException(text if what is None else f"{what}: {text}") from error
