"""Flags of engines for a placement: llama.cpp's options, transformers' `device_map`, and
KTransformers' options.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..memory.inference_memory import MemoryCalculator
from ..serving.launch_command import checkpoint_address, own_address
from ..serving.rank_shapes import quantization_method
from .layer_sizes import ModelBytes

_LLAMA_CACHE = {"fp16": "f16", "fp32": "f32"}
_KT_METHODS = {"gguf": "LLAMAFILE", "": "BF16", "fp8": "FP8", "gptq": "GPTQ_INT4"}
"""`--kt-method` by the method of the weights (kt-kernel/README.md of KTransformers); others are
detected or converted."""


def llama_cpp_flags(
    calculator: MemoryCalculator,
    sizes: ModelBytes,
    owners: Sequence[int],
    cpu_experts: int,
    head_on_gpu: bool,
    gpus: int,
) -> tuple[str, str]:
    """Return the command line, and the same placement of experts as `-ot`; empty if all are on
    GPUs.
    """
    on_gpu = sum(x >= 0 for x in owners)
    words = [_model_words(calculator), f"-c {calculator.context * calculator.request.batch}"]
    if calculator.request.batch > 1:
        words.append(f"-np {calculator.request.batch}")
    words.append(f"-ngl {on_gpu + head_on_gpu}")
    layers = [
        i for i, x in enumerate(sizes.layers) if x.experts and i < cpu_experts and owners[i] >= 0
    ]
    override = ""
    if layers:
        every = all(not x.experts or i < cpu_experts for i, x in enumerate(sizes.layers))
        words.append("--cpu-moe" if every else f"--n-cpu-moe {cpu_experts}")
        numbers = r"\d+" if every else "|".join(map(str, layers))
        override = rf'-ot "blk\.({numbers})\.ffn_(gate|up|down|gate_up)_(ch|)exps=CPU"'
    if gpus > 1 and on_gpu:
        counts = [
            sum(x == g for x in owners) + (head_on_gpu and g == gpus - 1) for g in range(gpus)
        ]
        words.append(f"--tensor-split {','.join(map(str, counts))}")
    if kind := calculator.request.kv_dtype:
        kind = _LLAMA_CACHE.get(kind, kind)
        words.append(
            f"--cache-type-k {kind} --cache-type-v {kind}"
            + ("" if kind in ("f16", "f32", "bf16") else " --flash-attn on")
        )
    return " \\\n  ".join(words), override


def _model_words(calculator: MemoryCalculator) -> str:
    return f"llama-server -m {shlex.quote(checkpoint_address(calculator, 'llama.cpp').address)}"


def device_map(
    sizes: ModelBytes, owners: Sequence[int], cpu_experts: int, head_on_gpu: bool
) -> dict[str, int | str]:
    """Return transformers' `device_map`: modules one by one where the experts of a layer are
    elsewhere than the rest.
    """
    names = sizes.names
    if "layer" not in names:
        return {}
    found: dict[str, int | str] = {}
    last = max(owners, default=-1)
    first: int | str = owners[0] if owners and owners[0] >= 0 else "cpu"
    if "embedding" in names:
        found[names["embedding"]] = first
    for i, owner in enumerate(owners):
        layer = names["layer"].replace("{l}", str(i))
        place: int | str = owner if owner >= 0 else "cpu"
        if sizes.layers[i].experts and i < cpu_experts and owner >= 0:
            for part in names.get("parts", "").split():
                found[f"{layer}.{part}"] = (
                    "cpu" if part.endswith(".experts") or part == "experts" else place
                )
        else:
            found[layer] = place
    at_end: int | str = last if head_on_gpu and last >= 0 else "cpu"
    for key in ("norm", "head"):
        if key in names:
            found[names[key]] = at_end
    return found


def with_disk(found: dict[str, int | str], sizes: ModelBytes, room: int) -> dict[str, int | str]:
    """Return a `device_map` with as many modules on `disk` as the RAM has no room for: experts
    of the first layers, then whole layers.
    """
    bytes_of = _module_bytes(found, sizes)
    over = sum(n for name, n in bytes_of.items() if found[name] == "cpu") - room
    moved: dict[str, int | str] = {}
    for name in sorted(bytes_of, key=lambda x: not x.endswith("experts")):
        if over > 0 and found[name] == "cpu" and bytes_of[name]:
            moved[name] = "disk"
            over -= bytes_of[name]
    return found | moved


def _module_bytes(found: dict[str, int | str], sizes: ModelBytes) -> dict[str, int]:
    """The bytes of the modules that are whole layers, or the experts of a layer, in the order of
    the layers.
    """
    result: dict[str, int] = {}
    for i, x in enumerate(sizes.layers):
        layer = sizes.names["layer"].replace("{l}", str(i)) if "layer" in sizes.names else ""
        experts = next(
            (
                f"{layer}.{part}"
                for part in sizes.names.get("parts", "").split()
                if part.endswith("experts")
            ),
            "",
        )
        if layer in found:
            result[layer] = x.dense + x.experts
        elif experts in found:
            result[experts] = x.experts
    for key, size in (("embedding", sizes.embedding), ("head", sizes.head)):
        if (name := sizes.names.get(key, "")) in found:
            result[name] = size
    return result


def ktransformers_flags(
    calculator: MemoryCalculator,
    sizes: ModelBytes,
    cpu_experts: int,
    owners: Sequence[int],
    gpus: int,
) -> str:
    """Return the options of SGLang with KTransformers' kernels: the experts of each layer that
    GPUs keep; empty without experts.
    """
    total = sum(x.experts for x in sizes.layers)
    if not total or not gpus or any(x < 0 for x in owners):
        return ""
    on_gpu = sum(x.experts for i, x in enumerate(sizes.layers) if i >= cpu_experts)
    weights = checkpoint_address(calculator).address
    name = own_address(calculator.model) or weights
    words = [
        f"python -m sglang.launch_server --model-path {shlex.quote(name)}",
        f"--kt-weight-path {shlex.quote(weights)}",
        *(
            [f"--kt-method {kt}"]
            if (kt := _KT_METHODS.get(quantization_method(calculator)))
            else []
        ),
        f"--kt-num-gpu-experts {sizes.experts * on_gpu // total}",
        "--kt-cpuinfer CORES",
        *([f"--tp-size {gpus}"] if gpus > 1 else []),
        f"--context-length {calculator.context}",
        *(["--language-model-only"] if calculator.model.is_text_alone else []),
    ]
    return " \\\n  ".join(words)
