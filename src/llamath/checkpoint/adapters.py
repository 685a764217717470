"""`open_adapter`: read an adapter of peft, llama.cpp (GGUF) or MLX: its base model, method, and
what it changes, weight by weight.

Only the configuration and the header are read. A low-rank target changes a weight W of the base
model to W + scale · B·A, with A `[r, in]` and B `[out, r]`; `Factor` says how a file stores each of
them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from ..utils.dotted_names import DottedNames
from ..utils.errors import Call, ConfigError, FormatError, LlamathError, Name, safe
from ..utils.linear_regex import PatternList
from ..utils.record_type import Record
from .formats.choose_files import ADAPTER_FILES
from .formats.folder_kind import ADAPTER_CONFIG
from .formats.manifest import Manifest, Tensor
from .naming.peft_targets import PeftTargets
from .open import OpenedCheckpoint, open_checkpoint, read_config_file

Keys = Mapping[str, Any]
PEFT_PREFIX = "base_model.model."
_SUFFIXES = {
    ".lora_A.weight": "A",
    ".lora_B.weight": "B",
    ".lora_B.bias": "bias",
    ".lora_embedding_A": "embedding_A",
    ".lora_embedding_B": "embedding_B",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",
    ".ia3_l": "ia3",
    ".token_adapter.trainable_tokens_delta": "rows",
    ".trainable_tokens_delta": "rows",
}
"""Ends of peft's tensor names → roles."""
_OTHER_METHODS = (
    *(
        ".lora_A",
        ".lora_B",
        ".lora_E",
        ".ranknum",
        ".hada_",
        ".lokr_",
        ".oft_",
        ".boft_",
        ".vera_",
        ".vblora_",
        ".ln_tuning_layers.",
    ),
    *(
        ".fourierft_",
        ".hra_",
        ".randlora_",
        ".c3a_",
        ".miss_",
        ".bone_",
        ".shira_",
        ".road_",
        ".deft_",
        ".delora_",
        ".waveft_",
        ".psoft_",
    ),
)
"""Beginnings of the parameters of methods whose tensors are listed but not interpreted."""
_UNSUPPORTED_OPTIONS = {
    "use_bdlora": "block-diagonal factors (use_bdlora)",
    "use_qalora": "grouped inputs (use_qalora)",
    "layer_replication": "replicated layers (layer_replication)",
    "kasa_config": "a change of the base's singular values (kasa_config)",
    "monteclora_config": "sampled factors (monteclora_config)",
    "arrow_config": "routing between adapters (arrow_config)",
    "alora_invocation_tokens": "activation at certain tokens (alora_invocation_tokens)",
    "megatron_config": "Megatron's parallel layers (megatron_config)",
}
"""Options of peft's LoraConfig after which the factors alone do not give the changed weight."""


class Factor(NamedTuple):
    """A stored factor of a low-rank update; for experts, its first axis or the ranks of all
    experts.
    """

    tensor: Tensor
    is_transposed: bool = False  # stored as [in, r] or [r, out]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the factor: A `[…, r, in]`, B `[…, out, r]`."""
        *first, rows, columns = (1, 1, *self.tensor.shape)[-max(2, len(self.tensor.shape)) :]
        return (*first, columns, rows) if self.is_transposed else (*first, rows, columns)


