"""Options with their documentation."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest

from headerware.core.option_docs import OptionDoc, option_docs, summary
from headerware.core.options import PATH, kinds, path_unless
from headerware.core.plugins import Catalogue, interceptor_type
from headerware.core.typed_options import TypedOptions
from headerware.interceptors.admission.policy import Issuer, Quota, Rule
from headerware.ops.chargeback.prices import Prices, Rates, TopicRates
from headerware.ops.retention.rules import Lifetime, RetentionRule
from headerware.serdes.plugins import serde_type
from headerware.sources.extractor import extractor_type
from headerware.sources.runtime.config import RunConfig
from headerware.sources.source import source_type


class Storage(TypedOptions, frozen=True, kw_only=True):
    """A storage.

    Args:
        depth: how deep.
    """

    type: ClassVar[str] = "storage"
    depth: int = 3


storage_type: Catalogue[Storage] = Catalogue("storage type", Storage, {"storage": f"{__name__}:Storage"})


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what all have.

    Args:
        name: the name,
            on two lines; ``None`` means none.
    """

    name: str | None = None


class Example(Base, frozen=True, kw_only=True):
    """Do something with a :class:`Record`, and ``hw.trail``.

    More text.

    Args:
        mode: how: ``fast`` or ``slow``.
        count: how many.
        store: where.

    Raises:
        ConfigError: never.
    """

    mode: Literal["fast", "slow"]
    count: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 10
    store: Annotated[Any, kinds(storage_type)] = Storage()
    words: tuple[str, ...] = ("a", "b")


def docs(kind: type[msgspec.Struct]) -> dict[str, OptionDoc]:
    return {each.name: each for each in option_docs(kind)}


class TestOptionDocs:
    def test_has_the_options_of_bases_first(self) -> None:
        assert [each.name for each in option_docs(Example)] == ["name", "mode", "count", "store", "words"]

    def test_has_texts_in_markdown_on_one_line(self) -> None:
        assert docs(Example)["name"].text == "The name, on two lines; `None` means none."
        assert docs(Example)["mode"].text == "How: `fast` or `slow`."

    def test_an_option_without_a_text_has_an_empty_one(self) -> None:
        assert not docs(Example)["words"].text

    def test_says_which_are_required(self) -> None:
        assert [each.name for each in option_docs(Example) if each.required] == ["mode"]

    def test_has_defaults_as_plain_values(self) -> None:
        found = {each.name: each.default for each in option_docs(Example)}
        assert found == {"name": None, "mode": None, "count": 10, "store": "storage", "words": ["a", "b"]}

    def test_a_default_object_with_options_is_a_table(self) -> None:
        class Deep(msgspec.Struct):
            store: Annotated[Any, kinds(storage_type)] = Storage(depth=5)

        assert docs(Deep)["store"].default == {"type": "storage", "depth": 5}

    @pytest.mark.parametrize(
        ("hint", "words"),
        [
            (str, "text"),
            (bool | None, "true or false"),
            (Decimal, "number"),
            (Any, "any value"),
            (str | int | None, "text or whole number"),
            (Literal["a", "b", "c"], "`a`, `b` or `c`"),
            (Literal["a", "b", "true", "false"] | bool, "`a`, `b` or true or false"),
            (tuple[Annotated[str, msgspec.Meta(min_length=1)], ...], "list of text, not empty"),
            (dict[str, Any], "table"),
            (dict[str, int], "table of whole number"),
            (Storage, "table"),
            (Annotated[str | None, PATH], "path"),
            (Annotated[str, path_unless(str.isupper)], "path or text"),
            (dict[str, Annotated[Any, kinds(storage_type)]], "table of storage"),
            (Annotated[int, msgspec.Meta(ge=1, le=65_535)] | None, "whole number, 1 to 65,535"),
            (Annotated[float, msgspec.Meta(ge=0, lt=1)], "number, at least 0 and below 1"),
            (Annotated[str, msgspec.Meta(max_length=3)], "text, with a length of at most 3"),
        ],
    )
    def test_has_types_in_words(self, hint: Any, words: str) -> None:
        assert docs(msgspec.defstruct("Made", [("option", hint)]))["option"].type == words

    @pytest.mark.parametrize(
        "kind",
        [
            *(interceptor_type(word) for word in interceptor_type.built_in),
            *(serde_type(word) for word in serde_type.built_in),
            *(source_type(word) for word in source_type.built_in),
            *(extractor_type(word) for word in extractor_type.built_in),
            *(RunConfig, Issuer, Rule, Quota, Prices, Rates, TopicRates, RetentionRule, Lifetime),
        ],
    )
    def test_all_of_ours_have_texts(self, kind: type[msgspec.Struct]) -> None:
        assert [each.name for each in option_docs(kind) if not each.text] == []


def test_summary_is_the_first_paragraph_in_markdown() -> None:
    assert summary(Example) == "Do something with a `Record`, and `hw.trail`."
