"""Names, shapes and totals of whole multimodal models compared with the classes of transformers and what they save."""

from __future__ import annotations

import pytest

from llamath.families.multimodal_registry import WRAPPERS
from support.reference_data import multimodal_configs

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


def test_every_complete_type_has_a_tiny_config() -> None:
    complete = {x for x, wrapper in WRAPPERS.import_all().items() if wrapper.family is not None}
    assert {x.values[0]["model_type"] for x in multimodal_configs()} == complete - WITHOUT_A_CLASS
