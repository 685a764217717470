"""`diff`: causes sum exactly to the difference, known differences have known causes, and all output formats have the same numbers."""

from __future__ import annotations

import json
import os
import re
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import llamath
from llamath.analysis.understand.diff.model_diff import DiffReport, diff
from llamath.cli import cli
from llamath.render.svg.svg_shapes import escape_xml
from llamath.render.svg.treemap_svg import squarify, treemap_svg
from llamath.render.svg.waterfall_svg import waterfall_svg
from llamath.utils.errors import LlamathError
from support.checked_diff import checked_diff
from support.csv_tables import csv_rows
from support.loaded_models import LoadedModels
from support.reference_data import tiny_configs

GOLDEN = Path(__file__).parents[1] / "golden"
SAMPLE = """llama-2-7b llama-3-8b llama-3.1-70b llama-3.2-1b classic-405b mixtral-8x7b deepseek-v2-lite deepseek-v3 gemma-2-2b gemma-4-31b
    gpt2 opt-350m qwen3-30b-a3b qwen3-next-80b-a3b nemotron-3-nano-30b llama-4-scout llama-4-maverick lfm2-350m gpt-oss-20b bloom-560m
    falcon-7b mpt-7b granite-3.1-1b-a400m""".split()
MODELS = LoadedModels(*SAMPLE)


def run(*args: str, width: int = 80) -> str:
    done = CliRunner(env={"COLUMNS": str(width), "NO_COLOR": "1"}).invoke(
        cli, args, catch_exceptions=False, standalone_mode=False
    )
    return done.stdout


def diff_presets(a: str, b: str) -> DiffReport:
    return diff(llamath.load(a), llamath.load(b))


def reversed_causes(report: DiffReport) -> list[tuple[str, int, tuple[tuple[str, int], ...]]]:
    return [
        (x.kind, -x.delta, tuple((part.path, -part.delta) for part in x.parts))
        for x in reversed(report.causes)
    ]


def causes_of(report: DiffReport) -> list[tuple[str, int, tuple[tuple[str, int], ...]]]:
    return [
        (x.kind, x.delta, tuple((part.path, part.delta) for part in x.parts)) for x in report.causes
    ]


def test_llama_2_7b_to_llama_3_8b_has_three_causes() -> None:
    report = diff_presets("llama-2-7b", "llama-3-8b")
    causes = {x.cause: x for x in report.causes}
    assert {name: x.delta for name, x in causes.items()} == {
        "vocabulary": 788_529_152,
        "wider FFN": 1_308_622_848,
        "fewer KV heads": -805_306_368,
    }
    assert [(x.path, x.delta) for x in causes["vocabulary"].parts] == [
        ("embed.weight", 394_264_576),
        ("head.weight", 394_264_576),
    ]
    assert {(x.path, x.layers) for x in causes["fewer KV heads"].parts} == {
        (f"layers.{{l}}.attn.{x}.weight", 32) for x in "kv"
    }
    assert report.delta == 1_291_845_632
    assert {x.key for x in report.config} >= {"rope_theta", "max_position_embeddings"}
    assert set(report.same.weights) == {
        *(f"layers.{{l}}.{x}.weight" for x in ("attn_norm", "attn.q", "attn.o", "mlp_norm")),
        "norm.weight",
    }


def test_added_layers_cost_their_parameters_each() -> None:
    report = diff_presets("llama-3.1-8b", "llama-3.1-70b")
    deeper, wider, *_ = report.causes
    assert (deeper.kind, deeper.a, deeper.b) == ("L", 32, 80) and deeper.delta == 48 * 218_112_000
    assert wider.kind == "d" and [x.kind for x in report.causes] == ["L", "d", "H", "F"]
    assert next(x.delta for x in wider.parts if x.path == "embed.weight") == 128_256 * 4096


def test_a_change_of_layers_is_one_cause() -> None:
    model = llamath.load("llama-3-8b")
    report = checked_diff(model, llamath.load("llama-3-8b", changes={"num_hidden_layers": 40}))
    assert [(x.cause, x.delta) for x in report.causes] == [("more layers", 8 * 218_112_000)]


