"""`load`: load a model from a path, an address, a preset or configuration keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeGuard, overload

from . import embedded
from .catalog import Preset, find_preset, find_public_id, find_refused, refusal
from .checkpoint.meta_args import (
    META_NAME_OF_KEY,
    ModelArgs,
    args_to_config,
    extra_config_keys,
    is_params,
    parse_args_text,
    parse_params,
    short_args,
)
from .checkpoint.open import FoundConfig, find_config, find_repo, is_url
from .checkpoint.tensor_parallel_shard import SHARD_KEY, parse_shard
from .core.blocks import Decoder
from .core.config import Config
from .core.tree import iter_stacks
from .families.counted_models import CountedModel, find_counted
from .families.latent_params import is_latent, parse_latent_params
from .families.multimodal_registry import INNER_KEY, TEXT_KEYS, Wrapper, find_wrapper
from .families.registry import FAMILIES, Family, find_family, other_ways, type_of_architecture
from .model import FamilyModel, Model, TensorModel, with_family
from .utils.access import is_restricted, may_read
from .utils.errors import (
    Argument,
    ArgumentError,
    Call,
    ConfigError,
    FormatError,
    ImpossibleModel,
    LlamathError,
    Name,
    RemoteError,
    UnknownModel,
    nearest,
    safe,
)
from .utils.named_tuple import NamedTuple
from .utils.strict_json import MAX_BYTES, parse_json

if TYPE_CHECKING:
    from .checkpoint.formats.manifest import Manifest
    from .checkpoint.open import OpenedCheckpoint
    from .generic.live_objects import LiveTensors

Keys = Mapping[str, Any]

UNSUPPORTED_KEYS = {
    "add_cross_attention": "cross-attention to an encoder",
    "is_encoder_decoder": "an encoder",
    "pruned_heads": "pruned heads",
    "block_configs": "layers of individual shapes",
    **dict.fromkeys(("attention_bias", "qkv_bias"), "biases in attention"),
    "mlp_bias": "biases in MLPs",
    "lm_head_bias": "a bias of the output head",
}
"""Keys that, when they are true or not empty, change the weights in a way that no family counts."""
_MAX_NAMED = 40
"""The most unknown keys that a note names."""
STORED_INSTEAD = "the stored weight is used, as in transformers: "
"""How the note on a head begins that differs from the embedding to which the config ties it."""
_TOWER_KEYS = ("vision_config", "audio_config")
"""Keys of the configurations of towers."""
_EXPERT_KEYS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


class _SupportsToDict(Protocol):
    """A configuration object with its keys as a dict, like those of transformers."""

    def to_dict(self) -> dict[str, Any]: ...


class _Module(Protocol):
    """A module of torch, a model of transformers for example, or a wrapper around one."""

    def state_dict(self, **how: Any) -> Any: ...

    def named_parameters(self, **how: Any) -> Any: ...


def _has_dict(source: object) -> TypeGuard[_SupportsToDict]:
    # by hand: `isinstance` with a protocol takes a twentieth of loading a configuration
    return hasattr(source, "to_dict")


def _is_module(source: object) -> TypeGuard[_Module]:
    return hasattr(source, "state_dict") and hasattr(source, "named_parameters")


Source = (
    str
    | os.PathLike[str]
    | Keys
    | ModelArgs
    | Preset
    | FoundConfig
    | _SupportsToDict
    | _Module
    | Model
)
NamedSource = str | os.PathLike[str] | ModelArgs | Preset | FamilyModel
"""Sources whose passes are always known: a model given by name or as a file has a family, or the
passes of its kind."""
Via = Literal["transformers"]
"""Who builds a model that no family here describes."""


def load(
    source: Source,
    *,
    changes: Keys | None = None,
    vocab_size: int | None = None,
    check_tensors: bool = True,
    via: Via | None = None,
) -> Model:
    """Load a model.

    `source` is a path, a preset, a repository on the Hub (`owner/name`), a URL, `-` for standard
    input, ModelArgs as text (`dim=4096,n_layers=32,…`), a mapping of configuration keys, a
    `ModelArgs`, a transformers configuration, a torch module, a state dict, or a Model (returned as
    it is, unless there are changes). `changes` replaces configuration keys, and `vocab_size`
    completes a Meta `params.json` that lacks it. A GGUF file that is truncated, or whose tensors do
    not match its metadata, raises an error unless `check_tensors` is false.

    With `via="transformers"`, the class of the configuration is built by transformers, in a process
    of its own and without weights: it is a `TensorModel`, with a total, names and shapes, and
    neither formulas nor a forward pass. State dicts and transformers configurations without a
    family are such models, too, and modules unless their configuration is of a family and describes
    as many parameters as they have.

    The head of a model next to local files is that of the files, as in transformers:
    `with_stored_head`. Neither `changes` of `tie_word_embeddings` nor `check_tensors=False` look at
    them.
    """
    model = _load(source, changes, vocab_size, check_tensors, via)
    return (
        with_stored_head(model)
        if check_tensors and not isinstance(source, Model) and not says_tied(changes or {})
        else model
    )


def load_family(
    source: Source,
    *,
    changes: Keys | None = None,
    vocab_size: int | None = None,
    check_tensors: bool = True,
) -> FamilyModel:
    """Load a model that has a family, as `load` does; one without is refused."""
    return with_family(
        load(source, changes=changes, vocab_size=vocab_size, check_tensors=check_tensors)
    )


def _load(
    source: Source,
    changes: Keys | None,
    vocab_size: int | None,
    check_tensors: bool,
    via: Via | None,
) -> Model:
    """Load a model as its configuration describes it."""
    if isinstance(changes, str) or not hasattr(changes or {}, "items"):
        hint = 'such as {"num_hidden_layers": 40}'
        raise ConfigError(
            f"changes should be a mapping of config keys, found {safe(repr(changes), 60)}",
            hint=hint,
        )
    if via not in (None, "transformers"):
        raise ArgumentError("via", f" should be transformers, not {safe(repr(via), 40)}")
    changed = {
        key.removeprefix("text_config.") if isinstance(key, str) else key: value
        for key, value in (changes or {}).items()
    }
    if isinstance(source, Model):
        if via is not None:
            raise ArgumentError(
                "via",
                " builds a configuration, and this model is loaded already",
                hint="give its config.json or its keys",
            )
        if not changes:
            return source
        if isinstance(source, TensorModel):
            raise ArgumentError(
                "changes",
                f" cannot be applied: the model is counted {source.claim}",
                hint="change its config, and build it anew",
            )
        if source.args is not None:
            changed_model = load_family(source.args, changes=changed)
            return changed_model.replace(
                name=source.name, source=source.source, location=source.location
            )
        preset, outer = source.preset, None if source.outer is None else source.outer.data
        own_config = FoundConfig(
            name=source.name,
            source=source.source,
            keys=None,
            location=source.location,
            preset=preset,
        )
        notes = [] if preset is None else [*preset.notes]
        return _build(
            own_config, _Sections(source.wrapper, source.config.data, outer), changed, notes
        )
    if _is_module(source) or _is_state_dict(source):
        if changes or via:
            raise ArgumentError(
                "via" if via else "changes",
                " is for configurations, and this model is built already",
            )
        return _load_live(source)
    config = _find(source, None if check_tensors else [])
    if (
        is_restricted()
        and config.keys is not None
        and isinstance(source, (str, os.PathLike, FoundConfig))
    ):
        from .families.shown_keys import shown_config

        config = config.replace(keys=shown_config(config.keys, config.source))
    if via is not None:
        return _load_via_transformers(config, changes or {})
    if _has_dict(source) and not isinstance(source, ModelArgs):
        return _load_config_object(config, changes)
    data = config.keys or {}
    if not all(isinstance(key, str) for key in (*data, *(changes or {}))):
        raise ConfigError(f"{config.source}: every key should be a string")
    notes = list(config.notes)
    if is_params(data):
        return _load_params(config, changed, vocab_size, notes)
    if (counted := find_counted(Config(data, config.source).get("model_type", ""))) is not None:
        return _load_counted(counted, config, changes or {})
    if vocab_size is not None:
        changed.setdefault("vocab_size", vocab_size)
    sections = _split_sections(data, notes, config.source)
    if config.manifest is None:
        return _build(config, sections, changed, notes)
    try:
        model = _build(config, sections, changed, notes)
    except ConfigError as error:
        raise (error if changed else _metadata_error(str(error))) from None
    model = model.replace(from_gguf=True)
    return (
        model
        if changed or not check_tensors
        else _check_gguf_matches_metadata(model, config.manifest)
    )


def says_tied(changes: Keys) -> bool:
    """Whether changes say if head and embedding are tied."""
    if not changes:
        return False
    from .config_keys import any_name

    return not {x.rpartition(".")[2] for x in changes if isinstance(x, str)}.isdisjoint(
        any_name("tie_word_embeddings").split("|")
    )


@overload
def with_stored_head(model: FamilyModel, opened: OpenedCheckpoint | None = None) -> FamilyModel: ...
@overload
def with_stored_head(model: Model, opened: OpenedCheckpoint | None = None) -> Model: ...
def with_stored_head(model: Model, opened: OpenedCheckpoint | None = None) -> Model:
    """Return a model with a head of its own if its local files store one that differs from the
    embedding to which the config ties it.

    transformers computes with such a head, and ties only what is stored once or twice the same.
    `opened` is the checkpoint if it has been opened already.
    """
    if next(iter(model.tied_names), None) is None or (
        opened is None and (opened := _open_files(model.location)) is None
    ):
        return model
    from .checkpoint.naming.tied_copies import find_tied_copies

    differing = {x.name: x for x in find_tied_copies(opened, model.tied_names) if x.differs}
    if not differing:
        return model
    note = STORED_INSTEAD + " and ".join(
        f"{safe(x.name, 100)} differs from {safe(x.original, 100)}, to which the config ties it"
        for x in differing.values()
    )
    if isinstance(model, TensorModel):
        return model.untied(differing.keys(), note)
    try:
        untied = _load(model, {"tie_word_embeddings": False}, None, False, None)
    except ConfigError:
        untied = model
    if next(iter(untied.tied_names), None) is not None:
        first = next(iter(differing.values()))
        raise ConfigError(
            f"{model.source}: {safe(first.name, 100)} is stored and differs from "
            f"{safe(first.original, 100)}, to which the config ties it, "
            f"and the {model.family.name} family has no head of its own",
            hint=f"{Call('ls', Name('path'))} counts the tensors of the files",
        )
    return untied.replace(notes=(*model.notes, note))


def _open_files(location: str) -> OpenedCheckpoint | None:
    """Open the local files that a model was loaded from, as far as they can be read; None if
    there are none. Nothing is requested.
    """
    from .checkpoint.open import cached_copy, is_remote_name, names_checkpoint, open_checkpoint

    path = cached_copy(location) if location and is_remote_name(location) else location
    if not path or not names_checkpoint(path):
        return None
    try:
        return open_checkpoint(path, allow_partial=True, local_only=True)
    except LlamathError:
        return None  # what is wrong with the files is said by whoever needs them


def _load_via_transformers(config: FoundConfig, changes: Keys) -> TensorModel:
    """Load the model that transformers builds of a configuration."""
    from .checkpoint.quantization_section import quantization_section
    from .generic.module_tree import module_tree
    from .generic.transformers_process import build_in_transformers

    keys = dict(config.keys or {})
    if config.manifest is not None:
        hint = f"{Call('ls', Name('path'))} counts its tensors"
        raise ConfigError(
            f"{config.source} is a GGUF file, whose metadata are no configuration of transformers",
            hint=hint,
        )
    if is_params(keys):
        keys = (
            parse_latent_params(keys, config.source)[0]
            if is_latent(keys)
            else args_to_config(parse_params(keys, config.source, None)[0])
        )
    keys = _with_changes(keys, changes)
    built = build_in_transformers(keys, config.source, changes)
    notes = [*config.notes, *built.notes]
    if isinstance(keys.get("auto_map"), Mapping):
        notes.append(
            "auto_map points to custom code in the repository, which was not executed: "
            "the class is that of transformers"
        )
    if quantization_section(keys) is not None:
        notes.append(
            "the quantization that the config declares is not applied: dtypes and bytes "
            "are those of the plain class"
        )
    return TensorModel(
        name=config.name,
        tree=module_tree(built.tensors),
        config=Config(keys, config.source),
        source=config.source,
        notes=tuple(notes),
        preset=config.preset,
        location=config.location,
        tensors=tuple(built.tensors),
        claim=built.claim,
    )


def _load_counted(kind: CountedModel, config: FoundConfig, changes: Keys) -> TensorModel:
    """Load a model that is counted, but not computed."""
    from .generic.counted_tensors import counted_tensors
    from .generic.module_tree import module_tree

    keys = _with_changes(config.keys or {}, changes)
    read = Config(keys, config.source, preferred=frozenset(changes))
    tensors = counted_tensors(kind, read)
    unread = [x for x in read.unread() if x not in _OUTER_KEYS]
    if wrong := [x for x in changes if x in unread]:
        raise ConfigError(
            f"unknown config key {safe(repr(wrong[0]), 80)} for "
            f"{safe(str(keys.get('model_type')), 60)}"
        )
    notes = [*config.notes, *_config_notes(read, unread, None)]
    return TensorModel(
        name=config.name,
        tree=module_tree(tensors),
        config=Config(keys, config.source),
        source=config.source,
        notes=tuple(notes),
        preset=config.preset,
        location=config.location,
        tensors=tuple(tensors),
        claim=kind.claim,
        passes=kind,
    )


def _load_config_object(config: FoundConfig, changes: Keys | None) -> Model:
    """Load the model of a configuration object of transformers, which builds it if no family
    here does.
    """
    try:
        return load(config.keys or {}, changes=changes)
    except UnknownModel:
        from .generic.transformers_process import has_transformers

        if not has_transformers():
            raise
        return _load_via_transformers(config, changes or {})


def _load_live(given: Any) -> Model:
    """Load a module or a state dict: the tree of its family if it has the parameters that its
    configuration describes, else its own tensors.
    """
    from .generic.live_objects import differences, read_module, read_state_dict
    from .generic.module_tree import module_tree

    live = read_module(given) if _is_module(given) else read_state_dict(given)
    source, notes, passes = f"the given {live.what}", [*live.notes], None
    described: Model | None = None
    if live.adapters and live.keys is not None:
        notes.append("its config describes it without adapters: llamath.load(module.config)")
    elif live.keys is not None:
        try:
            described = load(live.keys)
        except (UnknownModel, ConfigError) as error:
            notes.append(f"the tree of its state dict, because its config is refused: {error}")
    if isinstance(described, FamilyModel):
        total, buffers = described.parameters.total, described.parameters.buffers
        differing = (
            []
            if live.quantized or live.is_sharded
            else differences(live, described.family, described.tree)
        )
        known = live.is_known and not live.is_sharded
        if not known or live.parameters in (total - buffers, total):
            notes += _notes_on_module(live, differing)
            return described.replace(
                name=live.name, source=source, notes=(*described.notes, *notes)
            )
        notes += differing
        notes.append(
            f"its config describes another model, of {total:,} parameters: no formulas until the "
            "config is that of the module"
        )
    elif described is not None and live.parameters == described.parameters.total:
        passes = described.passes
    if not live.is_known or live.is_sharded:
        raise _unreadable_module(live)
    if live.quantized:
        notes.append(_note_on_packed(live))
    return TensorModel(
        name=live.name,
        tree=module_tree(live.tensors),
        config=Config({} if live.keys is None else live.keys, source),
        source=source,
        notes=tuple(notes),
        tensors=live.tensors,
        claim=live.claim,
        passes=passes,
    )


def _notes_on_module(live: LiveTensors, differing: Sequence[str]) -> Iterator[str]:
    """Yield notes on a module that has as many parameters as its config describes."""
    if live.quantized:
        yield _note_on_packed(live)
    if live.is_sharded:
        yield (
            "FullyShardedDataParallel holds one rank's part of each tensor: shapes are not "
            "compared with the config"
        )
    if differing:
        yield (
            "its tensors have other names or shapes than those of files, with as many parameters "
            f"in all: {differing[0]}"
        )


def _note_on_packed(live: LiveTensors) -> str:
    return (
        f"the weights are quantized ({safe(live.quantized, 100)}): counted as the values that "
        "they stand for"
    )


def _unreadable_module(live: LiveTensors) -> LlamathError:
    """Return an error about a module whose tensors do not tell its parameters."""
    why = (
        "sharded by FullyShardedDataParallel"
        if live.is_sharded
        else f"quantized ({safe(live.quantized, 100)}), with a number of values that is not known"
    )
    return LlamathError(
        f"the given {live.what} is {why}, and no family tells its parameters",
        hint=f"count its saved checkpoint, {Call('ls', Name('path'))}, or the module as it was "
        "before",
    )


def _is_state_dict(source: object) -> bool:
    """Return whether an object maps names to tensors."""
    return isinstance(source, Mapping) and any(
        hasattr(x, "shape") and hasattr(x, "dtype") for x in source.values()
    )


def _find(source: object, problems: list[FormatError] | None) -> FoundConfig:
    """Find the configuration of a source, whatever kind of source it is."""
    if isinstance(source, FoundConfig):
        return source
    if isinstance(source, Preset):
        return _preset_config(source)
    if isinstance(source, ModelArgs):
        source = {
            name: value for name in source.fields if (value := getattr(source, name)) is not None
        }
    elif _has_dict(source):
        source = source.to_dict()
    if isinstance(source, Mapping):
        name = str(source.get("model_type") or short_args(source) or "model")
        return FoundConfig(name=name, source="the given keys", keys=source)
    if not isinstance(source, (str, os.PathLike)):
        kind = type(source).__name__
        raise ConfigError(
            f"cannot load an object of type {kind}",
            hint="give a path, a preset, a mapping of keys, a ModelArgs or a transformers config",
        )
    text = os.fspath(source)
    if text == "-":
        keys = parse_json(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input", finite=False)
        return FoundConfig(name="standard input", source="standard input", keys=keys)
    if os.path.lexists(text):
        return _find_at(text, problems)
    if text == embedded.MODEL_NAME:
        return _find_at(embedded.path(), problems).replace(
            name="embedded", source="the embedded model", location=text
        )
    if is_url(text):
        return _find_at(text, problems)
    if find_repo(text) is not None:
        preset = find_public_id(text)
        return _find_unlisted(text, problems) if preset is None else _preset_config(preset)
    if (args := parse_args_text(text)) is not None:
        return FoundConfig(name=short_args(args) or "model", source="the given keys", keys=args)
    if text.endswith(".json") or text.startswith((".", "/", "~")):
        hint = "a model is a config.json, params.json, their folder, a preset or a public id"
        raise ConfigError(f"{safe(text)} does not exist", hint=hint)
    return _preset_config(find_preset(text))


def _find_unlisted(text: str, problems: list[FormatError] | None) -> FoundConfig:
    """Find the configuration of a repository that is no preset's; of a model that is known and
    refused, the reason counts where it cannot be read.
    """
    try:
        return _find_at(text, problems)
    except RemoteError:
        if (refused := find_refused(text)) is None:
            raise
        raise refusal(refused) from None


def _preset_config(preset: Preset) -> FoundConfig:
    source = f"preset {preset.slug}: {preset.source}"
    return FoundConfig(
        name=preset.name, source=source, keys=preset.config, notes=preset.notes, preset=preset
    )


def _find_at(text: str, problems: list[FormatError] | None) -> FoundConfig:
    """Find the configuration at a path or address, or in the folder of the checkpoint there."""
    config = find_config(text, problems)
    if config.manifest is not None:
        from .families.gguf_config import with_gguf_keys

        config = with_gguf_keys(config)
    if config.keys is None:
        if not config.has_checkpoint:
            raise ConfigError(
                f"{safe(text)} has neither config.json nor params.json, and no checkpoint"
            )
        from .checkpoint.formats.folder_kind import kind_error
        from .checkpoint.gguf_metadata.gguf_header import count_hint

        if (other := kind_error(text)) is not None:
            raise UnknownModel(str(other), hint=other.hint)
        raise UnknownModel(
            f"{safe(text)} has neither config.json nor params.json, so its family is unknown",
            hint=count_hint(),
        )
    return config.replace(location=config.location or text)


def _load_params(
    source: FoundConfig, changes: dict[str, Any], vocab_size: int | None, notes: list[str]
) -> FamilyModel:
    """Load a model from Meta's `params.json`; `changed` may hold keys of either format."""
    if is_latent(source.keys or {}):
        return _load_latent_params(source, changes, notes)
    meta_args = {key: changes.pop(key) for key in list(changes) if key in ModelArgs.fields}
    data = {**(source.keys or {}), **meta_args}
    if vocab_size is None and data.get("vocab_size", -1) == -1:
        vocab_size = _vocab_size(source.folder, notes)
    args, config = parse_params(data, source.source, vocab_size)
    extra = extra_config_keys(config)
    if ignored := [safe(key) for key in config.unread()]:
        notes.append(f"ignored config keys: {', '.join(ignored)}")
    notes.append(
        "params.json does not say whether the output matrix is tied; counted as untied "
        "(tie_word_embeddings=true ties it)"
    )
    sections = _split_sections({**args_to_config(args), **extra}, notes, source.source)
    try:
        return _build(source, sections, changes, notes).replace(
            args=None if changes or extra else args
        )
    except ConfigError as error:
        raise _with_meta_name(error) from None


