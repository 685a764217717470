"""What several processes do together, each in a Python of its own: `crew` starts them, and each writes what it found as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import llamath
from llamath import run
from llamath.analysis.inference.gpu_shards import ShardedModel
from llamath.analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.parallel_layout import pipeline_stages, weight_shards
from llamath.core.blocks import Decoder
from llamath.core.errors import LlamathError
from llamath.core.tree import fold, walk
from llamath.run.distributed.tensor_parallel import layout_for, parallelize
from llamath.run.module import local_tensor


class Ended(NamedTuple):
    """How a process ended, when, and what it had found."""

    status: int
    seconds: float
    found: Any
    said: str


def crew(n: int, folder: Path, jobs: dict[str, Any], patience: float = 300, most: float = 600) -> list[Ended]:
    """Start n processes at some jobs, by name with what each is given, and wait for all; whoever is late is ended."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    began = time.monotonic()
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(folder), str(patience), str(n)]
    all_of = [subprocess.Popen([*command, str(i)], env=env, stderr=subprocess.PIPE, text=True) for i in range(n)]
    ended = []
    try:
        for i, one in enumerate(all_of):
            said = one.communicate(timeout=most)[1]
            there = folder / f"{i}.json"
            found = json.loads(there.read_text()) if there.exists() else None
            ended.append(Ended(one.returncode, time.monotonic() - began, found, said))
            if one.returncode:
                break
    finally:
        for one in all_of:
            one.kill()
            one.communicate()
    return ended


def model(config: dict[str, Any]) -> tuple[llamath.Model, run.Decoder]:
    """A model with numbers that are the same in every process, each of them able to make a difference."""
    known = llamath.load(config)
    made = run.initialize(run.build(known), 1, 0.2)
    random = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for path, x in made.state_dict().items():
            if x.dim() < 2 or "norm" in path:
                x.add_(0.1 * torch.randn(x.shape, generator=random))
    return known, made


def ids(config: dict[str, Any], rows: int, tokens: int) -> torch.Tensor:
    return torch.randint(0, config["vocab_size"], (rows, tokens), generator=torch.Generator().manual_seed(5))


def apart(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).abs().max() / x.abs().max())


def held(module: run.Decoder) -> int:
    """The bytes of the numbers that this process keeps; of a file it keeps what lies there."""
    kept = {x.data_ptr(): (x, x.untyped_storage()) for x in map(local_tensor, module.parameters())}
    return sum(whole.nbytes() if whole.resizable() else x.nbytes for x, whole in kept.values())


def predicted(tree: Decoder, n: int, experts: Any) -> int:
    how = layout_for(n, experts)
    return 4 * sum(x.elements for x in weight_shards(tree, pipeline_stages(tree, how)[0], how) if not x.buffer)


