"""Read the options of a class with their documentation: for the pages of the documentation, and for editors.

The docstring of a class documents each option in its section ``Args``; base classes document their own
options.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from decimal import Decimal
from types import NoneType
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

_SECTION: Final = re.compile(r"^Args:\n((?:(?: {4}.*)?\n)*)", re.MULTILINE)
_ARGUMENT: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_ROLE: Final = re.compile(r":\w+:`~?([^`]+)`")
_WORDS: Final[Mapping[Any, str]] = {
    str: "text",
    bytes: "bytes",
    bool: "true or false",
    int: "whole number",
    float: "number",
    Decimal: "number",
    Any: "any value",
}


class OptionDoc(NamedTuple):
    """An option of a class, as documentation shows it."""

    name: str
    type: str
    """The type in words, with its limits, such as ``whole number, at least 1``."""
    default: Any
    """The default as plain values; None if there is none."""
    required: bool
    text: str
    """The meaning, in Markdown."""


def option_docs(kind: type[msgspec.Struct]) -> list[OptionDoc]:
    """Return the options of a class, those of its base classes first."""
    hints = get_type_hints(kind, include_extras=True)
    texts = argument_docs(kind)
    return [
        OptionDoc(
            field.encode_name,
            _in_words(hints[field.name]),
            _default(field),
            field.required,
            texts.get(field.name, ""),
        )
        for field in msgspec.structs.fields(kind)
    ]


def summary(kind: type) -> str:
    """Return the first paragraph of the docstring of a class, in Markdown."""
    return _markdown((inspect.getdoc(kind) or "").partition("\n\n")[0])


def argument_docs(kind: type) -> dict[str, str]:
    """Return the texts of all arguments by name, as the docstrings of the class and its bases have them."""
    texts: dict[str, str] = {}
    for each in reversed(kind.__mro__):
        section = _SECTION.search(inspect.cleandoc(each.__dict__.get("__doc__") or "") + "\n")
        for name, text in _ARGUMENT.findall(section[1] if section else ""):
            texts[name] = _markdown(text)
    return texts


def _markdown(text: str) -> str:
    """Return a text of reStructuredText in one line of Markdown, which begins with a capital letter."""
    line = _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`")
    return line[:1].upper() + line[1:]


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return _plain_value(field.default_factory())
    if field.default is msgspec.NODEFAULT:
        return None
    if isinstance(field.default, msgspec.Struct):
        word = getattr(field.default, "type", None)
        changed = {
            option.name: _plain_value(value)
            for option in msgspec.structs.fields(field.default)
            if (value := getattr(field.default, option.name)) != option.default
        }
        return {"type": word, **changed} if word and changed else word or changed
    return _plain_value(field.default)


def _plain_value(value: Any) -> Any:
    """Return a value as JSON has it; a tuple is a list."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _in_words(hint: Any) -> str:
    """Return a type in words, without None: to leave an option out means None."""
    metas = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    marks = {name: mark for meta in metas for name, mark in (meta.extra or {}).items()}
    if "kinds" in marks:
        return str(marks["kinds"].what).removesuffix(" type")
    if "path" in marks:
        word = "path or text" if callable(marks["path"]) else "path"
    else:
        word = _plain_in_words(get_args(hint)[0] if metas else hint)
    return ", ".join([word, *filter(None, map(_limits, metas))])


def _plain_in_words(plain: Any) -> str:
    origin, parts = get_origin(plain), get_args(plain)
    if origin is Literal:
        return _either(_alternatives(plain))
    if origin in (list, tuple):
        return f"list of {_in_words(parts[0])}"
    if origin in (dict, Mapping):
        return "table" if parts[1] is Any else f"table of {_in_words(parts[1])}"
    if parts:  # a union
        words = [word for part in parts if part is not NoneType for word in _alternatives(part)]
        return _either([word for word in words if bool not in parts or word not in ("`true`", "`false`")])
    if isinstance(plain, type) and issubclass(plain, msgspec.Struct):
        return "table"
    return _WORDS.get(plain, getattr(plain, "__name__", str(plain)))


def _alternatives(hint: Any) -> list[str]:
    """Return the words of a type that may be part of a union: each value of a Literal is one of them."""
    is_literal = get_origin(hint) is Literal
    return [f"`{value}`" for value in get_args(hint)] if is_literal else [_in_words(hint)]


def _limits(meta: msgspec.Meta) -> str:
    least, most = meta.ge, meta.le
    if least is not None and most is not None:
        return f"{least:,} to {most:,}"
    limits = {
        "at least": least,
        "at most": most,
        "above": meta.gt,
        "below": meta.lt,
        "with a length of at least": None if meta.min_length == 1 else meta.min_length,
        "with a length of at most": meta.max_length,
    }
    words = [f"{word} {limit:,}" for word, limit in limits.items() if limit is not None]
    return " and ".join([*(["not empty"] if meta.min_length == 1 else []), *words])


def _either(words: list[str]) -> str:
    unique = list(dict.fromkeys(words))
    return " or ".join(filter(None, [", ".join(unique[:-1]), unique[-1]]))
