"""`launch_command`: the command line that starts an engine with a model, to be pasted; for
transformers, a piece of Python.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ....engines import Engine
from ....model import FamilyModel
from ...storage.choose_storage import (
    is_unchanged,
    published_recipe,
    released_float,
    released_format,
)
from ..memory.inference_memory import MemoryCalculator
from .rank_shapes import EngineLayout

_FP8_CACHE = {"F8_E4M3": "fp8", "F8_E5M2": "fp8_e5m2"}
_FLOATS = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
_TORCH_FLOATS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_PROGRAMS = {
    "vllm": ("vllm", "serve"),
    "sglang": ("python", "-m", "sglang.launch_server", "--model-path"),
    "llama.cpp": ("llama-server", "-m"),
    "tensorrt-llm": ("trtllm-serve",),
}
_CONVERT_FLOATS = ("vllm", "sglang", "transformers")
_BITSANDBYTES = {
    "bnb-int8": "load_in_8bit=True",
    "bnb-nf4": 'load_in_4bit=True, bnb_4bit_quant_type="nf4"',
    "bnb-nf4-dq": 'load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True',
}


def launch_command(
    engine: Engine,
    calculator: MemoryCalculator,
    layout: EngineLayout,
    fraction: float | None,
    more: Sequence[tuple[str, ...]] = (),
    *,
    node: int,
) -> str:
    """Return the command line, one option on each line; `more` are flags with their values. A
    layout of more than the GPUs of a `node` has one line for the first node and one for the others,
    with their shell's NODE_RANK and MASTER_ADDR.
    """
    name = checkpoint_address(calculator, engine.runner).address
    if engine.name == "ollama":
        variables = [
            "=".join(map(shlex.quote, x)) for x in (*_ollama_words(engine, calculator), *more)
        ]
        return " \\\n  ".join([*variables, "ollama serve"])
    if engine.name == "transformers":
        return "\n".join(_transformers_lines(calculator, name, layout))
    make = _llama_cpp_words if engine.name == "llama.cpp" else _server_words
    found = [(*_PROGRAMS[engine.name], name), *make(engine, calculator, layout, fraction)]
    given = {x[0] for x in more}
    words = [shlex.join(x) for x in (*(x for x in found if x[0] not in given), *more)]
    own = {x.name for x in engine.flags.all if x.means in _NODE_MEANINGS}
    if layout.gpus // layout.copies <= node or engine.name not in _ON_NODES or own & given:
        return _joined(words)
    return _ON_NODES[engine.name](engine, words, layout, node)


def _joined(words: Iterable[str]) -> str:
    return " \\\n  ".join(words)


_NODE_MEANINGS = frozenset({"nodes", "node", "address", "executor", "dp_of_node", "dp_first_rank"})
_ADDRESS = '"$MASTER_ADDR"'


def _flag_name(engine: Engine, means: str) -> str:
    flag = engine.flags.meaning(means)
    assert flag is not None, means
    return flag.name


def _vllm_on_nodes(engine: Engine, words: list[str], layout: EngineLayout, node: int) -> str:
    """Return the commands of the nodes of vLLM: copies of the attention that each fit into a node
    are its own ranks, anything else is ranks of one group, which older versions leave to Ray.
    """
    nodes = -(-layout.gpus // node)
    name = {
        x: _flag_name(engine, x)
        for x in (
            *("nodes", "node", "address", "headless", "executor"),
            *("dp_of_node", "dp_address", "dp_port", "dp_first_rank"),
        )
    }
    local = layout.dp // nodes
    first: tuple[str, ...]
    other: tuple[str, ...]
    if layout.dp > 1 and local * nodes == layout.dp and layout.tp * layout.pp <= node:
        shared = (f"{name['dp_of_node']} {local}", f"{name['dp_address']} {_ADDRESS}")
        first = (*shared, f"{name['dp_port']} 13345")
        other = (*first, f'{name["dp_first_rank"]} "$((NODE_RANK * {local}))"', name["headless"])
    elif (flag := engine.flags.meaning("nodes")) is not None and engine.has(flag):
        shared = (f"{name['nodes']} {nodes}", f"{name['address']} {_ADDRESS}")
        first = (*shared, f"{name['node']} 0")
        other = (*shared, f'{name["node"]} "$NODE_RANK"', name["headless"])
    else:
        lines = (
            f"# ray start --head --port 6379 on the first of {nodes} nodes,",
            f'# ray start --address {_ADDRESS[:-1]}:6379" on the others, then on the first',
            _joined((*words, f"{name['executor']} ray")),
        )
        return "\n".join(lines)
    return "\n".join(
        (
            f"# on the first of {nodes} nodes",
            _joined((*words, *first)),
            "# on the others, with NODE_RANK from 1 on"
            if nodes > 2
            else "# on the other, with NODE_RANK=1",
            _joined((*words, *other)),
        )
    )


def _sglang_on_nodes(engine: Engine, words: list[str], layout: EngineLayout, node: int) -> str:
    """Return the command of each node of SGLang."""
    nodes = -(-layout.gpus // node)
    own = (
        f"{_flag_name(engine, 'nodes')} {nodes}",
        f'{_flag_name(engine, "node")} "$NODE_RANK"',
        f'{_flag_name(engine, "address")} "$MASTER_ADDR:20000"',
    )
    return f"# on {nodes} nodes, with NODE_RANK from 0 on\n{_joined((*words, *own))}"


def _tensorrt_on_nodes(
    engine: Engine,  # noqa: ARG001
    words: list[str],
    layout: EngineLayout,
    node: int,
) -> str:
    """Return the command that starts all ranks of TensorRT-LLM, as its documentation does."""
    nodes, ranks = -(-layout.gpus // node), layout.gpus
    start = f"srun -N {nodes} --ntasks {ranks} --ntasks-per-node {ranks // nodes} --mpi=pmix"
    return _joined((start, "trtllm-llmapi-launch", *words))


_ON_NODES = {
    "vllm": _vllm_on_nodes,
    "sglang": _sglang_on_nodes,
    "tensorrt-llm": _tensorrt_on_nodes,
}


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
    own_format = released_format(calculator.model)
    is_own = own_format is not None and name == own_format.name
    if is_own or _converts(calculator, engine):
        return CheckpointAddress(own)
    if published := published_recipe(calculator.model, name):
        return CheckpointAddress(str(published["id"]))
    path = f"./{stem}-{name.upper()}"
    return CheckpointAddress(
        path, f"{path} stands for a checkpoint of {own} in {name}: put its public id or path there"
    )


def _converts(calculator: MemoryCalculator, engine: str) -> bool:
    """Whether an engine converts a model to the format that is asked for while it loads."""
    if engine == "transformers" and calculator.packer.name in _BITSANDBYTES:
        return bool(released_float(calculator.model))
    return (
        engine in _CONVERT_FLOATS
        and not calculator.packer.is_packed
        and bool(released_float(calculator.model))
    )


def own_address(model: FamilyModel) -> str:
    """Return the public id of an unchanged preset, or the path of a checkpoint; empty if there
    is neither.
    """
    if model.location:
        return re.sub(r"/(config|params)\.json$", "", model.location)
    preset = model.preset
    return preset.public_id if preset is not None and is_unchanged(model) else ""


def _rank_words(engine: Engine, layout: EngineLayout) -> Iterator[tuple[str, ...]]:
    """Yield the flags of a layout; but for vLLM, the tensor ranks include the copies of the
    attention.
    """
    all_ranks = layout.tp * layout.dp
    degrees = {
        "tp": layout.tp if engine.name == "vllm" else all_ranks,
        "pp": layout.pp,
        "dp": layout.dp,
        "copies": layout.copies,
    }
    for means, n in degrees.items():
        flag = engine.flags.meaning(means)
        if n > 1 and flag is not None:
            yield flag.name, str(n)
    experts = engine.flags.meaning("ep")
    if layout.whole_experts and experts is not None:
        yield (experts.name,) if experts.value == "switch" else (experts.name, str(all_ranks))


def _flag(engine: Engine, means: str, value: object) -> Iterator[tuple[str, ...]]:
    """Yield a flag in the words of an engine, with llamath's value."""
    flag = engine.flags.meaning(means)
    if flag is not None:
        words = {ours: word for word, ours in reversed(tuple(flag.words.items()))}
        yield flag.name, str(words.get(value, value) if isinstance(value, str) else value)


