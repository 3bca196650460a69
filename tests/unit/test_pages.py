"""The generated parts of the pages are what the code and the bench say now."""

from __future__ import annotations

import re

import pytest

from headerware.core.plugins import interceptor_type
from tests.links import ROOT
from tests.pages import INTERCEPTORS, moved, written

PAGES = written()
HEADINGS = ["What it is for", "Twelve lines", "Options", "What others see", "What it costs"]


class TestPages:
    @pytest.mark.parametrize("page", PAGES)
    def test_are_up_to_date(self, page: str) -> None:
        assert (ROOT / page).read_text(encoding="utf-8") == PAGES[page], "run `make pages`"

    def test_of_interceptors_have_the_same_five_headings(self) -> None:
        for word in interceptor_type.built_in:
            found = re.findall(r"^#+ (.*)$", PAGES[f"{INTERCEPTORS}/{word}.md"], re.MULTILINE)
            assert found == [f"`{word}`", *HEADINGS], word


class TestMoved:
    @pytest.mark.parametrize(
        ("link", "found"),
        [
            ("[a](page.md)", "[a](../page.md)"),
            ("[a](../spec/wire.md#part)", "[a](../../spec/wire.md#part)"),
            ("[a](#part)", "[a](../here.md#part)"),
            ("[a](interceptors/sign.md)", "[a](sign.md)"),
            ("[a](https://example.org/x)", "[a](https://example.org/x)"),
        ],
    )
    def test_leads_to_the_same_place(self, link: str, found: str) -> None:
        assert moved(link, "docs/here.md", "docs/interceptors/there.md") == found
