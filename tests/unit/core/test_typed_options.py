"""The base of options that configuration names by a word."""

from __future__ import annotations

from typing import Any

import pytest

from headerware import ConfigError, Interceptor
from headerware.serdes import Serde
from headerware.sources import Extractor, Source, Transformer


@pytest.mark.parametrize("base", [Interceptor, Serde, Extractor, Source, Transformer])
def test_a_check_of_options_may_call_that_of_its_base(base: Any) -> None:
    class Checked(base, frozen=True, kw_only=True):  # type: ignore[misc, call-arg]  # any base
        size: int

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.size < 1:
                raise ConfigError(f"expected at least 1, found {self.size}", path="size")

    assert Checked(size=1).size == 1
    with pytest.raises(ConfigError):
        Checked(size=0)
