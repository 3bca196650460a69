from __future__ import annotations

import pickle
from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware import HeaderError, HeaderId, Headers
from headerware.core.header_ids import MAX_ID, header_name, parse_id, use_names

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def names() -> Iterator[None]:
    """Call one id by a name, and know no other."""
    before = use_names({7: "seven"}.get)
    yield
    use_names(before)


class TestHeaderId:
    @pytest.mark.parametrize(
        ("number", "dotted"),
        [(1, "0.0.0.1"), (7, "0.0.0.7"), (0x0A000001, "10.0.0.1"), (MAX_ID, "255.255.255.255")],
    )
    def test_is_a_number_and_a_dotted_text(self, number: int, dotted: str) -> None:
        assert HeaderId(number) == HeaderId(dotted) == number
        assert str(HeaderId(number)) == dotted
        assert repr(HeaderId(number)) == f"HeaderId('{dotted}')"

    @given(st.integers(0, MAX_ID))
    def test_every_number_comes_back_from_its_text(self, number: int) -> None:
        assert parse_id(str(HeaderId(number))) == number

    def test_is_an_address_of_a_block(self) -> None:
        assert HeaderId(IPv4Network("10.1.0.0/16")[5]) == HeaderId("10.1.0.5")

    def test_is_copied_by_pickle(self) -> None:
        copied = pickle.loads(pickle.dumps(HeaderId("10.0.0.1")))  # noqa: S301 - our own
        assert (copied, type(copied)) == (HeaderId("10.0.0.1"), HeaderId)

    @pytest.mark.parametrize("number", [-1, MAX_ID + 1])
    def test_refuses_a_number_that_does_not_fit(self, number: int) -> None:
        with pytest.raises(HeaderError, match=f"from 0 to {MAX_ID}, found {number}"):
            HeaderId(number)

    @pytest.mark.parametrize("value", [True, None, 1.0, b"1"])
    def test_refuses_what_is_no_number(self, value: Any) -> None:
        with pytest.raises(HeaderError, match=f"found {type(value).__name__}"):
            HeaderId(value)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "1",
            "1.2.3",
            "1.2.3.4.5",
            "01.2.3.4",
            "256.0.0.1",
            "1.2.3.-4",
            " 1.2.3.4",
            "1.2.3.4\n",
            "a.b.c.d",
            "٣.1.1.1",
        ],
    )
    def test_refuses_what_is_not_the_one_dotted_form(self, text: str) -> None:
        assert parse_id(text) is None
        with pytest.raises(HeaderError, match="expected a header id such as"):
            HeaderId(text)


@pytest.mark.usefixtures("names")
class TestHeaderName:
    @pytest.mark.parametrize("given", [7, HeaderId(7), "0.0.0.7", "seven"])
    def test_a_number_its_text_and_its_name_are_one(self, given: Any) -> None:
        assert header_name(given) == "seven"

    @pytest.mark.parametrize("given", [8, "0.0.0.8"])
    def test_an_unknown_id_is_called_by_its_dotted_form(self, given: Any) -> None:
        assert header_name(given) == "0.0.0.8"

    def test_a_name_stays_itself(self) -> None:
        assert header_name("0.0.0.08") == "0.0.0.08"

    def test_what_is_neither_is_refused(self) -> None:
        with pytest.raises(HeaderError, match="a header's name or its id, found bytes"):
            header_name(b"seven")  # type: ignore[arg-type]


@pytest.mark.usefixtures("names")
class TestHeadersTakeIds:
    @pytest.fixture
    def headers(self, names: None) -> Headers:
        return Headers([("a", b"1"), (7, b"2"), (HeaderId(9), b"3")])

    def test_they_become_names(self, headers: Headers) -> None:
        assert Headers([("a", b"1"), ("seven", b"2"), ("0.0.0.9", b"3")]) == headers
        assert Headers({7: "2"}) == Headers({"seven": b"2"})

    def test_look_ups(self, headers: Headers) -> None:
        assert headers.last(7) == b"2"
        assert headers.all(9) == (b"3",)
        assert 7 in headers
        assert 8 not in headers

    def test_changes(self, headers: Headers) -> None:
        assert Headers().add(7, b"x") == Headers({"seven": b"x"})
        assert Headers({"seven": b"1"}).put(7, b"2") == Headers({"seven": b"2"})
        assert headers.remove(7).names() == ("a", "0.0.0.9")

    def test_the_builder(self) -> None:
        builder = Headers.builder({"a": b""}).add(7, b"1").add(9, b"2")
        assert builder.last(7) == b"1"
        assert builder.all(9) == (b"2",)
        assert 7 in builder
        assert builder.remove(7).build().names() == ("a", "0.0.0.9")

    @pytest.mark.parametrize("name", [-1, MAX_ID + 1, True])
    def test_a_wrong_one_is_refused(self, name: Any) -> None:
        with pytest.raises(HeaderError, match="expected a header"):
            Headers([(name, b"")])
