"""Towers with the weights of transformers' modules."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

import llamath
from llamath.checkpoint.naming.scheme import fused_scheme
from llamath.core.multimodal import ModelPart
from llamath.torch import canonical_weights, load_weights
from llamath.torch.module import Module, TensorOptions
from support.reference_data import auto_class
from support.transformers_pair import perturb_weights


def reference_of(config: dict[str, Any]) -> Any:
    import transformers

    torch.manual_seed(0)
    made = auto_class(config).from_config(
        transformers.AutoConfig.for_model(**config), attn_implementation="eager"
    )
    perturb_weights(made)
    return made.eval().requires_grad_(False)


def part_with_weights(model: llamath.Model, reference: Any) -> Module:
    """The vision part of a model, with the weights of the reference."""
    from safetensors.torch import load_file

    assert model.tree.is_multimodal
    part = ModelPart(vision=model.tree.vision, projector=model.tree.projector)
    with TemporaryDirectory() as folder:
        reference.save_pretrained(folder)
        tensors = load_file(f"{folder}/model.safetensors")
    schemes = [
        x
        for y in (model.family.hf, *model.family.hf_forms)
        for x in (y, fused_scheme(y))
        if x is not None
    ]
    scheme = next(x for x in schemes if {y.name for y in x.tensors(model.tree)} == tensors.keys())
    module = Module(part, TensorOptions(torch.float32, torch.device("cpu")))
    load_weights(module, canonical_weights(part, scheme, tensors))
    return module


def patches_of(pixels: Tensor, patch: int, times: int = 1) -> Tensor:
    """The pixels of each patch, `(images, patches, channels · times · side²)`; a still image is the same at all times."""
    flat = torch.nn.functional.unfold(pixels, patch, stride=patch).mT.unflatten(
        -1, (pixels.shape[1], 1, -1)
    )
    return flat.expand(-1, -1, -1, times, -1).flatten(2)
