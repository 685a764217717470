"""The files themselves: examples that are reviewed, checkpoints, sizes, training, and the command."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.analysis.code.code_report import write_code
from llamath.analysis.code.forward_code import ForwardWriter
from llamath.analysis.code.refusal import NotWritten
from llamath.core.tree import CountedOnly
from support.contract import configurations
from support.reference_data import computed_slugs
from support.typed_commands import Typed
from support.written_models import EXAMPLES, names_of, same_weights, written

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
CONFIGURATIONS = configurations()
REFUSED_PRESETS = {
    "falcon-rw-1b",
    "minimax-m1-80k",
    "minimax-text-01",
    "zamba-7b",
    "zamba2-7b",
}
"""Presets that are computed and not written: this set only gets smaller."""
CHECKPOINTS = (
    "llama-plain",
    "gpt2-plain",  # transposed and fused
    "mixtral-plain",
    "deepseek_v3-yarn",  # fused by head, and buffers
    "qwen3_next-plain",
    "mamba-plain",
    "gpt_oss-plain",  # stacked and interleaved
    "gpt_neox-plain",
    "phi3-plain",
    "gemma2-plain",
    "bloom-plain",
    "lfm2-plain",
    "falcon_h1-plain",
    "olmo2-plain",
    "llama4-plain",
    "glm4_moe-plain",
)
BY_DEFAULT = 8


@pytest.fixture(autouse=True)
def one_thread(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("slow"):  # models this small are slower with more
        import torch

        torch.set_num_threads(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    whole = metafunc.config.getoption("--all")
    if "checkpoint" in metafunc.fixturenames:
        metafunc.parametrize("checkpoint", CHECKPOINTS if whole else CHECKPOINTS[:BY_DEFAULT])
    if "asserted" in metafunc.fixturenames:
        known = [x for x in computed_slugs() if x not in REFUSED_PRESETS]
        few = [x for x in EXAMPLES[:4] if x != "deepseek-v3"]  # 45,000 modules take ten seconds
        metafunc.parametrize("asserted", known if whole else [*few, "deepseek-v2-lite"])


def statements(lines: list[str]) -> list[str]:
    """What a file runs, without the two docstrings that have the model's name."""
    docstring, *rest = ast.parse("\n".join(lines)).body
    assert isinstance(docstring, ast.Expr)
    config = next(x for x in rest if isinstance(x, ast.ClassDef))
    assert config.name == "Config" and ast.get_docstring(config)
    config.body = config.body[1:]
    return [ast.dump(x) for x in rest]


@pytest.mark.parametrize(
    "name",
    ['x"""; import os; """', "back\\N{x}", "end\\", "a\nimport os", '"', "\u202e" + "x" * 500],
)
@pytest.mark.parametrize("form", ["torch", "latex"])
def test_a_name_in_a_file_stays_text(name: str, form: str) -> None:
    """Folders and GGUF files may have any name, and the file is run."""
    plain = llamath.load("llama-3-8b")
    lines = write_code(plain.replace(name=name), form).text.splitlines()
    expected = write_code(plain, form).text.splitlines()
    if form == "latex":
        assert lines[0].startswith("% ") and lines[1:] == expected[1:]
        return
    assert statements(lines) == statements(expected)