def _load_latent_params(
    source: FoundConfig, changes: dict[str, Any], notes: list[str]
) -> FamilyModel:
    """Load a model from Mistral's `params.json` with latent attention."""
    given = dict(source.keys or {})
    own = {key: changes.pop(key) for key in list(changes) if key in given}
    keys, config = parse_latent_params({**given, **own}, source.source)
    if ignored := [safe(key) for key in config.unread()]:
        notes.append(f"ignored config keys: {', '.join(ignored)}")
    notes.append("tensors have the names of transformers' class; files of params.json have others")
    return _build(source, _split_sections(keys, notes, source.source), changes, notes)


def _vocab_size(folder: str, notes: list[str]) -> int | None:
    """Return the size of the vocabulary in `tokenizer.model`, in the folder or its parent."""
    from .checkpoint.formats.tokenizer_model import count_model_tokens

    for parent in (folder, os.path.dirname(os.path.abspath(folder))) if folder else ():
        path = os.path.join(parent, "tokenizer.model")
        if may_read(path) and os.path.lexists(path):
            size = count_model_tokens(path)
            notes.append(f"vocab_size {size:,} taken from {safe(path)}")
            return size
    return None


_STORAGE_KEYS = (
    "quantization_config",
    "compression_config",
    "quantization",
    "dtype",
    "torch_dtype",
    SHARD_KEY,
)
"""Keys on stored numbers, which a wrapper's configuration has for all of its parts."""


