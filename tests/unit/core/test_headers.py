"""Headers survive whatever an application calls headers, and nothing of the caller's is ever changed."""

from __future__ import annotations

import copy
import pickle
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any

import pytest

from headerware import HeaderError, Headers
from headerware.core.headers import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

NASTY: tuple[tuple[str, bytes | None], ...] = (
    ("a", b"1"),
    ("a", b"2"),
    ("", b"no name"),
    ("null", None),
    ("empty", b""),
    ("binary", b"\xff\x00\xfe"),
    ("a", b"1"),
)


class Names(str, Enum):  # noqa: UP042 - the older form, whose str() is not its value
    TENANT = "tenant"


class NewNames(StrEnum):
    TENANT = "tenant"


class Loud(bytes):
    __slots__ = ()

    def __bytes__(self) -> bytes:
        return b"something else"


class TestNormalisation:
    def test_keeps_order_duplicates_nulls_empties_and_bytes_that_are_no_text(self) -> None:
        assert tuple(Headers(NASTY)) == NASTY

    @pytest.mark.parametrize(
        "given",
        [
            {"a": b"1", "b": None},
            [("a", b"1"), ("b", None)],
            (("a", b"1"), ("b", None)),
            [["a", b"1"], ["b", None]],
            {"a": b"1", "b": None}.items(),
            Headers([("a", b"1"), ("b", None)]),
            Headers.builder([("a", b"1"), ("b", None)]),
        ],
    )
    def test_takes_every_form(self, given: Any) -> None:
        assert tuple(Headers(given)) == (("a", b"1"), ("b", None))

    def test_takes_a_generator(self) -> None:
        def pairs() -> Iterator[tuple[str, bytes]]:
            yield "a", b"1"
            yield "a", b"2"

        assert tuple(Headers(pairs())) == (("a", b"1"), ("a", b"2"))

    def test_none_is_no_headers(self) -> None:
        assert Headers(None) == EMPTY

    @pytest.mark.parametrize(
        "value", ["x\u00e9", bytearray(b"x\xc3\xa9"), memoryview(b"x\xc3\xa9"), b"x\xc3\xa9"]
    )
    def test_turns_text_and_buffers_into_bytes(self, value: Any) -> None:
        ((_, found),) = Headers([("a", value)])
        assert found == b"x\xc3\xa9"
        assert type(found) is bytes

    def test_a_subclass_of_bytes_becomes_plain_bytes_of_the_same_content(self) -> None:
        ((_, found),) = Headers([("a", Loud(b"content"))])
        assert (type(found), found) == (bytes, b"content")

    @pytest.mark.parametrize("name", [Names.TENANT, NewNames.TENANT])
    def test_a_name_from_an_enumeration_is_its_text(self, name: str) -> None:
        ((found, _),) = Headers([(name, b"")])
        assert (type(found), found) == (str, "tenant")

    def test_a_view_with_gaps_is_copied_in_order(self) -> None:
        assert Headers([("a", memoryview(b"a-b-c")[::2])]).last("a") == b"abc"

    def test_a_buffer_changed_later_does_not_change_the_header(self) -> None:
        buffer = bytearray(b"before")
        headers = Headers([("a", buffer)])
        buffer[:] = b"after!"
        assert headers.last("a") == b"before"

    @pytest.mark.parametrize("name", [b"a", None, 1.0, ("a",)])
    def test_refuses_a_name_that_is_no_text(self, name: Any) -> None:
        problem = f"the name of header 1 is a str or an id, not {type(name).__name__}"
        with pytest.raises(HeaderError, match=problem):
            Headers([("fine", b""), (name, b"v")])

    @pytest.mark.parametrize("value", [1, 1.5, True, object(), ["x"]])
    def test_refuses_a_value_of_another_type(self, value: Any) -> None:
        with pytest.raises(HeaderError, match=f"'a' is bytes, str or None, not {type(value).__name__}"):
            Headers({"a": value})

    @pytest.mark.parametrize("whole", ["ab", b"ab", bytearray(b"ab"), memoryview(b"ab"), 5, 1.5])
    def test_refuses_what_is_no_collection_of_pairs(self, whole: Any) -> None:
        with pytest.raises(HeaderError, match=f"not {type(whole).__name__}"):
            Headers(whole)

    def test_says_how_long_an_item_is_that_is_no_pair(self) -> None:
        with pytest.raises(HeaderError, match=r"found tuple of 3$"):
            Headers([("a", b"1", 3)])  # type: ignore[list-item]

    @pytest.mark.parametrize(
        "item", ["ab", b"ab", ("a",), ("a", b"1", 3), None, 7, {"a": 1, "b": 2}, {"a", "b"}]
    )
    def test_refuses_an_item_that_is_no_pair(self, item: Any) -> None:
        with pytest.raises(HeaderError, match=r"header 0: expected a \(name, value\) pair, found "):
            Headers([item])

    def test_refuses_text_without_utf8_and_does_not_quote_it(self) -> None:
        with pytest.raises(HeaderError, match="UTF-8") as caught:
            Headers({"a": "secret\ud800"})
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None

    def test_a_refusal_is_also_a_type_error_and_quotes_no_value(self) -> None:
        with pytest.raises(TypeError) as caught:
            Headers({"a": {"password": "hunter2"}})  # type: ignore[arg-type]
        assert "hunter2" not in str(caught.value)

    @pytest.mark.parametrize(
        "given", [[("a", "1"), ["b", bytearray(b"2")]], {"a": "1", "b": bytearray(b"2")}]
    )
    def test_never_changes_what_the_caller_gave(self, given: Any) -> None:
        before = copy.deepcopy(given)
        Headers(given).add("c", "3")
        assert given == before

    def test_headers_are_taken_as_they_are(self) -> None:
        headers = Headers(NASTY)
        assert Headers(headers) is headers


