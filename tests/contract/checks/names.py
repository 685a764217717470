"""Names, shapes, totals, splits and quantized matrices of a configuration against transformers, and GGUF names against llama.cpp's table."""

from __future__ import annotations

import re
from typing import Any

import gguf
import torch
import transformers

import llamath
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.checkpoint.naming.scheme import fused_scheme
from llamath.core.expr import total
from llamath.core.tree import fold, walk
from support.contract import Contract, check

MIXTURES = set(
    "mixtral qwen2_moe qwen3_moe qwen3_next qwen3_5_moe_text phimoe olmoe deepseek_v2 deepseek_v3 glm4_moe minimax_m2".split()
)
GATHERED = ("linear_attn.out_proj",)
"""transformers splits the outputs of this layer and gathers; Megatron and llamath split the inputs, which are already sharded."""
WHOLE = ("indexer.index_qk_proj", "input_mix_weight_down")
"""Small matrices of Qwen4-Exp that every rank has whole here."""
WITHOUT_STORED_NAMES = frozenset(
    ("granitemoe", "granitemoehybrid", "granitemoeshared", "jamba", "lfm2_moe")
)
"""Types whose plans name only experts, by their module names, or nothing that is stored under this name."""


@check("text")
def names_shapes_and_total_equal_transformers(case: Contract) -> None:
    both, family = case.pair, case.model.family
    assert {x.name: x.shape for x in family.hf.tensors(case.tree)} == both.saved
    leaves = [x.weight for x in walk(case.tree)]
    trained = sum(x.numel() for x in both.theirs.parameters() if x.requires_grad)
    assert (
        total(x.parameters for x in leaves) - total(x.parameters for x in leaves if x.buffer)
        == trained
    )


@check("text")
def module_in_memory_has_the_tree_of_its_family(case: Contract) -> None:
    theirs = case.pair.theirs
    model = llamath.load(theirs)
    parameters, trained = model.parameters, sum(x.numel() for x in theirs.parameters())
    assert isinstance(model, llamath.FamilyModel)
    assert trained in (parameters.total, parameters.total - parameters.buffers)


@check("text")
def gguf_names_equal_llama_cpp(case: Contract) -> None:
    family = case.model.family
    if not family.gguf:
        return
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == family.gguf_arch)
    known = gguf.get_tensor_name_map(arch, len(case.tree.layers))
    ours = {gguf.TENSOR_NAMES[x] for x in gguf.MODEL_TENSORS[arch]}
    for stored in family.hf.tensors(case.tree):
        theirs = known.get_name(stored.name, try_suffixes=(".weight", ".bias"))
        if theirs and case.config.get("num_local_experts") == 0:
            theirs = theirs.replace(
                "_shexp", ""
            )  # as the converter does where Granite 4 has no other experts
        layer = next((x for x in stored.name.split(".") if x.isdigit()), "0")
        names = {
            family.gguf.stored_name(part.pattern).replace("{l}", layer) for part in stored.parts
        }
        if len(names) == 1:
            # None: an option that llama.cpp does not have; a bare parameter has no suffix there, and its converter adds one to some
            assert theirs is None or names in ({theirs}, {f"{theirs}.weight"}, {f"{theirs}.bias"})
        else:  # llama.cpp splits this one before it maps names: each part must be a tensor of the architecture
            assert {re.sub(r"\.\d+\.", ".{bid}.", x.rpartition(".")[0]) for x in names} <= ours, (
                stored.name,
                names,
            )


def meta_model(case: Contract, dtype: torch.dtype = torch.float32) -> Any:
    """transformers' class of a configuration, without values."""
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**case.config), dtype=dtype
        )


