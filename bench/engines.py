"""One engine in a process of its own: opens a model, reads a prompt, goes on from it, and prints what each took as one line of JSON."""

from __future__ import annotations

import ctypes
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
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


def peak() -> int:
    """The most bytes that this process has held. (What getrusage says begins with the parent's.)"""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) * 1024


def ids(rows: int, prompt: int) -> list[list[int]]:
    return [[(31 * i + 7 * row) % 30_000 + 10 for i in range(prompt)] for row in range(rows)]


def llamath(task: Task, quick: bool) -> Engine:
    from llamath.run import Generation, Limits, Sampling, opened, torch
    from llamath.run.fast import hasten, quicken

    torch.set_num_threads(task.threads)
    found = opened(task.folder, None if task.dtype == "int8" else task.dtype)
    if task.dtype == "int8":
        quicken(found.module, "int8", found.files.forget)

    def go_on(rows: int, prompt: int, new: int) -> list[tuple[float, float]]:
        if quick:
            hasten(found.module, new, found.files.forget)  # as `Llama` does
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


class LlamaCpp:
    """llama.cpp by its own functions, on the GGUF file beside the folder; in eight bits on its Q8_0."""

    def __init__(self, task: Task) -> None:
        self.api: Any = importlib.import_module("llama_cpp")
        self.quiet = self.api.llama_log_callback(lambda *_: None)
        self.api.llama_log_set(self.quiet, None)
        load, self.kept = self.api.llama_model_default_params(), self.wordless(self.api, task.folder)
        load.kv_overrides = self.kept
        self.model = self.api.llama_model_load_from_file(file(task.folder, task.dtype), load)
        how = self.api.llama_context_default_params()
        how.n_ctx, how.n_batch, how.n_ubatch, how.n_seq_max = 8192, 512, 512, 8
        how.n_threads = how.n_threads_batch = task.threads
        self.context = self.api.llama_init_from_model(self.model, how)
        self.words = self.api.llama_vocab_n_tokens(self.api.llama_model_get_vocab(self.model))

    @staticmethod
    def wordless(api: Any, folder: str) -> Any:
        """What stands in for a tokenizer, which the file has not."""
        kept = (api.llama_model_kv_override * 3)()
        kept[0].key, kept[0].tag, kept[0].value.val_str = b"tokenizer.ggml.model", api.LLAMA_KV_OVERRIDE_TYPE_STR, b"no_vocab"
        words = json.loads(Path(folder, "config.json").read_text())["vocab_size"]
        kept[1].key, kept[1].tag, kept[1].value.val_i64 = b"llama.vocab_size", api.LLAMA_KV_OVERRIDE_TYPE_INT, words
        return kept

    def read(self, rows: list[list[int]], past: int) -> list[int]:
        """The likeliest token after these of each row."""
        batch, n = self.api.llama_batch_init(sum(map(len, rows)), 0, 1), 0
        ends = []
        for row, tokens in enumerate(rows):
            for i, token in enumerate(tokens):
                batch.token[n], batch.pos[n], batch.n_seq_id[n] = token, past + i, 1
                batch.seq_id[n][0], batch.logits[n] = row, i == len(tokens) - 1
                n += 1
            ends.append(n - 1)
        batch.n_tokens = n
        if self.api.llama_decode(self.context, batch):
            raise SystemExit("llama.cpp could not read these tokens")
        found = [self._likeliest(x) for x in ends]
        self.api.llama_batch_free(batch)
        return found

    def _likeliest(self, i: int) -> int:
        numpy: Any = importlib.import_module("numpy")
        logits = self.api.llama_get_logits_ith(self.context, i)
        return int(numpy.ctypeslib.as_array(logits, (self.words,)).argmax())

    def go_on(self, rows: int, prompt: int, new: int) -> list[tuple[float, float]]:
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        tokens = self.read(ids(rows, prompt), 0)
        moments = [now()]
        for i in range(new - 1):
            tokens = self.read([[x] for x in tokens], prompt + i)
            moments.append(now())
        return moments


def file(folder: str, dtype: str) -> bytes:
    """Where the weights are as GGUF."""
    return f"{folder}{'.q8_0' if dtype == 'int8' else ''}.gguf".encode()


def quantise(task: Task) -> dict[str, float]:
    """Write the GGUF file beside the folder anew in Q8_0, by llama.cpp."""
    api: Any = importlib.import_module("llama_cpp")
    how, kept = api.llama_model_quantize_default_params(), LlamaCpp.wordless(api, task.folder)
    how.ftype, how.nthread = api.LLAMA_FTYPE_MOSTLY_Q8_0, task.threads
    how.kv_overrides = ctypes.cast(kept, ctypes.POINTER(api.llama_model_kv_override))
    return {"failed": float(api.llama_model_quantize(file(task.folder, ""), file(task.folder, "int8"), how))}


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
    "llama.cpp": lambda task: Engine(LlamaCpp(task).go_on),
}


def measured(task: Task) -> dict[str, float]:
    engine = ENGINES[task.engine](task)
    found: dict[str, float] = {"ready": time.monotonic() - task.began, "ready_cpu": time.process_time()}
    wall, cpu = now()
    first, *_, last = engine.go_on(1, 512, task.tokens)
    found |= {"first": first[0] - wall, "first_cpu": first[1] - cpu}
    found |= {"answer": found["ready"] + last[0] - wall, "answer_cpu": found["ready_cpu"] + last[1] - cpu}
    again = []
    for _ in range(2):
        wall, cpu = now()
        first = engine.go_on(1, 512, 1)[0]
        again.append((first[0] - wall, first[1] - cpu))
    found["prefill"], found["prefill_cpu"] = map(min, zip(*again, strict=True))
    found["memory_first"] = peak()
    for rows in (1, 8):
        moments = engine.go_on(rows, 16, task.tokens + 3)[2:]
        steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(moments)]
        found[f"decode_{rows}"], found[f"decode_{rows}_cpu"] = map(statistics.median, zip(*steps, strict=True))
        found[f"decode_{rows}_best"] = statistics.quantiles([x for x, _ in steps], n=10)[0]
    found["memory"] = peak()
    return found


def main() -> None:
    engine, folder, dtype, threads, tokens, began = sys.argv[1:]
    task = Task(engine, folder, dtype, int(threads), int(tokens), float(began))
    beside = {"stream": stream, "quantise": quantise}
    print(json.dumps(beside.get(engine, measured)(task)))


if __name__ == "__main__":
    main()
