"""`llamath trace`: predicted shapes match tensors, sums match the tree, FLOPs match torch's counter, and errors are clear."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import llamath
from contract.checks.graphs import sums_are_exact
from contract.checks.modules import shapes_are_those_of_tensors
from llamath.analysis.graph.flop_count import forward_flops
from llamath.analysis.graph.recorder import record
from llamath.analysis.graph.walkthrough import (
    MISTAKEN_PRODUCT,
    attention_wiring,
    prompt_graph,
    walkthrough,
)
from llamath.cli import main
from llamath.torch import Llama, build, initialize
from llamath.torch.debug.trace_run import Trace, TracedPass, trace
from llamath.torch.module import Module
from llamath.utils.errors import LlamathError
from support.reference_data import TINY, computed_slugs
from support.tiny_checkpoint import tiny_checkpoint

GOLDEN = Path(__file__).parents[1] / "golden"
SHOWN = ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "gemma-3-27b", "qwen3-next-80b-a3b", "gpt2"]
Typed = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("slug", computed_slugs()[::9])
def test_step_sums_match_presets(slug: str) -> None:
    tree = llamath.load(slug).text.tree
    for batch in (1, 2):
        sums_are_exact(tree, batch, 9, 1)


@pytest.mark.parametrize(
    "family",
    ["llama", "gemma2", "gpt2", "mixtral", "deepseek_v3", "qwen3", "phi3", "falcon", "opt"],
)
def test_flops_match_torch(family: str) -> None:
    config = next(iter(json.loads((TINY / f"{family}.json").read_text()).values()))
    tree = llamath.load(config).tree
    result, ids = build(tree, device="meta"), torch.zeros(2, 9, dtype=torch.long, device="meta")
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        result(ids)
    assert (
        forward_flops(record(tree, batch=2, new_tokens=9), masked=False).total
        == counter.get_total_flops()
    )


@pytest.mark.parametrize("slug", ["llama-3.1-405b", "deepseek-v3", "qwen3-next-80b-a3b"])
def test_largest_models_trace_without_memory(slug: str) -> None:
    report = trace(llamath.load(slug), [0] * 7)
    assert report.device == "meta"
    shapes_are_those_of_tensors(report.first)
    shapes_are_those_of_tensors(report.following)


def test_recording_does_not_change_logits() -> None:
    for family in (
        "llama",
        "gemma2",
        "deepseek_v3",
        "mixtral",
        "qwen3_next",
        "gpt_oss",
        "nemotron_h",
        "falcon_mamba",
    ):
        model = llamath.load(next(iter(json.loads((TINY / f"{family}.json").read_text()).values())))
        result = initialize(build(model), std=0.1)
        ids = [3, 1, 4, 1, 5]
        with torch.inference_mode():
            expected = result(torch.tensor([ids]))[0, -1].softmax(-1)
        likely = trace(model, ids, result).top_tokens
        assert likely[0][0] == int(expected.argmax())
        assert all(abs(share - float(expected[token])) < 1e-5 for token, share in likely)


def test_window_limits_the_next_pass() -> None:
    model = llamath.load("gemma-3-270m", changes={"sliding_window": 4, "num_hidden_layers": 6})
    near, far = trace(model, [0] * 9).following.walk.layers  # type: ignore[union-attr]
    assert [
        int(x.shape[1]) for stage in (near, far) for x in stage.steps if x.name == "attn.keys"
    ] == [4, 10]


def test_wrong_shape_is_detected() -> None:
    model = llamath.load("gpt2", changes={"n_layer": 1})
    result = trace(model, [0] * 3).first
    other = walkthrough(prompt_graph(model.tree, 4))
    assert (
        "attn.scores should have shape (1, 12, 4, 4), found (1, 12, 3, 3)"
        in TracedPass(walk=other, shapes=result.shapes).mismatches
    )


def test_published_flops_example() -> None:
    """ai.stackexchange.com/questions/40592: 32 heads × 766 × 2,048 positions × 4,096."""
    assert MISTAKEN_PRODUCT == 205_621_559_296
    result = attention_wiring(llamath.load("llama-1-7b").tree)
    assert result is not None and result.learned is None
    assert (int(result.joined), int(result.matrix.size)) == (4096, 16_777_216)
    assert result.mistaken_size == 32 * 4096 * 2048 * 4096
    learned = attention_wiring(llamath.load("gpt2").tree)
    assert learned is not None and learned.learned is not None and learned.context == 1024


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Runs the command line in this process."""
    monkeypatch.setenv("COLUMNS", "80")

    def answer(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["llamath", "trace", *map(str, words)])
        status = 0
        try:
            main()
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return answer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_checkpoint(tmp_path_factory.mktemp("models") / "speaker")