@check("text")
def fused_names_equal_transformers(case: Contract) -> None:
    scheme = fused_scheme(case.model.family.hf)
    if scheme is None or case.model_type not in MIXTURES:
        return
    model = meta_model(case)
    saved = {name: tuple(x.shape) for name, x in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del saved["lm_head.weight"]
    assert {x.name: x.shape for x in scheme.tensors(case.tree)} == saved


def split_axis_of(style: str) -> int | None:
    words = {"colwise": 0, "rowwise": 1}
    return next((n for word, n in words.items() if word in style), None)


@check("text")
def splits_match_the_plan_of_transformers(case: Contract) -> None:
    styles = (
        getattr(transformers.AutoConfig.for_model(**case.config), "base_model_tp_plan", None) or {}
    )
    if not styles:
        return
    family = case.model.family
    splits = {x.pattern: x.split for x in fold(case.tree)}
    stored = {
        x.name: x
        for scheme in (family.hf, fused_scheme(family.hf))
        if scheme
        for x in scheme.tensors(case.tree)
    }
    compared = 0
    for name, x in stored.items():
        plain = re.sub(
            r"\.\d+\.",
            ".*.",
            re.sub(r"^(model|backbone|transformer|gpt_neox)\.", "", name.removesuffix(".weight")),
        )
        if (style := styles.get(plain)) is None or plain.endswith(GATHERED + WHOLE):
            continue
        theirs = 0 if style == "embedding_rowwise" else split_axis_of(style)
        if theirs is not None and "flip" in x.layout:
            theirs = 1 - theirs
        ours = {splits[part.pattern] for part in x.parts}
        assert {s.axis if s else None for s in ours} == {theirs}, (name, style, ours)
        compared += 1
    assert compared or case.model_type in WITHOUT_STORED_NAMES


HEADS = ["lm_head", "embed_out", "output_projection"]
FP8 = {"quant_method": "fp8", "weight_block_size": [16, 16], "modules_to_not_convert": HEADS}
OTHER_CLASSES = frozenset(("falcon", "gpt2", "openai_gpt"))
"""Families whose linear layers are of classes that transformers' quantizer does not replace."""
LINEAR_ROUTERS = frozenset(("afmoe", "hunyuan_v1_moe", "longcat_flash", "gemma4", "zaya"))
"""Families whose router transformers would convert, unless a config lists it; published files have it unquantized."""
INDEXER_WEIGHTS = frozenset(("hy_v4",))
"""Families whose class, unlike those of the other indexers, does not except the weights of the indexer's heads."""
NOT_CONVERTED = frozenset(("aria", "gpt_oss", "lfm2_moe", "nemotron_h", "mllama"))
"""Families that transformers' FP8 experts cannot be made for, and text models without a class of their own."""


def quantized(config: dict[str, Any]) -> int:
    """Return the number of weights in quantized matrices."""
    storage = MemoryCalculator(llamath.load(config), MemoryRequest()).storage
    assert storage is not None
    return sum(
        int(x.out) * int(x.into) * x.copies for x in storage.matrices if x.choice.format is not None
    )


@check("text")
def fp8_quantizes_what_transformers_replaces(case: Contract) -> None:
    from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
    from transformers.quantizers.base import HfQuantizer

    family = case.model.family.name
    if family in OTHER_CLASSES | NOT_CONVERTED or not case.is_thorough:
        return
    theirs = meta_model(case, torch.bfloat16)
    try:
        listed = HfQuantizer.get_modules_to_not_convert(theirs, HEADS, theirs._keep_in_fp32_modules)
        settings = transformers.FineGrainedFP8Config(weight_block_size=(16, 16))
        theirs = replace_with_fp8_linear(theirs, listed, settings, pre_quantized=True)
    except AttributeError:  # transformers' FP8 experts cannot be made for this configuration
        return
    replaced = {name: x for name, x in theirs.named_modules() if type(x).__name__.startswith("FP8")}
    expected = {
        name: sum(
            p.numel() for key, p in x.named_parameters() if p.dim() > 1 and "scale" not in key
        )
        for name, x in replaced.items()
    }
    if (
        theirs.config.get_text_config().tie_word_embeddings
    ):  # a tied head is the matrix of the embedding
        expected = {
            name: n
            for name, n in expected.items()
            if f"{name}.weight" not in (theirs._tied_weights_keys or ())
        }
    if family in LINEAR_ROUTERS:
        expected = {
            name: n
            for name, n in expected.items()
            if "router" not in name and not name.endswith(("mlp.gate.wg", "mlp.gate.down_proj"))
        }
    if family in INDEXER_WEIGHTS:
        expected = {
            name: n for name, n in expected.items() if not name.endswith("indexer.weights_proj")
        }
    if family in ("zamba", "zamba2"):  # later uses of shared blocks are the same tensors
        stored = {x.name for x in case.model.scheme("hf").tensors(case.tree)}
        expected = {name: n for name, n in expected.items() if f"{name}.weight" in stored}
    assert expected and quantized({**case.config, "quantization_config": FP8}) == sum(
        expected.values()
    )
