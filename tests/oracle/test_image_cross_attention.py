"""Llama 3.2 Vision with images: FLOPs, cache and logits of the layers in which text attends to them, compared with transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.flops.flop_count import forward_flops
from llamath.analysis.graph.recorder import record, record_prefill
from llamath.analysis.graph.walkthrough import prompt_graph
from llamath.analysis.image_pass import crossing_features, image_pass, parse_images
from llamath.analysis.inference.cache_bytes import cache_specs, sum_cache_specs
from llamath.analysis.inference.inference_memory import MemoryCalculator, MemoryRequest
from llamath.core.expr import Expr

TINY = json.loads((Path(__file__).parent.parent / "tiny_multimodal" / "mllama.json").read_text())["plain"]
PUBLISHED = {
    "model_type": "mllama",
    "text_config": {"model_type": "mllama_text_model"},
    "vision_config": {"model_type": "mllama_vision_model", "image_size": 560},
}
SIZES = {"tiny": (TINY, 16), "11B": (PUBLISHED, 560)}
PROMPT, MORE, BATCH = 9, 4, 2


def reference(config: Any, device: str) -> Any:
    import torch
    import transformers

    keys = {x: y for x, y in config.items() if x != "model_type"}
    made = transformers.AutoConfig.for_model("mllama", **keys)
    with torch.device(device):
        return transformers.AutoModelForImageTextToText.from_config(made, attn_implementation="eager").eval()


def count(call: Any) -> tuple[int, Any]:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        result = call()
    return counter.get_total_flops(), result


@pytest.mark.transformers
@pytest.mark.parametrize("size", SIZES)
def test_flops_and_cache_equal_those_of_transformers(size: str) -> None:
    import torch

    config, side = SIZES[size]
    model, theirs = llamath.load(config), reference(config, "meta")
    images = image_pass(model.tree, parse_images(f"2x{side}"))
    features = crossing_features(model.tree, images)
    assert features is not None
    tree, d = model.text.tree, int(model.tree.width)
    states = torch.empty(BATCH, int(features), d, device="meta")
    ids = torch.zeros(BATCH, PROMPT, dtype=torch.long, device="meta")
    run = {"use_cache": True, "logits_to_keep": 1}
    flops, found = count(lambda: theirs(input_ids=ids, cross_attention_states=states, **run))
    batch = Expr.const(BATCH)
    graph = record_prefill(tree, batch=batch, tokens=PROMPT, features=features)
    assert int(forward_flops(graph, masked=False).total) == flops
    specs = cache_specs(graph)
    cached = sum_cache_specs(specs, PROMPT, BATCH, "fp32")
    width = found.past_key_values.layers[0].keys.element_size()
    assert int(cached.bytes) * width // 4 == sum(x.keys.nbytes + x.values.nbytes for x in found.past_key_values.layers)
    flops, _ = count(lambda: theirs(input_ids=ids[:, :1], past_key_values=found.past_key_values, **run))
    decode = record(tree, batch=batch, past_tokens=PROMPT, decode=True, encoder=(features, True))
    assert int(forward_flops(decode).total) == flops
    assert cache_specs(decode) == specs


@pytest.mark.transformers
def test_logits_equal_those_of_transformers(tmp_path: Path) -> None:
    import torch

    from llamath import run

    torch.manual_seed(3)
    theirs = reference(TINY, "cpu")
    with torch.no_grad():
        for x in theirs.parameters():
            x.normal_(0, 0.3)
    theirs.save_pretrained(tmp_path)
    ours = run.open_model(str(tmp_path), dtype="fp32").module
    ids, states = torch.randint(0, 70, (BATCH, PROMPT)), torch.randn(BATCH, 34, 48)
    with torch.no_grad():
        logits = theirs(input_ids=ids, cross_attention_states=states).logits
        without = theirs(input_ids=ids).logits
        cache, found = ours.new_cache(PROMPT), []
        for a, b in ((0, 4), (4, 8), (8, PROMPT)):
            machine = ours.machine(ids[:, a:b], cache)
            machine.image_states = None if a else states
            found.append(ours.compute(machine, ids[:, a:b]))
            cache.length = b
        alone = ours(ids)
    torch.testing.assert_close(torch.cat(found, 1), logits, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(alone, without, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(logits, without, atol=1e-2)


def test_report_has_the_layers_that_attend_to_images() -> None:
    plain, seen = (llamath.flops("llama-3.2-11b-vision", context=100, images=x) for x in ("", "560"))
    more = {x["product"] for x in seen.to_json()["products"]} - {x["product"] for x in plain.to_json()["products"]}
    assert {"cross_attn.q", "cross_attn.k", "cross_attn.v", "cross_attn.o"} <= more
    rows = [x for x in seen.to_json()["products"] if x["product"] in ("cross_attn.k", "cross_attn.v")]
    assert all(x["decode"] == 0 and x["forward"] == 8 * 2 * 6404 * 4096 * 1024 for x in rows) and len(rows) == 2
    assert seen.letters["I"] == 6404
    assert any("in 8 layers each token of text attends to all 6,404 features" in x for x in seen.notes)
    read = [x.to_json()["intensity"]["decode"]["total"]["weights"] for x in (plain, seen)]
    assert read[1] - read[0] == 8 * 2 * (2 * 4096 * 4096 + 3 * 4096 * 14_336)  # without k and v


def test_memory_keeps_keys_and_values_of_images() -> None:
    plain: Any = llamath.memory("llama-3.2-11b-vision", context=4096, batch=3)
    seen: Any = llamath.memory("llama-3.2-11b-vision", context=4096, batch=3, images="2x560")
    kept = 2 * 8 * 8 * 128 * 2 * 6404 * 2 * 3
    lines = {x.what: x.bytes for x in seen.lines}
    assert lines["cache, keys and values of images"] == kept
    assert seen.cache.bytes == plain.cache.bytes + kept and seen.cache.kv_per_token == plain.cache.kv_per_token
    assert seen.prefill > plain.prefill
    limit = seen.total + 10**9
    calculator = MemoryCalculator(llamath.load("llama-3.2-11b-vision"), MemoryRequest(batch=3, images=parse_images("2x560")))
    most = calculator.max_context(limit)
    assert most is not None and calculator.at(most, 3).total <= limit < calculator.at(most + 1, 3).total


def test_trace_shows_the_layers_that_attend_to_images() -> None:
    from llamath.run.debug.trace_run import trace

    model = llamath.load(TINY)
    images = parse_images("16")
    report = trace(model, [1] * 6, images=images)
    features = crossing_features(model.tree, image_pass(model.tree, images))
    crossing = next(x for x in report.first.walk.layers if any("cross_attn" in step.name for step in x.steps))
    assert "image_features" in {name for step in crossing.steps for name in step.inputs}
    assert not report.first.mismatches and report.following is not None and not report.following.mismatches
    assert report.first.walk.flops == int(forward_flops(prompt_graph(model.text.tree, 6, features=features)).total)
    assert report.cache.elements == 2 * 2 * 2 * 12 * (7 + int(features)) == report.following.walk.cached
