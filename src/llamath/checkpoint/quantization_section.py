"""The section of a configuration about the quantization of weights, also where ModelOpt writes it into a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .quantization import QUANTIZATION_KEYS

MODELOPT_FILE = "hf_quant_config.json"
"""The file next to a config.json that has ModelOpt's recipe."""


def quantization_section(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the section of a configuration, or of its text model, about the quantization of weights; None if there is none."""
    for part in (config, config.get("text_config")):
        for key in QUANTIZATION_KEYS:
            if isinstance(part, Mapping) and isinstance(section := part.get(key), Mapping):
                return section
    return None


def with_modelopt_recipe(keys: Mapping[str, Any], read: Callable[[str], Mapping[str, Any] | None]) -> Mapping[str, Any]:
    """Return a config.json with the recipe in ModelOpt's own file if it has none itself; `read` reads a file next to it."""
    if quantization_section(keys) is not None or (recipe := read(MODELOPT_FILE)) is None:
        return keys
    return {**keys, "quantization_config": recipe}
