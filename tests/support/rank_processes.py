"""Jobs on several ranks: `Ranks` starts a process that forks one for each rank, and each writes its results as JSON.

The imports of a rank take seconds; the forks share them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

import llamath
from llamath.analysis.size.memory.gpu_shards import ShardedModel
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.storage.parallel_layout import pipeline_stages, weight_shards
from llamath.core.blocks import Decoder
from llamath.core.tree import fold, walk
from llamath.torch import Decoder as Module
from llamath.torch import Generation, GenerationLimits, Sampling, build, initialize, open_model
from llamath.torch.distributed.tensor_parallel import layout_for, parallelize
from llamath.torch.torch_machine import local_tensor
from llamath.utils.errors import LlamathError


class RankResult(NamedTuple):
    """How a process ended, and its results."""

    status: int
    found: Any
    stderr: str


HANG_TIMEOUT_S = 600
"""Ends a process that hangs; no test depends on it otherwise."""


class Ranks:
    """A process that has imported all that ranks need and has one thread, so that it may fork."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, n: int, folder: Path, jobs: dict[str, Any], timeout_s: float = 300
    ) -> list[RankResult]:
        """Run jobs, given as names and arguments, on n ranks; `timeout_s` is how long a rank waits for the others in a collective.

        A rank that fails is the last in the result, and ends the ranks after it.
        """
        assert self._process.stdin and self._process.stdout
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "jobs.json").write_text(json.dumps(jobs))
        self._process.stdin.write(json.dumps([n, str(folder), timeout_s]) + "\n")
        self._process.stdin.flush()
        statuses = json.loads(self._process.stdout.readline())
        results = []
        for i, status in enumerate(statuses):
            path = folder / f"{i}.json"
            data = json.loads(path.read_text()) if path.exists() else None
            results.append(RankResult(status, data, (folder / f"{i}.stderr").read_text()))
        return results

    def close(self) -> None:
        self._process.communicate()


def model(config: dict[str, Any]) -> tuple[llamath.Model, Module]:
    """A model with the same random weights on every rank; norms and biases are not trivial."""
    known = llamath.load(config)
    module = initialize(build(known), 1, 0.2)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for path, x in module.state_dict().items():
            if x.dim() < 2 or "norm" in path:
                x.add_(0.1 * torch.randn(x.shape, generator=generator))
    return known, module


def ids(config: dict[str, Any], rows: int, tokens: int) -> torch.Tensor:
    return torch.randint(
        0, config["vocab_size"], (rows, tokens), generator=torch.Generator().manual_seed(5)
    )


def relative_difference(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).abs().max() / x.abs().max())


def gradient_error(x: torch.Tensor, y: torch.Tensor) -> float:
    """The relative difference beyond 1e-6: with a single token, gradients of q and k are zero up to rounding."""
    difference = max(0.0, float((x - y).abs().max()) - 1e-6)
    return difference / float(x.abs().max()) if difference else 0.0


def local_bytes(module: Module) -> int:
    """The bytes of this rank's weights; weights in a mapped file count with their own size."""
    kept = {x.data_ptr(): (x, x.untyped_storage()) for x in map(local_tensor, module.parameters())}
    return sum(whole.nbytes() if whole.resizable() else x.nbytes for x, whole in kept.values())


def predicted_bytes(tree: Decoder, ranks: int, expert_parallel: bool) -> int:
    """The bytes of one rank's weights that `analysis` predicts."""
    layout = layout_for(ranks, expert_parallel)
    return 4 * sum(
        x.elements
        for x in weight_shards(tree, pipeline_stages(tree, layout)[0], layout)
        if not x.buffer
    )


