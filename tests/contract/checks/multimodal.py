"""Whole multimodal models: reports, names and totals against transformers, and the logits of their text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open

import llamath
from llamath.checkpoint.naming.scheme import fused_scheme
from llamath.core.multimodal import is_computed
from llamath.torch.weights.open_model import open_model
from support.contract import Contract, check
from support.reference_data import auto_class
from support.transformers_pair import perturb_weights

PREFIX_ATTENTION = "paligemma"
"""transformers lets the tokens of its prompts attend to all others, and `load` says that the text model here does not."""


def counted_only(model: llamath.Model, thoroughly: bool) -> None:
    """A model with modules that are counted only refuses what needs a forward pass, by name."""
    if thoroughly:
        assert llamath.stored_names(model, names="hf").tensors
        assert llamath.diff(model, "llama-3-8b").to_json()
        assert llamath.explain(model.parameters.total, like=model).to_json()
    for ask in (
        lambda: llamath.flops(model, context=64),
        lambda: llamath.memory(model, context=64),
        lambda: llamath.training_memory(model, context=64),
    ):
        with pytest.raises(
            llamath.LlamathError,
            match=r"the weights of this model are counted only|modules that are counted, not computed",
        ):
            ask()


@check("multimodal")
def every_report_takes_the_model(case: Contract) -> None:
    model = case.model
    total = model.parameters.total
    if not is_computed(model.text.tree):
        counted_only(model, case.is_thorough)
        return
    assert llamath.memory(model, context=64, dtype="fp32").weights == 4 * total
    assert (
        llamath.flops(model, context=64).forward.total
        == llamath.flops(model.text, context=64).forward.total
    )
    if case.is_thorough:
        assert llamath.stored_names(model, names="hf").tensors
        assert llamath.diff(model, "llama-3-8b").to_json()
        assert llamath.explain(total, like=model).to_json()
        assert llamath.fit(model, on="2xrtx-4090", context=64).to_json()
        assert llamath.training_memory(model, context=64).to_json()
    towers = total - model.parameters.parts.get("text", total)
    for dtype in ("awq", "bnb-nf4", *(["q4_k_m"] if model.family.gguf is not None else [])):
        whole, text = (
            llamath.memory(x, context=64, dtype=dtype).weights for x in (model, model.text)
        )
        assert 2 * towers <= whole - text <= 4 * towers, dtype


@check("multimodal")
def parts_add_up_to_the_whole(case: Contract) -> None:
    model, p = case.model, case.model.parameters
    assert (
        sum(p.parts.values())
        == p.total
        == sum(p.total for p in (model.part(x).parameters for x in p.parts))
    )
    assert p.parts["text"] == model.text.parameters.total
    assert p.active <= p.parts["text"]


def forms(model: llamath.Model) -> list[dict[str, tuple[int, ...]]]:
    """The tensors of a model under each form of Hugging Face names."""
    schemes = [
        x
        for y in (model.family.hf, *model.family.hf_forms)
        for x in (y, fused_scheme(y))
        if x is not None
    ]
    return [{y.name: tuple(map(int, y.shape)) for y in x.tensors(model.tree)} for x in schemes]


def with_joined_shards(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Tensors that files have in numbered shards are whole in modules (Qwen4-Exp's tables)."""
    joined: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        whole = re.sub(r"\.shard_\d+\.", ".", name)
        joined[whole] = (joined[whole][0] + shape[0], *shape[1:]) if whole in joined else shape
    return joined


def reference_model(case: Contract, **how: Any) -> Any:
    """The whole model in transformers."""
    torch.manual_seed(0)
    return auto_class(case.config).from_config(
        transformers.AutoConfig.for_model(**case.config), **how
    )


def saved_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


@check("multimodal")
@torch.no_grad()
def names_totals_and_logits_of_text_equal_transformers(case: Contract) -> None:
    """The class in memory, the files that it saves, and the logits of text alone."""
    model, config = case.model, case.config
    reference = reference_model(case, attn_implementation="eager", experts_implementation="eager")
    once = {
        id(x): (name, tuple(x.shape))
        for name, x in reversed(reference.state_dict(keep_vars=True).items())
    }
    assert dict(once.values()) in [
        with_joined_shards(x) for x in forms(model)
    ]  # a tied matrix under its first name
    assert model.parameters.total - model.parameters.buffers == sum(
        x.numel() for x in reference.parameters()
    )
    given = llamath.load(reference)
    assert isinstance(given, llamath.FamilyModel)
    assert given.parameters.total == model.parameters.total
    perturb_weights(reference)
    with case.folder() as folder:
        reference.eval().save_pretrained(folder)
        assert saved_shapes(folder) in forms(model)
        report = llamath.verify(folder)
        assert report.ok and [x.code for x in report.findings if x.tensors] == []
        if config["model_type"] == PREFIX_ATTENTION or not is_computed(model.text.tree):
            return
        ids = torch.randint(1, 60, (1, 9), generator=torch.Generator().manual_seed(1))
        ours = open_model(str(folder), torch.float32).module(ids)
    for name in (
        "text_model",
        "text_decoder",
        *(["language_model"] if hasattr(reference, "qformer") else []),
    ):
        reference = getattr(
            reference, name, reference
        )  # its class does not read text without an image
    theirs = reference(input_ids=ids).logits
    if config["model_type"] in (
        "aya_vision",
        "cohere2_vision",
    ):  # transformers' wrappers leave out the factor of the logits
        theirs = theirs * reference.config.text_config.logit_scale
    torch.testing.assert_close(ours, theirs, atol=3e-4, rtol=1e-3)
