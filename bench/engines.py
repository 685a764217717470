"""One engine in its own process: opens a model, processes a prompt, generates, and prints the
times as one line of JSON."""

from __future__ import annotations

import importlib
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from readers import LlamaCpp, OpenVino, Reader, Rows, Task, export


class Engine(NamedTuple):
    """An engine.

    `generate(rows, prompt, new)` returns when each new token was ready, by two clocks;
    `logits(rows)` the logits after given tokens.
    """

    generate: Callable[[int, int, int], list[tuple[float, float]]]
    logits: Callable[[Rows], list[list[float]]]


PROBE = "probe"
"""The line that asks the parent to measure the memory's bandwidth."""
DECODED = 8
"""Tokens processed one by one where logits are compared."""


def now() -> tuple[float, float]:
    """Wall time, and CPU time of this process on all cores."""
    return time.perf_counter(), time.process_time()


def peak() -> int:
    """Peak memory of this process in bytes; getrusage would include the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) * 1024


def ids(rows: int, prompt: int) -> Rows:
    return [[(31 * i + 7 * row) % 30_000 + 10 for i in range(prompt)] for row in range(rows)]


def llamath_torch(task: Task) -> Engine:
    from llamath.generation.generation import GenerationLimits
    from llamath.generation.sampling_parameters import Sampling
    from llamath.torch import Generation, open_model, torch

    torch.set_num_threads(task.threads)
    loaded = open_model(task.folder, task.dtype)

    def generate(rows: int, prompt: int, new: int) -> list[tuple[float, float]]:
        pieces = Generation(
            loaded.module, ids(rows, prompt), Sampling(), GenerationLimits(max_tokens=new)
        )
        return [now() for piece in pieces if piece.row == rows - 1]

    def logits(rows: Rows) -> list[list[float]]:
        ids, cache = torch.tensor(rows), loaded.module.new_cache(len(rows[0]))
        with torch.inference_mode():
            loaded.module(ids[:, :-DECODED], cache)
            several = [
                loaded.module(ids[:, i : i + 1], cache)
                for i in range(ids.shape[1] - DECODED, ids.shape[1])
            ]
        x: list[list[float]] = several[-1][:, -1].tolist()
        return x

    return Engine(generate, logits)


def llamath_native(task: Task) -> Engine:
    from llamath.analysis.check.verify.verified_checkpoint import open_verified
    from llamath.generation.generation import GenerationLimits
    from llamath.generation.sampling_parameters import Sampling
    from llamath.native.engine import NativeSession, Row
    from llamath.native.native_generation import NativeGeneration
    from llamath.native.native_session import load_native

    gguf = task.dtype in ("int8", "q4_k")  # the file that llama.cpp reads
    model, *_ = load_native(
        open_verified(f"{task.folder}.gguf" if gguf else task.folder), threads=task.threads
    )

    def generate(rows: int, prompt: int, new: int) -> list[tuple[float, float]]:
        pieces = NativeGeneration(
            model, ids(rows, prompt), Sampling(), GenerationLimits(max_tokens=new)
        )
        return [now() for piece in pieces if piece.row == rows - 1]

    def logits(rows: Rows) -> list[list[float]]:
        results = []
        for row in rows:
            session = NativeSession(model, 1, len(row))
            session.reserve(len(row), 0)
            session.run([Row(0, row[:-DECODED], 0)])
            for i in range(len(row) - DECODED, len(row)):
                session.run([Row(0, [row[i]], i)])
            results.append(session.logits(0))
        return results

    return Engine(generate, logits)


def transformers(task: Task) -> Engine:
    import torch

    library: Any = importlib.import_module("transformers")
    library.utils.logging.disable_progress_bar()
    torch.set_num_threads(task.threads)
    model = library.AutoModelForCausalLM.from_pretrained(
        task.folder, dtype=getattr(torch, task.dtype), attn_implementation="sdpa"
    )
    model.eval()

    def generate(rows: int, prompt: int, new: int) -> list[tuple[float, float]]:
        moments: list[tuple[float, float]] = []

        def mark(_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            moments.append(now())
            return scores

        x = torch.tensor(ids(rows, prompt))
        how = library.GenerationConfig(
            max_new_tokens=new, min_new_tokens=new, do_sample=False, use_cache=True, pad_token_id=0
        )
        with torch.inference_mode():
            model.generate(
                x, attention_mask=torch.ones_like(x), generation_config=how, logits_processor=[mark]
            )
        return moments

    def logits(rows: Rows) -> list[list[float]]:
        with torch.inference_mode():
            x: list[list[float]] = model(torch.tensor(rows)).logits[:, -1].tolist()
        return x

    return Engine(generate, logits)


def reader_engine(reader: Reader) -> Engine:
    """Greedy generation with a reader; logits are compared after decoding the last tokens one by
    one."""

    def greedy(logits: list[Any]) -> Rows:
        return [[int(x.argmax())] for x in logits]

    def generate(rows: int, prompt: int, new: int) -> list[tuple[float, float]]:
        reader.reset()
        tokens = greedy(reader.logits_after(ids(rows, prompt), 0))
        moments = [now()]
        for i in range(new - 1):
            tokens = greedy(reader.logits_after(tokens, prompt + i))
            moments.append(now())
        return moments

    def logits(rows: Rows) -> list[list[float]]:
        reader.reset()
        start = len(rows[0]) - DECODED
        result = reader.logits_after([x[:start] for x in rows], 0)
        for i in range(start, len(rows[0])):
            result = reader.logits_after([[x[i]] for x in rows], i)
        return [x.tolist() for x in result]

    return Engine(generate, logits)


def reference(task: Task) -> dict[str, float]:
    """Write the logits of transformers in float32 next to the folder."""
    expected = transformers(task._replace(dtype="float32")).logits(ids(2, 40))
    Path(f"{task.folder}.logits").write_text(json.dumps(expected))
    return {}


def distance(task: Task, engine: Engine) -> float:
    """The largest relative distance of a row's logits from those of `reference`."""
    known = json.loads(Path(f"{task.folder}.logits").read_text())
    return max(
        math.dist(x, y) / math.hypot(*y)
        for x, y in zip(engine.logits(ids(2, 40)), known, strict=True)
    )


