"""The texts for other projects: every figure of their tables follows from the presets that they name."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import llamath
from architecture_gallery import found_differences, gallery
from llamath import catalog

TEXTS = Path(__file__).parents[2] / "docs" / "upstream"
ATTENTION_IN_BF16 = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "ignore": ["*self_attn*", "*vision*", "lm_head"],
}
"""NVIDIA's recipe for Gemma 4 31B: the MLPs of the text model alone are NVFP4."""
VARIANTS: dict[str, tuple[str, str | dict[str, Any]]] = {
    "hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4": ("llama-3.1-8b", "awq"),
    "Qwen/Qwen2.5-VL-7B-Instruct-AWQ": ("qwen2.5-vl-7b", "awq"),
    "nvidia/gemma-4-31B-it-NVFP4": ("gemma-4-31b", ATTENTION_IN_BF16),
    "AGIcafet/ThaiLLM-30B-NVFP4": ("qwen3-30b-a3b", "nvfp4"),
    "nvidia/Llama-3.1-8B-Instruct-NVFP4": ("llama-3.1-8b", "nvfp4"),
    "nvidia/Llama-3.1-8B-Instruct-FP8": ("llama-3.1-8b", "fp8"),
    "meta-llama/Llama-3.1-8B-Instruct": ("llama-3.1-8b", "bf16"),
    "MiniMaxAI/MiniMax-M2": ("minimax-m2", "fp8"),
}


def rows(page: str) -> list[list[str]]:
    """Return the rows of a text's tables that end in an integer or a figure in KiB."""
    lines = (TEXTS / f"{page}.md").read_text().splitlines()
    cells = [[x.strip() for x in line.strip("|").split("|")] for line in lines if line[:1] == "|"]
    return [x for x in cells if re.fullmatch(r"[\d.,]+", x[-1])]


def value(text: str) -> Fraction:
    """Return the value of sums and products of numbers as a text writes them."""
    total, rest = Fraction(0), text.replace(",", "")
    while match := re.search(r"\(([^()]*)\)", rest):
        rest = rest.replace(match[0], str(value(match[1])))
    for term in rest.split("+"):
        product = Fraction(1)
        for sign, number in re.findall(r"([·/]?) *([\d.]+)", term):
            product = product / Fraction(number) if sign == "/" else product * Fraction(number)
        total += product
    return total


def integer(text: str) -> int:
    """Return an integer that is printed with commas."""
    return int(text.replace(",", ""))


@pytest.mark.parametrize("page", ["architecture-gallery", "hf-mem", "transformers"])
def test_derivations_give_the_printed_figures(page: str) -> None:
    tables = rows(page)
    assert len(tables) > 1
    for row in tables:
        derivation, figure = row[-3:-1] if "." in row[-1] else row[-2:]
        assert value(derivation) == integer(figure), row


def test_gallery_corrections_are_the_differences_of_published_configs() -> None:
    theirs = {x["hub_id"]: x["kv_bytes_per_token"] for x in gallery()}
    corrections = [x for x in rows("architecture-gallery") if "." in x[-1]]
    for public_id, printed, _, figure, kib in corrections:
        assert abs(float(printed) * 1024 - theirs[public_id]) <= 0.05 * 1024
        assert llamath.facts(public_id).kv_per_token == integer(figure), public_id
        assert f"{integer(figure) / 1024:.1f}" == kib
    different = {x for x, field in found_differences() if field == "kv_bytes_per_token"}
    published = {x for x in different if _grade(x) == "file" and "DeepSeek-V4" not in x}
    assert published == {x[0] for x in corrections}


def _grade(public_id: str) -> str:
    preset = catalog.find_public_id(public_id)
    assert preset is not None
    return preset.grade


def test_cache_of_deepseek_v4_is_that_of_the_preset() -> None:
    parts = [integer(x[-1]) for x in rows("architecture-gallery") if "." not in x[-1]]
    report = llamath.memory("deepseek-v4-flash", context=1_048_576)
    assert sum(parts) == report.kv_cache


def test_variants_have_the_printed_bytes() -> None:
    table = rows("vllm-recipes")
    assert [x[0] for x in table] == list(VARIANTS)
    short = 0
    for name, minimum, files, figure in table:
        weights = _weights(*VARIANTS[name])
        assert weights == integer(figure), name
        formula = re.fullmatch(r"⌈(.*)⌉ = (\d+)", minimum)
        assert formula and math.ceil(value(formula[1])) == int(formula[2]), name
        short += int(formula[2]) * 10**9 < weights
        if files != "not seen":
            assert abs(value(files) * 10**9 / weights - 1) < Fraction(3, 1000), name
    assert short == 4
    routers = integer(
        re.findall(r"= ([\d,]+) bytes more", (TEXTS / "vllm-recipes.md").read_text())[0]
    )
    assert integer(table[-1][-1]) + routers == value(table[-1][-2]) * 10**9
    assert value("62·256·3,072·2") == routers


def _weights(preset: str, recipe: str | dict[str, Any]) -> int:
    if isinstance(recipe, str):
        return llamath.memory(preset, dtype=recipe, context=1).weights
    config = catalog.find_preset(preset).config
    return llamath.memory({**config, "quantization_config": recipe}, context=1).weights


@pytest.mark.parametrize(
    ("model", "context", "options"),
    [
        ("llama-3.1-8b", 32768, {}),
        ("llama-3.1-8b", 32768, {"batch": 4, "kv_dtype": "fp8"}),
        ("gpt-oss-20b", 131072, {}),
        ("deepseek-v3", 131072, {}),
    ],
)
def test_caches_are_those_of_the_presets(model: str, context: int, options: dict[str, Any]) -> None:
    cache = llamath.memory(model, context=context, **options).kv_cache
    assert cache in [integer(x[-1]) for x in rows("hf-mem")]


def test_counts_are_those_of_the_presets() -> None:
    assert llamath.memory("llama-3.1-8b", dtype="bf16", context=1).weights == integer(
        rows("hf-mem")[0][-1]
    )
    layer, total = (integer(x[-1]) for x in rows("transformers"))
    report = llamath.count("qwen3-0.6b")
    assert total == report.total
    assert f"{layer:,}" in (TEXTS / "transformers.md").read_text().partition("```console")[2]
