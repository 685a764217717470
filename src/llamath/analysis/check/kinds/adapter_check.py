"""`check_adapter`: compare an adapter with its base model: targets that match nothing, ranks,
shapes and vocabulary rows.

What the configuration selects in the base is compared with what the file has, by the rules of the
program that loads it: peft leaves a selected module without tensors unchanged, and ignores tensors
of modules that are not selected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....checkpoint.adapters import (
    PEFT_PREFIX,
    Adapter,
    AdapterTarget,
    ValuePattern,
)
from ....checkpoint.naming.detect_scheme import SchemeMatch, detect_scheme
from ....checkpoint.naming.peft_targets import ModulePatterns, PeftTargets
from ....checkpoint.naming.scheme import Scheme, fused_scheme
from ....checkpoint.open import (
    OpenedCheckpoint,
    is_url,
    names_checkpoint,
    open_checkpoint,
    packings_of,
)
from ....families.model_class import headless_scheme
from ....loading import Source, load_family
from ....model import FamilyModel
from ....utils.access import may_read
from ....utils.dotted_names import DottedNames
from ....utils.errors import Call, FormatError, Name, UnknownModel, nearest, safe
from ....utils.linear_regex import PatternList
from ....utils.number_format import format_count, format_list
from ....utils.record_type import Record
from ..verify.check_checkpoint import refuse_large_models
from ..verify.structure_report import StructureReport
from ..verify.verify_tensors import Finding, summarize_names

Shape = tuple[int, ...]
_NEW_HEADS = {
    "SEQ_CLS": ("classifier", "score"),
    "TOKEN_CLS": ("classifier", "score"),
    "QUESTION_ANS": ("qa_outputs",),
}
"""Tasks of peft → the modules that it adds to `modules_to_save`, of which the model has one."""
_PARTS = {"embed.weight": "embedding", "head.weight": "head"}
_PARTS_INSIDE = {"{e}": "expert", "router": "router"}
_MLX_EXPERTS = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


class _BaseWeight(NamedTuple):
    """A weight of the base model under a name that adapters use."""

    shape: Shape
    role: str = ""  # empty if only a header tells of it
    part: str = ""  # embedding, head, router, expert, or empty
    is_flipped: bool = False  # stored as [in, out]

    @property
    def matrix(self) -> Shape:
        """The shape as [out, in]; experts have one more axis in front."""
        return (*self.shape[:-2], *self.shape[:-3:-1]) if self.is_flipped else self.shape


class BaseModel(Record):
    """The weights of an adapter's base model."""

    name: str
    weights: Mapping[str, _BaseWeight]
    model: FamilyModel | None = None  # None: of an unknown family, by its headers
    scheme: str = ""
    # of the names in layers, if only the text model of a multimodal model is known
    text_prefix: str = ""

    @property
    def modules(self) -> dict[str, _BaseWeight]:
        """Its linear layers and embeddings by module name."""
        return {
            name.removesuffix(".weight"): x
            for name, x in self.weights.items()
            if name.endswith(".weight") and len(x.shape) == 2 and x.role in ("matmul", "lookup", "")
        }

    def is_inner_linear(self, module: str) -> bool:
        """Whether a module is a linear layer other than the output head, as peft's `all-linear`
        selects.
        """
        x = self.weights[f"{module}.weight"]
        return x.role != "lookup" and x.part not in ("embedding", "head")

    @property
    def layers(self) -> int:
        """The number of layers; 0 if it is unknown."""
        return int(self.model.tree.layers.n) if self.model else 0


def verify_adapter(
    adapter: Adapter,
    path: str,
    base: Source | None = None,
    changes: Mapping[str, Any] | None = None,
) -> StructureReport:
    """Check an adapter against a base model, or against the one that its configuration names, if
    that is a local path or a preset.
    """
    findings = list(_own_findings(adapter))
    found = find_base(adapter, base, changes)
    fitting = 0
    if isinstance(found, BaseModel):
        against = list(_against_base(adapter, found))
        findings += against
        bad = {name for x in against for name in x.tensors}
        fitting = sum(x.name not in bad for x in adapter.targets)
        targets = format_count(len(adapter.targets), "target")
        checked = (
            f"checked against {found.name}: names, shapes, ranks and vocabulary rows of {targets}"
        )
        if adapter.unsupported:
            checked = f"checked against {found.name}: the names of its modules"
    else:
        findings.append(found)
        checked = "without its base model, only its own tensors and configuration are checked"
    return StructureReport(
        path=path,
        kind="adapter",
        title=adapter.title,
        format=adapter.manifest.format,
        checked=checked,
        findings=tuple(findings),
        expected=len(adapter.targets),
        matched=fitting,
        model=found.name if isinstance(found, BaseModel) else None,
        scheme=found.scheme if isinstance(found, BaseModel) else None,
        facts=adapter_facts(adapter),
        matches=_match_in_words(adapter, found),
    )