def _server_words(
    engine: Engine, calculator: MemoryCalculator, layout: EngineLayout, fraction: float | None
) -> Iterator[tuple[str, ...]]:
    yield from _rank_words(engine, layout)
    released = released_float(calculator.model)
    if not calculator.packer.is_packed and released not in ("", calculator.packer.name):
        yield from _flag(engine, "dtype", _FLOATS[calculator.packer.compute_dtype])
    yield from _flag(engine, "context", calculator.context)
    if fraction:
        yield from _flag(engine, "memory_fraction", f"{fraction:g}")
    if calculator.request.kv_dtype and (kind := _short_dtype(calculator.kv_dtype)) != "bf16":
        yield from _flag(engine, "kv_dtype", kind)


def _llama_cpp_words(
    engine: Engine,
    calculator: MemoryCalculator,
    layout: EngineLayout,
    fraction: float | None,  # noqa: ARG001
) -> Iterator[tuple[str, ...]]:
    yield from _flag(engine, "all_context", calculator.context * calculator.request.batch)
    if calculator.request.batch > 1:
        yield from _flag(engine, "batch", calculator.request.batch)
    yield from _flag(engine, "gpu_layers", "all")
    if layout.gpus > 1:
        yield from _flag(engine, "split_mode", "layer")
    if kind := calculator.request.kv_dtype:
        yield from (
            (*x, *y)
            for x, y in zip(
                _flag(engine, "kv_dtype", kind), _flag(engine, "value_dtype", kind), strict=True
            )
        )
        if kind not in _FLOATS.values():
            yield from _flag(engine, "flash_attention", "on")


