"""The commands that tools/snapshot.py runs: tables of command lines, and the stable ids by which
two snapshots are compared.

When an option is renamed, change its spelling here and keep the keys: they become the ids.
"memory/train" for llama-3-8b becomes "memory/llama-3-8b/train". In the command lines, {} stands for
the model.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
CATALOG = "src/llamath/catalog"
TINY = {"tiny": "tests/tiny", "unproven": "tests/tiny_unproven"}
PLACES = {"embedded": "embedded", "tiny-llama": "examples/tiny-llama"}
"""Name in ids -> folder of files {label: configuration}, and what is passed as MODEL or PATH."""

EVERY = {
    "count": "count {} --json",
    "config": "config {} --json",
    "memory": "memory {} --json",
    "memory/batch=3": "memory {} --context 48 --batch 3 --batch-tokens all --json",
    "memory/train": "memory {} --training --json",
    "memory/lora": "memory {} --lora r=16,targets=all --json",
    "fit": "fit {} --json",
    "flops": "flops {} --json",
    "names": "names {} --json",
    "trace": "trace {} --json",
}
"""For every preset, every configuration of TINY, and PLACES."""

PRESETS = {
    "memory/context=128k": "memory {} --context 128k --batch 4 --json",
    "memory/quantized": "memory {} --context 4k --context 32k --dtype q4_k_m --kv-dtype q8_0 "
    "--on mem=24GiB --json",
    "memory/train,layout": "memory {} --layout tp=2,pp=2,dp=4,zero=1 --context 4k "
    "--training recompute=selective --json",
    "fit/8xh100": "fit {} --on 8xh100 --context 8k --json",
    "fit/other": "fit {} --on '2x mem=24GiB bw=1TB/s bf16=100TF' --dtype int8 --context 4k "
    "--batch 2 --json",
    "flops/mfu": "flops {} --context 4k --batch 2 --recompute full --on 64xh100 --mfu 400TFLOP/s "
    "--json",
    "names/hf": "names {} --names hf --json",
    "names/meta": "names {} --names meta --json",
    "names/gguf": "names {} --names gguf --json",
    "plan/train": "plan {} --on 64xh100 --json",
    "plan/serve": "plan {} --on 8xh100 --serve --json",
    "diff/from-llama-3-8b": "diff llama-3-8b {} --json",
}
"""For every preset."""

CHOICE = (
    *(
        "deepseek-v3",
        "deepseek-v2-lite",
        "falcon-40b",
        "gemma-3-27b",
        "gpt-oss-120b",
        "gpt2",
        "llama-2-7b",
        "llama-3-8b",
        "llama-3.1-405b",
    ),
    *(
        "llama-4-scout",
        "mixtral-8x7b",
        "nemotron-3-nano-30b",
        "phi-3-mini",
        "qwen3-next-80b-a3b",
        "qwen3-30b-a3b",
        "tinyllama-1.1b",
    ),
)
DTYPES = ("fp32", "fp8", "bnb-int8", "bnb-nf4", "bnb-nf4-dq", "awq", "gptq", "mxfp4", "iq3_xs")
OPTIMIZERS = ("adamw8bit", "adafactor", "muon", "momentum", "sgd")
CHOSEN = {
    **{f"memory/dtype={x}": f"memory {{}} --dtype {x} --json" for x in DTYPES},
    "memory/imatrix": "memory {} --dtype q4_k_m:imatrix --json",
    "memory/kv=fp8": "memory {} --kv-dtype fp8 --context 32k --on mem=80GiB --json",
    **{f"memory/train,{x}": f"memory {{}} --training optimizer={x} --json" for x in OPTIMIZERS},
    "memory/train,eager": "memory {} --training attention=eager,dropout=yes --batch 2 "
    "--on mem=80GiB --json",
    "memory/train,fused": "memory {} --training "
    "kernels=fused,master=no,grad_dtype=fp32,recompute=full --json",
    "memory/train,experts": "memory {} --training --layout "
    "tp=2,pp=2,ep=4,dp=8,zero=3,microbatches=8,interleave=2 --context 8k --json",
    "memory/train,context": "memory {} --training --layout tp=4,cp=2,dp=2,zero=2,sp=no --context "
    "32k --json",
    "memory/qlora": "memory {} --lora r=8,targets=q,v --dtype bnb-nf4-dq --json",
    "fit/rtx-4090": "fit {} --on rtx-4090 --dtype q4_k_m --kv-dtype q8_0 --context 8192 --json",
    "fit/cards": "fit {} --dtype mxfp4 --context 32k --batch 4 --json",
    "fit/tp2,pp2": "fit {} --on 4xa100-80gb --layout tp=2,pp=2 --json",
    "flops/full": "flops {} --attention full,unpacked,flash --recompute selective --json",
    "flops/bytes": "flops {} --dtype Q4_K_M --kv-dtype fp8 --context 32k --json",
    "flops/rate": "flops {} --context 4096 --on 2048xh800 --mfu 3157407tok/s --json",
    "plan/large": "plan {} --on 1024xh100 --context 8192 --batch-tokens 16M --tokens 15.6T --json",
    "plan/fixed": "plan {} --on 64xa100-80gb --layout tp=8,pp=2 --training "
    "optimizer=adamw8bit,grad_dtype=bf16,attention=eager --top 3 --json",
    "plan/serve,latency": "plan {} --on 16xh100 --serve --context 8k --latency 30ms --dtype fp8 "
    "--kv-dtype fp8 --json",
    "config/set": "config {} --set num_hidden_layers=4 --json",
    "trace/one": "trace {} --layers 1 --context 33 --json",
}
"""For each model of CHOICE."""

NUMBERS = (
    "2839830528",
    "3540389888",
    "123456789013",
    "8030257153",
    "8030261248",
    "685B",
    "1.5e9",
    "7241732096",
)
ONCE = {
    "models": "models --json",
    "models/words": "models llama 3 --json",
    "gpus": "gpus --json",
    **{f"gpus/{x}": f"gpus {x} --json" for x in ("h100", "h100-sxm", "amd", "tpu-v4")},
    "count/public-id": "count meta-llama/Meta-Llama-3-8B --json",
    "count/args": "count dim=4096,n_layers=32,n_heads=32,vocab_size=32000 --json",
    "config/args": "config "
    "dim=4096,n_layers=32,n_heads=32,multiple_of=1024,ffn_dim_multiplier=1.3,vocab_size=9 "
    "--json",
    "memory/args": "memory dim=4096,n_layers=32,n_heads=32,vocab_size=32000 --json",
    "count/set": "count llama-3-8b --set tie_word_embeddings=true --set num_hidden_layers=16 "
    "--json",
    "diff/llama-2-to-3": "diff llama-2-7b llama-3-8b --json",
    "diff/three": "diff llama-3.2-1b llama-3.1-8b llama-3.1-70b --json",
    "diff/unlike": "diff gpt2 llama-3.2-1b gemma-2-2b --json",
    "diff/experts": "diff mixtral-8x7b deepseek-v3 --json",
    "diff/set": "diff llama-3-8b --set tie_word_embeddings=true --json",
    "diff/files": "diff examples/tiny-llama embedded --json",
    **{f"explain/{x}": f"explain {x} --json" for x in NUMBERS},
    "explain/6889689088,llama-2-7b": "explain 6889689088 --like llama-2-7b --json",
    "explain/685B,deepseek-v3": "explain 685B --like deepseek-v3 --json",
    "explain/6738415616,all": "explain 6738415616 --all --json",
    **{f"design/{x}": f"design {x} --json" for x in ("405B", "70B", "1.5e9", "8030261248", "1")},
    "design/flops": "design --budget flops=5.76e23 --top 1 --json",
    "design/tokens": "design --budget tokens=15T,law=besiroglu --json",
    "design/active": "design 47B-A12.9B --like mixtral --top 2 --json",
    "design/none": "design 70B --bounds max_kv_per_token=4KiB --json",
    "design/max-kv": "design 8B --bounds max_kv_per_token=64KiB,tp=8 --sort error --json",
    "design/gpt2": "design 124M --like gpt2 --json",
    "design/classic": "design 405B --like classic --set num_hidden_layers=80 "
    "--set num_attention_heads=128 --bounds ffn_ratio=4 --json",
    "design/against": "design 7B --like llama-2 --like gemma-2-2b --set "
    "num_hidden_layers=24:40 --bounds aspect=100:140 --tolerance 1% --json",
    **{f"ls/{x}": f"ls {place} --json" for x, place in PLACES.items()},
    **{f"verify/{x}": f"verify {place} --json" for x, place in PLACES.items()},
    "verify/set": "verify examples/tiny-llama --set num_key_value_heads=4 --json",
    "verify/full": "verify examples/tiny-llama --full --json",
    "verify/as": "verify examples/tiny-llama embedded --json",
    "same/identical": "same examples/tiny-llama examples/tiny-llama --json",
    "hash/tiny-llama": "same examples/tiny-llama --json",
    "hash/embedded": "same embedded --json",
    "logits/same": "same examples/tiny-llama examples/tiny-llama --logits --json",
    "logits/set": "same examples/tiny-llama examples/tiny-llama --logits "
    "--set rope_theta=500000 --json",
    "run/logprobs": "run --chat-template none 'Anna had a red ball. She' --max-tokens 8 "
    "--temperature 0 --logprobs 3 --json",
    "trace/prompt": "trace 'Anna had a red ball.' --json",
    **{
        f"{x}/unknown": f"{x} llama-9 --json"
        for x in ("count", "config", "memory", "fit", "flops", "names", "trace")
    },
    "memory/bad-dtype": "memory llama-3-8b --dtype q9 --json",
    "memory/bad-layout": "memory llama-3-8b --training --layout tp=3 --json",
    "fit/bad-gpu": "fit llama-3-8b --on h1000 --json",
    "plan/none-fits": "plan llama-3.1-405b --on 1xh100 --json",
    "verify/missing": "verify tests --json",
}

SMALL = {
    "vocab_size": 99,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 16,
}
REFUSED = {
    "t5": {"model_type": "t5", "d_model": 64},
    "unknown": {"model_type": "lama", **SMALL},
    "no-type": SMALL,
    "no-layers": {"model_type": "llama", **SMALL, "num_hidden_layers": None},
    "other-experts": {"model_type": "llama", **SMALL, "num_local_experts": 8},
    "cross-attention": {"model_type": "llama", **SMALL, "add_cross_attention": True},
    "uneven-heads": {"model_type": "llama", **SMALL, "num_key_value_heads": 5},
    "contradiction": {
        "model_type": "gpt2",
        "n_embd": 64,
        "hidden_size": 32,
        "n_layer": 2,
        "n_head": 4,
        "vocab_size": 99,
    },
    "text": {"model_type": "llama", **SMALL, "hidden_size": "64"},
}
"""Configurations that are refused; count and memory read each from standard input."""


class Invocation(NamedTuple):
    """One command line; `stdin` is the configuration where the model is given as `-`."""

    id: str
    argv: tuple[str, ...]
    stdin: str | None = None


def invocations() -> Iterator[Invocation]:
    """Everything in the tables, one by one."""

    def filled(
        table: dict[str, str], name: str, model: str, stdin: str | None = None
    ) -> Iterator[Invocation]:
        for key, template in table.items():
            command, slash, variant = key.partition("/")
            argv = tuple(model if x == "{}" else x for x in shlex.split(template))
            yield Invocation(f"{command}/{name}{slash}{variant}", argv, stdin)

    for name in sorted(x.stem for x in (ROOT / CATALOG).glob("*.json")):
        yield from filled(EVERY | PRESETS | (CHOSEN if name in CHOICE else {}), name, name)
    for name, place in PLACES.items():
        yield from filled(EVERY, name, place)
    for kind, folder in TINY.items():
        for path in sorted((ROOT / folder).glob("*.json")):
            for label, config in json.loads(path.read_text()).items():
                yield from filled(EVERY, f"{kind}/{path.stem}: {label}", "-", json.dumps(config))
    for label, config in REFUSED.items():
        yield from filled(
            {x: EVERY[x] for x in ("count", "memory")}, f"refused: {label}", "-", json.dumps(config)
        )
    for key, command in ONCE.items():
        yield Invocation(key, tuple(shlex.split(command)))
