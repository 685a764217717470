"""`verify_tensors`: compare the tensors of a checkpoint with its config: names, shapes, dtypes,
bytes.

There is one finding for each cause. An `error` or a `warning` means that the checkpoint does not
match its config; an `info` changes nothing (a tied matrix stored twice, a buffer of old exporters,
padded vocabulary rows).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....checkpoint.formats.dtypes import PLAIN
from ....checkpoint.formats.manifest import Manifest, Tensor, TensorColumns, TensorsByName
from ....checkpoint.naming.detect_scheme import SchemeMatch, detect_scheme
from ....checkpoint.naming.scheme import Scheme, StoredTensor
from ....checkpoint.open import packings_of, single_shard
from ....checkpoint.tensor_reader import overlapping_tensors
from ....core.blocks import TOWER_FIELDS
from ....render.tables import Cell, Column, Table
from ....utils.errors import Call, FormatError, safe
from ....utils.file_diagnosis import Diagnosis, missing_hint
from ....utils.number_format import format_count, format_list
from ....utils.record_type import Record
from .diagnose import Expectation, Shape, diagnose
from .renamed_tensors import find_renaming

if TYPE_CHECKING:
    from ....checkpoint.naming.tied_copies import TiedCopy
    from ....checkpoint.quantization.packed_tensors import Packing

_BUFFERS = (
    "rotary_emb.inv_freq",
    "attn.bias",
    "attn.masked_bias",
    "attention.bias",
    "attention.masked_bias",
    # of MiniMax-01's linear attention
    *("slope_rate", "query_decay", "key_decay", "diagonal_decay"),
    "rope.freqs",
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
)
"""Name endings of buffers that old exporters stored, and that every loader recomputes."""

_OTHER_VERSION = (
    "one of them is of another version: compare their sizes and sums with those of the source"
)
_FLOATS = ("F64", "F32", "F16", "BF16")


def is_buffer(name: str) -> bool:
    """Whether a stored tensor is a buffer that every loader recomputes."""
    return name.endswith(_BUFFERS)


class Finding(Record):
    """One problem or remark: its message, severity, hint, and the tensors that it is about."""

    code: str
    severity: str
    message: str
    hint: str = ""
    tensors: tuple[str, ...] = ()


_FINDINGS = (
    Column("", key="severity"),
    Column("", key="message", wrap=True),
    Column("hint", below=True),
)
_MARKS = {"error": "✗", "warning": "!", "info": "·"}


def findings_table(findings: Iterable[Finding]) -> Table:
    """Return a row for each finding, with its hint."""
    return Table(columns=_FINDINGS, rows=tuple(map(_finding_cells, findings)))


def _finding_cells(x: Finding) -> tuple[Any, ...]:
    hint = Cell(x.hint, text=f"hint: {x.hint}" if x.hint else "")
    return Cell(x.severity, text=_MARKS[x.severity]), x.message, hint


class Verdict(Record):
    """The verdict on a checkpoint: its naming scheme, the number of matching tensors, and the
    findings.
    """

    scheme: str
    expected: int  # tensors
    matched: int  # whose bytes are in the files, too
    findings: tuple[Finding, ...]
    compares_dtypes: bool = False  # False: the config declares none
    roles: Mapping[str, str] = {}  # stored name → role of its weight

    @property
    def ok(self) -> bool:
        """Return whether no finding contradicts the config."""
        return all(x.severity == "info" for x in self.findings)


def verify_tensors(
    expectation: Expectation,
    manifest: Manifest,
    problems: Sequence[FormatError] = (),
    quantization: Mapping[str, Any] | None = None,
) -> Verdict:
    """Compare a checkpoint's tensors with those that its config implies; `quantization` is the
    config's section on packed weights.
    """
    columns, packings = manifest.columns, packings_of(manifest, quantization)
    value_tensors = {x.weight: x for x in packings.values() if x.role == "values"}
    shapes: dict[str, Shape] = dict(zip(columns.name, columns.shape, strict=True))
    has_duplicates = len(shapes) < len(columns.name)
    if packings:
        shapes = {name: shape for name, shape in shapes.items() if name not in packings}
        shapes |= {name: x.shape for name, x in value_tensors.items() if x.shape is not None}
    best = detect_scheme(
        expectation.tree,
        expectation.schemes,
        {**dict.fromkeys(value_tensors, ()), **shapes} if packings else shapes,
    )
    findings = [
        Finding(code=x.code, severity="error", message=str(x), hint=x.hint) for x in problems
    ]
    findings += file_findings(manifest, has_duplicates)
    overlap = len(best.names)
    if packings or len(shapes) != overlap or not best.fits:
        expected = dict(zip(best.names, best.tensors, strict=True))
        expected_shapes = {
            name: tuple(map(int, expected[name].shape))
            for name in value_tensors
            if name in expected
        }
        shapes |= {
            name: shape
            for name, shape in expected_shapes.items()
            if value_tensors[name].fits(shape)
        }
        overlap = sum(map(shapes.__contains__, best.names))
        findings += _differences(expectation, best.scheme, expected, shapes, manifest, packings)
    findings += _embedding_as_head(expectation, best)
    findings += _dtypes(expectation, best, columns)
    findings += _padding(expectation)
    roles = {name: x.parts[0].weight.role for name, x in zip(best.names, best.tensors, strict=True)}
    if problems:
        overlap -= len(_cut_off(columns, manifest).intersection(best.names, shapes))
    return Verdict(
        scheme=best.scheme.name,
        expected=len(best.names),
        matched=overlap,
        findings=tuple(findings),
        compares_dtypes=expectation.dtype in _FLOATS,
        roles=roles,
    )


def _cut_off(columns: TensorColumns, manifest: Manifest) -> set[str]:
    """Return the names of the tensors that end after their file does."""
    sizes = [x.size for x in manifest.files]
    return {
        name
        for name, file, end in zip(columns.name, columns.file, columns.end, strict=True)
        if end > sizes[file]
    }


def file_findings(manifest: Manifest, has_duplicates: bool) -> Iterator[Finding]:
    """Yield the findings about the files: missing shards, a wrong index, names that occur twice."""
    columns = manifest.columns
    if manifest.format == "torch" and (overlapping := overlapping_tensors(manifest)):
        yield Finding(
            code="overlap",
            severity="warning",
            message=f"the elements of {summarize_names(overlapping)} share stored elements (a "
            "stride of 0)",
            hint="save .clone() of them",
            tensors=tuple(overlapping),
        )
    if has_duplicates:
        duplicates = [name for name, n in Counter(columns.name).items() if n > 1]
        message = (
            f"{summarize_names(duplicates)} {'is' if len(duplicates) == 1 else 'are'} in "
            "more than one file"
        )
        yield Finding(
            code="duplicate", severity="error", message=message, tensors=tuple(duplicates)
        )
    if missing := manifest.missing_files:
        total = (
            len(set(manifest.index.weight_map.values()))
            if manifest.index
            else len(manifest.files) + len(missing)
        )
        shards, named = (
            format_count(total, "shard"),
            " named in the index" if manifest.index else "",
        )
        is_or_are = "is" if len(missing) == 1 else "are"
        message = (
            f"{len(missing)} of the {shards}{named} {is_or_are} missing: {summarize_names(missing)}"
        )
        hint = missing_hint(manifest.folder, missing)
        yield Finding(
            code="missing_shard",
            severity="error",
            message=message,
            hint=hint,
            tensors=tuple(missing),
        )
    if name := manifest.missing_index:
        message = f"{safe(name, 80)} is missing, by which loaders find the shards"
        yield Finding(
            code="missing_index",
            severity="warning",
            message=message,
            hint=missing_hint(manifest.folder, [name]),
        )
    for note in manifest.notes:
        yield Finding(code="files", severity="info", message=note)
    if shard := single_shard(manifest):
        message = f"this file is shard {shard.number:,} of {shard.total:,}, opened alone"
        yield Finding(
            code="single_shard",
            severity="error",
            message=message,
            hint=f"verify all: {Call('verify', manifest.folder or '.')}",
        )
    if (index := manifest.index) is None:
        return
    files = [x.name.rpartition("/")[2] for x in manifest.files]
    where = index.weight_map
    absent = {*index.missing, *index.unreadable}
    wrong: list[str] = []
    files_of_tensors = list(map(files.__getitem__, columns.file))
    if (
        has_duplicates
        or len(files_of_tensors) != len(where)
        or list(map(where.get, columns.name)) != files_of_tensors
    ) and dict(zip(columns.name, files_of_tensors, strict=True)) != where:
        stored = set(columns.name)
        wrong += [
            name
            for name, file in zip(columns.name, files_of_tensors, strict=True)
            if where.get(name) != file
        ]
        wrong += [name for name, file in where.items() if name not in stored and file not in absent]
    if wrong:
        message = (
            f"the index and the shards disagree about where {summarize_names(wrong)} "
            f"{'is' if len(wrong) == 1 else 'are'}"
        )
        yield Finding(
            code="index",
            severity="error",
            message=message,
            hint=_OTHER_VERSION,
            tensors=tuple(wrong),
        )
    declared = index.metadata.get("total_size") if isinstance(index.metadata, dict) else None
    size = sum(columns.end) - sum(columns.start)
    if type(declared) is int and declared != size and not absent:
        message = f"the index gives a total_size of {declared:,} bytes; the tensors have {size:,}"
        yield Finding(
            code="total_size",
            severity="info",
            message=message,
            hint="loaders ignore it; progress bars and disk checks do not",
        )


def _differences(
    expectation: Expectation,
    scheme: Scheme,
    expected: Mapping[str, StoredTensor],
    shapes: Mapping[str, Shape],
    manifest: Manifest,
    packings: Mapping[str, Packing],
) -> Iterator[Finding]:
    """Yield the findings about missing and unexpected tensors, and about wrong shapes."""
    alone = single_shard(manifest) is not None
    if not manifest.absent_files:
        yield from _renamed(expected, shapes)
    if not alone and not manifest.absent_files:
        yield from _layers(expectation, scheme, expected, shapes)
    if not alone and not manifest.missing:
        yield from _absent(expectation, scheme, expected, shapes, manifest)
    yield from _unexpected(expectation, scheme, expected, TensorsByName(manifest), packings)
    wrong = {name: x for name, x in expected.items() if shapes.get(name, x.shape) != x.shape}
    for x in diagnose(expectation, scheme, expected, shapes, wrong):
        yield Finding(
            code=x.code, severity="error", message=x.message, hint=x.hint, tensors=x.tensors
        )


def _renamed(
    expected: Mapping[str, StoredTensor], shapes: Mapping[str, Shape]
) -> Iterator[Finding]:
    """Yield a finding if tensors are missing because others are there instead."""
    missing = {x: tuple(map(int, y.shape)) for x, y in expected.items() if x not in shapes}
    others = {x: y for x, y in shapes.items() if x not in expected}
    if found := find_renaming(missing, others):
        yield Finding(
            code="renamed",
            severity="error",
            message="; ".join(found.causes),
            hint="loaders do not find these names: write the tensors under those that are missing",
            tensors=tuple(x for x in missing if x in found.explained),
        )


def _layers(
    expectation: Expectation,
    scheme: Scheme,
    expected: Mapping[str, StoredTensor],
    shapes: Mapping[str, Shape],
) -> Iterator[Finding]:
    """Yield a finding if the file has fewer or more layers than the config."""
    if shapes.keys() == expected.keys():
        return
    num_layers, declared = _count_layers(scheme, shapes), expectation.tree.own_layers
    mtp_layers = 2 if expectation.tree.mtp is None else int(expectation.tree.mtp.n)
    if (
        num_layers
        and not declared <= num_layers <= declared + mtp_layers
        and (key := expectation.config_keys.get("L"))
    ):
        message = (
            f"the file has layers 0–{num_layers - 1}; the config has L = {declared} → "
            f"{key} should be {num_layers}"
        )
        yield Finding(
            code="layers",
            severity="error",
            message=message,
            hint="or the rest of the checkpoint is missing" if num_layers < declared else "",
        )


def _count_layers(scheme: Scheme, shapes: Mapping[str, Shape]) -> int:
    """Return the number of layers in the file; 0 if some are missing in between."""
    outside = {scheme.prefix + x for x in scheme.outside.values()} if scheme.first_layer else ()
    names = (name for name in shapes if not name.startswith(tuple(outside)))
    numbers = {layer for name in names if (layer := scheme.split_layer(name)[0]) >= 0}
    return len(numbers) if numbers and max(numbers) == len(numbers) - 1 else 0


def _absent(
    expectation: Expectation,
    scheme: Scheme,
    expected: Mapping[str, StoredTensor],
    shapes: Mapping[str, Shape],
    manifest: Manifest,
) -> Iterator[Finding]:
    """Yield a finding for missing tensors that no missing shard and no missing layer explains."""
    if expected.keys() <= shapes.keys():
        return
    unavailable = {*manifest.index.missing, *manifest.index.unreadable} if manifest.index else set()
    weight_map = manifest.index.weight_map if manifest.index else {}
    depth = _count_layers(scheme, shapes)
    missing = [
        name for name in expected if name not in shapes and weight_map.get(name) not in unavailable
    ]
    if depth < expectation.tree.own_layers and depth:
        missing = [x for x in missing if scheme.split_layer(x)[0] < depth]
    if missing:
        size = sum(int(part.weight.size) for name in missing for part in expected[name].parts)
        what = f"{format_count(len(missing), 'tensor')} with {format_count(size, 'parameter')}"
        message = (
            f"{what} {'is' if len(missing) == 1 else 'are'} missing: {summarize_names(missing)}"
        )
        yield Finding(code="missing", severity="error", message=message, tensors=tuple(missing))


def _unexpected(
    expectation: Expectation,
    scheme: Scheme,
    expected: Mapping[str, StoredTensor],
    tensors: TensorsByName,
    packings: Mapping[str, Packing],
) -> Iterator[Finding]:
    """Yield the findings about tensors that the model does not have, by kind."""
    if tensors.positions.keys() <= expected.keys():
        return
    tied = {x.name: x for x in expectation.tied_copies}
    weights = {*tensors.positions, *(x.weight for x in packings.values())}
    # experts of MTP layers are often not fused
    forms = [x for x in (scheme, *expectation.schemes) if x.names_mtp]
    layers = (
        layer for form in forms for layer in form.stored_mtp_layers(expectation.tree, weights)
    )
    mtp = {x.name: tuple(map(int, x.shape)) for layer in layers for x in layer}
    kinds: dict[tuple[str, str, str], list[str]] = {}
    for name in tensors:
        if name in expected:
            continue
        if _is_mtp(name, tensors[name], packings.get(name), mtp):
            kinds.setdefault(
                ("further", "info", "part of the multi-token prediction layers"), []
            ).append(name)
            continue
        if expectation.has_other_mtp and name.startswith("mtp."):
            kinds.setdefault(
                (
                    "further",
                    "info",
                    "part of the multi-token prediction layers, whose shapes are not checked",
                ),
                [],
            ).append(name)
            continue
        if name in tied:
            yield tied_copy_finding(tied[name])
            continue
        if name in packings:
            if packings[name].role != "values" or packings[name].weight in expected:
                kinds.setdefault(("packed", "info", f"stored as {packings[name].kind}"), []).append(
                    name
                )
                continue
        elif is_buffer(name):
            kinds.setdefault(("buffer", "info", "recomputed by every loader (buffers)"), []).append(
                name
            )
            continue
        elif not _is_in_model(name, scheme, expectation):
            kinds.setdefault(
                (
                    "other_part",
                    "info" if expectation.is_submodel else "warning",
                    "not part of the text model",
                ),
                [],
            ).append(name)
            continue
        kinds.setdefault(
            ("unexpected", "warning", "not in the model that the config describes"), []
        ).append(name)
    for (code, severity, what), names in kinds.items():
        sizes = ""
        if code == "other_part" and expectation.is_submodel:
            packed = (packings.get(x) for x in names)
            size = sum(
                tensors[x].elements if y is None else y.elements
                for x, y in zip(names, packed, strict=True)
            )
            sizes = f" with {format_count(size, 'parameter')}"
        is_or_are = "is" if len(names) == 1 else "are"
        yield Finding(
            code=code,
            severity=severity,
            message=f"{format_count(len(names), 'tensor')}{sizes} {is_or_are} {what}: "
            f"{summarize_names(names)}",
            tensors=tuple(names),
        )


def tied_copy_finding(x: TiedCopy) -> Finding:
    """Return the finding about a matrix that is stored although the config ties it to another."""
    name, original = safe(x.name, 100), safe(x.original, 100)
    code, severity, hint = "tied_copy", "info", ""
    if x.differs:
        code, severity = "untied_copy", "error"
        message = (
            f"{name} differs from {original}, to which the config ties "
            f"it{x.reason and f': {x.reason}'}"
        )
        hint = (
            "transformers uses both: set tie_word_embeddings to false in the config, or "
            "delete the one that is not the model's"
        )
    elif x.differs is None:
        code, severity = "not_compared", "info" if x.is_remote else "warning"
        message = (
            f"{name} is stored again though tied to {original}, and was not compared with "
            f"it: {x.reason}"
        )
    else:
        message = f"{name} is stored again though tied to {original}, with the same values"
    return Finding(code=code, severity=severity, message=message, hint=hint, tensors=(x.name,))


def _is_in_model(name: str, scheme: Scheme, expectation: Expectation) -> bool:
    """Whether a tensor is in one of the modules of the model, by its name; a text model shares
    its file with a vision tower and others.
    """
    if scheme.prefix:
        return False
    if not expectation.is_submodel:
        return name.split(".")[0] == scheme.layer.split(".")[0]
    towers = tuple(
        x.partition("{")[0]
        for path, x in scheme.outside.items()
        if path.partition(".")[0] in TOWER_FIELDS
    )
    if name.startswith(towers):
        return False
    head = scheme.stored_name("head.weight") if expectation.tree.head else ""
    if prefix := _text_prefix(scheme):
        return name.startswith(prefix) or name == head
    modules = (
        scheme.layer,
        head,
        *(x for path, x in scheme.outside.items() if path in ("embed", "norm")),
    )
    return name.split(".")[0] in {x.split(".")[0] for x in modules}


def _text_prefix(scheme: Scheme) -> str:
    """Return the beginning that the names of a model's layers, embedding and last norm share:
    `model.language_model.`.
    """
    shared = scheme.layer.partition("{l}")[0].split(".")
    for path in ("embed", "norm"):
        if stored := scheme.outside.get(path):
            parts = stored.split(".")
            shared = shared[
                : next((i for i, x in enumerate(shared) if parts[i : i + 1] != [x]), len(shared))
            ]
    return "".join(f"{x}." for x in shared)


def _is_mtp(
    name: str, x: Tensor, packing: Packing | None, mtp: Mapping[str, tuple[int, ...]]
) -> bool:
    """Return whether a tensor belongs to a multi-token prediction layer and has the right shape."""
    weight = packing.weight if packing else name
    if weight not in mtp or (packing and packing.role != "values"):
        return weight in mtp
    return packing.fits(mtp[weight]) if packing else x.shape == mtp[weight]


def _embedding_as_head(expectation: Expectation, best: SchemeMatch) -> Iterator[Finding]:
    """Yield a finding about a tied matrix that is stored under the name of the head alone."""
    head = expectation.tree.head
    if (
        head is None
        or not head.weight.tied
        or best.scheme.stored_name("head.weight") not in best.names
    ):
        return
    name = best.scheme.stored_name("head.weight")
    message = f"{safe(name, 100)} is stored instead of the embedding that is tied to it"
    yield Finding(
        code="tied_copy",
        severity="info",
        message=message,
        hint="transformers ties both ways; other loaders may not",
        tensors=(name,),
    )


def _dtypes(
    expectation: Expectation, best: SchemeMatch, columns: TensorColumns
) -> Iterator[Finding]:
    """Yield a finding for each dtype of matrices that is not the config's."""
    if expectation.dtype not in _FLOATS or set(columns.dtype) == {expectation.dtype}:
        return
    dtypes = dict(zip(columns.name, columns.dtype, strict=True))
    wrong: dict[str, list[str]] = {}
    for name, stored in zip(best.names, best.tensors, strict=True):
        dtype = dtypes.get(name, "")
        if (
            dtype not in (expectation.dtype, stored.parts[0].weight.dtype)
            and dtype in _FLOATS
            and stored.parts[0].weight.role in ("matmul", "lookup")
        ):
            wrong.setdefault(dtype, []).append(name)
    for dtype, names in wrong.items():
        matrices = "1 matrix is" if len(names) == 1 else f"{len(names):,} matrices are"
        message = (
            f"{matrices} {dtype}; the config says {expectation.dtype}: {summarize_names(names)}"
        )
        times = PLAIN[dtype].bytes / PLAIN[expectation.dtype].bytes
        hint = (
            f"they take {times:g} times the memory until they are cast"
            if times != 1
            else "the ranges of these types differ: cast with care"
        )
        yield Finding(
            code="dtype", severity="warning", message=message, hint=hint, tensors=tuple(names)
        )


