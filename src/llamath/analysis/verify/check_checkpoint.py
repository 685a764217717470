"""`check`: a checkpoint and the configuration that it should answer to, brought together for `verify`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...checkpoint.formats.dtypes import find_dtype
from ...checkpoint.formats.manifest import Manifest
from ...checkpoint.naming.scheme import Scheme, canonical_scheme, fused_scheme
from ...checkpoint.open import OpenedCheckpoint, open_checkpoint
from ...core.config import Config
from ...core.errors import ConfigError, LlamathError, RemoteError
from ...core.record_type import Record
from ...embedded import MODEL_NAME
from ...families.classes import headless_scheme
from ...loading import Source, load
from ...model import Model
from .diagnose import Expectation
from .verify_tensors import Verdict, verify_tensors


class VerifyReport(Record):
    """A checkpoint, what it was held against, and the verdict."""

    path: str
    model: Model
    checkpoint: OpenedCheckpoint
    verdict: Verdict

    @property
    def manifest(self) -> Manifest:
        """The tensors of the checkpoint."""
        return self.checkpoint.manifest

    @property
    def note(self) -> str:
        """A note with the commit of a Hub repository."""
        return self.checkpoint.commit_note


def verify_checkpoint(path: str, model: Source | None = None, changes: Mapping[str, Any] | None = None) -> VerifyReport:
    """Verify the checkpoint at this path against a model, or against the configuration beside it."""
    opened = open_checkpoint(path, allow_partial=True)
    claimed = load(model or (path if path == MODEL_NAME else opened.location), changes=changes, check_tensors=False)
    try:
        quantization = opened.packing_config
    except (ConfigError, RemoteError):
        quantization = None  # `model` names the configuration to verify against, so this one may be unreadable
    verdict = verify_tensors(expectation_of(claimed, opened), opened.manifest, opened.problems, quantization)
    return VerifyReport(path=path, model=claimed, checkpoint=opened, verdict=verdict)


def expectation_of(model: Model, checkpoint: OpenedCheckpoint) -> Expectation:
    """What a model promises of its files."""
    family, data = model.family, dict(model.config.data)
    schemes: list[Scheme | None] = [
        family.hf,
        family.gguf,
        family.meta,
        headless_scheme(family.hf),
        fused_scheme(family.hf),
        canonical_scheme(model.tree),
    ]
    is_gguf = checkpoint.manifest.format == "gguf"
    if is_gguf:
        schemes.insert(0, family.gguf)
    tokens, uncounted = _tokens(checkpoint)
    dtype = find_dtype(str(data.get("torch_dtype") or data.get("dtype") or ""))
    return Expectation(
        tree=model.tree,
        schemes=[x for x in schemes if x is not None],
        config_keys=model.config.key_by_symbol,
        rebuild=lambda changes: family(Config({**data, **changes})),
        dtype="" if is_gguf or dtype is None else dtype.name,
        tokenizer_tokens=tokens,
        tokenizer_error=uncounted,
        is_submodel=bool(model.wrapper),
    )


def _tokens(checkpoint: OpenedCheckpoint) -> tuple[int | None, str]:
    """The number of tokens of a tokenizer beside the checkpoint, or why it is not known."""
    from ...checkpoint.formats.tokenizer_model import count_json_tokens, count_model_tokens

    if not checkpoint.tokenizer_files:
        return None, ""
    path = checkpoint.tokenizer_files[0]
    try:
        return (count_json_tokens if path.endswith(".json") else count_model_tokens)(path), ""
    except LlamathError as error:
        return None, str(error)
