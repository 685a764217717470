"""The statistics of two models' next-token probabilities, against a plain computation with numpy in the definitions of llama.cpp."""

from __future__ import annotations

import json
from math import exp, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from llamath.analysis.check.verify.divergence import (
    DELTA_P_PERCENTS,
    KLD_PERCENTS,
    Divergence,
    Estimate,
    divergence_parts,
)
from llamath.cli import cli
from llamath.render.report_text import parts_lines
from llamath.torch.debug.compare_runs import measure_divergence
from support.planted_checkpoints import plant


def mean(x: Any) -> tuple[float, float]:
    return float(x.mean()), sqrt(max(0.0, float((x * x).mean() - x.mean() ** 2)) / (len(x) - 1))


def close(found: Estimate, wanted: tuple[float, float]) -> bool:
    return bool(np.allclose(found, wanted, rtol=1e-6, atol=1e-9))


def random_case(
    tokens: int, vocabulary: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn((tokens, vocabulary), generator=generator) * 3
    b = a + torch.randn((tokens, vocabulary), generator=generator) * torch.rand(
        (tokens, 1), generator=generator
    )
    return a, b, torch.randint(0, vocabulary, (tokens,), generator=generator).tolist()


@pytest.mark.parametrize(("tokens", "vocabulary"), [(200, 50), (150, 1000), (65, 7)])
def test_statistics_follow_the_definitions_of_llama_cpp(tokens: int, vocabulary: int) -> None:
    a, b, ids = random_case(tokens, vocabulary, tokens)
    x = measure_divergence(a, b, ids)
    p = np.exp(a.double().numpy()[:-1])
    q = np.exp(b.double().numpy()[:-1])
    p, q = p / p.sum(1, keepdims=True), q / q.sum(1, keepdims=True)
    n, following = tokens - 1, ids[1:]
    kld = (p * np.log(p / q)).sum(1)
    of_p, of_q = p[np.arange(n), following], q[np.arange(n), following]
    delta = of_q - of_p
    assert x.positions == n
    assert close(x.kld.mean, mean(kld)) and close(x.delta_p.mean, mean(delta))
    assert np.isclose(x.kld.maximum, kld.max()) and np.isclose(x.kld.minimum, kld.min())
    for found, values, percents in (
        (x.kld, kld, KLD_PERCENTS),
        (x.delta_p, delta, DELTA_P_PERCENTS),
    ):
        assert [y.percent for y in found.percentiles] == list(percents)
        assert np.allclose(
            [y.value for y in found.percentiles], np.percentile(values, percents), rtol=1e-9
        )
    square, error = mean(delta * delta)
    assert close(x.rms_delta_p, (sqrt(square), 0.5 / sqrt(square) * error))
    same = float((p.argmax(1) == q.argmax(1)).mean())
    assert close(x.same_top, (same, sqrt(same * (1 - same) / (n - 1))))
    (nll_a, error_a), (nll_b, error_b) = mean(-np.log(of_p)), mean(-np.log(of_q))
    covariance = float((np.log(of_p) * np.log(of_q)).mean() - nll_a * nll_b) / (n - 1)
    assert close(x.perplexity_a, (exp(nll_a), exp(nll_a) * error_a)) and close(
        x.perplexity_b, (exp(nll_b), exp(nll_b) * error_b)
    )
    ratio_error = sqrt(error_a**2 + error_b**2 - 2 * covariance)
    assert close(x.log_ratio, (nll_b - nll_a, ratio_error))
    assert close(x.ratio, (exp(nll_b - nll_a), exp(nll_b - nll_a) * ratio_error))
    difference = (
        (exp(nll_b) * error_b) ** 2
        + (exp(nll_a) * error_a) ** 2
        - 2 * exp(nll_a + nll_b) * covariance
    )
    assert close(x.difference, (exp(nll_b) - exp(nll_a), sqrt(difference)))
    assert np.isclose(x.correlation, np.corrcoef(np.log(of_p), np.log(of_q))[0, 1])


def test_equal_models_do_not_diverge() -> None:
    a, _, ids = random_case(40, 20, 0)
    x = measure_divergence(a, a, ids)
    assert (
        x.kld.maximum == 0
        and x.delta_p.mean == (0, 0)
        and x.rms_delta_p == (0, 0)
        and x.same_top == (1, 0)
    )
    # the errors are roots of differences that are zero but for the order of sums, which differs between processors
    assert (
        np.allclose(x.ratio, (1, 0), atol=1e-6)
        and np.allclose(x.difference, (0, 0), atol=1e-4)
        and np.isclose(x.correlation, 1)
    )


def test_two_tokens_have_one_position_without_errors() -> None:
    a, b, ids = random_case(2, 20, 0)
    x = measure_divergence(a, b, ids)
    assert (x.positions, x.kld.mean.error, x.same_top.error) == (1, 0, 0)
    assert x.kld.maximum == x.kld.minimum == x.kld.percentiles[4].value


def test_the_table_has_the_rows_of_llama_cpp() -> None:
    a, b, ids = random_case(200, 50, 1)
    x: Divergence = measure_divergence(a, b, ids)
    lines = list(parts_lines(divergence_parts(x)))
    names = [line.split("  ")[0] for line in lines]
    assert names[1:16] == [
        *(
            "mean",
            "maximum",
            "99.9%",
            "99.0%",
            "95.0%",
            "90.0%",
            "75.0%",
            "median",
            "25.0%",
            "10.0%",
            "5.0%",
            "1.0%",
            "0.1%",
        ),
        *("minimum", "RMS"),
    ]
    assert f"{x.kld.mean.value:.6f} ± {x.kld.mean.error:.6f}" in lines[1]
    assert f"{100 * x.rms_delta_p.value:.3f} ± {100 * x.rms_delta_p.error:.3f}" in lines[15]
    assert max(map(len, lines)) <= 60


def test_the_command_prints_the_statistics(tmp_path: Path) -> None:
    a = plant(tmp_path / "a")
    b = plant(tmp_path / "b", lambda x: x["model.layers.1.mlp.down_proj.weight"].mul_(3))
    args = ["same", str(a), str(b), "--logits", "random:50"]
    done = CliRunner(env={"COLUMNS": "80"}).invoke(cli, args)
    assert done.exit_code == 1 and "49 positions" in done.stdout and "same top token" in done.stdout
    data = json.loads(CliRunner().invoke(cli, [*args, "--json"]).stdout)["divergence"]
    assert data["positions"] == 49 and data["kld"]["mean"].keys() == {"value", "error"}
    assert len(data["delta_p"]["percentiles"]) == 11 and data["ratio"]["value"] > 0
