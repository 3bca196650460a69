"""The notebook of the bridge shows what it says; HEADERWARE_DRAW_SCREENS=1 stores what it shows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK: Final = Path(__file__).parents[2] / "examples" / "spark_bridge.ipynb"


def ran(cells: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run the code of cells in one namespace, as a kernel does, and return what each cell prints."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    try:
        for cell in cells:
            code = compile("".join(cell["source"]), f"{NOTEBOOK.name}, {cell['id']}", "exec")
            exec(code, namespace)  # noqa: S102 - our own
            printed.append(capsys.readouterr().out)
    finally:
        if "broker" in namespace:
            namespace["broker"].close()
    return printed


@pytest.mark.broker
@pytest.mark.long
def test_cells_in_order_print_what_is_stored(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    printed = ran(cells, capsys)
    if os.environ.get("HEADERWARE_DRAW_SCREENS"):
        for number, (cell, text) in enumerate(zip(cells, printed, strict=True), 1):
            lines = text.splitlines(keepends=True)
            stream = {"name": "stdout", "output_type": "stream", "text": lines}
            cell |= {"execution_count": number, "outputs": [stream] if lines else []}
        NOTEBOOK.write_text(json.dumps(notebook, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    stored = ["".join(line for output in cell["outputs"] for line in output["text"]) for cell in cells]
    assert printed == stored
