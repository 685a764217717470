"""`launch_command`: the command line that starts an engine with a model, to be pasted; for
transformers, a piece of Python.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ....checkpoint.quantization.weight_format import WeightFormat
from ....engines import Engine
from ....model import FamilyModel
from ..memory.inference_memory import MemoryCalculator, MemoryRequest
from .rank_shapes import EngineLayout

_VLLM_CACHE = {"F8_E4M3": "fp8", "F8_E5M2": "fp8_e5m2"}
_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_CONVERT_FLOATS = ("vllm", "sglang", "transformers")
_BITSANDBYTES = {
    "bnb-int8": "load_in_8bit=True",
    "bnb-nf4": 'load_in_4bit=True, bnb_4bit_quant_type="nf4"',
    "bnb-nf4-dq": 'load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True',
}
_LLAMA_CACHE = {"fp16": "f16", "fp32": "f32"}


def launch_command(
    engine: Engine, calculator: MemoryCalculator, layout: EngineLayout, fraction: float | None
) -> str:
    """Return the command line, one option on each line."""
    name = checkpoint_address(calculator, engine.name).address
    if engine.name == "transformers":
        return "\n".join(_transformers_lines(calculator, name, layout))
    make = {
        "vllm": _vllm_words,
        "sglang": _sglang_words,
        "llama.cpp": _llama_cpp_words,
        "tensorrt-llm": _tensorrt_words,
    }[engine.name]
    words = [shlex.join(x) for x in make(calculator, name, layout, fraction)]
    return " \\\n  ".join(words)


class CheckpointAddress(NamedTuple):
    """What an engine loads, and what a reader has to do about it."""

    address: str  # a public id or a path
    note: str = ""


def checkpoint_address(calculator: MemoryCalculator, engine: str = "") -> CheckpointAddress:
    """Return the public id or path of a model in the format that is asked for; a path that
    stands for one if none is known.
    """
    own = own_address(calculator.model)
    stem = own.rstrip("/").rpartition("/")[2].removesuffix(
        ".gguf"
    ) or calculator.model.name.replace(" ", "-")
    name = calculator.packer.name
    if engine == "llama.cpp" and not own.endswith(".gguf"):
        return CheckpointAddress(f"{stem}-{name.upper()}.gguf")
    if not own:
        return CheckpointAddress(
            f"./{stem}",
            f"./{stem} stands for a checkpoint with this configuration: put its path there",
        )
    if name == _own_format(calculator).name or _converts(calculator, engine):
        return CheckpointAddress(own)
    path = f"./{stem}-{name.upper()}"
    return CheckpointAddress(
        path, f"{path} stands for a checkpoint of {own} in {name}: put its public id or path there"
    )


def _own_format(calculator: MemoryCalculator) -> WeightFormat:
    return MemoryCalculator(calculator.model, MemoryRequest()).packer


def _converts(calculator: MemoryCalculator, engine: str) -> bool:
    """Whether an engine converts a model to the format that is asked for while it loads."""
    if engine == "transformers" and calculator.packer.name in _BITSANDBYTES:
        return not _own_format(calculator).is_packed
    return (
        engine in _CONVERT_FLOATS
        and not calculator.packer.is_packed
        and not _own_format(calculator).is_packed
    )


def own_address(model: FamilyModel) -> str:
    """Return the public id of an unchanged preset, or the path of a checkpoint; empty if there
    is neither.
    """
    if model.location:
        return re.sub(r"/(config|params)\.json$", "", model.location)
    preset = model.preset
    return preset.public_id if preset is not None and _is_unchanged(model, preset.config) else ""


def _is_unchanged(model: FamilyModel, published: Mapping[str, Any]) -> bool:
    """Whether a model has the published keys, those of the text model in a section or beside the
    others.
    """
    if model.outer is None:
        return model.config.data in (
            published,
            *(x for x in published.values() if isinstance(x, Mapping)),
        )
    whole = dict(model.outer.data)
    if whole == published:
        return True
    whole.update(whole.pop("text_config", {}))
    return all(
        key in whole and whole[key] == value
        for key, value in published.items()
        if key != "model_type"
    )


def _vllm_words(
    calculator: MemoryCalculator, name: str, layout: EngineLayout, fraction: float | None
) -> Iterator[tuple[str, ...]]:
    yield "vllm", "serve", name
    if layout.tp > 1:
        yield "--tensor-parallel-size", str(layout.tp)
    if layout.pp > 1:
        yield "--pipeline-parallel-size", str(layout.pp)
    if layout.dp > 1:
        yield "--data-parallel-size", str(layout.dp)
    if layout.whole_experts:
        yield ("--enable-expert-parallel",)
    yield from _float_words(calculator)
    yield "--max-model-len", str(calculator.context)
    if fraction:
        yield "--gpu-memory-utilization", f"{fraction:g}"
    if calculator.request.kv_dtype and (kind := _short_dtype(calculator.kv_dtype)) != "bf16":
        yield "--kv-cache-dtype", kind


def _sglang_words(
    calculator: MemoryCalculator, name: str, layout: EngineLayout, fraction: float | None
) -> Iterator[tuple[str, ...]]:
    yield "python", "-m", "sglang.launch_server", "--model-path", name
    if layout.tp * layout.dp > 1:
        yield "--tp-size", str(layout.tp * layout.dp)
    if layout.pp > 1:
        yield "--pp-size", str(layout.pp)
    if layout.dp > 1:
        yield "--attn-dp-size", str(layout.dp)
    if layout.whole_experts:
        yield "--ep-size", str(layout.tp * layout.dp)
    yield from _float_words(calculator)
    yield "--context-length", str(calculator.context)
    if fraction:
        yield "--mem-fraction-static", f"{fraction:g}"
    if calculator.request.kv_dtype and (kind := _short_dtype(calculator.kv_dtype)) != "bf16":
        yield "--kv-cache-dtype", {"fp8": "fp8_e4m3"}.get(kind, kind)


def _float_words(calculator: MemoryCalculator) -> Iterator[tuple[str, ...]]:
    """Yield the option for another float type than that of the checkpoint."""
    own = _own_format(calculator)
    if not calculator.packer.is_packed and not own.is_packed and calculator.packer.name != own.name:
        yield "--dtype", _FLOATS[calculator.packer.compute_dtype]


def _llama_cpp_words(
    calculator: MemoryCalculator,
    name: str,
    layout: EngineLayout,
    fraction: float | None,  # noqa: ARG001
) -> Iterator[tuple[str, ...]]:
    yield "llama-server", "-m", name
    yield "-c", str(calculator.context * calculator.request.batch)
    if calculator.request.batch > 1:
        yield "-np", str(calculator.request.batch)
    yield "-ngl", "all"
    if layout.gpus > 1:
        yield "--split-mode", "layer"
    if kind := calculator.request.kv_dtype:
        kind = _LLAMA_CACHE.get(kind, kind)
        yield "--cache-type-k", kind, "--cache-type-v", kind
        if kind not in ("f16", "f32", "bf16"):
            yield "--flash-attn", "on"


def _tensorrt_words(
    calculator: MemoryCalculator, name: str, layout: EngineLayout, fraction: float | None
) -> Iterator[tuple[str, ...]]:
    yield "trtllm-serve", name
    if layout.tp * layout.dp > 1:
        yield "--tp_size", str(layout.tp * layout.dp)
    if layout.pp > 1:
        yield "--pp_size", str(layout.pp)
    if layout.whole_experts:
        yield "--ep_size", str(layout.tp * layout.dp)
    yield "--max_seq_len", str(calculator.context)
    if fraction:
        yield "--kv_cache_free_gpu_memory_fraction", f"{fraction:g}"


def _transformers_lines(
    calculator: MemoryCalculator, name: str, layout: EngineLayout
) -> Iterator[str]:
    more = _BITSANDBYTES.get(calculator.packer.name, "")
    if _own_format(calculator).is_packed:
        more = ""
    yield "import torch"
    yield (
        "from transformers import AutoModelForCausalLM, "
        f"AutoTokenizer{', BitsAndBytesConfig' if more else ''}"
    )
    yield ""
    yield f"tokenizer = AutoTokenizer.from_pretrained({name!r})"
    words = [repr(name), f"dtype=torch.{_FLOATS[calculator.packer.compute_dtype]}"]
    words += [f"quantization_config=BitsAndBytesConfig({more})"] if more else []
    words.append('device_map="auto"' if layout.gpus > 1 else 'device_map="cuda"')
    yield f"model = AutoModelForCausalLM.from_pretrained({', '.join(words)})"


def _short_dtype(kv_dtype: str) -> str:
    from ..memory.cache_bytes import parse_kv_dtype

    return _VLLM_CACHE.get(parse_kv_dtype(kv_dtype).name, kv_dtype)
