"""Answer the oracle's cases: ``python -m tests.vectors.connect FILE``, from the repository's root.

Each line of the file is a case, and each line that is printed ``{"id": ..., "answer": ...}``, in order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.vectors.connect.nodes import read_json, write_json
from tests.vectors.connect.operations import answer

_USAGE: Final = "usage: python -m tests.vectors.connect FILE"
_BAD_JSON: Final = {"id": None, "answer": {"error": "oracle.BadJson"}}


def answers(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Return the answer to each line that is not blank."""
    for line in lines:
        if not line.strip():
            continue
        try:
            case = read_json(line)
        except ValueError:
            yield _BAD_JSON
            continue
        yield {"id": case.get("id") if isinstance(case, dict) else None, "answer": answer(case)}


def main(arguments: list[str]) -> int:
    """Answer a file of cases."""
    if len(arguments) != 1:
        print(_USAGE, file=sys.stderr)  # noqa: T201 - this is a command
        return 2
    out = sys.stdout.buffer
    with Path(arguments[0]).open(encoding="utf-8", newline="\n") as lines:
        for each in answers(lines):
            out.write(write_json(each) + b"\n")
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
