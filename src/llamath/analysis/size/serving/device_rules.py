"""`device_facts`: what engines check of a device, of the dtype they compute in, and of the tokens
that a request may have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....core.tree import fold_blocks
from ....engines import Engine
from ....hardware import Device
from ...storage.choose_storage import released_float
from ..memory.inference_memory import MemoryCalculator
from .engine_memory import batched_tokens
from .rank_shapes import Facts, quantization_method

_BFLOAT16_SM = 80
"""The least compute capability with bfloat16: Ampere (CUDA C++ programming guide, arithmetic
instructions; `supported_dtypes` in vllm/platforms/cuda.py)."""
_MAX_LENGTH = 2**62
"""Factors of a file may be as large as floats are."""
_FLOATS = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}


def device_facts(engine: Engine, calculator: MemoryCalculator, gpu: Device) -> Facts:
    """Return the values of a device and a request that engines check; None is not known."""
    longest, key = longest_request(engine, calculator)
    asked = asked_float(calculator)
    batch = batched_tokens(engine, gpu) if "batched_tokens" in engine.figures else (None, None)
    return {
        "of": "device",
        "vendor": gpu.vendor or None,
        "series": gpu.name.partition("-")[0] if gpu.vendor else None,
        "gpu": gpu.title,
        "sm": gpu.sm or None,
        "capability": gpu.compute_capability,
        "method": quantization_method(calculator),
        "asked": asked,
        "falls_back_to": "" if asked else _fallback(engine, calculator, gpu),
        "without_float16": _is_without_float16(engine, calculator),
        "model_type": next(iter(model_types(calculator)), ""),
        "context": calculator.context,
        "batched_tokens": batch[0],
        "sequences": batch[1],
        "longest": longest,
        "longest_text": _as_printed(longest, engine, calculator),
        "longest_key": key,
        "model_max_length": configs(calculator)[-1].get("model_max_length"),
    }


def run_as_on(engine: Engine, calculator: MemoryCalculator, gpu: Device) -> MemoryCalculator:
    """Return the model in the dtype that an engine falls back to on a device: float32 where the
    device has no bfloat16 and the engine no float16 for this type of model.
    """
    as_stored = not calculator.packer.is_packed and not asked_float(calculator)
    if as_stored and _fallback(engine, calculator, gpu) == "float32":
        return MemoryCalculator(calculator.model, calculator.request.replace(dtype="fp32"))
    return calculator


def _is_without_float16(engine: Engine, calculator: MemoryCalculator) -> bool:
    return bool(set(engine.figure("types_without_float16", ())) & set(model_types(calculator)))


def _fallback(engine: Engine, calculator: MemoryCalculator, gpu: Device) -> str:
    """Return the float that an engine takes in place of bfloat16 on a device that has none; empty
    where the model, or the device, needs no other.
    """
    if calculator.packer.compute_dtype != "BF16" or not 0 < gpu.sm < _BFLOAT16_SM:
        return ""
    return "float32" if _is_without_float16(engine, calculator) else "float16"


def asked_float(calculator: MemoryCalculator) -> str:
    """Return the float type that the user asks for in place of that of the checkpoint; else
    empty.
    """
    packer = calculator.packer
    released = released_float(calculator.model)
    changes = not packer.is_packed and released not in ("", packer.name)
    return _FLOATS[packer.compute_dtype] if changes else ""


def longest_request(engine: Engine, calculator: MemoryCalculator) -> tuple[int | None, str]:
    """Return the tokens of the longest request that an engine takes from the config, and the key;
    None if it has no such rule, or the config no such key.
    """
    rule = engine.figure("length", {})
    if not rule:
        return None, ""
    config = configs(calculator)[-1]
    found = {x: n for x in rule["keys"] if isinstance(n := config.get(x), int) and n > 0}
    if not found and calculator.tree.context is not None:
        found = {rule["default_key"]: int(calculator.tree.context)}
    if not found:
        return None, ""
    order = sorted(found, key=found.__getitem__) if rule["smallest"] else list(found)
    key, length = order[0], found[order[0]]
    factor: float = 1
    for rope in _rope_scalings(config):
        kind = rope.get("rope_type", rope.get("type"))
        if kind in rule["scaled_already"] or any(x in rope for x in rule["not_scaled_with"]):
            continue
        factor = _number(rope.get("factor"), factor)
        if kind == "yarn" and rule["yarn_from_original"]:
            length = int(_number(rope.get("original_max_position_embeddings"), length))
    if rule["never_scaled"] and any(rule["never_scaled"] in x for x in model_types(calculator)):
        factor = 1
    return int(max(0, min(length * factor, _MAX_LENGTH))), key


def model_types(calculator: MemoryCalculator) -> tuple[str, ...]:
    """Return the types of the model and of its text model."""
    found = (x.get("model_type") for x in configs(calculator))
    return tuple(x for x in found if isinstance(x, str))


def configs(calculator: MemoryCalculator) -> list[Mapping[str, Any]]:
    """Return the model's config, and that of its text model inside."""
    config = calculator.model.config.data
    inner = config.get("text_config")
    return [config, *([inner] if isinstance(inner, dict) else [])]


def _rope_scalings(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the scalings of a config: one for all layers, or one for each type of layers."""
    for key in ("rope_scaling", "rope_parameters"):
        found = config.get(key)
        if not isinstance(found, Mapping):
            continue
        inner = [x for x in found.values() if isinstance(x, Mapping)]
        yield from inner or [found]


def _number(value: Any, default: float) -> float:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else default


def _as_printed(longest: int | None, engine: Engine, calculator: MemoryCalculator) -> str:
    """Return the length as an engine prints it: a float where it was multiplied by the factor of
    rotary positions.
    """
    multiplied = engine.figure("length", {}).get("prints_float") and any(
        getattr(x.block, "rope", None) is not None for x in fold_blocks(calculator.tree)
    )
    return f"{longest}.0" if multiplied and longest is not None else str(longest)
