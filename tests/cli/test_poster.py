"""Posters: `export --poster`, their files, sizes and text."""

from __future__ import annotations

import os
import re
import struct
import xml.etree.ElementTree as ET
from itertools import combinations, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import llamath
from llamath.analysis.understand.fact_sheet import FactSheet, fact_sheet
from llamath.analysis.understand.model_bars import model_bars
from llamath.catalog import slugs
from llamath.render.svg.poster.poster_svg import FORMATS, THEMES, poster_drawing, poster_svg
from llamath.utils.errors import LlamathError
from support.drawn_texts import drawn_texts
from support.typed_commands import Typed

GOLDEN = Path(__file__).parents[1] / "golden" / "posters"
TOKENS = Path(__file__).parents[2] / "web" / "src" / "styles" / "tokens.css"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}
UNUSUAL = [
    "classic-405b",  # the longest name
    "openelm-3b",  # the longest formula, and no two layers alike
    "deepseek-v4-pro",
    "falcon-mamba-7b",
    "gemma-3-27b",
    "jamba-v0.1",
    "qwen3-next-80b-a3b",
    "longcat-flash",
    "gpt2",
]


def facts_of(model: Any) -> FactSheet:
    return fact_sheet(llamath.load(model))


@pytest.mark.parametrize(
    ("slug", "name"), [("llama-3-8b", "wide"), ("deepseek-v3", "a3"), ("jamba-v0.1", "square")]
)
def test_golden_posters(slug: str, name: str) -> None:
    path, text = GOLDEN / f"{slug}-{name}.svg", poster_svg(facts_of(slug), name)
    if os.environ.get("LLAMATH_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "LLAMATH_GOLDEN=1 writes it anew; look at the picture"


def check_text(svg: str, size: tuple[int, int]) -> None:
    """Check that all text is inside the poster, and that none covers other text."""
    found = list(drawn_texts(svg))
    for x in found:
        assert x.left >= 0 and x.right <= size[0] and x.top >= 0 and x.bottom <= size[1], x
    assert [(a.text, b.text) for a, b in combinations(found, 2) if a.overlaps(b)] == []


@pytest.mark.slow
def test_text_of_presets_fits(request: pytest.FixtureRequest) -> None:
    step = 1 if request.config.getoption("--all") else 40
    for slug in dict.fromkeys([*UNUSUAL, *list(slugs())[::step]]):
        facts = facts_of(slug)
        drawn = {}
        for name, form in FORMATS.items():
            drawn[name] = poster_svg(facts, name)
            check_text(drawn[name], (form.width, form.height))
            assert f"{facts.total:,}</text>" in drawn[name], slug
        assert len(set(drawn.values())) == len(FORMATS)


def test_poster_states_the_facts() -> None:
    texts = [x.text for x in drawn_texts(poster_svg(facts_of("deepseek-v3"), "a3"))]
    for said in (
        "DeepSeek V3",
        "671,026,419,200",
        "parameters, 37.6B active for each token",
        "256 experts, 8 for each token",
        "61",
        "7,168",
        "129,280",
        "160k",
        "673 GB",
        "68.6 KiB",
        "97.4%",
        "config.json of deepseek-ai/DeepSeek-V3",
    ):
        assert said in texts, said
    assert any(x.startswith("V·d + 3·(2·d") for x in texts)


def test_matrices_have_the_shapes_of_their_files() -> None:
    texts = [x.text for x in drawn_texts(poster_svg(facts_of("llama-3-8b"), "square"))]
    shapes = dict(pairwise(texts))
    assert shapes["gate"] == shapes["up"] == "14,336 × 4,096"
    assert shapes["down"] == "4,096 × 14,336"


def test_description_ends_with_a_clause() -> None:
    texts = [x.text for x in drawn_texts(poster_svg(facts_of("deepseek-v3"), "wide"))]
    assert "dense + 58 MoE) of multi-head latent attention" in texts


def areas(svg: str, color: str) -> list[float]:
    """Return the areas of the solid rectangles of a color, in order."""
    paths = re.findall(rf'<path fill="\{color}" d="([^"]*)"', svg)
    return [float(w) * float(h) for d in paths for w, h in re.findall(r"h([\d.]+)v([\d.]+)h", d)]


def test_areas_are_parameters() -> None:
    model = llamath.load("llama-3-8b")
    svg = poster_drawing(fact_sheet(model), "a3")
    q, k, v, o, *_ = areas(svg, "$c-attn")
    gate = areas(svg, "$c-ffn")[0]
    assert q == pytest.approx(o, rel=0.01) and k == pytest.approx(v, rel=0.01)
    assert q / k == pytest.approx(4, rel=0.01) and gate / q == pytest.approx(3.5, rel=0.01)
    bars = model_bars(model)
    # a line of paper is left between the parts of a bar
    (embed,), ffn = areas(svg, "$c-embed")[:1], areas(svg, "$c-ffn")[-2]
    parameters = {x.component: x.parameters for x in (*bars.before[0], *bars.kinds[0])}
    assert embed / ffn == pytest.approx(parameters["embed"] / parameters["ffn"], rel=0.03)


def test_colors_are_those_of_the_page() -> None:
    css = TOKENS.read_text()
    light, dark = css.split('[data-theme="light"]')[1].split('[data-theme="dark"]')[:2]
    for theme, text in (("light", light), ("dark", dark)):
        found = dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", text))
        assert {name: found[name] for name in THEMES[theme]} == THEMES[theme]
    assert THEMES["light"].keys() == THEMES["dark"].keys()


def test_hostile_names_are_text() -> None:
    name = '</text><script>alert(1)</script>" onload="x $ink ]]>&amp;\u202e\x00' + "W" * 500
    facts = fact_sheet(llamath.load(LLAMA).replace(name=name, source=name))
    for form in FORMATS:
        svg = poster_svg(facts, form, "dark")
        root = ET.fromstring(svg)
        assert {x.tag.partition("}")[2] for x in root.iter()} == {
            *("svg", "title", "desc", "rect", "path", "text")
        }
        assert not any("onload" in key for x in root.iter() for key in x.attrib)
        assert "$ink" in svg and 'fill="$' not in svg
        check_text(svg, (FORMATS[form].width, FORMATS[form].height))


def test_model_without_a_name_has_that_of_its_family() -> None:
    for name in ("", "  ", "the given keys"):
        model = llamath.load(LLAMA).replace(name=name)
        assert "A model of the llama family" in poster_svg(fact_sheet(model))


def test_a_billion_layers_are_drawn_at_once() -> None:
    config = LLAMA | {"num_hidden_layers": 10**9}
    svg = poster_svg(facts_of(config))
    assert len(svg) < 10_000 and "One of 1,000,000,000 layers" in svg
    check_text(svg, (1200, 630))


@pytest.mark.slow
def test_numbers_and_formulas_of_any_size_fit() -> None:
    large = dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size"), 10**15)
    large |= {"num_hidden_layers": 10**9, "max_position_embeddings": 10**15, "head_dim": 64}
    layers = {
        "num_transformer_layers": 300,
        "ffn_multipliers": [1 + x / 100 for x in range(300)],
        "num_query_heads": [12] * 300,
        "num_kv_heads": [4] * 300,
    }
    for model in (LLAMA | large, llamath.load("openelm-3b", changes=layers)):
        facts = facts_of(model)
        for name, form in FORMATS.items():
            check_text(poster_svg(facts, name), (form.width, form.height))


def png_size(path: Path) -> tuple[int, ...]:
    return struct.unpack(">II", path.read_bytes()[16:24])


@pytest.mark.slow
def test_files_have_the_size_of_the_format(typed: Typed, tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    for given, size in (
        ([], (1200, 630)),
        (["square-dark"], (1200, 1200)),
        (["a3"], (2376, 3360)),
    ):
        path = tmp_path / f"{len(given)}{size[1]}.png"
        done = typed("export", "gpt2", "--poster", *given, "-o", path)
        assert done.status == 0 and not done.out and png_size(path) == size
    path = tmp_path / "poster.svg"
    assert typed("export", "gpt2", "--poster", "a3", "-o", path).status == 0
    assert 'width="297mm" height="420mm"' in path.read_text()


def test_poster_goes_to_standard_output(typed: Typed) -> None:
    done = typed("export", "gpt2", "--poster", "square-dark")
    assert done.status == 0 and done.out == poster_svg(facts_of("gpt2"), "square", "dark")


def test_poster_does_not_overwrite_a_file(typed: Typed, tmp_path: Path) -> None:
    path = tmp_path / "poster.svg"
    path.write_text("mine")
    done = typed("export", "gpt2", "--poster", "-o", path)
    assert done.status == 2 and "already exists" in done.err and path.read_text() == "mine"
    assert typed("export", "gpt2", "--poster", "-o", path, "--force").status == 0
    assert path.read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["gpt2", "--poster", "a4", "-o", "x.svg"], "expected wide, square, a3"),
        (["gpt2", "--poster", "a3-", "-o", "x.svg"], "expected wide, square, a3"),
        (["gpt2", "--poster", "dark", "-o", "x.svg"], "expected wide, square, a3"),
        (["gpt2", "--poster", "a3", "-o", "x.pdf"], "ends in .svg or .png"),
        (["gpt2", "llama-3-8b", "--poster", "a3", "-o", "x.svg"], "of one model, found 2"),
        (["gpt2", "--poster", "a3", "--live", "-o", "x.svg"], "runs no model"),
        (["--poster", "gpt2"], "which MODEL?"),
        (["gpt2", "--poster", "--json"], "missing -o FILE"),
        (["xyzzy", "--poster"], "xyzzy"),
    ],
)
def test_wrong_questions_exit_with_2(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = typed("export", *args)
    assert done.status == 2 and says in done.err and not any(tmp_path.iterdir())


def test_function_writes_the_poster(tmp_path: Path) -> None:
    path = tmp_path / "poster.svg"
    done = llamath.export(llamath.load("gpt2"), path, poster="a3-dark")
    assert done.bytes == path.stat().st_size and done.model == "GPT-2 small"
    with pytest.raises(LlamathError, match="already exists"):
        llamath.export("gpt2", path, poster="wide")


def test_tensors_without_a_family_have_no_poster(tmp_path: Path) -> None:
    tensor = SimpleNamespace(shape=(4, 4), dtype="float32", numel=lambda: 16)
    model = llamath.load({"a.weight": tensor})
    assert isinstance(model, llamath.TensorModel)
    with pytest.raises(LlamathError, match="this needs a model of a known family"):
        llamath.export(model, tmp_path / "poster.svg", poster="wide")
    assert not any(tmp_path.iterdir())
