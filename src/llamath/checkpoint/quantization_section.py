"""The section of a configuration about the quantization of weights, also where ModelOpt writes
it into a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .quantization import QUANTIZATION_KEYS

RECIPE_FILES = {
    "hf_quant_config.json": "modelopt",
    "quantize_config.json": "gptq",
    "quant_config.json": "awq",
}
"""Files next to a config.json that have the recipe of ModelOpt, AutoGPTQ and AWQ, and the method
where they do not name one."""


def quantization_section(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the section of a configuration, or of its text model, about the quantization of
    weights; None if there is none.
    """
    for part in (config, config.get("text_config")):
        for key in QUANTIZATION_KEYS:
            if isinstance(part, Mapping) and isinstance(section := part.get(key), Mapping):
                return section
    return None


def with_recipe_file(
    keys: Mapping[str, Any], read: Callable[[str], Mapping[str, Any] | None]
) -> Mapping[str, Any]:
    """Return a config.json with the recipe in a file of its own if it has none itself; `read`
    reads a file next to it.
    """
    if quantization_section(keys) is not None:
        return keys
    for name, method in RECIPE_FILES.items():
        if (recipe := read(name)) is not None:
            return {
                **keys,
                "quantization_config": recipe
                if method == "modelopt"
                else {"quant_method": method, **recipe},
            }
    return keys
