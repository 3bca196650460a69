"""The Python packages that the bridge needs beside Spark, and which versions of them."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Final

import msgspec

from headerware.core.errors import MissingPartError
from headerware.core.extras import install_command


class Requirement(msgspec.Struct, frozen=True):
    """A package, the oldest version that works, and the first that is too new, if any is known."""

    name: str
    oldest: tuple[int, ...]
    too_new: tuple[int, ...] | None = None


REQUIREMENTS: Final = (
    Requirement("pyspark", (4, 0), (5,)),
    Requirement("pyarrow", (15,)),
    Requirement("pandas", (2, 2), (3,)),
)


def check_requirements() -> None:
    """Check that pyspark, pyarrow and pandas are here, in versions that work together.

    Raises:
        MissingPartError: one is missing, too old or too new; the message says which, and what to install.
    """
    for requirement in REQUIREMENTS:
        check(requirement)


def check(requirement: Requirement) -> None:
    """Check one package.

    Raises:
        MissingPartError: it is missing, too old or too new.
    """
    try:
        found = str(import_module(requirement.name).__version__)
    except (ImportError, AttributeError) as error:  # a folder of that name imports, but has no version
        message = f"{requirement.name} is missing, and the Spark bridge needs it: {install_command('spark')}"
        raise MissingPartError(message) from error
    version = numbers(found)
    too_new = requirement.too_new is not None and version >= requirement.too_new
    if too_new or version < requirement.oldest:
        message = (
            f"{requirement.name} {found} is too {'new' if too_new else 'old'}: "
            f"the Spark bridge needs {wanted(requirement)}: {install_command('spark')}"
        )
        raise MissingPartError(message)


def numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (4, 1, 0) for ``4.1.0.dev2``."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def wanted(requirement: Requirement) -> str:
    """Write the versions that work as pip does: ``pandas>=2.2,<3``."""
    oldest = ".".join(map(str, requirement.oldest))
    below = "" if requirement.too_new is None else ",<" + ".".join(map(str, requirement.too_new))
    return f"{requirement.name}>={oldest}{below}"
