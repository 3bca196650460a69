from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import SourceError
from headerware.sources import IntegerKeys, KeySerde, TextKeys


@given(st.integers())
def test_integers_come_back(key: int) -> None:
    assert IntegerKeys().from_text(IntegerKeys().to_text(key)) == key


@given(st.text())
def test_text_comes_back(key: str) -> None:
    assert TextKeys().from_text(TextKeys().to_text(key)) == key


@pytest.mark.parametrize("text", ["", "01", "-0", "1.0", " 1", "\uff11", "x"])
def test_other_text_is_no_integer(text: str) -> None:
    with pytest.raises(SourceError, match="decimal digits"):
        IntegerKeys().from_text(text)


def test_both_are_key_serdes() -> None:
    assert isinstance(TextKeys(), KeySerde)
    assert isinstance(IntegerKeys(), KeySerde)
