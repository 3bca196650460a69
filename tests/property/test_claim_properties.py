"""Claims: what is written is read again, and nothing else is."""

from __future__ import annotations

import base64
import contextlib
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware import ClaimError, Context
from headerware.core.errors import WireFormatError
from headerware.core.headers import Headers
from headerware.core.record import Record
from headerware.interceptors import Claim, ClaimCheck, decode_claim
from headerware.interceptors.claim_check import CLAIM_HEADER, STUB
from headerware.object_store import FolderObjects

aliases = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True)
topics = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in {".", ".."})
claims = st.builds(
    Claim,
    aliases,
    topics,
    st.binary(min_size=16, max_size=16),
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**64 - 1),
)
layouts = st.binary(max_size=400) | st.binary(max_size=343).map(lambda rest: b"\x01" + rest)
headers = layouts.map(base64.b64encode) | st.binary(max_size=500)
changes = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=3)
PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+/[0-9a-f]{32}")


@given(claims)
def test_claims_come_back(claim: Claim) -> None:
    assert decode_claim(claim.encode()) == claim


@given(headers)
def test_garbage_is_refused_or_is_a_claim_in_its_one_spelling(text: bytes) -> None:
    with contextlib.suppress(WireFormatError):
        claim = decode_claim(text)
        assert claim.encode() == text
        assert PLAIN_NAME.fullmatch(claim.name)


@given(claims, changes)
def test_a_changed_claim_never_leaves_the_store(claim: Claim, changed: list[tuple[int, int]]) -> None:
    layout = bytearray(base64.b64decode(claim.encode()))
    for at, byte in changed:
        layout[at % len(layout)] = byte
    with contextlib.suppress(WireFormatError):
        name = decode_claim(base64.b64encode(layout)).name
        assert PLAIN_NAME.fullmatch(name)
        assert name.partition("/")[0] not in {".", ".."}


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("claims")
    with closing(ClaimCheck(stores={"archive": FolderObjects(path=str(folder))}).open(Context())) as opened:
        yield opened


@given(st.lists(headers, max_size=2), st.none() | st.just(STUB) | st.binary(max_size=100))
def test_no_record_that_nobody_sent_gives_a_value_or_another_error(
    step: Any, texts: list[bytes], value: bytes | None
) -> None:
    record = Record("orders", value, headers=Headers([(CLAIM_HEADER, text) for text in texts]))
    if not texts and value != STUB:
        assert step.on_consume(record) is record
    else:
        with pytest.raises(ClaimError):
            step.on_consume(record)