_OUTER_KEYS = ("model_type", "architectures", *_STORAGE_KEYS)
"""Keys at the outer level of any configuration that are not of the text model."""


class _Sections(NamedTuple):
    """A configuration, divided."""

    wrapper: str  # model type of a multimodal model; empty for a text model by itself
    text: Keys  # configuration of the text model
    outer: Keys | None = None  # the whole configuration, if all parts of the model are known


def _split_sections(data: Keys, notes: list[str], source: str) -> _Sections:
    """Divide the configuration of a multimodal model; that of a text model has one section."""
    data = _with_type_of_class(data, notes, source)
    model_type = Config(data, source).get("model_type", "")
    wrapper = find_wrapper(model_type, has_sections=_text_key(data) is not None)
    for variant in wrapper.variants:
        if data.get(variant.key) == variant.value:
            model_type = variant.model_type
            wrapper = find_wrapper(model_type)
    data = _nested(data, wrapper)
    key = _text_key(data)
    if key is None:
        return _Sections("", data)
    text: dict[str, Any] = dict(data[key])
    if wrapper.overrides_type:
        text["model_type"] = wrapper.text_type
    elif text.get("model_type") in (None, "") and wrapper.text_type:
        notes.append(
            f"{safe(key)} has no model_type; in {safe(model_type, 60)} it is {wrapper.text_type}"
        )
        text["model_type"] = wrapper.text_type
    family = FAMILIES.find(str(text.get("model_type")))
    defaults = {} if family is None else family.class_defaults
    if missing := {name: value for name, value in defaults.items() if text.get(name) is None}:
        notes.append(
            f"not in {safe(key)}, so the defaults of its class are used: {', '.join(missing)}"
        )
        text |= missing
    if (tied := _is_tied(wrapper, data, text)) is not None:
        text["tie_word_embeddings"] = tied
    for name in _STORAGE_KEYS:
        if data.get(name) is not None and text.get(name) is None:
            text[name] = data[name]
    without_towers = "quantization" in data and not any(
        isinstance(data.get(x), Mapping) for x in _TOWER_KEYS
    )
    if without_towers:
        notes.append("text model only: mlx-lm leaves out the towers and their configuration")
    elif wrapper.family is not None:
        return _Sections(model_type, text, data)
    else:
        parts = [
            safe(x)
            for x in data
            if x.endswith("_config")
            and x not in (key, *_STORAGE_KEYS)
            and isinstance(data[x], Mapping)
        ]
        notes.append(
            "text model only; not counted: "
            f"{', '.join(parts) or 'the rest of the multimodal model'}"
        )
    return _Sections(model_type, text)


