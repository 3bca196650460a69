"""The configuration of a converter, transform or predicate: keys, types, defaults and checks.

Values are text, as in a connector's configuration, or Python objects. The ``strict`` mode refuses
unknown keys and nulls; ``kafka_4_3`` ignores unknown keys and passes nulls on, as Kafka does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

import msgspec

from headerware.connect.errors import ConnectConfigError, NullValueError
from headerware.connect.java.numbers import BLANKS
from headerware.connect.modes import STRICT, Mode, require_mode
from headerware.core.closing import Closing
from headerware.core.suggestions import did_you_mean

KeyType = Literal["BOOLEAN", "STRING", "INT", "LONG", "DOUBLE", "LIST", "PASSWORD"]
Importance = Literal["HIGH", "MEDIUM", "LOW"]


class _Required:
    """The type of :data:`REQUIRED`."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""The default of a key that must be given."""


class Check(msgspec.Struct, frozen=True):
    """Refuse values that a key cannot have.

    Args:
        text: the valid values, in the words of Kafka's ``ConfigDef``.
        refuse: returns the reason why a value is not valid, or None if it is.
    """

    text: str
    refuse: Callable[[Any], str | None]


class ConfigKey(msgspec.Struct, frozen=True, kw_only=True):
    """Describe one key.

    Args:
        name: its name, without the prefix of an alias.
        type: the type of its values, by Kafka's name.
        default: its value if it is not given; :data:`REQUIRED` if it must be.
        importance: how much it matters, as Kafka's documentation ranks it.
        doc: its description.
        check: a condition on its values, beyond their type; it holds in both modes.
        strict_only: whether only the strict mode has this key, because Kafka does not.
    """

    name: str
    type: KeyType
    default: Any = REQUIRED
    importance: Importance = "MEDIUM"
    doc: str = ""
    check: Check | None = None
    strict_only: bool = False


class ConfigDef:
    """The keys of one class, in order.

    Args:
        keys: the keys.
    """

    def __init__(self, *keys: ConfigKey) -> None:
        self._keys: Final = {key.name: key for key in keys}

    def keys(self, mode: Mode = STRICT) -> tuple[ConfigKey, ...]:
        """Return the keys of a mode, in order."""
        return tuple(key for key in self._keys.values() if mode == STRICT or not key.strict_only)

    def parse(self, given: Mapping[str, Any] | None, mode: Mode = STRICT) -> dict[str, Any]:
        """Return every key's value, of its type.

        Args:
            given: the configured values, as text or as Python objects.
            mode: whether to refuse unknown keys.

        Raises:
            ConnectConfigError: a key is missing or unknown, or its value is not valid; the error's ``path``
                is the key.
            NullValueError: a boolean is null, in ``kafka_4_3``.
        """
        require_mode(mode)
        given = given or {}
        keys = {key.name: key for key in self.keys(mode)}
        if mode == STRICT:
            for name in given:
                if name not in keys:
                    raise ConnectConfigError(_unknown(name, keys), path=name)
        options = {name: _parsed(key, given, mode) for name, key in keys.items()}
        for name, value in options.items():
            # Kafka unboxes every boolean once all keys have been read.
            if value is None and keys[name].type == "BOOLEAN":
                raise NullValueError(f"{name}: expected a boolean, found null")
        return options


class StrictConfig(ConfigDef):
    """The keys of a class that Kafka does not have: they are read strictly in both modes."""

    def keys(self, mode: Mode = STRICT) -> tuple[ConfigKey, ...]:
        """Return the keys, in order; they are the same in both modes."""
        del mode
        return super().keys(STRICT)

    def parse(self, given: Mapping[str, Any] | None, mode: Mode = STRICT) -> dict[str, Any]:
        """Return every key's value, of its type."""
        del mode
        return super().parse(given, STRICT)


def refuse_quotes(names: Iterable[str], path: str) -> None:
    """Refuse names in quotes, which would be part of the name."""
    for name in names:
        text = name.strip()
        if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
            raise ConnectConfigError(
                "quotes would be part of the name: remove them, or write a backslash before each quote that "
                "belongs to the name",
                path=path,
            )


def _unknown(name: str, known: Mapping[str, ConfigKey]) -> str:
    draft = _DRAFT_KEYS.get(name)
    there_are = f"there are: {', '.join(known) or 'none'}"
    return f"there is no such key{did_you_mean(draft if draft in known else name, known, then=there_are)}"


_DRAFT_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "blacklist": "exclude",
        "name": "schema.name",
        "offset": "offset.field",
        "partition": "partition.field",
        "rename": "renames",
        "timestamp": "timestamp.field",
        "topic": "topic.field",
        "version": "schema.version",
        "whitelist": "include",
    }
)
"""The current keys of transforms, by their names in the draft of KIP-66."""


def _parsed(key: ConfigKey, given: Mapping[str, Any], mode: Mode) -> Any:
    if key.name in given:
        value = given[key.name]
        if value is None and mode == STRICT and key.default is not None:
            raise ConnectConfigError(f"expected a value of type {key.type}, found null", path=key.name)
        value = None if value is None else _of_type(key, value, mode)
    elif key.default is REQUIRED:
        raise ConnectConfigError("this key has no default; give it", path=key.name)
    else:
        value = key.default
    if key.check in _LISTS and isinstance(value, list):
        value = list(dict.fromkeys(value))
    reason = key.check.refuse(value) if key.check is not None else None
    if reason is not None:
        raise ConnectConfigError(reason, path=key.name)
    return value


