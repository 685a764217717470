"""What `explain` claims and what it calls a guess, adapters on parts of a model, other depths, and numbers of tensors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

import llamath
from llamath.analysis.understand.explain.tensor_counts import tensor_counts
from llamath.cli import cli


def run(*args: str) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["explain", *args])


@pytest.mark.parametrize(
    ("number", "like", "words"),
    [
        # unsloth#4907, at ranks 32 and 128: text and vision, attention and MLP, no experts
        (59_275_776, "gemma-4-26b-a4b", "LoRA of rank 32 on the attention and MLP of text and"),
        (237_103_104, "gemma-4-26b-a4b", "LoRA of rank 128 on the attention and MLP of text and"),
        (37_171_200, "gemma-4-26b-a4b", "LoRA of rank 32 on all linear layers but the experts"),
        # axolotl#3515: experts as two tensors of a layer
        (922_746_880, "qwen3.5-35b-a3b", "LoRA of rank 16 on the fused experts"),
        (1_263_206_400, "qwen3.5-35b-a3b", "LoRA of rank 16 on the MLP"),
        # mamba#48: the README's config has layers with LayerNorm, and half as many
        (1_449_006_080, "mamba-2.8b", "50,432 (padded to a multiple of 256), 32 layers instead"),
        # the language models in multimodal files
        (34_660_610_688, "qwen3.5-35b-a3b", "the text model alone"),
        (25_233_141_790, "gemma-4-26b-a4b", "the text model alone"),
        # llamafile#516 and ollama#6998, and Mixtral on disk and in the memory of transformers 5
        (292, "llama-3.1-8b", "tensors in a GGUF file, with rope_freqs.weight"),
        (291, "llama-3-8b", "tensors in Hugging Face's files or in a GGUF file"),
        (255, "llama-3.2-3b", "tensors in a GGUF file, with rope_freqs.weight"),
        (995, "mixtral-8x7b", "tensors in Hugging Face's files"),
        (291, "mixtral-8x7b", "tensors in the memory of transformers 5"),
        # 40 layers with rotary frequencies of their own, which transformers later left out
        (403, "llama-2-13b", "Hugging Face's files of 2023, with rotary_emb.inv_freq"),
        (323, "llama-1-7b", "Hugging Face's files of 2023, with rotary_emb.inv_freq"),
    ],
)
def test_numbers_from_public_threads_are_claimed(number: int, like: str, words: str) -> None:
    report = llamath.explain(number, like=like)
    assert report.explained and words in report.candidates[0].summary
    assert sum(x.value for x in report.candidates[0].terms) == number


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 24}, "24 layers instead of 32"),
        (
            {"num_hidden_layers": 16, "vocab_size": 32_000},
            "→ 32,000 (as Llama 2 7B has), 16 layers",
        ),
        (
            {"num_hidden_layers": 20, "vocab_size": 32_000},
            "→ 32,000 (as Llama 2 7B has), 20 layers",
        ),
    ],
)
def test_depth_with_a_known_vocabulary_is_found(changes: dict[str, Any], words: str) -> None:
    number = llamath.load("llama-3-8b", changes=changes).parameters.total
    assert words in llamath.explain(number, like="llama-3-8b").candidates[0].summary


def test_depth_with_any_vocabulary_is_no_claim() -> None:
    """With two free numbers nearly every count of a model of these widths would fit."""
    changes = {"num_hidden_layers": 20, "vocab_size": 128_256 + 741}
    number = llamath.load("llama-3-8b", changes=changes).parameters.total
    assert not llamath.explain(number, like="llama-3-8b").explained


@pytest.mark.slow
def test_remainder_that_nobody_knows_is_left_over() -> None:
    """jaxformer#3: CodeGen 6B and 4,096 more."""
    report = llamath.explain(7_064_217_600)
    first = report.candidates[0]
    assert not report and not report.explained
    assert (first.base, first.summary, first.residue) == ("CodeGen 6B", "CodeGen 6B", 4096)
    assert report.summary.startswith("7,064,217,600: near miss: CodeGen 6B, +4,096 left over")
    assert all(x.is_guess for x in report.candidates if x.exact)


