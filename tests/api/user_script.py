"""A user's script with every public function; `make lint` checks it with mypy --strict, and `test_typing.py` runs it."""

from __future__ import annotations

import sys
from pathlib import Path

import llamath


def main(folder: Path) -> None:
    model: llamath.Model = llamath.load("llama-3-8b", changes={"num_hidden_layers": 16})
    assert isinstance(model, llamath.FamilyModel)
    total: int = llamath.count(model).total
    parameters: llamath.Parameters = llamath.count(model).parameters
    delta: int = llamath.diff("llama-2-7b", model).delta
    keys: list[str] = [x.key for x in llamath.config(model)]
    replies: list[llamath.Reply] = llamath.run("embedded", ["Anna had", "Tom"], max_tokens=3)
    text: str = llamath.run(
        "embedded", "Anna", sampling=llamath.Sampling(seed=1), max_tokens=3
    ).text
    size: int = llamath.export([model, "gpt2"], folder.parent / "page.html").bytes
    exact: list[bool] = [x.exact for x in llamath.explain(2839830528).candidates]
    widths: list[int] = [
        x.width
        for x in llamath.design(
            "8B", changes={"num_hidden_layers": (30, 34)}, bounds="tp=8", top=2
        ).candidates
    ]
    memory: llamath.MemoryReport = llamath.memory(
        model, context=["8k", 131072], batch=4, dtype="q4_k_m", on="rtx-4090"
    )
    kv_cache: int = memory.kv_cache
    optimizer: int = llamath.training_memory(
        model, layout="dp=8,zero=3", lora="r=16,targets=q,v"
    ).largest_stage.optimizer
    typed: int = llamath.training_memory(
        model,
        layout=llamath.Layout(dp=8, zero=3),
        lora=llamath.Lora(r=16, targets=("q", "v")),
        training=llamath.Training(optimizer="adamw"),
    ).largest_stage.optimizer
    assert typed == optimizer
    queries: memoryview = llamath.watch("Anna had a red")["layers.0.attn.q"]
    assert queries.shape == (5, 128)
    forward: int = llamath.flops(model, context="8k").forward.total
    fits: bool = llamath.fit(model, on="2xh100", layout="tp=2").fits
    smallest: str = llamath.rank_gpus(model).gpus[0].device.name
    mfu: list[float] = [x.mfu for x in llamath.plan(model, on="64xh100", top=2).plans]
    replicas: list[int] = [
        x.replicas for x in llamath.plan_serving(model, on="8xh100", latency="50ms").plans
    ]
    stored: list[str] = [x.name for x in llamath.stored_names(model, names="gguf").tensors]
    patterns: list[str] = [x.pattern for x in llamath.names(model).weights]
    presets: list[str] = [x.preset for x in llamath.models("qwen")]
    gpus: list[llamath.Device] = list(llamath.gpus("h100"))
    tensors: int = llamath.ls(folder).total.tensors
    ok: bool = llamath.verify(folder).ok
    files: list[str] = [
        x.path
        for x in llamath.convert(folder, folder.parent / "gguf", names="gguf", dry_run=True).files
    ]
    report: llamath.Report = memory
    print(
        report,
        report.to_json()["total"],
        total,
        parameters.total,
        delta,
        exact,
        widths,
        kv_cache,
        optimizer,
        forward,
        fits,
        smallest,
    )
    print(len(keys), len(replies), text, size)
    print(mfu, replicas, len(stored), len(patterns), presets, gpus[0].name, tensors, ok, files)
    try:
        llamath.memory(model, context="abc")
    except llamath.LlamathError as error:
        print(error, error.hint)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
