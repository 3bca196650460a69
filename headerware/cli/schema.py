"""``headerware schema``: print the JSON Schema of a configuration file, for editors."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any, Final

import click

from headerware.cli.json_output import show_json
from headerware.cli.options import json_option
from headerware.core.json_schema import chain_schema, options_schema, values_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _source() -> dict[str, Any]:
    from headerware.sources.runtime.config import RunConfig  # noqa: PLC0415 - it takes a client

    return options_schema(RunConfig)


def _policy() -> dict[str, Any]:
    from headerware.interceptors.admission.policy import PolicyTable  # noqa: PLC0415 - slow to import

    return values_schema(PolicyTable)


def _prices() -> dict[str, Any]:
    from headerware.ops.chargeback.prices import Prices  # noqa: PLC0415 - it takes a client

    return values_schema(Prices)


def _rules() -> dict[str, Any]:
    from headerware.ops.retention.rules import RetentionRule  # noqa: PLC0415 - it takes a client

    return values_schema(RetentionRule)


SCHEMAS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "chain": chain_schema,
    "source": _source,
    "policy": _policy,
    "prices": _prices,
    "rules": _rules,
}
"""The schema of each kind of file: chains, sources, policies of admission, prices and rules of retention."""


@click.command()
@click.argument("kind", metavar="KIND", type=click.Choice(list(SCHEMAS)))
@click.option(
    "--output",
    type=click.File("w", encoding="utf-8", lazy=True, atomic=True),
    default="-",
    help="The file to write; without it, standard output.",
)
@json_option
def schema(kind: str, output: IO[str], as_json: bool) -> None:  # noqa: FBT001 - click passes flags by name
    """Print the JSON Schema of a configuration file, for editors.

    KIND is chain, source, policy (of admission), prices (of chargeback) or rules (of retention). The schema
    has the plug-ins that are installed here; print it again when you install another version or plug-in.
    """
    found = SCHEMAS[kind]()
    if as_json and output.name == "-":
        show_json(found)
        return
    output.write(json.dumps(found, indent=2) + "\n")
    if as_json:
        show_json({"output": output.name})