class TestChanges:
    def test_add_appends_and_leaves_the_original_alone(self) -> None:
        headers = Headers(NASTY)
        assert tuple(headers.add("a", "3")) == (*NASTY, ("a", b"3"))
        assert tuple(headers) == NASTY

    def test_append_takes_a_pair_as_it_is(self) -> None:
        assert tuple(Headers({"a": b"1"}).append(("a", None))) == (("a", b"1"), ("a", None))

    def test_put_leaves_one_of_its_name_at_the_end(self) -> None:
        assert Headers(NASTY).put("a", b"new").names() == ("", "null", "empty", "binary", "a")

    def test_remove_takes_all_of_a_name_and_no_other(self) -> None:
        assert Headers(NASTY).remove("a").names() == ("", "null", "empty", "binary")

    def test_remove_of_nothing_gives_itself(self) -> None:
        headers = Headers(NASTY)
        assert headers.remove("absent") is headers

    def test_keep_asks_for_each_name(self) -> None:
        assert Headers(NASTY).keep(lambda name: name in {"a", ""}).names() == ("a", "a", "", "a")

    def test_retain_latest_keeps_the_last_of_each_where_it_stood(self) -> None:
        assert tuple(Headers(NASTY).retain_latest()) == NASTY[2:]

    def test_adding_normalises_the_other_side(self) -> None:
        assert tuple(Headers({"a": b"1"}) + {"b": "2"}) == (("a", b"1"), ("b", b"2"))

    @pytest.mark.parametrize("times", [0, 2])
    def test_refuses_to_be_multiplied(self, times: int) -> None:
        with pytest.raises(HeaderError):
            Headers(NASTY) * times
        with pytest.raises(HeaderError):
            times * Headers(NASTY)

    @pytest.mark.parametrize("change", ["append", "add", "put"])
    def test_every_change_gives_headers(self, change: str) -> None:
        headers = Headers(NASTY)
        arguments = (("x", b""),) if change == "append" else ("x", b"")
        assert type(getattr(headers, change)(*arguments)) is Headers

    def test_cannot_be_assigned_to(self) -> None:
        with pytest.raises(TypeError):
            Headers(NASTY)[0] = ("x", b"")  # type: ignore[index]