def _padding(expectation: Expectation) -> Iterator[Finding]:
    """Yield the findings about the size of the vocabulary."""
    rows, tokens = int(expectation.tree.vocab), expectation.tokenizer_tokens
    if isinstance(error := expectation.tokenizer_error, Diagnosis):
        yield Finding(code=error.code, severity="warning", message=error.message, hint=error.hint)
    elif error:
        yield Finding(
            code="tokenizer", severity="info", message=f"the tokenizer could not be read: {error}"
        )
    if tokens is not None and tokens < rows:
        padding = format_count(rows - tokens, "padded vocabulary row")
        message = (
            f"{padding}: the tokenizer has {format_count(tokens, 'token')}, the matrix "
            f"{format_count(rows, 'row')}"
        )
        hint = "config and matrix agree; these rows are never looked up"
        yield Finding(code="padded_vocabulary", severity="info", message=message, hint=hint)
    elif tokens is not None and tokens > rows:
        missing = f"{format_count(tokens - rows, 'token')} without a row"
        message = (
            f"the tokenizer has {format_count(tokens, 'token')}, the matrix "
            f"{format_count(rows, 'row')}: {missing}"
        )
        yield Finding(
            code="vocabulary",
            severity="error",
            message=message,
            hint="resize the embedding, or use the model's own tokenizer",
        )


def summarize_names(names: Sequence[str], most: int = 3) -> str:
    """Return the first few names, folded over their numbers."""
    from ...storage.name_folding import fold_names

    patterns = [safe(pattern, 100) for pattern, _ in fold_names(names[:2000])]
    return format_list(patterns, most)
