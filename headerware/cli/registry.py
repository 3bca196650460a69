"""``headerware registry``: who owns which header ids, and what they stand for.

Exit codes: 0 done; 1 the answer is no, or the registry refuses; 2 the command was used wrongly.
"""

from __future__ import annotations

import click

from headerware.cli.registry_changes import block, init, register, retire
from headerware.cli.registry_checks import check, diff_registries, export
from headerware.cli.registry_lookup import list_entries, lookup
from headerware.cli.registry_options import RegistryGroup


@click.group(cls=RegistryGroup)
def registry() -> None:
    """Register ids for header names, and look them up."""


for _command in (init, block, register, lookup, list_entries, retire, check, diff_registries, export):
    registry.add_command(_command)