def _match_in_words(adapter: Adapter, base: BaseModel | Finding) -> str:
    if not isinstance(base, BaseModel):
        return "its base model was not checked"
    return f"its names fit {base.name}" if adapter.unsupported else f"fits {base.name}"


def adapter_facts(adapter: Adapter) -> dict[str, Any]:
    """Return what an adapter is, for tables and JSON."""
    kinds: dict[str, int] = {}
    for x in adapter.targets:
        kinds[x.kind] = kinds.get(x.kind, 0) + 1
    return {
        "method": "rslora" if adapter.uses_rslora and adapter.method == "lora" else adapter.method,
        "program": adapter.format,
        "base": adapter.base or None,
        "ranks": list(adapter.ranks),
        "scales": sorted({x.scale for x in adapter.targets if x.a}),
        "targets": kinds,
        "tensors": len(adapter.manifest.tensors),
        "parameters": adapter.parameters,
    }


# The base model


def find_base(
    adapter: Adapter, given: Source | None = None, changes: Mapping[str, Any] | None = None
) -> BaseModel | Finding:
    """Return the base model, or a finding that says why there is none to check against; a base
    model that is given must load.
    """
    source: Source = given if given is not None else adapter.base
    if given is None:
        named = (
            f"the adapter names {safe(repr(adapter.base), 100)}"
            if adapter.base
            else ("the adapter names no base model")
        )
        missing = Finding(
            code="no_base",
            severity="info",
            message=f"its base model is not checked: {named}",
            hint=f"{Call('verify', adapter.name, against=Name('model'))} checks it",
        )
        if not adapter.base or is_url(adapter.base) or not may_read(adapter.base):
            return missing
        if not os.path.exists(adapter.base):
            from ....catalog import find_preset

            try:
                source = find_preset(adapter.base).slug
            except UnknownModel:
                return missing
    try:
        model = load_family(source, changes=changes, check_tensors=False)
    except UnknownModel:
        if not isinstance(source, (str, os.PathLike)) or not names_checkpoint(os.fspath(source)):
            raise
        opened = open_checkpoint(os.fspath(source))
        return BaseModel(
            name=safe(opened.name),
            weights={x: _BaseWeight(shape) for x, shape in _header_shapes(opened).items()},
        )
    return _base_of_model(adapter, model)


def _header_shapes(opened: OpenedCheckpoint) -> dict[str, Shape]:
    """Return the shapes of the plain tensors of a checkpoint."""
    columns, packings = opened.manifest.columns, packings_of(opened.manifest, opened.packing_config)
    return {
        name: shape
        for name, shape in zip(columns.name, columns.shape, strict=True)
        if name not in packings
    }


def _base_of_model(adapter: Adapter, model: FamilyModel) -> BaseModel:
    opened = _local_checkpoint(model)
    if opened is not None:
        refuse_large_models(model, opened.manifest)
    match = match_adapter_names(adapter, model)
    targets = {x.name for x in adapter.targets}
    weights = (
        _other_parts(model, opened, targets)
        if opened is not None and not model.is_multimodal
        else {}
    )
    for name, stored in zip(match.names, match.tensors, strict=True):
        part = stored.parts[0]
        where = _PARTS.get(part.pattern) or next(
            (word for mark, word in _PARTS_INSIDE.items() if mark in part.pattern), ""
        )
        weights[name] = _BaseWeight(
            tuple(map(int, stored.shape)), part.weight.role, where, "flip" in stored.layout
        )
    head = model.tree.head
    if head is not None and head.weight.tied:
        weights[match.scheme.stored_name("head.weight")] = _BaseWeight(
            tuple(map(int, head.weight.shape)), "matmul", "head"
        )
    is_partial = bool(model.wrapper) and not model.is_multimodal and opened is None
    prefix = (match.scheme.prefix + match.scheme.layer).partition("{l}")[0] if is_partial else ""
    return BaseModel(
        name=model.name, weights=weights, model=model, scheme=match.scheme.name, text_prefix=prefix
    )