def _of_type(key: ConfigKey, value: Any, mode: Mode) -> Any:
    try:
        if key.type == "LIST":
            items = _list(value, mode)
            if mode == STRICT:
                refuse_quotes([value, *items] if isinstance(value, str) else items, key.name)
            return items
        return _TYPES[key.type](value)
    except (ValueError, TypeError, KeyError):
        found = "other text" if isinstance(value, str) else type(value).__name__
        raise ConnectConfigError(f"expected a {key.type}, found {found}", path=key.name) from None


def _boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else _BOOLEANS[_string(value).lower()]


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value.strip(BLANKS)


def _integer(bits: int) -> Callable[[Any], int]:
    limits = range(-(1 << bits - 1), 1 << bits - 1)

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise TypeError
        if isinstance(value, str) and not _INTEGER.fullmatch(value.strip(BLANKS)):
            raise ValueError
        number = int(value)
        if number not in limits:
            raise ValueError
        return number

    return parse


def _double(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


def _list(value: Any, mode: Mode) -> list[str]:
    if isinstance(value, list | tuple):
        return [item if isinstance(item, str) else _string(item) for item in value]
    text = _string(value)
    if not text:
        return []
    return _COMMA.split(text) if mode != STRICT or "\\" not in text else _escaped_list(text)


def _escaped_list(text: str) -> list[str]:
    """Split at unescaped commas; the items keep their escapes, see fields/lists.py."""
    items = [""]
    for piece in _ESCAPE_OR_COMMA.findall(text):
        if piece == ",":
            items.append("")
        else:
            items[-1] += piece
    return [item.strip(BLANKS) for item in items]


_BOOLEANS: Final = {"true": True, "false": False}
_INTEGER: Final = re.compile(r"[+-]?\d+")
_COMMA: Final = re.compile(r"\s*,\s*", re.ASCII)
_ESCAPE_OR_COMMA: Final = re.compile(r"\\.|[,\\]|[^,\\]+", re.DOTALL)
_TYPES: Final[dict[str, Callable[[Any], Any]]] = {
    "BOOLEAN": _boolean,
    "STRING": _string,
    "INT": _integer(32),
    "LONG": _integer(64),
    "DOUBLE": _double,
    "PASSWORD": _string,
}


def one_of(*choices: str) -> Check:
    """Return the check that accepts only these words."""
    listed = ", ".join(choices)
    return Check(f"[{listed}]", lambda value: None if value in choices else f"expected one of {listed}")


def one_of_any_case(*choices: str) -> Check:
    """Return the check that accepts only these words, in any case."""
    listed = ", ".join(choices)
    known = {choice.lower() for choice in choices}

    def refuse(value: Any) -> str | None:
        return None if value is not None and value.lower() in known else f"expected one of {listed}"

    return Check(f"(case insensitive) [{listed}]", refuse)


def _refuse_null(value: Any) -> str | None:
    return "expected a value, found null" if value is None else None


def _refuse_empty_text(value: Any) -> str | None:
    # As in Kafka, null passes: it is the value of a key without a default.
    return "expected a text that is not empty" if value is not None and not value else None


def _refuse_empty_list(value: Any) -> str | None:
    return "expected a list that is not empty" if not value else None


def _refuse_values(value: Any) -> str | None:
    if value is None:
        return "expected a list, found null"
    return "the values of the list must not be empty" if "" in value else None


def _refuse_no_values(value: Any) -> str | None:
    return _refuse_empty_list(value) or _refuse_values(value)


NOT_NULL: Final = Check("non-null string", _refuse_null)
NOT_EMPTY_TEXT: Final = Check("non-empty string", _refuse_empty_text)
NOT_EMPTY_LIST: Final = Check("non-empty list", _refuse_empty_list)
DISTINCT: Final = Check("", _refuse_values)
"""A list, possibly empty; repeated values count once."""
DISTINCT_SOME: Final = Check("", _refuse_no_values)
"""A list that is not empty; repeated values count once."""
_LISTS: Final = (DISTINCT, DISTINCT_SOME)


class Configured(Closing):
    """The base class of converters, transforms and predicates, which are configured when they are created.

    Args:
        config: the values of the keys that :meth:`config` describes, as text or as Python objects.
        mode: ``strict`` or ``kafka_4_3``, see :mod:`headerware.connect.modes`.

    Raises:
        ConnectConfigError: a key is missing or unknown, or its value is not valid.
    """

    CONFIG: ClassVar[ConfigDef] = ConfigDef()
    """The keys; a subclass describes its own."""

    def __init__(self, config: Mapping[str, Any] | None = None, *, mode: Mode = STRICT) -> None:
        self.mode: Mode = mode
        self.options: dict[str, Any] = self.CONFIG.parse(config, mode)
        """Every key's value."""

    @classmethod
    def config(cls, mode: Mode = STRICT) -> tuple[ConfigKey, ...]:
        """Return the keys of a mode (Connect's ``config()``)."""
        return cls.CONFIG.keys(mode)

    def close(self) -> None:
        """Release all resources; by default, there are none."""
