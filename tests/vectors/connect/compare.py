"""Whether an answer is the one that Kafka Connect gave."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from typing import Any, Final

_ONLY_KAFKAS: Final = frozenset({"message", "cause"})
"""Members of an error that are in Kafka's words."""
_FLOAT: Final = re.compile(r"-?\d+\.\d+(?:E-?\d+)?")


def agrees(case: dict[str, Any], answer: Any) -> bool:
    """Whether the answer to a case is the one that it expects.

    Errors agree in class and stage. Cases flagged ``identity_hash`` tell of addresses in memory, and always
    agree; those flagged ``jdk_dependent`` agree but for how many digits floats are written with.
    """
    if case.get("identity_hash"):
        return True
    exact = same(case["op"], case["expected"], answer)
    return exact or (bool(case.get("jdk_dependent")) and nearly_same(case["op"], case["expected"], answer))


def same(operation: str, expected: Any, answer: Any) -> bool:
    """Whether an answer is the same as the expected one, exactly."""
    return bool(normal(operation, expected) == normal(operation, answer))


def nearly_same(operation: str, expected: Any, answer: Any) -> bool:
    """Whether an answer is the same but for the digits of floats, of which Java before 19 writes too many."""
    return bool(_rounded(normal(operation, expected)) == _rounded(normal(operation, answer)))


def normal(operation: str, answer: Any) -> Any:
    """Give what of an answer counts: no texts of errors, no version of Java, unordered maps in one order."""
    if operation == "version" and isinstance(answer, dict):
        return {name: member for name, member in answer.items() if name != "java"}
    return _changed(["boolean", answer] if isinstance(answer, bool) else answer, _without_texts)


def _changed(node: Any, change: Callable[[dict[str, Any]], Any]) -> Any:
    """Put every object of a node through a function, the innermost first."""
    if isinstance(node, list):
        return [_changed(item, change) for item in node]
    if isinstance(node, dict):
        return change({name: _changed(member, change) for name, member in node.items()})
    return node


def _without_texts(node: dict[str, Any]) -> Any:
    if isinstance(node.get("error"), str):
        return {name: member for name, member in node.items() if name not in _ONLY_KAFKAS}
    if node.get("order") == "unspecified":
        return {**node, "v": sorted(node["v"], key=json.dumps)}
    # Numbers keep their kind: true is no 1.
    return {
        name: ["boolean", member] if isinstance(member, bool) else member for name, member in node.items()
    }


def _rounded(node: Any) -> Any:
    return _changed(_with_texts_rounded(node), _without_digits)


def _without_digits(node: dict[str, Any]) -> Any:
    dropped = "v" if "bits" in node else "b64" if "utf8" in node else ""
    return {name: member for name, member in node.items() if name != dropped}


def _with_texts_rounded(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_texts_rounded(item) for item in node]
    if isinstance(node, dict):
        return {name: _with_texts_rounded(member) for name, member in node.items()}
    return _FLOAT.sub(_nearest, node) if isinstance(node, str) else node


def _nearest(found: re.Match[str]) -> str:
    try:
        return repr(struct.unpack("f", struct.pack("f", float(found[0])))[0])
    except OverflowError:
        return repr(float(found[0]))
