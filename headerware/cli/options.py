"""Options that several commands have, with one type and one text each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from headerware.cli.times import LONGEST_ANSWER_S, Duration

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


def config_option(
    text: str, *, required: bool = False, exists: bool = True
) -> Callable[[_Command], _Command]:
    """Return the option ``--config``, the file of a chain; its help says which chain the command needs.

    With ``exists=False``, the command itself reports a file that does not exist.
    """
    return click.option(
        "--config",
        type=click.Path(exists=exists, dir_okay=False),
        envvar="HEADERWARE_CONFIG",
        required=required,
        help=text,
    )


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
