"""transformers' model of a tiny config, and llamath's module with the same weights, loaded from the checkpoint it saves."""

from __future__ import annotations

import json
import re
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import llamath
from llamath.core.multimodal import CountedBlock
from llamath.families.registry import FAMILIES
from llamath.torch import Decoder, build, canonical_weights, load_weights

torch.set_num_threads(1)  # models this small are slower with more


MINIMAX_BUFFERS = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")
"""Numbers that follow from the configuration, and that MiniMax's own files lack."""

SHAKE = 0.05  # large enough to distinguish all weights, small enough that rounding errors do not grow from layer to layer


class Pair(NamedTuple):
    """A model in both libraries."""

    config: dict[str, Any]
    theirs: Any
    ours: Decoder
    saved: dict[str, tuple[int, ...]]
    """Shapes of the tensors that transformers saves, by their published names."""

    def ids(self, tokens: int, rows: int = 2) -> Tensor:
        """Reproducible random tokens, at most as many as the model has learned positions."""
        places = self.ours.positions
        most = (
            tokens if places is None else min(tokens, places.weight.shape[0] - places.spec.offset)
        )
        per_layer = self.ours.per_layer
        known = min(
            self.ours.spec.vocab,
            per_layer.embed.weight.shape[0] if per_layer else self.ours.spec.vocab,
        )
        return torch.randint(1, known, (rows, most), generator=torch.Generator().manual_seed(2))


def pair(config: dict[str, Any], dtype: str = "float32") -> Pair:
    """Both models of a config; weights that transformers initializes to 0 or 1 are perturbed."""
    return _pair(json.dumps(config), dtype)


@lru_cache(maxsize=32)
def _pair(text: str, dtype: str) -> Pair:
    config = json.loads(text)
    return (
        make_pair(config) if dtype == "float32" else copy_pair(pair(config), getattr(torch, dtype))
    )


def make_pair(config: dict[str, Any]) -> Pair:
    """Both models of a config in float32."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    register_text_classes()
    hf_config = transformers.AutoConfig.for_model(**config)
    attention = "sdpa" if config.get("alibi") else "eager"  # eager adds Falcon's ALiBi twice
    torch.manual_seed(0)
    theirs = (
        transformers_class(config)
        .from_config(hf_config, attn_implementation=attention, experts_implementation="eager")
        .eval()
    )
    perturb_weights(theirs)
    with TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        tensors = {
            published_name(name): x
            for name, x in as_published(config, load_file(f"{folder}/model.safetensors")).items()
        }
    saved = {name: tuple(x.shape) for name, x in tensors.items()}
    model = llamath.load(config)
    if any(
        isinstance(x, CountedBlock) for _, x in model.tree.children
    ):  # a tower without a forward pass: the text model alone
        model = model.text
        tensors = {x.name: tensors[x.name] for x in model.scheme("hf").tensors(model.tree)}
    ours = build(model)
    load_weights(ours, canonical_weights(model.tree, model.scheme("hf"), tensors))
    return Pair(config, theirs, ours, saved)


@cache
def register_text_classes() -> None:
    """Let `AutoModelForCausalLM` find the classes of families that transformers lists under a wrapper, or not at all."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    for family in {x.name: x for x in FAMILIES.import_all().values()}.values():
        model_type = family.types[0]
        if family.causal_class and model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            transformers.AutoModelForCausalLM.register(
                CONFIG_MAPPING[model_type],
                getattr(transformers, family.causal_class),
                exist_ok=True,
            )


