"""Options that several commands have, with one type and one text each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from headerware.cli.times import LONGEST_ANSWER_S, Duration
from headerware.core.client_chain import CONFIG_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable

_Command = TypeVar("_Command", bound="Callable[..., Any]")

json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
execute_option: Final = click.option(
    "--execute", is_flag=True, help="Do the work; without this, the command only shows what it would do."
)
timeout_option: Final = click.option(
    "--timeout",
    "timeout_s",
    type=Duration(most_s=LONGEST_ANSWER_S),
    default="60s",
    show_default=True,
    help="Give up if the cluster gives no answer for this long.",
)


partition_option: Final = click.option(
    "-p", "--partition", type=click.IntRange(0), help="Read this partition only."
)


count_option: Final = click.option(
    "-n", "--limit", "--count", "count", type=click.IntRange(1), help="Stop after this many records."
)


def last_records_option(default: int) -> Callable[[_Command], _Command]:
    """Return the option ``--count`` of a command that reads the last records of each partition."""
    return click.option(
        "-n",
        "--limit",
        "--count",
        "count",
        type=click.IntRange(1),
        default=default,
        show_default=True,
        help="How many of the last records to read of each partition.",
    )


def config_option(
    text: str, *, envvar: str | None = CONFIG_VARIABLE, exists: bool = True, required: bool = False
) -> Callable[[_Command], _Command]:
    """Return the option ``--config``, the file of a chain; its help says which chain the command needs.

    With ``exists=False``, the command itself reports a file that does not exist.
    """
    return click.option(
        "-c",
        "--config",
        type=click.Path(exists=exists, dir_okay=False),
        envvar=envvar,
        required=required,
        help=text,
    )


def keyring_option(text: str, name: str = "keyring", **options: Any) -> Callable[[_Command], _Command]:
    """Return the option ``--keyring``, a file of keys; ``name`` is the parameter, ``options`` are click's."""
    options = {"type": click.Path(path_type=Path, dir_okay=False), **options}
    return click.option(
        "--keyring", name, envvar="HEADERWARE_KEYRING", show_envvar=True, help=text, **options
    )


def topic_name(text: str) -> str:
    """Return the name of a topic, as the type of an argument; raise UsageError for a chain's file."""
    if not (text.endswith(".toml") and Path(text).is_file()):
        return text
    takes_file = any("--config" in each.opts for each in click.get_current_context().command.params)
    hint = f"; did you mean -c {text}?" if takes_file else ""
    raise click.UsageError(f"expected a topic, found the file {text}{hint}")


def is_from_environment(name: str) -> bool:
    """Return whether a parameter of the running command has its value from an environment variable."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.ENVIRONMENT


def rate_option(verb: str) -> Callable[[_Command], _Command]:
    """Return the option ``--rate``; the verb says what is limited."""
    return click.option(
        "--rate",
        type=click.FloatRange(min=0, min_open=True),
        help=f"{verb} at most this many records a second.",
    )


def total_time_option(default: str) -> Callable[[_Command], _Command]:
    """Return the option ``--timeout`` of a command that limits all of its work."""
    return click.option(
        "--timeout",
        "timeout_s",
        type=Duration(),
        default=default,
        show_default=True,
        help="How long the command may take in all.",
    )