def match_adapter_names(adapter: Adapter, model: FamilyModel) -> SchemeMatch:
    """Return the naming scheme that the adapter's targets follow."""
    if adapter.format == "gguf" and model.family.gguf is None:
        raise UnknownModel(
            f"the {model.family.name} family has no GGUF names, so this adapter "
            f"cannot belong to {safe(model.name)}"
        )
    schemes = (
        [model.family.gguf]
        if adapter.format == "gguf"
        else list(_module_schemes(model, adapter.format))
    )
    return detect_scheme(
        model.tree, [x for x in schemes if x], {x.name: () for x in adapter.targets}
    )


def _other_parts(
    model: FamilyModel, opened: OpenedCheckpoint, targets: Container[str]
) -> dict[str, _BaseWeight]:
    """Return the weights of a checkpoint that are not of its text model, under the names that they
    have in memory.

    Files of older multimodal models lack the prefix `model.`, which transformers adds.
    """
    hf = model.family.hf
    text, prefix = set(hf.flat_tensors(model.tree)[0]), (hf.prefix + hf.layer).partition("{l}")[0]
    others = {
        name: shape
        for name, shape in _header_shapes(opened).items()
        if name not in text and not name.startswith(prefix)
    }
    added = "model." if any(f"model.{x}" in targets for x in others) else ""
    return {f"{added}{name}": _BaseWeight(shape) for name, shape in others.items()}


def _local_checkpoint(model: FamilyModel) -> OpenedCheckpoint | None:
    if not model.location or not os.path.exists(model.location) or model.location.endswith(".json"):
        return None
    try:
        return open_checkpoint(model.location, allow_partial=True)
    except FormatError:
        # the folder has a configuration alone, or files that `verify` of the base explains
        return None


def _module_schemes(model: FamilyModel, program: str) -> Iterator[Scheme]:
    """Yield naming schemes of modules in memory: as stored, with fused experts, headless, and of
    other versions of wrappers.
    """
    hf = model.family.hf
    if program == "mlx":
        inside = {path: _mlx_name(name) for path, name in hf.inside.items()}
        yield hf.replace(inside=inside, name="mlx")
    variants = [hf, *model.family.hf_forms]
    for old, new in (
        ("language_model.model.", "model.language_model."),
        ("model.language_model.", "language_model.model."),
    ):
        if hf.layer.startswith(old) and not model.is_multimodal:
            variants.append(_renamed(hf, old, new))
            variants.append(_renamed(hf, old, "model."))
    for scheme in variants:
        yield from filter(None, (scheme, fused_scheme(scheme), headless_scheme(scheme)))


def _renamed(scheme: Scheme, old: str, new: str) -> Scheme:
    def rename(name: str) -> str:
        return (
            new + name.removeprefix(old)
            if name.startswith(old)
            else name.removeprefix("language_model.")
        )

    return scheme.replace(
        layer=rename(scheme.layer), outside={path: rename(x) for path, x in scheme.outside.items()}
    )


def _mlx_name(name: str) -> str:
    """Return the name of experts that MLX stacks: `mlp.experts.{e}.gate_proj` →
    `mlp.switch_mlp.gate_proj`.
    """
    if ".experts.{e}." not in name:
        return name
    before, _, after = name.partition(".experts.{e}.")
    return f"{before}.switch_mlp.{_MLX_EXPERTS.get(after, after)}"


# Findings


