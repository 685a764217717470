"""Multimodal models that contain a text model: the names of its tensors in their files, and its
default configuration.
"""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme

MULTIMODAL = {
    "aria": "aria",
    "aya_vision": "aya_vision",
    "blip": "blip",
    "blip_2": "blip-2 instructblip instructblipvideo",
    "cohere2_vision": "cohere2_vision",
    "cosmos3_edge": "cosmos3_edge",
    "cosmos3_omni": "cosmos3_omni",
    "deepseek_ocr": "deepseek_ocr",
    "deepseek_v41": "deepseek_v41",
    "deepseek_vl": "deepseek_vl",
    "deepseek_vl_hybrid": "deepseek_vl_hybrid",
    "deepseek_vl_v2": "deepseek_vl_v2",
    "dots_ocr": "dots_ocr",
    "ernie4_5_vl_moe": "ernie4_5_vl_moe",
    "exaone4_5": "exaone4_5",
    "fast_vlm": "fast_vlm",
    "fuyu": "fuyu",
    "gemma3": "gemma3",
    "gemma3n": "gemma3n",
    "gemma4": "gemma4",
    "gemma4_unified": "gemma4_unified",
    "git": "git",
    "glm4v": "glm4v glm46v glm4v_moe glm_ocr glmga",
    "glm5_next": "glm5_next",
    "got_ocr2": "got_ocr2 pp_chart2table",
    "granite_docling": "granite_docling",
    "hunyuan_vl": "hunyuan_vl",
    "hyperclovax_vision_v2": "hyperclovax_vision_v2",
    "idefics": "idefics",
    "idefics2": "idefics2",
    "idefics3": "idefics3",
    "inkling_mm_model": "inkling_mm_model",
    "internvl": "internvl",
    "internvl_chat": "internvl_chat",
    "janus": "janus",
    "kimi_k25": "kimi_k25",
    "kimi_k3": "kimi_k3",
    "kosmos2": "kosmos-2",
    "kosmos2_5": "kosmos-2.5",
    "lfm2_vl": "lfm2_vl",
    "lfm3_vl": "lfm3_vl",
    "lighton_ocr": "lighton_ocr",
    "llama4": "llama4",
    "llava": "llava",
    "llava_next": "llava_next llava_next_video",
    "llava_onevision": "llava_onevision",
    "minicpmv2_6": "minicpmv2_6",
    "minicpmv4_6": "minicpmv4_6 minicpmv4_7 minicpm_ocr",
    "minimax_m3_vl": "minimax_m3_vl",
    "mistral3": "mistral3",
    "mistral_large4": "mistral_large4",
    "mllama": "mllama",
    "molmo2": "molmo2",
    "moondream": "moondream1",
    "muse_glimmer": "muse_glimmer",
    "nemotron_h_omni": "nemotron_h_omni",
    "muse_spark": "muse_spark",
    "ovis2": "ovis2",
    "paddleocr_vl": "paddleocr_vl",
    "paligemma": "paligemma",
    "perception_lm": "perception_lm",
    "phi3_v": "phi3_v",
    "phi4_multimodal": "phi4_multimodal",
    "qianfan_ocr": "qianfan_ocr",
    "qwen2_5_omni_thinker": "qwen2_5_omni_thinker",
    "qwen2_vl": "qwen2_vl qwen2_5_vl",
    "qwen3_omni_moe_thinker": "qwen3_omni_moe_thinker",
    "qwen4_exp": "qwen4_exp",
    "qwen3_vl": "qwen3_vl qwen3_vl_moe qwen3_5 qwen3_5_moe",
    "shieldgemma2": "shieldgemma2",
    "smolvlm": "smolvlm",
    "step3p7": "step3p7",
    "unlimited_ocr": "unlimited_ocr",
    "video_llama_3": "video_llama_3",
    "video_llava": "video_llava",
    "vipllava": "vipllava",
}
"""Module in `families/multimodal` → the model types that it completes. This is the only place
that lists them."""