@pytest.mark.parametrize(
    ("a", "b", "cause", "delta"),
    [
        ("mistral-7b", "mixtral-8x7b", "experts instead of an FFN", 46_702_792_704 - 7_241_732_096),
        ("mixtral-8x7b", "mistral-7b", "an FFN instead of experts", 7_241_732_096 - 46_702_792_704),
        ("classic-405b", "llama-3.1-405b", "head no longer tied", 128_256 * 16_384),
        ("classic-405b", "llama-3.1-405b", "no learned positions", -2048 * 16_384),
        ("classic-405b", "llama-3.1-405b", "a gate in the FFN", 126 * 16_384 * 53_248),
        ("llama-3.1-405b", "classic-405b", "head tied to the embedding", -128_256 * 16_384),
        ("qwen2.5-7b", "qwen3-8b", "no biases", None),
        ("qwen2.5-7b", "qwen3-8b", "QK norms", None),
        ("mixtral-8x7b", "deepseek-v3", "latent attention instead of attention", None),
    ],
)
def test_structural_differences_are_named(a: str, b: str, cause: str, delta: int | None) -> None:
    deltas = {x.cause: x.delta for x in diff_presets(a, b).causes}
    assert cause in deltas
    assert delta is None or deltas[cause] == delta


@pytest.mark.parametrize("a", SAMPLE)
@pytest.mark.slow
def test_causes_of_all_pairs_sum_and_reverse(a: str, request: pytest.FixtureRequest) -> None:
    """Of pairs every third, or each with `--all`."""
    others = SAMPLE if request.config.getoption("all") else SAMPLE[SAMPLE.index(a) % 3 :: 3]
    for b in {a: 0, **dict.fromkeys(others)}:
        report = checked_diff(MODELS[a], MODELS[b])
        assert reversed_causes(checked_diff(MODELS[b], MODELS[a])) == causes_of(report)
        assert (a == b) == (not report.causes and not report.config)


@pytest.mark.slow
def test_causes_between_neighboring_families_reverse(request: pytest.FixtureRequest) -> None:
    """Every pair before a release, else every fourth."""
    step = 1 if request.config.getoption("--all") else 4
    models = [llamath.load(x.values[0]) for x in tiny_configs()[::step]]
    for a, b in pairwise(models):
        assert reversed_causes(checked_diff(b, a)) == causes_of(checked_diff(a, b))


sizes = st.integers(1, 9)
shapes = st.fixed_dictionaries(
    {
        "hidden_size": sizes, "vocab_size": sizes, "intermediate_size": sizes, "num_hidden_layers": sizes, "num_key_value_heads": sizes,
        "group": st.integers(1, 4), "head_dim": sizes.map(lambda x: 2 * x), "attention_bias": st.booleans(), "mlp_bias": st.booleans(),
        "tie_word_embeddings": st.booleans(), "num_local_experts": st.integers(2, 6), "model_type": st.sampled_from(["llama", "mixtral"]),
    }
)  # fmt: skip


def config_of_shape(shape: dict[str, Any]) -> dict[str, Any]:
    keys = {
        **shape,
        "num_attention_heads": shape["num_key_value_heads"] * shape["group"],
        "num_experts_per_tok": 1,
    }
    unknown = (
        ("group", "attention_bias", "mlp_bias")
        if shape["model_type"] == "mixtral"
        else ("group", "num_local_experts", "num_experts_per_tok")
    )
    return {key: x for key, x in keys.items() if key not in unknown}


@settings(max_examples=80, deadline=None)
@given(shapes, shapes)
@pytest.mark.slow
def test_causes_of_random_models_sum_and_reverse(a: dict[str, Any], b: dict[str, Any]) -> None:
    one, two = llamath.load(config_of_shape(a)), llamath.load(config_of_shape(b))
    assert reversed_causes(checked_diff(two, one)) == causes_of(checked_diff(one, two))


def test_models_of_equal_size_reverse() -> None:
    shape = {
        "model_type": "llama",
        "hidden_size": 1,
        "vocab_size": 1,
        "intermediate_size": 1,
        "num_hidden_layers": 2,
    }
    one = llamath.load({**shape, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4})
    two = llamath.load({**shape, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 2})
    there, back = checked_diff(one, two), checked_diff(two, one)
    assert (
        there.delta == 0
        and [x.kind for x in there.causes]
        and reversed_causes(back) == causes_of(there)
    )


