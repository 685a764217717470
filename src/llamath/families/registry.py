"""The registry of families: finds the builder of a `model_type` and imports its module on first
use.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder
from ..core.config import Config
from ..utils.errors import Call, Name, UnknownModel, nearest, safe
from ..utils.record_type import Record

Builder = Callable[[Config], Decoder]

FAMILIES = {
    "afmoe": "afmoe",
    "apertus": "apertus",
    "arcee": "arcee",
    "aria": "aria_text",
    "axk1": "axk1",
    "axk2": "axk2",
    "baichuan": "baichuan",
    "bailing_hybrid": "bailing_hybrid",
    "bailing_moe": "bailing_moe bailing_moe_v2",
    "bamba": "bamba",
    "biogpt": "biogpt",
    "bitnet": "bitnet",
    "blip": "blip_text_model",
    "bloom": "bloom",
    "chatglm": "chatglm",
    "classic": "classic",
    "codegen": "codegen",
    "cohere": "cohere",
    "cohere2": "cohere2",
    "cohere2_moe": "cohere2_moe",
    "cohere_compass": "cohere_compass_text",
    "cosmos3_edge": "cosmos3_edge_text",
    "ctrl": "ctrl",
    "cwm": "cwm",
    "dbrx": "dbrx",
    "deepseek": "deepseek",
    "deepseek_v2": "deepseek_v2",
    "deepseek_v3": "deepseek_v3 kimi_k2",
    "deepseek_v32": "deepseek_v32",
    "deepseek_v4": "deepseek_v4",
    "deepseek_v41": "deepseek_v41_text",
    "diffllama": "diffllama",
    "dots1": "dots1",
    "ernie4_5": "ernie4_5",
    "ernie4_5_moe": "ernie4_5_moe",
    "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
    "exaone": "exaone",
    "exaone4": "exaone4 exaone4_5_text",
    "exaone_moe": "exaone_moe",
    "falcon": "falcon RefinedWeb RefinedWebModel",
    "falcon_h1": "falcon_h1",
    "falcon_mamba": "falcon_mamba",
    "flex_olmo": "flex_olmo",
    "flint": "flint",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text gemma3",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "git": "git_text",
    "glm": "glm",
    "glm4": "glm4",
    "glm4_moe": "glm4_moe glm4v_moe_text",
    "glm4v": "glm4v_text glm_ocr_text",
    "glm4_moe_lite": "glm4_moe_lite",
    "glm5_next": "glm5_next_text",
    "glm_moe_dsa": "glm_moe_dsa",
    "gpt2": "gpt2",
    "gpt_bigcode": "gpt_bigcode",
    "gpt_neo": "gpt_neo",
    "gpt_neox": "gpt_neox",
    "gpt_neox_japanese": "gpt_neox_japanese",
    "gpt_oss": "gpt_oss",
    "gptj": "gptj",
    "granite": "granite granite_docling_text",
    "granite_swa": "granite_swa",
    "granitemoe": "granitemoe",
    "granitemoe_swa": "granitemoe_swa",
    "granitemoehybrid": "granitemoehybrid",
    "granitemoeshared": "granitemoeshared",
    "helium": "helium",
    "hunyuan_v1_dense": "hunyuan_v1_dense hunyuan_vl_text",
    "hunyuan_v1_moe": "hunyuan_v1_moe",
    "hy_v3": "hy_v3",
    "hy_v4": "hy_v4",
    "hyperclovax": "hyperclovax",
    "idefics": "idefics_text",
    "inkling": "inkling_text",
    "internlm": "internlm",
    "internlm2": "internlm2",
    "internlm3": "internlm3",
    "iquestcoder": "iquestcoder",
    "jais2": "jais2",
    "jamba": "jamba",
    "jetmoe": "jetmoe",
    "kolibri1": "kolibri1",
    "kimi_k3": "kimi_k3_text",
    "kimi_linear": "kimi_linear",
    "kosmos2": "kosmos_2_text_model kosmos_2_5_text_model",
    "laguna": "laguna",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2_moe",
    "lfm3": "lfm3",
    "llama": "llama",
    "llama4": "llama4_text",
    "longcat_flash": "longcat_flash",
    "mamba": "mamba",
    "mamba2": "mamba2",
    "mellum": "mellum",
    "mimo": "mimo",
    "mimo_v2": "mimo_v2",
    "mimo_v2_flash": "mimo_v2_flash",
    "minicpm": "minicpm",
    "minicpm3": "minicpm3",
    "mixformer": "mixformer-sequential",
    "minimax": "minimax minimax_m1 minimax_text_01",
    "minimax_m2": "minimax_m2",
    "minimax_m3": "minimax_m3_vl_text",
    "ministral": "ministral",
    "ministral3": "ministral3",
    "mistral": "mistral",
    "mistral4": "mistral4",
    "mistral_large4": "mistral_large4_text",
    "mixtral": "mixtral",
    "mllama": "mllama_text_model",
    "modernbert_decoder": "modernbert-decoder",
    "molmo2": "molmo2_text",
    "moondream": "moondream_text",
    "mpt": "mpt",
    "muse_glimmer": "muse_glimmer_text",
    "muse_spark": "muse_spark_text",
    "nanochat": "nanochat",
    "nemotron": "nemotron",
    "nemotron_h": "nemotron_h",
    "nemotron_nas": "nemotron-nas",
    "olmo": "olmo",
    "olmo2": "olmo2",
    "olmo3": "olmo3",
    "olmo_hybrid": "olmo_hybrid",
    "olmoe": "olmoe",
    "openai_gpt": "openai-gpt",
    "openelm": "openelm",
    "opt": "opt",
    "orion": "orion",
    "paddleocr_vl": "paddleocr_vl_text",
    "persimmon": "persimmon",
    "phi": "phi",
    "phi3": "phi3 phi4",
    "phi_msft": "phi-msft",
    "phimoe": "phimoe",
    "qwen": "qwen",
    "qwen2": "qwen2",
    "qwen2_moe": "qwen2_moe",
    "qwen2_vl": "qwen2_vl_text qwen2_5_vl_text",
    "qwen2_5_omni": "qwen2_5_omni_text",
    "qwen3": "qwen3",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_moe": "qwen3_moe",
    "qwen3_omni_moe": "qwen3_omni_moe_text",
    "qwen3_next": "qwen3_next",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen4_exp": "qwen4_exp_text",
    "recurrent_gemma": "recurrent_gemma",
    "seed_oss": "seed_oss",
    "smollm3": "smollm3",
    "solar_open": "solar_open",
    "stablelm": "stablelm stablelm_epoch",
    "starcoder2": "starcoder2",
    "step3p5": "step3p5",
    "unlimited_ocr": "unlimited_ocr_text",
    "vaultgemma": "vaultgemma",
    "xglm": "xglm",
    "youtu": "youtu",
    "zamba": "zamba",
    "zamba2": "zamba2",
}
"""Module of a family → the model types that it builds. This is the only place that lists them."""


MODEL_TYPES = {
    model_type: module for module, types in FAMILIES.items() for model_type in types.split()
}
"""Model type → module of its family."""


class Family(Record):
    """A builder of trees, with the names of its tensors in each file format; None where that
    format does not exist.
    """

    name: str
    module: str  # in this package
    build: Builder
    hf: Scheme
    meta: Scheme | None = None
    gguf: Scheme | None = None
    gguf_arch: str = ""  # `general.architecture` of its GGUF files
    # other forms of the names, as published files or other versions of transformers have them
    hf_forms: tuple[Scheme, ...] = ()
    # name of its chat format (tokenizers/chat_formats.py), for checkpoints whose template and
    # special tokens do not show it
    chat: str = ""

    def __call__(self, config: Config) -> Decoder:
        return self.build(config)

    def for_tree(self, tree: Decoder) -> Family:
        """Return the family with the names of a tree's tensors, some of which may depend on its
        number of layers.
        """
        hf = self.hf.numbered(int(tree.layers.n))
        return self if hf is self.hf else self.replace(hf=hf)

    @property
    def schemes(self) -> dict[str, Scheme]:
        """The available naming schemes by name."""
        return {x.name: x for x in (self.hf, self.meta, self.gguf) if x}

    def __reduce__(self) -> tuple[Callable[..., Family], tuple[str, dict[str, Any]]]:
        """Pickle the module's name, and the fields that were replaced; a builder is never
        pickled.
        """
        registered = _import_family(self.module)
        return _unpickle, (
            self.module,
            {
                x: getattr(self, x)
                for x in self.fields
                if getattr(self, x) != getattr(registered, x)
            },
        )


def family(
    *,
    hf: Scheme,
    hf_forms: tuple[Scheme, ...] = (),
    meta: Scheme | None = None,
    gguf: Scheme | None = None,
    gguf_arch: str = "",
    chat: str = "",
    name: str = "",
) -> Callable[[Builder], Family]:
    """Make a family of a builder, which has the name of its module; `FAMILIES` lists its model
    types.
    """

    def decorate(build: Builder) -> Family:
        module = build.__module__.rpartition(".")[2]
        return Family(
            name=name or module,
            module=module,
            build=build,
            hf=hf,
            hf_forms=hf_forms,
            meta=meta,
            gguf=gguf,
            gguf_arch=gguf_arch,
            chat=chat,
        )

    return decorate


def find_family(model_type: str, source: str = "config") -> Family:
    """Return the family of a model type; the error for an unknown one names the nearest."""
    module = MODEL_TYPES.get(model_type)
    if module is None:
        raise unsupported_type_error(model_type, source)
    return _import_family(module)


def _import_family(module: str) -> Family:
    registered: Family = getattr(import_module(f"{__package__}.{module}"), module)
    return registered


def _unpickle(module: str, changes: dict[str, Any]) -> Family:
    registered = _import_family(module)
    return registered.replace(**changes) if changes else registered


UNSUPPORTED_TYPES = {
    "moshi": "it is a model of speech with a second decoder for the codebooks",
    "rwkv": "it has no attention: its time mixing is a recurrence of its own",
    "xlstm": "it has no attention: its cells are recurrences of their own",
    "rwkv5": "it has no attention, and it needs custom code from its repository",
    "t5": "it is an encoder-decoder model",
    "t5gemma": "it is an encoder-decoder model",
    **dict.fromkeys(
        """albert bert bert-generation big_bird camembert data2vec-text deberta deberta-v2
        distilbert electra ernie megatron-bert modernbert mpnet nomic_bert rembert roberta
        roberta-prelayernorm roc_bert roformer xlm-roberta xlm-roberta-xl xmod""".split(),
        "it is an encoder",
    ),
    **dict.fromkeys(
        """bart bigbird_pegasus blenderbot blenderbot-small marian mbart moonshine mt5 musicgen
        musicgen_melody mvp pegasus plbart prophetnet t5gemma2 trocr umt5 whisper""".split(),
        "it is an encoder-decoder model",
    ),
    **dict.fromkeys(
        ("xlm", "xlnet"),
        "it is trained to predict tokens in any order, and its attention has "
        "two streams or masks of its own",
    ),
    "blt": "it is a byte-level model of four transformers, whose patches depend on the text",
    "cpmant": "its attention has learned biases by relative position and segment, and its input "
    "a learned prompt",
    "doge": "its attention masks keys by their values, and its experts are single neurons, "
    "chosen across tokens",
    "dots3_note_text": "its latent attention has gates and norms of its own, and other sizes in "
    "layers with a window",
    "hrm_text": "its two stacks of layers are run several times in turn",
    "inkling2_text": "its attention scores have learned biases by distance, and its layers "
    "attend to earlier residual streams",
    "zaya": "its queries, keys and values pass two convolutions, and its routers read those of "
    "earlier layers",
    "minicpmv": "its text model may be MiniCPM, Llama or Qwen2, and its config does not say which",
    "iquestloopcoder": "its layers are passed twice with a learned gate, and it needs custom "
    "code from its repository",
    "infimm-zephyr": "it has cross-attention to images, and it needs custom code from its "
    "repository",
    "molmo": "it needs custom code from its repository",
    "mosaic_gpt": "it needs custom code from its repository; the same models were published "
    "later as mpt",
}
"""Model types that are known but cannot be counted, with the reason."""


def other_ways() -> str:
    """Return the hint of a refusal: how to count a model that no family describes."""
    from importlib.util import find_spec

    advice = "count its checkpoint instead of its config: the header is exact for any model"
    if all(find_spec(x) is not None for x in ("transformers", "torch")):
        call = Call("count", Name("model"), via="transformers")
        advice += f"; {call} counts the class in transformers"
    return advice


def unsupported_type_error(model_type: str, source: str) -> UnknownModel:
    """Return the error for a model type without a family."""
    name, advice = safe(repr(model_type), 60), other_ways()
    if reason := UNSUPPORTED_TYPES.get(model_type):
        return UnknownModel(f"{source}: model_type {name} is not supported: {reason}", hint=advice)
    near = nearest(model_type, MODEL_TYPES)
    hint = f"did you mean {' or '.join(near)}? Otherwise " if near else ""
    return UnknownModel(f"{source}: unknown model_type {name}", hint=hint + advice)