class AdapterTarget(Record):
    """One weight of the base model and what the adapter does to it.

    The kinds are: `linear`: W + scale · B·A; a matrix that is stored transposed (GPT-2's `Conv1D`)
    gets the transposed product. `embedding`: the same with W as `[vocabulary, width]`, which gets
    (B·A) transposed: A `[r, vocabulary]`, B `[width, r]`. `experts`: one product for each expert,
    of three-dimensional factors, or of peft's two-dimensional ones: row e·r + i of A and column i·E
    + e of B belong to rank i of expert e. `scaling`: W is multiplied by the vector (IA³), `[out,
    1]` or `[1, in]`; a bias of the layer too in the first case. `rows`: the rows `indices` are
    replaced. `replacement`: the whole tensor is replaced.
    """

    name: str  # of the base model's weight: a Hugging Face name, or in a GGUF adapter a GGUF name
    kind: str
    a: Factor | None = None
    b: Factor | None = None
    rank: int = 0  # of the update of one expert, as the configuration says (GGUF: as stored)
    scale: float = 1.0
    experts: int = 1
    magnitude: Tensor | None = None  # DoRA: norms of the rows of the changed weight
    bias: Tensor | None = None  # added to the layer's bias, times the scale
    tensor: Tensor | None = None  # of a scaling, of rows, of a replacement
    indices: tuple[int, ...] = ()

    @property
    def module(self) -> str:
        """The module of the weight."""
        return self.name.rpartition(".")[0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Its tensors in the adapter's file."""
        stored = (
            self.a and self.a.tensor,
            self.b and self.b.tensor,
            self.magnitude,
            self.bias,
            self.tensor,
        )
        return tuple(x for x in stored if x is not None)


class Adapter(Record):
    """An adapter: the base model that it names, the method, and its targets."""

    name: str
    format: str  # peft, gguf or mlx
    method: str  # lora, dora, ia3, full, or another method's name as peft spells it, in lower case
    base: str  # a path or public id; empty if the adapter names none
    manifest: Manifest
    targets: tuple[AdapterTarget, ...]
    config: Mapping[str, Any] = {}  # of adapter_config.json; empty for GGUF
    revision: str = ""  # of the base model
    architecture: str = ""  # GGUF: `general.architecture` of the base model
    unread: tuple[str, ...] = ()  # names of tensors that are not interpreted
    incomplete: tuple[str, ...] = ()  # names of weights with only one of two factors
    # features after which targets alone do not give the changed weights: neither merged nor
    # compared
    unsupported: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def uses_rslora(self) -> bool:
        """Whether updates are scaled by alpha / √r."""
        return self.format == "peft" and self.config.get("use_rslora") is True

    @property
    def parameters(self) -> int:
        """The number of values in the adapter's file."""
        return sum(x.elements for x in self.manifest.tensors)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of its updates, in ascending order."""
        return tuple(sorted({x.rank for x in self.targets if x.a}))

    @property
    def title(self) -> str:
        """The method as people write it: `rsLoRA adapter of rank 8 (peft)`."""
        method = {
            "lora": "rsLoRA" if self.uses_rslora else "LoRA",
            "dora": "DoRA",
            "ia3": "IA³",
            "full": "fully trained",
        }.get(self.method, self.method)
        ranks = [f"{x:,}" for x in self.ranks]
        shown = (
            ""
            if not ranks
            else f" of rank {ranks[0]}"
            if len(ranks) == 1
            else (f" of ranks {ranks[0]}–{ranks[-1]}")
        )
        return f"{safe(method, 40)} adapter{shown} ({self.format})"


def open_adapter(text: str) -> Adapter:
    """Open the adapter at a path or address: a folder, its file of weights, or a GGUF file."""
    opened = open_checkpoint(text)
    adapter = find_adapter(opened)
    if adapter is None:
        raise FormatError(
            "no_adapter",
            f"{safe(text)}: expected an adapter, found a {opened.manifest.format} checkpoint "
            f"without {ADAPTER_CONFIG}",
            hint="an adapter is a folder with adapter_config.json and adapter_model.safetensors, "
            "or a GGUF file of type adapter",
        )
    return adapter


def find_adapter(opened: OpenedCheckpoint) -> Adapter | None:
    """Return the adapter in a checkpoint whose headers have been read; None if it is no adapter."""
    if opened.manifest.format == "gguf":
        return (
            _read_gguf(opened)
            if opened.manifest.metadata.get("general.type") == "adapter"
            else None
        )
    if not is_adapter_file(opened.manifest):
        return None
    config = read_config_file(opened, ADAPTER_CONFIG)
    if config is None:
        raise FormatError(
            "adapter_config",
            f"{safe(opened.name)}: expected {ADAPTER_CONFIG} next to the adapter's weights, "
            "found none",
            hint="download it, too: it names the base model, the rank and the scale",
        )
    return read_adapter(opened.manifest, config, opened.name)


def adapter_note(opened: OpenedCheckpoint) -> str:
    """Return a note that the checkpoint is an adapter, with its base model, or an empty string."""
    try:
        adapter = find_adapter(opened)
    except LlamathError as error:
        return f"an adapter whose configuration cannot be used: {error}"
    if adapter is None:
        return ""
    base = f"of {safe(adapter.base, 100)}" if adapter.base else "that names no base model"
    given = {} if adapter.base else {"against": Name("model")}
    check = Call("verify", opened.name, **given)
    return f"{adapter.title} {base}; {check} checks that it fits"


def is_adapter_file(manifest: Manifest) -> bool:
    """Whether the file has a name of an adapter's weights."""
    return len(manifest.files) == 1 and os.path.basename(manifest.files[0].name) in ADAPTER_FILES


def read_adapter(manifest: Manifest, config: Keys, name: str = "adapter") -> Adapter:
    """Interpret the tensors of a safetensors or torch file by the keys of its
    adapter_config.json.
    """
    where = f"{safe(name)}: {ADAPTER_CONFIG}"
    if "peft_type" in config:
        return _read_peft(manifest, config, name, where)
    if "fine_tune_type" in config or "lora_parameters" in config:
        return _read_mlx(manifest, config, name, where)
    raise ConfigError(
        f"{where}: expected peft_type (peft) or fine_tune_type (mlx-lm), found neither",
        hint="download the adapter again",
    )


# peft


class ValuePattern:
    """`rank_pattern` or `alpha_pattern`: regular expressions for the ends of modules' names →
    values.
    """

    def __init__(self, config: Keys, key: str, where: str) -> None:
        patterns = config.get(key) or {}
        if not isinstance(patterns, Mapping):
            raise ConfigError(
                f"{where}: {key} should be an object, found {safe(repr(patterns), 60)}"
            )
        self.values = {x: _number(patterns, x, f"{where}: {key}") for x in patterns}
        self._patterns = tuple(patterns)
        self._index = {x: i for i, x in enumerate(patterns)}
        self._regexes = PatternList(
            (rf"(.*\.)?({x})" for x in patterns),
            lambda problem: ConfigError(f"{where}: {key}: {problem}"),
        )

    def find(self, module: str) -> str | None:
        """Return the first pattern that matches a module."""
        found = self._regexes.full_matches(module)
        own = self._index.get(module, len(self._patterns))
        first = min(min(found, default=own), own)
        return self._patterns[first] if first < len(self._patterns) else None

    def unmatched(self, modules: Iterable[str]) -> list[str]:
        """Return the patterns that match none of these modules."""
        modules = set(modules)
        # most modules match the same patterns
        found = set(map(self._regexes.full_matches, modules))
        matched = {x for indices in found for x in indices}
        return [x for i, x in enumerate(self._patterns) if i not in matched and x not in modules]


def _number(config: Keys, key: str, where: str) -> float:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 2**31:
        raise ConfigError(
            f"{where}: {safe(key, 60)} should be a positive number, found {safe(repr(value), 60)}"
        )
    return value


class LoraSizes:
    """The rank and scale of each module, by the configuration of a LoRA adapter of peft."""

    def __init__(self, config: Keys, where: str) -> None:
        self.where = where
        self.rank, self.alpha = (
            _rank(_number(config, "r", where), where),
            _number(config, "lora_alpha", where),
        )
        self.ranks, self.alphas = (
            ValuePattern(config, "rank_pattern", where),
            ValuePattern(config, "alpha_pattern", where),
        )
        self.is_rslora = config.get("use_rslora") is True

    def rank_of(self, module: str) -> int:
        """The rank of the update of a module or parameter."""
        found = self.ranks.find(module)
        return self.rank if found is None else _rank(self.ranks.values[found], self.where)

    def scale_of(self, module: str) -> float:
        """The scale of the update: alpha / r, or alpha / √r for rsLoRA."""
        found = self.alphas.find(module)
        alpha, rank = (
            self.alpha if found is None else self.alphas.values[found],
            self.rank_of(module),
        )
        return alpha / (math.sqrt(rank) if self.is_rslora else rank)


def _rank(value: float, where: str) -> int:
    if value != int(value):
        raise ConfigError(f"{where}: a rank should be an integer, found {value:g}")
    return int(value)


def _read_peft(manifest: Manifest, config: Keys, name: str, where: str) -> Adapter:
    method = config.get("peft_type")
    if not isinstance(method, str) or not method:
        raise ConfigError(f"{where}: peft_type should be a name, found {safe(repr(method), 60)}")
    parts, unread = _group_peft(manifest, method)
    targets: list[AdapterTarget] = []
    incomplete: list[str] = []
    sizes = LoraSizes(config, where) if method == "LORA" else None
    selected = PeftTargets(config, where)
    indices = _TokenIndices(config, where)
    depths: dict[str, int] = {}
    for module, depth in parts:
        depths[module] = max(depth, depths.get(module, 0))
    for (module, depth), roles in parts.items():
        targets += [
            AdapterTarget(name=x[8:], kind="replacement", tensor=roles[x])
            for x in roles
            if x.startswith("replace:")
        ]
        if ("A" in roles) != ("B" in roles) or ("embedding_A" in roles) != ("embedding_B" in roles):
            incomplete.append(module)
            continue
        if sizes and ("A" in roles or "embedding_A" in roles):
            targets.append(
                _peft_update(
                    module,
                    roles,
                    sizes,
                    selected.adapted_parameter(module, depth, depths[module]),
                )
            )
        elif "ia3" in roles:
            targets.append(
                AdapterTarget(name=f"{module}.weight", kind="scaling", tensor=roles["ia3"])
            )
        elif "A" in roles or "embedding_A" in roles or "magnitude" in roles or "bias" in roles:
            incomplete.append(module)
        if "rows" in roles:
            targets.append(
                AdapterTarget(
                    name=f"{module}.weight",
                    kind="rows",
                    tensor=roles["rows"],
                    indices=indices.of(module),
                )
            )
    unsupported = [text for key, text in _UNSUPPORTED_OPTIONS.items() if config.get(key)]
    if method not in ("LORA", "IA3", "TRAINABLE_TOKENS"):
        unsupported.append(
            f"the method {safe(method, 40)}, whose tensors are listed and not interpreted"
        )
    is_dora = method == "LORA" and config.get("use_dora") is True
    return Adapter(
        name=name,
        format="peft",
        method="dora" if is_dora else method.lower(),
        base=_text(config, "base_model_name_or_path", where),
        revision=_text(config, "revision", where),
        manifest=manifest,
        targets=tuple(targets),
        config=config,
        unread=tuple(unread),
        incomplete=tuple(incomplete),
        unsupported=tuple(unsupported),
    )


def _text(config: Keys, key: str, where: str) -> str:
    value = config.get(key)
    if value is not None and not isinstance(value, str):
        raise ConfigError(f"{where}: {key} should be text, found {safe(repr(value), 60)}")
    return value or ""


def _group_peft(
    manifest: Manifest, method: str
) -> tuple[dict[tuple[str, int], dict[str, Tensor]], list[str]]:
    """Return the tensors of each module and depth of nesting by role, and the names that are not
    interpreted.

    Tensors of the base model itself (`modules_to_save`, biases, embeddings) have the role
    `replace:` and their name.
    """
    parts: dict[tuple[str, int], dict[str, Tensor]] = {}
    unread: list[str] = []
    for x in manifest.tensors:
        if not x.name.startswith(PEFT_PREFIX):
            unread.append(x.name)
            continue
        name = x.name.removeprefix(PEFT_PREFIX)
        suffix = next((s for s in _SUFFIXES if name.endswith(s)), "")
        if suffix:
            module, role = name.removesuffix(suffix), _SUFFIXES[suffix]
        elif any(s in f".{name}" for s in _OTHER_METHODS):
            unread.append(x.name)
            continue
        else:
            name = (
                name.replace(".modules_to_save.", ".")
                .replace(".base_layer.", ".")
                .removeprefix("modules_to_save.")
            )
            module, role = name.rpartition(".")[0], f"replace:{name}"
        depth, end = 0, len(module)
        while module.endswith(".base_layer", 0, end):
            depth, end = depth + 1, end - len(".base_layer")
        roles = parts.setdefault((module[:end], depth), {})
        if role in roles or (method != "LORA" and role in ("A", "B")):
            unread.append(x.name)
        else:
            roles[role] = x
    return parts, unread


def _peft_update(
    module: str, roles: Mapping[str, Tensor], sizes: LoraSizes, parameter: str
) -> AdapterTarget:
    is_embedding = "embedding_A" in roles
    a, b = (
        Factor(roles[x]) for x in (("embedding_A", "embedding_B") if is_embedding else ("A", "B"))
    )
    name = f"{module}.{parameter or 'weight'}"
    key = name if parameter else module
    rank = sizes.rank_of(key)
    experts, rest = divmod(a.shape[-2], rank) if parameter else (1, 0)
    return AdapterTarget(
        name=name,
        kind="embedding" if is_embedding else "experts" if experts > 1 and not rest else "linear",
        a=a,
        b=b,
        rank=rank,
        scale=sizes.scale_of(key),
        experts=experts if experts and not rest else 1,
        magnitude=roles.get("magnitude"),
        bias=roles.get("bias"),
    )


class _TokenIndices:
    """The rows that an adapter replaces, from `trainable_token_indices` or, for trainable tokens
    alone, `token_indices`.
    """

    def __init__(self, config: Keys, where: str) -> None:
        found = config.get("trainable_token_indices") or config.get("token_indices") or ()
        self._where = where
        self._ends = DottedNames(found, from_end=True) if isinstance(found, Mapping) else None
        self._lists = [*found.values()] if isinstance(found, Mapping) else [found]

    def of(self, module: str) -> tuple[int, ...]:
        """Return the rows of a module: those of the first entry for the end of its name, or of
        the one list for all.
        """
        first = 0 if self._ends is None else min(self._ends.along(module), default=None)
        indices = () if first is None else self._lists[first]
        if not isinstance(indices, (list, tuple)) or not all(
            type(x) is int and x >= 0 for x in indices
        ):
            raise ConfigError(
                f"{self._where}: expected token ids for {safe(module)}, found "
                f"{safe(repr(indices), 60)}"
            )
        return tuple(indices)


# GGUF


def _read_gguf(opened: OpenedCheckpoint) -> Adapter:
    """Interpret a GGUF adapter as llama.cpp does: pairs `NAME.lora_a` and `NAME.lora_b`, scaled
    by alpha / r.
    """
    manifest, where = opened.manifest, safe(opened.name)
    metadata = manifest.metadata
    kind, alpha = metadata.get("adapter.type"), metadata.get("adapter.lora.alpha", 0.0)
    if kind != "lora":
        raise FormatError(
            "adapter_type", f"{where}: expected adapter.type lora, found {safe(repr(kind), 60)}"
        )
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
        raise FormatError(
            "adapter_alpha",
            f"{where}: adapter.lora.alpha should be a number, found {safe(repr(alpha), 60)}",
        )
    pairs: dict[str, dict[str, Tensor]] = {}
    unread: list[str] = []
    for x in manifest.tensors:
        end = x.name[-7:]
        if end in (".lora_a", ".lora_b"):
            pairs.setdefault(x.name[:-7], {})[end] = x
        else:
            unread.append(x.name)
    targets = []
    for name, pair in pairs.items():
        if len(pair) < 2:
            continue
        a, b = Factor(pair[".lora_a"], name == "token_embd.weight"), Factor(pair[".lora_b"])
        rank = b.shape[-1]
        is_stacked = len(a.shape) > 2
        targets.append(
            AdapterTarget(
                name=name,
                kind="embedding" if a.is_transposed else "experts" if is_stacked else "linear",
                a=a,
                b=b,
                rank=rank,
                scale=alpha / rank if alpha and rank else 1.0,
                experts=a.shape[0] if is_stacked else 1,
            )
        )
    base = (
        metadata.get("general.base_model.0.repo_url")
        or metadata.get("general.base_model.0.name")
        or ""
    )
    tokens = metadata.get("adapter.alora.invocation_tokens")
    return Adapter(
        name=opened.name,
        format="gguf",
        method="lora",
        base=str(base).removeprefix("https://huggingface.co/"),
        architecture=str(metadata.get("general.architecture", "")),
        manifest=manifest,
        targets=tuple(targets),
        unread=tuple(unread),
        incomplete=tuple(name for name, pair in pairs.items() if len(pair) < 2),
        unsupported=(_UNSUPPORTED_OPTIONS["alora_invocation_tokens"],) if tokens else (),
    )


# MLX

_MLX_ROLES = {".lora_a": "a", ".lora_b": "b", ".m": "magnitude"}


def _read_mlx(manifest: Manifest, config: Keys, name: str, where: str) -> Adapter:
    """Interpret an adapter of mlx-lm: A `[in, r]` and B `[r, out]`, or `[E, r, in]` and `[E,
    out, r]` for experts.
    """
    method = config.get("fine_tune_type", "lora")
    if method not in ("lora", "dora", "full"):
        raise ConfigError(
            f"{where}: fine_tune_type should be lora, dora or full, found {safe(repr(method), 60)}"
        )
    groups: dict[str, dict[str, Tensor]] = {}
    replaced: list[Tensor] = []
    for x in manifest.tensors:
        end = next((s for s in _MLX_ROLES if x.name.endswith(s)), "") if method != "full" else ""
        if end:
            groups.setdefault(x.name.removesuffix(end), {})[_MLX_ROLES[end]] = x
        else:
            replaced.append(x)
    notes = []
    rank, scale = 0, 1.0
    if groups:
        parameters = config.get("lora_parameters")
        if not isinstance(parameters, Mapping):
            raise ConfigError(
                f"{where}: expected lora_parameters with rank and scale, found "
                f"{safe(repr(parameters), 60)}"
            )
        rank = _rank(_number(parameters, "rank", f"{where}: lora_parameters"), where)
        scale = float(_number(parameters, "scale", f"{where}: lora_parameters"))
        if "alpha" in parameters:
            notes.append(
                "lora_parameters has alpha, by which mlx-lm scaled until 2024 and which "
                "it ignores since: scaled by scale alone"
            )
    complete = {module: roles for module, roles in groups.items() if "a" in roles and "b" in roles}
    return Adapter(
        name=name,
        format="mlx",
        method=str(method),
        base=_text(config, "model", where),
        manifest=manifest,
        targets=(
            *(_mlx_update(module, roles, rank, scale) for module, roles in complete.items()),
            *map(_replacement, replaced),
        ),
        config=config,
        incomplete=tuple(x for x in groups if x not in complete),
        notes=tuple(notes),
    )


def _replacement(x: Tensor) -> AdapterTarget:
    return AdapterTarget(name=x.name, kind="replacement", tensor=x)


def _mlx_update(module: str, roles: Mapping[str, Tensor], rank: int, scale: float) -> AdapterTarget:
    is_stacked = len(roles["a"].shape) > 2
    factor = partial(Factor, is_transposed=not is_stacked)
    is_embedding = module.rpartition(".")[2] in (
        "embed_tokens",
        "wte",
        "embed_in",
        "tok_embeddings",
        "word_embeddings",
        "embeddings",
    )
    return AdapterTarget(
        name=f"{module}.weight",
        kind="experts" if is_stacked else "embedding" if is_embedding else "linear",
        a=factor(roles["a"]),
        b=factor(roles["b"]),
        rank=rank,
        scale=scale,
        experts=roles["a"].shape[0] if is_stacked else 1,
        magnitude=roles.get("magnitude"),
    )
