"""What the tests share: the published truth, and transformers' own checkpoint of a tiny model as the oracle of names and shapes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TRUTH = Path(__file__).parents[2] / "shared" / "truth"
TINY = Path(__file__).parent / "tiny"


def truth(name: str) -> list[dict[str, Any]]:
    """The lines of a file of published facts; empty where the checkout stands alone."""
    path = TRUTH / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tiny_configs() -> list[Any]:
    """Every tiny config of `tests/tiny/FAMILY.json`: `{"label": {…HF keys with model_type…}}`."""
    return [
        pytest.param(config, id=f"{path.stem}-{label}")
        for path in sorted(TINY.glob("*.json"))
        for label, config in json.loads(path.read_text()).items()
    ]