def as_published(config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with the layout of published files: transformers saves the experts of a new Qwen3-VL-MoE output first."""
    if config["model_type"] == "olmo_hybrid":
        return _olmo_hybrid_as_published(tensors)
    if config["model_type"] == "minimax":
        return {name: x for name, x in tensors.items() if not name.endswith(MINIMAX_BUFFERS)}
    if config["model_type"] != "qwen3_vl_moe":
        return tensors
    return {
        name: x.transpose(1, 2).contiguous() if ".mlp.experts." in name else x
        for name, x in tensors.items()
    }


def _olmo_hybrid_as_published(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of OLMo Hybrid: transformers saves thirds of its three convolutions, and renames a norm of layers with attention."""
    attention = {name.rpartition(".post_feedforward_layernorm")[0] for name in tensors}
    layers = {name.rpartition(".q_conv1d")[0] for name in tensors} - {""}
    published = {}
    for name, x in tensors.items():
        layer, _, rest = name.rpartition(".feedforward_layer_norm")
        published[
            f"{layer}.post_attention_layernorm{rest}" if layer in attention and layer else name
        ] = x
    for layer in layers:
        names = [f"{layer}.{x}_conv1d.weight" for x in "qkv"]
        parts = torch.cat([tensors[x] for x in names]).split(
            [tensors[f"{layer}.{x}_proj.weight"].shape[0] for x in "qkv"]
        )
        published |= {x: part.contiguous() for x, part in zip(names, parts, strict=True)}
    return published


def published_name(name: str) -> str:
    """Return a name as it is published: transformers saves Kimi Linear's dense MLPs as if they were mixtures of experts."""
    return re.sub(r"block_sparse_moe\.((?:gate|up|down)_proj\.)", r"mlp.\1", name)


def save_published(model: Any, folder: Path) -> None:
    """Save a model of transformers with the published names."""
    model.save_pretrained(folder)
    saved = load_file(folder / "model.safetensors")
    tensors = (
        _olmo_hybrid_as_published(saved) if model.config.model_type == "olmo_hybrid" else saved
    )
    if tensors is not saved or any(published_name(name) != name for name in tensors):
        save_file(
            {published_name(name): x for name, x in tensors.items()},
            folder / "model.safetensors",
            {"format": "pt"},
        )


def transformers_class(config: dict[str, Any]) -> Any:
    """The transformers class for this config."""
    import transformers

    return (
        transformers.AutoModelForImageTextToText
        if "text_config" in config
        else transformers.AutoModelForCausalLM
    )


def copy_pair(both: Pair, dtype: torch.dtype) -> Pair:
    """Both models in another dtype."""
    from copy import deepcopy

    ours = build(both.ours.spec, dtype)
    load_weights(
        ours,
        (
            (name, x.to(dtype) if x.is_floating_point() else x)
            for name, x in both.ours.state_dict().items()
        ),
    )
    return both._replace(theirs=deepcopy(both.theirs).to(dtype), ours=ours)


@torch.no_grad()
def perturb_weights(model: Any) -> None:
    """Perturb every saved tensor."""
    saved = model.state_dict()
    for name, x in (*model.named_parameters(), *model.named_buffers()):
        if name in saved and x.is_floating_point() and not name.endswith(MINIMAX_BUFFERS):
            x.add_(torch.randn_like(x) * SHAKE)
        elif name.endswith("tid2eid"):
            x.random_(0, 8)  # experts of the tiny configuration


@torch.no_grad()
def logits(theirs: Any, ids: Tensor, **how: Any) -> Tensor:
    """The logits of transformers in one pass."""
    return theirs(ids, use_cache=False, **how).logits


def relative_difference(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, relative to the largest value."""
    return float((found - wanted).abs().max() / wanted.abs().max())


def logits_match(found: Tensor, wanted: Tensor, both: Pair, ids: Tensor) -> bool:
    """Whether logits agree within 1e-5, or within what rounding alone causes in a model that amplifies it (one of Gemma 4's)."""
    return relative_difference(found, wanted) < 1e-5 or relative_difference(
        found, wanted
    ) < rounding_effect(both, ids)


@torch.no_grad()
def rounding_effect(both: Pair, ids: Tensor) -> float:
    """The change of transformers' logits when each embedding value changes by about its last bit."""
    weight, before = both.theirs.get_input_embeddings().weight, logits(both.theirs, ids)
    kept = weight.clone()
    weight.mul_(1 + torch.randn(weight.shape, generator=torch.Generator().manual_seed(3)) * 2**-23)
    moved = logits(both.theirs, ids)
    weight.copy_(kept)
    return relative_difference(moved, before)


def is_bidirectional(config: dict[str, Any]) -> bool:
    """Whether attention is bidirectional, so that generation is impossible."""
    return bool(config.get("use_bidirectional_attention"))


def generated_by_transformers(theirs: Any, prompt: list[int], new: int) -> list[int]:
    """Greedy generation by transformers, without a batch."""
    row = torch.tensor([prompt])
    how: dict[str, Any] = {
        "do_sample": False,
        "eos_token_id": -1,
        "pad_token_id": 0,
        "max_new_tokens": new,
    }
    if hasattr(theirs.config, "time_step_limit"):
        how["use_cache"] = (
            False  # with a cache, transformers does not clamp the time step of Mamba-2
        )
    ids: list[int] = theirs.generate(row, attention_mask=torch.ones_like(row), **how)[
        0, len(prompt) :
    ].tolist()
    return ids
