"""One engine in a process of its own: opens a model, reads a prompt, goes on from it, and prints what each took as one line of JSON."""

from __future__ import annotations

import importlib
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple


class Task(NamedTuple):
    """What is asked of every engine, and when the process was started by the clock of the machine."""

    engine: str
    folder: str
    dtype: str
    threads: int
    tokens: int
    began: float


class Engine(NamedTuple):
    """`go_on(rows, prompt, new)` reads a prompt in each row and returns the moments at which its tokens were there, by two clocks."""

    go_on: Callable[[int, int, int], list[tuple[float, float]]]


def now() -> tuple[float, float]:
    """Seconds of the wall and of this process on all its processors."""
    return time.perf_counter(), time.process_time()


def ids(rows: int, prompt: int) -> list[list[int]]:
    return [[(31 * i + 7 * row) % 30_000 + 10 for i in range(prompt)] for row in range(rows)]


def llamath(task: Task, quick: bool) -> Engine:
    from llamath.run import Generation, Limits, Sampling, opened, torch

    torch.set_num_threads(task.threads)
    found = opened(task.folder, None if task.dtype == "int8" else task.dtype)
    if quick:
        from llamath.run.fast import quicken

        quicken(found.module, "int8" if task.dtype == "int8" else None, found.files.forget)

    def go_on(rows: int, prompt: int, new: int) -> list[tuple[float, float]]:
        pieces = Generation(found.module, ids(rows, prompt), Sampling(), Limits(max_tokens=new))
        return [now() for piece in pieces if piece.row == rows - 1]

    return Engine(go_on)


def transformers(task: Task) -> Engine:
    import torch

    library: Any = importlib.import_module("transformers")
    library.utils.logging.disable_progress_bar()
    torch.set_num_threads(task.threads)
    model = library.AutoModelForCausalLM.from_pretrained(task.folder, dtype=getattr(torch, task.dtype), attn_implementation="sdpa")
    model.eval()

    def go_on(rows: int, prompt: int, new: int) -> list[tuple[float, float]]:
        moments: list[tuple[float, float]] = []

        def mark(_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            moments.append(now())
            return scores

        x = torch.tensor(ids(rows, prompt))
        how = library.GenerationConfig(max_new_tokens=new, min_new_tokens=new, do_sample=False, use_cache=True, pad_token_id=0)
        with torch.inference_mode():
            model.generate(x, attention_mask=torch.ones_like(x), generation_config=how, logits_processor=[mark])
        return moments

    return Engine(go_on)


def stream(task: Task) -> dict[str, float]:
    """How long it takes to read as many bytes as the weights have, nothing else."""
    import torch

    torch.set_num_threads(task.threads)
    x = torch.ones(task.tokens // 4)
    x.sum()
    found = []
    for _ in range(9):
        wall, cpu = now()
        x.sum()
        found.append(tuple(b - a for a, b in zip((wall, cpu), now(), strict=True)))
    return dict(zip(("wall", "cpu"), map(statistics.median, zip(*found, strict=True)), strict=True))


ENGINES: dict[str, Callable[[Task], Engine]] = {
    "llamath": lambda task: llamath(task, True),
    "llamath, plain modules": lambda task: llamath(task, False),
    "transformers": transformers,
}


def measured(task: Task) -> dict[str, object]:
    engine = ENGINES[task.engine](task)
    found: dict[str, object] = {"ready": time.monotonic() - task.began, "ready_cpu": time.process_time()}
    wall, cpu = now()
    first = engine.go_on(1, 512, 1)[0]
    found |= {"first": first[0] - wall, "first_cpu": first[1] - cpu}
    again = []
    for _ in range(2):
        wall, cpu = now()
        first = engine.go_on(1, 512, 1)[0]
        again.append((first[0] - wall, first[1] - cpu))
    found["prefill"], found["prefill_cpu"] = map(min, zip(*again, strict=True))
    found["memory_first"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for rows in (1, 8):
        moments = engine.go_on(rows, 16, task.tokens + 3)[2:]
        steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(moments)]
        found[f"decode_{rows}"], found[f"decode_{rows}_cpu"] = map(statistics.median, zip(*steps, strict=True))
        found[f"decode_{rows}_best"] = statistics.quantiles([x for x, _ in steps], n=10)[0]
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return found


def main() -> None:
    engine, folder, dtype, threads, tokens, began = sys.argv[1:]
    task = Task(engine, folder, dtype, int(threads), int(tokens), float(began))
    print(json.dumps(stream(task) if engine == "stream" else measured(task)))


if __name__ == "__main__":
    main()
