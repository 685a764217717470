"""Attention, rotary positions and experts on the page: their numbers are those of the reports, and of counts by hand."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.size.memory.cache_bytes import kv_cache_size, kv_format
from llamath.analysis.size.memory.gpu_shards import ShardedModel
from llamath.model import Model
from llamath.questions.layout import Layout
from llamath.web.page_data.attention_data import build_attention
from llamath.web.page_data.experts_data import build_experts
from llamath.web.page_data.sizing.inference_data import kept_as
from support.browser_page import Tab, browser, wait_until_drawn
from support.page_expressions import evaluate
from support.page_models import page_of

__all__ = ["browser"]
PRESETS = """llama-3-8b llama-2-7b deepseek-v3 gemma-3-27b gpt-oss-20b qwen3-next-80b-a3b gpt2 falcon-7b glm-5 llama-4-scout-17b-16e
    mistral-7b phi-3.5-mini olmo-2-7b bloom jamba-1.5-mini""".split()
MIXTURES = "deepseek-v3 gpt-oss-20b qwen3-next-80b-a3b mixtral-8x7b llama-4-scout-17b-16e olmoe-1b-7b".split()


def models(slugs: list[str]) -> list[Model]:
    return [llamath.load(x) for x in slugs]


def kv_variables(dtype: str) -> dict[str, int]:
    stored = kv_format(dtype)
    return {"kv_block": stored.block, "kv_bytes": stored.bytes}


@pytest.mark.parametrize("dtype", ["bf16", "q8_0"])
def test_cached_bytes_of_all_kinds_of_layers(dtype: str) -> None:
    for model in models(PRESETS):
        kinds = build_attention(model)["kinds"]
        cached = sum(
            int(x["layers"]) * evaluate(x["cached"], kv_variables(dtype))
            for x in kinds
            if x["cached"] is not None
        )
        assert cached == kv_cache_size(model.tree, 1, dtype=dtype).kv_per_token, model.name


def attends(kind: dict[str, Any], query: int, key: int) -> bool:
    if kind["causal"] and key > query:
        return False
    if kind["chunk"]:
        return key // int(kind["chunk"]) == query // int(kind["chunk"])
    return not kind["window"] or abs(query - key) < int(kind["window"])


def test_pairs_are_those_of_the_mask_counted_one_by_one() -> None:
    seen = set()
    for model in models(PRESETS):
        for kind in build_attention(model)["kinds"]:
            window = kind["window"] or kind["chunk"]
            if kind["selected"] or (window and int(window) > 300):
                continue
            seen.add(window)
            for tokens in (1, 7, 130, 300):
                by_hand = sum(attends(kind, i, j) for i in range(tokens) for j in range(tokens))
                assert evaluate(kind["pairs"], {"T": tokens}) == by_hand, (model.name, tokens)
    assert {None, "128"} <= seen


def test_own_kind_of_attention_beside_others() -> None:
    names = {"llama-2-7b": "MHA", "llama-3-8b": "GQA", "falcon-7b": "MQA", "deepseek-v3": "MLA"}
    for model, (_, expected) in zip(models(list(names)), names.items(), strict=True):
        found = build_attention(model)
        (own,) = [x for x in found["alternatives"] if x["own"]]
        assert own["kind"] == expected == found["kinds"][0]["kind"]
        assert own["cached"] == found["kinds"][0]["cached"]
        sizes = [
            evaluate(x["cached"], kv_variables("bf16"))
            for x in found["alternatives"]
            if x["kind"] != "MLA"
        ]
        assert all(a > b for a, b in pairwise(sizes))


def test_wavelengths_of_scaled_positions() -> None:
    """Llama 3.1 keeps the pairs that turn more than four times in 8,192 tokens and divides those that turn less than once by 8."""
    (rope,) = build_attention(llamath.load("llama-3.1-8b"))["ropes"]
    assert (rope["scaling"], rope["original"], len(rope["base"])) == ("Llama 3", "8192", 64)
    for base, used in zip(rope["base"], rope["used"], strict=True):
        ratio = used / base
        assert ratio == pytest.approx(
            1 if base < 8192 / 4 else 8 if base > 8192 else ratio, rel=1e-5
        )
        assert 0.9999 < ratio < 8.0001
    (rope,) = build_attention(llamath.load("deepseek-v3"))["ropes"]
    assert rope["used"][-1] / rope["base"][-1] == pytest.approx(40, rel=1e-5)


@pytest.mark.parametrize("batch", [1, 3, 64, 20_000])
def test_bytes_read_are_those_of_the_report(batch: int) -> None:
    for model in models(MIXTURES):
        made = dict(kept_as(model))
        found = build_experts(model, made)
        assert found is not None
        for dtype, calculator in made.items():
            sizes = found["bytes"][dtype]
            routed = sum(
                evaluate(form, {"X": int(sizes[key]), "B": batch})
                for key, form in found["read"].items()
            )
            reads = [x for x in ShardedModel(calculator, Layout()).reads[0] if not x.rows]
            exact = sum(int(x.of(batch)) for x in reads)
            assert abs(routed + int(sizes["0/1"]) - exact) <= len(reads), (model.name, dtype)


def test_expected_experts_of_a_batch() -> None:
    for model in models(MIXTURES):
        found = build_experts(model, dict(kept_as(model)))
        assert found is not None
        for kind in found["kinds"]:
            experts, chosen = int(kind["experts"]), int(kind["chosen"])
            for batch in (1, 2, 50):
                expected = experts * (1 - (1 - Fraction(chosen, experts)) ** batch)
                assert abs(
                    Fraction(evaluate(kind["distinct"], {"B": batch}), 100) - expected
                ) <= Fraction(1, 200)
    assert build_experts(llamath.load("llama-3-8b"), {}) is None


def test_sections_on_the_page(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("gpt-oss-20b")) as page:
        heading = page.locator("#attention-title").inner_text()
        assert (
            heading
            == "GQA keeps an eighth of what MHA would keep; 12 of 24 layers see only the last 128 tokens"
        )
        assert page.locator("[data-cached=GQA]").inner_text().endswith("2,048")
        assert page.locator("#positions-title").inner_text().startswith("YaRN scaling keeps the")
        assert (
            page.locator("#experts-title").inner_text()
            == "A token uses 4 of 32 experts in each MoE layer"
        )
        page.locator("#batch").fill("64")
        wait_until_drawn(page)
        assert (
            page.locator("#experts-title").inner_text()
            == "64 sequences together read 32 of 32 experts"
        )
        page.locator("[data-cached=GQA]").click()
        assert "K·h + K·h" in page.locator("dialog").inner_text()
