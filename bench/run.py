"""Compares engines on the same random weights, each in its own process, in turn: startup, first
token, decoding, peak memory."""

from __future__ import annotations

import argparse
import compileall
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
from engines import PROBE
from harness import RESULTS
from llamath.torch import build, initialize

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
"""Tokens before those that are decoded in a long context; as many as the model has positions for
at most."""
CPP, VINO = "llama.cpp", "OpenVINO"
BEFORE = ", before"
"""Marks an engine that runs the sources given with --before."""
MAX_DISTANCE = {"float32": 0.005, "bfloat16": 0.05, "int8": 0.15, "q4_k": 0.8}
"""An engine whose logits are further from those of transformers in float32 runs a different
model."""
DECODED = ("decode_1", "decode_8", "decode_long")
KEYS = ("ready", "first", "answer", "prefill", *DECODED)


def configuration(shape: str) -> dict[str, object]:
    if shape == "110m":
        return STORIES
    return dict(llamath.load("llama-3.2-1b").config.data) | {"architectures": ["LlamaForCausalLM"]}


def make_checkpoint(folder: Path, shape: str, dtype: torch.dtype) -> int:
    """Write a checkpoint of random weights; return its size in bytes."""
    from safetensors.torch import save_file

    from llamath.torch.weights.load_weights import group_by_stored_name

    config = configuration(shape) | {"torch_dtype": str(dtype).removeprefix("torch.")}
    model = llamath.load(config)
    numbers = initialize(build(model, dtype)).state_dict()
    assert model.family.hf is not None
    tensors = {
        name: numbers[leaf.path]
        for name, (leaf,) in group_by_stored_name(model.tree, model.family.hf).items()
    }
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return sum(x.nbytes for x in tensors.values())


def write_gguf(folder: Path, dtype: str) -> None:
    """Convert a checkpoint to GGUF, int8 as Q8_0."""
    command = [
        sys.executable,
        "-m",
        "llamath",
        "convert",
        str(folder),
        f"{folder}.gguf",
        "--names",
        "gguf",
        "--force",
    ]
    command += ["--dtype", GGUF_TYPES[dtype]] if dtype in GGUF_TYPES else []
    subprocess.run(command, check=True, capture_output=True)


def installed(python: str, *packages: str) -> dict[str, str]:
    """The versions of packages installed for a Python interpreter."""
    code = "import sys; from importlib.metadata import version; print(*map(version, sys.argv[1:]))"
    done = subprocess.run(
        [python, "-c", code, *packages], check=True, capture_output=True, text=True
    )
    return dict(zip(packages, done.stdout.split(), strict=True))


