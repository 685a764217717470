"""Compare the presets with the models of the public architecture gallery, and print the differences
that nobody has explained; `tools/docs.py` writes the tables into docs/concepts/published-models.md.

`tests/truth/gallery.json` has the gallery's facts, `tests/truth/gallery_differences.json` who is
right where they differ, and why.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import llamath
from llamath.analysis.understand.fact_sheet import FactSheet
from llamath.catalog import GRADES, find_public_id, find_refused
from llamath.catalog.refused_models import REFUSED_MODELS
from llamath.families.multimodal_registry import WRAPPERS
from llamath.families.refused import REFUSED
from llamath.families.registry import FAMILIES
from llamath.hardware import find_chip, find_device
from llamath.loading import find_counted
from llamath.utils.errors import LlamathError

TRUTH = Path(__file__).parents[1] / "tests" / "truth"
FIELDS = (
    *("total", "active", "context", "vocabulary", "layers", "windows"),
    *("kv_bytes_per_token", "license", "released"),
)
_K = {"128,000": 131072, "256,000": 262144, "1,000,000": 1048576}
"""Contexts that the gallery rounds: 128k for 131,072."""


@cache
def gallery() -> tuple[dict[str, Any], ...]:
    """Return the gallery's models."""
    return tuple(json.loads((TRUTH / "gallery.json").read_text()))


@cache
def differences() -> dict[str, Any]:
    """Return the explained differences, and the gallery's words for licenses."""
    data: dict[str, Any] = json.loads((TRUTH / "gallery_differences.json").read_text())
    return data


@cache
def sheet(public_id: str) -> FactSheet | None:
    """Return what is known here of a public id, or None for a refused one."""
    if find_public_id(public_id) is None:
        assert find_refused(public_id) is not None, public_id
        return None
    return llamath.facts(public_id)


def found_differences() -> dict[tuple[str, str], tuple[object, object]]:
    """Return the gallery's value and that of llamath for each model and field in which they
    differ; what either does not say is no difference.
    """
    found = {}
    for entry in gallery():
        facts = sheet(entry["hub_id"])
        for field in FIELDS if facts is not None else ():
            theirs, ours, agree = _compare(field, entry, facts)  # type: ignore[arg-type]
            if theirs is not None and ours is not None and not agree:
                found[entry["hub_id"], field] = (theirs, ours)
    return found


def _compare(field: str, entry: dict[str, Any], facts: FactSheet) -> tuple[Any, Any, bool]:
    """Return the gallery's value, that of llamath, and whether they agree."""
    if field in ("total", "active"):
        theirs = entry[f"{field}_number"]
        ours: Any = facts.total if field == "total" else facts.active
        return theirs, ours, theirs is not None and agrees_as_printed(theirs, ours)
    if field == "context":
        theirs, ours = entry["context"], facts.context
        return theirs, ours, ours in (_integer(theirs), _K.get(theirs))
    if field == "vocabulary":
        theirs, ours = entry["vocab"], facts.vocabulary
        return theirs, ours, theirs is not None and _integer(theirs) == ours
    if field == "layers":
        theirs, ours = sum(layer_numbers(entry["layers"])), facts.layers
        return theirs, ours, theirs == ours
    if field == "windows":
        match = re.search(r"(\d+) (?:sliding-window|chunked)", str(entry["layers"]))
        ours = sum(x.layers for x in facts.mixers if x.window is not None)
        return match and int(match[1]), ours, match is not None and int(match[1]) == ours
    if field == "kv_bytes_per_token":
        theirs, ours = entry[field], facts.kv_per_token
        return theirs, ours, ours is not None and abs(theirs - ours) <= 0.05 * 1024
    if field == "license":
        theirs, ours = differences()["licenses"][entry["license"]], facts.license
        return theirs, ours, theirs == ours
    theirs, ours = entry["released"], facts.released
    return theirs, ours, ours is not None and theirs.startswith(ours)


def agrees_as_printed(printed: int, count: int) -> bool:
    """Whether a count rounds to the digits of a printed number: 400B may be 398.6B."""
    unit = 10 ** (len(str(printed)) - len(str(printed).rstrip("0")))
    return abs(printed - count) * 2 <= unit


