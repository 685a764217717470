"""`count`: parts sum to the total, the formula evaluates to it, and the printed table is golden and sums."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import llamath
from contract.checks.counted import evaluated
from llamath.analysis.understand.count.count_report import CountReport
from llamath.analysis.understand.count.stored_names import stored_names
from llamath.catalog import slugs
from llamath.cli import cli
from llamath.core.tree import fold
from support.csv_tables import csv_rows

GOLDEN = Path(__file__).parents[1] / "golden"
SHOWN = ["llama-3-8b", "llama-3.2-1b", "mixtral-8x7b", "deepseek-v3", "gemma-2-2b", "gpt2"]


def run(*args: str) -> str:
    done = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, args, catch_exceptions=False, standalone_mode=False
    )
    return done.stdout


@pytest.mark.slow
def test_json_lists_every_expert() -> None:
    model = llamath.load("deepseek-v3")
    output = CountReport(model=model).to_json()
    assert len([x for x in output["weights"] if x["group"] == "experts"]) == 58 * 256 * 3
    stored = stored_names(model, "hf", "bf16").to_json()["tensors"]
    assert len([x for x in stored if not x["mtp"]]) == 45_395
    stored = stored_names(model, "hf").to_json()[
        "tensors"
    ]  # with a tensor of scales for each FP8 matrix
    assert len([x for x in stored if not x["mtp"]]) == 90_427
    assert len(stored) == 91_991  # as in the published index
    assert output["parameters"]["total"] == 671_026_419_200


@pytest.mark.parametrize("slug", SHOWN)
def test_printed_table_is_golden(slug: str) -> None:
    text = run("count", slug)
    path = GOLDEN / f"{slug}.txt"
    if os.environ.get("LLAMATH_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "LLAMATH_GOLDEN=1 writes it anew; read the difference"


@pytest.mark.parametrize("slug", SHOWN)
def test_printed_rows_sum_to_the_printed_total(slug: str) -> None:
    lines = (GOLDEN / f"{slug}.txt").read_text().splitlines()
    total = int(re.search(r": ([\d,]+) parameters", lines[0])[1].replace(",", ""))  # type: ignore[index]
    table = lines[lines.index("") + 2 :]
    table = table[: table.index("")]
    rows = [
        int(x[1].replace(",", ""))
        for line in table
        if (x := re.search(r" ([\d,]+) +(?:[\d.]+%|tied)$", line)) and line[0] != " "
    ]
    sections = [
        int(x[1].replace(",", ""))
        for line in table
        if (x := re.search(r" ([\d,]+) +[\d.]+%$", line)) and re.match(r" +layers ", line)
    ]
    outside = [line for line in table if not re.search(r"^\w* +(layers|  )", line)]
    assert sum(rows) == total
    assert sections and outside


@pytest.mark.parametrize("slug", ["llama-3-8b", "mixtral-8x7b", "gemma-2-2b"])
def test_csv_and_markdown_sum_to_the_total(slug: str) -> None:
    total = llamath.load(slug).parameters.total
    assert (
        sum(int(row["total"]) for row in csv_rows(run("count", slug, "--format", "csv"))) == total
    )
    parts = run("count", slug, "--format", "markdown").split("\n\n")
    table = next(x for x in parts if x.startswith("| group")).splitlines()
    rows = [line.strip("| ").split(" | ") for line in table[2:]]
    weights = [x for x in rows if x[0] in llamath.count(slug).groups]
    assert sum(int(row[-2].replace(",", "")) for row in weights) == total
    assert (
        sum(
            int(row["parameters"])
            for row in csv_rows(run("count", slug, "--all", "--format", "csv"))
        )
        == total
    )


@pytest.mark.parametrize("slug", [*SHOWN, "qwen3.5-35b-a3b", "mamba-2.8b"])
def test_formulas_of_the_groups_sum_to_the_total(slug: str) -> None:
    model = llamath.load(slug)
    letters = dict(model.count.formula.letters)
    text = re.sub(r"\n {5,}", " ", run("count", slug).partition("\nformula\n")[2])
    *lines, last = text.strip().splitlines()
    formulas = dict(x.split(maxsplit=1) for x in lines)
    groups = {name: evaluated(formula, letters) for name, formula in formulas.items()}
    assert last.strip() == f"in all {model.parameters.total:,}; --format formula writes it in one"
    assert groups == {name: n for name, n in model.count.groups.items() if n}


def test_formula_of_the_total_is_printed_when_asked_for() -> None:
    formula, text = llamath.load("llama-3-8b").count.formula, run("count", "llama-3-8b")
    whole = " ".join(run("count", "llama-3-8b", "--format", "formula").split())
    assert formula.symbols in whole and formula.numbers in whole
    assert formula.symbols not in text and "--format formula writes it in one" in text


@pytest.mark.parametrize("more", [("--all",), ("--json",)])
def test_formula_is_about_text(more: tuple[str, ...]) -> None:
    words = ["count", "llama-3-8b", "--format", "formula", *more]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 2 and more[0] in done.stderr


def test_letters_are_explained_before_they_are_used() -> None:
    text = run("count", "llama-3-8b")
    assert text.index("V vocab_size") < text.index("V×d")


def test_every_weight_can_be_shown() -> None:
    lines = run("count", "llama-3-8b", "--all").splitlines()
    rows = [x.split() for x in lines if x.startswith("layers.3.")]
    assert sum(int(x[-1].replace(",", "")) for x in rows) == 218_112_000
    assert sum(x.startswith("layers.") for x in lines) == 32 * len(rows) and len(rows) == 9


def test_llama_3_8b_fits_one_screen() -> None:
    lines = run("count", "llama-3-8b").splitlines()
    assert len(lines) <= 45 and max(map(len, lines)) <= 80


def test_tables_fit_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for slug in ("llama-3-8b", "deepseek-v3", "gemma-4-31b", "qwen3-next-80b-a3b", "kimi-k3"):
        assert max(map(len, str(llamath.count(slug)).splitlines())) <= 80, slug


@pytest.mark.slow
def test_list_of_presets_fits_the_terminal() -> None:
    lines = run("models").splitlines()
    refused = [x for x in lines if x.startswith(("refused: ", "  "))]
    assert len(lines) - len(refused) == len(slugs()) + 2 and max(map(len, lines)) <= 80


def test_notebooks_show_a_table() -> None:
    html = llamath.load("llama-3-8b")._repr_html_()
    assert html.count("<tr") >= 12 and "8,030,261,248" in html
    hostile = llamath.load({**llamath.load("llama-3-8b").config.data}).replace(name="<script>")
    assert "<script>" not in hostile._repr_html_()


sizes = st.integers(1, 12)


@settings(max_examples=150, deadline=None)
@given(st.data())
@pytest.mark.slow
def test_random_llamas_match_the_formula(data: st.DataObject) -> None:
    K, group, h, L, V, F, d = (data.draw(sizes) for _ in range(7))
    bias, tied, mlp_bias = (data.draw(st.booleans()) for _ in range(3))
    H, h = K * group, 2 * h  # an odd head has no pairs of channels to rotate
    model = llamath.load(
        {
            "model_type": "llama", "hidden_size": d, "vocab_size": V, "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": H,
            "num_key_value_heads": K, "head_dim": h, "attention_bias": bias, "mlp_bias": mlp_bias, "tie_word_embeddings": tied,
        }
    )  # fmt: skip
    attention = 2 * d * H * h + 2 * d * K * h + bias * (H * h + 2 * K * h + d)
    layer = attention + 3 * d * F + mlp_bias * (2 * F + d) + 2 * d
    assert model.parameters.total == V * d * (2 - tied) + L * layer + d
    assert (
        evaluated(model.count.formula.symbols, dict(model.count.formula.letters))
        == model.parameters.total
    )
    assert len(list(model.weights)) == sum(int(x.copies) for x in fold(model.tree))


@pytest.mark.parametrize(
    ("preset", "tensors", "rotary"),
    [
        ("llama-3-8b", 291, {}),
        ("llama-3.1-8b", 292, {"rope_freqs.weight": (64,)}),
        (
            "phi-3.5-mini",
            197,
            {"rope_factors_long.weight": (48,), "rope_factors_short.weight": (48,)},
        ),
    ],
)
def test_gguf_files_have_rotary_factors(
    preset: str, tensors: int, rotary: dict[str, tuple[int, ...]]
) -> None:
    """llama.cpp prints 291 for Llama 3 8B (abetlen/llama-cpp-python#1525)."""
    for dtype in ("", "q4_k_m"):
        found = llamath.stored_names(preset, names="gguf", dtype=dtype)
        assert len(found.tensors) == tensors
        assert {x.name: x.shape for x in found.tensors if x.name.startswith("rope")} == rotary
        assert sum(x.parameters for x in found.tensors) == llamath.load(preset).parameters.total
        assert any("factors of rotary" in x for x in found.notes) == bool(rotary)