def stream(task: Task) -> None:
    """For each line of standard input, print the time to read as many bytes as the weights have,
    in huge pages where available."""
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
    import torch

    torch.set_num_threads(task.threads)
    x = torch.ones(task.tokens // 4)
    x.sum()
    for _ in sys.stdin:
        costs = []
        for _ in range(5):
            wall, _ = now()
            x.sum()
            costs.append(now()[0] - wall)
        print(statistics.median(costs), flush=True)


def limit() -> float:
    """The time to read the weights once at the memory's bandwidth, which the parent measures
    now."""
    print(PROBE, flush=True)
    return float(sys.stdin.readline())


ENGINES: dict[str, Callable[[Task], Engine]] = {
    "llamath native": llamath_native,
    "llamath torch": llamath_torch,
    "transformers": transformers,
    "llama.cpp": lambda task: reader_engine(LlamaCpp(task)),
    "OpenVINO": lambda task: reader_engine(OpenVino(task)),
}


def measure(task: Task) -> dict[str, float]:
    engine = ENGINES[task.engine](task)
    costs: dict[str, float] = {
        "ready": time.monotonic() - task.began,
        "ready_cpu": time.process_time(),
    }
    wall, cpu = now()
    first, *_, last = engine.generate(1, 512, task.tokens)
    costs |= {"first": first[0] - wall, "first_cpu": first[1] - cpu}
    costs |= {
        "answer": costs["ready"] + last[0] - wall,
        "answer_cpu": costs["ready_cpu"] + last[1] - cpu,
    }
    again = []
    for _ in range(2):
        wall, cpu = now()
        first = engine.generate(1, 512, 1)[0]
        again.append((first[0] - wall, first[1] - cpu))
    costs["prefill"], costs["prefill_cpu"] = map(min, zip(*again, strict=True))
    costs["memory_first"] = peak()
    for rows, prompt in ((1, 16), (8, 16), (1, task.context)):
        if not prompt:
            continue
        before = limit()
        moments = engine.generate(rows, prompt, task.tokens + 3)[2:]
        steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(moments)]
        name = f"decode_{rows}" if prompt == 16 else "decode_long"
        costs[name], costs[f"{name}_cpu"] = map(statistics.median, zip(*steps, strict=True))
        costs[f"{name}_limit"] = (before + limit()) / 2
    costs["memory"] = peak()
    costs["apart"] = distance(task, engine)
    return costs


def main() -> None:
    engine, folder, dtype, threads, tokens, began, context = sys.argv[1:]
    task = Task(engine, folder, dtype, int(threads), int(tokens), float(began), int(context))
    if engine == "stream":
        stream(task)
    else:
        jobs = {"export": export, "reference": reference}
        print(json.dumps(jobs.get(engine, measure)(task)))


if __name__ == "__main__":
    main()