def _with_type_of_class(data: Keys, notes: list[str], source: str) -> Keys:
    """Return a configuration with the model type of the class in `architectures`, where that one
    decides.
    """
    model_type, classes = Config(data, source).get("model_type", ""), data.get("architectures")
    name = classes[0] if isinstance(classes, list) and classes else None
    if not isinstance(name, str) or name.lower().startswith(
        model_type.replace("_", "").replace("-", "") or "\0"
    ):
        return data
    decided = type_of_architecture(name)
    if decided is None or decided == model_type:
        return data
    if model_type:
        notes.append(f"model_type is {safe(model_type, 60)}, but architectures names {name}")
    return {**data, "model_type": decided}


def _text_key(data: Keys) -> str | None:
    """Return the key of the text model's configuration; None if there is none."""
    return next((x for x in TEXT_KEYS if isinstance(data.get(x), Mapping)), None)


def _is_tied(wrapper: Wrapper, data: Keys, text: Keys) -> Any:
    """Return whether a multimodal model ties embedding and head; None if its text model's
    configuration decides.

    transformers 5 leaves out what is its class's default, whatever the text model's configuration
    says.
    """
    if wrapper.tied_by == "text":
        return None
    if wrapper.tied_by == "either":
        default = bool(wrapper.tied)
        return data.get("tie_word_embeddings", default) or text.get("tie_word_embeddings", default)
    for key in wrapper.tied_keys:
        if data.get(key) is not None:
            return data[key]
    saved_by_5 = str(data.get("transformers_version", "")).startswith("5.")
    if wrapper.tied:
        return True if saved_by_5 else text.get("tie_word_embeddings", True)
    return wrapper.tied if saved_by_5 else None


