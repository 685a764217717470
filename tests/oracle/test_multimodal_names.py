"""Names, shapes and totals of whole multimodal models compared with the classes of transformers and what they save."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.checkpoint.naming.scheme import fused_scheme
from llamath.families.wrappers import COMPLETE_TYPES
from support.reference_data import auto_class, multimodal_configs

pytestmark = pytest.mark.transformers


WITHOUT_A_CLASS = {
    "deepseek_ocr",
    "deepseek_v41",
    "moondream1",
    "deepseek_vl_v2",
    "dots_ocr",
    "fast_vlm",
    "gemma3n",
    "internvl_chat",
    "kimi_k3",
    "minicpmv2_6",
    "perception_lm",
    "phi3_v",
}
"""Types that transformers has no class for, or one that needs timm, which tests of their own prove."""


def build(config: dict[str, Any]) -> Any:
    import transformers

    return auto_class(config).from_config(transformers.AutoConfig.for_model(**config))


def saved_shapes(config: dict[str, Any], folder: Path) -> dict[str, tuple[int, ...]]:
    from safetensors import safe_open

    build(config).save_pretrained(folder)
    with safe_open(folder / "model.safetensors", "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def forms(model: llamath.Model) -> dict[str, dict[str, tuple[int, ...]]]:
    """The tensors of a model under each form of Hugging Face names."""
    schemes = [x for y in (model.family.hf, *model.family.hf_forms) for x in (y, fused_scheme(y)) if x is not None]
    return {f"{i} {x.name}": {y.name: tuple(map(int, y.shape)) for y in x.tensors(model.tree)} for i, x in enumerate(schemes)}


def with_joined_shards(shapes: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Tensors that files have in numbered shards are whole in modules (Qwen4-Exp's tables)."""
    joined: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        whole = re.sub(r"\.shard_\d+\.", ".", name)
        joined[whole] = (joined[whole][0] + shape[0], *shape[1:]) if whole in joined else shape
    return joined


def test_every_complete_type_has_a_tiny_config() -> None:
    assert {x.values[0]["model_type"] for x in multimodal_configs()} == COMPLETE_TYPES.keys() - WITHOUT_A_CLASS


@pytest.mark.parametrize("config", multimodal_configs())
def test_saved_names_and_shapes_equal_transformers(config: dict[str, Any], tmp_path: Path) -> None:
    saved = saved_shapes(config, tmp_path)
    assert saved in forms(llamath.load(config)).values()
    report = llamath.verify(tmp_path)
    assert report.ok
    assert [x.code for x in report.findings if x.tensors] == []


@pytest.mark.parametrize("config", multimodal_configs())
def test_modules_in_memory_and_total_equal_transformers(config: dict[str, Any]) -> None:
    import torch

    with torch.device("meta"):
        reference = build(config)
    model = llamath.load(config)
    once = {id(x): (name, tuple(x.shape)) for name, x in reversed(reference.state_dict(keep_vars=True).items())}
    shapes = dict(once.values())  # a tied matrix under its first name
    assert shapes in [with_joined_shards(x) for x in forms(model).values()]
    assert model.parameters.total - model.parameters.buffers == sum(x.numel() for x in reference.parameters())


@pytest.mark.parametrize("config", multimodal_configs())
def test_parts_add_up_to_the_whole(config: dict[str, Any]) -> None:
    model = llamath.load(config)
    p = model.parameters
    assert sum(p.parts.values()) == p.total == sum(p.total for p in (model.part(x).parameters for x in p.parts))
    assert p.parts["text"] == model.text.parameters.total
    assert p.active <= p.parts["text"]
