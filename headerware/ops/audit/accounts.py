"""What the guard tells about each of its transactions: an account, as JSON, in the same transaction.

So a reader that sees committed records only sees the account of each transaction once, and the sum of all
accounts is what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal

import msgspec

from headerware.core.errors import WireFormatError
from headerware.core.printable import without_values
from headerware.ops.chargeback.usage import Usage, audited_reads

VERSION: Final = 1
GUARD: Final = "guard"


class Verdicts(msgspec.Struct, frozen=True, kw_only=True):
    """How many records of a topic were judged alike.

    Args:
        topic: the ingress topic.
        verdict: what was decided.
        reason: the step that refused them, and its error's class; None for others.
        count: how many records, each slice of a message being one.
        bytes: their size, as chargeback counts it.
    """

    topic: str
    verdict: Literal["admitted", "refused", "dropped"]
    reason: str | None
    count: Annotated[int, msgspec.Meta(ge=0)]
    bytes: Annotated[int, msgspec.Meta(ge=0)]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """Up to which offset a partition was decided with a transaction."""

    topic: str
    partition: int
    offset: int


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """What one transaction of a guard did.

    Args:
        version: the version of this format.
        worker: ``guard``.
        group: its consumer group.
        instance: the process.
        at_ms: when, in milliseconds since the epoch.
        records: what was decided.
        done: up to where.
    """

    version: int = VERSION
    worker: Literal["guard"] = GUARD
    group: str
    instance: str
    at_ms: int
    records: tuple[Verdicts, ...]
    done: tuple[Done, ...]

    def encode(self) -> bytes:
        """Return the account as JSON."""
        return msgspec.json.encode(self)


_decoder: Final = msgspec.json.Decoder(Account)


def decode_account(value: bytes | None) -> Account:
    """Read an account.

    Raises:
        WireFormatError: it is none, or of another version.
    """
    try:
        account = _decoder.decode(value or b"")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        problem = without_values(error)
        raise WireFormatError(f"expected an account of a guard, found something else: {problem}") from None
    if account.version != VERSION:
        raise WireFormatError(
            f"expected an account of a guard of version {VERSION}, found version {account.version}"
        )
    return account


def account_usage(accounts: Iterable[Account]) -> Iterator[Usage]:
    """Return what guards read of their ingress topics, as rows of usage, by the hour in which they did.

    What was refused or dropped was read, too.
    """
    return audited_reads(
        (each.topic, account.group, account.at_ms, each.count, each.bytes)
        for account in accounts
        for each in account.records
    )
