"""`watch` and `trace --values` show what a pass computes: the numbers are those of transformers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import llamath
from llamath import LlamathError, embedded
from llamath.native.engine import NativeSession, Row
from llamath.native.lowering import lower
from support.native_models import native_model, random_ids, random_module
from support.typed_commands import Typed

TEXT = "Ben was in the park. He had a red ball. Who has the"
LAYERS = range(4)


@pytest.fixture(scope="module")
def watched() -> llamath.WatchedPass:
    return llamath.watch(TEXT, dtype="float32")


@pytest.fixture(scope="module")
def expected(watched: llamath.WatchedPass) -> dict[str, torch.Tensor]:
    """The numbers of transformers, under the names of llamath."""
    model = AutoModelForCausalLM.from_pretrained(
        embedded.path(), dtype=torch.float32, attn_implementation="eager"
    )
    found: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Any:
        return lambda _module, _inputs, output: found.__setitem__(name, output[0].detach())

    hooked = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn.q",
        "self_attn.k_proj": "attn.k",
        "self_attn.v_proj": "attn.v",
        "self_attn.o_proj": "attn.o",
        "post_attention_layernorm": "mlp_norm",
        "mlp.gate_proj": "mlp.gate",
        "mlp.up_proj": "mlp.up",
        "mlp.down_proj": "mlp.down",
    }
    for i in LAYERS:
        for theirs, ours in hooked.items():
            module = model.get_submodule(f"model.layers.{i}.{theirs}")
            module.register_forward_hook(keep(f"layers.{i}.{ours}"))
    model.model.embed_tokens.register_forward_hook(keep("embed"))
    model.model.norm.register_forward_hook(keep("norm"))
    model.lm_head.register_forward_hook(keep("head"))
    with torch.inference_mode():
        output = model(
            torch.tensor([watched.ids]), output_attentions=True, output_hidden_states=True
        )
    for i in LAYERS:
        found[f"layers.{i}.attn.softmax"] = output.attentions[i][0].transpose(0, 1)
        if i < len(LAYERS) - 1:  # the last one of transformers is normalized
            found[f"layers.{i}.mlp_add"] = output.hidden_states[i + 1][0]
    return found


def test_every_number_equals_transformers(
    watched: llamath.WatchedPass, expected: dict[str, torch.Tensor]
) -> None:
    assert len(expected) == 4 * 11 + 2
    for name, theirs in expected.items():
        ours = torch.from_numpy(np.array(watched[name]))
        assert ours.shape == theirs.shape, name
        assert float((ours - theirs).abs().max()) < 2e-5 * float(theirs.abs().max()), name


def test_the_head_that_looks_for_the_ball_finds_it(watched: llamath.WatchedPass) -> None:
    weights = np.array(watched["layers.1.attn.softmax"])[-1, 2]
    assert watched.texts[int(weights.argmax())] == " ball" and weights.max() > 0.9
    assert watched.likely[0].text == " ball" and watched.likely[0].probability > 0.9


def test_names_are_those_of_the_trace(watched: llamath.WatchedPass) -> None:
    walk = llamath.trace("embedded", context=5).walk
    steps = {
        f"layers.0.{x.name}" if stage.name == "layers" else x.name
        for stage in walk.stages
        for x in stage.steps
    }
    ours = {x for x in watched.names if not re.match(r"layers\.[1-9]", x)}
    assert ours <= steps
    # tokens, what is read from the cache, scores before the softmax, and what follows the logits
    cached = {f"layers.0.attn.{x}" for x in ("keys", "values", "scores")}
    assert steps - ours == cached | {"ids", "probabilities"}


def test_mixed_values_are_the_weights_times_the_values(watched: llamath.WatchedPass) -> None:
    for i in LAYERS:
        weights = np.array(watched[f"layers.{i}.attn.softmax"])
        values = np.array(watched[f"layers.{i}.attn.v"]).reshape(-1, 2, 32).repeat(2, axis=1)
        mixed = np.einsum("thk,khd->thd", weights, values)
        assert np.abs(mixed - np.array(watched[f"layers.{i}.attn.mix"])).max() < 1e-5
        assert not np.triu(weights.transpose(1, 0, 2), 1).any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_weights_of_heads_sum_to_one_in_each_dtype(dtype: str) -> None:
    found = llamath.watch("Anna had a red", dtype=dtype)
    for i in LAYERS:
        sums = np.array(found[f"layers.{i}.attn.softmax"]).sum(-1)
        assert np.abs(sums - 1).max() < 1e-5


def test_the_command_prints_the_report_at_both_widths(
    typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    done = typed("trace", "--values", TEXT, "--layers", "1")
    assert done.status == 0 and max(map(len, done.out.splitlines())) <= 60
    assert "layers.1.attn.q_rope" in done.out and "layers.0" not in done.out
    assert "   2  ' ball' 99%" in done.out and "layer 1 of 0 to 3" in done.out
    monkeypatch.setenv("COLUMNS", "80")
    wide = typed("trace", "embedded", TEXT, "--values", "--layers", "1")
    assert "[16, 4, 32]" in wide.out and "rms" in wide.out
    data = json.loads(typed("trace", "--values", TEXT, "--json").out)
    assert np.array(data["values"]["layers.0.attn.softmax"]).shape == (16, 4, 16)
    assert data["likely"][0]["text"] == " ball"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--values",), "--values needs a PROMPT"),
        (("--values", "Anna", "--next"), "--next is not combined with --values"),
        (("--values", "Anna", "--layers", "4"), "the model has no layer 4"),
        (("--values", "", "--layers", "1"), "the prompt is empty"),
        (("--values", "Anna " * 3000), "is longer than the context of"),
        (
            ("gpt2", "Anna", "--values"),
            "gpt2 is a preset, which has a configuration and no weights",
        ),
    ],
)
def test_what_cannot_be_watched_is_refused(
    words: tuple[str, ...], message: str, typed: Typed
) -> None:
    done = typed("trace", *words)
    assert done.status == 2 and message in done.err


def test_long_texts_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamath.native.watched_pass.MAX_TOKENS", 5)
    assert len(llamath.watch("Anna had a red").ids) == 5
    with pytest.raises(LlamathError, match="the text has 6 tokens, expected at most 5"):
        llamath.watch("Anna had a red ball")


def test_unknown_steps_are_refused_with_the_nearest(watched: llamath.WatchedPass) -> None:
    with pytest.raises(LlamathError, match=r"no step layers\.0\.attn\.Q") as caught:
        watched["layers.0.attn.Q"]
    assert "layers.0.attn.q" in str(caught.value.hint)
    assert watched[0].name == "embed" and len(watched[1:3]) == 2


def tiny(family: str) -> Any:
    folder = Path(__file__).parents[1] / "tiny"
    return next(iter(json.loads((folder / f"{family}.json").read_text()).values()))


def test_the_library_checks_what_it_is_asked_for() -> None:
    model = native_model(random_module(tiny("llama")), keep=True)
    library, ids = model.library, random_ids(model.vocab)
    session = NativeSession(model, 2, len(ids))
    view = model.program.results[0].view
    with pytest.raises(IndexError):  # no pass yet
        session.values(view._replace(buffer=len(model.program.buffers)))
    session.reserve(len(ids), 0)
    session.run([Row(0, ids, 0)])
    op = next(x.op for x in model.program.results if x.weights)
    weights, shape = session.attention(op, len(ids))
    assert len(weights) == np.prod(shape)
    for wrong in (-1, len(model.program.ops), 0):
        with pytest.raises(IndexError):
            session.attention(wrong, len(ids))
    handle, address = session._handle, weights.buffer_info()[0]
    assert library.session_attention(handle, op, address, len(weights) - 1) == -1
    session.run([Row(0, ids[:3], 0), Row(1, ids[:3], 0)])  # two sequences
    with pytest.raises(IndexError):
        session.attention(op, 3)


def test_shared_buffers_are_fewer_and_kept_ones_have_one_writer() -> None:
    tree = llamath.load("embedded").text.tree
    shared, kept = lower(tree), lower(tree, keep=True)
    assert not shared.results and len(shared.buffers) < 10 < len(kept.buffers)
    writers = [x.buffer for op in kept.ops for x in op.outs]
    assert len(writers) == len(set(writers))
