"""Write conformance/: exact numbers of every preset, and llamath's predictions next to published
figures; with --check, fail if a file is out of date."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import sha256
from typing import Any

import llamath
from llamath import catalog
from llamath.analysis.size.memory.cache_bytes import kv_cache_size
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.core.multimodal import is_computed
from llamath.model import FamilyModel, with_family
from llamath.utils.errors import LlamathError
from prediction_tables import FILES as PUBLISHED
from prediction_tables import FOLDER
from predictions import predict

DTYPES = ("fp32", "bf16", "fp8", "bnb-nf4", "awq", "mlx-4bit", "q8_0", "q4_k_m")
CONTEXTS = (2048, 8192, 131072)
PASS = 2048  # tokens of the forward pass: with more, the largest models pass 2**53 FLOPs
LARGEST = 2**53 - 1


def lines_sha256(lines: Iterable[str]) -> str:
    """Return the sha256 of sorted lines joined by newlines."""
    return sha256("\n".join(sorted(lines)).encode()).hexdigest()


def stored_bytes(model: FamilyModel, dtype: str) -> int | None:
    """Return the bytes of the weights in a dtype, or None if llamath refuses it."""
    try:
        storage = MemoryCalculator(model, MemoryRequest(dtype=dtype)).storage
    except LlamathError:
        return None
    return None if storage is None else int(storage.bytes)


def flops_of(model: FamilyModel) -> dict[str, Any] | None:
    """Return the FLOPs of a forward pass, and those of training by convention."""
    if not is_computed(model.text.tree):
        return None
    report = llamath.flops(model, context=PASS)
    return {
        f"forward_{PASS}_tokens": int(report.forward.total),
        "training_per_token": {x.name: int(x.train) for x in report.conventions},
    }


def model_row(slug: str) -> dict[str, Any]:
    """Return the numbers of a preset."""
    preset, model = catalog.read_preset(slug), with_family(llamath.load(slug))
    counts, text = model.parameters, model.text.tree
    tensors = [(x.name, map(int, x.shape)) for x in model.family.hf.tensors(model.tree)]
    cached = is_computed(text)
    return {
        "preset": slug,
        "id": preset.public_id,
        "model_type": preset.config["model_type"],
        "llamath": llamath.__version__,
        "parameters": {
            "total": int(counts.total),
            "active": int(counts.active),
            "without_embeddings": int(counts.without_embeddings),
            "without_head": int(counts.without_head),
            "tied_counted_twice": int(counts.tied_counted_twice),
            "buffers": int(counts.buffers),
        },
        "parts": {name: int(n) for name, n in model.count.groups.items()},
        "tensors": len(tensors),
        "names_sha256": lines_sha256(name for name, _ in tensors),
        "shapes_sha256": lines_sha256(f"{name}\t{'x'.join(map(str, y))}" for name, y in tensors),
        "bytes": {
            x: n
            for x in ("released", *DTYPES)
            if (n := stored_bytes(model, "" if x == "released" else x)) is not None
        },
        "kv_bytes": {str(n): int(kv_cache_size(text, n).bytes) for n in CONTEXTS}
        if cached
        else None,
        "flops": flops_of(model),
    }


def check_range(value: Any) -> None:
    """Fail on an integer that JavaScript's numbers cannot hold exactly."""
    if isinstance(value, dict):
        for x in value.values():
            check_range(x)
    elif isinstance(value, int):
        assert abs(value) <= LARGEST, value


def models() -> Iterator[dict[str, Any]]:
    """Yield the rows of models.jsonl."""
    for slug in sorted(catalog.slugs()):
        row = model_row(slug)
        check_range(row)
        yield row


def predictions(name: str) -> Iterator[dict[str, Any]]:
    """Yield the facts of a file with fresh predictions."""
    for line in (FOLDER / name).read_text().splitlines():
        yield predict(json.loads(line))


def to_lines(rows: Iterable[dict[str, Any]]) -> str:
    """Return rows as JSON lines."""
    return "".join(f"{json.dumps(x, ensure_ascii=False)}\n" for x in rows)


FILES = {
    "models.jsonl": models,
    **{name: partial(predictions, name) for name in PUBLISHED},
}


def main() -> int:
    stale = []
    for name, rows in FILES.items():
        path, fresh = FOLDER / name, to_lines(rows())
        if path.exists() and path.read_text() == fresh:
            continue
        stale.append(name)
        if "--check" not in sys.argv:
            path.write_text(fresh)
    if stale and "--check" in sys.argv:
        print(
            f"conformance/{', '.join(stale)}: out of date; run python tools/conformance.py",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
