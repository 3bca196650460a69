"""spec/vectors/slice.json, read and written."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.context import Context
from headerware.core.errors import ReassemblyError, WireFormatError
from headerware.core.headers import Headers
from headerware.core.hooks import FanOut
from headerware.core.record import Record
from headerware.interceptors.slice import Slice
from headerware.interceptors.slice.header import SLICE_HEADER, SliceHeader

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "slice.json").read_text(encoding="utf-8")
)


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def header_of(case: dict[str, Any]) -> SliceHeader:
    return SliceHeader(
        bytes.fromhex(case["message_id"]),
        case["index"],
        case["count"],
        case["total_bytes"],
        case["slice_bytes"],
    )


def slices_of(case: dict[str, Any]) -> list[Record]:
    return [
        Record("t", bytes.fromhex(one["value_hex"]), headers=Headers([(SLICE_HEADER, one["wire"].encode())]))
        for one in case["slices"]
    ]


class TestSliceVectors:
    def test_covers_every_kind(self) -> None:
        assert {kind: len(VECTORS[kind]) for kind in ("cases", "messages", "refused")} == {
            "cases": 9,
            "messages": 3,
            "refused": 19,
        }

    @by_name("cases")
    def test_writes_the_bytes(self, case: dict[str, Any]) -> None:
        assert header_of(case).encode().decode() == case["wire"]

    @by_name("cases")
    def test_the_bytes_are_the_layout_as_base64(self, case: dict[str, Any]) -> None:
        assert base64.b64encode(bytes.fromhex(case["layout_hex"])).decode() == case["wire"]

    @by_name("cases")
    def test_reads_the_bytes(self, case: dict[str, Any]) -> None:
        header = SliceHeader.decode(case["wire"].encode())
        assert header == header_of(case)
        assert header.payload_bytes == case["payload_bytes"]

    @by_name("messages")
    def test_cuts_the_message(self, case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.urandom", lambda size: bytes.fromhex(case["message_id"])[:size])
        # 1,015 bytes less 97 of framing and 70 of hw.slice leave the 848 of the vectors.
        pieces = Slice(max_bytes=1_015).open(Context()).on_send(Record("t", bytes.fromhex(case["value_hex"])))
        assert isinstance(pieces, FanOut)
        assert [(piece.headers, piece.value) for piece in pieces] == [
            (one.headers, one.value) for one in slices_of(case)
        ]

    @by_name("messages")
    def test_glues_the_message(self, case: dict[str, Any]) -> None:
        step = Slice().open(Context())
        given = [step.on_consume(piece) for piece in slices_of(case)]
        assert given[:-1] == [[]] * (len(given) - 1)
        assert given[-1] == [Record("t", bytes.fromhex(case["value_hex"]))]

    @by_name("refused")
    def test_refuses(self, case: dict[str, Any]) -> None:
        with pytest.raises(WireFormatError):
            SliceHeader.decode(case["wire"].encode())

    @by_name("refused")
    def test_refuses_on_consume(self, case: dict[str, Any]) -> None:
        step = Slice().open(Context())
        headers = Headers([(SLICE_HEADER, case["wire"].encode())])
        with pytest.raises(ReassemblyError):
            step.on_consume(Record("t", b"x" * 1_000, headers=headers, partition=0, offset=1))