def test_guess_is_called_a_guess_everywhere() -> None:
    """Several causes give the number: each is exact, none is likely."""
    args = ("6889689088", "--like", "llama-2-7b")
    done = run(*args)
    assert done.exit_code == 1
    assert done.stdout.startswith("6,889,689,088 (6.89B): ambiguous; guesses, ")
    assert "1. a guess that gives this number" in done.stdout and "exactly" not in done.stdout
    assert run(*args, "--brief").stdout.startswith("6,889,689,088: a guess: Llama 2 7B, ")
    output = json.loads(run(*args, "--json").stdout)
    assert output["explained"] is False
    assert {x["likelihood"] for x in output["candidates"]} == {"a guess"}
    assert all(x["exact"] for x in output["candidates"])


def test_claim_and_near_miss_are_told_apart() -> None:
    claim, near = (
        json.loads(run(number, "--like", "llama-3-8b", "--json").stdout)
        for number in ("8030261248", "8030257153")
    )
    assert claim["explained"] is True and claim["candidates"][0]["likelihood"] == "very likely"
    assert near["explained"] is False and near["candidates"][0]["likelihood"] == ""


@pytest.mark.slow
def test_exact_candidates_are_no_near_misses() -> None:
    """3,821,081,088 is Phi-3 mini with rotary frequencies, as a mistake or as a count."""
    report = llamath.explain(3_821_081_088)
    assert {x.exact for x in report.candidates} == {True}
    assert all(x.confidence is not None for x in report.candidates)
    assert "by a mistake" in str(report) or "a guess: a mistake" in str(report)


@pytest.mark.slow
def test_files_of_2023_are_those_of_older_models() -> None:
    (found,) = (x for x in llamath.explain(403).candidates if "of 2023" in x.summary)
    assert found.base == "Llama 2 13B" and "Falcon3 10B" not in found.also
    assert not llamath.explain(403, like="falcon3-10b").candidates


@pytest.mark.slow
def test_replaced_size_is_a_number_in_the_formula() -> None:
    change = llamath.explain(4_651_551_744).candidates[0].terms[1]
    assert change.formula == "3·L·11008·d − 3·L·F·d"


@pytest.mark.slow
def test_unexplained_number_has_a_hint() -> None:
    assert "--like MODEL tries one model" in " ".join(run("7000000001").stdout.split())
    named = run("7000000001", "--like", "mamba-130m").stdout
    assert "llamath ls PATH" in named and "--like" not in named
    assert "llamath ls" not in run("8030261248", "--like", "llama-3-8b").stdout


@pytest.mark.parametrize(
    "slug",
    ["llama-3.1-8b", "mixtral-8x7b", "gpt2", "phi-3-mini", "gemma-2-2b", "qwen2.5-vl-7b"],
)
def test_numbers_of_tensors_are_those_of_the_lists_of_names(slug: str) -> None:
    model = llamath.load(slug)
    counts = {x.form.partition(",")[0]: x.number for x in tensor_counts(model)}
    for form, scheme in (("Hugging Face's files", "hf"), ("a GGUF file", "gguf")):
        if form in counts:
            listed = len(model.scheme(scheme).flat_tensors(model.tree)[0])
            rotary = 1 if (slug, scheme) == ("llama-3.1-8b", "gguf") else 0
            assert counts[form] == listed + rotary


MIXTRAL = {
    "model_type": "mixtral", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_fused_experts_are_adapted_as_peft_does() -> None:
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    built = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**MIXTRAL)
    )
    tensors = {x.form: x.number for x in tensor_counts(llamath.load(MIXTRAL))}
    assert tensors["the memory of transformers 5"] == len(list(built.parameters()))
    names = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
    config = peft.LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=[], target_parameters=names)
    trainable, total = peft.get_peft_model(built, config).get_nb_trainable_parameters()
    report = llamath.explain(total, like=MIXTRAL)
    assert any("LoRA of rank 8 on the fused experts" in x.summary for x in report.candidates)
    assert trainable == 3 * 8 * 4 * (2 * 96 + 64 + 96 + 64)