def _nested(data: Keys, wrapper: Wrapper) -> Keys:
    """Return a multimodal configuration with the text model's keys at the outer level in the
    form with a section for them.
    """
    if wrapper.inner:
        inner = data.get(INNER_KEY)
        sections = (
            {f"{name}_config": x for name, x in inner.items() if isinstance(x, Mapping)}
            if isinstance(inner, Mapping)
            else {}
        )
        text = {
            "architectures": data.get("architectures", []),
            **sections.get("text_config", {}),
            "model_type": wrapper.text_type,
        }
        return {
            **{name: x for name, x in data.items() if name != INNER_KEY},
            **sections,
            "text_config": text,
        }
    if not wrapper.flat or _text_key(data) is not None:
        return data
    outer_keys = {*_OUTER_KEYS, *wrapper.outer_keys.split()}
    outer = {key: x for key, x in data.items() if key.endswith("_config") or key in outer_keys}
    if wrapper.text_type == data["model_type"] and not any(
        isinstance(x, Mapping) and key not in _STORAGE_KEYS for key, x in outer.items()
    ):
        return data
    text = {key: x for key, x in data.items() if key not in outer}
    return {**outer, "text_config": {**text, "model_type": wrapper.text_type}}


def _build(
    source: FoundConfig, sections: _Sections, changes: Keys, notes: list[str]
) -> FamilyModel:
    """Build the model that a configuration describes."""
    wrapper, data, whole = sections
    config = Config(_with_changes(data, changes), source.source, preferred=frozenset(changes))
    model_type = config.get("model_type", "")
    if not model_type:
        where = (
            (
                f" in the configuration of the text model of {safe(wrapper, 60)}, which may be "
                "of any family"
            )
            if wrapper
            else ""
        )
        from .utils.file_diagnosis import diagnose_keys

        if not wrapper and (other := diagnose_keys(data)):
            raise ConfigError(
                f"{source.source} is {other}, not a model's configuration",
                hint="the configuration of a model is its config.json, which has a model_type",
            )
        raise config.error(
            "model_type",
            f"is missing{where}",
            "the family is never guessed"
            + (f"; give {Argument('changes', {'model_type': Name('…')})}" if wrapper else ""),
        )
    family = find_family(model_type, source.source)
    tree, outer = _build_tree(family, config), None
    family = family.for_tree(tree)
    if whole is not None:
        outer = Config(_with_changes(whole, changes), source.source, preferred=frozenset(changes))
        family, tree, outer = _add_towers(family, tree, outer, wrapper, notes)
    elif wrapper:
        family = family.replace(hf=find_wrapper(wrapper).rename_text(family.hf))
    if not wrapper:
        from .families.model_class import apply_class

        family, tree, note = apply_class(family, tree, config)
        notes += [safe(note)] if note else []
    if (shard := parse_shard(data, source.source)) is not None:
        config.ignore(SHARD_KEY)
        notes.append(f"the weights next to this config are {shard}; the whole model is counted")
    unread = [
        x for x in config.unread() if outer is None or x not in changes or not outer.has_read(x)
    ]
    _reject_unsupported(config, tree, unread)
    for key in changes:
        if key in unread and key not in _STORAGE_KEYS:
            from .config_keys import key_of_word

            meant = key_of_word(key, config.keys_read, data)
            near = [meant] if meant else nearest(key, config.keys_read)
            hint = f"did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError(
                f"unknown config key {safe(repr(key), 80)} for the {family.name} family", hint=hint
            )
    notes += _config_notes(config, unread, outer)
    if source.preset is not None and "context" in source.preset.unknown and tree.positions is None:
        tree = tree.replace(context=None)
    return FamilyModel(
        name=source.name,
        family=family,
        tree=tree,
        config=config,
        source=source.source,
        notes=tuple(notes),
        preset=source.preset,
        location=source.location,
        wrapper=wrapper,
        outer=outer,
    )