def padding(tree: Decoder, mesh: DeviceMesh) -> int:
    """The bytes of rows that the prediction counts but this rank lacks, where rows do not divide evenly."""
    missing_bytes = 0
    for x in fold(tree):
        if x.split and x.split.on_indivisible == "pad" and not x.weight.tied:
            rows, *others = map(int, x.weight.shape)
            step = -(-rows // mesh.size())
            missing_bytes += (
                4 * prod(others) * (step - max(0, min(step, rows - step * mesh.get_local_rank())))
            )
    return missing_bytes


@torch.inference_mode()
def agreement(mesh: DeviceMesh, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare single process with all ranks on the same tokens: in single pass, token by token, and in generation."""
    results = []
    for case in given:
        config, expert_parallel = case["config"], case["expert_parallel"]
        known, single = model(config)
        _, sharded = model(config)
        weights = {path: x.clone() for path, x in single.state_dict().items()}
        parallelize(sharded, mesh, expert_parallel)
        tokens = ids(config, 2, 9)
        caches = [single.new_cache(16), sharded.new_cache(16)]
        decoded = [
            [
                m(tokens[:, :6], c, torch.tensor([2, 0])),
                *(m(tokens[:, i : i + 1], c) for i in (6, 7)),
            ]
            for m, c in zip((single, sharded), caches, strict=True)
        ]
        samplings = [
            Sampling(),
            Sampling(temperature=1.0, top_p=0.9, repetition_penalty=1.1, seed=7),
        ]
        sizes = MemoryCalculator(
            known, MemoryRequest(dtype="fp32", kv_dtype="fp32", context=16, batch=2)
        )
        gathered = {
            path: x.full_tensor() if hasattr(x, "full_tensor") else x
            for path, x in sharded.state_dict().items()
        }
        results.append(
            {
                "logits": relative_difference(single(tokens), sharded(tokens)),
                "decoded": max(relative_difference(x, y) for x, y in zip(*decoded, strict=True)),
                "texts": [generate(sharded, tokens, x) for x in samplings],
                "alone": [generate(single, tokens, x) for x in samplings]
                if mesh.get_local_rank() == 0
                else None,
                "unseeded": generate(sharded, tokens, Sampling(temperature=1.5)),
                "bytes": local_bytes(sharded),
                "predicted": predicted_bytes(known.tree, mesh.size(), expert_parallel),
                "padding": padding(known.tree, mesh),
                "cache": caches[1].nbytes,
                "cache_predicted": ShardedModel(
                    sizes, layout_for(mesh.size(), expert_parallel)
                ).kv_cache(0, 16, 2),
                "parameters": [sum(x.numel() for x in m.parameters()) for m in (single, sharded)],
                "joins": all(torch.equal(x, weights[path]) for path, x in gathered.items()),
            }
        )
    return results


def errors(mesh: DeviceMesh, given: list[dict[str, Any]]) -> list[str]:
    """The errors for models that cannot be sharded."""
    messages = []
    for config in given:
        try:
            parallelize(model(config)[1], mesh)
        except LlamathError as error:
            messages.append(str(error))
    return messages


def generate(module: Module, tokens: torch.Tensor, sampling: Sampling) -> list[list[int]]:
    generation = Generation(
        module,
        [tokens[0, :4].tolist(), tokens[1].tolist()],
        sampling,
        GenerationLimits(max_tokens=6),
    )
    for _ in generation:
        pass
    return [row.ids for row in generation.rows]


def opened(mesh: DeviceMesh, given: dict[str, Any]) -> dict[str, Any]:
    """Open a checkpoint on all ranks, each with its shard."""
    loaded = open_model(given["folder"], device=mesh)
    with torch.inference_mode():
        logits = loaded.module(ids(given["config"], 2, 9))
    results = {
        "logits": logits.tolist(),
        "bytes": local_bytes(loaded.module),
        "flaw": loaded.first_nonfinite_weight(),
        **mapped_bytes(given["file"]),
    }
    layout = layout_for(mesh.size())
    tree = loaded.model.tree
    results["predicted"] = 4 * sum(
        x.elements for x in weight_shards(tree, pipeline_stages(tree, layout)[0], layout)
    )
    return results


def mapped_bytes(file: str) -> dict[str, int]:
    """The bytes of a mapped file in this process's memory, and those copied on write."""
    kept, inside = {"Rss": 0, "Anonymous": 0}, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        word, _, rest = line.partition(":")
        if "-" in line.split(" ", 1)[0] and ":" not in line.split(" ", 1)[0]:
            inside = line.endswith(file)
        elif inside and word in kept:
            kept[word] += 1024 * int(rest.split()[0])
    return kept


def missing(mesh: DeviceMesh, given: dict[str, Any]) -> str:
    """The error for a folder that the last rank cannot read."""
    folder = given["folder"] if mesh.get_local_rank() == 0 else given["folder"] + "-missing"
    try:
        open_model(folder, device=mesh)
    except LlamathError as error:
        return str(error)
    return ""


def trained(mesh: DeviceMesh, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two training steps, on single process and with the batch split over the ranks."""
    from llamath.torch.distributed.fsdp import apply_fsdp

    results = []
    for case in given:
        (known, single), (_, sharded) = model(case["config"]), model(case["config"])
        apply_fsdp(sharded, mesh)
        rows = ids(case["config"], 2 * mesh.size(), case["tokens"])
        first = 2 * mesh.get_local_rank()
        parts = [(single, rows), (sharded, rows[first : first + 2])]
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m, _ in parts]
        result: dict[str, Any] = {"losses": [], "gradients": 0.0}
        for _ in range(2):
            losses = [loss(m, x) for m, x in parts]
            for x in losses:
                x.backward()
            mean = losses[1].detach().clone()
            dist.all_reduce(mean)
            result["losses"].append([losses[0].item(), mean.item() / mesh.size()])
            theirs = {
                path: x.grad.full_tensor()
                for path, x in sharded.named_parameters()
                if x.grad is not None
            }
            for path, x in single.named_parameters():
                if x.grad is not None:
                    result["gradients"] = max(
                        result["gradients"], gradient_error(x.grad, theirs[path])
                    )
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
        result["numbers"] = [
            sum(local_tensor(x).numel() for x in sharded.parameters()),
            sum(x.parameters for x in walk(known.tree) if not x.weight.buffer),
        ]
        results.append(result)
    return results


def loss(module: Module, rows: torch.Tensor) -> torch.Tensor:
    logits = module(rows[:, :-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


def leaving(mesh: DeviceMesh, given: dict[str, Any]) -> None:
    """Generate on all ranks, while the last one is killed or falls asleep."""
    _, module = model(given["config"])
    parallelize(module, mesh)
    generation = Generation(module, [[1, 2, 3]], Sampling(), GenerationLimits(max_tokens=400))
    for i, _ in enumerate(generation):
        if i == 3 and mesh.get_local_rank() == mesh.size() - 1:
            if given["way"] == "killed":
                os.kill(os.getpid(), 9)
            time.sleep(HANG_TIMEOUT_S)


JOBS: dict[str, Callable[[DeviceMesh, Any], Any]] = {
    x.__name__: x for x in (agreement, errors, opened, missing, trained, leaving)
}


def run_rank(i: int, n: int, folder: Path, timeout_s: float) -> None:
    signal.alarm(HANG_TIMEOUT_S)
    jobs = json.loads((folder / "jobs.json").read_text())
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=i, world_size=n)
    dist.barrier()
    group = dist.new_group(timeout=timedelta(seconds=timeout_s))
    mesh = DeviceMesh.from_group(group, "cpu")
    results = {job: JOBS[job](mesh, item) for job, item in jobs.items()}
    (folder / f"{i}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def forked_rank(i: int, n: int, folder: Path, timeout_s: float) -> int:
    """The id of a process that runs one rank."""
    if child := os.fork():
        return child
    status = 1
    try:
        os.dup2(os.open(folder / f"{i}.stderr", os.O_WRONLY | os.O_CREAT), 2)
        run_rank(i, n, folder, timeout_s)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)  # gloo's threads sometimes abort a process whose interpreter shuts down


def statuses_of(children: list[int]) -> list[int]:
    """The exit statuses up to the first that is not zero; the ranks after it are killed."""
    statuses: list[int] = []
    for child in children:
        failed = any(statuses)
        if failed:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        statuses += [] if failed else [status]
    return statuses


def main() -> None:
    for line in sys.stdin:
        n, folder, timeout_s = json.loads(line)
        children = [forked_rank(i, n, Path(folder), timeout_s) for i in range(n)]
        print(json.dumps(statuses_of(children)), flush=True)


if __name__ == "__main__":
    import torch._dynamo  # what collectives import

    import llamath.torch.distributed.fsdp

    torch.set_num_threads(1)
    main()