@pytest.mark.parametrize("slug", SHOWN)
def test_golden(slug: str, typed: Typed) -> None:
    _, shown, _ = typed(slug)
    path = GOLDEN / f"trace-{slug}.txt"
    if os.environ.get("LLAMATH_GOLDEN"):
        path.write_text(shown)
    assert shown == path.read_text()
    assert max(map(len, shown.splitlines())) <= 80


def test_wide_terminal_shows_descriptions(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    _, out, _ = typed("llama-3-8b")
    assert "4 query heads per KV head" in out and max(map(len, out.splitlines())) <= 160


def test_trace_runs_a_prompt(folder: Path, typed: Typed) -> None:
    status, out, _ = typed(folder, "The cat sat", "--json")
    data = json.loads(out)
    assert status == 0 and data["numbers"]
    assert [x["text"] for x in data["tokens"]] == ["<s>", "The", " cat", " sat"]
    ours = Llama.open(folder)
    with torch.inference_mode():
        expected = (
            ours.module(torch.tensor([ours.encode("The cat sat")]))[0, -1].softmax(-1).topk(5)
        )
    assert [x["id"] for x in data["likely"]] == expected.indices.tolist()
    assert [x["probability"] for x in data["likely"]] == pytest.approx(
        expected.values.tolist(), rel=1e-4
    )
    steps = [x for stage in data["prompt"]["stages"] for x in stage["steps"]]
    assert all(x["tensor"] == x["shape"] for x in steps)
    assert next(x for x in steps if x["name"] == "attn.scores")["weights"] == []
    assert data["cached"] == {"tokens": 5, "numbers": 2 * 2 * 5 * 16, "bytes": 4 * 2 * 2 * 5 * 16}
    assert data["next"]["context"] == 5
    _, text, _ = typed(folder, "The cat sat")
    assert "tokens: '<s>' 'The' ' cat' ' sat'" in text and "probability" in text


def test_trace_without_weights(folder: Path, tmp_path: Path, typed: Typed) -> None:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text((folder / name).read_text())
    status, out, _ = typed(tmp_path, "The cat sat", "--json")
    data = json.loads(out)
    assert status == 0 and (data["device"], len(data["tokens"]), data["likely"]) == ("meta", 4, [])


def test_trace_of_one_layer(typed: Typed) -> None:
    _, out, _ = typed("deepseek-v3", "--layers", 1)
    assert (
        "layers 0–2 × 3" in out
        and "layer 1 shown; the others are identical" in out
        and "layers 3–60 × 58" in out
    )
    assert "mlp.router" not in out and "mlp.gate" in out and "671B" in out


def test_trace_of_the_next_token(typed: Typed) -> None:
    _, out, _ = typed("deepseek-v3", "--next", "--context", 9)
    assert "[B, H, 1, M] = [1, 128, 1, 10]" in out and "[B, 1, H, r]" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["llama-3-8b", "--layers", "32"], "layer 32 does not exist: the model has 32 layers"),
        (["llama-3-8b", "--layers", "-1"], "--layers should be"),
        (["llama-3-8b", "a prompt"], "is a preset, which has a configuration and no weights"),
        (["embedded", " "], "the prompt is empty"),
        (["llama-3-8b", "--context", "0"], "--context"),
        (["gpt2", "--context", "1025"], "longer than the context of 1,024"),
        (["/nowhere/at/all"], "does not exist"),
        ([], "which MODEL?"),
    ],
)
def test_errors(words: list[str], message: str, typed: Typed) -> None:
    status, out, err = typed(*words)
    assert (status, out) == (2, "") and message in err and "Traceback" not in err


def test_errors_with_weights(folder: Path, tmp_path: Path, typed: Typed) -> None:
    assert "is longer than the context of 128" in typed(folder, "cat " * 200)[2]
    assert "cannot compute" in typed(folder, "cat", "--device", "mars")[2]
    broken = tiny_checkpoint(tmp_path / "broken")
    numbers = load_file(broken / "model.safetensors")
    numbers["model.layers.1.mlp.up_proj.weight"][0, 0] = torch.nan
    save_file(numbers, broken / "model.safetensors")
    status, _, err = typed(broken, "cat")
    assert status == 2 and "layers.1.mlp.up.weight" in err
    model = llamath.load(str(folder))
    with pytest.raises(LlamathError, match="token 320, but the model's embedding has 320 rows"):
        trace(model, [320])
    with pytest.raises(LlamathError, match="the prompt is empty"):
        trace(model, [])


