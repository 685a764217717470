"""The figures of the five articles are reproduced, and their errors are confirmed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import llamath
from llamath.cli import cli

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "five-articles.md"


def shapes_and_sizes(slug: str) -> dict[str, tuple[tuple[int, ...], int]]:
    model = llamath.load(slug)
    return {
        row.pattern: (tuple(map(int, row.weight.shape)), row.parameters)
        for section in model.count.sections
        for row in section.rows
    }


def test_llama_2_7b_and_llama_3_8b_matrix_by_matrix() -> None:
    two, three = llamath.load("llama-2-7b"), llamath.load("llama-3-8b")
    shapes = shapes_and_sizes("llama-3-8b")
    assert shapes["embed.weight"][0] == shapes["head.weight"][0] == (128256, 4096)
    assert shapes["attn.q.weight"][0] == shapes["attn.o.weight"][0] == (4096, 4096)
    assert shapes["attn.k.weight"][0] == shapes["attn.v.weight"][0] == (1024, 4096)
    assert shapes["mlp.gate.weight"][0] == shapes["mlp.up.weight"][0] == (14336, 4096)
    assert shapes["mlp.down.weight"][0] == (
        4096,
        14336,
    )  # 4,096 outputs, which the article gives as 14,336
    assert (three.parameters.per_layer, two.parameters.per_layer) == (218_112_000, 202_383_360)
    assert (three.parameters.total, two.parameters.total) == (8_030_261_248, 6_738_415_616)
    final_norm = shapes_and_sizes("llama-3-8b")["norm.weight"][1]  # which the article leaves out
    assert (three.parameters.total - final_norm, two.parameters.total - final_norm) == (
        8_030_257_152,
        6_738_411_520,
    )
    delta = {
        group: three.count.groups[group] - two.count.groups[group] for group in three.count.groups
    }
    assert delta["embedding"] + delta["head"] == 788_529_152 and delta["mlp"] == 1_308_622_848
    assert delta["attention"] == -805_306_368  # k and v shrank
    assert sum(delta.values()) == 1_291_845_632


def test_context_length_is_in_no_weight() -> None:
    model = llamath.load(llamath.ModelArgs(vocab_size=50_000))
    groups = model.count.groups
    assert groups["attention"] + groups["mlp"] == 6_476_005_376  # blocks without norms
    assert 6.88e9 < model.parameters.total < 6.9e9
    shapes = [x.shape for x in model.weights]
    assert not any(int(n) == 2048 for shape in shapes for n in shape), (
        "the context length is in no weight"
    )
    assert (
        llamath.load("llama-2-7b", changes={"max_position_embeddings": 1}).parameters
        == llamath.load("llama-2-7b").parameters
    )


def test_llama_1_without_its_head() -> None:
    assert llamath.load("llama-1-7b").parameters.without_head == 6_607_343_616
    assert llamath.load("llama-1-65b").parameters.without_head == 65_023_516_672
    headless = llamath.load(
        {**llamath.load("llama-1-7b").config.data, "architectures": ["LlamaModel"]}
    )
    assert headless.parameters.total == 6_607_343_616
    norms = [
        row
        for section in headless.count.sections
        if section.indices
        for row in section.rows
        if row.group == "norm"
    ]
    assert sum(row.parameters for row in norms) == 8_192  # per layer; the article says 8.19 million


def test_hypothetical_and_published_405b() -> None:
    assert llamath.load("classic-405b").parameters.total == 403_350_487_040
    real = llamath.load("llama-3.1-405b")
    assert real.parameters.total == 405_853_388_800
    assert (real.tree.width, real.tree.layers.n, real.tree.vocab) == (16_384, 126, 128_256)


def test_model_args_have_meta_defaults() -> None:
    defaults = llamath.ModelArgs()
    assert (
        defaults.norm_eps,
        defaults.max_batch_size,
        defaults.max_seq_len,
        defaults.vocab_size,
    ) == (1e-5, 32, 2048, -1)
    args = llamath.ModelArgs(
        vocab_size=128_256,
        n_kv_heads=8,
        multiple_of=1024,
        ffn_dim_multiplier=1.3,
        rope_theta=500_000.0,
    )
    assert args.ffn_width == 14_336
    assert llamath.load(args).parameters.total == 8_030_261_248
    with pytest.raises(llamath.ConfigError, match="vocab_size"):
        llamath.load(defaults)


@pytest.mark.parametrize(
    ("number", "words", "is_mistake"),
    [
        (205_621_559_296, "32 heads × 766 × 2,048 tokens × 4,096", True),
        (210_990_268_416, "32 heads × 786 × 2,048 tokens × 4,096", True),
        (8_835_567_616, "all 32 heads have their own K and V here", True),
        (1_050_673_152, "Llama 3.1 8B, embedding and head", False),
        (218_112_000, "Llama 3.1 8B, one layer", False),
        (202_383_360, "Llama 2 7B, one layer", False),
        (6_476_005_376, "Llama 2 7B, the matrices of all layers", False),
        (16_777_216, "Llama 2 7B, one matrix [4,096, 4,096]: q, k, v or o", False),
        (58_720_256, "Llama 3.1 8B, one matrix [14,336, 4,096]: gate, up or down", False),
        (8_030_257_152, "without the final norm", False),
    ],
)
def test_numbers_of_the_articles_are_explained(number: int, words: str, is_mistake: bool) -> None:
    first = llamath.explain(number)[0]
    assert words in first.summary and first.mistake == is_mistake and first.exact
    assert sum(x.value for x in first.terms) == number


def test_q_k_and_v_of_the_classic_405b_are_explained() -> None:
    """They are as many as one layer of Galactica 120B, too."""
    summaries = [x.summary for x in llamath.explain(1_258_291_200)]
    assert any("405" in x and "q, k and v of a layer" in x for x in summaries[:3])
    first = llamath.explain(1_258_291_200, like="classic-405b")[0]
    assert first.summary.endswith("q, k and v of a layer")


def test_two_mistakes_about_a_named_model_are_explained() -> None:
    model = llamath.load("llama-3-8b")
    number = model.parameters.total - 32 * 4096 * (3 * 14336 - 2 * 11008)
    found = llamath.explain(number, like="llama-3-8b")
    assert (
        found[0].mistake
        and "11,008" in found[0].summary
        and "the gate is left out" in found[0].summary
    )
    assert not any(x.mistake for x in llamath.explain(number + 1, like="llama-3-8b"))


FIGURES = {
    "From 7B to 8B": 25,
    "Why not 205 billion?": 14,
    "Count the parameters in LLaMA v1": 15,
    "A hypothetical 405B": 17,
    "Decoding Llama 3: ModelArgs": 13,
}
"""The number of figures in each text."""
WITHOUT_COMMAND = ["15 trillion tokens"]
ROW = re.compile(r"^\| (?P<text>[^|]+) \| (?P<printed>[^|]+) \| [^|]+ \| (?P<command>[^|]+) \|$")


def rows_of_the_page() -> dict[str, list[re.Match[str]]]:
    """Return the rows of the table of each text, by its heading."""
    sections = re.split(r"^## (.*)\n", PAGE.read_text(), flags=re.MULTILINE)[1:]
    found = {}
    for heading, body in zip(sections[::2], sections[1::2], strict=True):
        lines = [x for x in body.splitlines() if x.startswith("|")][2:]
        matches = [ROW.match(x) for x in lines]
        assert all(matches), lines[matches.index(None)] if None in matches else ""
        found[heading] = [x for x in matches if x]
    return found


def printed_by_command() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in (x for rows in rows_of_the_page().values() for x in rows):
        if row["text"] not in WITHOUT_COMMAND:
            command = re.fullmatch(r"`llamath ([^`]+)`", row["command"])
            printed = re.findall(r"`([^`]+)`", row["printed"])
            assert command and printed, row[0]
            found.setdefault(command[1], []).extend(printed)
    return found


def test_the_page_lists_all_84_figures_of_the_texts() -> None:
    rows = rows_of_the_page()
    assert {heading: len(x) for heading, x in rows.items()} == FIGURES
    assert sum(FIGURES.values()) == 84
    without = [x["text"] for y in rows.values() for x in y if x["command"] == "–"]
    assert without == WITHOUT_COMMAND


@pytest.mark.parametrize("command", printed_by_command())
def test_figures_of_the_articles_are_in_the_output(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(cli, shlex.split(command))
    assert done.exit_code == 0, done.stderr
    text = " ".join(done.stdout.split())
    assert not [x for x in printed_by_command()[command] if x not in text]
