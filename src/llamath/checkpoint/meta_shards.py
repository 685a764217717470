"""Meta's checkpoints of several files, one for each process that ran them, made whole: what was cut, and along which axis, the shapes say.

Facts: llama's `model.py` cuts wq, wk, wv, w1, w3 and output by rows, wo and w2 by columns (fairscale's column- and row-parallel layers);
tok_embeddings by columns (Llama 1 and 2: ParallelEmbedding) or by rows (Llama 3: VocabParallelEmbedding); norms are in every file. With
more files than key/value heads, neighbouring files have the same head (llama-models, `checkpoint.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ..core.errors import ConvertError, safe
from .formats.dtypes import PLAIN
from .formats.manifest import Tensor
from .naming.scheme import Scheme
from .tensor_reader import CHUNK, Files, Whole

Shape = tuple[int, ...]


def vocabulary(found: Mapping[str, list[Tensor]], embed: str, norm: str) -> int | None:
    """The rows of the whole embedding, which is cut along either axis; a norm is whole and says how wide it is."""
    parts, norms = found.get(embed, []), found.get(norm, [])
    if not parts or not norms or len(norms[0].shape) != 1 or any(len(x.shape) != 2 for x in parts):
        return None
    cut = parts[0].shape[1] != norms[0].shape[0]
    return parts[0].shape[0] if cut else sum(x.shape[0] for x in parts)


def unsaid(data: Mapping[str, Any], scheme: Scheme, found: Mapping[str, list[Tensor]]) -> dict[str, tuple[Any, str]]:
    """What Meta's tensors say and their `params.json` does not, each with a remark; `data` are its keys in Hugging Face's words."""
    said: dict[str, tuple[Any, str]] = {}
    head, embed = (found.get(scheme.stored(f"{x}.weight")) for x in ("head", "embed"))
    if embed is not None and (head is None or [(x.file, x.start, x.shape) for x in head] == [(x.file, x.start, x.shape) for x in embed]):
        said["tie_word_embeddings"] = True, "embedding and output share one matrix"
    context = _context(data)
    remark = f"params.json does not say for how many positions the model was trained: {context:,} is taken (max_position_embeddings)"
    said["max_position_embeddings"] = context, remark
    return said


def _context(data: Mapping[str, Any]) -> int:
    """The trained length of Meta's models, which are told apart by how they turn positions and by the norms' epsilon."""
    theta = data.get("rope_theta", 10000.0)
    if theta > 10000.0:
        return 131072 if data.get("rope_scaling") else 16384 if theta == 1e6 else 8192
    return 2048 if data.get("rms_norm_eps") == 1e-6 else 4096


def whole(name: str, parts: list[Tensor], expected: Shape | None) -> Whole:
    """One tensor of all its parts; the first part alone where the shapes fit nothing, for others to find fault with."""
    first = parts[0]
    alone = Whole(name, first.dtype, first.shape, (first,))
    if len(parts) == 1 or expected is None or any((x.shape, x.dtype) != (first.shape, first.dtype) for x in parts):
        return alone
    if first.shape == expected:
        return alone._replace(parts=tuple(parts))
    n = len(parts)
    differ = [i for i, (a, b) in enumerate(zip(first.shape, expected, strict=False)) if a != b]
    if len(first.shape) != len(expected) or len(differ) != 1 or differ[0] > 1:
        return alone
    copies, rest = divmod(first.shape[differ[0]] * n, expected[differ[0]])
    if rest or n % copies or (copies > 1 and differ != [0]):
        return alone
    return Whole(name, first.dtype, expected, tuple(parts), differ[0])


def settled(one: Whole, files: Files) -> Whole:
    """The same without the parts that are copies of another, once they have been found to be equal."""
    rows = sum(x.shape[0] for x in one.parts)
    copies = rows // one.shape[0] if one.axis == 0 else 1
    alone = [Whole(one.name, x.dtype, x.shape, (x,)) for x in one.parts]
    for i, x in enumerate(alone):
        if i % copies and not same(first := alone[i - i % copies], x, files):
            where = f"{files.name(first)} and {files.name(x)}"
            raise ConvertError(f"{safe(one.name)} should be the same in {where}, and is not", hint="these files are not of one checkpoint")
    return one._replace(parts=one.parts[::copies])


def same(a: Whole, b: Whole, files: Files) -> bool:
    """Whether two tensors have the same numbers, bit for bit."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    rows = prod(a.shape) // a.width
    step = max(1, CHUNK // (a.width * PLAIN[a.dtype].bytes))
    return all(files.rows(a, x, min(rows, x + step)) == files.rows(b, x, min(rows, x + step)) for x in range(0, rows, step))
