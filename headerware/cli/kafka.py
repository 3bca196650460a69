"""The options by which a command reaches a cluster, and the client's errors as one line."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headerware.cli.times import LONGEST_ANSWER_S, Duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_Command = TypeVar("_Command", bound="Callable[..., Any]")


def client_options(command: _Command) -> _Command:
    """Add ``--bootstrap-servers``, ``-X`` and ``--client-config`` to a command."""
    for option in (
        click.option(
            "-F",
            "--client-config",
            type=click.Path(exists=True, dir_okay=False),
            help="A file of client properties, one KEY=VALUE a line; -X counts for more.",
        ),
        click.option(
            "-X", "--property", "properties", multiple=True, help="A client property, KEY=VALUE; repeatable."
        ),
        click.option("--bootstrap-servers", help="The brokers' addresses."),
    ):
        command = option(command)
    return command


def timeout_option(command: _Command) -> _Command:
    """Add ``--timeout`` to a command that reads topics to their end."""
    return click.option(
        "--timeout",
        type=Duration(most_s=LONGEST_ANSWER_S),
        default="60s",
        show_default=True,
        help="How long the cluster may give no answer.",
    )(command)


def client_settings(
    bootstrap_servers: str | None, properties: tuple[str, ...], client_config: str | None
) -> dict[str, Any]:
    """Return a client's settings from a command's options; the servers may be in either of the others."""
    settings: dict[str, Any] = {"log_level": 0}  # errors are shown once, by the exception
    if client_config is not None:
        lines = _text_of(client_config).splitlines()
        settings |= dict(
            _property(line, "--client-config", f"line {number}: ")
            for number, line in enumerate(lines, 1)
            if line.strip() and not line.lstrip().startswith("#")
        )
    settings |= dict(_property(text, "--property") for text in properties)
    if bootstrap_servers is not None:
        settings["bootstrap.servers"] = bootstrap_servers
    return settings


def _text_of(client_config: str) -> str:
    try:
        return Path(client_config).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        found = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise click.BadParameter(
            f"{client_config} cannot be read: {found}; expected lines of KEY=VALUE",
            param_hint="--client-config",
        ) from error


def _property(text: str, option: str, where: str = "") -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{where}expected KEY=VALUE, found no '='", param_hint=option)
    return name.strip(), value.strip()


def require_servers(settings: dict[str, Any], what: str) -> str:
    """Return the brokers' addresses; without any it is wrong use, for ``what`` needs them."""
    servers: str | None = settings.get("bootstrap.servers")
    if not servers:
        raise click.UsageError(
            f"{what} needs --bootstrap-servers, or bootstrap.servers in --property or --client-config"
        )
    return servers


@contextmanager
def kafka_errors(what: str | None = None) -> Iterator[None]:
    """Show an error of the client as one line, with what it is about before it."""
    from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - only few commands need a client

    try:
        yield
    except KafkaException as error:
        text = error.args[0].str()
        if error.args[0].code() == KafkaError._TRANSPORT:  # noqa: SLF001 - librdkafka's own name for it
            from headerware.kafka.first_answer import TO_REACH_A_CLUSTER  # noqa: PLC0415 - as above

            text = text if TO_REACH_A_CLUSTER in text else f"{text}; {TO_REACH_A_CLUSTER}"
        raise click.ClickException(text if what is None else f"{what}: {text}") from error