COMPLETE_TYPES = {
    model_type: module for module, types in MULTIMODAL.items() for model_type in types.split()
}
"""Model type of a multimodal model → the module that builds its towers and projectors."""

WHOLE = ("", "language_model.")
NAME_PREFIXES = {
    **dict.fromkeys(
        "aya_vision gemma3 internvl internvl_chat qianfan_ocr kimi_k25 kimi_vl "
        "llama4 mistral3 paligemma".split(),
        WHOLE,
    ),
    **dict.fromkeys(("fuyu", "mllama"), WHOLE),
    **dict.fromkeys(("glm5_next", "glmga"), ("model.", "model.language_model.")),
    "hyperclovax_vision_v2": ("", "model.language_model."),
    "shieldgemma2": ("", "model.language_model."),
    "granite_docling": ("model.", "model.text_model."),
    "qwen4_exp": ("model.", "model.language_model."),
    "kimi_k3": WHOLE,
    "muse_spark": ("model.", "model.language_model."),
    "nemotron_h_omni": WHOLE,
    **dict.fromkeys(("cosmos3_edge", "cosmos3_omni"), ("model.", "")),
    **dict.fromkeys("llava llava_next llava_next_video llava_onevision vipllava".split(), WHOLE),
    **dict.fromkeys(
        "cohere2_vision deepseek_vl exaone4_5 fast_vlm gemma3n gemma4 glm46v glm4v glm4v_moe "
        "glm_ocr lfm2_vl lighton_ocr muse_glimmer perception_lm qwen3_5 qwen3_5_moe qwen3_vl "
        "video_llama_3".split(),
        ("model.", "model.language_model."),
    ),
    "qwen3_vl_moe": ("model.", "model.language_model."),
    **dict.fromkeys("idefics3 smolvlm".split(), ("model.", "model.text_model.")),
    **dict.fromkeys("aria got_ocr2 pp_chart2table video_llava".split(), WHOLE),
    **dict.fromkeys(
        "deepseek_vl_hybrid janus lfm3_vl minicpm_ocr minicpmv4_6 minicpmv4_7 ovis2".split(),
        ("model.", "model.language_model."),
    ),
    **dict.fromkeys("blip-2 instructblip instructblipvideo".split(), WHOLE),
    "idefics2": ("model.", "model.text_model."),
    "minicpmv2_6": ("", "llm."),
    **dict.fromkeys(
        "audioflamingo3 glmasr granite_speech musicflamingo qwen2_audio "
        "vibevoice_asr voxtral".split(),
        WHOLE,
    ),
    "moss_transcribe_diarize": ("model.", "model.language_model."),
    "minimax_m3_vl": WHOLE,
    "gemma4_unified": ("model.", "model.language_model."),
    "cohere_compass": ("model.", "model.language_model."),
    "deepseek_vl_v2": ("", "language."),
}
"""Model type of the wrapper → the prefix of the text model's names, and the prefix that replaces
it in files."""

TIED_BY_DEFAULT = frozenset(
    (
        "aya_vision cohere2_vision deepseek_vl deepseek_vl_hybrid ernie4_5_vl_moe florence2 "
        "gemma3 gemma3n gemma4 gemma4_unified "
        "blip got_ocr2 granite_docling hunyuan_vl hyperclovax_vision_v2 internvl janus kimi_k25 "
        "lfm2_vl lfm3_vl lighton_ocr minicpm_ocr "
        "mistral3 ovis2 paddleocr_vl paligemma pp_chart2table shieldgemma2"
    ).split()
)
"""Wrappers whose classes tie embedding and head by default."""

UNTIED_BY_DEFAULT = frozenset({"mistral_large4", "muse_glimmer"})
"""Wrappers whose configuration has no default for it, so that their classes do not tie them,
whatever the text model's says."""

