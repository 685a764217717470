"""`verify`: is a checkpoint what its configuration says? Header against tree: names, shapes, types, bytes.

Findings are folded, one for one cause. An `error` or a `warning` means that the checkpoint is not what it claims; an `info` is worth
knowing and changes nothing (a tied matrix stored twice, a buffer of old exporters, padded vocabulary rows).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...checkpoint.formats.dtypes import PLAIN
from ...checkpoint.formats.manifest import Manifest, Tensor, TensorColumns, TensorsByName
from ...checkpoint.naming.detect_scheme import SchemeMatch, detect_scheme
from ...checkpoint.naming.scheme import Scheme, StoredTensor
from ...core.errors import FormatError, safe
from ...core.record_type import Record
from ..count.name_folding import fold_names
from .diagnose import Expectation, Shape, diagnose
from .listing import find_packings

if TYPE_CHECKING:
    from ...checkpoint.quantization.packed_tensors import Packing

BUFFERS = (
    "rotary_emb.inv_freq",
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    "rope.freqs",
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
)
"""How the names of buffers end that exporters have stored, and that every loader computes anew."""

FLOATS = ("F64", "F32", "F16", "BF16")


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
    expected: int
    matched: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Nothing that contradicts the configuration."""
        return all(x.severity == "info" for x in self.findings)


def verify_tensors(
    claim: Expectation, manifest: Manifest, problems: Sequence[FormatError] = (), quantization: Mapping[str, Any] | None = None
) -> Verdict:
    """Compare a checkpoint's header with what its configuration promises; `quantization` is what that says of packed values."""
    columns, codes = manifest.columns, find_packings(manifest, quantization)
    stands = {x.weight: x for x in codes.values() if x.role == "values"}
    found: dict[str, Shape] = dict(zip(columns.name, columns.shape, strict=True))
    twice = len(found) < len(columns.name)
    if codes:
        found = {name: shape for name, shape in found.items() if name not in codes}
        found |= {name: x.shape for name, x in stands.items() if x.shape is not None}
    best = detect_scheme(claim.tree, claim.schemes, {**dict.fromkeys(stands, ()), **found} if codes else found)
    findings = [Finding(code=x.code, severity="error", message=str(x), hint=x.hint) for x in problems]
    findings += _files(manifest, twice)
    overlap = len(best.names)
    if codes or len(found) != overlap or not best.fits:
        expected = dict(zip(best.names, best.tensors, strict=True))
        loose = {name: tuple(map(int, expected[name].shape)) for name in stands if name in expected}
        found |= {name: shape for name, shape in loose.items() if stands[name].fits(shape)}
        overlap = sum(map(found.__contains__, best.names))
        findings += _differences(claim, best.scheme, expected, found, manifest, codes)
    findings += _dtypes(claim, best, columns)
    findings += _padding(claim)
    return Verdict(scheme=best.scheme.name, expected=len(best.names), matched=overlap, findings=tuple(findings))


def _files(manifest: Manifest, twice: bool) -> Iterator[Finding]:
    """What the files say of each other: an index that is wrong, names that occur twice."""
    columns = manifest.columns
    if twice:
        double = [name for name, n in Counter(columns.name).items() if n > 1]
        message = f"{_some(double)} {'is' if len(double) == 1 else 'are'} in more than one file"
        yield Finding(code="duplicate", severity="error", message=message, tensors=tuple(double))
    if (index := manifest.index) is None:
        return
    if missing := index.missing:
        message = f"{len(missing)} of the {len(set(index.weight_map.values()))} shards that the index names are missing: {_some(missing)}"
        yield Finding(code="missing_shard", severity="error", message=message, hint="fetch them again", tensors=tuple(missing))
    files = [x.name.rpartition("/")[2] for x in manifest.files]
    where = index.weight_map
    absent = {*index.missing, *index.unreadable}
    wrong: list[str] = []
    place = list(map(files.__getitem__, columns.file))
    if (twice or len(place) != len(where) or list(map(where.get, columns.name)) != place) and dict(
        zip(columns.name, place, strict=True)
    ) != where:
        held = set(columns.name)
        wrong += [name for name, file in zip(columns.name, place, strict=True) if where.get(name) != file]
        wrong += [name for name, file in where.items() if name not in held and file not in absent]
    if wrong:
        message = f"the index and the shards disagree about where {_some(wrong)} {'is' if len(wrong) == 1 else 'are'}"
        yield Finding(
            code="index", severity="error", message=message, hint="the shards are right: write the index anew", tensors=tuple(wrong)
        )
    said = index.metadata.get("total_size") if isinstance(index.metadata, dict) else None
    size = sum(columns.end) - sum(columns.start)
    if type(said) is int and said != size and not absent:
        message = f"the index says that all tensors have {said:,} bytes; they have {size:,}"
        yield Finding(
            code="total_size", severity="warning", message=message, hint="loaders ignore it; progress bars and disk checks do not"
        )


