"""`launch_command`: the command line that starts an engine with a model, to be pasted; for transformers, a piece of Python."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ...engines import Engine
from ..inference.inference_memory import MemoryCalculator
from .rank_shapes import EngineLayout

_VLLM_CACHE = {"F8_E4M3": "fp8", "F8_E5M2": "fp8_e5m2"}
_LLAMA_CACHE = {"fp16": "f16", "fp32": "f32"}


def launch_command(engine: Engine, calculator: MemoryCalculator, layout: EngineLayout, fraction: float | None) -> str:
    """Return the command line, one option on each line."""
    name = model_address(calculator)
    if engine.name == "transformers":
        return "\n".join(_transformers_lines(calculator, name, layout))
    make = {"vllm": _vllm_words, "sglang": _sglang_words, "llama.cpp": _llama_cpp_words, "tensorrt-llm": _tensorrt_words}[engine.name]
    words = [shlex.join(x) for x in make(calculator, name, layout, fraction)]
    return " \\\n  ".join(words)


def model_address(calculator: MemoryCalculator) -> str:
    """Return the public id or path of a model, as engines load it."""
    from ...catalog import presets

    model = calculator.model
    for x in presets():
        if x.name == model.name and x.ids:
            return str(x.ids[0])
    return model.source or model.name


def _vllm_words(calculator: MemoryCalculator, name: str, layout: EngineLayout, fraction: float | None) -> Iterator[tuple[str, ...]]:
    yield "vllm", "serve", name
    if layout.tp > 1:
        yield "--tensor-parallel-size", str(layout.tp)
    if layout.pp > 1:
        yield "--pipeline-parallel-size", str(layout.pp)
    if layout.dp > 1:
        yield "--data-parallel-size", str(layout.dp)
    if layout.whole_experts:
        yield ("--enable-expert-parallel",)
    yield "--max-model-len", str(calculator.context)
    if fraction:
        yield "--gpu-memory-utilization", f"{fraction:g}"
    if calculator.request.kv_dtype and (kind := _short_dtype(calculator.kv_dtype)) != "bf16":
        yield "--kv-cache-dtype", kind


def _sglang_words(calculator: MemoryCalculator, name: str, layout: EngineLayout, fraction: float | None) -> Iterator[tuple[str, ...]]:
    yield "python", "-m", "sglang.launch_server", "--model-path", name
    if layout.tp * layout.dp > 1:
        yield "--tp-size", str(layout.tp * layout.dp)
    if layout.pp > 1:
        yield "--pp-size", str(layout.pp)
    if layout.dp > 1:
        yield "--attn-dp-size", str(layout.dp)
    if layout.whole_experts:
        yield "--ep-size", str(layout.tp * layout.dp)
    yield "--context-length", str(calculator.context)
    if fraction:
        yield "--mem-fraction-static", f"{fraction:g}"
    if calculator.request.kv_dtype and (kind := _short_dtype(calculator.kv_dtype)) != "bf16":
        yield "--kv-cache-dtype", {"fp8": "fp8_e4m3"}.get(kind, kind)


def _llama_cpp_words(calculator: MemoryCalculator, name: str, layout: EngineLayout, fraction: float | None) -> Iterator[tuple[str, ...]]:  # noqa: ARG001
    is_file = name.endswith(".gguf")
    quant = calculator.packer.name.upper()
    yield ("llama-server", "-m", name) if is_file else ("llama-server", "-m", f"{name.rpartition('/')[2]}-{quant}.gguf")
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


def _tensorrt_words(calculator: MemoryCalculator, name: str, layout: EngineLayout, fraction: float | None) -> Iterator[tuple[str, ...]]:
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


def _transformers_lines(calculator: MemoryCalculator, name: str, layout: EngineLayout) -> Iterator[str]:
    dtype = {"F32": "float32", "F16": "float16"}.get(calculator.packer.compute_dtype, "bfloat16")
    yield "import torch"
    yield "from transformers import AutoModelForCausalLM, AutoTokenizer"
    yield ""
    yield f"tokenizer = AutoTokenizer.from_pretrained({name!r})"
    place = '"auto"' if layout.gpus > 1 else '"cuda"'
    yield f"model = AutoModelForCausalLM.from_pretrained({name!r}, dtype=torch.{dtype}, device_map={place})"


def _short_dtype(kv_dtype: str) -> str:
    from ..inference.cache_bytes import parse_kv_dtype

    return _VLLM_CACHE.get(parse_kv_dtype(kv_dtype).name, kv_dtype)
