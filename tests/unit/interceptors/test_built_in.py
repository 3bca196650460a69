"""The tables of interceptors and headers agree with the classes."""

from __future__ import annotations

import pytest

from headerware.core.plugins import interceptor_type
from headerware.interceptors.built_in import HEADERS, INTERCEPTORS


@pytest.mark.parametrize(("header", "word"), list(HEADERS.encodings.items()))
def test_the_interceptor_that_a_hint_names_decodes_the_header(header: str, word: str) -> None:
    assert header in interceptor_type(word).decodes


def test_one_interceptor_writes_ids() -> None:
    assert [word for word in INTERCEPTORS if interceptor_type(word).writes_ids] == [HEADERS.ids_interceptor]
