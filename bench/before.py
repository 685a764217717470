"""CPU time and memory of commands against another checkout, in turn: `python bench/before.py NAME
PYTHON`.

PYTHON is the interpreter of an environment in which the commit before is installed, of a clone for
example; NAME is that of the result. Each figure is the minimum of ten alternating runs, as other
work on the machine only ever adds to it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import Cost, keep, once
from same import write_model

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import llamath
from support.sparse_checkpoints import header_of, write_config, write_sharded
from support.tiny_checkpoint import tiny_checkpoint

RUNS = 10
SHARDS = {"llama-3.1-405b": 191, "deepseek-v3": 163}
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"
LIMIT = 1.10


def commands(folder: Path) -> dict[str, list[str]]:
    """Return the commands, by what they show; they read files that are made in the folder."""
    chat = tiny_checkpoint(folder / "chat", template=TEMPLATE)
    words = f"-m llamath run {chat} --chat --max-tokens 1"  # `chat` before the commands were merged
    asked = f"printf 'Hello there\\n' | exec \"$0\" {words}"
    found = {
        "run, one token of the bundled model": [
            "-m",
            "llamath",
            "run",
            "Once upon a time",
            "--max-tokens",
            "1",
        ],
        "chat, first token": ["sh", asked],
        "count llama-3-8b": ["-m", "llamath", "count", "llama-3-8b"],
        "fit llama-3.1-8b --on rtx-4090": _llamath("fit", "llama-3.1-8b", "--on", "rtx-4090"),
        "memory deepseek-v3": _llamath("memory", "deepseek-v3"),
        "memory llama-3-8b --training recompute=full": _llamath(
            "memory", "llama-3-8b", "--training", "recompute=full"
        ),
        "flops llama-3-8b": _llamath("flops", "llama-3-8b"),
        "trace llama-3-8b": _llamath("trace", "llama-3-8b"),
        "names deepseek-v3 --names hf": _llamath("names", "deepseek-v3", "--names", "hf"),
    }
    for slug, shards in SHARDS.items():
        model = llamath.load(slug)
        place = write_sharded(folder / slug, header_of(model), shards)
        write_config(place, model, drop=("quantization_config",))
        for name in ("ls", "verify"):
            found[f"{name} {slug}, {shards} shards"] = _llamath(name, str(place))
    whole, packed = write_model(folder / "whole"), folder / "packed.gguf"
    llamath.convert(whole, packed, names="gguf", dtype="q4_k")
    found["verify --full, 335 million weights"] = _llamath("verify", str(whole), "--full")
    found["verify --full, the same in Q4_K"] = _llamath("verify", str(packed), "--full")
    found["same, both"] = _llamath("same", str(whole), str(packed))
    return found


def _llamath(*words: str) -> list[str]:
    return ["-m", "llamath", *words]


def with_python(python: str, words: list[str]) -> list[str]:
    """Return a command that this interpreter runs, or that a shell runs with it as `$0`."""
    return ["sh", "-c", words[1], python] if words[0] == "sh" else [python, *words]


def main() -> None:
    name, python = sys.argv[1:]
    places = {
        x: subprocess.run(
            [x, "-c", "import llamath; print(llamath.__file__)"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for x in (sys.executable, python)
    }
    if len(set(places.values())) != 2:
        raise SystemExit(f"both interpreters import {places[python].strip()}")
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for what, words in commands(Path(folder)).items():
            costs: dict[str, list[Cost]] = {sys.executable: [], python: []}
            for i in range(RUNS + 1):  # the first run of each fills caches and is not counted
                for which, found in costs.items():
                    cost = once(with_python(which, words))
                    if i:
                        found.append(cost)
            now, before = (min(x.cpu for x in costs[which]) for which in (sys.executable, python))
            memory, memory_before = (
                min(x.memory for x in costs[which]) for which in (sys.executable, python)
            )
            rows[what] = {
                "cpu_ms": round(now * 1000, 1),
                "cpu_ms_before": round(before * 1000, 1),
                "cpu_ratio": round(now / before, 3),
                "memory_ratio": round(memory / memory_before, 3),
            }
            mark = "" if now / before <= LIMIT else f"   above {LIMIT}"
            times = f"{before * 1000:8.1f} → {now * 1000:8.1f} ms CPU, {now / before:.3f} ×"
            print(f"  {what:40} {times}, memory {memory / memory_before:.3f} ×{mark}")
    load = os.getloadavg()[0]
    keep(
        name,
        [
            {
                "title": f"minimum of {RUNS} alternating runs against the commit before",
                "load": round(load, 1),
                "rows": rows,
            }
        ],
    )


if __name__ == "__main__":
    main()
