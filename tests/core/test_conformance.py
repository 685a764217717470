"""The conformance set: rows as the schema says, current, and the README's recipes run."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import conformance
from llamath import catalog

ROOT = Path(__file__).parents[2]


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (conformance.FOLDER / name).read_text().splitlines()]


def recipe(language: str) -> str:
    """The only code in a language in the README."""
    text = (conformance.FOLDER / "README.md").read_text()
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(code)


@pytest.mark.parametrize(("name", "kind"), [("models.jsonl", "model")])
def test_rows_are_as_the_schema_says(name: str, kind: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((conformance.FOLDER / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema | {"$ref": f"#/$defs/{kind}"})
    for row in rows(name):
        validator.validate(row)


def test_every_preset_has_a_row_whose_parts_sum() -> None:
    found = rows("models.jsonl")
    assert [x["preset"] for x in found] == sorted(catalog.slugs())
    for x in found:
        preset = catalog.read_preset(x["preset"])
        assert sum(x["parts"].values()) == x["parameters"]["total"] == preset.parameters
        assert json.loads((ROOT / x["config"]).read_text())["config"] == preset.config


@pytest.mark.slow
def test_rows_of_models_are_current() -> None:
    """Totals, names, shapes, bytes, caches and FLOPs of every preset; `python
    tools/conformance.py` writes them anew: read the difference.
    """
    for row in rows("models.jsonl"):
        assert conformance.model_row(row["preset"]) == row


@pytest.mark.parametrize(
    ("language", "command"),
    [
        ("python", [sys.executable, "-c"]),
        ("javascript", ["node", "--input-type=module", "-e"]),
    ],
)
def test_recipes_count_every_llama_exactly(language: str, command: list[str]) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"no {command[0]}")
    done = subprocess.run(
        [*command, recipe(language)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert not done.stderr
    llamas = sum(x["model_type"] == "llama" for x in rows("models.jsonl"))
    assert done.stdout == f"{llamas} tried, {llamas} exact\n"


def test_the_set_is_small() -> None:
    assert sum(x.stat().st_size for x in conformance.FOLDER.iterdir()) <= 1.5 * 10**6