def _own_findings(adapter: Adapter) -> Iterator[Finding]:
    """Yield the findings that need no base model."""
    for text in adapter.notes:
        yield Finding(code="note", severity="info", message=text)
    if adapter.unsupported:
        message = (
            f"not interpreted: {format_list(adapter.unsupported)}; shapes are not compared "
            "with the base model"
        )
        yield Finding(code="method", severity="info", message=message)
    if adapter.incomplete:
        message = (
            f"{_modules(adapter.incomplete)} only one of the two factors: "
            f"{summarize_names(adapter.incomplete)}"
        )
        yield Finding(
            code="factor",
            severity="error",
            message=message,
            hint="download or save it again",
            tensors=adapter.incomplete,
        )
    yield from _unread(adapter)
    empty = [x.name for x in adapter.manifest.tensors if not x.elements]
    if empty:
        message = f"{format_count(len(empty), 'tensor')} without elements: {summarize_names(empty)}"
        hint = (
            "saved under DeepSpeed ZeRO-3 or FSDP without gathering the parameters: save it "
            "again from the gathered model"
        )
        yield Finding(
            code="empty", severity="error", message=message, hint=hint, tensors=tuple(empty)
        )
    if not adapter.manifest.tensors:
        yield Finding(
            code="empty",
            severity="error",
            message="it has no tensors",
            hint="download or save it again",
        )
    yield from _ranks(adapter)
    if adapter.method == "dora" and adapter.format == "peft":
        lacking = [x.name for x in adapter.targets if x.a and x.magnitude is None]
        if lacking:
            message = (
                f"use_dora is true, and {summarize_names(lacking)} "
                f"{'has' if len(lacking) == 1 else 'have'} no magnitude vector"
            )
            yield Finding(code="dora", severity="error", message=message, tensors=tuple(lacking))
    elif extra := [
        x.name for x in adapter.targets if x.magnitude is not None and adapter.method != "dora"
    ]:
        message = (
            f"magnitude vectors of {summarize_names(extra)}, though the configuration does "
            "not say DoRA: they are not loaded"
        )
        yield Finding(
            code="dora",
            severity="error",
            message=message,
            hint="set use_dora in adapter_config.json",
            tensors=tuple(extra),
        )


def _unread(adapter: Adapter) -> Iterator[Finding]:
    names = adapter.unread
    if not names or (
        adapter.format == "peft"
        and adapter.method not in ("lora", "dora", "ia3", "trainable_tokens")
    ):
        return
    if adapter.format == "gguf":
        norms = [x for x in names if x.endswith("_norm.weight")]
        if norms:
            message = (
                f"llama.cpp leaves out {format_count(len(norms), 'norm')}: {summarize_names(norms)}"
            )
            yield Finding(code="norms", severity="info", message=message, tensors=tuple(norms))
        if names := tuple(x for x in names if x not in norms):
            message = f"{_tensors(names)} neither lora_a nor lora_b: {summarize_names(names)}"
            yield Finding(
                code="unexpected",
                severity="error",
                message=message,
                hint="llama.cpp refuses the file",
                tensors=names,
            )
        return
    named = [x for x in names if re.search(r"\.lora_[AB]\.[^.]+\.weight$", x)]
    hint = (
        "the names contain the adapter's own name (`default`): save it with save_pretrained"
        if named
        else ""
    )
    yield Finding(
        code="unexpected",
        severity="warning",
        message=f"{_tensors(names)} not loaded by {adapter.format}: {summarize_names(names)}",
        hint=hint,
        tensors=tuple(names),
    )


def _ranks(adapter: Adapter) -> Iterator[Finding]:
    """Yield the findings about factors whose ranks disagree with each other or with the
    configuration.
    """
    unequal: dict[str, list[str]] = {}
    other: dict[str, list[str]] = {}
    for x in adapter.targets:
        if x.a is None or x.b is None:
            continue
        a, b = x.a.shape, x.b.shape
        if a[-2] != b[-1] or a[:-2] != b[:-2]:
            unequal.setdefault(
                f"A {list(x.a.tensor.shape)}, B {list(x.b.tensor.shape)}", []
            ).append(x.name)
        elif a[-2] != x.rank * (x.experts if len(a) == 2 else 1):
            other.setdefault(f"rank {a[-2]:,}; the configuration says {x.rank:,}", []).append(
                x.name
            )
    for what, names in unequal.items():
        yield _finding("rank", f"the factors of {{}} have different ranks: {what}", names)
    for what, names in other.items():
        yield _finding(
            "rank",
            f"{{}} {'has' if len(names) == 1 else 'have'} {what}",
            names,
            "correct r or rank_pattern in adapter_config.json",
        )