def padding(tree: Decoder, mesh: DeviceMesh) -> int:
    """The bytes of rows that the prediction counts and the last processes do not have, where the rows do not come out even."""
    found = 0
    for x in fold(tree):
        if x.split and x.split.on_indivisible == "pad" and not x.weight.tied:
            rows, *others = map(int, x.weight.shape)
            step = -(-rows // mesh.size())
            found += 4 * prod(others) * (step - max(0, min(step, rows - step * mesh.get_local_rank())))
    return found


@torch.inference_mode()
def same(mesh: DeviceMesh, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One process and all of them at the same tokens: at once, and token by token."""
    found = []
    for case in given:
        config, experts = case["config"], case["experts"]
        known, one = model(config)
        _, several = model(config)
        whole = {path: x.clone() for path, x in one.state_dict().items()}
        parallelize(several, mesh, experts)
        tokens = ids(config, 2, 9)
        memory = [one.new_cache(16), several.new_cache(16)]
        decoded = [
            [m(tokens[:, :6], c, torch.tensor([2, 0])), *(m(tokens[:, i : i + 1], c) for i in (6, 7))]
            for m, c in zip((one, several), memory, strict=True)
        ]
        how = [run.Sampling(), run.Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.1, seed=7)]
        sizes = MemoryCalculator(known, MemoryRequest(dtype="fp32", kv_dtype="fp32", context=16, batch=2))
        joined = {path: x.full_tensor() if hasattr(x, "full_tensor") else x for path, x in several.state_dict().items()}
        found.append(
            {
                "logits": apart(one(tokens), several(tokens)),
                "decoded": max(apart(x, y) for x, y in zip(*decoded, strict=True)),
                "texts": [text(several, tokens, x) for x in how],
                "alone": [text(one, tokens, x) for x in how] if mesh.get_local_rank() == 0 else None,
                "unseeded": text(several, tokens, run.Sampling(temperature=1.5)),
                "bytes": held(several),
                "predicted": predicted(known.tree, mesh.size(), experts),
                "padding": padding(known.tree, mesh),
                "cache": memory[1].nbytes,
                "cache_predicted": ShardedModel(sizes, layout_for(mesh.size(), experts)).kv_cache(0, 16, 2),
                "parameters": [sum(x.numel() for x in m.parameters()) for m in (one, several)],
                "joins": all(torch.equal(x, whole[path]) for path, x in joined.items()),
            }
        )
    return found


def refused(mesh: DeviceMesh, given: list[dict[str, Any]]) -> list[str]:
    """What is said of models that cannot be cut."""
    said = []
    for config in given:
        try:
            parallelize(model(config)[1], mesh)
        except LlamathError as error:
            said.append(str(error))
    return said


def text(module: run.Decoder, tokens: torch.Tensor, how: run.Sampling) -> list[list[int]]:
    made = run.Generation(module, [tokens[0, :4].tolist(), tokens[1].tolist()], how, run.GenerationLimits(max_tokens=6))
    for _ in made:
        pass
    return [row.ids for row in made.rows]


def opened(mesh: DeviceMesh, given: dict[str, Any]) -> dict[str, Any]:
    """A checkpoint from a folder, each process its own part of it."""
    ready = run.open_model(given["folder"], device=mesh)
    with torch.inference_mode():
        logits = ready.module(ids(given["config"], 2, 9))
    found = {"logits": logits.tolist(), "bytes": held(ready.module), "flaw": ready.first_nonfinite_weight(), **mapped(given["file"])}
    how = layout_for(mesh.size())
    tree = ready.model.tree
    found["predicted"] = 4 * sum(x.elements for x in weight_shards(tree, pipeline_stages(tree, how)[0], how))
    return found


def mapped(file: str) -> dict[str, int]:
    """What of a file lies in this process's memory, in bytes, and what of it the process has copied on writing."""
    kept, inside = {"Rss": 0, "Anonymous": 0}, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        word, _, rest = line.partition(":")
        if "-" in line.split(" ", 1)[0] and ":" not in line.split(" ", 1)[0]:
            inside = line.endswith(file)
        elif inside and word in kept:
            kept[word] += 1024 * int(rest.split()[0])
    return kept


def strange(mesh: DeviceMesh, given: dict[str, Any]) -> str:
    """A folder that one process cannot read: an error in all."""
    folder = given["folder"] if mesh.get_local_rank() == 0 else given["folder"] + "-missing"
    try:
        run.open_model(folder, device=mesh)
    except LlamathError as error:
        return str(error)
    return ""


def trained(mesh: DeviceMesh, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two steps of training, each process with some rows of the batch."""
    from llamath.run.distributed.fsdp import apply_fsdp  # takes a second to import

    found = []
    for case in given:
        (known, one), (_, several) = model(case["config"]), model(case["config"])
        apply_fsdp(several, mesh)
        rows = ids(case["config"], 2 * mesh.size(), case["tokens"])
        first = 2 * mesh.get_local_rank()
        parts = [(one, rows), (several, rows[first : first + 2])]
        ways = [torch.optim.SGD(m.parameters(), lr=0.5) for m, _ in parts]
        said: dict[str, Any] = {"losses": [], "gradients": 0.0}
        for _ in range(2):
            losses = [loss(m, x) for m, x in parts]
            for x in losses:
                x.backward()
            mean = losses[1].detach().clone()
            dist.all_reduce(mean)
            said["losses"].append([losses[0].item(), mean.item() / mesh.size()])
            theirs = {path: x.grad.full_tensor() for path, x in several.named_parameters() if x.grad is not None}
            for path, x in one.named_parameters():
                if x.grad is not None:
                    said["gradients"] = max(said["gradients"], apart(x.grad, theirs[path]))
            for way in ways:
                way.step()
                way.zero_grad()
        said["numbers"] = [
            sum(local_tensor(x).numel() for x in several.parameters()),
            sum(x.parameters for x in walk(known.tree) if not x.weight.buffer),
        ]
        found.append(said)
    return found


def loss(module: run.Decoder, rows: torch.Tensor) -> torch.Tensor:
    logits = module(rows[:, :-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def leaving(mesh: DeviceMesh, given: dict[str, Any]) -> None:
    """The last process ends, or falls asleep, while all generate."""
    _, made = model(given["config"])
    parallelize(made, mesh)
    generation = run.Generation(made, [[1, 2, 3]], run.Sampling(), run.GenerationLimits(max_tokens=400))
    for i, _ in enumerate(generation):
        if i == 3 and mesh.get_local_rank() == mesh.size() - 1:
            if given["way"] == "killed":
                os.kill(os.getpid(), 9)
            time.sleep(60)


JOBS: dict[str, Callable[[DeviceMesh, Any], Any]] = {x.__name__: x for x in (same, refused, opened, strange, trained, leaving)}


def main() -> None:
    folder, patience, n, i = Path(sys.argv[1]), timedelta(seconds=float(sys.argv[2])), int(sys.argv[3]), int(sys.argv[4])
    jobs = json.loads((folder / "jobs.json").read_text())
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=i, world_size=n)
    dist.barrier()
    mesh = DeviceMesh.from_group(dist.new_group(timeout=patience), "cpu")
    found = {job: JOBS[job](mesh, given) for job, given in jobs.items()}
    (folder / f"{i}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