def _differences(
    claim: Expectation,
    scheme: Scheme,
    expected: Mapping[str, StoredTensor],
    found: Mapping[str, Shape],
    manifest: Manifest,
    codes: Mapping[str, Packing],
) -> Iterator[Finding]:
    """What is missing, too much, or of another shape, by cause."""
    yield from _layers(claim, scheme, expected, found)
    yield from _absent(claim, scheme, expected, found, manifest)
    yield from _unexpected(claim, scheme, expected, TensorsByName(manifest), codes)
    wrong = {name: x for name, x in expected.items() if found.get(name, x.shape) != x.shape}
    for x in diagnose(claim, scheme, expected, found, wrong):
        yield Finding(code=x.code, severity="error", message=x.message, hint=x.hint, tensors=x.tensors)


def _layers(claim: Expectation, scheme: Scheme, expected: Mapping[str, StoredTensor], found: Mapping[str, Shape]) -> Iterator[Finding]:
    """Fewer or more layers than the configuration says, said once."""
    if found.keys() == expected.keys():
        return
    has, said = _depth(scheme, found), int(claim.tree.layers.n)
    spare = 2 if claim.tree.mtp is None else int(claim.tree.mtp.n)
    if has and not said <= has <= said + spare and (key := claim.config_keys.get("L")):
        message = f"the file has layers 0–{has - 1}; the config says L = {said} → {key} should be {has}"
        yield Finding(
            code="layers", severity="error", message=message, hint="or the rest of the checkpoint is missing" if has < said else ""
        )


def _depth(scheme: Scheme, found: Mapping[str, Shape]) -> int:
    """How many layers the names in the file go to, without a hole; 0 where they do not count up."""
    start, _, rest = (scheme.prefix + scheme.layer).partition("{l}")
    pattern = re.compile(re.escape(start) + r"(\d{1,9})" + re.escape(rest))
    numbers = {int(x[1]) for name in found if (x := pattern.match(name))}
    return len(numbers) if numbers and max(numbers) == len(numbers) - 1 else 0


def _absent(
    claim: Expectation, scheme: Scheme, expected: Mapping[str, StoredTensor], found: Mapping[str, Shape], manifest: Manifest
) -> Iterator[Finding]:
    """What the tree has and the file has not, unless a missing shard or a missing layer has been named for it."""
    if expected.keys() <= found.keys():
        return
    gone = {*manifest.index.missing, *manifest.index.unreadable} if manifest.index else set()
    where = manifest.index.weight_map if manifest.index else {}
    depth = _depth(scheme, found)
    start = scheme.prefix + scheme.layer.partition("{l}")[0]
    missing = [name for name in expected if name not in found and where.get(name) not in gone]
    if depth < int(claim.tree.layers.n) and depth:
        missing = [x for x in missing if not (x.startswith(start) and int(x[len(start) :].partition(".")[0]) >= depth)]
    if missing:
        size = sum(int(part.weight.size) for name in missing for part in expected[name].parts)
        message = f"{len(missing):,} tensors with {size:,} parameters are missing: {_some(missing)}"
        yield Finding(code="missing", severity="error", message=message, tensors=tuple(missing))


