"""Native steps on executors of Spark give the rows that Python gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from headerware.core.native import NATIVE_VARIABLE, native_module
from headerware.keyring import with_new_key
from headerware.keyring.writing import edit_keyring

PROGRAM = Path(__file__).parent / "programs" / "native_rows.py"
ROOT = Path(__file__).parents[2]


def rows_with(native: str, keyring: Path) -> dict[str, Any]:
    env = {**os.environ, NATIVE_VARIABLE: native, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(keyring)],
        check=False, capture_output=True, text=True, env=env, timeout=600,
    )  # fmt: skip
    assert not done.returncode, done.stderr[-4_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_rows_are_the_same_with_and_without(tmp_path: Path) -> None:
    keyring = tmp_path / "keys.json"
    edit_keyring(keyring, lambda keys: with_new_key(keys, "k", "hmac-sha256"), create=True)
    mine, theirs = rows_with("1", keyring), rows_with("0", keyring)
    assert mine.pop("executors") == native_module()[1]
    assert theirs.pop("executors") == f"off by {NATIVE_VARIABLE}"
    assert mine == theirs
