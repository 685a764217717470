"""Several processes and one: the same logits, the same texts, the same gradients; each holds what `views` predicts, and no hang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from llamath import run
from support.crew import Ended, crew, ids
from support.speakers import CONFIG, speaker

TINY = Path(__file__).parents[1] / "tiny"
LLAMA = CONFIG | {"vocab_size": 323}


def tiny(name: str) -> dict[str, Any]:
    """A tiny configuration, `family/label`."""
    family, label = name.split("/")
    found: dict[str, Any] = json.loads((TINY / f"{family}.json").read_text())[label]
    return found


TWO = (
    *("llama/plain", "qwen2/plain", "gemma2/plain", "mixtral/plain", "deepseek_v3/plain", "gpt2/plain", "gpt_oss/plain", "bloom/plain"),
    *("olmo2/grouped-biased", "opt/350m: projected, norms after", "falcon/7B: multi-query, biased, untied", "cohere/head norms"),
)
FOUR = ("llama/grouped, biased, tied", "qwen2/plain", "gemma2/plain", "mixtral/plain", "deepseek_v3/yarn")
TABLES = LLAMA | {"vocab_size": 20_000, "hidden_size": 256, "intermediate_size": 64}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
TRAINED = [
    {"config": LLAMA, "tokens": 9},
    {"config": LLAMA | {"tie_word_embeddings": True}, "tokens": 9},
    {"config": MIXTRAL, "tokens": 2},  # each process chooses other experts
]
REFUSED = {
    "falcon/11B: one norm, grouped": "this layout does not divide the model: TP 2: 3 key/value heads",
    "qwen3_next/plain": "GatedDeltaNet is not computed by several processes here",
    "stablelm/12B: parallel, grouped, a norm for each head": "attention with a norm for each head is not computed by several processes here",
}


Found = list[dict[str, Any]]
"""What each process found, by the job."""


def alike(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Models to be cut, and some whose experts are dealt out."""
    cut = [{"config": tiny(name), "experts": "cut"} for name in names]
    return [*cut, *({"config": config, "experts": "dealt"} for config in (MIXTRAL, tiny("deepseek_v3/plain")))]


def done(ended: list[Ended]) -> Found:
    assert not any(x.status for x in ended), "\n".join(x.said for x in ended)
    return [x.found for x in ended]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that is mostly two tables."""
    return speaker(
        tmp_path_factory.mktemp("model"), std=0.05, **{key: TABLES[key] for key in ("vocab_size", "hidden_size", "intermediate_size")}
    )


@pytest.fixture(scope="module")
def two(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Two processes, started once for all that they are to do."""
    where = {"folder": str(folder), "file": "model.safetensors", "config": TABLES}
    jobs = {"same": alike(TWO), "refused": [tiny(x) for x in REFUSED], "opened": where, "strange": where, "trained": TRAINED}
    return done(crew(2, tmp_path_factory.mktemp("crew"), jobs))


def test_two_processes_say_what_one_says(two: Found) -> None:
    agreed(alike(TWO), [x["same"] for x in two])


def test_four_processes_say_what_one_says(tmp_path: Path) -> None:
    agreed(alike(FOUR), [x["same"] for x in done(crew(4, tmp_path, {"same": alike(FOUR)}))])


def agreed(cases: list[dict[str, Any]], ended: list[list[dict[str, Any]]]) -> None:
    for case, *found in zip(cases, *ended, strict=True):
        first, what = found[0], (case["config"]["model_type"], case["experts"])
        assert first["padding"] == 0, what
        for x in found:
            assert x["logits"] < 1e-5 and x["decoded"] < 1e-5, what
            assert x["joins"] and x["texts"] == first["alone"] and x["unseeded"] == first["unseeded"], what
            assert x["bytes"] + x["padding"] == x["predicted"] and x["cache"] == x["cache_predicted"], what
            assert case["experts"] == "dealt" or x["parameters"][0] == x["parameters"][1], what


def test_what_cannot_be_cut_is_refused_by_name(two: Found) -> None:
    assert [x["refused"] for x in two] == [list(REFUSED.values())] * 2


def test_each_process_maps_its_own_slices_of_the_file(folder: Path, two: Found) -> None:
    one = run.open_model(str(folder)).module
    with torch.inference_mode():
        whole = one(ids(TABLES, 2, 9))
    size = (folder / "model.safetensors").stat().st_size
    for x in (x["opened"] for x in two):
        assert float((torch.tensor(x["logits"]) - whole).abs().max() / whole.abs().max()) < 1e-5
        assert x["bytes"] == x["predicted"] and x["flaw"] == ""
        assert 0.45 * size < x["Rss"] < 0.6 * size  # all of its own was read just before; what is copied was read as well
        assert x["Anonymous"] == 0


def test_what_one_process_cannot_read_is_an_error_in_all(two: Found) -> None:
    said = [x["strange"] for x in two]
    assert len(set(said)) == 1 and said[0].startswith("process 1: ") and "-missing is not a local path" in said[0]


def test_sharded_training_is_training(two: Found) -> None:
    for found in (x["trained"] for x in two):
        for x in found:
            assert all(one == pytest.approx(several, rel=1e-5) for one, several in x["losses"])
            assert x["losses"][0] != x["losses"][1] and x["gradients"] < 1e-4
            assert x["numbers"][0] <= 0.51 * x["numbers"][1]


@pytest.mark.parametrize("way", ["killed", "asleep"])
def test_a_process_that_is_gone_ends_the_others(way: str, tmp_path: Path) -> None:
    survivor = crew(2, tmp_path, {"leaving": {"config": LLAMA, "way": way}}, patience=5, most=60)[0]
    assert survivor.status and "another process of this group has ended, or does not answer" in survivor.said


def torchrun(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_torchrun_runs_the_command_line(tmp_path: Path) -> None:
    folder = str(speaker(tmp_path / "model"))
    asked = ("The cat", "--max-tokens", "8", "--temperature", "1", "--seed", "4", "--json")
    there = torchrun("-m", "llamath", "run", folder, *asked)
    assert there.returncode == 0, there.stderr
    alone = run.Llama.open(folder).generate("The cat", sampling=run.Sampling(temperature=1.0, seed=4), max_tokens=8)
    assert [json.loads(x)["ids"] for x in there.stdout.splitlines()] == [list(alone.ids)]


def test_under_torchrun_a_mistake_is_told_once(tmp_path: Path) -> None:
    there = torchrun("-m", "llamath", "run", str(tmp_path / "nothing"), "hello")
    assert there.returncode and there.stderr.count("error: ") == 1 and "is not a local path" in there.stderr