@settings(max_examples=100, deadline=None)
@given(
    shapes,
    st.sampled_from(
        ["vocab_size", "num_hidden_layers", "hidden_size", "intermediate_size", "head_dim"]
    ),
    sizes,
)
@pytest.mark.slow
def test_one_changed_key_is_one_cause(shape: dict[str, Any], key: str, n: int) -> None:
    n = 2 * n if key == "head_dim" else n
    one, two = (
        llamath.load(config_of_shape(shape)),
        llamath.load(config_of_shape({**shape, key: n})),
    )
    letter = {"vocab_size": "V", "num_hidden_layers": "L", "hidden_size": "d", "head_dim": "h"}.get(
        key
    )
    letter = letter or ("Fe" if shape["model_type"] == "mixtral" else "F")
    kinds = [x.kind for x in checked_diff(one, two).causes]
    assert kinds == ([] if n == shape[key] else [letter])


def test_absent_keys_are_compared_by_their_defaults() -> None:
    a = {
        "model_type": "llama",
        "hidden_size": 8,
        "vocab_size": 9,
        "intermediate_size": 7,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    report = diff(llamath.load(a), llamath.load({**a, "rms_norm_eps": 1e-5, "rope_theta": 10000}))
    assert [(x.key, x.a, x.b, x.default) for x in report.config] == [
        ("rms_norm_eps", 1e-6, 1e-5, (True, False))
    ]


def test_synonymous_keys_are_compared_under_one_name() -> None:
    keys = [x.key for x in diff_presets("gpt2", "llama-3.2-1b").config]
    assert {"hidden_size", "num_hidden_layers", "num_attention_heads", "hidden_act"} <= set(
        keys
    ) and not {"n_embd", "n_layer"} & set(keys)
    assert len(keys) == len(set(keys))


def test_json_has_the_documented_keys_and_sums() -> None:
    output = json.loads(run("diff", "mixtral-8x7b", "deepseek-v3", "--json"))
    assert (output["a"], output["b"]) == ("Mixtral 8x7B", "DeepSeek V3")
    assert output["total"] == {"a": 46_702_792_704, "b": 671_026_419_200, "delta": 624_323_626_496}
    assert (
        sum(x["delta"] for x in output["causes"])
        == sum(x["delta"] for x in output["weights"])
        == output["total"]["delta"]
    )
    assert all(
        x.keys() >= {"cause", "delta", "where"} and x["cause"] and x["where"]
        for x in output["causes"]
    )
    assert all(x["delta"] == sum(part["delta"] for part in x["parts"]) for x in output["causes"])
    assert all(x.keys() >= {"path", "a", "b", "delta"} for x in output["weights"])
    assert all(x.keys() >= {"key", "a", "b"} for x in output["config"])
    assert all(x["delta"] == x["parameters"]["b"] - x["parameters"]["a"] for x in output["weights"])
    row = next(
        x for x in output["weights"] if x["path"] == "layers.{l}.mlp.experts.{e}.down.weight"
    )
    assert (row["a"], row["b"], row["copies"]) == (
        [4096, 14336],
        [7168, 2048],
        {"a": 256, "b": 58 * 256},
    )


def test_a_model_does_not_differ_from_itself() -> None:
    output = json.loads(run("diff", "llama-3-8b", "llama-3-8b", "--json"))
    assert (
        output["total"]["delta"] == 0
        and not output["causes"]
        and not output["weights"]
        and not output["config"]
    )
    assert "nothing differs" in run("diff", "llama-3-8b", "llama-3-8b")


def test_set_compares_a_model_with_its_change() -> None:
    output = json.loads(run("diff", "llama-3-8b", "--set", "num_key_value_heads=32", "--json"))
    assert [(x["cause"], x["delta"]) for x in output["causes"]] == [("more KV heads", 805_306_368)]


def test_csv_and_markdown_sum_to_the_difference() -> None:
    rows = csv_rows(run("diff", "llama-2-7b", "llama-3-8b", "--format", "csv"))
    assert sum(int(x["difference"]) for x in rows) == 1_291_845_632
    text = run("diff", "llama-2-7b", "llama-3-8b", "--format", "markdown")
    causes = text.split("\n\n")[3].splitlines()
    numbers = [int(x.split(" | ")[1].replace(",", "").replace("−", "-")) for x in causes[2:]]
    assert numbers[0] + sum(numbers[1:-1]) == numbers[-1] == 8_030_261_248
    assert "| rope_theta | 10,000 | 500,000 | compute |" in text


@pytest.mark.parametrize(
    ("a", "b"),
    [("llama-2-7b", "llama-3-8b"), ("gpt2", "llama-3.2-1b"), ("mixtral-8x7b", "deepseek-v3")],
)
def test_printed_difference_is_golden_and_sums(a: str, b: str) -> None:
    text = run("diff", a, b)
    path = GOLDEN / f"diff-{a}-{b}.txt"
    if os.environ.get("LLAMATH_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "LLAMATH_GOLDEN=1 writes it anew; read the difference"
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    chart = lines[lines.index("causes") + 1 : lines.index("", lines.index("causes"))]
    numbers = [
        int(x[1].replace(",", "").replace("−", "-"))
        for y in chart
        if (x := re.search(r"\S  +([+−]?[\d,]+)  ", y)) and y[0] != " "
    ]
    start, *deltas, end = numbers
    assert start + sum(deltas) == end and len(deltas) == len(diff_presets(a, b).causes)
    bars = [y for y in chart if y[0] not in " ≈" and ("<" in y or ">" in y)]
    assert all((">" in y) == (" +" in y) and ("<" in y) == (" −" in y) for y in bars) and len(
        bars
    ) == len(deltas)


def test_output_fits_the_terminal() -> None:
    for width in (60, 80, 132):
        lines = run("diff", "llama-2-7b", "llama-3-8b", width=width).splitlines()
        assert max(map(len, lines)) <= width


def test_several_models_are_compared_with_the_first() -> None:
    names = [
        "llama-3-8b",
        "llama-3.1-8b",
        "llama-3.1-70b",
        "llama-3.1-405b",
        "gpt2",
        "mixtral-8x7b",
        "gemma-2-2b",
    ]
    text = run("diff", *names)
    assert (
        max(map(len, text.splitlines())) <= 80 and "+397,823,127,552" in text and "−98.45%" in text
    )
    output = json.loads(run("diff", *names, "--json"))
    assert [x["delta"] for x in output["models"][:3]] == [0, 0, 62_523_445_248] and len(
        output["differences"]
    ) == 6
    rows = csv_rows(run("diff", *names, "--format", "csv"))
    for x in rows:
        own = sum(
            int(n)
            for key, n in x.items()
            if key not in ("model", "parameters", "difference", "num_layers")
        )
        assert own == int(x["difference"]) == int(x["parameters"]) - 8_030_261_248


@pytest.mark.parametrize(
    ("a", "b"), [("llama-2-7b", "llama-3-8b"), ("deepseek-v3", "mixtral-8x7b"), ("gpt2", "gpt2")]
)
def test_waterfall_picture_has_a_bar_for_each_cause(a: str, b: str) -> None:
    one, two = llamath.load(a), llamath.load(b)
    report = diff(one, two)
    svg = parse_svg(waterfall_svg(report.replace(a=one.replace(name="<b>&\x1b[0m"))))
    assert len(svg.findall(".//{*}polygon[@class='up']")) == sum(x.delta > 0 for x in report.causes)
    assert len(svg.findall(".//{*}polygon[@class='down']")) == sum(
        x.delta < 0 for x in report.causes
    )
    labels = {x.text for x in svg.findall(".//{*}text")}
    assert {f"{x.delta:+,}".replace("-", "−") for x in report.causes} <= labels
    check_inside_picture(svg)


@pytest.mark.parametrize(
    "slug", ["llama-3-8b", "deepseek-v3", "gpt2", "stories15m", "nemotron-3-nano-30b"]
)
def test_treemap_is_to_scale(slug: str) -> None:
    model = llamath.load(slug)
    svg = parse_svg(treemap_svg(model))
    tiles = [x for x in svg.findall(".//{*}rect") if x.find("{*}title") is not None]
    total = model.parameters.total
    numbers = [
        int(re.search(r"= ([\d,]+) \(", x.findtext("{*}title", ""))[1].replace(",", ""))
        for x in tiles
    ]  # type: ignore[index]
    assert sum(numbers) == total
    for tile, n in zip(tiles, numbers, strict=True):
        wide, high = (float(tile.get(x, "0")) + 2 for x in ("width", "height"))
        if n > total // 100:
            assert wide * high == pytest.approx(n / total * 912 * 564, rel=0.01)
    check_inside_picture(svg)


def parse_svg(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert root.findtext("{*}title") and root.findtext("{*}desc") and root.get("role") == "img"
    assert (
        "prefers-color-scheme: dark" in svg
        and "url(" not in svg
        and "@import" not in svg
        and "http" not in svg.split("\n", 1)[1]
    )
    return root


def check_inside_picture(svg: ElementTree.Element) -> None:
    """Check that every shape is inside the picture."""
    _, _, wide, high = map(float, svg.get("viewBox", "").split())
    for x in svg.findall(".//{*}rect"):
        left, top, width, height = (float(x.get(key, "0")) for key in ("x", "y", "width", "height"))
        assert left >= 0 and top >= 0 and left + width <= wide + 0.5 and top + height <= high + 0.5
    for x in svg.findall(".//{*}polygon"):
        for point in x.get("points", "").split():
            left, top = map(float, point.split(","))
            assert 0 <= left <= wide and 0 <= top <= high


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=40))
@pytest.mark.slow
def test_treemap_tiles_fill_the_box(numbers: list[int]) -> None:
    numbers.sort(reverse=True)
    boxes = squarify(numbers, (10.0, 20.0, 300.0, 200.0))
    assert len(boxes) == len(numbers)
    for n, (x, y, width, height) in zip(numbers, boxes, strict=True):
        assert width * height == pytest.approx(60_000 * n / sum(numbers), rel=1e-6, abs=0.05)
        assert (
            x >= 10 - 1e-6
            and y >= 20 - 1e-6
            and x + width <= 310 + 0.05
            and y + height <= 220 + 0.05
        )


@pytest.mark.parametrize("args", [("diff", "llama-2-7b", "llama-3-8b"), ("count", "gpt2")])
def test_a_picture_overwrites_files_only_with_force(tmp_path: Path, args: tuple[str, ...]) -> None:
    path = tmp_path / "x.svg"
    path.write_text("mine")
    with pytest.raises(LlamathError, match="already exists"):
        run(*args, "-o", str(path))
    assert path.read_text() == "mine"
    run(*args, "-o", str(path), "--force")
    ElementTree.fromstring(path.read_text())
    fresh = tmp_path / "y.svg"
    run(*args, "-o", str(fresh))
    assert fresh.read_text() == path.read_text() and sorted(x.name for x in tmp_path.iterdir()) == [
        "x.svg",
        "y.svg",
    ]
    folder, device = tmp_path / "folder.svg", tmp_path / "device.svg"
    folder.mkdir()
    device.symlink_to("/dev/null")
    with pytest.raises(LlamathError, match="folder"):
        run(*args, "-o", str(folder), "--force")
    with pytest.raises(LlamathError, match="device"):
        run(*args, "-o", str(device), "--force")
    with pytest.raises(LlamathError, match="cannot write"):
        run(*args, "-o", str(tmp_path / "none" / "z.svg"))


def test_diff_rejects_bad_arguments() -> None:
    for args in (
        ["diff"],
        ["diff", "llama-3-8b"],
        ["diff", "-", "-"],
        ["diff", "gpt2", "gpt2", "gpt2", "-o", "x.svg"],
    ):
        with pytest.raises(click.UsageError):
            run(*args)
    with pytest.raises(LlamathError):
        run("diff", "llama-3-8b", "llama-9-8b")


def test_a_checkpoint_folder_can_be_compared() -> None:
    folder = str(Path(__file__).parents[2] / "examples" / "tiny-llama")
    report = diff(llamath.load(folder), llamath.load("llama-3-8b"))
    assert (
        report.delta
        == 8_030_261_248 - llamath.load(folder).parameters.total
        == sum(x.delta for x in report.causes)
    )


def test_each_kind_of_cause_occurs_once() -> None:
    for a, b in product(
        ["gemma-4-31b", "nemotron-3-nano-30b"], ["qwen3-next-80b-a3b", "deepseek-v3"]
    ):
        kinds = [x.kind for x in diff(MODELS[a], MODELS[b]).causes]
        assert len(kinds) == len(set(kinds)) > 5


def test_a_billion_layers_are_compared() -> None:
    report = checked_diff(
        MODELS["llama-3-8b"], llamath.load("llama-3-8b", changes={"num_hidden_layers": 10**9})
    )
    assert [x.delta for x in report.causes] == [(10**9 - 32) * 218_112_000]


def test_hostile_text_is_escaped_in_svg() -> None:
    for labels in ("&" * 30_000, "<b>'\"" * 5_000, "\x00\x1b[31m\ud800", "\u202e"):
        assert ElementTree.fromstring(f"<t>{escape_xml(labels)}</t>").text


RECIPE_MODEL = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 160,
    "dtype": "bfloat16",
}


