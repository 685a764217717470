"""Data that tests compare with: the published facts of `tests/truth`, and the tiny configurations of `tests/tiny`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TRUTH = Path(__file__).parents[1] / "truth"
TINY = Path(__file__).parents[1] / "tiny"


def truth(name: str) -> list[dict[str, Any]]:
    """Return the objects in a file of published facts, one per line."""
    return [json.loads(line) for line in (TRUTH / name).read_text().splitlines()]


def conformance(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file of the conformance set."""
    path = Path(__file__).parents[2] / "conformance" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def published(name: str) -> Any:
    """Return one of the published tables in `truth/published.json`."""
    return json.loads((TRUTH / "published.json").read_text())[name]


def published_runs(name: str) -> Any:
    """Return one of the tables of `truth/published_runs.json`."""
    return json.loads((TRUTH / "published_runs.json").read_text())[name]


COUNTED = (
    *(
        "apertus-plain",
        "apertus-biased",
        "baichuan-2",
        "deepseek_v41-",
        "diffllama-",
        "doge-",
        "gemma3n-",
        "grok1-",
        "jetmoe-",
        "longcat_flash_ngram-",
        "mistral_large4-",
    ),
    *("muse_spark-", "phimoe-", "recurrent_gemma-", "xlstm-", "zaya-"),
)
"""The tiny configs of text models that are counted only, by the beginning of their names."""


COUNTED_PRESETS = (
    "apertus-",
    "baichuan2-",
    "grok-2",
    "jetmoe-",
    "longcat-flash-lite",
    "phi-3.5-moe",
    "phi-mini-moe",
    "phi-tiny-moe",
    "xlstm-7b",
)
"""The presets of text models that are counted only, by the beginning of their names."""


def computed_slugs() -> list[str]:
    """Return the names of the presets that are computed."""
    from llamath.catalog import slugs

    return [x for x in slugs() if not x.startswith(COUNTED_PRESETS)]


def tiny_configs(computed: bool = False) -> list[Any]:
    """Return every tiny config of `tests/tiny/FAMILY.json`, `{"label": {HF keys with model_type}}`, or those that are `computed`."""
    return _only_computed(_configs_in(TINY)) if computed else _configs_in(TINY)


def unproven_configs(computed: bool = False) -> list[Any]:
    """Return the same of models without a class in transformers, `tests/tiny_unproven/FAMILY.json`."""
    found = _configs_in(TINY.with_name("tiny_unproven"))
    return _only_computed(found) if computed else found


def _only_computed(configs: list[Any]) -> list[Any]:
    return [x for x in configs if not str(x.id).startswith(COUNTED)]


def multimodal_configs() -> list[Any]:
    """Return every tiny config of a whole multimodal model, `tests/tiny_multimodal/TYPE.json`."""
    return _configs_in(TINY.with_name("tiny_multimodal"))


def auto_class(config: dict[str, Any]) -> Any:
    """Return the auto class of transformers for a whole multimodal model."""
    import transformers

    return (
        transformers.AutoModelForCausalLM
        if config["model_type"] == "phi4_multimodal"
        else transformers.AutoModelForImageTextToText
    )


def renamed_configs() -> list[Any]:
    """Return those of models whose class in transformers saves other names than the published files have."""
    return [x for x in unproven_configs() if str(x.id).startswith(("inkling-", "minimax_m3-"))]


def _configs_in(folder: Path) -> list[Any]:
    return [
        pytest.param(config, id=f"{path.stem}-{label}")
        for path in sorted(folder.glob("*.json"))
        for label, config in json.loads(path.read_text()).items()
    ]