def _against_base(adapter: Adapter, base: BaseModel) -> Iterator[Finding]:
    """Yield the findings of a comparison with the base model."""
    if (
        adapter.architecture
        and base.model
        and base.model.family.gguf_arch not in ("", adapter.architecture)
    ):
        message = (
            f"it is an adapter of architecture {safe(adapter.architecture, 60)}; "
            f"{base.name} is {base.model.family.gguf_arch}"
        )
        yield Finding(
            code="architecture",
            severity="error",
            message=message,
            hint="llama.cpp refuses it: find its own base model",
        )
    unknown = [x.name for x in adapter.targets if x.name not in base.weights]
    if base.text_prefix and (others := [x for x in unknown if not x.startswith(base.text_prefix)]):
        message = (
            f"{format_count(len(others), 'target')} of other parts of the multimodal "
            "model: not checked, as only its config is here"
        )
        yield Finding(
            code="other_part",
            severity="info",
            message=message,
            hint="its checkpoint has them",
            tensors=tuple(others),
        )
        unknown = [x for x in unknown if x.startswith(base.text_prefix)]
    if unknown:
        yield _unknown_targets(unknown, len(adapter.targets), base, _new_heads(adapter))
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for x in adapter.targets:
        if (weight := base.weights.get(x.name)) is not None:
            for code, message, hint in _misfits(x, weight, base):
                groups.setdefault((code, message, hint), {})[x.name] = None
    for (code, message, hint), names in groups.items():
        yield _finding(code, message, list(names), hint)
    yield from _other_methods(adapter, base)
    if adapter.format == "peft":
        yield from _peft_selection(adapter, base)
    elif adapter.format == "mlx":
        yield from _mlx_selection(adapter, base)


def _unknown_targets(
    unknown: Sequence[str], targets: int, base: BaseModel, new_heads: Sequence[str]
) -> Finding:
    """Return the finding about targets that the base model does not have."""
    of_head = [x for x in unknown if x.split(".")[0] in new_heads]
    if len(of_head) == len(unknown):
        message = (
            f"{summarize_names(unknown)} belongs to the new head of this task, which the "
            "base model does not have"
        )
        return Finding(code="new_head", severity="info", message=message)
    some = (
        f"{len(unknown):,} of {format_count(targets, 'target')} "
        f"{'is' if len(unknown) == 1 else 'are'} not"
    )
    hint = ""
    layers = [int(x[1]) for name in unknown if (x := re.search(r"\.(\d{1,9})\.", name))]
    if base.layers and layers and min(layers) >= base.layers:
        hint = (
            f"the adapter has layer {max(layers)}, the base model layers 0–{base.layers - 1}: "
            "it belongs to a deeper model"
        )
    elif len(unknown) == targets:
        first, known = unknown[0], {x.replace("{l}", "0") for x in list(base.weights)[:2000]}
        near = nearest(first, known, 1)
        example = near[0] if near else next(iter(base.weights), "")
        hint = (
            f"it belongs to another model: {safe(first, 80)} is not among names like "
            f"{safe(example, 80)}"
        )
    message = (
        f"{'none of its targets is' if len(unknown) == targets else some} in {base.name}: "
        f"{summarize_names(unknown)}"
    )
    return Finding(
        code="target", severity="error", message=message, hint=hint, tensors=tuple(unknown)
    )


def _other_methods(adapter: Adapter, base: BaseModel) -> Iterator[Finding]:
    """Yield a finding about tensors of a method that is not interpreted, and whose names begin
    with no module of the base model.
    """
    if not adapter.unsupported:
        return
    modules = {x.rpartition(".")[0] for x in base.weights}
    names = [x for x in adapter.unread if x.startswith(PEFT_PREFIX) and ".layers." in x]
    unknown = [x for x in names if modules.isdisjoint(_beginnings(x.removeprefix(PEFT_PREFIX)))]
    if unknown:
        message = f"{_tensors(unknown)} of no module of {base.name}: {summarize_names(unknown)}"
        yield Finding(
            code="target",
            severity="error",
            message=message,
            hint="it belongs to another model",
            tensors=tuple(unknown),
        )


def _beginnings(name: str) -> Iterator[str]:
    parts = name.split(".")
    return (".".join(parts[:i]) for i in range(1, len(parts)))


