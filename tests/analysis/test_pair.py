"""`fit --draft`: vocabularies, heads of published sizes, engines' rules, and the bound on the speed-up."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.size.serving.draft_pair import LENGTHS, compare_vocabularies
from llamath.checkpoint.vocabulary import Vocabulary, read_vocabulary
from llamath.cli import cli

TINY = Path(__file__).parents[2] / "examples" / "tiny-llama"

PUBLISHED_HEADS = [
    ("llama-2-7b", 0.24),
    ("llama-2-13b", 0.37),
    ("llama-2-70b", 0.99),
    ("llama-3-8b", 0.25),
    ("llama-3-70b", 0.99),
]
"""Billions of parameters of EAGLE heads in the table of https://github.com/SafeAILab/EAGLE."""


def write_model(folder: Path, tokens: dict[str, int], added: list[tuple[int, str]] = []) -> str:  # noqa: B006
    shutil.copytree(TINY, folder)
    data = {
        "model": {"type": "BPE", "vocab": tokens, "merges": []},
        "added_tokens": [{"id": i, "content": x} for i, x in added],
    }
    (folder / "tokenizer.json").write_text(json.dumps(data))
    return str(folder)


@pytest.mark.parametrize(("model", "billions"), PUBLISHED_HEADS)
def test_eagle_heads_have_their_published_sizes(model: str, billions: float) -> None:
    assert round(llamath.pair(model, "eagle").parameters / 1e9, 2) == billions


def test_an_eagle_3_head_has_the_size_of_its_file() -> None:
    """EAGLE3-LLaMA3.1-Instruct-8B has 850 MB in 16 bits: fc, a layer with inputs of twice the width, a head of 32,000 rows."""
    report = llamath.pair("llama-3.1-8b", "eagle3")
    assert (
        report.parameters
        == 3 * 4096**2
        + 2 * 4096 * (4096 + 2 * 1024)
        + 4096**2
        + 3 * 4096 * 14336
        + 32_000 * 4096
        + 4 * 4096
    )
    assert 849e6 < report.weights[1] < 851e6 and report.embedding_rows == (128_256, 32_000)


def test_a_head_for_multi_token_prediction_is_the_targets_own() -> None:
    report = llamath.pair("deepseek-v3", "mtp")
    assert (
        11.5e9 < report.parameters < 11.7e9
        and report.accepted
        and report.embedding_rows[1] == 129_280
    )
    with pytest.raises(llamath.LlamathError, match="no layers for multi-token prediction"):
        llamath.pair("llama-3.1-8b", "mtp")


def test_different_numbers_of_rows_are_refused_in_engines_words() -> None:
    report = llamath.pair("qwen2.5-72b", "qwen2.5-0.5b")
    says = {x.engine.split()[0]: x for x in report.verdicts}
    assert (
        not says["vLLM"].accepts
        and "Target model vocab_size=152064. Draft model vocab_size=151936." in says["vLLM"].says
    )
    assert not says["SGLang"].accepts and says["llama.cpp"].accepts and not says["llama.cpp"].says
    assert "assistant_tokenizer" in says["transformers"].says and says["transformers"].accepts


def test_engines_can_be_named() -> None:
    report = llamath.pair("qwen2.5-72b", "qwen2.5-0.5b", engine=["llama.cpp"])
    assert report.accepted and [x.engine for x in report.verdicts] == ["llama.cpp"]


def test_other_tokens_under_the_same_ids_are_found(tmp_path: Path) -> None:
    texts = {f"t{i}": i for i in range(100)}
    swapped = {**texts, "t7": 8, "t8": 7}
    first = write_model(tmp_path / "a", texts, [(100, "<s>")])
    second = write_model(tmp_path / "b", swapped, [(100, "<bos>")])
    report = llamath.pair(first, second)
    assert report.compared is not None
    assert (report.compared.differing, report.compared.first, report.compared.added_differ) == (
        3,
        7,
        1,
    )
    assert (report.compared.first_target, report.compared.first_draft) == ("t7", "t8")
    refused = {x.engine.split()[0] for x in report.verdicts if not x.accepts}
    assert refused == {"SGLang", "transformers"}
    assert CliRunner().invoke(cli, ["fit", first, "--draft", second]).exit_code == 1
    same = CliRunner().invoke(cli, ["fit", first, "--draft", first])
    assert same.exit_code == 0 and "every id stands for the same token in both" in same.stdout


def test_the_first_five_ids_may_differ_in_llama_cpp() -> None:
    texts = {i: f"t{i}" for i in range(10)}
    other = Vocabulary(tokens={**texts, 1: "<s>"}, added=frozenset(), source="")
    found = compare_vocabularies(Vocabulary(tokens=texts, added=frozenset(), source=""), other)
    assert (found.differing, found.differing_after_4) == (1, 0)


def test_vocabularies_are_read_from_files_of_each_kind(tmp_path: Path) -> None:
    model = write_model(tmp_path / "a", {"x": 0, "y": 1}, [(2, "<s>")])
    found = read_vocabulary(model)
    assert (
        found is not None
        and found.tokens == {0: "x", 1: "y", 2: "<s>"}
        and found.size == 3
        and found.added == {2}
    )
    assert read_vocabulary(str(TINY)) is None and read_vocabulary("") is None


def test_the_bound_grows_with_draft_tokens_and_acceptance() -> None:
    report = llamath.pair("llama-3.1-70b", "llama-3.2-1b")
    best = {x.tokens: x.speed_up for x in report.speed_ups if x.acceptance == 1}
    assert list(best) == list(LENGTHS) and sorted(best.values()) == list(best.values())
    target, draft = report.reads
    assert all(abs(best[k] - (k + 1) * target / (target + k * draft)) < 0.01 for k in (1, 2))
    assert report.best.acceptance == 1 and 1 < report.best.speed_up < report.best.tokens + 1


def test_experts_make_checking_more_tokens_cost_more() -> None:
    dense, mixture = (
        llamath.pair(x, "eagle3" if x == "llama-3.1-8b" else "mtp")
        for x in ("llama-3.1-8b", "deepseek-v3")
    )
    assert dense.best.speed_up > 4 > 2 > mixture.best.speed_up


def test_reports_are_shown_in_every_form() -> None:
    report = llamath.pair("llama-3.1-8b", "eagle")
    assert json.loads(
        CliRunner().invoke(cli, ["fit", "llama-3.1-8b", "--draft", "eagle", "--json"]).stdout
    ) == json.loads(json.dumps(report.to_json()))
    assert (
        "<table" in report._repr_html_()
        and "speed-up"
        in CliRunner().invoke(cli, ["fit", "llama-3.1-8b", "--draft", "eagle"]).stdout
    )