class TestQuestions:
    def test_last_gives_the_last_of_a_name(self) -> None:
        assert Headers([("a", b"1"), ("a", b"2"), ("b", b"3")]).last("a") == b"2"

    def test_last_of_nothing_is_the_default(self) -> None:
        assert Headers(NASTY).last("absent") is None
        assert Headers(NASTY).last("absent", b"default") == b"default"

    def test_last_of_a_null_header_is_none_and_not_the_default(self) -> None:
        assert Headers(NASTY).last("null", b"default") is None

    def test_all_gives_every_value_in_order(self) -> None:
        assert Headers(NASTY).all("a") == (b"1", b"2", b"1")

    def test_contains_a_name_or_a_pair(self) -> None:
        headers = Headers(NASTY)
        assert "null" in headers
        assert Names.TENANT in Headers({"tenant": b""})
        assert ("null", None) in headers
        assert "absent" not in headers
        assert ("null", b"") not in headers

    def test_equality_minds_order(self) -> None:
        assert Headers(NASTY) == Headers(list(NASTY))
        assert Headers(NASTY) != Headers(reversed(NASTY))

    def test_is_hashable_and_true_only_where_there_is_something(self) -> None:
        assert len({Headers(NASTY), Headers(NASTY)}) == 1
        assert not Headers()

    def test_repr_shows_names_and_sizes_and_no_values(self) -> None:
        shown = repr(Headers([("token", b"secret"), ("none", None)]))
        assert shown == "Headers('token': 6, 'none': null)"

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_survives_pickling(self, protocol: int) -> None:
        loaded = pickle.loads(pickle.dumps(Headers(NASTY), protocol))  # noqa: S301 - our own bytes
        assert (type(loaded), tuple(loaded)) == (Headers, NASTY)

    def test_survives_deep_copying(self) -> None:
        assert copy.deepcopy(Headers(NASTY)) == Headers(NASTY)


class TestBuilder:
    def test_adds_and_removes_in_place(self) -> None:
        built = Headers.builder({"a": b"1"}).add("b", "2").add("a", None).remove("b").build()
        assert tuple(built) == (("a", b"1"), ("a", None))

    def test_retains_the_latest_in_place(self) -> None:
        builder = Headers.builder([("a", b"1"), ("b", None), ("a", b"2")])
        assert tuple(builder.retain_latest().add("c", "3").build()) == (("b", None), ("a", b"2"), ("c", b"3"))
        with pytest.raises(HeaderError):
            builder.retain_latest()

    def test_answers_while_it_is_open(self) -> None:
        builder = Headers.builder(NASTY)
        assert (len(builder), builder.last("a"), builder.all("a")) == (7, b"1", (b"1", b"2", b"1"))
        assert "null" in builder
        assert tuple(builder) == NASTY

    def test_goes_through_a_snapshot(self) -> None:
        builder = Headers.builder({"a": b"", "b": b""})
        for name, _ in builder:
            builder.remove(name)
        assert len(builder) == 0

    def test_is_frozen_after_build(self) -> None:
        builder = Headers.builder(NASTY)
        built = builder.build()
        with pytest.raises(HeaderError, match="built"):
            builder.add("x", b"")
        with pytest.raises(HeaderError, match="built"):
            builder.remove("a")
        assert tuple(built) == NASTY
        assert builder.build() == built

    def test_checks_what_it_adds(self) -> None:
        with pytest.raises(HeaderError):
            Headers.builder().add("a", 5)  # type: ignore[arg-type]

    def test_leaves_the_list_that_it_was_opened_from_alone(self) -> None:
        mine = [("a", b"1")]
        Headers.builder(mine).add("b", b"2")
        assert mine == [("a", b"1")]
