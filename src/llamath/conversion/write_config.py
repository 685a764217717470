"""The configuration of what is written: HF's `config.json` and Meta's `params.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..analysis.config_report import params_json
from ..core.config import Config
from ..core.errors import ConvertError
from ..core.meta_args import LLAMA3_ROPE_SCALING, config_to_args
from .conversion_source import ConversionSource
from .write_gguf_keys import min_sliding_window

_TORCH_DTYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32"}
"""Types as a `torch_dtype` has them."""
_CLASSES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "mixtral": "MixtralForCausalLM", "qwen2": "Qwen2ForCausalLM"}
"""`model_type` → the class that transformers makes of it."""


def config_json(origin: ConversionSource, dtype: str, tokens: Mapping[str, int]) -> dict[str, Any]:
    """The keys of a `config.json`: those that there were, or those that were made of another format's, with the type of the numbers."""
    keys = dict(origin.model.config.data)
    if "architectures" not in keys and (name := _CLASSES.get(str(keys.get("model_type")))):
        keys = {"architectures": [name], **keys, **{f"{word}_token_id": id_ for word, id_ in tokens.items() if word in ("bos", "eos")}}
    key = next((x for x in ("dtype", "torch_dtype") if x in keys), "torch_dtype")
    return keys | {key: _TORCH_DTYPES[dtype]}


def params_keys(origin: ConversionSource, notes: list[str]) -> dict[str, Any]:
    """The keys of a `params.json`, if it can say this model; what it leaves unsaid, and the reference takes for granted, is noted."""
    keys = {key: value for key, value in origin.model.config.data.items() if key != "sliding_window"}
    config = Config(keys, origin.model.config.source)
    args = config_to_args(config)
    if args.use_scaled_rope:
        scaling = config.sub("rope_parameters" if "rope_parameters" in config else "rope_scaling")
        other = {
            key: scaling.data.get(key)
            for key, value in LLAMA3_ROPE_SCALING.items()
            if key != "rope_type" and scaling.data.get(key) != value
        }
        if set(other) - {"factor"}:
            raise ConvertError(f"params.json cannot say {other}", hint=f"the reference's code has {LLAMA3_ROPE_SCALING} built in")
        if other:
            notes.append(f"params.json cannot say the scaling factor {other['factor']:g} of positions: the reference's code has 8 built in")
    if (near := min_sliding_window(origin.model.tree)) is not None:
        notes.append(f"the reference has no sliding window: it is the same model for up to {near:,} tokens")
    return dict(params_json(args))
