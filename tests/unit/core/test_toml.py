"""The lines and columns of errors in TOML files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headerware.core.errors import ConfigError
from headerware.core.toml import naming_lines, parse_toml, position_of, positions, read_toml, within_file

DOCUMENT = '''\
# a comment with [brackets] = "and more"
include = ["a.toml",  # the first
  "b.toml"]
"dotted.key" = 1
text = """
[[interceptors]]
not = "a key" \\"""
"""""
literal = \'\'\'it's\'\'\'

[[interceptors]]
type = "sign"
  key_id = 'x'   # indented
store.path = "p"

[[interceptors]]
type = "trail"
stores = { main = { type = "folder" }, "other one" = [1, { a = 2 }] }

[[stacks.secure.interceptors]]
type = "sign"
[stacks."a.b"]
at = 2026-01-31 17:30:00
[[interceptors]]
name = "a.b"
type = "slice"
[interceptors.topics]
a = 1
'''

BACKSLASH = "in \"...\" a backslash begins an escape; write '...' instead, or a path with forward slashes"
KEYRING = "it is JSON with keys, as a keyring; the option keyring of an interceptor names such a file"


class TestPositionOf:
    @pytest.mark.parametrize(
        ("place", "expected"),
        [
            ("include", (2, 1)),
            ("include[0]", (2, 12)),
            ("include[1]", (3, 3)),
            ("dotted.key", (4, 1)),
            ("text", (5, 1)),
            ("literal", (9, 1)),
            ("interceptors", (11, 1)),
            ("interceptors[0] (sign)", (11, 1)),
            ("interceptors[0] (sign).key_id", (13, 3)),
            ("interceptors[0] (sign).store.path", (14, 1)),
            ("interceptors[0] (sign).keyring", (11, 1)),
            ("interceptors[1] (trail).stores.main.type", (18, 21)),
            ("interceptors[1] (trail).stores.other one[1].a", (18, 60)),
            ("interceptors[1] (trail).stores.nothing.type", (18, 1)),
            ("interceptors[2] (a.b)", (24, 1)),
            ("interceptors[2] (a.b).topics.a", (28, 1)),
            ("interceptors[2] (a.b).topics[...]", (27, 1)),
            ("interceptors[7]", (11, 1)),
            ("stacks.secure: interceptors[0] (sign).type", (21, 1)),
            ("stacks.a.b", (22, 1)),
            ("stacks.a.b.at", (23, 1)),
            ("nothing", (1, 1)),
        ],
    )
    def test_is_that_of_the_option_or_of_its_table(self, place: str, expected: tuple[int, int]) -> None:
        assert position_of(DOCUMENT, place) == expected

    def test_counts_lines_that_end_as_in_windows(self) -> None:
        assert position_of("a = 1\r\n\r\n  b = 2\r\n", "b") == (3, 3)


class TestPositions:
    def test_are_those_of_all_keys_and_items(self) -> None:
        assert set(positions(DOCUMENT)) == paths(tomllib.loads(DOCUMENT))

    @given(st.data())
    def test_are_those_of_what_tomllib_reads(self, data: st.DataObject) -> None:
        text, expected = data.draw(documents())
        document = tomllib.loads(text)
        assert document == expected
        found = positions(text)
        assert set(found) == paths(document)
        lines = text.split("\n")
        for path, (line, column) in found.items():
            rest = lines[line - 1][column - 1 :]
            assert rest
            assert not rest[0].isspace()
            if isinstance(path[-1], str) and not rest.startswith("["):
                (key,) = tomllib.loads(f"{rest.partition('=')[0]}=0") if "=" not in path[-1] else path[-1:]
                assert key in path

    @given(st.text(alphabet="[]{}=,.\"'\\#ab1 \n\r\t", max_size=40))
    def test_are_found_in_whatever_is_toml(self, text: str) -> None:
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return
        assert set(positions(text)) == paths(document)


def paths(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """Return the path of each key and each item."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {(*path, step): each for step, each in items}
    return set(found).union(*(paths(each, deeper) for deeper, each in found.items()))


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


TEXTS = st.text(alphabet="ab[]{}=,.#'\"\\ \n\té", max_size=6)
KEYS = st.one_of(st.from_regex(r"[a-c1_-]{1,3}", fullmatch=True), TEXTS)


@st.composite
def written(draw: st.DrawFn, value: Any) -> str:
    """Return a value as TOML, in one of the forms that it may have."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        forms = [quoted(value)]
        if "'" not in value and "\n" not in value:
            forms += [f"'{value}'", f"'''{value}'''"]
        if '"' not in value and "\\" not in value:
            forms.append(f'"""\n{value}"""')
        return draw(st.sampled_from(forms))
    if isinstance(value, list):
        gap = draw(st.sampled_from(["", " ", "\n", " # ] , [ \n  "]))
        return f"[{gap}{f',{gap}'.join(draw(written(each)) for each in value)}{gap}]"
    if isinstance(value, dict):
        pairs = [f"{draw(key(name))} = {draw(written(each))}" for name, each in value.items()]
        return f"{{ {', '.join(pairs)} }}"
    return str(value)


@st.composite
def key(draw: st.DrawFn, name: str) -> str:
    bare = name != "" and all(each.isascii() and (each.isalnum() or each in "_-") for each in name)
    forms = [quoted(name)]
    if bare:
        forms.append(name)
    if "'" not in name and "\n" not in name:
        forms.append(f"'{name}'")
    return draw(st.sampled_from(forms))


VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(-99, 99), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=3)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Return a document with pairs, tables and arrays of tables, and its value."""
    names = draw(st.lists(KEYS, unique=True, max_size=5))
    lines: list[str] = []
    expected: dict[str, Any] = {}
    for name in names[:2]:
        expected[name] = draw(VALUES)
        indent = draw(st.sampled_from(["", "  "]))
        lines.append(f"{indent}{draw(key(name))} = {draw(written(expected[name]))}  # [comment]")
    for name in names[2:]:
        tables = draw(st.lists(TABLES, min_size=1, max_size=3))
        single = draw(st.booleans())
        expected[name] = tables[0] if single else tables
        for table in tables[:1] if single else tables:
            header = draw(key(name))
            lines.append(f"[{header}]" if single else f"[[ {header} ]]")
            lines += [f"{draw(key(each))}={draw(written(value))}" for each, value in table.items()]
    return "\n".join(lines), expected


class TestReadToml:
    def test_takes_a_byte_order_mark(self) -> None:
        texts: dict[str, str] = {}
        assert read_toml(Path("x.toml"), lambda _: "\ufeffa = 1", texts) == {"a": 1}
        assert texts == {"x.toml": "a = 1"}


class TestParseToml:
    def test_returns_the_document(self) -> None:
        assert parse_toml("a = 1.5", "x.toml", parse_float=str) == {"a": "1.5"}

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("a = 1\nb == 2\n", "x.toml:2:4: is not TOML: Invalid value"),
            ("a = [1,\n", "x.toml:2:1: is not TOML: Invalid value"),
            ("a = 1\na = 2\n", "x.toml:2:6: is not TOML: a occurs twice in this table"),
            ('[[i]]\ntype = "x"\ntype = "y"', "x.toml:3:11: is not TOML: type occurs twice in this table"),
            ("a = 1\n[a]\n", "x.toml:2:3: is not TOML: a occurs twice in this table"),
            ("a = 1\na = [\n1,\n]", "x.toml:4:2: is not TOML: Cannot overwrite a value"),
            ("a = True", "x.toml:1:5: is not TOML: Invalid value; write true"),
            (
                "keyring = ${env:KEYRING}",
                'x.toml:1:11: is not TOML: Invalid value; text needs quotes, as in keyring = "..."',
            ),
            (
                "keyring = /srv/keys",
                'x.toml:1:11: is not TOML: Invalid value; text needs quotes, as in keyring = "..."',
            ),
            (
                "a = \u201cb\u201d",
                'x.toml:1:5: is not TOML: Invalid value; text needs quotes, as in a = "..."',
            ),
            ("a = .5", "x.toml:1:5: is not TOML: Invalid value"),
            ('a = "C:\\Users\\me"', f"x.toml:1:10: is not TOML: {BACKSLASH}"),
            ('a = "C:\\data"', f"x.toml:1:10: is not TOML: {BACKSLASH}"),
            ('a = ["a" "b"]', "x.toml:1:10: is not TOML: a list lacks a comma or its ]"),
            ("a = { b = 1 c = 2 }", "x.toml:1:13: is not TOML: a table lacks a comma or its }"),
            ('[[i]]\ntype: "x"', "x.toml:2:5: is not TOML: expected NAME = VALUE, found NAME: VALUE"),
            ("a = {b: 1}", "x.toml:1:7: is not TOML: expected NAME = VALUE, found NAME: VALUE"),
            (
                "\ntype = compress\n",
                'x.toml:2:8: is not TOML: Invalid value; text needs quotes, as in type = "..."',
            ),
            ('a = "b\n', "x.toml:1:7: is not TOML: text without its closing quote"),
            (
                "[a.b]\n[a.b]\n",
                "x.toml:2:5: is not TOML: [a.b] occurs twice; each table of a list is written as [[a.b]]",
            ),
            ('{"interceptors": []}', "x.toml:1:1: is not TOML: it is JSON; write it as TOML"),
            (
                '{\n  "format": "headerware-keyring",\n  "keys": []\n}',
                f"x.toml:1:1: is not TOML: {KEYRING}",
            ),
            (
                "# ours\n\ninterceptors:\n  - type: trail\n",
                "x.toml:3:13: is not TOML: it looks like YAML; write it as TOML",
            ),
            ("---\na: 1\n", "x.toml:1:4: is not TOML: it looks like YAML; write it as TOML"),
            ("- type: trail\n", "x.toml:1:3: is not TOML: it looks like YAML; write it as TOML"),
            ("type: trail\n", "x.toml:1:5: is not TOML: it looks like YAML; write it as TOML"),
        ],
    )
    def test_says_where_it_is_not_toml(self, text: str, said: str) -> None:
        with pytest.raises(ConfigError) as caught:
            parse_toml(text, "x.toml")
        assert str(caught.value) == said
        assert caught.value.path == "x.toml"

    @pytest.mark.parametrize("text", ["a = " + "9" * 5_000, "a = " + "[" * 5_000])
    def test_refuses_what_python_refuses(self, text: str) -> None:
        with pytest.raises(ConfigError, match=r"^x\.toml:.* is not TOML"):
            parse_toml(text, "x.toml")


class TestNamingLines:
    def test_adds_the_line_of_the_option(self) -> None:
        with pytest.raises(ConfigError) as caught, naming_lines({"y": "", "x": "a = 1\n b = 2"}):
            raise ConfigError("expected text", path="x: b")
        error = caught.value
        assert str(error) == "x:2:2: b: expected text"
        assert (error.path, error.message) == ("x: b", "expected text")
        assert (error.file, error.line, error.column) == ("x", 2, 2)

    @pytest.mark.parametrize("path", ["", "x", "interceptors.sign.b", "xx: b"])
    def test_leaves_other_errors_as_they_are(self, path: str) -> None:
        with pytest.raises(ConfigError) as caught, naming_lines({"x": "b = 2"}):
            raise ConfigError("expected text", path=path)
        assert str(caught.value) == (f"{path}: expected text" if path else "expected text")
        assert caught.value.line is None


class TestWithinFile:
    def test_names_the_file(self) -> None:
        with pytest.raises(ConfigError, match=r"^x\.toml: b: expected text$"), within_file("x.toml"):
            raise ConfigError("expected text", path="b")

    def test_names_no_file_twice(self) -> None:
        with (
            pytest.raises(ConfigError, match=r"^x:1:1: b: expected text$"),
            within_file("x"),
            naming_lines({"x": "b = 1"}),
        ):
            raise ConfigError("expected text", path="x: b")