@pytest.mark.parametrize("preset", EXAMPLES)
def test_golden_example(preset: str) -> None:
    path = FOLDER / f"{preset.replace('.', 'p').replace('-', '_')}.py"
    text = written(preset).text
    if os.environ.get("LLAMATH_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "LLAMATH_GOLDEN=1 writes it anew"


def test_examples_have_no_lint_and_short_lines() -> None:
    ruff = shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed")
    command = [ruff, "check", "--isolated", "--line-length=100", "--select=E,F,W,B,UP,I,PIE,RET"]
    found = subprocess.run([*command, str(FOLDER)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout


@pytest.mark.slow
def test_preset_asserts_its_parameters(asserted: str) -> None:
    import torch

    report = written(asserted)
    names = names_of(report)
    with torch.device("meta"):
        model = names["Model"](names["Config"]())
    assert sum(x.numel() for x in model.parameters()) == report.parameters
    buffers = sum(x.numel() for x in model.buffers())
    assert report.parameters + buffers == report.model.text.parameters.total


def test_refused_presets_only_get_fewer() -> None:
    for preset in REFUSED_PRESETS:
        with pytest.raises(NotWritten):
            written(preset)
    assert len(REFUSED_PRESETS) <= 0.03 * len(computed_slugs())


def test_model_without_a_forward_pass_is_refused_by_name() -> None:
    with pytest.raises(CountedOnly, match="JetMoE"):
        written("jetmoe-8b")


@pytest.mark.transformers
@pytest.mark.parametrize("names", ["llamath", "hf"])
def test_file_loads_a_checkpoint_of_transformers(
    checkpoint: str, names: str, tmp_path: Path
) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    from support.transformers_pair import as_published, pair, published_name

    config = CONFIGURATIONS[checkpoint][1]
    both = pair(config)
    both.theirs.save_pretrained(tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    tensors = as_published(config, load_file(path))
    save_file({published_name(k): x for k, x in tensors.items()}, path)
    model = names_of(written(dict(config), names=names))["load"](tmp_path)
    ids = both.ids(12)
    with torch.no_grad():
        found, expected = model(ids), both.theirs(ids).logits
    assert float((found - expected).abs().max()) < 2e-5 * max(1.0, float(expected.abs().max()))


SMALL = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "vocab_size": 99,
    "sliding_window": 5,
    "num_local_experts": 6,
    "num_experts_per_tok": 3,
    "q_lora_rank": 24,
    "kv_lora_rank": 20,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "moe_intermediate_size": 20,
    "n_routed_experts": 8,
    "n_group": 4,
    "topk_group": 2,
    "first_k_dense_replace": 1,
    "query_pre_attn_scalar": 12,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}


@pytest.mark.parametrize(
    "preset", ["llama-3-8b", "llama-3.2-1b", "gemma-2-9b", "gpt-oss-20b", "deepseek-v3"]
)
def test_file_with_a_smaller_config_is_the_smaller_model(preset: str) -> None:
    import torch

    from llamath.torch import build, initialize

    keys = dict(llamath.load(preset).config.data)
    smaller = keys | {k: v for k, v in SMALL.items() if k in keys}
    module = initialize(build(llamath.load(smaller).tree), std=0.1)
    small = names_of(written(smaller))["Config"]()
    theirs = same_weights(names_of(written(preset)), module, **vars(small))
    ids = torch.randint(0, 50, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert float((theirs(ids) - module(ids)).abs().max()) < 2e-5


def test_file_trains_on_the_bundled_stories() -> None:
    import torch
    from torch.nn.functional import cross_entropy

    from llamath import embedded
    from tiny.texts import batches, padded, texts
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(Path(embedded.path()) / "tokenizer.json"))
    names = names_of(written("llama-3-8b"))
    torch.manual_seed(0)
    sizes = {"d": 64, "H": 4, "K": 2, "h": 16, "F": 128, "L": 2, "V": 896}
    model = names["Model"](names["Config"](**sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data, losses = batches(texts(1), tokenizer, 1024, 256), []
    for _ in range(30):
        ids, following = map(torch.tensor, padded(next(data)))
        loss = cross_entropy(model(ids).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[0] > 6
    assert losses[-1] < 0.75 * losses[0]
    assert all(x.grad is None for x in model.parameters())


def test_generate_appends_the_most_likely_tokens() -> None:
    import torch

    names = names_of(written("llama-3-8b"))
    sizes = {"d": 32, "H": 4, "K": 2, "h": 8, "F": 48, "L": 2, "V": 40}
    model, ids = names["Model"](names["Config"](**sizes)), torch.tensor([[1, 2, 3]])
    found, narrow = (names["generate"](model, ids, 4, *x) for x in ((), (1.0, 0.0)))
    for _ in range(4):
        ids = torch.cat((ids, model(ids)[:, -1:].argmax(-1)), 1)
    assert found.tolist() == narrow.tolist() == ids.tolist()


def test_generate_draws_by_temperature_and_top_p() -> None:
    import torch

    generate = names_of(written("llama-3-8b"))["generate"]
    shares = torch.tensor([0.1, 0.5, 0.3, 0.1])
    many = torch.zeros(4000, 1, dtype=torch.long)

    def drawn(temperature: float, top_p: float) -> list[float]:
        torch.manual_seed(0)
        ids = generate(
            lambda new, _: shares.log().expand(*new.shape, 4), many, 1, temperature, top_p
        )
        return (ids[:, 1].bincount(minlength=4) / len(many)).tolist()

    assert drawn(1, 1) == pytest.approx(shares.tolist(), abs=0.03)
    assert drawn(1, 0.7) == pytest.approx([0, 5 / 8, 3 / 8, 0], abs=0.03)
    roots = shares.sqrt() / shares.sqrt().sum()
    assert drawn(2, 1) == pytest.approx(roots.tolist(), abs=0.03)


def test_each_weight_is_on_a_line() -> None:
    report = written("deepseek-v3")
    lines = report.to_json()["lines"]
    assert [x["line"] for x in lines] == list(range(1, len(lines) + 1))
    made = {y for x in lines for y in x["weights"]}
    assert made == {x.pattern for x in llamath.walk(llamath.load("deepseek-v3").tree)}
    (line,) = [x for x in lines if "self.kv_down(x)" in x["text"]]
    assert line["block"] == "LatentAttention"
    assert "layers.{l}.attn.kv_down.weight" in line["weights"]
    assert "linear" in line["operations"]


def test_command_writes_a_file_once(typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    first = typed("code", "llama-3-8b", "-o", str(path))
    assert (first.status, first.out) == (0, "")
    assert path.read_text() == written("llama-3-8b").text
    again = typed("code", "llama-3-8b", "-o", str(path))
    assert again.status == 2
    assert "--force" in again.err
    assert typed("code", "llama-3-8b", "-o", str(path), "--force").status == 0


def test_files_that_it_cannot_load_are_refused_by_name(typed: Typed, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    from llamath import embedded

    source = Path(embedded.path())
    assert typed("code", str(source)).status == 0
    shutil.copytree(source, tmp_path / "renamed")
    path = tmp_path / "renamed" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.final"] = tensors.pop("model.norm.weight")
    save_file(tensors, path)
    found = typed("code", str(tmp_path / "renamed"))
    assert found.status == 2
    assert "model.norm.weight" in found.err
    assert typed("convert", str(source), str(tmp_path / "x.gguf")).status == 0
    found = typed("code", str(tmp_path / "x.gguf"))
    assert found.status == 2
    assert "gguf files" in found.err


def tiny_mixtral(tmp_path: Path) -> tuple[dict[str, Any], Any]:
    """Return the names of a file of Mixtral, and a small model saved under its stored names."""
    from safetensors.torch import save_file

    names = names_of(written("mixtral-8x7b"))
    sizes = {"d": 16, "H": 4, "K": 2, "h": 4, "F": 8, "V": 20, "L": 2, "E": 3}
    config = names["Config"](**sizes)
    tensors = names["Model"](config).state_dict()
    save_file({names["stored_name"](k): x for k, x in tensors.items()}, tmp_path / "x.safetensors")
    return names, config


@pytest.mark.parametrize("quantized", ["float8_e4m3fn", "uint8", "int8"])
def test_written_load_refuses_quantized_and_missing_weights(quantized: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    names, config = tiny_mixtral(tmp_path)
    whole = load_file(tmp_path / "x.safetensors")
    assert len(names["load"](tmp_path, config).state_dict()) == len(whole)
    key = "model.layers.1.block_sparse_moe.experts.2.w1.weight"
    save_file(whole | {key: whole[key].to(getattr(torch, quantized))}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=f"{key} in .* is quantized, torch.{quantized}"):
        names["load"](tmp_path, config)
    save_file({k: x for k, x in whole.items() if k != key}, tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=f"{key} in .* is missing"):
        names["load"](tmp_path, config)


@pytest.mark.parametrize("preset", EXAMPLES)
def test_letters_of_shapes_are_those_of_the_file(preset: str) -> None:
    text = written(preset).text
    (tokens,) = re.findall(r"B sequences, (\w) new tokens", text)
    fields = set(re.findall(r"^    (\w+): (?:int|float)\b", text, re.MULTILINE))
    counts = {tokens, *re.findall(r"tokens, (\w) tokens up to now", text)}
    assert not counts & fields
    for axis in re.findall(r"\(B, (\w+), ", text):
        assert axis in counts or not axis.isupper(), axis
    for shape in re.findall(rf"\(((?:B|{tokens}), [^()]*)\)", text):
        assert set(re.findall(r"\b[A-Z]\w?\b", shape)) <= fields | counts | {"B"}, shape


def test_frequencies_of_rope_are_float32_whatever_the_default() -> None:
    import torch

    names = names_of(written("deepseek-v3"))
    numbers = (10_000.0, 40.0, 4096, 32.0, 1.0)
    x, pos = torch.randn(1, 3, 2, 64), torch.tensor([5, 900, 3000])
    expected = names["rope"](x, pos, *numbers)
    torch.set_default_dtype(torch.bfloat16)
    try:
        assert torch.equal(names["rope"](x, pos, *numbers), expected)
    finally:
        torch.set_default_dtype(torch.float32)


def test_command_refuses_by_name(typed: Typed) -> None:
    found = typed("code", "minimax-text-01")
    assert found.status == 2
    assert "linear_attention" in found.err
    part = typed("code", "llama-3-8b", "--part", "Atention")
    assert part.status == 2
    assert "did you mean Attention?" in part.err


def test_multimodal_model_is_its_text_model(typed: Typed) -> None:
    found = typed("code", "qwen2-vl-2b", "--json")
    answer = json.loads(found.out)
    assert answer["parameters"] < llamath.load("qwen2-vl-2b").parameters.total
    assert "text model only" in found.err
    assert any("text model" in x["text"] for x in answer["lines"][:12])


def test_formulas_are_one_for_each_statement(typed: Typed) -> None:
    found = typed("code", "gemma-2-9b", "--form", "math", "--part", "Attention")
    assert "50 tanh(q kᵀ · 0.0625 / 50)" in found.out
    assert "∈ ℝ^(B×T×H×h)" in found.out
    latex = typed("code", "llama-3-8b", "--form", "latex")
    assert r"\frac{q k^\top}{\sqrt{h}}" in latex.out
    assert latex.out.count(r"\begin{align*}") == latex.out.count(r"\end{align*}") == 4


def test_blocks_that_differ_in_sizes_alone_are_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written_blocks: list[str] = []
    write = ForwardWriter.write

    def count(self: ForwardWriter) -> None:
        written_blocks.append(type(self.body.block).__name__)
        write(self)

    monkeypatch.setattr(ForwardWriter, "write", count)
    report = written("openelm-270m")  # 16 layers, each with a width of its own
    assert written_blocks.count("Layer") == 1
    assert written_blocks.count("MLP") == 3  # of F1, of F3 = d, and of the longer F10
    assert all(f"F{i}: int" in report.text for i in range(1, 17))
