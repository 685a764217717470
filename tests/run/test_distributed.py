"""Several ranks against one: the same logits, generations and gradients; each rank's memory is as predicted, and lost ranks are noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import socket
from typing import Any

import pytest
import torch

from llamath.torch import Llama, Sampling, open_model
from support.rank_processes import HANG_TIMEOUT_S, RankResult, Ranks, ids
from support.tiny_checkpoint import CONFIG, tiny_checkpoint

TINY = Path(__file__).parents[1] / "tiny"
LLAMA = CONFIG | {"vocab_size": 323}


def tiny(name: str) -> dict[str, Any]:
    """A tiny configuration, `family/label`."""
    family, label = name.split("/")
    config: dict[str, Any] = json.loads((TINY / f"{family}.json").read_text())[label]
    return config


TWO = (
    *(
        "llama/plain",
        "qwen2/plain",
        "gemma2/plain",
        "mixtral/plain",
        "deepseek_v3/plain",
        "glm_moe_dsa/shared",
        "gpt2/plain",
        "gpt_oss/plain",
        "bloom/plain",
    ),
    *(
        "olmo2/grouped-biased",
        "opt/350m: projected, norms after",
        "falcon/7B: multi-query, biased, untied",
        "cohere/head norms",
    ),
)
LIKE_THEM = ("deepseek_v32/plain", "axk2/plain", "qwen3_moe/plain")
"""What is divided as in those above, for `--all`."""
FOUR = (
    "llama/grouped, biased, tied",
    "deepseek_v3/yarn",
    "qwen2/plain",
    "gemma2/plain",
    "mixtral/plain",
)
"""The first two have heads that four ranks share and heads without keys of their own; the others are for `--all`."""
TABLES = LLAMA | {"vocab_size": 20_000, "hidden_size": 256, "intermediate_size": 64}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
TRAINED = [
    {"config": LLAMA, "tokens": 9},
    {"config": LLAMA | {"tie_word_embeddings": True}, "tokens": 9},
    {"config": MIXTRAL, "tokens": 2},  # ranks route to different experts
]
UNSUPPORTED = {
    "falcon/11B: one norm, grouped": "this layout does not divide the model: TP 2: 3 key/value heads",
    "deepseek_v4/plain": "tensor parallelism is not supported for HyperDecoder",
    "qwen3_next/plain": "tensor parallelism is not supported for GatedDeltaNet",
    "stablelm/12B: parallel, grouped, a norm for each head": "tensor parallelism is not supported for per-head norms",
}


Found = list[dict[str, Any]]
"""The results of each rank, by job."""


def cases(names: tuple[str, ...], every: bool = True) -> list[dict[str, Any]]:
    """Cases of tensor parallelism, and two of expert parallelism, or one."""
    sharded = [{"config": tiny(name), "expert_parallel": False} for name in names]
    return [
        *sharded,
        *(
            {"config": config, "expert_parallel": True}
            for config in (MIXTRAL, tiny("deepseek_v3/plain"))[: 1 + every]
        ),
    ]


def cases_of_two(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return cases(TWO + (LIKE_THEM if request.config.getoption("all") else ()))


def done(ended: list[RankResult]) -> Found:
    assert not any(x.status for x in ended), "\n".join(x.stderr for x in ended)
    return [x.found for x in ended]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose parameters are mostly in its two tables."""
    return tiny_checkpoint(
        tmp_path_factory.mktemp("model"),
        std=0.05,
        **{key: TABLES[key] for key in ("vocab_size", "hidden_size", "intermediate_size")},
    )


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """Forks the ranks of all tests."""
    started = Ranks()
    yield started
    started.close()


