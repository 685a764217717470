"""The notebooks of examples/notebooks: each cell is executed, in order, without Jupyter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
WITH_TORCH = {"read_the_code"}


def cells(path: Path, kind: str) -> list[str]:
    return [
        "".join(x["source"])
        for x in json.loads(path.read_text())["cells"]
        if x["cell_type"] == kind
    ]


def run(path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Execute the code cells, and return what each printed."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for number, source in enumerate(cells(path, "code"), 1):
        exec(compile(source, f"{path.name}, code cell {number}", "exec"), namespace)
        printed.append(capsys.readouterr().out)
    return printed


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(x, id=x.stem, marks=pytest.mark.slow if x.stem in WITH_TORCH else ())
        for x in NOTEBOOKS
    ],
)
def test_every_cell_of_a_notebook_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if path.stem in WITH_TORCH:
        pytest.importorskip("torch")
    assert any(run(path, capsys))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda x: x.stem)
def test_notebooks_are_clean_nbformat_4(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [x["id"] for x in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("code", "markdown") and cell["source"]
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
    assert "Your turn" in "".join(cells(path, "markdown")) or path.stem == "find_the_mistake"


@pytest.mark.slow
def test_each_mistake_of_the_notebook_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    printed = run(FOLDER / "find_the_mistake.ipynb", capsys)
    verdicts = [x for x in printed if x.startswith("Not right")]
    assert len(verdicts) == 7
    for words, verdict in zip(
        (
            "32 heads have their own K and V",
            "norm after the last layer is missing",
            "gate is left out",
            "thousands, not millions",
            "In and out are swapped",
            "Only the keys are cached",
            "digits are those of GiB",
        ),
        verdicts,
        strict=True,
    ):
        assert words in " ".join(verdict.split())