def _misfits(
    x: AdapterTarget, weight: _BaseWeight, base: BaseModel
) -> Iterator[tuple[str, str, str]]:
    """Yield (code, message with {} for the names, hint) of each size of a target that does not
    fit the base model's weight.
    """
    if x.kind == "replacement" and x.tensor is not None:
        if x.tensor.shape != weight.shape:
            yield _shape_misfit(x.tensor.shape, weight.shape, weight, base)
        return
    if x.kind == "rows" and x.tensor is not None:
        yield from _row_misfits(x, x.tensor.shape, weight, base)
        return
    matrix = weight.matrix
    if len(matrix) < 2:
        yield (
            "shape",
            (f"{{}} has shape {list(matrix)} in {base.name}: expected a matrix to adapt"),
            "",
        )
        return
    out, inputs = matrix[-2:]
    if x.kind == "scaling" and x.tensor is not None:
        if x.tensor.shape not in ((out, 1), (1, inputs)):
            message = (
                f"{{}} has a scaling vector {list(x.tensor.shape)}; {base.name} needs "
                f"{[out, 1]} or {[1, inputs]}"
            )
            yield "shape", message, "it belongs to another base model"
        return
    if x.a is None or x.b is None:
        return
    if x.kind == "embedding":
        out, inputs = inputs, out
    found = (x.b.shape[-2], x.a.shape[-1])
    if x.kind == "experts" or len(matrix) == 3:
        experts = x.experts if x.kind == "experts" else 1
        if len(matrix) != 3 or experts != matrix[0] or found not in ((out, inputs), (inputs, out)):
            message = (
                f"{{}} has updates for {format_count(experts, 'expert')} of {list(found)}; "
                f"the weight in {base.name} is "
            )
            yield "shape", message + str(list(weight.shape)), "it belongs to another base model"
        return
    if found != (out, inputs):
        shape, expected = (
            (found[::-1], (inputs, out)) if x.kind == "embedding" else (found, (out, inputs))
        )
        yield _shape_misfit(shape, expected, weight, base)
    if x.magnitude is not None and x.magnitude.shape not in (
        (out,),
        (1, out),
        (out, 1),
        (inputs,) if x.kind == "embedding" else (out,),
    ):
        yield (
            "dora",
            (f"{{}} has a magnitude vector {list(x.magnitude.shape)}; {base.name} needs {[out]}"),
            "",
        )
    if x.bias is not None and x.bias.shape != (out,):
        yield "shape", f"{{}} has a bias {list(x.bias.shape)}; {base.name} needs {[out]}", ""


def _shape_misfit(
    found: Shape, expected: Shape, weight: _BaseWeight, base: BaseModel
) -> tuple[str, str, str]:
    if (
        weight.part in ("embedding", "head")
        and len(found) == len(expected) == 2
        and found[1:] == expected[1:]
    ):
        message = f"{{}} has {found[0]:,} vocabulary rows; {base.name} has {expected[0]:,}"
        if found[0] > expected[0]:
            hint = (
                f"tokens were added: resize the base model's embedding to {found[0]:,} rows "
                "before loading the adapter"
            )
            return "vocabulary", message, hint
        return (
            "vocabulary",
            message,
            (
                "the base model has a larger vocabulary than the adapter "
                "was trained with: use its own base model"
            ),
        )
    message = f"{{}} has an update of {list(found)}; the weight in {base.name} is {list(expected)}"
    return "shape", message, "it belongs to another base model"


def _row_misfits(
    x: AdapterTarget, shape: Shape, weight: _BaseWeight, base: BaseModel
) -> Iterator[tuple[str, str, str]]:
    rows, width = weight.shape[0], weight.shape[-1]
    if shape != (len(x.indices), width):
        found = f"{{}} has new rows {list(shape)} for {format_count(len(x.indices), 'token')}"
        yield "shape", f"{found}; {base.name} needs {[len(x.indices), width]}", ""
    if outside := [i for i in x.indices if i >= rows]:
        yield (
            "vocabulary",
            (
                f"{{}} gets a row for token {max(outside):,}; {base.name} has "
                f"{rows:,} vocabulary rows"
            ),
            "",
        )


def _finding(code: str, message: str, names: Sequence[str], hint: str = "") -> Finding:
    return Finding(
        code=code,
        severity="error",
        message=message.replace("{}", summarize_names(names), 1),
        hint=hint,
        tensors=tuple(names),
    )


def _modules(names: Sequence[str]) -> str:
    return f"{format_count(len(names), 'module')} {'has' if len(names) == 1 else 'have'}"


def _tensors(names: Sequence[str]) -> str:
    return f"{format_count(len(names), 'tensor')} {'is' if len(names) == 1 else 'are'}"


# What peft selects


