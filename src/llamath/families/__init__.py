"""Families: which builder answers to which `model_type`, found by name and imported when asked for.

Each file here is one family: a function from a `Config` to a `Decoder`, registered with the names its files use.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.errors import UnknownModel, nearest, safe
from ..core.record_type import Record

Builder = Callable[[Config], Decoder]

FAMILIES = {
    "bloom": "bloom",
    "classic": "classic",
    "cohere": "cohere",
    "cohere2": "cohere2",
    "deepseek": "deepseek",
    "deepseek_v2": "deepseek_v2",
    "deepseek_v3": "deepseek_v3 kimi_k2",
    "exaone4": "exaone4",
    "falcon": "falcon RefinedWeb RefinedWebModel",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text gemma3",
    "gemma4": "gemma4_text",
    "glm4": "glm4",
    "glm4_moe": "glm4_moe",
    "gpt2": "gpt2",
    "gpt_bigcode": "gpt_bigcode",
    "gpt_neox": "gpt_neox",
    "gpt_oss": "gpt_oss",
    "gptj": "gptj",
    "granite": "granite",
    "granitemoe": "granitemoe",
    "internlm": "internlm",
    "internlm2": "internlm2",
    "lfm2": "lfm2",
    "llama": "llama",
    "llama4": "llama4_text",
    "minicpm": "minicpm",
    "minimax_m2": "minimax_m2",
    "ministral3": "ministral3",
    "mistral": "mistral",
    "mistral4": "mistral4",
    "mixtral": "mixtral",
    "mpt": "mpt",
    "muse_glimmer": "muse_glimmer_text",
    "nemotron_h": "nemotron_h",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "olmo3": "olmo3",
    "olmoe": "olmoe",
    "opt": "opt",
    "orion": "orion",
    "phi": "phi phi-msft",
    "phi3": "phi3 phi4",
    "phimoe": "phimoe",
    "qwen": "qwen",
    "qwen2": "qwen2 qwen2_vl_text qwen2_5_vl_text",
    "qwen2_moe": "qwen2_moe",
    "qwen3": "qwen3 qwen3_vl_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_moe": "qwen3_moe",
    "qwen3_next": "qwen3_next",
    "smollm3": "smollm3",
    "stablelm": "stablelm stablelm_epoch",
    "starcoder2": "starcoder2",
}
"""File → the model types it answers to; a test holds it against the files."""

MODEL_TYPES = {model_type: module for module, types in FAMILIES.items() for model_type in types.split()}


class Family(Record):
    """A builder with the names its weights have in files; None where no such files exist."""

    name: str
    model_types: tuple[str, ...]
    build: Builder
    hf: Scheme
    meta: Scheme | None = None
    gguf: Scheme | None = None
    gguf_arch: str = ""  # `general.architecture` of its GGUF files
    chat: str = ""  # name of its chat format (tokenizers/chat_formats.py), for checkpoints whose template and special tokens do not show it

    def __call__(self, config: Config) -> Decoder:
        return self.build(config)

    @property
    def schemes(self) -> dict[str, Scheme]:
        """The schemes that there are, by name."""
        return {x.name: x for x in (self.hf, self.meta, self.gguf) if x}


_known: dict[str, Family] = {}


def family(
    *types: str, hf: Scheme, meta: Scheme | None = None, gguf: Scheme | None = None, gguf_arch: str = "", chat: str = ""
) -> Callable[[Builder], Family]:
    """Register a builder for these model types."""

    def register(build: Builder) -> Family:
        made = Family(name=build.__name__, model_types=types, build=build, hf=hf, meta=meta, gguf=gguf, gguf_arch=gguf_arch, chat=chat)
        _known.update(dict.fromkeys(types, made))
        return made

    return register


def find_family(model_type: str, source: str = "config") -> Family:
    """The family of a model type, or an error that names the nearest ones."""
    module = MODEL_TYPES.get(model_type)
    if module is None:
        raise unsupported_type_error(model_type, source)
    import_module(f"{__name__}.{module}")
    return _known[model_type]


UNSUPPORTED_TYPES = {
    "deepseek_v4": "its layers compress and index their cache, share streams (hyper-connections) and route by hash tables",
    "nemotron-nas": "every layer has a shape of its own, and its class comes with the checkpoint",
    "rwkv5": "it has no attention, and its class comes with the checkpoint",
    "mamba": "it has no attention",
    "mamba2": "it has no attention",
    "t5": "it is an encoder beside a decoder",
    "t5gemma": "it is an encoder beside a decoder",
    "bert": "it is an encoder",
    "minicpmv": "its text model is MiniCPM, Llama or Qwen2, and the configuration does not say which",
    "infimm-zephyr": "cross-attention to images stands between its layers, and its class comes with the checkpoint",
    "molmo": "its class comes with the checkpoint",
    "mosaic_gpt": "its class comes with the checkpoint; the later form of the same models is mpt",
}
"""Model types that are known and not counted, and why."""


def unsupported_type_error(model_type: str, source: str) -> UnknownModel:
    """Why this model type is not counted, and what can be done instead."""
    name, advice = safe(repr(model_type), 60), "read its checkpoint's header instead of its config: that is exact for any model"
    if reason := UNSUPPORTED_TYPES.get(model_type):
        return UnknownModel(f"{source}: model_type {name} is not counted: {reason}", hint=advice)
    near = nearest(model_type, MODEL_TYPES)
    hint = f"nearest: {', '.join(near)}; or " if near else ""
    return UnknownModel(f"{source}: model_type {name} is not one whose weights are known here, so nothing is guessed", hint=hint + advice)
