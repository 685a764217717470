"""`verify`: is a checkpoint what its configuration says? Header against tree: names, shapes, types, bytes.

Findings are folded, one for one cause. An `error` or a `warning` means that the checkpoint is not what it claims; an `info` is worth
knowing and changes nothing (a tied matrix stored twice, a buffer of old exporters, padded vocabulary rows).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..blocks import Decoder
from ..errors import FormatError, safe
from ..formats.manifest import Manifest, Tensor
from ..names.codec import Packing, packings
from ..names.scheme import Scheme, Stored, Unnamed
from ..record import Record
from ..tree import walk
from .diagnose import Mismatch, diagnose
from .folding import folded

BUFFERS = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias", "attention.bias", "attention.masked_bias", "rope.freqs", "rope_freqs.weight")
"""How the names of buffers end that exporters have stored, and that every loader computes anew."""


class Finding(Record):
    """One cause: what was found, how bad it is, what to do, and the tensors it is about."""

    code: str
    severity: str
    message: str
    hint: str = ""
    tensors: tuple[str, ...] = ()


class Verdict(Record):
    """The result: whole or not, under which naming, and why."""

    scheme: str
    matched: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Nothing that contradicts the configuration."""
        return all(x.severity == "info" for x in self.findings)


class Claim(Record):
    """What a configuration promises: the tree, its possible names, and the same family with some keys changed."""

    tree: Decoder
    schemes: Sequence[Scheme]
    letters: Mapping[str, str] = {}  # letter → configuration key
    rebuild: Callable[[Mapping[str, Any]], Decoder]
    dtype: str = ""  # as safetensors name it
    tokens: int | None = None  # what the tokenizer beside it holds


def verify(claim: Claim, manifest: Manifest, problems: Sequence[FormatError] = ()) -> Verdict:
    """Compare a checkpoint's header with what its configuration promises."""
    found = {x.name: x for x in manifest.tensors}
    scheme, expected = _best(claim, found)
    packed = packings(manifest.tensors)
    findings = [Finding(code=x.code, severity="error", message=str(x), hint=x.hint) for x in problems]
    findings += _files(manifest)
    findings += _names(claim, scheme, expected, found, packed)
    wrong = [Mismatch(stored=x, found=_logical(found[name], packed)) for name, x in expected.items() if name in found and not _same(x, found[name], packed)]
    findings += [Finding(code=x.code, severity="error", message=x.message, hint=x.hint, tensors=x.tensors) for x in diagnose(claim.tree, claim.letters, claim.rebuild, scheme, wrong)]
    findings += _dtypes(claim, expected, found, packed)
    findings += _padding(claim)
    return Verdict(scheme=scheme.name, matched=len(expected.keys() & found.keys()), findings=tuple(findings))


def _best(claim: Claim, found: Mapping[str, Tensor]) -> tuple[Scheme, dict[str, Stored]]:
    """The naming under which most of the file is what the tree has."""
    best: tuple[int, Scheme, dict[str, Stored]] | None = None
    for scheme in claim.schemes:
        try:
            expected = {x.name: x for x in scheme.tensors(claim.tree)}
        except Unnamed:
            continue
        overlap = len(expected.keys() & found.keys())
        if best is None or overlap > best[0]:
            best = (overlap, scheme, expected)
        if overlap == len(expected):
            break
    if best is None:
        raise ValueError("a family has at least one scheme that names all its weights")
    return best[1], best[2]


def _same(stored: Stored, tensor: Tensor, packed: Mapping[str, Packing]) -> bool:
    if stored.shape == tensor.shape:
        return True
    return tensor.name in packed and packed[tensor.name].fits(tuple(map(int, stored.shape)))


def _logical(tensor: Tensor, packed: Mapping[str, Packing]) -> Tensor:
    return tensor._replace(shape=packed[tensor.name].shape) if tensor.name in packed and packed[tensor.name].shape else tensor
