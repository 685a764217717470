"""A program that builds the class of a configuration in transformers on the meta device, and prints
the tensors of its state dict.

`transformers_process` runs it, isolated and with limits: it reads a configuration from standard
input and writes one JSON object to standard output. Nothing of a repository is executed: code that
`auto_map` names is ignored, and nothing is downloaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MEMORY_LIMIT = 8 << 30
"""Bytes of private memory that a class may allocate while it is built; weights on the meta
device need none."""
CPU_SECONDS = 180
AUTO_CLASSES = (
    *(
        "ImageTextToText",
        "MultimodalLM",
        "SpeechSeq2Seq",
        "Seq2SeqLM",
        "MaskedLM",
        "CausalLM",
        "PreTraining",
    ),
    *(
        "CTC",
        "TextToWaveform",
        "TextToSpectrogram",
        "ZeroShotImageClassification",
        "ImageClassification",
        "ObjectDetection",
    ),
    *(
        "UniversalSegmentation",
        "SemanticSegmentation",
        "DepthEstimation",
        "TimeSeriesPrediction",
        "MaskGeneration",
    ),
)
"""Auto classes in the order in which they are tried for a configuration that names no class; the
bare model is last."""
_UNUSED_KEYS = frozenset(
    ("auto_map", "quantization_config", "compression_config", "custom_pipelines")
)
_UNUSED_SUFFIX = "_implementation"  # of keys that choose kernels, which may name a repository


class CannotBuild(Exception):
    """transformers has no class for a configuration, or refuses it; the text says why."""


def main() -> None:
    """Read a configuration, and print the tensors of its class, or why there is none."""
    keys = json.loads(sys.stdin.buffer.read())
    output, sys.stdout = sys.stdout, sys.stderr  # what classes print is no part of the answer
    try:
        answer = build(keys["config"], keys["changed"], limited=True)
    except CannotBuild as error:
        answer = {"error": str(error)}
    json.dump(answer, output)
    output.flush()


def build(
    config: Mapping[str, Any], changed: Iterable[str] = (), *, limited: bool = False
) -> dict[str, Any]:
    """Build the class of a configuration, and return its tensors as files have them; it must
    have the `changed` keys.
    """
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if limited:
        _limit_resources()
    try:
        parsed = _parse_config(config)
        _check_known(changed, parsed)
        model_class, notes = choose_class(parsed)
        with torch.device("meta"):
            model = _build_module(model_class, parsed)
        return {
            "version": transformers.__version__,
            "class": type(model).__name__,
            "notes": notes,
            **describe_module(model, notes),
        }
    except CannotBuild as error:
        raise CannotBuild(f"transformers {transformers.__version__} {error}") from None
    except MemoryError:
        raise CannotBuild(
            f"transformers {transformers.__version__} needs more than "
            f"{MEMORY_LIMIT >> 30} GiB to build the class"
        ) from None
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        raise CannotBuild(
            f"transformers {transformers.__version__} cannot build it: {message}"
        ) from None


def _limit_resources() -> None:
    """Limit memory, time and files from here on, where the system can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    for kind, most in (
        (resource.RLIMIT_DATA, MEMORY_LIMIT),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(
            kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
        )


def _parse_config(config: Mapping[str, Any]) -> Any:
    """Return the configuration object of a model type, as `from_pretrained` makes it."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    keys = _without_unused(config)
    model_type = keys.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise CannotBuild("needs a model_type, which this config lacks")
    if model_type not in CONFIG_MAPPING:
        code = (
            "; the code that its auto_map names is never executed" if config.get("auto_map") else ""
        )
        raise CannotBuild(f"has no class for model_type {model_type[:60]!r}{code}")
    return CONFIG_MAPPING[model_type].from_dict(keys)


def _without_unused(value: Any) -> Any:
    """Return a configuration without the keys that name code, kernels or quantization, at any
    depth.
    """
    if isinstance(value, Mapping):
        kept = {
            key: x
            for key, x in value.items()
            if key not in _UNUSED_KEYS and not key.endswith(_UNUSED_SUFFIX)
        }
        return {key: _without_unused(x) for key, x in kept.items()}
    return [_without_unused(x) for x in value] if isinstance(value, list) else value


def _check_known(keys: Iterable[str], config: Any) -> None:
    """Raise if a key, in which dots reach into nested configurations, is none that the class of
    a configuration has.
    """
    for key in keys:
        part = type(config)()
        for name in key.split("."):
            if not hasattr(part, name) and name not in ("architectures", "model_type"):
                raise CannotBuild(
                    f"does not know the config key {key[:80]!r} of {type(config).__name__}"
                )
            part = getattr(part, name, None)


def choose_class(config: Any) -> tuple[type, list[str]]:
    """Return the class that a configuration names in `architectures`, else the first of the auto
    classes that has its type; and notes.
    """
    import transformers
    from transformers.models.auto import modeling_auto

    named = [x for x in getattr(config, "architectures", None) or [] if isinstance(x, str)]
    for x in named[:1]:
        found = getattr(transformers, x, None)
        if (
            isinstance(found, type)
            and issubclass(found, transformers.PreTrainedModel)
            and _takes(found, config)
        ):
            return found, []
    notes = [f"transformers has no class {named[0][:80]!r} for this model type"] if named else []
    for auto in (*AUTO_CLASSES, ""):
        if auto == "MaskedLM" and (
            getattr(config, "is_decoder", False)
            or config.model_type in _prefers_causal(modeling_auto)
        ):
            continue
        mapping = getattr(
            modeling_auto, f"AutoModelFor{auto}" if auto else "AutoModel"
        )._model_mapping
        if type(config) in mapping:
            found = mapping[type(config)]
            return (found[0] if isinstance(found, tuple) else found), notes
    raise CannotBuild(f"has no model class for model_type {config.model_type!r}")


def _prefers_causal(modeling_auto: Any) -> frozenset[str]:
    """Return the types of decoders that also have a masked class."""
    causal, masked = (
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    )
    return frozenset(x for x in causal if x not in masked)


def _takes(model_class: Any, config: Any) -> bool:
    """Whether a class is for this configuration, or for that of its text model."""
    wanted = getattr(model_class, "config_class", None)
    return wanted is not None and (
        isinstance(config, wanted) or config.sub_configs.get("text_config") is wanted
    )


def _build_module(model_class: Any, config: Any) -> Any:
    """Build a class as `from_config` does, with plain attention, in a dtype that torch can
    compute with.
    """
    import torch

    if (
        config.sub_configs.get("text_config") is not None
        and model_class.config_class is config.sub_configs["text_config"]
    ):
        config = config.get_text_config()
    dtype = getattr(torch, str(config.dtype).removeprefix("torch."), None) if config.dtype else None
    if dtype not in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        dtype = None
    return model_class._from_config(config, dtype=dtype, attn_implementation="eager")


def describe_module(model: Any, notes: list[str]) -> dict[str, Any]:
    """Return the number of parameters, the dtype and the tensors as `save_pretrained` writes
    them: name, dtype, shape, kind, tied to.
    """
    state = model.state_dict()
    buffers = {_storage(x) for x in model.buffers()}
    stored = _in_order(
        _stored_names(model, state, notes),
        state,
        getattr(model, "all_tied_weights_keys", None) or (),
    )
    tensors: list[tuple[str, str, list[int], str, str]] = []
    seen: dict[Any, str] = {}
    for name, x in stored.items():
        first = seen.setdefault(_storage(x), name)
        kind = "buffer" if _storage(x) in buffers else "parameter"
        tensors.append(
            (
                name,
                str(x.dtype).removeprefix("torch."),
                list(x.shape),
                kind,
                "" if first == name else first,
            )
        )
    parameters = sum(x.numel() for x in model.parameters())
    in_files = sum(
        stored[name].numel()
        for name, _, _, kind, tied in tensors
        if kind == "parameter" and not tied
    )
    if in_files != parameters:
        notes.append(f"its files hold {in_files:,} parameters, the module {parameters:,}")
    return {
        "parameters": parameters,
        "dtype": str(model.dtype).removeprefix("torch."),
        "tensors": tensors,
    }


def _stored_names(model: Any, state: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return the state dict under the names that files have."""
    try:
        from transformers.core_model_loading import revert_weight_conversion
    except ImportError:  # before version 5, files have the names of the module
        return state
    try:
        return dict(_flat(revert_weight_conversion(model, state)))
    except Exception as error:
        notes.append(
            "names are those of the module; transformers cannot give those of files: "
            f"{type(error).__name__}: {str(error)[:200]}"
        )
        return state


def _in_order(
    stored: Mapping[str, Any], state: Mapping[str, Any], tied: Iterable[str]
) -> dict[str, Any]:
    """Return stored tensors in the order of the module, `tied` ones after those whose values they
    share.

    Tensors that are made of several of the module follow their neighbor by name.
    """
    later = {_ending(x) for x in tied}
    places: dict[int, int] = {}
    for i, x in enumerate(state.values()):
        places.setdefault(x.untyped_storage()._cdata, i)
    names_in_module = {name: i for i, name in enumerate(state)}
    keys, last = {}, 0
    for name, x in stored.items():
        last = names_in_module.get(name, places.get(x.untyped_storage()._cdata, last))
        keys[name] = (last, x.storage_offset(), _ending(name) in later)
    return {name: stored[name] for name in sorted(stored, key=keys.__getitem__)}


def _ending(name: str) -> str:
    """Return the name of a module and its parameter, `lm_head.weight`."""
    return ".".join(name.split(".")[-2:])


def _flat(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, x in state.items():
        if isinstance(x, list):
            yield from ((f"{name}.{i}" if len(x) > 1 else name, y) for i, y in enumerate(x))
        else:
            yield name, x


def _storage(x: Any) -> tuple[int, int, int]:
    """Return what tells the values of a tensor: those that share it are tied."""
    return x.untyped_storage()._cdata, x.storage_offset(), x.numel()


if __name__ == "__main__":
    main()
