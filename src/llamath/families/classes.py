"""Variants of a family's causal model by class: sequence classification and headless models, as
named by `architectures`.
"""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.constructors import linear
from .registry import Family

BASE_PREFIXES = (
    "model.",
    "transformer.",
    "gpt_neox.",
    "backbone.",
    "biogpt.",
    "gpt_neox_japanese.",
)
"""Prefixes of the base model's tensors, which a checkpoint of the headless model lacks."""

HEADED = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def apply_class(family: Family, tree: Decoder, config: Config) -> tuple[Family, Decoder, str]:
    """Return the family and tree of the class in the configuration, with a note if it is not the
    causal model.
    """
    architectures = config.get("architectures", [""])
    name = architectures[0] if architectures and isinstance(architectures[0], str) else ""
    if name.endswith(HEADED) or not name:
        return family, tree, ""
    if name.endswith("ForSequenceClassification"):
        labels = config.dim(
            "n", "num_labels", default=len(config.get("id2label", {"0": "", "1": ""}))
        )
        hf = family.hf.with_changes(outside={"head": "score"})
        return (
            family.replace(hf=hf),
            tree.replace(head=linear(labels, tree.width)),
            f"{name}: score [{labels}, {tree.width}] instead of a head",
        )
    if name.endswith("Model") and "Double" not in name:
        return (
            family.replace(hf=headless_scheme(family.hf)),
            tree.replace(head=None),
            f"{name}: no head, and names without the base model's prefix",
        )
    return family, tree, f"unknown class {name[:60]}: counted as the causal model of its family"


def headless_scheme(scheme: Scheme) -> Scheme:
    """Return the naming scheme of the headless model."""
    base = next((x for x in BASE_PREFIXES if scheme.layer.startswith(x)), "")
    outside = {path: name.removeprefix(base) for path, name in scheme.outside.items()}
    return scheme.replace(layer=scheme.layer.removeprefix(base), outside=outside, name="hf-bare")


CAUSAL_CLASSES = {
    "afmoe": "AfmoeForCausalLM",
    "apertus": "ApertusForCausalLM",
    "arcee": "ArceeForCausalLM",
    "aria_text": "AriaTextForCausalLM",
    "axk1": "AXK1ForCausalLM",
    "axk2": "AXK2ForCausalLM",
    "bailing_hybrid": "BailingHybridForCausalLM",
    "bamba": "BambaForCausalLM",
    "biogpt": "BioGptForCausalLM",
    "bitnet": "BitNetForCausalLM",
    "bloom": "BloomForCausalLM",
    "codegen": "CodeGenForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "cohere2_moe": "Cohere2MoeForCausalLM",
    "cohere_compass_text": "CohereCompassForCausalLM",
    "ctrl": "CTRLLMHeadModel",
    "cwm": "CwmForCausalLM",
    "dbrx": "DbrxForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "deepseek_v4": "DeepseekV4ForCausalLM",
    "diffllama": "DiffLlamaForCausalLM",
    "dots1": "Dots1ForCausalLM",
    "ernie4_5": "Ernie4_5ForCausalLM",
    "ernie4_5_moe": "Ernie4_5_MoeForCausalLM",
    "exaone4": "Exaone4ForCausalLM",
    "exaone_moe": "ExaoneMoeForCausalLM",
    "falcon": "FalconForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "falcon_mamba": "FalconMambaForCausalLM",
    "flex_olmo": "FlexOlmoForCausalLM",
    "flint": "FlintForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma3n_text": "Gemma3nForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "gemma4_unified_text": "Gemma4UnifiedForCausalLM",
    "glm": "GlmForCausalLM",
    "glm4": "Glm4ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_bigcode": "GPTBigCodeForCausalLM",
    "gpt_neo": "GPTNeoForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "gpt_neox_japanese": "GPTNeoXJapaneseForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "gptj": "GPTJForCausalLM",
    "granite": "GraniteForCausalLM",
    "granite_swa": "GraniteSWAForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM",
    "granitemoe_swa": "GraniteMoeSWAForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "granitemoeshared": "GraniteMoeSharedForCausalLM",
    "helium": "HeliumForCausalLM",
    "hunyuan_v1_dense": "HunYuanDenseV1ForCausalLM",
    "hunyuan_v1_moe": "HunYuanMoEV1ForCausalLM",
    "hy_v3": "HYV3ForCausalLM",
    "hy_v4": "HYV4ForCausalLM",
    "hyperclovax": "HyperCLOVAXForCausalLM",
    "inkling_text": "InklingForCausalLM",
    "internlm3": "LlamaForCausalLM",
    "iquestcoder": "LlamaForCausalLM",
    "jais2": "Jais2ForCausalLM",
    "jamba": "JambaForCausalLM",
    "jetmoe": "JetMoeForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
    "kolibri1": "Kolibri1ForCausalLM",
    "laguna": "LagunaForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "lfm3": "Lfm3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "longcat_flash": "LongcatFlashForCausalLM",
    "mamba": "MambaForCausalLM",
    "mamba2": "Mamba2ForCausalLM",
    "mellum": "MellumForCausalLM",
    "mimo_v2_flash": "MiMoV2FlashForCausalLM",
    "minicpm3": "MiniCPM3ForCausalLM",
    "minimax": "MiniMaxForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "minimax_m3_vl_text": "MiniMaxM3VLForCausalLM",
    "ministral": "MinistralForCausalLM",
    "ministral3": "Ministral3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "mistral4": "Mistral4ForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "mllama_text_model": "MllamaForCausalLM",
    "modernbert-decoder": "ModernBertDecoderForCausalLM",
    "mpt": "MptForCausalLM",
    "nanochat": "NanoChatForCausalLM",
    "nemotron": "NemotronForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "olmo": "OlmoForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "olmo3": "Olmo3ForCausalLM",
    "olmo_hybrid": "OlmoHybridForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "openai-gpt": "OpenAIGPTLMHeadModel",
    "opt": "OPTForCausalLM",
    "persimmon": "PersimmonForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "phimoe": "PhimoeForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen4_exp_text": "Qwen4ExpForCausalLM",
    "recurrent_gemma": "RecurrentGemmaForCausalLM",
    "seed_oss": "SeedOssForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "solar_open": "SolarOpenForCausalLM",
    "stablelm": "StableLmForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
    "vaultgemma": "VaultGemmaForCausalLM",
    "xglm": "XGLMForCausalLM",
    "youtu": "YoutuForCausalLM",
    "zamba": "ZambaForCausalLM",
    "zamba2": "Zamba2ForCausalLM",
}
"""`model_type` → the class of its causal model in transformers."""

STANDALONE_TYPES = {"qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2", "qwen3_vl_text": "qwen3"}
"""Type of a text model that transformers has only inside a multimodal one → the type of the same
model by itself."""
