"""`verify_checkpoint`: verify a checkpoint against its config, or against another model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ....checkpoint.formats.dtypes import PLAIN_FLOATS
from ....checkpoint.formats.manifest import Manifest
from ....checkpoint.formats.safetensors import MAX_TENSORS
from ....checkpoint.naming.scheme import Scheme, UnnamedWeight, canonical_scheme, fused_scheme
from ....checkpoint.naming.training_names import fold_numbers, model_tensors, training_state_totals
from ....checkpoint.open import OpenedCheckpoint, open_checkpoint, single_shard
from ....checkpoint.quantization import QUANTIZATION_KEYS
from ....checkpoint.quantization.weight_format import stated_dtype
from ....checkpoint.tensor_parallel_shard import parse_shard
from ....core.config import Config
from ....core.multimodal import with_text
from ....core.tree import fold
from ....embedded import MODEL_NAME
from ....families.deepseek_shared import MTP_KEYS
from ....families.model_class import headless_scheme
from ....loading import Source, load_family
from ....model import FamilyModel
from ....render.report import Report
from ....render.tables import Part, Text
from ....utils.errors import (
    Call,
    ConfigError,
    LlamathError,
    Name,
    RemoteError,
    UnknownQuantization,
    safe,
)
from ....utils.file_diagnosis import HEAD_BYTES, Diagnosis, diagnose
from ....utils.number_format import format_count
from .diagnose import Expectation
from .verify_tensors import Finding, Verdict, findings_table, verify_tensors

if TYPE_CHECKING:
    from ....checkpoint.naming.tied_copies import TiedCopy
    from .full_check import FullCheck


class VerifyReport(Report):
    """The result of verifying a checkpoint against a model."""

    path: str
    model: FamilyModel
    checkpoint: OpenedCheckpoint
    verdict: Verdict
    # False: verified against another model than the config next to the files
    has_own_config: bool = True
    full: FullCheck | None = None  # None: only headers were read

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "ok",
            "scheme=verdict.scheme",
            "path",
            "model=model.name",
            "format=manifest.format",
            "expected=verdict.expected",
        ),
        *("matched=verdict.matched", "findings", "full"),
    )

    @property
    def ok(self) -> bool:
        """Return whether the checkpoint matches its config, and, if its files were read in full,
        whether no finding is an error.
        """
        return self.verdict.ok and (self.full is None or self.full.ok)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """One finding for each cause; those about values and sums come last."""
        return self.verdict.findings + (self.full.findings if self.full else ())

    @property
    def summary(self) -> str:
        """The verdict in one line."""
        bad = sum(x.severity != "info" for x in self.verdict.findings)
        problems = "" if self.verdict.ok else f", {format_count(bad, 'problem')}"
        return f"{safe(self.path)}: {self.answer(self.model.name)}{problems}{self.about_values}"

    def answer(self, expected: str) -> str:
        """Say whether the headers match what was `expected`, or how much of it is there."""
        wrong = {x.code for x in self.verdict.findings if x.severity != "info"}
        if not wrong - {"index"}:
            dtypes = self.verdict.compares_dtypes
            compared = "names, shapes and dtypes" if dtypes else "names and shapes"
            index = "; its index does not match its files" if wrong else ""
            return f"{compared} match {expected}{index}"
        if self.is_incomplete:
            return (
                f"incomplete, {self.verdict.matched:,} of "
                f"{format_count(self.verdict.expected, 'tensor')} are there"
            )
        return f"does not match {expected}"

    @property
    def is_incomplete(self) -> bool:
        """Whether files are missing, truncated or unreadable."""
        return bool(
            self.checkpoint.problems or self.manifest.absent_files or single_shard(self.manifest)
        )

    @property
    def about_values(self) -> str:
        """What was found out about values and sums, or that values were not read; it follows the
        verdict.
        """
        unread = (
            "; values were not read (--full)"
            if self.verdict.ok and not (self.full and self.full.values_checked)
            else ""
        )
        return f"; {self.full.summary}{unread}" if self.full else unread

    @property
    def headline(self) -> str:
        """The verdict."""
        expected = "its config" if self.has_own_config else self.model.name
        return f"{self.path}: {self.answer(expected)}{self.about_values}"

    @property
    def setting(self) -> str:
        """The tensors, and the model that they were verified against."""
        manifest = self.manifest
        tensors = format_count(len(manifest.tensors), "tensor")
        files = format_count(len(manifest.files), f"{manifest.format} file")
        size = sum(x.size for x in manifest.files)
        return (
            f"{tensors} in {files}, {size:,} bytes, {self.verdict.scheme} names; verified against "
            f"{self.model.name} ({self.model.source})"
        )

    @property
    def entries(self) -> Sequence[Finding]:
        """The findings."""
        return self.findings

    def __bool__(self) -> bool:
        return self.ok

    def tables(self) -> Iterable[Part]:
        """How much is there, what was read, and the findings."""
        verdict = self.verdict
        total = (
            f"{format_count(verdict.expected, 'tensor')} of "
            f"{format_count(self.model.parameters.total, 'parameter')}"
        )
        verb = "is" if verdict.matched == 1 else "are"
        yield Text(
            f"the config describes {total}"
            if self.is_incomplete
            else f"{verdict.matched:,} of the {total} {verb} there"
        )
        if self.full is not None:
            yield from self.full.parts()
        yield findings_table(self.findings)

    @property
    def manifest(self) -> Manifest:
        """The tensors of the checkpoint."""
        return self.checkpoint.manifest

    @property
    def note(self) -> str:
        """A note with the commit of a Hub repository."""
        return self.checkpoint.commit_note


def verify_checkpoint(
    path: str, model: Source | None = None, changes: Mapping[str, Any] | None = None
) -> VerifyReport:
    """Verify the checkpoint at this path or address against a model, or against the config next
    to it.
    """
    return verify_opened(open_checkpoint(path, allow_partial=True), path, model, changes)


def verify_opened(
    opened: OpenedCheckpoint,
    path: str,
    model: Source | None = None,
    changes: Mapping[str, Any] | None = None,
    *,
    own_config: bool = False,
) -> VerifyReport:
    """Verify a checkpoint whose headers have been read; with `own_config`, the model is that of the
    config next to the files.

    One rank's part of a checkpoint is verified against the shapes on that rank.
    """
    target = load_family(
        model or (path if path == MODEL_NAME else opened.location),
        changes=changes,
        check_tensors=False,
    )
    try:
        quantization = opened.packing_config
    except (ConfigError, RemoteError):
        # `model` is the config to verify against, so this one may be unreadable
        quantization = None
    checkpoint, added = without_training_names(opened, target)
    expectation, shard = (
        expectation_of(target, checkpoint),
        parse_shard(target.config.data, target.config.source),
    )
    if shard is not None:
        from ...storage.shard_tree import check_shardable, shard_tree

        check_shardable(target.tree, shard.world_size)
        expectation = expectation._replace(tree=shard_tree(target.tree, shard))
    verdict = verify_tensors(expectation, checkpoint.manifest, opened.problems, quantization)
    verdict = verdict.replace(findings=(*_wrong_dtype(target), *added, *verdict.findings))
    if shard is not None:
        join = Call("convert", Name("source"), Name("target"), edit="join_shards=yes")
        remark = Finding(
            code="tensor_parallel_shard",
            severity="info",
            message=str(shard),
            hint=f"{join} joins the ranks",
        )
        verdict = verdict.replace(findings=(*verdict.findings, remark))
    own_config = own_config or not model
    if verdict.scheme == "hf" and own_config and _may_be_quantized(target, opened.manifest):
        from .verify_recipe import recipe_findings

        verdict = verdict.replace(
            findings=(*verdict.findings, *recipe_findings(target, checkpoint))
        )
    return VerifyReport(
        path=path, model=target, checkpoint=checkpoint, verdict=verdict, has_own_config=own_config
    )


def _wrong_dtype(model: FamilyModel) -> Iterator[Finding]:
    """Yield the finding about a dtype in the config that is unknown."""
    try:
        stated_dtype(model.config.data)
    except UnknownQuantization as error:
        yield Finding(
            code="config_dtype",
            severity="error",
            message=str(error),
            hint="correct the config",
        )


def without_training_names(
    opened: OpenedCheckpoint, model: FamilyModel
) -> tuple[OpenedCheckpoint, tuple[Finding, ...]]:
    """Return a checkpoint without what training added, prefixes of wrappers and state of the
    optimizer, and the findings about it.
    """
    expected = [
        frozenset(map(fold_numbers, names))
        for x in _schemes(model)
        if (names := _patterns(model, x))
    ]
    tensors = model_tensors(opened.manifest, expected)
    findings = []
    if tensors.description:
        rename = Call("convert", opened.name, Name("target"), names="hf")
        findings.append(
            Finding(
                code="prefix",
                severity="warning",
                message=tensors.description,
                hint=f"loaders do not find these; {rename} writes the model's own",
            )
        )
    if tensors.state:
        state = training_state_totals(opened.manifest)
        findings.append(
            Finding(
                code="training_state",
                severity="info",
                message=state.description,
                tensors=tensors.state,
            )
        )
    return opened if tensors.manifest is opened.manifest else opened.replace(
        manifest=tensors.manifest
    ), tuple(findings)


def _schemes(model: FamilyModel) -> list[Scheme]:
    """Return the naming schemes that a checkpoint of a model may follow."""
    family = model.family
    schemes = (
        *(family.hf, family.gguf, family.meta, *family.hf_forms),
        *(
            headless_scheme(family.hf),
            fused_scheme(family.hf),
            *map(fused_scheme, family.hf_forms),
            canonical_scheme(model.tree),
        ),
    )
    named, head = [x for x in schemes if x is not None], model.tree.head
    if head is None or head.weight.tied != "embed.weight":
        return named
    return [*named, *(_embedding_as_head(x) for x in named if x.name.startswith("hf"))]


def _embedding_as_head(scheme: Scheme) -> Scheme:
    """Return the names of files that hold a tied matrix under the name of the head alone, as
    safetensors' `save_model` writes them.
    """
    stored = scheme.stored_name("head.weight")
    return scheme.replace(
        name=f"{scheme.name}-head",
        outside={**scheme.outside, "embed.weight": f"/{stored}", "embed": ""},
    )


def _patterns(model: FamilyModel, scheme: Scheme) -> list[str]:
    """Return the patterns of the names of a model's tensors; none if the scheme lacks names for
    some.
    """
    try:
        return [scheme.stored_name(x.pattern) for x in fold(model.tree)]
    except UnnamedWeight:
        return []


def _may_be_quantized(model: FamilyModel, manifest: Manifest) -> bool:
    """Whether the config declares a quantization, or a tensor has a dtype that plain weights do
    not have.
    """
    return any(
        key in model.config.data for key in QUANTIZATION_KEYS
    ) or not PLAIN_FLOATS.issuperset(manifest.columns.dtype)


def expectation_of(model: FamilyModel, checkpoint: OpenedCheckpoint) -> Expectation:
    """Return the tensors and properties that a model implies for its checkpoint.

    A model with more tensors than the files can have is refused.
    """
    refuse_large_models(model, checkpoint.manifest)
    is_gguf = checkpoint.manifest.format == "gguf"
    if is_gguf:
        model = model.text  # towers are in a file of their own
    family, data = model.family, dict(model.config.data)
    schemes = _schemes(model)
    if is_gguf and family.gguf is not None:
        schemes.insert(0, family.gguf)
    tokens, error = _tokens(checkpoint)
    try:
        dtype = None if is_gguf else stated_dtype(data)
    except UnknownQuantization:  # a finding of `verify`
        dtype = None
    return Expectation(
        tree=model.tree,
        schemes=schemes,
        config_keys=model.config.key_by_symbol,
        rebuild=lambda changes: with_text(model.tree, family(Config({**data, **changes}))),
        dtype="" if dtype is None else dtype.name,
        tokenizer_tokens=tokens,
        tokenizer_error=error,
        is_submodel=bool(model.wrapper) and not model.is_multimodal,
        has_other_mtp=model.tree.mtp is None and any(data.get(key) for key in MTP_KEYS),
        tied_copies=_tied_copies(model, checkpoint),
    )


def _tied_copies(model: FamilyModel, checkpoint: OpenedCheckpoint) -> tuple[TiedCopy, ...]:
    """Return the matrices that a checkpoint stores although the config ties them to others."""
    if not (names := tuple(model.tied_names)):
        return ()
    from ....checkpoint.naming.tied_copies import find_tied_copies

    return find_tied_copies(checkpoint, names)


def refuse_large_models(model: FamilyModel, manifest: Manifest) -> None:
    """Raise if the config has more weights than files of this number can name, before anything is
    allocated for each weight.

    A file names at most MAX_TENSORS tensors; no published checkpoint stacks more experts into them
    than that.
    """
    weights, most = (
        sum(x.copies for x in fold(model.tree)),
        MAX_TENSORS * max(1, len(manifest.files)),
    )
    if weights > most:
        raise LlamathError(
            f"{safe(model.config.source or model.name)}: expected at most {most:,} weights in "
            f"{format_count(len(manifest.files), 'file')}, "
            f"found a config with {weights:,}",
            hint="check the numbers of layers and experts in the config",
        )


def _tokens(checkpoint: OpenedCheckpoint) -> tuple[int | None, Diagnosis | str]:
    """Return the number of tokens of the tokenizer next to a checkpoint, and why it could not be
    read.
    """
    if not checkpoint.tokenizer_files:
        return None, ""
    from ....checkpoint.formats.source import LocalFile
    from ....checkpoint.formats.tokenizer_model import count_json_tokens, count_model_tokens

    path = checkpoint.tokenizer_files[0]
    try:
        return (count_json_tokens if path.endswith(".json") else count_model_tokens)(path), ""
    except LlamathError as error:
        with LocalFile(path) as file:
            found = diagnose(
                file.read(0, min(HEAD_BYTES, file.size)), path, file.size, "a tokenizer"
            )
        return None, found or str(error)
