from __future__ import annotations

import pytest

from headerware.registry.wire.compact_keys import compact_key, escape, id_of_key, unescape

KEYS = pytest.mark.parametrize(
    ("header_id", "key"),
    [
        (1, "~B"),
        (25, "~Z"),
        (26, "~a"),
        (52, "~0"),
        (62, "~-"),
        (63, "~_"),
        (64, "~BA"),
        (0x0A000007, "~KAAAH"),
        (2**32 - 1, "~D_____"),
    ],
)


class TestCompactKey:
    @KEYS
    def test_writes_the_fewest_digits(self, header_id: int, key: str) -> None:
        assert compact_key(header_id) == key

    @pytest.mark.parametrize("header_id", [-1, 0, 2**32])
    def test_refuses_what_is_no_id(self, header_id: int) -> None:
        with pytest.raises(ValueError, match=f"from 1 to 4294967295, found {header_id}"):
            compact_key(header_id)


class TestIdOfKey:
    @KEYS
    def test_reads_what_is_written(self, header_id: int, key: str) -> None:
        assert id_of_key(key) == header_id

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "B",
            "~",
            "~A",
            "~AB",
            "~~B",
            "~EAAAAA",
            "~______",
            "~BAAAAAA",
            "~B ",
            " ~B",
            "~B\n",
            "~ß",
            "~B=",
        ],
    )
    def test_takes_other_names_for_names(self, name: str) -> None:
        assert id_of_key(name) is None

    def test_is_not_slowed_down_by_a_long_name(self) -> None:
        assert id_of_key("~" + "B" * 1_000_000) is None


class TestEscape:
    @pytest.mark.parametrize(
        ("name", "wire"),
        [("", ""), ("a", "a"), ("a~", "a~"), ("~", "~~"), ("~~", "~~~"), ("~Kq", "~~Kq"), ("größe", "größe")],
    )
    def test_marks_what_begins_with_the_marker(self, name: str, wire: str) -> None:
        assert escape(name) == wire
        assert unescape(wire) == name
        assert id_of_key(wire) is None

    def test_leaves_a_single_marker_as_it_is(self) -> None:
        assert (unescape("~"), unescape("~!")) == ("~", "~!")