def _new_heads(adapter: Adapter) -> Sequence[str]:
    return _NEW_HEADS.get(str(adapter.config.get("task_type")), ())


def selected_modules(config: Mapping[str, Any], base: BaseModel, where: str) -> set[str]:
    """Return the linear layers and embeddings of a base model that the configuration of an
    adapter selects, by peft's rules.
    """
    targets = PeftTargets(config, where)
    chosen = base.is_inner_linear if targets.is_all_linear else targets.names_module
    return {name for name in base.modules if chosen(name) and targets.allows(name)}


def _peft_selection(adapter: Adapter, base: BaseModel) -> Iterator[Finding]:
    """Yield the findings about names in the configuration that select nothing, and modules
    selected without tensors or the reverse.
    """
    config, modules = adapter.config, base.modules
    where = f"{safe(adapter.name)}: adapter_config.json"
    targets = PeftTargets(config, where)
    if not targets.is_all_linear:
        is_by_layer = adapter.method in ("lora", "dora", "ia3")
        yield from _useless_targets(
            targets.modules, modules if is_by_layer else set(map(_module_of, base.weights)), base
        )
    selected = selected_modules(config, base, where)
    yield from _missing_layers(targets, base)
    yield from _unmatched_patterns(adapter, where)
    yield from _useless_parameters(targets.parameters, base)
    yield from _useless_saved(adapter, targets.saved, base)
    if adapter.unsupported:
        return
    kinds = (
        {"rows"}
        if adapter.method == "trainable_tokens"
        else {"linear", "embedding", "experts", "scaling"}
    )
    present = {x.module for x in adapter.targets if x.kind in kinds and x.name in base.weights}
    by_parameter = {x.module for x in adapter.targets if targets.names_parameter(x.name)}
    uncertain = {name for name in modules if modules[name].part in ("router", "expert")}
    if missing := sorted(selected - present - uncertain):
        message = (
            f"{_modules(missing)} no tensors in the adapter, though the configuration "
            f"selects them: {summarize_names(missing)}"
        )
        hint = "peft leaves them as they are in the base model"
        yield Finding(
            code="untrained", severity="warning", message=message, hint=hint, tensors=tuple(missing)
        )
    if ignored := sorted(present - selected - by_parameter):
        message = (
            f"{format_count(len(ignored), 'module')} with tensors that the configuration "
            f"does not select: {summarize_names(ignored)}"
        )
        hint = (
            "peft ignores these tensors: correct target_modules, exclude_modules or "
            "layers_to_transform in adapter_config.json"
        )
        yield Finding(
            code="unselected",
            severity="warning",
            message=message,
            hint=hint,
            tensors=tuple(ignored),
        )


def _useless_targets(
    patterns: ModulePatterns, modules: Iterable[str], base: BaseModel
) -> Iterator[Finding]:
    """Yield a finding for each name in `target_modules`, or the regular expression, that matches
    no module of the base model.
    """
    # other parts of a multimodal model may have such modules
    severity = "info" if base.text_prefix else "error"
    if patterns.regex is not None:
        if not any(map(patterns.regex.fullmatch, modules)):
            message = (
                f"target_modules {safe(repr(patterns.regex.pattern), 80)} matches no "
                f"linear layer or embedding of {base.name}"
            )
            yield Finding(code="target", severity=severity, message=message)
        return
    ends = sorted({x.rpartition(".")[2] for x in modules})
    useless = _without_name(patterns.names, modules)
    for name in useless[:_MAX_USELESS]:
        near = nearest(name, ends[:_MAX_COMPARED])
        message = (
            f"target_modules names {safe(repr(name), 80)}, which matches no linear layer "
            f"or embedding of {base.name}"
        )
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {format_list(ends, 12)}"
        yield Finding(code="target", severity=severity, message=message, hint=hint)
    if more := useless[_MAX_USELESS:]:
        message = (
            f"target_modules has {format_count(len(more), 'more name')} without a linear "
            f"layer or embedding: {summarize_names(more)}"
        )
        yield Finding(code="target", severity=severity, message=message)


_MAX_USELESS, _MAX_COMPARED = 20, 200
"""The most names with a finding of their own, and names of modules that each is compared with
for a hint."""