def _ollama_words(engine: Engine, calculator: MemoryCalculator) -> Iterator[tuple[str, ...]]:
    """Yield variables of the environment."""
    yield from _flag(engine, "context", calculator.context)
    if calculator.request.batch > 1:
        yield from _flag(engine, "batch", calculator.request.batch)
    if kind := calculator.request.kv_dtype:
        yield from _flag(engine, "kv_dtype", kind)


def _transformers_lines(
    calculator: MemoryCalculator, name: str, layout: EngineLayout
) -> Iterator[str]:
    more = _BITSANDBYTES.get(calculator.packer.name, "")
    if not released_float(calculator.model):
        more = ""
    yield "import torch"
    yield (
        "from transformers import AutoModelForCausalLM, "
        f"AutoTokenizer{', BitsAndBytesConfig' if more else ''}"
    )
    yield ""
    yield f"tokenizer = AutoTokenizer.from_pretrained({name!r})"
    words = [repr(name), f"dtype=torch.{_TORCH_FLOATS[calculator.packer.compute_dtype]}"]
    words += [f"quantization_config=BitsAndBytesConfig({more})"] if more else []
    words.append('device_map="auto"' if layout.gpus > 1 else 'device_map="cuda"')
    yield f"model = AutoModelForCausalLM.from_pretrained({', '.join(words)})"


def _short_dtype(kv_dtype: str) -> str:
    from ..memory.cache_bytes import parse_kv_dtype

    return _FP8_CACHE.get(parse_kv_dtype(kv_dtype).name, kv_dtype)
