"""Prefill in recurrent mixers and sliding windows: chunks and mask blocks against token by token, a
full mask, and transformers.

Recurrences are measured alone, for one layer of a known model, all forms in turn in one process.
Windows are measured as attention alone, each form in its own process for its peak memory. Times are
CPU times on one thread, which other load changes little.
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
from llamath.core.attention_facts import AttentionWindow
from llamath.torch.attention import ScoreParams, attend
from llamath.torch.forward_context import AttentionPattern, BlockLimits, ForwardContext
from llamath.torch.kv_cache import Cache
from llamath.torch.linear_recurrence import (
    CHUNK,
    RecurrenceInputs,
    linear_recurrence,
    selective_scan,
)
from run import machine

Form = Callable[[], Tensor]
WINDOWS = {
    "window of 1,024, 8,192 tokens": (8192, 1024, None),
    "window of 1,024, 4,096 tokens, soft caps": (4096, 1024, 50.0),
    "window of 4,096, 32,768 tokens": (32_768, 4096, None),
}
HEADS, KV_HEADS, SIZE = 16, 4, 64
BLOCKS, FULL = "mask blocks", "full mask"
MAX_MASK = 1 << 28
"""Larger full masks are not measured: one took 18.9 GB."""


def run_chunks(chunk: int, tokens: RecurrenceInputs) -> Tensor:
    """Run the recurrence in chunks of this size."""
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
    """Mamba-2 of Nemotron-H 8B, with chunks of 128 in transformers."""
    from transformers.models.nemotron_h.modeling_nemotron_h import mamba2_chunk_scan

    c, b, v = (
        torch.randn(1, tokens, 8, 128),
        torch.randn(1, tokens, 8, 128),
        torch.randn(1, tokens, 128, 64),
    )
    size, decay = torch.rand(1, tokens, 128), -torch.rand(128)
    ours = RecurrenceInputs.from_heads(c, b, v * size[..., None], decay * size)
    return forms(ours, lambda: mamba2_chunk_scan(v, size, decay, b, c, 128))


def scan(tokens: int) -> dict[str, Form]:
    """Mamba of Mamba 2.8B."""
    from transformers.models.mamba.modeling_mamba import mamba_selective_scan

    x, dt, a = (
        torch.randn(1, tokens, 5120),
        torch.rand(1, tokens, 5120) / 10,
        -8 * torch.rand(5120, 16),
    )
    b, c = torch.randn(1, tokens, 16), torch.randn(1, tokens, 16)
    theirs = lambda: mamba_selective_scan(x.mT, dt.mT, a, b.mT, c.mT).mT  # noqa: E731
    return {
        "all channels at once": lambda: selective_scan(dt, dt * x, b, c, a, None)[0],
        "transformers": theirs,
    }


def forms(tokens: RecurrenceInputs, theirs: Form) -> dict[str, Form]:
    size = CHUNK
    return {
        f"chunks of {size}": lambda: run_chunks(size, tokens),
        "token by token": lambda: run_chunks(1, tokens),
        "transformers": theirs,
    }


@torch.no_grad()
def recurrences(title: str, forms: dict[str, Form], rounds: int) -> dict[str, object]:
    """Return medians over rounds, each of which runs every form in turn, and how far their
    outputs differ."""
    costs: dict[str, list[float]] = {}
    outputs = {name: form() for name, form in forms.items()}
    for _ in range(rounds):
        for name, form in forms.items():
            began = time.process_time()
            form()
            costs.setdefault(name, []).append(time.process_time() - began)
    first = next(iter(outputs.values()))
    rows = {
        name: {
            "cpu_s": statistics.median(costs[name]),
            "apart": float((y - first).abs().max() / first.abs().max()),
        }
        for name, y in outputs.items()
    }
    return report(title, rows, rounds)


def peak() -> int:
    """Peak memory of this process in bytes since it was reset."""
    return next(
        int(x.split()[1]) * 1024
        for x in Path("/proc/self/status").read_text().splitlines()
        if x.startswith("VmHWM")
    )


@torch.no_grad()
def window(title: str, form: str) -> None:
    """Measure one form in this process."""
    torch.set_num_threads(1)
    tokens, size, cap = WINDOWS[title]
    limits = BlockLimits(min_queries=tokens) if form == FULL else BlockLimits()
    drawn = torch.Generator().manual_seed(1)
    q, k, v = (
        torch.randn(1, heads, tokens, SIZE, generator=drawn)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    mask, scores = (
        ForwardContext(torch.zeros(1, tokens), Cache([], 0), limits).mask(
            AttentionPattern(AttentionWindow(size=size)), 0
        ),
        ScoreParams(0.125, softcap=cap),
    )
    Path("/proc/self/clear_refs").write_text("5")
    before, began = peak(), time.process_time()
    y = attend(q, k, v, mask, scores)
    cost = time.process_time() - began
    print(
        json.dumps(
            {
                "cpu_s": cost,
                "peak_mib": (peak() - before) / 2**20,
                "last": y[0, :, -1].flatten().tolist(),
            }
        )
    )


def windows(title: str, rounds: int) -> dict[str, object]:
    costs: dict[str, list[dict[str, float]]] = {}
    last: dict[str, Tensor] = {}
    forms = (BLOCKS, FULL) if WINDOWS[title][0] ** 2 <= MAX_MASK else (BLOCKS,)
    for _ in range(rounds):
        for form in forms:
            done = subprocess.run(
                [sys.executable, __file__, "--window", title, form],
                capture_output=True,
                text=True,
                check=True,
            )
            cost = json.loads(done.stdout)
            last[form] = torch.tensor(cost.pop("last"))
            costs.setdefault(form, []).append(cost)
    rows = {
        form: {key: statistics.median(x[key] for x in all_) for key in all_[0]}
        for form, all_ in costs.items()
    }
    for form in forms:
        rows[form]["apart"] = float(
            (last[form] - last[BLOCKS]).abs().max() / last[BLOCKS].abs().max()
        )
    return report(title, rows, rounds)


def report(title: str, rows: dict[str, dict[str, float]], rounds: int) -> dict[str, object]:
    base = next(iter(rows.values()))["cpu_s"]
    print(f"\n{title} (medians of {rounds})")
    for name, row in rows.items():
        row["cpu_ratio"] = row["cpu_s"] / base
        memory = f"{row['peak_mib']:10,.0f} MiB" if "peak_mib" in row else ""
        print(
            f"  {name:18}{row['cpu_s']:9.3f} s CPU {row['cpu_ratio']:7.2f} ×{memory}   "
            f"difference {row.get('apart', 0):.1e}"
        )
    return {
        "title": title,
        "rounds": rounds,
        "rows": {
            name: {x: float(f"{y:.3g}") for x, y in row.items()} for name, row in rows.items()
        },
    }


def store(result: dict[str, object]) -> None:
    """Store a result, replacing the one with the same title."""
    path = RESULTS / "mixers.json"
    kept = {x["title"]: x for x in json.loads(path.read_text())["results"]} if path.exists() else {}
    kept[str(result["title"])] = result
    path.write_text(json.dumps({"results": [kept[x] for x in sorted(kept)]}, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="run benchmarks whose title contains this")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    work: dict[str, Callable[[str], dict[str, object]]] = {
        f"gated delta rule of Qwen3-Next 80B, {args.tokens:,} tokens": lambda title: recurrences(
            title, delta(args.tokens), args.rounds
        ),
        f"Mamba-2 of Nemotron-H 8B, {args.tokens:,} tokens": lambda title: recurrences(
            title, mamba(args.tokens), args.rounds
        ),
        f"Mamba of Mamba 2.8B, {args.tokens:,} tokens": lambda title: recurrences(
            title, scan(args.tokens), args.rounds
        ),
        **dict.fromkeys(WINDOWS, lambda title: windows(title, args.rounds)),
    }
    for title in (x for x in work if args.only in x):
        store(
            work[title](title)
            | {
                "date": time.strftime("%Y-%m-%d"),
                "machine": machine(argparse.Namespace(threads=1, llama_cpp="", openvino="")),
            }
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--window"]:
        window(*sys.argv[2:])
    else:
        main()