class Worker:
    """A process that runs `engines.py`."""

    def __init__(
        self,
        engine: str,
        folder: Path,
        dtype: str,
        threads: int,
        tokens: int,
        python: str = sys.executable,
        source: str = "",
        context: int = CONTEXT,
    ) -> None:
        self.engine = engine
        env = {
            name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
        }
        env |= {
            "OMP_NUM_THREADS": str(threads),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        if source:  # and the engine beside it
            env["PYTHONPATH"] = os.pathsep.join((source, str(Path(source).parent / "native")))
        command = [
            python,
            WORKER,
            engine,
            str(folder),
            dtype,
            str(threads),
            str(tokens),
            repr(time.monotonic()),
            str(context),
        ]
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=env,
        )

    def write(self, line: str) -> None:
        assert self.process.stdin
        print(line, file=self.process.stdin, flush=True)

    def read(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            raise SystemExit(
                f"{self.engine} ended with {self.process.wait()}: {self.errors.read()[-2000:]}"
            )
        return line.strip()

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def finish(worker: Worker, bandwidth: Worker | None = None) -> dict[str, float]:
    """Return what a worker measured, the last line of its output; measure the bandwidth whenever
    it asks for that."""
    while not (line := worker.read()).startswith("{"):
        if line == PROBE:
            assert bandwidth
            bandwidth.write("")
            worker.write(bandwidth.read())
    worker.close()
    cost: dict[str, float] = json.loads(line)
    return cost


def side_by_side(
    engines: list[str], folder: Path, dtype: str, args: argparse.Namespace, size: int
) -> list[dict[str, dict[str, float]]]:
    """Run every engine once in each round; only the first rounds decode in a long context."""
    bandwidth = Worker("stream", folder, dtype, args.threads, size)
    rounds = []
    for i in range(args.rounds):
        costs = {}
        for engine in engines:
            python = {CPP: args.llama_cpp, VINO: args.openvino}.get(engine, sys.executable)
            source = args.before if engine.endswith(BEFORE) else ""
            context = CONTEXT if i < args.long_rounds else 0
            worker = Worker(
                engine.removesuffix(BEFORE),
                folder,
                dtype,
                args.threads,
                args.tokens,
                python,
                source,
                context,
            )
            costs[engine] = finish(worker, bandwidth)
            if (apart := costs[engine]["apart"]) > MAX_DISTANCE[dtype]:
                raise SystemExit(
                    f"{engine} runs a different model: its logits differ by "
                    f"{apart:.2g} from transformers'"
                )
        rounds.append(costs)
        print(f"  round {i + 1} of {args.rounds}", file=sys.stderr)
    bandwidth.close()
    return rounds


def report(title: str, rounds: list[dict[str, dict[str, float]]], size: int) -> dict[str, object]:
    """Print medians of times, of speedups in one round, and of shares of the bandwidth at that
    moment; return the result to store."""

    def ratio(engine: str, key: str, other: str, other_key: str) -> float:
        return statistics.median(
            x[engine][key] / x[other][other_key] for x in rounds if key in x[engine]
        )

    against = "transformers" if "transformers" in rounds[0] else next(iter(rounds[0]))
    keys = [key for key in KEYS if any(key in x[against] for x in rounds)]
    decoded = [key for key in keys if key in DECODED]
    limits = [
        cost[f"{key}_limit"]
        for x in rounds
        for cost in x.values()
        for key in decoded
        if key in cost
    ]
    limit = statistics.median(limits)
    spread = f"{size / max(limits) / 1e9:.0f} to {size / min(limits) / 1e9:.0f}"
    print(
        f"\n{title}: {size / 1e9:.2f} GB of weights, read once in {limit * 1000:.1f} ms "
        f"({size / limit / 1e9:.1f} GB/s, {spread})"
    )
    heads = (
        "ready",
        "first of 512",
        "whole answer",
        "512 again",
        "decode × 1",
        "decode × 8",
        "after 4,096",
        "beyond weights",
    )
    print(f"  {'':24}" + "".join(f"{x:>17}" for x in heads))
    rows = {}
    for name in rounds[0]:
        x = {
            key: statistics.median(costs[name][key] for costs in rounds if key in costs[name])
            for key in rounds[0][name]
        }
        x["memory"] = max(costs[name]["memory"] for costs in rounds)  # in a long context
        speedups = {
            key: ratio(against, key, name, key) for key in (*keys, *(f"{key}_cpu" for key in keys))
        }
        shares = {key: ratio(name, f"{key}_limit", name, key) for key in decoded}
        cells = "".join(
            f"{x[key]:9.3f} s {speedups[key]:4.2f}×" if key in keys else f"{'–':>17}"
            for key in KEYS
        )
        printed = ", ".join(f"{share:.2f}" for share in shares.values())
        print(
            f"  {name:24}{cells} {(x['memory'] - size) / 1e9:6.2f} GB   of the limit: "
            f"{printed}; logits apart: {x['apart']:.1g}"
        )
        rows[name] = {key: round(value, 5) for key, value in x.items()}
        rows[name]["apart"] = float(f"{x['apart']:.2g}")
        rows[name]["memory_beyond_weights"] = int(x["memory"] - size)
        rows[name] |= {
            f"of_limit_{key.removeprefix('decode_')}": round(share, 3)
            for key, share in shares.items()
        }
        rows[name] |= {f"{key}_speedup": round(speedups[key], 2) for key in keys}
        rows[name] |= {f"{key}_cpu_speedup": round(speedups[f"{key}_cpu"], 2) for key in keys}
    bandwidths = [round(size / time) for time in (max(limits), min(limits))]
    return {
        "title": title,
        "rounds": len(rounds),
        "weights": size,
        "limit_s": round(limit, 5),
        "bandwidths": bandwidths,
        "against": against,
        "rows": rows,
    }


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (x.partition(":")[2].strip() for x in lines if x.startswith("model name")),
        platform.machine(),
    )


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
    return facts | (
        installed(args.openvino, "openvino", "optimum-intel", "nncf") if args.openvino else {}
    )


