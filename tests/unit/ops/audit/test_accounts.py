from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from headerware.core.errors import WireFormatError
from headerware.ops.audit import Account, account_usage, decode_account
from headerware.ops.audit.accounts import Done, Verdicts
from headerware.ops.chargeback import Usage
from headerware.ops.guard.judge import Verdict

NINE = datetime(2026, 1, 31, 9, tzinfo=UTC)
HOUR_MS = 3_600_000


def account(at_ms: int, *counts: int) -> Account:
    verdicts: tuple[Verdict, ...] = ("admitted", "refused", "dropped")
    return Account(
        group="guard",
        instance="a",
        at_ms=at_ms,
        records=tuple(
            Verdicts(topic="ingress", verdict=verdict, reason=None, count=count, bytes=100 * count)
            for verdict, count in zip(verdicts, counts, strict=False)
        ),
        done=(Done(topic="ingress", partition=0, offset=9),),
    )


class TestAccount:
    def test_travels_as_json(self) -> None:
        made = account(5, 3, 1)
        assert decode_account(made.encode()) == made
        assert msgspec.json.decode(made.encode())["records"][0] == {
            "topic": "ingress",
            "verdict": "admitted",
            "reason": None,
            "count": 3,
            "bytes": 300,
        }

    @pytest.mark.parametrize(
        "value",
        [
            None,
            b"",
            b"\xff",
            b'{"worker": "compact"}',
            b"[" * 100_000,
            msgspec.structs.replace(account(5), version=2).encode(),
            account(5, -3).encode(),
        ],
    )
    def test_is_told_from_other_records(self, value: bytes | None) -> None:
        with pytest.raises(WireFormatError, match="expected an account of a guard"):
            decode_account(value)

    def test_is_usage_by_the_hour_in_which_records_were_judged(self) -> None:
        at_ms = int(NINE.timestamp() * 1_000)
        read = [account(at_ms, 3, 1), account(at_ms + HOUR_MS - 1, 2), account(at_ms + HOUR_MS, 1)]
        assert [(row.hour, row.group, row.records, row.bytes) for row in account_usage(read)] == [
            (NINE, "guard", 6, 600),
            (NINE.replace(hour=10), "guard", 1, 100),
        ]
        (row,) = account_usage([account(-5, 1)])
        assert row == Usage(
            hour=datetime(1970, 1, 1, tzinfo=UTC),
            topic="ingress",
            direction="out",
            group="guard",
            records=1,
            bytes=100,
            source="audit",
        )