def _unexpected(
    claim: Expectation, scheme: Scheme, expected: Mapping[str, StoredTensor], tensors: TensorsByName, packed: Mapping[str, Packing]
) -> Iterator[Finding]:
    """What the file has and the tree has not, by what it is."""
    if tensors.places.keys() <= expected.keys():
        return
    tied = {scheme.stored_name("head.weight")} if claim.tree.head and claim.tree.head.weight.tied else set()
    further = {x.name: tuple(map(int, x.shape)) for x in scheme.mtp_tensors(claim.tree)}
    kinds: dict[tuple[str, str, str], list[str]] = {}
    for name in tensors:
        if name in expected:
            continue
        if _further(name, tensors[name], packed.get(name), further):
            kinds.setdefault(("further", "info", "of the layers that predict further tokens, beside the model"), []).append(name)
            continue
        if name in packed:
            if packed[name].role != "values" or packed[name].weight in expected:
                kinds.setdefault(("packed", "info", f"stored as {packed[name].kind}"), []).append(name)
                continue
        elif name in tied:
            kinds.setdefault(("tied_copy", "info", "a tied matrix, stored a second time"), []).append(name)
            continue
        elif name.endswith(BUFFERS):
            kinds.setdefault(("buffer", "info", "buffers that every loader computes anew"), []).append(name)
            continue
        elif scheme.prefix or scheme.layer.split(".")[0] not in name.split(".")[:1]:
            kinds.setdefault(("other_part", "info" if claim.is_submodel else "warning", "no part of the text model"), []).append(name)
            continue
        kinds.setdefault(("unexpected", "warning", "not in the model that the config describes"), []).append(name)
    for (code, severity, what), names in kinds.items():
        yield Finding(code=code, severity=severity, message=f"{len(names):,} tensors are {what}: {_some(names)}", tensors=tuple(names))


def _further(name: str, x: Tensor, packing: Packing | None, further: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a tensor is of such a layer, in the shape that it should have."""
    weight = packing.weight if packing else name
    if weight not in further or (packing and packing.role != "values"):
        return weight in further
    return packing.fits(further[weight]) if packing else x.shape == further[weight]


def _dtypes(claim: Expectation, best: SchemeMatch, columns: TensorColumns) -> Iterator[Finding]:
    """Matrices in another float type than the configuration says."""
    if claim.dtype not in FLOATS or set(columns.dtype) == {claim.dtype}:
        return
    dtypes = dict(zip(columns.name, columns.dtype, strict=True))
    wrong: dict[str, list[str]] = {}
    for name, stored in zip(best.names, best.tensors, strict=True):
        dtype = dtypes.get(name, "")
        if dtype != claim.dtype and dtype in FLOATS and stored.parts[0].weight.role in ("matmul", "lookup"):
            wrong.setdefault(dtype, []).append(name)
    for dtype, names in wrong.items():
        message = f"{len(names):,} matrices are {dtype}; the config says {claim.dtype}: {_some(names)}"
        times = PLAIN[dtype].bytes / PLAIN[claim.dtype].bytes
        hint = (
            f"they take {times:g} times the memory until they are cast"
            if times != 1
            else "the ranges of these types differ: cast with care"
        )
        yield Finding(code="dtype", severity="warning", message=message, hint=hint, tensors=tuple(names))


def _padding(claim: Expectation) -> Iterator[Finding]:
    """Rows of the vocabulary that no token has."""
    rows = int(claim.tree.vocab)
    if claim.tokenizer_error:
        yield Finding(code="tokenizer", severity="info", message=f"the tokenizer's tokens are not counted: {claim.tokenizer_error}")
    if claim.tokenizer_tokens is not None and claim.tokenizer_tokens < rows:
        padding = rows - claim.tokenizer_tokens
        message = f"{padding:,} padded vocabulary rows: the tokenizer has {claim.tokenizer_tokens:,} tokens, the matrix {rows:,} rows"
        yield Finding(
            code="padded_vocabulary", severity="info", message=message, hint="config and matrix agree; the rows are never looked up"
        )
    elif claim.tokenizer_tokens is not None and claim.tokenizer_tokens > rows:
        missing = claim.tokenizer_tokens - rows
        message = f"the tokenizer has {claim.tokenizer_tokens:,} tokens, the matrix {rows:,} rows: {missing:,} tokens have none"
        yield Finding(code="vocabulary", severity="error", message=message, hint="resize the embedding, or use the model's own tokenizer")


def _some(names: Sequence[str], most: int = 3) -> str:
    """Names folded over their numbers, the first few of them."""
    patterns = [safe(pattern, 100) for pattern, _ in fold_names(names[:2000])]
    return ", ".join(patterns[:most]) + (f" and {len(patterns) - most:,} more" if len(patterns) > most else "")