def store(result: dict[str, object], where: dict[str, object]) -> None:
    """Store a result with its machine, replacing the one with the same title."""
    path = RESULTS / "run.json"
    fresh = {result["title"]: result | {"date": time.strftime("%Y-%m-%d"), "machine": where}}
    old = json.loads(path.read_text())["results"] if path.exists() else []
    kept = {x["title"]: x for x in old} | fresh
    path.write_text(
        json.dumps({"results": [kept[title] for title in sorted(kept)]}, indent=1) + "\n"
    )
    print(f"\nwritten: {path}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=["110m", "1b"])
    parser.add_argument("--dtypes", nargs="*", default=list(DTYPES))
    parser.add_argument(
        "--engines", nargs="*", default=["llamath native", "llamath torch", "transformers"]
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--long-rounds",
        type=int,
        default=1,
        help="rounds that also decode in a long context, which takes the most time",
    )
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument(
        "--llama-cpp", metavar="PYTHON", help="interpreter with llama-cpp-python, to compare"
    )
    parser.add_argument(
        "--openvino",
        metavar="PYTHON",
        help="interpreter with openvino, optimum-intel and nncf, to compare",
    )
    parser.add_argument(
        "--before",
        metavar="SRC",
        help="src folder of an earlier commit, whose torch engine is compared too",
    )
    args = parser.parse_args()
    if args.before:
        args.engines.append(f"llamath torch{BEFORE}")
    where = machine(args)
    for source in (Path(llamath.__file__).parent, *([args.before] if args.before else [])):
        compileall.compile_dir(source, quiet=1)  # as pip does when it installs a package
    for shape in args.shapes:
        for dtype in args.dtypes:
            kind = torch.bfloat16 if dtype in GGUF_TYPES else getattr(torch, dtype)
            with tempfile.TemporaryDirectory() as place:
                size = make_checkpoint(Path(place) / "model", shape, kind)
                engines = [
                    x for x in args.engines if dtype not in GGUF_TYPES or x == "llamath native"
                ]
                if args.llama_cpp or dtype in GGUF_TYPES:
                    write_gguf(Path(place) / "model", dtype)
                    size = (
                        size
                        if dtype not in GGUF_TYPES
                        else (Path(place) / "model.gguf").stat().st_size
                    )
                engines += [CPP] if args.llama_cpp else []
                if args.openvino and dtype != "q4_k":  # its 4-bit types are others
                    engines.append(VINO)
                    finish(
                        Worker(
                            "export", Path(place) / "model", dtype, args.threads, 0, args.openvino
                        )
                    )
                finish(Worker("reference", Path(place) / "model", dtype, args.threads, 0))
                rounds = side_by_side(engines, Path(place) / "model", dtype, args, size)
            long = f", {args.tokens} tokens" if args.tokens != parser.get_default("tokens") else ""
            few = (
                ""
                if args.threads == os.cpu_count()
                else (f", {args.threads} thread{'s' * (args.threads > 1)}")
            )
            result = report(f"{shape}, {dtype}{few}{long}", rounds, size)
            store(result, where)


if __name__ == "__main__":
    main()
