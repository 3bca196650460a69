"""Findings of the doctor: the result of each check."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Status = Literal["ok", "warn", "fail", "unknown"]
Side = Literal["producer", "consumer"]
SIDES: Final[tuple[Side, Side]] = ("producer", "consumer")
ABSENT: Final = "does not exist, or this user may not see it"
"""What is found of a topic that is not there."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check.

    Args:
        check: the name of the check, such as ``topic orders: size``.
        status: ``ok``; ``warn`` if something may go wrong; ``fail`` if something cannot work; ``unknown`` if
            the check could not be made.
        found: the state that was found.
        advice: what the user should do; None if there is nothing to do.
    """

    check: str
    status: Status
    found: str
    advice: str | None = None


def ok(check: str, found: str) -> Finding:
    return Finding(check=check, status="ok", found=found)


def absent(topic: str) -> Finding:
    return fail(f"topic {topic}", ABSENT, "create the topic, or grant DESCRIBE on it")


def fail(check: str, found: str, advice: str | None = None) -> Finding:
    return Finding(check=check, status="fail", found=found, advice=advice)
