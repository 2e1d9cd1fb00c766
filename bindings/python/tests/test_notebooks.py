"""The notebooks of docs/notebooks, run from their first cell to their last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[3] / "docs" / "notebooks"


# The one of the store starts a node at the usual ports.
NAMES = ["gc-study", "plan-and-measurement", "store", "trace-replay"]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook(name, tmp_path, program, monkeypatch):
    monkeypatch.setenv("WEIR_BIN", program)
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code"), "kept without outputs"
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    assert any(cell.outputs for cell in notebook.cells if cell.cell_type == "code")


def test_every_notebook_is_run():
    assert {file.stem for file in NOTEBOOKS.glob("*.ipynb")} == set(NAMES)