@pytest.fixture(scope="module")
def two(
    ranks: Ranks,
    folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Found:
    """Results of two ranks, which are started once for all jobs."""
    where = {"folder": str(folder), "file": "model.safetensors", "config": TABLES}
    jobs = {
        "agreement": cases_of_two(request),
        "errors": [tiny(x) for x in UNSUPPORTED],
        "opened": where,
        "missing": where,
        "trained": TRAINED,
    }
    return done(ranks.run(2, tmp_path_factory.mktemp("ranks"), jobs))


def test_two_ranks_agree_with_one(two: Found, request: pytest.FixtureRequest) -> None:
    assert_agreement(cases_of_two(request), [x["agreement"] for x in two])


@pytest.mark.release
def test_four_ranks_agree_with_one(
    ranks: Ranks, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    every = request.config.getoption("all")
    chosen = cases(FOUR if every else FOUR[:2], every)
    ended = done(ranks.run(4, tmp_path, {"agreement": chosen}))
    assert_agreement(chosen, [x["agreement"] for x in ended])


def assert_agreement(cases: list[dict[str, Any]], ended: list[list[dict[str, Any]]]) -> None:
    for case, *results in zip(cases, *ended, strict=True):
        first, what = results[0], (case["config"]["model_type"], case["expert_parallel"])
        assert first["padding"] == 0, what
        for x in results:
            assert x["logits"] < 1e-5 and x["decoded"] < 1e-5, what
            assert (
                x["joins"] and x["texts"] == first["alone"] and x["unseeded"] == first["unseeded"]
            ), what
            assert (
                x["bytes"] + x["padding"] == x["predicted"] and x["cache"] == x["cache_predicted"]
            ), what
            assert case["expert_parallel"] or x["parameters"][0] == x["parameters"][1], what


def test_unsupported_modules_are_named(two: Found) -> None:
    assert [x["errors"] for x in two] == [list(UNSUPPORTED.values())] * 2


def test_each_rank_maps_only_its_shards(folder: Path, two: Found) -> None:
    one = open_model(str(folder)).module
    with torch.inference_mode():
        whole = one(ids(TABLES, 2, 9))
    size = (folder / "model.safetensors").stat().st_size
    for x in (x["opened"] for x in two):
        assert float((torch.tensor(x["logits"]) - whole).abs().max() / whole.abs().max()) < 1e-5
        assert x["bytes"] == x["predicted"] and x["flaw"] == ""
        assert (
            0.45 * size < x["Rss"] < 0.6 * size
        )  # the shard was read just before, and what was copied was read too
        assert x["Anonymous"] == 0


def test_error_on_one_rank_is_raised_on_all(two: Found) -> None:
    errors = [x["missing"] for x in two]
    assert (
        len(set(errors)) == 1
        and errors[0].startswith("rank 1: ")
        and "-missing is not a local path" in errors[0]
    )


def test_fsdp_training_matches_one_process(two: Found) -> None:
    for results in (x["trained"] for x in two):
        for x in results:
            assert all(one == pytest.approx(several, rel=1e-5) for one, several in x["losses"])
            assert x["losses"][0] != x["losses"][1] and x["gradients"] < 1e-4
            assert x["numbers"][0] <= 0.51 * x["numbers"][1]


@pytest.mark.parametrize("way", ["killed", "asleep"])
def test_lost_rank_ends_the_others(way: str, ranks: Ranks, tmp_path: Path) -> None:
    survivor = ranks.run(2, tmp_path, {"leaving": {"config": LLAMA, "way": way}}, timeout_s=5)[0]
    assert survivor.status and "another rank has exited or does not respond" in survivor.stderr


def torchrun(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.release
def test_torchrun_on_two_nodes_runs_the_command_line(tmp_path: Path) -> None:
    folder = str(tiny_checkpoint(tmp_path / "model"))
    asked = ("The cat", "--max-tokens", "8", "--temperature", "1", "--seed", "4", "--json")
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = ("--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port)
    command = (*shared, "-m", "llamath", "run", folder, *asked)
    nodes = [torchrun("--nnodes", "2", "--node-rank", x, *command) for x in "01"]
    ended = [x.communicate(timeout=HANG_TIMEOUT_S) for x in nodes]
    assert [x.returncode for x in nodes] == [0, 0], ended
    alone = Llama.open(folder).generate(
        "The cat", sampling=Sampling(temperature=1.0, seed=4), max_tokens=8
    )
    assert [json.loads(x)["ids"] for x in ended[0][0].splitlines()] == [list(alone.ids)]
    assert not ended[1][0]


@pytest.mark.release
def test_error_under_torchrun_is_printed_once(tmp_path: Path) -> None:
    asked = ("-m", "llamath", "run", str(tmp_path / "nothing"), "hello")
    there = torchrun("--standalone", "--nproc-per-node", "2", *asked)
    _, errors = there.communicate(timeout=HANG_TIMEOUT_S)
    assert there.returncode and errors.count("error: ") == 1 and "is not a local path" in errors
