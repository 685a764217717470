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
import prediction_tables
import predictions
from llamath import catalog

ROOT = Path(__file__).parents[2]


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(x) for x in (conformance.FOLDER / name).read_text().splitlines()]


def recipe(language: str) -> str:
    """The only code in a language in the README."""
    text = (conformance.FOLDER / "README.md").read_text()
    (code,) = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return str(code)


FILES = {
    "models.jsonl": "model",
    "engine_logs.jsonl": "prediction",
    "published_sizes.jsonl": "prediction",
    "training_runs.jsonl": "prediction",
}


@pytest.mark.parametrize(("name", "kind"), FILES.items())
@pytest.mark.slow
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


@pytest.mark.slow
def test_rows_of_models_are_current(request: pytest.FixtureRequest) -> None:
    """Totals, names, shapes, bytes, caches and FLOPs of the first preset of each model type, and
    with `--all` of every one; `python tools/conformance.py` writes them anew: read the difference.
    """
    types = set[str]()
    for row in rows("models.jsonl"):
        kind = catalog.read_preset(row["preset"]).config["model_type"]
        if kind not in types or request.config.getoption("--all"):
            assert conformance.model_row(row["preset"]) == row
        types.add(kind)
    assert len(types) > 100


@pytest.mark.parametrize("kind", predictions.KINDS)
@pytest.mark.slow
def test_predictions_are_current(kind: str) -> None:
    found = [x for x in prediction_tables.rows() if x["kind"] == kind]
    assert found
    for row in found:
        assert predictions.predict(row) == row


def test_published_figures_are_predicted() -> None:
    """At most 35 figures differ, each by less than 1.5 % or with a reason."""
    found = prediction_tables.rows()
    assert (
        sum(len(x["misses"]) for x in found) <= 35 and sum(len(x["printed"]) for x in found) > 400
    )
    for row in found:
        largest = max(map(abs, row["difference_percent"].values()), default=0)
        assert set(row["misses"]) <= set(row["printed"])
        assert not row["misses"] or largest < 1.5 or row.get("reason"), row


def test_wrong_predictions_are_misses() -> None:
    """Of integers, rounded figures, intervals and words."""
    for predicted, printed, step, equal in (
        (7, 7, 0, True),
        (8, 7, 0, False),
        (7.004, 7.0, 0.01, True),
        (7.006, 7.0, 0.01, False),
        ([6, 8], 7, 0, True),
        ([8, 9], 7, 0, False),
        ([7.004, 9.0], 7.0, 0.01, True),
        ("starts", "starts", 0, True),
        (False, True, 0, False),
    ):
        assert predictions.is_equal(predicted, printed, step) == equal, (predicted, printed)


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
