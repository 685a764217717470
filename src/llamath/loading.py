"""`load`: anything that names a model → a `Model`. A path, a preset, a public id, `-` for standard input, or a mapping of keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import embedded
from .catalog import find_preset
from .checkpoint.open import find_config, is_url
from .core.blocks import Decoder
from .core.config import Config
from .core.errors import ConfigError, FormatError, UnknownModel, nearest, safe
from .core.meta_args import META_NAME_OF_KEY, ModelArgs, args_to_config, extra_config_keys, is_params, parse_params
from .core.record_type import Record
from .core.strict_json import MAX_BYTES, parse_json
from .families import Family, find_family
from .model import Model
from .unsupported import config_notes, reject_unsupported

if TYPE_CHECKING:
    from .checkpoint.formats.manifest import Manifest

Keys = Mapping[str, Any]


class Found(Record):
    """A configuration that has been found, before anybody knows its family."""

    name: str
    source: str
    data: Keys
    folder: str = ""
    notes: tuple[str, ...] = ()
    manifest: Manifest | None = None  # of a GGUF file that its own metadata describe


def load(
    source: str | os.PathLike[str] | Keys | ModelArgs,
    *,
    changes: Keys | None = None,
    vocab_size: int | None = None,
    check_tensors: bool = True,
) -> Model:
    """Load a model from whatever names it; `changes` replaces configuration keys, `vocab_size` fills a gap in Meta's `params.json`.

    A GGUF file that is too short, or whose tensors are not what its metadata stand for, is refused, unless `held` is false.
    """
    if isinstance(source, ModelArgs):
        source = {name: value for name in source.fields if (value := getattr(source, name)) is not None}
    found = _found(source, None if check_tensors else [])
    data = found.data
    if not all(isinstance(key, str) for key in (*data, *(changes or {}))):
        raise ConfigError(f"{found.source}: every key should be a string", hint="JSON knows no other keys")
    changed = {key.removeprefix("text_config."): value for key, value in (changes or {}).items()}
    notes = list(found.notes)
    args: ModelArgs | None = None
    besides: dict[str, Any] = {}
    if is_params(data):
        own = {key: changed.pop(key) for key in list(changed) if key in ModelArgs.fields}
        args, besides = _from_params(found.replace(data={**data, **own}), vocab_size, notes)
        data = {**args_to_config(args), **besides}
    elif vocab_size is not None:
        changed.setdefault("vocab_size", vocab_size)
    wrapper, data = _text(data, notes)
    if args is not None:
        if "intermediate_size" in changed:
            notes = [x for x in notes if not x.startswith("feed-forward width")]
        try:
            return _built(found, wrapper, data, changed, notes).replace(args=None if changed or besides else args)
        except ConfigError as error:
            raise _in_meta_words(error) from None
    if found.manifest is None:
        return _built(found, wrapper, data, changed, notes)
    from .gguf_matches import check_gguf_matches_metadata, not_a_model

    try:
        model = _built(found, wrapper, data, changed, notes)
    except ConfigError as error:
        raise (error if changed else not_a_model(str(error))) from None
    return model if changed or not check_tensors else check_gguf_matches_metadata(model, found.manifest)


def _found(source: str | os.PathLike[str] | Keys, problems: list[FormatError] | None) -> Found:
    if isinstance(source, Mapping):
        return Found(name=str(source.get("model_type", "model")), source="the given keys", data=source)
    text = os.fspath(source)
    if text == "-":
        return Found(
            name="standard input", source="standard input", data=parse_json(sys.stdin.buffer.read(MAX_BYTES + 1), "standard input")
        )
    if os.path.lexists(text):
        return _file(text, problems)
    if text == embedded.MODEL_NAME:
        return _file(embedded.path(), problems).replace(name="embedded", source="the embedded model")
    if is_url(text):
        return _file(text, problems)
    if text.endswith(".json") or text.startswith((".", "/", "~")):
        raise ConfigError(
            f"{safe(text)} does not exist", hint="a MODEL is a config.json, params.json, their folder, a preset or a public id"
        )
    preset = find_preset(text)
    return Found(name=preset.name, source=f"preset {preset.slug}: {preset.source}", data=preset.config)


def _file(text: str, problems: list[FormatError] | None) -> Found:
    """The configuration at a path or address, or in the folder of the checkpoint there."""
    found = find_config(text, problems)
    if found.keys is None:
        if not found.has_checkpoint:
            raise ConfigError(f"{safe(text)} has neither config.json nor params.json, and no checkpoint")
        from .checkpoint.gguf_metadata import COUNT_HINT

        raise UnknownModel(f"{safe(text)} has neither config.json nor params.json, so nothing says which family it is", hint=COUNT_HINT)
    return Found(name=found.name, source=found.source, data=found.keys, folder=found.folder, notes=found.notes, manifest=found.manifest)


def _from_params(found: Found, vocab_size: int | None, notes: list[str]) -> tuple[ModelArgs, dict[str, Any]]:
    """Meta's arguments, and what a file says beside them, in Hugging Face's keys."""
    if vocab_size is None and found.data.get("vocab_size", -1) == -1:
        vocab_size = _vocabulary(found.folder, notes)
    args, read = parse_params(found.data, found.source, vocab_size)
    besides = extra_config_keys(read)
    notes += [f"not read: {safe(key)}" for key in read.unread()]
    if "intermediate_size" not in besides:
        formula = "multiple_of · ⌈int(ffn_dim_multiplier · int(8 · dim / 3)) / multiple_of⌉"
        given = f"multiple_of {args.multiple_of}, multiplier {args.ffn_dim_multiplier or 'none'}"
        notes.append(f"feed-forward width {args.ffn_width} = {formula}, {given}")
    unsaid = "params.json does not say whether embedding and output share one matrix"
    notes.append(f"{unsaid}: two are counted (--set tie_word_embeddings=true for one)")
    return args, besides


def _vocabulary(folder: str, notes: list[str]) -> int | None:
    from .checkpoint.formats.tokenizer_model import vocabulary

    for place in (folder, os.path.dirname(os.path.abspath(folder))) if folder else ():
        if os.path.lexists(path := os.path.join(place, "tokenizer.model")):
            size = vocabulary(path)
            notes.append(f"vocabulary of {size:,} from {safe(path)}")
            return size
    return None


def _text(data: Keys, notes: list[str]) -> tuple[str, Keys]:
    """The text model of a multimodal configuration, and the type of what it stands in."""
    from .families.wrappers import TEXT_CONFIG_DEFAULTS, TEXT_KEYS, TIED_BY_DEFAULT

    key = next((x for x in TEXT_KEYS if isinstance(data.get(x), Mapping)), None)
    if key is None:
        return "", data
    text: dict[str, Any] = dict(data[key])
    defaults = TEXT_CONFIG_DEFAULTS.get(str(text.get("model_type")), {})
    if silent := {name: value for name, value in defaults.items() if text.get(name) is None}:
        notes.append(f"{safe(key)} is silent on {', '.join(silent)}: its class's defaults are taken")
        text |= silent
    if data.get("tie_word_embeddings") is True:
        text["tie_word_embeddings"] = True
    elif "tie_word_embeddings" in data or str(data.get("model_type")) in TIED_BY_DEFAULT:
        text.setdefault("tie_word_embeddings", data.get("tie_word_embeddings", True))
    parts = [safe(x) for x in data if x.endswith("_config") and x != key and isinstance(data[x], Mapping)]
    notes.append(f"the text model alone; not counted: {', '.join(parts) or 'what surrounds it'}")
    return str(data.get("model_type", "")), text


def _built(found: Found, wrapper: str, data: Keys, changed: Keys, notes: list[str]) -> Model:
    config = Config(_with(data, changed), found.source, first=frozenset(changed))
    model_type = config.get("model_type", "")
    if not model_type:
        raise config.error("model_type", "is missing", "without it the family is a guess, and nothing here is guessed")
    family = find_family(model_type, found.source)
    if wrapper:
        from .families.wrappers import with_wrapper_prefix

        family = family.replace(hf=with_wrapper_prefix(family.hf, wrapper))
    tree = _tree(family, config)
    if not wrapper:
        from .families.classes import apply_class

        family, tree, remark = apply_class(family, tree, config)
        notes += [safe(remark)] if remark else []
    unread = list(config.unread())
    reject_unsupported(config, tree, unread)
    for key in changed:
        if key in unread:
            near = nearest(key, config.keys_read)
            raise ConfigError(
                f"{safe(key)} is no key that the {family.name} family reads", hint=f"did you mean {' or '.join(near)}?" if near else ""
            )
    notes += config_notes(config, unread)
    return Model(name=found.name, family=family, tree=tree, config=config, source=found.source, notes=tuple(notes), wrapper=wrapper)


def _tree(family: Family, config: Config) -> Decoder:
    """The family's tree; numbers that no arithmetic can use are the configuration's fault."""
    try:
        return family(config)
    except ArithmeticError as error:
        raise ConfigError(f"{config.source}: its numbers make no {family.name} model: {error}", hint="a zero or a size too large") from None


def _with(data: Keys, changed: Keys) -> dict[str, Any]:
    """The keys as changed; a dotted key reaches into an object, and `text_config.` is the text model itself."""
    made = dict(data)
    for key, value in changed.items():
        outer, _, inner = key.partition(".")
        if inner and isinstance(made.get(outer), Mapping):
            made[outer] = {**made[outer], inner: value}
        else:
            made[key] = value
    return made


def _in_meta_words(error: ConfigError) -> ConfigError:
    """An error about a `params.json`, in the words of that file."""
    text = str(error)
    for ours, theirs in META_NAME_OF_KEY.items():
        text = text.replace(f": {ours} ", f": {theirs} ")
    return ConfigError(text, hint="" if "head_dim" in error.hint else error.hint)