TIED_BY_EITHER = {"fast_vlm": False, "hunyuan_vl": True, "kosmos-2": True}
"""Wrappers whose classes tie them if either configuration says so → what a configuration means
that does not say it."""

TIED_BY_TEXT = frozenset("blip-2 instructblip instructblipvideo kosmos-2.5 llama4".split())
"""Wrappers whose text model has the head itself, so that its own configuration decides."""

TEXT_KEYS = ("text_config", "llm_config", "language_config")
"""Keys of the text model's configuration."""

TOWER_KEYS = ("vision_config", "audio_config")
"""Keys of the configurations of towers."""

TEXT_MODEL_TYPES = {
    **dict.fromkeys(
        "deepseek_vl idefics3 llava llava_next llava_next_video smolvlm video_llava "
        "vipllava voxtral".split(),
        "llama",
    ),
    **dict.fromkeys("fast_vlm internvl llava_onevision ovis2 video_llama_3".split(), "qwen2"),
    **dict.fromkeys("aya_vision cohere2_vision".split(), "cohere2"),
    **{
        x: f"{x}_text"
        for x in "gemma3 gemma4 llama4 muse_glimmer qwen2_5_vl qwen2_vl qwen3_5 "
        "qwen3_5_moe qwen3_vl".split()
    },
    **{x: f"{x}_text" for x in "minimax_m3_vl mistral_large4 qwen3_vl_moe qwen4_exp".split()},
    "granite_docling": "granite_docling_text",
    "kosmos-2": "kosmos_2_text_model",
    "kosmos-2.5": "kosmos_2_5_text_model",
    "deepseek_v41": "deepseek_v41_text",
    "muse_spark": "muse_spark_text",
    "cosmos3_edge": "cosmos3_edge_text",
    "molmo2": "molmo2_text",
    "unlimited_ocr": "unlimited_ocr_text",
    "paddleocr_vl": "paddleocr_vl_text",
    "qwen2_5_omni_thinker": "qwen2_5_omni_text",
    "qwen3_omni_moe_thinker": "qwen3_omni_moe_text",
    "aria": "aria_text",
    "blip": "blip_text_model",
    "cohere_compass": "cohere_compass_text",
    "gemma3n": "gemma3n_text",
    "gemma4_unified": "gemma4_unified_text",
    **dict.fromkeys("blip-2 instructblip instructblipvideo".split(), "opt"),
    **dict.fromkeys("deepseek_vl_hybrid glmasr janus perception_lm".split(), "llama"),
    **dict.fromkeys(
        "audioflamingo3 got_ocr2 musicflamingo pp_chart2table qwen2_audio vibevoice "
        "vibevoice_asr".split(),
        "qwen2",
    ),
    **dict.fromkeys("lighton_ocr moss_transcribe_diarize qianfan_ocr qwen3_asr".split(), "qwen3"),
    **dict.fromkeys("minicpm_ocr minicpmv4_6 minicpmv4_7".split(), "qwen3_5_text"),
    **dict.fromkeys("granite_speech granite_speech_plus".split(), "granite"),
    "cosmos3_omni": "qwen3_vl_text",
    **dict.fromkeys(("deepseek_ocr", "deepseek_vl_v2"), "deepseek_v2"),
    **{x: f"{x}_text" for x in "glm4v glm4v_moe glm5_next glm_ocr".split()},
    "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
    "exaone4_5": "exaone4",
    "fuyu": "persimmon",
    **dict.fromkeys(("glm46v", "glmga"), "glm4v_text"),
    "hyperclovax_vision_v2": "hyperclovax",
    "idefics2": "mistral",
    "inkling_mm_model": "inkling_text",
    "kimi_k25": "deepseek_v3",
    "hunyuan_vl": "hunyuan_vl_text",
    "lfm2_vl": "lfm2",
    "lfm3_vl": "lfm3",
    "mistral3": "mistral",
    "mllama": "mllama_text_model",
    "nemotron_h_omni": "nemotron_h",
    "paligemma": "gemma",
    "step3p7": "step3p5",
    "shieldgemma2": "gemma3_text",
}
"""Wrapper → the model type of its text model in transformers where a config does not say it."""