def test_prompt_may_fill_the_context(typed: Typed) -> None:
    status, out, _ = typed("gpt2", "--context", 1024)
    assert status == 0 and "fills the context" in out and "cached after 1,024 tokens" in out


def test_picture_is_not_overwritten(tmp_path: Path, typed: Typed) -> None:
    place = tmp_path / "block.svg"
    assert typed("llama-3-8b", "-o", place)[0] == 0
    assert "already exists" in typed("llama-3-8b", "-o", place)[2]
    assert typed("llama-3-8b", "-o", place, "--force", "--next")[0] == 0
    assert "[B, H, 1, M] = [1, 32, 1, 8]" in place.read_text()


def test_model_without_a_head(typed: Typed) -> None:
    status, out, _ = typed("llama-3-8b", "--set", 'architectures=["LlamaModel"]')
    assert status == 0 and "probabilities" not in out


def test_billion_layers(typed: Typed) -> None:
    status, out, _ = typed(
        "llama-3-8b", "--set", "num_hidden_layers=1000000000", "--layers", 999999999
    )
    assert status == 0 and "layers × 1,000,000,000" in out


def test_declared_experts_and_layers_build_no_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    built = 0
    init = Module.__init__

    def count(self: Module, *args: Any, **options: Any) -> None:
        nonlocal built
        built += 1
        init(self, *args, **options)

    monkeypatch.setattr(Module, "__init__", count)
    config = {
        "model_type": "mixtral",
        "vocab_size": 99,
        "hidden_size": 32,
        "intermediate_size": 56,
        "num_attention_heads": 4,
    }
    counts = []
    for experts, layers in ((4, 2), (10**12, 2), (4, 10**9)):
        built = 0
        keys = {
            "num_local_experts": experts,
            "num_experts_per_tok": 2,
            "num_hidden_layers": layers,
            "num_key_value_heads": 2,
        }
        report = trace(llamath.load({**config, **keys}), [0] * 3)
        shapes_are_those_of_tensors(report.first)
        counts.append(built)
    assert len(set(counts)) == 1, counts


def test_report_is_frozen() -> None:
    report: Trace = trace(llamath.load("gpt2"), [0])
    with pytest.raises(AttributeError):
        report.ids = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("words", "ask"),
    [
        (["gpt2"], {"model": "gpt2"}),
        (["gpt2", "--layers", "3"], {"model": "gpt2", "layer": 3}),
        (
            ["deepseek-v3", "--next", "--context", "1k", "--set", "num_hidden_layers=4"],
            {
                "model": "deepseek-v3",
                "decode": True,
                "context": "1k",
                "changes": {"num_hidden_layers": 4},
            },
        ),
        (["embedded", "The cat"], {"model": "embedded", "prompt": "The cat"}),
        (["embedded", "The cat", "--next"], {"model": "embedded", "prompt": "The cat"}),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_function_answers_as_the_command_does(
    words: list[str], ask: dict[str, Any], typed: Typed
) -> None:
    report = llamath.trace(**(ask | {"decode": "--next" in words}))
    assert f"{report}\n" == typed(*words)[1]
    assert f"{report.summary}\n" == typed(*words, "--brief")[1]
    assert json.loads(json.dumps(report.to_json())) == json.loads(typed(*words, "--json")[1])
    rows = report.rows()
    assert len(report) == len(rows) and report and report[0].name == rows[0]["step"]
    if "--layers" not in words:
        assert sum(x["times"] * x["FLOPs"] for x in rows) == report.walk.flops


def test_function_refuses_what_cannot_run() -> None:
    with pytest.raises(LlamathError, match="model should be a path or a repository"):
        llamath.trace(llamath.load("gpt2"), "The cat")
    with pytest.raises(LlamathError, match="at most 131,072 tokens are traced, found 1,048,576"):
        llamath.trace("gpt2", context="1M")
    with pytest.raises(LlamathError, match="images traces shapes, without a prompt"):
        llamath.trace("embedded", "The cat", images="1x64")
    with pytest.raises(LlamathError, match="the prompt is empty"):
        llamath.trace("embedded", "")
