r"""A connector's configuration as text: a ``.properties`` file, or JSON as Connect's REST interface takes it.

The file, as Java reads it:

    # or ! begins a comment                  key=value   key:value   key value
    a backslash at its end continues a line  \t \n \r \f \uXXXX, and a backslash before \ : = # ! and blanks

The JSON is ``{"name": ..., "config": {...}}``, or the inner object alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from headerware.connect.errors import ConnectConfigError
from headerware.connect.modes import STRICT, Mode

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_KEY: Final = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(u(?P<code>[0-9a-fA-F]{4})?|.|\Z)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPABLE: Final = frozenset("tnrfu\\:=#!" + _BLANKS)
"""The characters that a backslash may escape; Java drops a backslash before any other."""
_YAML: Final = re.compile(r"(apiVersion|kind):(\s|\Z)|---(\s|\Z)")
_YAML_ABOVE: Final = re.compile(r"( *)(?:- )?[^\s=:\\]+:[ \t]*")
_YAML_BELOW: Final = re.compile(r"( *)(?:- |[^\s=:\\]+:(?: |\Z))")
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_DESCRIBING: Final = frozenset({"name", "config", "initial_state", "tasks", "type"})
"""The keys around a connector's configuration in the JSON of Connect's REST interface."""


def parse_properties(text: str, *, mode: Mode = STRICT) -> dict[str, str]:
    r"""Read a ``.properties`` file.

    Args:
        text: its contents.
        mode: ``strict`` refuses a repeated key (``kafka_4_3`` takes the last), a value without a key, a
            backslash that would be lost, as in ``\.``, and text that is YAML.

    Raises:
        ConnectConfigError: a ``\u`` lacks its four hexadecimal digits, or the mode refuses the text.
    """
    if mode == STRICT:
        _refuse_yaml(text)
    found: dict[str, str] = {}
    for number, line in _logical_lines(text):
        written = _KEY.match(line)
        end = written.end() if written else 0
        separator = _SEPARATOR.match(line, end)
        key = _unescaped(line[:end], number, mode)
        if mode == STRICT and (key in found or not key):
            problem = "this key is given twice" if key else "there is a value without a key"
            raise ConnectConfigError(f"line {number}: {problem}", path=key)
        found[key] = _unescaped(line[separator.end() if separator else end :], number, mode, key)
    return found


def parse_connector(text: str, *, mode: Mode = STRICT) -> dict[str, str]:
    """Read a connector's configuration: JSON or a ``.properties`` file.

    Args:
        text: the contents of the file.
        mode: see :func:`parse_properties`.

    Raises:
        ConnectConfigError: the text is neither, a value is not text, a number or a boolean, or a key is
            repeated.
    """
    text = text.removeprefix("\ufeff")
    if not text.lstrip().startswith("{"):
        return parse_properties(text, mode=mode)
    outer = _json_object(text, mode)
    if not isinstance(outer.get("config"), dict):
        return {key: _text(key, value) for key, value in outer.items()}
    inner = {key: _text(key, value) for key, value in outer["config"].items()}
    return _named(outer, inner)


def position_of_key(text: str, key: str) -> tuple[int, int] | None:
    """Return the line and the column of a key of a connector's text, or None.

    If the text does not have the key, the position is that of the longest beginning that it has, such as
    ``transforms.mask`` of ``transforms.mask.type``.
    """
    while key:
        written = re.escape(key)
        if found := re.search(rf'^[ \t\f]*({written})(?=[\s=:]|$)|("{written}")\s*:', text, re.MULTILINE):
            at = found.start(found.lastindex or 0)
            return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
        key = key.rpartition(".")[0]
    return None


def _named(outer: dict[str, Any], inner: dict[str, str]) -> dict[str, str]:
    for key in outer:
        if key not in _DESCRIBING:
            raise ConnectConfigError("this key is outside of 'config'; put it inside", path=key)
    if "name" not in outer:
        return inner
    name = _text("name", outer["name"])
    if inner.setdefault("name", name) != name:
        raise ConnectConfigError("the connector has another name inside 'config'", path="name")
    return inner


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return each line with its continuation lines, and the number of the first."""
    begun, start = "", 0
    lines = [line.lstrip(_BLANKS) for line in _LINE_END.split(text)]
    for number, line in enumerate(lines, 1):
        if not begun:
            # After a backslash alone, the next line may still be a comment.
            start = number
            if not line or line[0] in "#!":
                continue
        goes_on = (len(line) - len(line.rstrip("\\"))) % 2
        begun += line[:-1] if goes_on else line
        if begun and (not goes_on or number == len(lines)):
            yield start, begun
            begun = ""


def _refuse_yaml(text: str) -> None:
    """Refuse YAML, which could be read as properties, but without its nesting."""
    lines = [
        line for line in _LINE_END.split(text) if line.strip(_BLANKS) and line.lstrip(_BLANKS)[0] not in "#!"
    ]
    if (lines and _YAML.match(lines[0])) or any(map(_nested, ["", *lines], lines, lines[1:])):
        raise ConnectConfigError(
            "expected a .properties file, or JSON as Connect's REST interface takes it; found YAML: "
            "give only the entries under its 'config', as key=value"
        )


def _nested(before: str, line: str, after: str) -> bool:
    """Return whether a line has only a name, and the next line is indented further or is a list's item."""
    above, below = _YAML_ABOVE.fullmatch(line), _YAML_BELOW.match(after)
    if above is None or below is None or before.endswith("\\"):
        return False
    return len(below[1]) > len(above[1]) or below[0].endswith("- ")


def _unescaped(text: str, line: int, mode: Mode, key: str = "") -> str:
    if "\\" not in text:
        return text

    def character(match: re.Match[str]) -> str:
        char = match[1][:1]
        if mode == STRICT and char and char not in _ESCAPABLE:
            raise ConnectConfigError(
                f"line {line}: the backslash before {char!r} would be lost; write two or none", path=key
            )
        if char != "u":
            return _CONTROLS.get(char, char)
        if match["code"] is None:
            raise ConnectConfigError(f"line {line}: expected four hexadecimal digits after '\\u'", path=key)
        return chr(int(match["code"], 16))

    return _PAIR.sub(_character, _ESCAPE.sub(character, text))


def _character(pair: re.Match[str]) -> str:
    """Return the character of a surrogate pair."""
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _json_object(text: str, mode: Mode) -> dict[str, Any]:
    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs) and mode == STRICT:
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ConnectConfigError("this key is given twice", path=twice)
        return found

    try:
        # Numbers keep their text: 1.10 is a version, not 1.1.
        found: dict[str, Any] = json.loads(
            text, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=members
        )
    except (ValueError, RecursionError) as error:
        where = f", at line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise ConnectConfigError(f"expected a connector's configuration as JSON{where}") from error
    return found


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        found = "null" if value is None else "a list" if isinstance(value, list) else "an object"
        raise ConnectConfigError(f"expected a text, a number or a boolean, found {found}", path=key)
    return value
