"""spec/vectors/header-ids.json, read and written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headerware.core.errors import WireFormatError
from headerware.core.header_ids import HeaderId
from headerware.core.headers import Headers
from headerware.registry.wire.codec import Form, HeaderIdCodec

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "spec" / "vectors" / "header-ids.json").read_text(encoding="utf-8")
)
NAMES: dict[int, str] = {HeaderId(dotted): name for dotted, name in VECTORS["names"].items()}
IDS = {name: header_id for header_id, name in NAMES.items()}
FORMS = pytest.mark.parametrize("form", ["keys", "packed"])


def by_name(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", VECTORS[kind], ids=lambda case: case["name"])


def headers_of(pairs: list[tuple[str, str | None]]) -> Headers:
    return Headers([(name, None if text is None else bytes.fromhex(text)) for name, text in pairs])


def codec(form: Form = "packed") -> HeaderIdCodec:
    return HeaderIdCodec(IDS.get, NAMES.get, form=form)


class TestHeaderIdVectors:
    def test_covers_every_kind(self) -> None:
        assert {kind: len(VECTORS[kind]) for kind in ("cases", "read", "refused")} == {
            "cases": 20,
            "read": 12,
            "refused": 33,
        }

    @FORMS
    @by_name("cases")
    def test_writes_the_headers(self, case: dict[str, Any], form: Form) -> None:
        assert codec(form).encode(headers_of(case["headers"])) == headers_of(case[form])

    @FORMS
    @by_name("cases")
    def test_reads_the_headers(self, case: dict[str, Any], form: Form) -> None:
        assert codec().decode(headers_of(case[form])) == headers_of(case["headers"])

    @by_name("read")
    def test_reads_what_others_write(self, case: dict[str, Any]) -> None:
        assert codec().decode(headers_of(case["wire"])) == headers_of(case["headers"])

    @by_name("refused")
    def test_refuses(self, case: dict[str, Any]) -> None:
        with pytest.raises(WireFormatError, match=r"hw\.ids"):
            codec().decode(headers_of(case["wire"]))
