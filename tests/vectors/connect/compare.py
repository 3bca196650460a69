"""Whether an answer is the one that Kafka Connect gave."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any, Final

_ONLY_KAFKAS: Final = frozenset({"message", "cause"})
"""Members of an error that are in Kafka's words."""
_NUMBER: Final = re.compile(r"-?(?:\d+\.\d+|\d{15,})(?:E[+-]?\d+)?")
_ADDRESS: Final = re.compile(r"@[0-9a-f]{1,8}\b")
"""What Java's text of an object ends with that has no text of its own."""


def agrees(case: dict[str, Any], answer: Any) -> bool:
    """Return whether the answer to a case is the one that it expects.

    Errors agree in class and stage. Cases flagged ``identity_hash`` tell of addresses in memory, and always
    agree; those flagged ``jdk_dependent`` agree but for how many digits floats are written with.
    """
    if case.get("identity_hash"):
        return True
    exact = same(case["op"], case["expected"], answer)
    return exact or (bool(case.get("jdk_dependent")) and nearly_same(case["op"], case["expected"], answer))


def same(operation: str, expected: Any, answer: Any) -> bool:
    """Return whether an answer is the same as the expected one."""
    return bool(normal(operation, expected) == normal(operation, answer))


def nearly_same(operation: str, expected: Any, answer: Any) -> bool:
    """Whether an answer is the same but for the digits of floats, of which Java before 19 writes too many."""
    if operation == "header.roundtrip" and "bytes" in expected and "bytes" in answer:
        # What came back follows from the text, which has other digits.
        expected, answer = expected["bytes"], answer["bytes"]
    return bool(_rounded(normal(operation, expected)) == _rounded(normal(operation, answer)))


def normal(operation: str, answer: Any) -> Any:
    """Return what of an answer counts: no texts of errors, no addresses, unordered maps in one order."""
    if operation == "version" and isinstance(answer, dict):
        return {name: member for name, member in answer.items() if name != "java"}
    return _changed(answer, _without_texts, _plain)


def _changed(node: Any, change: Callable[[dict[str, Any]], Any], leaf: Callable[[Any], Any]) -> Any:
    """Put every object and every leaf of a node through a function, the innermost first."""
    if isinstance(node, list):
        return [_changed(item, change, leaf) for item in node]
    if isinstance(node, dict):
        return change({name: _changed(member, change, leaf) for name, member in node.items()})
    return leaf(node)


def _plain(leaf: Any) -> Any:
    """Return a leaf without an address; numbers keep their kind, for true is no 1."""
    if isinstance(leaf, str):
        return _ADDRESS.sub("@", leaf.replace("\x00", "")) if "@" in leaf else leaf  # in UTF-16, too
    return ("boolean", leaf) if isinstance(leaf, bool) else leaf


def _without_texts(node: dict[str, Any]) -> Any:
    if isinstance(node.get("error"), str):
        return {name: member for name, member in node.items() if name not in _ONLY_KAFKAS}
    if node.get("order") == "unspecified":
        return {**node, "v": sorted(node["v"], key=json.dumps)}
    if "@" in str(node.get("utf8")):
        return {**node, "b64": None}  # the same address
    return node


def _rounded(node: Any) -> Any:
    return _changed(node, _without_digits, lambda leaf: _cut(leaf) if isinstance(leaf, str) else leaf)


def _without_digits(node: dict[str, Any]) -> Any:
    if "unscaled" in node:
        return _nearest(node["v"])
    dropped = "v" if "bits" in node else "b64" if "utf8" in node else ""
    return {name: member for name, member in node.items() if name != dropped}


def _cut(text: str) -> str:
    # Texts in UTF-16 are compared, too.
    return _NUMBER.sub(lambda found: _nearest(found[0]), text.replace("\x00", ""))


def _nearest(number: str) -> str:
    """Return the text of the nearest float of 32 bits."""
    try:
        return repr(struct.unpack("f", struct.pack("f", float(number)))[0])
    except OverflowError:
        return repr(float(number))