def _add_towers(
    family: Family, text: Decoder, outer: Config, model_type: str, notes: list[str]
) -> tuple[Family, Decoder, Config | None]:
    """Add the towers and projectors of a multimodal model to its text model, and their names to its
    family.

    With a tower of an unknown type, the text model alone is known.
    """
    wrapper = find_wrapper(model_type)
    if wrapper.note:
        notes.append(wrapper.note)
    assert wrapper.family is not None
    try:
        with _fault_of(outer, model_type):
            family_of_all, tree = wrapper.family.complete(outer, text, family, wrapper)
    except UnknownModel as error:
        notes.append(f"text model only; not counted: its towers, for {error}")
        return family.replace(hf=wrapper.rename_text(family.hf)), text, None
    return family_of_all, tree, outer


def _build_tree(family: Family, config: Config) -> Decoder:
    """Build the family's tree."""
    with _fault_of(config, family.name):
        return family(config)


@contextmanager
def _fault_of(config: Config, name: str) -> Iterator[None]:
    """Name the configuration whose values make no model: a block refuses them, or a size cannot
    be computed.
    """
    try:
        yield
    except ImpossibleModel as error:
        raise config.located(error) from None
    except ArithmeticError as error:
        raise ConfigError(
            f"{config.source}: its sizes make no {name} model: {error}",
            hint="a size is zero or too large",
        ) from None


