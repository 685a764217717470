"""A DCP checkpoint that two ranks save: forks of one process, which has imported torch once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh
rank = 1 if (child := os.fork()) == 0 else 0
dist.init_process_group("gloo", f"file://{sys.argv[1]}.store", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
put = lambda x, place: distribute_tensor(x, mesh, [place])
state = eval(sys.argv[2])
dcp.save(state, checkpoint_id=sys.argv[1])
dist.barrier()
if child:
    os.waitpid(child, 0)
sys.stderr.flush()
os._exit(0)  # gloo's threads sometimes abort a process that ends in order
"""


def save_with_two_ranks(folder: Path, state: str) -> Path:
    """Save a state, an expression that may use `torch`, `Shard`, `Replicate` and `put(tensor, place)`."""
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(folder), state],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        timeout=300,
        check=False,
    )
    assert (folder / ".metadata").is_file(), done.stderr  # written last, after every rank's data
    return folder