TEXT_TYPE_OF_WRAPPER = {"kimi_k3": "kimi_k3_text"}
"""Wrapper → the model type of its text model here, where its configuration names another model."""

NOTES = {
    "moondream1": "in Moondream the first 730 tokens attend to each other; here each attends to "
    "those before it",
    "unlimited_ocr": "in Unlimited OCR the last tokens after the prompt alone are kept; here all "
    "tokens of a context count as the prompt",
    "paligemma": "in PaliGemma the tokens of a prompt attend to all of it; here each attends to "
    "those before it",
}
"""Wrappers whose text model computes otherwise than by itself."""

WRAPPER_VARIANTS: dict[str, tuple[str, object, str]] = {
    "deepseek_vl_v2": ("architectures", ["DeepseekOCRForCausalLM"], "deepseek_ocr"),
    "minicpmv": ("version", 2.6, "minicpmv2_6"),
}
"""Model type of several wrappers → a key, its value in one of them, and the name of this one
here."""

KEYS_OF_IMAGES = (
    "alpha_type batch_vision_input cross_layer_interval drop_vision_last_layer embd_layer "
    "image_size img_processor "
    "num_image_with_embedding patch_size qk_layer_norms query_num slice_mode use_image_id "
    "use_resampler version vision_batch_size"
).split()
"""Keys at the outer level of flat configurations that are not the text model's (Phi-3 Vision,
MiniCPM-V 2.6, GIT)."""

FLAT_WRAPPERS = {
    "dots_ocr": "qwen2",
    "git": "git_text",
    "hunyuan_vl": "hunyuan_vl_text",
    "idefics": "idefics_text",
    "phi3_v": "phi3",
    "phi4_multimodal": "phi3",
    "mimo_v2": "mimo_v2",
    "minicpmv2_6": "qwen2",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen2_vl": "qwen2_vl_text",
}
"""Wrappers that were published with the keys of the text model at the outer level → the type of
the text model."""

INNER_SECTIONS = {"moondream1": ("config", "moondream_text")}
"""Wrappers whose sections are inside a key, as `text`, `vision` and so on → this key, and the
type of the text model."""

TEXT_CONFIG_DEFAULTS = {
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "vocab_size": 32000,
    },
    "mistral": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8,
        "vocab_size": 32000,
    },
}  # fmt: skip
"""Defaults of text models, whose configurations inside wrappers are published without them."""


_SAVED_TOWER = {"vision_tower.vision_model.": "vision_tower."}
_IN_MEMORY = {
    "language_model.model.": "model.language_model.",
    "language_model.lm_head": "lm_head",
    "vision_tower.vision_model.": "model.vision_tower.",
    **{x: f"model.{x}" for x in ("vision_tower.", "multi_modal_projector.", "image_newline")},
}
LLAVA_FORMS = {
    "hf-5": _SAVED_TOWER,
    "hf-modules": _IN_MEMORY,
    "hf-mixed": _IN_MEMORY | {"vision_tower.vision_model.": "model.vision_tower.vision_model."},
}
"""Other forms of names that published files have as `language_model.model.…`,
`vision_tower.vision_model.…`: those that transformers 5 saves, those of its modules in memory, and
those of earlier versions' modules.
"""


def with_wrapper_prefix(scheme: Scheme, wrapper: str) -> Scheme:
    """Return the naming scheme of a text model inside this wrapper; unchanged for an unknown
    wrapper.
    """
    old, new = NAME_PREFIXES.get(wrapper, ("", ""))

    def rename(name: str) -> str:
        return new + name.removeprefix(old) if name.startswith(old) else name

    return scheme.replace(
        layer=rename(scheme.layer),
        outside={path: rename(name) for path, name in scheme.outside.items()},
    )
