"""The page's data about a checkpoint: the contents of its files, and whether they match the config."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...analysis.verify.check_checkpoint import VerifyReport, expectation_of, verify_checkpoint
from ...analysis.verify.listing import Listing, list_tensors
from ...analysis.verify.verify_tensors import Finding
from ...checkpoint.formats.manifest import Manifest
from ...checkpoint.naming.detect_scheme import detect_scheme
from ...checkpoint.naming.scheme import StoredPart, StoredTensor
from ...checkpoint.open import is_url, names_checkpoint, packings_of
from ...core.errors import FormatError, safe
from ...core.tree import Stack
from ...embedded import resolve_name
from ...loading import load
from ...model import Model

NAMES = frozenset("duplicate further layers missing missing_shard unexpected other_part packed tied_copy buffer".split())
WORDS = frozenset(("padded_vocabulary", "tokenizer", "vocabulary"))
SHOWN, FILES = 50, 200
"""The number of tensors listed per finding, and of files."""
MARKS = {"error": "✗", "warning": "!", "info": "·"}


class Checked(Model):
    """A model and the checkpoint that it was loaded from."""

    check: VerifyReport
    listed: Listing


class Piece(NamedTuple):
    """The stored bytes of a weight, and its layer."""

    layer: int | None
    part: StoredPart
    bytes: int


def opened(text: str) -> Model:
    """Load a model; the header of a local checkpoint is verified against it."""
    if is_url(text) or not names_checkpoint(resolve_name(text)):
        return load(text)
    try:
        found = verify_checkpoint(text)
    except FormatError as error:
        model = load(text)
        return model if error.code == "no_checkpoint" else model.replace(notes=(*model.notes, f"no verdict on its files: {error}"))
    model = found.model
    return Checked(**{name: getattr(model, name) for name in model.fields}, check=found, listed=list_tensors(found.manifest))


def verdicts(model: Model) -> dict[str, Any] | None:
    """Return the checkpoint data of the page; None without a checkpoint."""
    if not isinstance(model, Checked):
        return None
    listed, findings = model.listed, model.check.verdict.findings
    size = sum(x.size for x in listed.files)
    return {
        "ok": model.check.verdict.ok,
        "says": f"{listed.total.tensors:,} tensors, {len(listed.files):,} {'file' if len(listed.files) == 1 else 'files'}, {size:,} bytes",
        "of": _sums(listed),
        "bytes": str(listed.total.bytes),
        "verdicts": [_verdict(model, what, [x for x in findings if _about(x) == what]) for what in ABOUT],
    }


ABOUT = ("names", "shapes", "types", "files", "vocabulary")


def _said(model: Checked, what: str) -> str:
    """Return the text of a check without findings."""
    verdict, listed = model.check.verdict, model.listed
    return {
        "names": f"{verdict.matched:,} of {verdict.expected:,} tensors, by {verdict.scheme} names",
        "shapes": "as the configuration says",
        "types": ", ".join(map(safe, listed.dtypes)),
        "files": f"{listed.manifest.format}, {sum(x.size for x in listed.files):,} bytes",
        "vocabulary": "nothing against it",
    }[what]


def _about(x: Finding) -> str:
    """Return the subject of a finding."""
    if x.code in NAMES:
        return "names"
    if x.code in WORDS:
        return "vocabulary"
    return "files" if not x.tensors or x.code == "index" else "types" if x.code == "dtype" else "shapes"


def _verdict(model: Checked, what: str, found: Sequence[Finding]) -> dict[str, Any]:
    wrong = next((x for x in found if x.severity != "info"), None)
    tables = {"types": _types, "files": _files}
    return {
        "what": what,
        "ok": wrong is None,
        "says": _said(model, what) if wrong is None else f"not in order: {safe(wrong.message, 2000)}",
        "of": _names(model) if what == "names" else _sums(model.listed)[-1:] if what == "files" else [],
        "findings": [_finding(x) for x in found],
        "table": tables[what](model.listed) if what in tables else None,
    }


def _sums(found: Listing) -> list[list[str]]:
    """Return the numbers of tensors, files and bytes as formulas."""
    rows = _files(found)[1:-1]
    tensors, sizes = (" + ".join(x[i] for x in rows) for i in (1, 3))
    return [
        ["tensors of each file", tensors, f"{found.total.tensors:,} tensors"],
        ["files", f"{len(found.files):,}"],
        ["bytes of each file, header and all", sizes, f"{sum(x.size for x in found.files):,} bytes"],
    ]


def _names(model: Checked) -> list[list[str]]:
    """Return the number of expected tensor names, and of those found."""
    verdict = model.check.verdict
    scheme = next((x for x in model.family.schemes.values() if x.name == verdict.scheme), None)
    asked = ["names that the configuration asks for", f"{verdict.expected:,}"]
    if scheme is not None:
        tree = model.tree
        outside = sum(len(list(scheme.tensors_of_field(tree, field))) for field, x in tree.children if not isinstance(x, Stack))
        kinds = [
            (int(n), len(list(scheme.tensors_of_block(field, x))))
            for field, y in tree.children
            if isinstance(y, Stack)
            for x, n in y.distinct()
        ]
        if outside + sum(n * each for n, each in kinds) == verdict.expected:
            asked[:1] = [
                "names outside of layers + layers·names in each",
                " + ".join([f"{outside}", *(f"{n}·{each}" for n, each in kinds)]),
            ]
    return [
        asked,
        ["asked for − not found", f"{verdict.expected:,} − {verdict.expected - verdict.matched:,}", f"{verdict.matched:,} found"],
    ]


def _finding(x: Finding) -> dict[str, Any]:
    names = [safe(name) for name in x.tensors[:SHOWN]]
    more = [f"and {len(x.tensors) - SHOWN:,} more"] if len(x.tensors) > SHOWN else []
    return {
        "says": f"{MARKS[x.severity]} {x.severity}: {safe(x.message, 2000)}",
        "hint": safe(x.hint, 2000),
        "tensors": "\n".join(names + more),
    }


def _types(found: Listing) -> list[list[str]]:
    """Return a row for each stored dtype."""
    rows = [[safe(name), f"{x.tensors:,}", f"{x.elements:,}", f"{x.bytes:,}"] for name, x in found.dtypes.items()]
    return [["type", "tensors", "numbers", "bytes"], *rows]


def _files(found: Listing) -> list[list[str]]:
    """Return a row for each of the first files, and one for the rest."""
    rows = [[safe(x.name), f"{x.tensors:,}", f"{x.bytes:,}", f"{x.size:,}"] for x in found.files[:FILES]]
    if rest := found.files[FILES:]:
        rows.append([f"{len(rest):,} more", *(f"{sum(getattr(x, y) for x in rest):,}" for y in ("tensors", "bytes", "size"))])
    whole = ["all", *(f"{sum(getattr(x, y) for x in found.files):,}" for y in ("tensors", "bytes", "size"))]
    return [["file", "tensors", "their bytes", "its bytes, header and all"], *rows, whole]


def pieces(model: Checked) -> Iterator[Piece]:
    """Return the stored bytes of each weight including scales; fused weights get their share."""
    manifest, tree = model.check.manifest, model.tree
    held = _bytes(manifest)
    schemes = expectation_of(model, model.check.checkpoint).schemes
    scheme = detect_scheme(tree, schemes, dict.fromkeys(held, ())).scheme
    for field, child in tree.children:
        if not isinstance(child, Stack):
            for x in scheme.tensors_of_field(tree, field):
                yield from _shares(x, held.get(x.name), None)
            continue
        inside = {id(x): scheme.tensors_of_block(field, x) for x, _ in child.distinct()}
        for i, block in enumerate(child):
            for x in inside[id(block)]:
                yield from _shares(x, held.get(x.name.replace("{l}", str(i))), i)


def _bytes(manifest: Manifest) -> Mapping[str, int]:
    """Group tensors by the name that each weight has unpacked."""
    codes, columns = packings_of(manifest), manifest.columns
    found: dict[str, int] = {}
    for name, start, end in zip(columns.name, columns.start, columns.end, strict=True):
        weight = codes[name].weight if name in codes else name
        found[weight] = found.get(weight, 0) + end - start
    return found


def _shares(x: StoredTensor, size: int | None, layer: int | None) -> Iterator[Piece]:
    whole = sum(int(part.weight.size) for part in x.parts)
    if size is None or not whole:
        return
    given = before = 0
    for part in x.parts:
        before += int(part.weight.size)
        share = size * before // whole - given
        given += share
        yield Piece(layer, part, share)