def _with_changes(data: Keys, changes: Keys) -> dict[str, Any]:
    """Return the keys with changes applied; a dotted key reaches into a nested object."""
    merged = dict(data)
    for key, value in changes.items():
        outer, _, inner = key.partition(".")
        if inner and isinstance(merged.get(outer), Mapping):
            merged[outer] = {**merged[outer], inner: value}
        else:
            merged[key] = value
    return merged


def _with_meta_name(error: ConfigError) -> ConfigError:
    """Return an error about a `params.json` with the name that a key has in that file."""
    if error.about_key is None or error.about_key[1] not in META_NAME_OF_KEY:
        return error
    where, key, problem = error.about_key
    return ConfigError.of_key(where, META_NAME_OF_KEY[key], problem, hint=error.hint)


def _reject_unsupported(config: Config, tree: Decoder, unread: list[str]) -> None:
    """Raise an error if unread keys stand for weights that the family's tree lacks: a count
    without them would be wrong.
    """
    for key, feature in UNSUPPORTED_KEYS.items():
        if key in unread and config.data[key]:
            raise config.error(
                key, f"asks for {feature}, which this family does not have", other_ways()
            )
    stacks = list(iter_stacks(*(x for x, _ in tree.layers.distinct())))
    counts = {int(x.n) for x in stacks}
    for key in _EXPERT_KEYS:
        if key in unread and isinstance(n := config.data[key], int) and n > 1 and n not in counts:
            raise config.error(
                key,
                f"asks for {n} experts, which this family does not have",
                "is model_type right? " + other_ways(),
            )
    for experts in stacks:
        least = 0 if experts.first else 1  # no token of text passes through experts for images
        if experts.active is not None and not least <= experts.active <= experts.n:
            message = (
                f"{config.source}: a token cannot pass through {experts.active} of "
                f"{experts.n} experts"
            )
            raise ConfigError(
                message, hint="num_experts_per_tok should be at most the number of experts"
            )


