"""`check`: a checkpoint and the configuration that it should answer to, brought together for `verify`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ...checkpoint.formats.dtypes import find_dtype
from ...checkpoint.formats.manifest import Manifest
from ...checkpoint.naming.scheme import Scheme, canonical, fused
from ...checkpoint.open import quantization, read_checkpoint
from ...core.config import Config
from ...core.errors import ConfigError, FormatError, LlamathError, RemoteError
from ...core.record_type import Record
from ...embedded import named
from ...families.classes import headless_scheme
from ...loading import load
from ...model import Model
from .diagnose import Claim
from .verify_tensors import Verdict, verify


class Check(Record):
    """A checkpoint, what it was held against, and the verdict."""

    path: str
    model: Model
    manifest: Manifest
    verdict: Verdict
    note: str = ""


def check(path: str, model: str | None = None, changes: Mapping[str, Any] | None = None) -> Check:
    """Verify the checkpoint at this path against a model, or against the configuration beside it."""
    problems: list[FormatError] = []
    found = read_checkpoint(path, problems=problems)
    folder = named(path)
    claimed = load(model or (found.place if folder == path else path), changes=changes, held=False)
    try:
        declared = quantization(found.place, found.manifest)
    except (ConfigError, RemoteError):
        declared = None  # only of a configuration that is not asked for: the model has another name
    verdict = verify(claim(claimed, found.manifest, folder), found.manifest, problems, declared)
    return Check(path=path, model=claimed, manifest=found.manifest, verdict=verdict, note=found.note)


def claim(model: Model, manifest: Manifest, path: str) -> Claim:
    """What a model promises of its files."""
    family, data = model.family, dict(model.config.data)
    schemes: list[Scheme | None] = [
        family.hf,
        family.gguf,
        family.meta,
        headless_scheme(family.hf),
        fused(family.hf),
        canonical(model.tree),
    ]
    if manifest.format == "gguf":
        schemes.insert(0, family.gguf)
    tokens, uncounted = _tokens(path)
    dtype = find_dtype(str(data.get("torch_dtype") or data.get("dtype") or ""))
    return Claim(
        tree=model.tree,
        schemes=[x for x in schemes if x is not None],
        letters=model.config.key_by_symbol,
        rebuild=lambda changes: family(Config({**data, **changes})),
        dtype="" if manifest.format == "gguf" or dtype is None else dtype.name,
        tokens=tokens,
        uncounted=uncounted,
        part=bool(model.wrapper),
    )


def _tokens(path: str) -> tuple[int | None, str]:
    """The number of tokens of a tokenizer beside the checkpoint, or why it is not known."""
    from ...checkpoint.formats.tokenizer_model import tokens, vocabulary

    folder = path if os.path.isdir(path) else os.path.dirname(path)
    for name, read in (("tokenizer.json", tokens), ("tokenizer.model", vocabulary)):
        if os.path.lexists(place := os.path.join(folder, name)):
            try:
                return read(place), ""
            except LlamathError as error:
                return None, str(error)
    return None, ""
