"""Prompts in the mixers that carry a state, and in windows: by chunks and parts against token by token, one whole mask, and transformers.

States: the recurrence alone, of one layer of a known model's size, in one process, every form in turn. Windows: attention alone, each form
in a process of its own, for its peak of memory. Times are the processor's on one thread, which other work on the machine changes little.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from harness import RESULTS
from llamath.core.forward_pass import AttentionWindow
from llamath.run.attention import ScoreParams, attend
from llamath.run.forward_context import AttentionPattern, ForwardContext, Mask
from llamath.run.kv_cache import Cache
from llamath.run.recurrent_mixers import CHUNK, RecurrenceInputs, linear_recurrence
from run import machine

Form = Callable[[], Tensor]
WINDOWS = {
    "window of 1,024, 8,192 tokens": (8192, 1024, None),
    "window of 1,024, 4,096 tokens, soft caps": (4096, 1024, 50.0),
    "window of 4,096, 32,768 tokens": (32_768, 4096, None),
}
HEADS, KV_HEADS, SIZE = 16, 4, 64
PARTS, WHOLE = "by parts", "one mask for all"
MOST = 1 << 28
"""A mask of more numbers than this took 18.9 GB, and is not asked for."""


def by(chunk: int, tokens: RecurrenceInputs) -> Tensor:
    """The recurrence with chunks of this size."""
    y, _ = linear_recurrence(tokens, None, chunk_size=chunk)
    return y


def delta(tokens: int) -> dict[str, Form]:
    """The gated delta rule of Qwen3-Next 80B."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    q, k, v = (torch.randn(1, tokens, heads, 128) for heads in (16, 16, 32))
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    g, s = -torch.rand(1, tokens, 32), torch.rand(1, tokens, 32)
    ours = RecurrenceInputs.from_heads(q * 128**-0.5, k, v, g, s)
    return forms(ours, lambda: torch_chunk_gated_delta_rule(q, k, v, g, s)[0])


def mamba(tokens: int) -> dict[str, Form]:
    """Mamba-2 of Nemotron-H 8B, for which transformers takes chunks of 128."""
    from transformers.models.nemotron_h.modeling_nemotron_h import mamba2_chunk_scan

    c, b, v = torch.randn(1, tokens, 8, 128), torch.randn(1, tokens, 8, 128), torch.randn(1, tokens, 128, 64)
    size, decay = torch.rand(1, tokens, 128), -torch.rand(128)
    ours = RecurrenceInputs.from_heads(c, b, v * size[..., None], decay * size)
    return forms(ours, lambda: mamba2_chunk_scan(v, size, decay, b, c, 128))


def forms(tokens: RecurrenceInputs, theirs: Form) -> dict[str, Form]:
    size = CHUNK
    return {f"chunks of {size}": lambda: by(size, tokens), "token by token": lambda: by(1, tokens), "transformers": theirs}


@torch.no_grad()
def rules(title: str, made: dict[str, Form], rounds: int) -> dict[str, object]:
    """Medians over the rounds, each of which takes every form in turn; and how far apart they are."""
    costs: dict[str, list[float]] = {}
    found = {name: form() for name, form in made.items()}
    for _ in range(rounds):
        for name, form in made.items():
            began = time.process_time()
            form()
            costs.setdefault(name, []).append(time.process_time() - began)
    first = next(iter(found.values()))
    rows = {
        name: {"cpu_s": statistics.median(costs[name]), "apart": float((y - first).abs().max() / first.abs().max())}
        for name, y in found.items()
    }
    return shown(title, rows, rounds)


def peak() -> int:
    """The most bytes that this process has held since its peak was reset."""
    return next(int(x.split()[1]) * 1024 for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("VmHWM"))


@torch.no_grad()
def window(title: str, form: str) -> None:
    """One process: a prompt in one of the forms."""
    torch.set_num_threads(1)
    tokens, size, cap = WINDOWS[title]
    if form == WHOLE:
        Mask.fits_one_block = lambda *_: True  # type: ignore[method-assign]
    drawn = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, heads, tokens, SIZE, generator=drawn) for heads in (HEADS, KV_HEADS, KV_HEADS))
    mask, scores = (
        ForwardContext(torch.zeros(1, tokens), Cache([], 0)).mask(AttentionPattern(AttentionWindow(size=size)), 0),
        ScoreParams(0.125, softcap=cap),
    )
    Path("/proc/self/clear_refs").write_text("5")
    before, began = peak(), time.process_time()
    y = attend(q, k, v, mask, scores)
    cost = time.process_time() - began
    print(json.dumps({"cpu_s": cost, "peak_mib": (peak() - before) / 2**20, "last": y[0, :, -1].flatten().tolist()}))


def windows(title: str, rounds: int) -> dict[str, object]:
    found: dict[str, list[dict[str, float]]] = {}
    last: dict[str, Tensor] = {}
    asked = (PARTS, WHOLE) if WINDOWS[title][0] ** 2 <= MOST else (PARTS,)
    for _ in range(rounds):
        for form in asked:
            done = subprocess.run([sys.executable, __file__, "--window", title, form], capture_output=True, text=True, check=True)
            got = json.loads(done.stdout)
            last[form] = torch.tensor(got.pop("last"))
            found.setdefault(form, []).append(got)
    rows = {form: {key: statistics.median(x[key] for x in all_) for key in all_[0]} for form, all_ in found.items()}
    for form in asked:
        rows[form]["apart"] = float((last[form] - last[PARTS]).abs().max() / last[PARTS].abs().max())
    return shown(title, rows, rounds)


def shown(title: str, rows: dict[str, dict[str, float]], rounds: int) -> dict[str, object]:
    base = next(iter(rows.values()))["cpu_s"]
    print(f"\n{title} (medians of {rounds})")
    for name, row in rows.items():
        row["cpu_ratio"] = row["cpu_s"] / base
        memory = f"{row['peak_mib']:10,.0f} MiB" if "peak_mib" in row else ""
        print(f"  {name:18}{row['cpu_s']:9.3f} s CPU {row['cpu_ratio']:7.2f} ×{memory}   apart by {row.get('apart', 0):.1e}")
    return {"title": title, "rounds": rounds, "rows": {name: {x: float(f"{y:.3g}") for x, y in row.items()} for name, row in rows.items()}}


def keep(result: dict[str, object]) -> None:
    """Write a result in place of what there is under its title."""
    path = RESULTS / "mixers.json"
    kept = {x["title"]: x for x in json.loads(path.read_text())["results"]} if path.exists() else {}
    kept[str(result["title"])] = result
    path.write_text(json.dumps({"results": [kept[x] for x in sorted(kept)]}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="a part of the titles")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    work: dict[str, Callable[[str], dict[str, object]]] = {
        f"gated delta rule of Qwen3-Next 80B, {asked.tokens:,} tokens": lambda title: rules(title, delta(asked.tokens), asked.rounds),
        f"Mamba-2 of Nemotron-H 8B, {asked.tokens:,} tokens": lambda title: rules(title, mamba(asked.tokens), asked.rounds),
        **dict.fromkeys(WINDOWS, lambda title: windows(title, asked.rounds)),
    }
    for title in (x for x in work if asked.only in x):
        keep(work[title](title) | {"date": time.strftime("%Y-%m-%d"), "machine": machine(1)})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--window"]:
        window(*sys.argv[2:])
    else:
        main()
