"""`design`: the search is complete, candidates match the trees of their family, constraints hold, and published dimensions are found."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import llamath
from llamath.analysis.understand.design.candidate import Candidate
from llamath.analysis.understand.design.design_ranking import HabitCosts
from llamath.analysis.understand.design.design_report import (
    DesignReport,
    design,
    factor_out_twos,
    prepare,
)
from llamath.analysis.understand.design.design_request import DesignRequest, FixedDims
from llamath.analysis.understand.design.design_search import SearchStats, find_ranges, search_space
from llamath.analysis.understand.design.grid import build_grid
from llamath.analysis.understand.design.habits import learn_habits, odd_bits, trend
from llamath.analysis.understand.design.series import find_series
from llamath.cli import cli
from llamath.questions.design_question import DesignBounds
from llamath.utils.errors import LlamathError

B = 10**9
PUBLISHED = {
    "llama-3.1-405b": (126, 16384, 53248, 128, 8),
    "llama-3-70b": (80, 8192, 28672, 64, 8),
    "llama-3-8b": (32, 4096, 14336, 32, 8),
    "llama-3.2-3b": (28, 3072, 8192, 24, 8),
    "llama-3.2-1b": (16, 2048, 8192, 32, 8),
}


def run(*args: str, ok: int = 0) -> Result:
    done = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, ["design", *args], standalone_mode=False
    )
    if isinstance(done.exception, (LlamathError, click.ClickException)):
        assert ok == 2, done.exception
    else:
        assert done.exit_code == ok, (done.output, done.exception)
    return done


def sizes(x: Candidate) -> tuple[int, ...]:
    return x.layers, x.width, x.ffn, x.heads, x.kv_heads


def rank_of(report: DesignReport, wanted: tuple[int, ...]) -> int:
    return [sizes(x) for x in report.candidates].index(wanted) + 1


@pytest.mark.parametrize(
    ("target", "slug", "tolerance"),
    [
        (405 * B, "llama-3.1-405b", Fraction(1, 200)),
        (8 * B, "llama-3-8b", Fraction(1, 200)),
        (70 * B, "llama-3-70b", Fraction(1, 100)),  # 70,553,706,496 is 0.79 % above its name
        (3_200_000_000, "llama-3.2-3b", Fraction(1, 200)),
        (1_240_000_000, "llama-3.2-1b", Fraction(1, 200)),
    ],
)
@pytest.mark.slow
def test_published_dimensions_come_first_at_distance_0(
    target: int, slug: str, tolerance: Fraction
) -> None:
    report = design(DesignRequest(target=target, tolerance=tolerance))
    assert (sizes(report.candidates[0]), report.candidates[0].distance) == (PUBLISHED[slug], 0)


@pytest.mark.parametrize(
    ("target", "tolerance", "left_out"),
    [
        (405 * B, Fraction(1, 200), ["llama-3.1-405b"]),
        (70 * B, Fraction(1, 100), ["llama-3-70b", "llama-3.1-70b", "llama-3.3-70b"]),
    ],
)
@pytest.mark.slow
def test_published_dimensions_rank_high_when_left_out(
    target: int, tolerance: Fraction, left_out: list[str]
) -> None:
    report = design(DesignRequest(target=target, tolerance=tolerance, exclude=frozenset(left_out)))
    assert not {x.slug for x in report.series.members} & set(left_out)
    assert rank_of(report, PUBLISHED[left_out[0]]) <= 10


@pytest.mark.parametrize("slug", PUBLISHED)
@pytest.mark.slow
def test_an_exact_total_finds_its_model(slug: str) -> None:
    total = llamath.load(slug).parameters.total
    report = design(DesignRequest(target=total, by_error=True))
    assert sizes(report.candidates[0]) == PUBLISHED[slug] and report.candidates[0].error == 0
    assert report.candidates[0].reasons[0].startswith("same dimensions as Llama 3")


SERIES = (
    *(("llama-3", x) for x in ("llama-3-8b", "llama-3-70b", "llama-3.1-405b", "llama-3.2-3b")),
    *(("qwen2.5", x) for x in ("qwen2.5-7b", "qwen2.5-14b", "qwen2.5-72b")),
    *(
        ("llama-2", "llama-2-70b"),
        ("llama-1", "llama-1-30b"),
        ("qwen3", "qwen3-8b"),
        ("gemma-2", "gemma-2-9b"),
        ("gemma-3", "gemma-3-27b"),
    ),
    *(
        ("phi-4", "phi-4"),
        ("command-r", "command-r-plus"),
        ("yi", "yi-34b"),
        ("olmo-2", "olmo-2-13b"),
        ("mistral", "mistral-7b"),
    ),
)
"""Published models and their series: 17."""


@pytest.mark.release
@pytest.mark.slow
def test_exact_count_and_series_return_the_published_model() -> None:
    first = []
    for like, slug in SERIES:
        model = llamath.load(slug).text
        letters = dict(model.count.formula.letters)
        best = design(DesignRequest(target=model.parameters.total, like=like, limit=1)).candidates[
            0
        ]
        wanted = (
            letters["L"],
            letters["d"],
            letters["F"],
            letters["H"],
            letters.get("K", letters["H"]),
        )
        first += [slug] * (sizes(best) == wanted and best.error == 0)
    assert len(SERIES) == 17 and len(first) >= 16, first
    assert {"qwen2.5-72b", "phi-4", "command-r-plus"} <= set(first)


def test_a_round_target_is_no_exact_count() -> None:
    assert (
        DesignRequest(target=8_030_261_248).is_exact
        and DesignRequest(target=6_738_415_616).is_exact
    )
    assert not any(DesignRequest(target=x).is_exact for x in (8 * B, 8_030_000_000, 1_240_000_000))


@pytest.mark.slow
def test_number_of_kv_heads_is_no_exclusion() -> None:
    report = design(DesignRequest(target=103_810_674_688, like="llama-1-65b", limit=100))
    assert {x.kv_heads == x.heads for x in report.candidates} == {True, False}
    assert report.candidates[0].kv_heads == report.candidates[0].heads


@pytest.mark.slow
def test_hypothetical_405b_meets_its_constraints() -> None:
    fixed = FixedDims(
        layers=(80, 80), heads=(128, 128), head_dim=(160, 160), vocab=32_000, tied=True
    )
    report = design(
        DesignRequest(
            target=405 * B, like="classic", fixed=fixed, bounds=DesignBounds(ffn_ratio=(4, 4))
        )
    )
    (one,) = report.candidates
    assert (
        one.total == 403_350_487_040
        and sizes(one) == (80, 20480, 81920, 128, 128)
        and one.head_dim == 160
    )
    assert report.series.borrowed and "gpt2-xl" in {x.slug for x in report.series.members}


@pytest.mark.release
@pytest.mark.slow
def test_modern_design_of_the_same_size() -> None:
    args = "405B --like classic --set num_hidden_layers=80 --set n_head=128 --bounds ffn_ratio=4".split()
    text = run(*args).stdout
    assert (
        "403,350,487,040" in text and "a gate in the FFN" in text and "no learned positions" in text
    )
    output = json.loads(run(*args, "--json").stdout)
    other = output["contrast"]
    assert (
        sum(x["delta"] for x in other["causes"])
        == other["delta"]
        == other["parameters"] - 403_350_487_040
    )
    assert llamath.load(other["config"]).parameters.total == other["parameters"]


# ---- the search itself


def small_request(**more: Any) -> DesignRequest:
    kept: dict[str, Any] = {
        "fixed": FixedDims(
            layers=(1, 5), width=(128, 256), head_dim=(32, 32), vocab=300, multiple_of=32
        ),
        "bounds": DesignBounds(aspect=(1, 999)),
    }
    return DesignRequest(
        **{"target": 1_500_000, "like": "llama-3", "tolerance": Fraction(1, 20), **kept, **more}
    )


def count_whole_grid(request: DesignRequest) -> dict[tuple[int, ...], int]:
    """Return the totals of the whole grid of a small request, counted one by one on their trees."""
    like, _ = prepare(request)
    base = {**like.template.config.data, "vocab_size": 300, "head_dim": 32}
    ratios = [x.letters["F"] / x.letters["d"] for x in like.members]
    low, high = min(ratios) / 1.5, max(ratios) * 1.5
    totals = {}
    for d, L, K in product(range(128, 257, 32), range(1, 6), range(1, 9)):
        if (d // 32) % K or K not in (1, 2, 4, 8, d // 32):
            continue
        for F in (x for x in range(32, 2000, 32) if low <= x / d <= high):
            keys = {
                "hidden_size": d,
                "num_hidden_layers": L,
                "num_attention_heads": d // 32,
                "num_key_value_heads": K,
                "intermediate_size": F,
            }
            totals[L, d, F, d // 32, K] = llamath.load({**base, **keys}).parameters.total
    return totals


def search_small_grid(request: DesignRequest) -> tuple[dict[tuple[int, ...], int], SearchStats]:
    series, shape = prepare(request)
    habits = learn_habits(series.members, request.target, shape.ffn)
    space, stats = search_space(request, shape, build_grid(request, shape, habits)), SearchStats()
    totals = {}
    for row in find_ranges(space, stats):
        for F in range(row.ffn[0], row.ffn[1] + 1, space.grid.step):
            if row.outer.d % 32 == 0:
                totals[row.layers, row.outer.d, F, row.outer.H, row.outer.K] = (
                    row.start + row.slope * F
                )
    return totals, stats


@pytest.mark.slow
def test_search_agrees_with_brute_force() -> None:
    request = small_request()
    all_ = count_whole_grid(request)
    within = {x: n for x, n in all_.items() if abs(n - request.target) * 20 <= request.target}
    totals, tally = search_small_grid(request)
    assert totals == within and len(within) > 50
    assert tally.points == len(all_) and tally.within == len(within)


def test_ranking_agrees_with_brute_force() -> None:
    request = small_request()
    like, shape = prepare(request)
    costs = HabitCosts(learn_habits(like.members, request.target, shape.ffn))
    report = design(request)
    assert [x.cost for x in report.candidates] == sorted(x.cost for x in report.candidates)
    best: dict[tuple[int, ...], float] = {}
    for L, d, F, H, K in search_small_grid(request)[0]:
        outer = type(report.ranked[0].outer)(d, 32, H, K)
        cost = costs.outer(outer) + costs.depth(d, L) + costs.ffn(d, F)
        best[L, d, H, K] = min(cost, best.get((L, d, H, K), cost))
    assert [x.cost for x in report.candidates] == pytest.approx(sorted(best.values())[:10])


@pytest.mark.slow
def test_nearest_total_agrees_with_brute_force() -> None:
    request = small_request(by_error=True, limit=3)
    errors = sorted(abs(n - request.target) for n in count_whole_grid(request).values())
    assert abs(design(request).candidates[0].total - request.target) == errors[0]


def none_or(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


spans = st.integers(4, 60).map(lambda n: (n, n + n // 3))
requests = st.builds(
    DesignRequest,
    target=st.floats(16, 23).map(lambda x: int(2.718281828**x)),
    like=st.sampled_from(
        ["llama-3", "qwen3", "gpt2", "mixtral", "gemma-2", "smollm2", "llama-3-8b"]
    ),
    fixed=st.builds(
        FixedDims,
        layers=none_or(spans),
        heads=none_or(spans),
        kv_heads=none_or(st.sampled_from([(1, 1), (4, 8)])),
        head_dim=none_or(st.sampled_from([(64, 64), (128, 128)])),
        vocab=none_or(st.sampled_from([1024, 32_000])),
        tied=none_or(st.booleans()),
        multiple_of=none_or(st.sampled_from([32, 96, 1024])),
        ffn=none_or(st.sampled_from([(1024, 4096), (1536, 1536)])),
    ),
    bounds=st.builds(
        DesignBounds,
        aspect=none_or(st.sampled_from([(20, 60), (60, 200)])),
        ffn_ratio=none_or(st.sampled_from([(2, 3), (3.5, 3.5)])),
        tp=st.sampled_from([1, 1, 2, 4]),
        max_kv_per_token=none_or(st.integers(10_000, 200_000)),
    ),
    by_error=st.booleans(),
    limit=st.just(4),
)


@settings(max_examples=60, deadline=None)
@given(requests)
@pytest.mark.slow
def test_every_candidate_meets_every_constraint(request: DesignRequest) -> None:
    try:
        report = design(request)
    except LlamathError as error:
        assume("does not divide" in str(error))
        return
    assert report.within <= report.searched and bool(report.candidates) == bool(report.within)
    for x in report.candidates:
        check_bounds(x, request)


def check_bounds(x: Candidate, request: DesignRequest) -> None:
    model = llamath.load(dict(x.config))
    assert model.parameters.total == x.total and model.parameters.active == x.active
    assert abs(
        x.total - request.target
    ) <= request.tolerance * request.target and x.error == Fraction(
        x.total - request.target, request.target
    )
    v = model.count.formula.letters
    wide = v.get("Fe", v["F"])
    assert (v["L"], v["d"], wide, v["H"], v.get("K", x.kv_heads)) == sizes(x)
    fixed, bounds = request.fixed, request.bounds
    for span, n in (
        (fixed.layers, v["L"]),
        (fixed.heads, v["H"]),
        (fixed.kv_heads, v.get("K", v["H"])),
        (fixed.head_dim, x.head_dim),
        (fixed.ffn, wide),
    ):
        grouped = x.kv_heads != x.heads or span is not fixed.kv_heads
        assert span is None or not grouped or span[0] <= n <= span[1]
    assert fixed.vocab in (None, v["V"])
    assert fixed.tied is None or fixed.tied == (
        model.tree.head is not None and bool(model.tree.head.weight.tied)
    )
    assert bounds.aspect is None or bounds.aspect[0] <= x.aspect <= bounds.aspect[1]
    step = fixed.multiple_of or 1
    if bounds.ffn_ratio and bounds.ffn_ratio[0] == bounds.ffn_ratio[1]:
        assert abs(wide - bounds.ffn_ratio[0] * v["d"]) <= max(step, 256) * bounds.tp
    elif bounds.ffn_ratio:
        assert bounds.ffn_ratio[0] <= wide / v["d"] <= bounds.ffn_ratio[1]
    n = bounds.tp
    assert all(
        size % m == 0
        for size, m in (
            (wide, step),
            *((size, n) for size in (v["d"], v["H"], x.kv_heads, wide, v["V"])),
        )
    )
    from llamath.analysis.size.memory.cache_bytes import kv_cache_size

    assert kv_cache_size(model.tree, 1).kv_per_token == x.kv_bytes
    assert bounds.max_kv_per_token is None or x.kv_bytes <= bounds.max_kv_per_token


@pytest.mark.parametrize(
    ("like", "total", "active", "experts"),
    [
        ("mixtral", 47 * B, 13 * B, (8, 2)),
        ("llama-3", 47 * B, 13 * B, (8, 2)),
        ("qwen3", 30 * B, 3_300_000_000, (128, 8)),
        ("deepseek-v3", 671 * B, 37 * B, (256, 8)),
        ("gpt-oss", 21 * B, 3_600_000_000, (32, 4)),
    ],
)
@pytest.mark.slow
def test_moe_design_with_active_parameters(
    like: str, total: int, active: int, experts: tuple[int, int]
) -> None:
    fixed = FixedDims(experts=experts[0], top_k=experts[1])
    report = design(
        DesignRequest(
            target=total,
            like=like,
            fixed=fixed,
            active=active,
            tolerance=Fraction(1, 50),
            limit=3,
        )
    )
    assert report.candidates
    for x in report.candidates:
        p = llamath.load(dict(x.config)).parameters
        assert abs(p.total - total) * 50 <= total and abs(p.active - active) * 50 <= active
        assert report.family in ("mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss")


def test_design_follows_config_keys_of_its_family() -> None:
    changes = {"n_layer": (44, 50), "n_inner": 6400, "layer_norm_epsilon": 1e-6}
    report = llamath.design("1.5e9", like="gpt2", changes=changes)
    assert report
    for x in report.candidates:
        assert x.config["layer_norm_epsilon"] == 1e-6
        assert 44 <= x.layers <= 50 and x.ffn == 6400
    keys = {"moe_intermediate_size": "512:2048", "num_experts_per_tok": 4}
    report = llamath.design("30B", like="qwen3-30b-a3b", changes=keys, top=3)
    assert report
    for x in report.candidates:
        assert 512 <= x.config["moe_intermediate_size"] <= 2048
        assert x.config["num_experts_per_tok"] == 4
    with pytest.raises(LlamathError, match="no searched dimension of the qwen3_moe family"):
        llamath.design("30B", like="qwen3-30b-a3b", changes={"intermediate_size": 6144})


@pytest.mark.parametrize("like", ["llama-4", "qwen3-next", "nemotron-3", "lfm2", "opt", "gemma-4"])
def test_non_affine_family_is_refused(like: str) -> None:
    with pytest.raises(LlamathError, match="cannot search"):
        design(DesignRequest(target=8 * B, like=like))


def test_ffn_width_reports_meta_rounding_arguments() -> None:
    from llamath.checkpoint.meta_args import ffn_width

    report = design(DesignRequest(target=8_030_261_248, by_error=True, limit=5))
    assert report.candidates[0].rounding == (1024, 1.3)
    assert all(ffn_width(x.width, *x.rounding) == x.ffn for x in report.candidates if x.rounding)


def test_a_target_names_its_active_parameters() -> None:
    words = ("47B-A12.9B", "--like", "mixtral", "--top", "3")
    found = json.loads(run(*words, "--json").stdout)["candidates"]
    assert len(found) == 3 and all(abs(x["active"] / 12.9e9 - 1) <= 0.005 for x in found)
    assert "47,000,000,000 parameters (12,900,000,000 active)" in run(*words).stdout
    for key, hint in (
        ("active=13B", "give it with the target: 47B-A13B"),
        ("max_memory=80GB", "the target decides the bytes of the weights"),
    ):
        error = run("47B", "--bounds", key, ok=2).exception
        assert f"the key {key.partition('=')[0]} has gone" in str(error)
        assert isinstance(error, LlamathError) and hint in error.hint


@pytest.mark.parametrize(
    ("word", "key"), [("heads", "num_attention_heads"), ("experts", "num_experts")]
)
def test_a_dimension_is_told_its_config_key(word: str, key: str) -> None:
    error = run("8B", "--set", f"{word}=32", ok=2).exception
    assert isinstance(error, LlamathError) and f"{word} is no config key" in str(error)
    assert error.hint in (f"give changes={{'{key}': 32}}", f"give --set {key}=32")


@pytest.mark.slow
def test_binding_constraints_are_named() -> None:
    report = design(DesignRequest(target=70 * B, bounds=DesignBounds(max_kv_per_token=4096)))
    assert not report.candidates and report.misses is not None
    assert [x.option for x in report.misses.binding] == ["max_kv_per_token"]
    assert all(x.total < 7 * B for x in report.misses.nearest)
    both = design(
        DesignRequest(target=70 * B, fixed=FixedDims(layers=(20, 20), width=(4096, 4096)))
    )
    assert both.misses is not None and {x.option for x in both.misses.binding} == {
        "num_hidden_layers",
        "hidden_size",
    }


def test_habits_from_a_config_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**llamath.load("llama-3.2-1b").config.data, "vocab_size": 50_000}))
    output = json.loads(run("1e9", "--like", str(path), "--json", "--top", "1").stdout)
    assert (
        output["candidates"][0]["config"]["vocab_size"] == 50_000
        and output["candidates"][0]["config"]["rope_theta"] == 500_000
    )


def test_series_is_found_by_name() -> None:
    assert [x.slug for x in find_series("llama-3", 8 * B).members] == [
        "llama-3.2-1b",
        "llama-3.2-3b",
        "llama-3-8b",
        "llama-3-70b",
        "llama-3.1-405b",
    ]
    assert [x.slug for x in find_series("gpt2", B).members] == [
        "gpt2",
        "gpt2-medium",
        "gpt2-large",
        "gpt2-xl",
    ]
    assert (
        len(find_series("llama-3-8b", B).members) == 1
        and len(find_series("meta-llama/Llama-2-7b-hf", B).members) == 1
    )
    assert find_series("qwen3", B, sparse=True).template.family.name.endswith("moe")
    with pytest.raises(LlamathError, match="unknown series") as error:
        find_series("lama-3", B)
    assert "llama-3" in error.value.hint


def test_habits_interpolate_published_sizes() -> None:
    line = trend([(10**9, 2.0), (10**11, 8.0)])
    assert line.expected(10**10) == pytest.approx(1.3862943611)  # ln 4, half way in logarithms
    assert line.expected(10**8) == pytest.approx(0.6931471806) and line.expected(
        10**13
    ) == pytest.approx(2.0794415417)
    assert odd_bits(4096) == 0 and odd_bits(14336) == pytest.approx(2.807354922)
    assert [factor_out_twos(n) for n in (53248, 16384, 7, 6, 8)] == [
        "13·2¹²",
        "2¹⁴",
        "7",
        "3·2",
        "2³",
    ]


# ---- the command


@pytest.mark.slow
def test_the_json_contract() -> None:
    output = json.loads(run("405B", "--json").stdout)
    assert (
        output["target"] == 405 * B
        and output["searched"] > 10**7
        and len(output["candidates"]) == 10
    )
    for x in output["candidates"]:
        assert x.keys() >= {"config", "parameters", "error_ppm", "reasons"}
        assert llamath.load(x["config"]).parameters.total == x["parameters"]
        assert x["error_ppm"] == pytest.approx((x["parameters"] / (405 * B) - 1) * 1e6, abs=0.06)
        assert x["reasons"] and all(isinstance(y, str) for y in x["reasons"])


def test_table_matches_json_and_fits_the_terminal() -> None:
    text = run("8B", "--top", "4").stdout
    assert max(map(len, text.splitlines())) <= 80
    shown = design(DesignRequest(target=8 * B, limit=4)).candidates
    assert all(f"{x.total:,}" in text for x in shown)


def test_best_design_is_written_as_config(tmp_path: Path) -> None:
    for name in ("config", "params"):
        path = tmp_path / f"{name}.json"
        path.write_text(run("8030261248", "--format", name).stdout)
        assert llamath.load(path).parameters.total == 8_030_261_248
    assert json.loads(path.read_text())["ffn_dim_multiplier"] == 1.3


@pytest.mark.slow
def test_design_plot(tmp_path: Path) -> None:
    path = tmp_path / "design.svg"
    run("405B", "-o", str(path))
    root = ElementTree.fromstring(path.read_text())
    circles = root.findall(".//{http://www.w3.org/2000/svg}circle")
    report = design(DesignRequest(target=405 * B))
    assert len(circles) == len(report.ranked)
    assert any("126 layers, width 16384, ffn 53248" in (x[0].text or "") for x in circles if len(x))
    text = " ".join(x.text or "" for x in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "405,853,388,800" in text and "error of the total" in text


@pytest.mark.slow
def test_no_candidate_exits_with_1(tmp_path: Path) -> None:
    text = run("70B", "--bounds", "max_kv_per_token=4KiB", ok=1).stdout
    assert "no candidate; nearest" in text and "max_kv_per_token rules out every design" in text
    output = json.loads(run("70B", "--bounds", "max_kv_per_token=4KiB", "--json", ok=1).stdout)
    assert (
        output["candidates"] == []
        and output["binding"][0]["option"] == "max_kv_per_token"
        and output["nearest"]
    )
    run("70B", "--bounds", "max_kv_per_token=4KiB", "-o", str(tmp_path / "x.svg"), ok=1)
    done = run("70B", "--bounds", "max_kv_per_token=4KiB", "--format", "params", ok=1)
    assert done.stdout == "" and "max_kv_per_token rules out every design" in done.stderr
    assert not (tmp_path / "x.json").exists() and "no candidate" in (tmp_path / "x.svg").read_text()


@pytest.mark.parametrize(
    "args",
    [
        "-- -5", "0", "2e13",  "abc", "9e99", "1.5", "8B --like lama-3", "8B --like /nope.json", "8B --set num_hidden_layers=0", "8B --set num_hidden_layers=9:3", "8B --set num_hidden_layers=x",
        "8B --bounds ffn_ratio=x", "8B --bounds ffn_ratio=4:1", "8B --bounds ffn_ratio=nan", "8B --bounds aspect=0", "8B --tolerance 0.5", "8B --tolerance -1%",
        "8B --tolerance x", "8B --bounds max_kv_per_token=80", "8B --bounds max_memory=80GiB", "8B-A9B", "8B-A", "47B --bounds active=13B", "8B --bounds tp=5", "8B --set vocab_size=0", "8B --set num_experts_per_tok=2 --like llama-3", "8B --budget law=newton",
        "8B --budget tokens=1T,flops=1e24", "", "47B --set num_experts=8 --set num_experts_per_tok=9", "8B --like gpt2 --set num_experts=8 --format params", "8B --like gpt2 --format params",
        "8B --budget tokens=x", "8B --budget flops=-1", "1e18 --like nope", "8B --like llama-3 --like nope", "8B --like llama-3 --like qwen3 --like gemma", "8B --set num_attention_heads=1e3", "8B --set layers=32", "8B --set tp=8", "8B --set n_layer=9 --set num_hidden_layers=9", "8B --set moe_intermediate_size=512", "8B --set layer_types=[]",
    ],
)  # fmt: skip
def test_bad_input_exits_with_2(args: str) -> None:
    run(*args.split(), ok=2)


@pytest.mark.parametrize("target", ["1", "7", "1000", "1e6", "3.2e6", "1e13"])
@pytest.mark.slow
def test_any_target_has_candidates_or_near_misses(target: str) -> None:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(
        cli, ["design", target, "--top", "1"], standalone_mode=False
    )
    assert done.exit_code in (0, 1) and (
        done.exit_code == 0 or "nearest" in done.stdout or "empty" in done.stdout
    ), done.output
