"""Compares engines on the same random weights, each in its own process, in turn: startup, first token, decoding, peak memory."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import llamath
from harness import RESULTS
from llamath import run

WORKER = str(Path(__file__).with_name("engines.py"))
STORIES = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 12,
    "vocab_size": 32_000,
    "max_position_embeddings": 8192,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": True,
}
DTYPES = ("float32", "bfloat16", "int8", "q4_k")
GGUF_TYPES = {"int8": "q8_0", "q4_k": "q4_k"}
"""Types of GGUF files, which llamath writes for both engines that read them."""
CONTEXT = 4096
"""Tokens before those that are decoded in a long context; as many as the model has positions for at most."""
CPP, VINO = "llama.cpp", "OpenVINO"
BEFORE = ", before"
"""Marks an engine that runs the sources given with --before."""
MAX_DISTANCE = {"float32": 0.005, "bfloat16": 0.05, "int8": 0.15, "q4_k": 0.8}
"""An engine whose logits are further from those of transformers in float32 runs a different model."""
KEYS = ("ready", "first", "answer", "prefill", "decode_1", "decode_8", "decode_long")


def configuration(shape: str) -> dict[str, object]:
    if shape == "110m":
        return STORIES
    return dict(llamath.load("llama-3.2-1b").config.data) | {"architectures": ["LlamaForCausalLM"]}


def make_checkpoint(folder: Path, shape: str, dtype: torch.dtype) -> int:
    """Write a checkpoint of random weights; return its size in bytes."""
    from safetensors.torch import save_file

    from llamath.run.weights.load_weights import group_by_stored_name

    config = configuration(shape) | {"torch_dtype": str(dtype).removeprefix("torch.")}
    model = llamath.load(config)
    numbers = run.initialize(run.build(model, dtype)).state_dict()
    assert model.family.hf is not None
    tensors = {name: numbers[leaf.path] for name, (leaf,) in group_by_stored_name(model.tree, model.family.hf).items()}
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return sum(x.nbytes for x in tensors.values())


def write_gguf(folder: Path, dtype: str) -> None:
    """Convert a checkpoint to GGUF, int8 as Q8_0."""
    command = [sys.executable, "-m", "llamath", "convert", str(folder), f"{folder}.gguf", "--names", "gguf", "--force"]
    command += ["--dtype", GGUF_TYPES[dtype]] if dtype in GGUF_TYPES else []
    subprocess.run(command, check=True, capture_output=True)


def installed(python: str, *packages: str) -> dict[str, str]:
    """The versions of packages installed for a Python interpreter."""
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    done = subprocess.run([python, "-c", code, *packages], check=True, capture_output=True, text=True)
    return dict(zip(packages, done.stdout.split(), strict=True))


def once(
    engine: str, folder: Path, dtype: str, threads: int, tokens: int, python: str = sys.executable, source: str = ""
) -> dict[str, float]:
    began = repr(time.monotonic())
    env = (
        os.environ
        | ({"PYTHONPATH": source} if source else {})
        | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    )
    command = [python, WORKER, engine, str(folder), dtype, str(threads), str(tokens), began, str(CONTEXT)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise SystemExit(f"{engine} ended with {done.returncode}: {done.stderr[-2000:]}")
    cost: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return cost


def side_by_side(engines: list[str], folder: Path, dtype: str, args: argparse.Namespace, size: int) -> dict[str, dict[str, float]]:
    """Return medians over rounds; each round runs every engine once and measures the memory bandwidth."""
    costs: dict[str, list[dict[str, float]]] = {}
    for i in range(args.rounds):
        for engine in engines:
            python = {CPP: args.llama_cpp, VINO: args.openvino}.get(engine, sys.executable)
            before = engine.endswith(BEFORE)
            cost = once(engine.removesuffix(BEFORE), folder, dtype, args.threads, args.tokens, python, args.before if before else "")
            if cost["apart"] > MAX_DISTANCE[dtype]:
                raise SystemExit(f"{engine} runs a different model: its logits differ by {cost['apart']:.2g} from transformers'")
            costs.setdefault(engine, []).append(cost)
        costs.setdefault("stream", []).append(once("stream", folder, dtype, args.threads, size))
        print(f"  round {i + 1} of {args.rounds}", file=sys.stderr)
    return {name: {key: statistics.median(x[key] for x in rows) for key in rows[0]} for name, rows in costs.items()}


def report(title: str, costs: dict[str, dict[str, float]], size: int, rounds: int) -> dict[str, object]:
    """Print times and speedups; return the result to store."""
    against = "transformers" if "transformers" in costs else next(iter(costs))
    limit, base = costs["stream"]["wall"], costs[against]
    print(f"\n{title}: {size / 1e9:.2f} GB of weights, read once in {limit * 1000:.1f} ms ({size / limit / 1e9:.1f} GB/s)")
    heads = ("ready", "first of 512", "whole answer", "512 again", "decode × 1", "decode × 8", "after 4,096", "beyond weights")
    print(f"  {'':24}" + "".join(f"{x:>17}" for x in heads))
    rows = {}
    for name, x in costs.items():
        if name == "stream":
            continue
        cells = "".join(f"{x[key]:9.3f} s {base[key] / x[key]:4.2f}×" for key in KEYS)
        shares = ", ".join(f"{limit / x[key]:.2f}" for key in KEYS[-3:-1])
        print(f"  {name:24}{cells} {(x['memory'] - size) / 1e9:6.2f} GB   of the limit: {shares}; logits apart: {x['apart']:.1g}")
        rows[name] = {key: round(value, 5) for key, value in x.items()}
        rows[name]["apart"] = float(f"{x['apart']:.2g}")
        rows[name]["memory_beyond_weights"] = int(x["memory"] - size)
        rows[name]["of_limit_1"], rows[name]["of_limit_8"] = round(limit / x["decode_1"], 3), round(limit / x["decode_8"], 3)
        rows[name] |= {f"{key}_speedup": round(base[key] / x[key], 2) for key in KEYS}
        rows[name] |= {f"{key}_cpu_speedup": round(base[f"{key}_cpu"] / x[f"{key}_cpu"], 2) for key in KEYS}
    return {"title": title, "rounds": rounds, "weights": size, "limit_s": round(limit, 5), "against": against, "rows": rows}


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.partition(":")[2].strip() for x in lines if x.startswith("model name")), platform.machine())


def machine(args: argparse.Namespace) -> dict[str, object]:
    import transformers

    facts = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": args.threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    facts |= installed(args.llama_cpp, "llama-cpp-python") if args.llama_cpp else {}
    return facts | (installed(args.openvino, "openvino", "optimum-intel", "nncf") if args.openvino else {})


def store(result: dict[str, object], where: dict[str, object]) -> None:
    """Store a result with its machine, replacing the one with the same title."""
    path = RESULTS / "run.json"
    fresh = {result["title"]: result | {"date": time.strftime("%Y-%m-%d"), "machine": where}}
    old = json.loads(path.read_text())["results"] if path.exists() else []
    kept = {x["title"]: x for x in old} | fresh
    path.write_text(json.dumps({"results": [kept[title] for title in sorted(kept)]}, indent=1) + "\n")
    print(f"\nwritten: {path}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=["110m", "1b"])
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES))
    parser.add_argument("--engines", nargs="*", default=["llamath native", "llamath torch", "transformers"])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--llama-cpp", metavar="PYTHON", help="interpreter with llama-cpp-python, to compare")
    parser.add_argument("--openvino", metavar="PYTHON", help="interpreter with openvino, optimum-intel and nncf, to compare")
    parser.add_argument("--before", metavar="SRC", help="src folder of an earlier commit, whose torch engine is compared too")
    args = parser.parse_args()
    if args.before:
        args.engines.append(f"llamath torch{BEFORE}")
    where = machine(args)
    for shape in args.shapes:
        for dtype in args.dtypes:
            kind = torch.bfloat16 if dtype in GGUF_TYPES else getattr(torch, dtype)
            with tempfile.TemporaryDirectory() as place:
                size = make_checkpoint(Path(place) / "model", shape, kind)
                engines = [x for x in args.engines if dtype not in GGUF_TYPES or x == "llamath native"]
                if args.llama_cpp or dtype in GGUF_TYPES:
                    write_gguf(Path(place) / "model", dtype)
                    size = size if dtype not in GGUF_TYPES else (Path(place) / "model.gguf").stat().st_size
                engines += [CPP] if args.llama_cpp else []
                if args.openvino and dtype != "q4_k":  # its 4-bit types are others
                    engines.append(VINO)
                    once("export", Path(place) / "model", dtype, args.threads, 0, args.openvino)
                once("reference", Path(place) / "model", dtype, args.threads, 0)
                costs = side_by_side(engines, Path(place) / "model", dtype, args, size)
            long = f", {args.tokens} tokens" if args.tokens != parser.get_default("tokens") else ""
            few = "" if args.threads == os.cpu_count() else f", {args.threads} thread{'s' * (args.threads > 1)}"
            result = report(f"{shape}, {dtype}{few}{long}", costs, size, args.rounds)
            store(result, where)


if __name__ == "__main__":
    main()
