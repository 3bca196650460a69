"""spec/vectors/audit.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headerware.core.errors import WireFormatError
from headerware.interceptors.audit import AuditCount, decode_report

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "audit.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


@by_name("reports")
def test_a_report_is_read_as_it_says(case: dict[str, Any]) -> None:
    report = decode_report(case["value"].encode())
    assert [report.sequence, report.side, report.last, report.left_out] == [
        case[name] for name in ("sequence", "side", "last", "left_out")
    ]
    assert report.counts == tuple(msgspec.convert(count, AuditCount) for count in case["counts"])


@by_name("reports")
def test_a_report_is_written_so(case: dict[str, Any]) -> None:
    assert msgspec.json.encode(decode_report(case["value"].encode())).decode() == case["value"]


@by_name("refused")
def test_what_is_no_report_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(WireFormatError):
        decode_report(case["value"].encode())