def _config_notes(config: Config, unread: list[str], outer: Config | None) -> list[str]:
    """Return notes on dimensions that the configuration lacks, custom code, and unknown keys."""
    assumed, notes_on_parts = dict(config.assumed_dims), list[str]()
    if outer is not None:
        absent = [key for key, value in outer.defaults_used.items() if isinstance(value, Mapping)]
        notes_on_parts = [f"{key} not in config; using the defaults of its class" for key in absent]
        for name, part in (
            ("", outer),
            *((x, y) for x, y in outer.nested.items() if x not in absent),
        ):
            assumed |= {
                f"{name}.{key}".lstrip("."): value for key, value in part.assumed_dims.items()
            }
        unread = [
            *unread,
            *(x for x in outer.unread() if x not in TEXT_KEYS and x not in config.keys_read),
        ]
    notes = [
        f"{key} not in config; using {value}" for key, value in assumed.items()
    ] + notes_on_parts
    for key, others in config.disagreements.items():
        values = " and ".join(
            f"{name} {safe(repr(config.data[name]), 60)}" for name in (key, *others)
        )
        notes.append(f"{values} are for the same thing; the class of transformers reads {key}")
    if isinstance(config.data.get("auto_map"), dict):
        notes.append(
            "auto_map points to custom code in the repository; counted as the family of "
            "its model_type"
        )
    if unread:
        from .config_keys import NO_EFFECT

        if unknown := [safe(key, 60) for key in unread if not _has_no_effect(key, NO_EFFECT)]:
            more = f", and {len(unknown) - _MAX_NAMED:,} more" if len(unknown) > _MAX_NAMED else ""
            notes.append(f"ignored config keys: {', '.join(unknown[:_MAX_NAMED])}{more}")
    return notes


def _has_no_effect(key: str, known: Mapping[str, str]) -> bool:
    """Whether a key that was not read changes nothing; in the section of a tower, it is looked
    up by its own name.
    """
    return (
        key in known
        or key.startswith("_")
        or key.endswith(("_token_id", "_token_index"))
        or key.partition(".")[2] in known
    )


def _check_gguf_matches_metadata(model: FamilyModel, manifest: Manifest) -> FamilyModel:
    """Return the model if the tensors of its GGUF file match the metadata; with a note if only
    the number of parameters does.
    """
    from .checkpoint.gguf_metadata.loaded_tensors import is_auxiliary_tensor

    expected = {x.name: tuple(map(int, x.shape)) for x in model.scheme("gguf").tensors(model.tree)}
    layers = model.tree.own_layers
    stored = {
        x.name: x.shape
        for x in manifest.tensors
        if x.name in expected or not is_auxiliary_tensor(x.name, layers)
    }
    differing = [name for name in (expected | stored) if expected.get(name) != stored.get(name)]
    if not differing:
        return model
    total, stored_total = model.parameters.total, sum(map(prod, stored.values()))
    first = (
        f"{safe(differing[0])} is {_format_shape(stored.get(differing[0]))}, expected "
        f"{_format_shape(expected.get(differing[0]))}"
    )
    if stored_total == total:
        note = (
            f"{len(differing):,} tensors differ from llama.cpp's current format, with as many "
            f"parameters in all: {first}"
        )
        return model.replace(notes=(*model.notes, note))
    described = (
        f"{model.source}: its metadata describe {total:,} parameters of the "
        f"{model.family.name} family"
    )
    raise _metadata_error(f"{described}, its tensors hold {stored_total:,}: {first}")


def _metadata_error(reason: str) -> UnknownModel:
    """Return an error about a GGUF file whose metadata describe no model."""
    from .checkpoint.gguf_metadata.gguf_header import count_hint

    check = Call("verify", Name("path"))
    return UnknownModel(reason, hint=f"{count_hint()}; {check} lists the differences")


def _format_shape(shape: tuple[int, ...] | None) -> str:
    return "absent" if shape is None else str(list(shape))