def _without_name(ends: Sequence[str], names: Iterable[str]) -> list[str]:
    """Return those of these ends with which none of the dotted names ends."""
    known = DottedNames(ends, from_end=True)
    found = {i for name in names for i in known.along(name)}
    kept = {ends[i] for i in found}
    return [x for x in ends if x not in kept]


def _missing_layers(targets: PeftTargets, base: BaseModel) -> Iterator[Finding]:
    """Yield a finding about layers that the base model does not have."""
    layers = targets.layers.layers
    if layers and base.layers and (beyond := sorted(x for x in layers if x >= base.layers)):
        message = (
            f"layers_to_transform names {format_list(map(str, beyond), 4)}; "
            f"{base.name} has layers 0–{base.layers - 1}"
        )
        yield Finding(code="layers", severity="error", message=message)


def _unmatched_patterns(adapter: Adapter, where: str) -> Iterator[Finding]:
    """Yield findings about keys of `rank_pattern` and `alpha_pattern` that match no target."""
    if adapter.method not in ("lora", "dora"):
        return
    updates = [x.module if x.name.endswith(".weight") else x.name for x in adapter.targets if x.a]
    for key in ("rank_pattern", "alpha_pattern"):
        pattern = ValuePattern(adapter.config, key, where)
        if unmatched := pattern.unmatched(updates):
            message = (
                f"{key} has {format_list((safe(repr(x), 60) for x in unmatched), 4)}, "
                "which matches no target"
            )
            yield Finding(
                code="pattern", severity="warning", message=message, hint="peft ignores it"
            )


def _useless_parameters(names: Sequence[str], base: BaseModel) -> Iterator[Finding]:
    useless = _without_name(names, base.weights)
    for name in useless:
        # peft itself adds the router of Qwen2-MoE to the experts of models that have another one
        is_added = name == "gate.weight" and len(useless) < len(names)
        message = (
            f"target_parameters names {safe(repr(name), 80)}, which matches no parameter "
            f"of {base.name}"
        )
        yield Finding(code="target", severity="info" if is_added else "error", message=message)


def _useless_saved(adapter: Adapter, saved: Sequence[str], base: BaseModel) -> Iterator[Finding]:
    ends = PatternList(rf".*{re.escape(x)}(\..*)?" for x in saved)
    replaced = (x.module for x in adapter.targets if x.kind == "replacement")
    found, trained = (
        {i for indices in set(map(ends.full_matches, modules)) for i in indices}
        for modules in (map(_module_of, base.weights), replaced)
    )
    for i, name in enumerate(saved):
        if name in _new_heads(adapter):
            continue
        if i not in found:
            message = (
                f"modules_to_save names {safe(repr(name), 80)}, which matches no module of "
                f"{base.name}"
            )
            yield Finding(code="target", severity="error", message=message)
        elif i not in trained:
            message = (
                f"modules_to_save names {safe(repr(name), 80)}, and the file has no tensor of it"
            )
            yield Finding(
                code="untrained",
                severity="warning",
                message=message,
                hint="the module stays as it is in the base model",
            )


def _module_of(weight: str) -> str:
    return weight.rpartition(".")[0]


# What MLX selects


def _mlx_selection(adapter: Adapter, base: BaseModel) -> Iterator[Finding]:
    """Yield findings about layers that mlx-lm does not adapt, and keys that match nothing."""
    parameters = adapter.config.get("lora_parameters")
    keys = parameters.get("keys") if isinstance(parameters, Mapping) else None
    listed = keys if isinstance(keys, list) else []
    useless = {
        *_without_name([x for x in listed if isinstance(x, str)], map(_module_of, base.weights))
    }
    for key in listed:
        if not isinstance(key, str) or key in useless:
            message = (
                f"lora_parameters.keys names {safe(repr(key), 80)}, which matches no "
                f"module of {base.name}"
            )
            yield Finding(code="target", severity="error", message=message)
    count = adapter.config.get("num_layers")
    if type(count) is int and count > 0 and base.layers:
        first = base.layers - count
        early = [
            x.name
            for x in adapter.targets
            if x.a and (at := re.search(r"layers\.(\d{1,9})\.", x.name)) and int(at[1]) < first
        ]
        if early:
            message = (
                f"num_layers is {count:,}, so mlx-lm adapts layers "
                f"{first}–{base.layers - 1} and ignores {summarize_names(early)}"
            )
            yield Finding(
                code="unselected", severity="warning", message=message, tensors=tuple(early)
            )
