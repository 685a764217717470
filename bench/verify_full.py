"""How fast `verify --full` reads a checkpoint: the share of the speed of a plain sequential read of
the same files, cold and cached.

Each round reads the files once in every way, in turn; the numbers are medians. "Cold" drops the
files from the page cache before each reading (`posix_fadvise`). The reference reads one file after
the other into one buffer and does nothing else. `hashlib` alone, on memory, shows the speed that a
sum of a single file cannot exceed.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import harness
import llamath
from llamath.analysis.check.verify.full_check import check_files
from llamath.checkpoint.file_stream import CHUNK_BYTES
from llamath.checkpoint.open import OpenedCheckpoint, open_checkpoint

ROUNDS = 5
SHARDS, LAYERS_PER_SHARD, WIDTH = 4, 2, 2048
SIZES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1}


def write_shards(folder: Path, dtype: str) -> Path:
    """Write four safetensors shards of about 256 MiB with random weights."""
    import json
    import struct

    draw = np.random.default_rng(0)
    folder.mkdir()
    weight_map = {}
    rows = (256 << 20) // (SIZES[dtype] * WIDTH * LAYERS_PER_SHARD * 3)
    for shard in range(SHARDS):
        names = [
            f"model.layers.{shard * LAYERS_PER_SHARD + i}.mlp.{x}.weight"
            for i in range(LAYERS_PER_SHARD)
            for x in ("up", "gate", "down")
        ]
        size = rows * WIDTH * SIZES[dtype]
        header = {
            x: {"dtype": dtype, "shape": [rows, WIDTH], "data_offsets": [i * size, (i + 1) * size]}
            for i, x in enumerate(names)
        }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        file = f"model-{shard + 1:05}-of-{SHARDS:05}.safetensors"
        with (folder / file).open("wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            for _ in names:
                values = (draw.standard_normal((rows, WIDTH), np.float32) * 0.02).astype(np.float32)
                if dtype == "BF16":
                    out.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
                elif dtype == "F8_E4M3":
                    out.write(draw.integers(0, 0x70, (rows, WIDTH), dtype=np.uint8).tobytes())
                else:
                    out.write(values.astype(np.float16 if dtype == "F16" else np.float32).tobytes())
            out.flush()
            os.fsync(out.fileno())
        weight_map |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map})
    )
    return folder


def drop_from_cache(folder: Path) -> None:
    """Drop the files' pages from the page cache, which an unprivileged user may do with pages
    that are written."""
    for path in folder.iterdir():
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def plain_read(folder: Path) -> None:
    buffer = bytearray(CHUNK_BYTES)
    for path in sorted(folder.glob("*.safetensors")):
        file, at = os.open(path, os.O_RDONLY), 0
        while count := os.preadv(file, [buffer], at):
            at += count
        os.close(file)


def check(opened: OpenedCheckpoint, *, values: bool, sums: bool) -> None:
    found = check_files(opened, {}, values=values, all_sums=sums)
    if found.findings:
        raise SystemExit(f"the checkpoint should be sound: {found.findings[0].message}")


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall time and the CPU time of all threads."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu


def measure(folder: Path, dtype: str) -> dict[str, object]:
    opened = open_checkpoint(str(folder))
    size = sum(x.size for x in opened.manifest.files)
    memory = bytes(64 << 20)
    ways: dict[str, Callable[[], None]] = {
        "plain sequential read": lambda: plain_read(folder),
        "sums": lambda: check(opened, values=False, sums=True),
        "statistics": lambda: check(opened, values=True, sums=False),
        "sums and statistics": lambda: check(opened, values=True, sums=True),
    }
    rows: dict[str, dict[str, float]] = {}
    for state in ("cold", "cached"):
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for i in range(ROUNDS + 1):
            for name, work in ways.items():
                if state == "cold":
                    drop_from_cache(folder)
                elapsed = seconds(work)
                if i:
                    times[name].append(elapsed)
        base = statistics.median(x for x, _ in times["plain sequential read"])
        for name, values in times.items():
            middle, cpu = (statistics.median(x[i] for x in values) for i in (0, 1))
            rows[f"{name}, {state}"] = {
                "gb_per_s": round(size / middle / 1e9, 2),
                "share": round(base / middle, 2),
                "cpu_s_per_gb": round(cpu / size * 1e9, 2),
            }
            figures = (
                f"{size / middle / 1e9:6.2f} GB/s   share {base / middle:5.2f}   "
                f"{cpu / size * 1e9:5.2f} s CPU/GB"
            )
            print(f"  {name + ', ' + state:36} {figures}")
    alone, cpu = (
        statistics.median(x)
        for x in zip(*(seconds(lambda: hashlib.sha256(memory)) for _ in range(ROUNDS)), strict=True)
    )
    name, size_alone = "hashlib.sha256 alone, one thread, in memory", len(memory) / 1e9
    rows[name] = {
        "gb_per_s": round(size_alone / alone, 2),
        "cpu_s_per_gb": round(cpu / size_alone, 2),
    }
    print(f"  {name:44} {size_alone / alone:6.2f} GB/s   {cpu / size_alone:5.2f} s CPU/GB")
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    return {
        "title": f"{SHARDS} shards of {dtype}, {size / 1e9:.2f} GB, {load}",
        "rounds": ROUNDS,
        "against": "plain sequential read",
        "rows": rows,
    }


def main() -> None:
    results = []
    for dtype in sys.argv[1:] or SIZES:
        with tempfile.TemporaryDirectory() as place:
            folder = write_shards(Path(place) / "model", dtype)
            print(f"\n{dtype} (llamath {llamath.__version__})")
            results.append(measure(folder, dtype))
    harness.keep("verify_full", results)


if __name__ == "__main__":
    main()
