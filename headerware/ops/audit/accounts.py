"""Accounts of the guard: it writes one as JSON in each transaction, with the number of records decided.

A consumer that reads only committed records therefore gets the account of each transaction exactly once, and
the sum of all accounts is complete.
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
    """How many records of a topic had the same verdict.

    Args:
        topic: the ingress topic.
        verdict: the verdict.
        reason: for refused records, the step that refused them and the error's class; else None.
        count: the number of records; each slice of a message counts as one.
        bytes: the size of the records, as chargeback counts it.
    """

    topic: str
    verdict: Literal["admitted", "refused", "dropped"]
    reason: str | None
    count: Annotated[int, msgspec.Meta(ge=0)]
    bytes: Annotated[int, msgspec.Meta(ge=0)]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The offset up to which a transaction decided about the records of a partition."""

    topic: str
    partition: int
    offset: int


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """The account of one transaction of a guard.

    Args:
        version: the version of this format.
        worker: ``guard``.
        group: the guard's consumer group.
        instance: the guard's process.
        at_ms: the time of the transaction, in milliseconds since the epoch.
        records: the numbers of records by topic and verdict.
        done: the offsets up to which partitions are decided.
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
    """Decode an account.

    Raises:
        WireFormatError: the value is not an account, or is an account of another version.
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
    """Return the records that guards read from their ingress topics, as rows of usage by hour.

    Refused and dropped records were read too, and count.
    """
    return audited_reads(
        (each.topic, account.group, account.at_ms, each.count, each.bytes)
        for account in accounts
        for each in account.records
    )