def layer_numbers(text: str | int) -> Iterator[int]:
    """Yield the numbers of layers in the gallery's words: `6 GQA + 23 Mamba-2` is 6 and 23, and
    `22 layers × 2 passes` 44; layers for multi-token prediction are no layers of the model.
    """
    text = re.sub(r"\+ \d+ MTP layers?", "", str(text))
    layers, _, passes = text.partition(" × ")
    times = int(passes.split()[0]) if passes else 1
    return (times * int(x) for x in re.findall(r"(?<![\w.-])\d+(?=$| )", layers))


def _integer(text: str) -> int | None:
    match = re.match(r"\d{1,3}(?:,\d{3})+(?!\d)", text)
    return int(match[0].replace(",", "")) if match else None


def tables() -> Iterator[str]:
    """Yield the lines of four tables: what is covered, from where the configurations are, what is
    refused, and where the gallery differs.
    """
    grades = Counter(refused_or_grade(entry["hub_id"]) for entry in gallery())
    yield from ("| | in all | known | refused | unknown |", "| --- | ---: | ---: | ---: | ---: |")
    known = len(gallery()) - grades["refused"]
    yield f"| models of the gallery | {len(gallery())} | {known} | {grades['refused']} | 0 |"
    listed, known = known_hardware()
    yield f"| hardware of a public list | {listed} | {known} | 0 | {listed - known} |"
    types, downloads = Counter[str](), Counter[str]()
    for name, n in json.loads((TRUTH / "downloads.json").read_text()).items():
        types[state := state_of_type(name)] += 1
        downloads[state] += n
    states = ("known", "refused", "unknown")
    cells = (types.total(), *(types[x] for x in states))
    yield f"| model types on the Hub | {' | '.join(map(str, cells))} |"
    shares = (f"{100 * downloads[x] / downloads.total():.1f}%" for x in states)
    yield f"| their downloads | {downloads.total() / 1e6:.0f} million | {' | '.join(shares)} |"
    yield from ("", "| configuration | models |", "| --- | ---: |")
    yield from (f"| {words} | {grades[grade]} |" for grade, words in GRADES.items())
    yield from ("", "| refused | why |", "| --- | --- |")
    yield from (f"| {x.name} | {x.reason} |" for x in REFUSED_MODELS)
    found, names = found_differences(), {x["hub_id"]: x["name"] for x in gallery()}
    head = "| models | differ in | gallery / llamath, of the first | right | why |"
    yield from ("", head, "| --- " * 5 + "|")
    for group in differences()["differences"]:
        field = group["field"]
        example = " / ".join(_shown(x) for x in found[group["models"][0], field])
        models = ", ".join(names[x] for x in group["models"])
        words = field.replace("_", " ").replace("kv", "KV")
        yield f"| {models} | {words} | {example} | {group['right']} | {group['why']} |"


def state_of_type(model_type: str) -> str:
    """Return whether models of a type are counted, the text alone or the whole, refused by name
    with the reason, or unknown.
    """
    wrapper = WRAPPERS.find(model_type)
    if wrapper is not None or FAMILIES.find(model_type) is not None or find_counted(model_type):
        return "known"
    return "refused" if model_type in REFUSED else "unknown"


def known_hardware() -> tuple[int, int]:
    """Return how many entries the public list of hardware has, and how many are known by name."""
    names = [x["name"] for x in json.loads((TRUTH / "hardware.json").read_text())]
    return len(names), sum(map(_is_known, names))


def _is_known(name: str) -> bool:
    try:
        return bool(find_chip(name) or find_device(name))
    except LlamathError:
        return False


def refused_or_grade(public_id: str) -> str:
    """Return how far the configuration of a public id is the published one, or `refused`."""
    preset = find_public_id(public_id)
    return "refused" if preset is None else preset.grade


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


if __name__ == "__main__":
    explained = {(x, y["field"]) for y in differences()["differences"] for x in y["models"]}
    for (model, field), values in found_differences().items():
        if (model, field) not in explained:
            print(model, field, *map(_shown, values), "is not explained")