def test_two_recipes_are_compared_by_group_and_module() -> None:
    nvfp4 = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", "model.layers.0*"],
    }
    fp8 = {
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
        "modules_to_not_convert": ["lm_head", "model.layers.3.mlp"],
    }
    a, b = ({**RECIPE_MODEL, "quantization_config": x} for x in (nvfp4, fp8))
    report = llamath.diff(a, b)
    assert report.delta == 0 and report.storage is not None
    sizes = [llamath.memory(x, context=1).weights for x in (a, b)]
    assert (report.storage.a.bytes, report.storage.b.bytes) == tuple(
        sizes
    ) and report.storage.delta == sizes[1] - sizes[0]
    groups = {x.group: x for x in report.storage.groups}
    assert sum(x.delta for x in groups.values()) == report.storage.delta
    matrices = 3 * 256 * 384
    assert groups["mlp"].a.bytes == 3 * (matrices * 9 // 16 + 3 * 8) + 2 * matrices
    assert groups["mlp"].b.bytes == 3 * (matrices + 3 * 4 * 6) + 2 * matrices
    modules = {
        (x.module.rpartition(".")[2], x.layers): (x.a, x.reason_a, x.b, x.reason_b)
        for x in report.storage.modules
    }
    assert modules["up_proj", (0,)] == ("BF16", "in exclude_modules", "fp8", "")
    assert modules["up_proj", (3,)] == ("nvfp4", "", "BF16", "in modules_to_not_convert")
    assert modules["q_proj", (1, 2, 3)] == ("nvfp4", "", "fp8", "")
    document = report.to_json()["storage"]
    assert (
        document["delta"] == report.storage.delta
        and document["groups"][0]["a"]["bits_per_weight"] == 16
    )


def test_a_quantized_and_a_plain_model_are_compared() -> None:
    fp8 = {**RECIPE_MODEL, "quantization_config": {"quant_method": "fp8"}}
    storage = llamath.diff(RECIPE_MODEL, fp8).storage
    assert (
        storage is not None
        and storage.delta < 0
        and storage.b.formats[0] == "fp8-tensor"
        and not storage.modules
    )
    assert llamath.diff(RECIPE_MODEL, RECIPE_MODEL).storage is None
    unknown = {**RECIPE_MODEL, "quantization_config": {"quant_method": "unheard-of"}}
    report = llamath.diff(RECIPE_MODEL, unknown)
    assert (
        report.storage is None
        and "unknown quantization quant_method unheard-of" in report.notes[-1]
    )


def test_a_recipe_can_be_set_or_removed() -> None:
    section = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    storage = llamath.diff(RECIPE_MODEL, changes={"quantization_config": section}).storage
    assert storage is not None and storage.b.formats[0] == "fp8"
    assert (
        llamath.memory(
            llamath.load("deepseek-v3", changes={"quantization_config": None}), context=1
        ).dtype
        == "bf16"
    )
