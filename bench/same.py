"""How fast `same` and its hash read checkpoints: the share of the speed of a plain sequential read
of the same files, cold and cached.

Each round runs every way once, in turn; the numbers are medians. `same` reads two checkpoints, so
its reference reads both, one file after the other into one buffer. "Cold" drops the files from the
page cache before each reading. `hashlib` alone, on memory and in one thread, is the speed that the
hash of a single weight cannot exceed.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import harness
import llamath

ROUNDS = 5
BUFFER = 4 << 20
CONFIG = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632,
    "num_hidden_layers": 4,
    "num_attention_heads": 16, "num_key_value_heads": 16, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}  # fmt: skip
COPIES: dict[str, tuple[str, dict[str, str]]] = {
    "same files, other shards": ("identical", {"names": "hf", "max_shard_size": "100MB"}),
    "Meta's .pth": ("identical", {"names": "meta"}),
    "GGUF in BF16": ("identical", {"names": "gguf"}),
    "safetensors in F32": ("identical", {"names": "hf", "dtype": "fp32"}),
    "GGUF in F16": ("rounding", {"names": "gguf", "dtype": "fp16"}),
    "GGUF in Q8_0": ("rounding", {"names": "gguf", "dtype": "q8_0"}),
    "GGUF in Q4_K": ("rounding", {"names": "gguf", "dtype": "q4_k"}),
    "fine-tuned": ("different", {}),
}
"""Second checkpoint → the expected verdict, and how it is converted from the first."""


def write_model(folder: Path, noise: float = 0.0) -> Path:
    """Write a Llama of 335 million weights in BF16; `noise` changes the first matrix of each
    layer."""
    draw = np.random.default_rng(0)
    shapes = {
        x.name: tuple(map(int, x.shape))
        for x in llamath.load(CONFIG).scheme("hf").tensors(llamath.load(CONFIG).tree)
    }
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    at, header = 0, {}
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, shape in shapes.items():
            values = draw.standard_normal(shape, np.float32) * np.float32(0.02)
            if noise and name.endswith("q_proj.weight"):
                values += np.float32(noise) * np.random.default_rng(1).standard_normal(
                    shape, np.float32
                )
            out.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
        out.flush()
        os.fsync(out.fileno())
    return folder


def weight_files(path: Path) -> list[Path]:
    return sorted(
        x
        for x in (path.iterdir() if path.is_dir() else [path])
        if x.suffix in (".safetensors", ".gguf", ".pth")
    )


def plain_read(*paths: Path) -> None:
    buffer = bytearray(BUFFER)
    for path in (x for place in paths for x in weight_files(place)):
        file, at = os.open(path, os.O_RDONLY), 0
        while count := os.preadv(file, [buffer], at):
            at += count
        os.close(file)


def drop_from_cache(*paths: Path) -> None:
    for path in (x for place in paths for x in weight_files(place)):
        file = os.open(path, os.O_RDONLY)
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall time, and the CPU time of all threads."""
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - cpu


def compare(a: Path, b: Path, verdict: str) -> None:
    report = llamath.same(a, b)
    if report.verdict != verdict:
        raise SystemExit(f"{b}: expected {verdict}, found {report.summary}")


def measure(title: str, paths: tuple[Path, ...], work: Callable[[], object]) -> dict[str, object]:
    size = sum(x.stat().st_size for path in paths for x in weight_files(path))
    rows = {}
    for state in ("cold", "cached"):
        times: dict[str, list[tuple[float, float]]] = {"read": [], "work": []}
        for i in range(ROUNDS + 1):
            for name, way in (("read", lambda: plain_read(*paths)), ("work", work)):
                if state == "cold":
                    drop_from_cache(*paths)
                elapsed = seconds(way)
                if i:
                    times[name].append(elapsed)
        (read, read_cpu), (own, cpu) = (
            tuple(map(statistics.median, zip(*times[x], strict=True))) for x in ("read", "work")
        )
        best = max(a / b for (a, _), (b, _) in zip(times["read"], times["work"], strict=True))
        rows[state] = {
            "gb_per_s": round(size / own / 1e9, 2),
            "read_gb_per_s": round(size / read / 1e9, 2),
            "share": round(read / own, 2),
            "best_share": round(best, 2),
            "cpu_s_per_gb": round(cpu / size * 1e9, 2),
            "read_cpu_s_per_gb": round(read_cpu / size * 1e9, 2),
        }
        figures = (
            f"{size / own / 1e9:6.2f} GB/s   share {read / own:5.2f}   best {best:5.2f}   "
            f"{cpu / size * 1e9:5.2f} s CPU/GB"
        )
        print(f"  {title + ', ' + state:44} {figures}", flush=True)
    return {
        "title": f"{title}, {size / 1e9:.2f} GB",
        "rounds": ROUNDS,
        "against": "plain sequential read",
        "rows": rows,
    }


def main() -> None:
    results = []
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as place:
        base = write_model(Path(place) / "base")
        for title, (verdict, options) in COPIES.items():
            other = Path(place) / ("model.gguf" if options.get("names") == "gguf" else "copy")
            if options:
                llamath.convert(base, other, **options)  # type: ignore[arg-type]
            else:
                write_model(other, 0.002)
            results.append(
                measure(
                    f"same: {title}",
                    (base, other),
                    lambda a=base, b=other, v=verdict: compare(a, b, v),
                )
            )
            for path in (*other.iterdir(), other) if other.is_dir() else (other,):
                path.rmdir() if path.is_dir() else path.unlink()
        results.append(measure("hash: BF16", (base,), lambda: llamath.hash_weights(base)))
    memory = bytes(64 << 20)
    alone = statistics.median(seconds(lambda: hashlib.sha256(memory))[1] for _ in range(ROUNDS))
    print(f"  {'hashlib.sha256 alone, in memory':36} {len(memory) / alone / 1e9:6.2f} GB/s")
    rows = {"sha256": {"gb_per_s": round(len(memory) / alone / 1e9, 2)}}
    results.append(
        {"title": "hashlib.sha256 alone, one thread, in memory", "rounds": ROUNDS, "rows": rows}
    )
    harness.keep("same", results)


if __name__ == "__main__":
    main()
