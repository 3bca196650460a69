"""Where things stand in a JSON Schema: its text, pointers into it, and all that is said about one value."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec

from headerware.core.errors import ConfigError

_MAX_SCHEMA_BYTES: Final = 1 << 20
_LIST: Final = (list, "a list")
_KEYWORDS: Final[dict[str, tuple[type, str]]] = {
    "properties": (dict, "an object"),
    **dict.fromkeys(("allOf", "anyOf", "enum", "oneOf", "required"), _LIST),
}


class Part(NamedTuple):
    """A schema inside of a document.

    Attributes:
        node: what stands there.
        pointer: where it stands, as a JSON pointer in a URI's fragment (RFC 6901).
        opened: the references that led to it from the root; one that leads to itself has no end.
    """

    node: Any
    pointer: str
    opened: frozenset[str] = frozenset({"#"})

    def below(self, *steps: str | int) -> Part:
        """Return what stands deeper in this part."""
        found = self
        for step in steps:
            escaped = str(step).replace("~", "~0").replace("/", "~1")
            found = Part(found.node[step], f"{found.pointer}/{escaped}", found.opened)
        return found


def document(schema: str | dict[str, Any] | Path) -> Part:
    """Read a JSON Schema, and give the whole of it.

    Raises:
        ConfigError: there is no such file, or no JSON in it.
    """
    if isinstance(schema, str) and not schema.lstrip().startswith("{"):
        schema = Path(schema)
    try:
        text = _read(schema) if isinstance(schema, Path) else schema
        if isinstance(text, str | bytes) and len(text) > _MAX_SCHEMA_BYTES:
            raise refused("#", f"more than {_MAX_SCHEMA_BYTES} bytes, the limit")
        # What code has may hold tuples, or itself; as JSON it does not.
        return Part(
            msgspec.json.decode(text if isinstance(text, str | bytes) else msgspec.json.encode(text)), "#"
        )
    except (msgspec.DecodeError, UnicodeError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"is no JSON ({type(error).__name__}: {error})", path="schema") from None


def conjuncts(root: Any, parts: list[Part]) -> list[Part]:
    """Return all that has to hold together: the parts, what they refer to, and the members of their allOf.

    Args:
        root: the document.
        parts: where to begin.

    Raises:
        ConfigError: a part is no schema, or a reference leads out of the document, nowhere or to itself.
    """
    found: dict[str, Part] = {}
    waiting = parts[::-1]
    while waiting:
        part = waiting.pop()
        if part.node is True or part.pointer in found:
            continue
        if not isinstance(part.node, dict):
            raise refused(part.pointer, "a schema that is false, or no object")
        _check_keywords(part)
        found[part.pointer] = part
        members = part.node.get("allOf", [])
        waiting += reversed([part.below("allOf", index) for index in range(len(members))])
        if "$ref" in part.node:
            waiting.append(_referred(root, part))
    return list(found.values())


def refused(pointer: str, problem: str) -> ConfigError:
    """Say that there is no Spark type for what stands at a place."""
    return ConfigError(f"{problem} has no Spark type", path=f"schema: {pointer}")


def _check_keywords(part: Part) -> None:
    for keyword, (kind, words) in _KEYWORDS.items():
        if not isinstance(part.node.get(keyword, kind()), kind):
            raise refused(f"{part.pointer}/{keyword}", f"a keyword whose value is not {words}")
    if not all(isinstance(name, str) for name in part.node.get("required", [])):
        raise refused(f"{part.pointer}/required", "a required property whose name is no text")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        problem = error.strerror or type(error).__name__
        raise ConfigError(
            f"cannot read {path}: {problem}; expected a file with a schema, or the schema as JSON",
            path="schema",
        ) from error


def _referred(root: Any, part: Part) -> Part:
    reference = part.node["$ref"]
    pointer = unquote(reference) if isinstance(reference, str) else ""
    if pointer != "#" and not pointer.startswith("#/"):
        raise refused(part.pointer, "a reference that is no JSON pointer within the document (#/...)")
    if pointer in part.opened:
        raise refused(part.pointer, "a schema that holds itself")
    node = root
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            node = node[int(name)] if isinstance(node, list) else node[name]
        except (KeyError, IndexError, ValueError, TypeError):
            raise refused(part.pointer, "a reference to what is not there") from None
    return Part(node, pointer, part.opened | {pointer})
