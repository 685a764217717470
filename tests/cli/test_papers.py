"""Tables as CSV and Markdown, and pictures as SVG and PNG: each says what it is of, and with which settings."""

from __future__ import annotations

import builtins
import csv
import json
import struct
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import llamath
from llamath.render import png
from llamath.render.csv_rows import tables_rows
from llamath.utils.errors import LlamathError
from llamath.utils.report import HTMLTable, Report, html_table
from support.typed_commands import Typed

TABLES: list[tuple[str, Any]] = [
    ("memory llama-3-8b --context 8k", lambda: llamath.memory("llama-3-8b", context="8k")),
    ("memory llama-3-8b --train --layout dp=8,zero=3", lambda: llamath.memory("llama-3-8b", train=True, layout="dp=8,zero=3")),
    ("fit llama-3.1-8b --on rtx-4090", lambda: llamath.fit("llama-3.1-8b", on="rtx-4090")),
    ("fit gpt2", lambda: llamath.fit("gpt2")),
    ("fit llama-3.1-8b --on 3060,4090", lambda: llamath.fit("llama-3.1-8b", on=["3060", "4090"])),
    ("quants llama-3.1-8b --on rtx-3060", lambda: llamath.quants("llama-3.1-8b", on="rtx-3060")),
    ("place llama-3.1-8b --on rtx-3060 --ram 64GiB", lambda: llamath.place("llama-3.1-8b", on="rtx-3060", ram="64GiB")),
    ("plan llama-3-8b --on 8xh100 --top 3", lambda: llamath.plan("llama-3-8b", on="8xh100", top=3)),
    ("plan llama-3-8b --on 8xh100 --serve", lambda: llamath.plan("llama-3-8b", on="8xh100", serve=True)),
    ("cost llama-3.1-8b --on h100 --price 2/h", lambda: llamath.cost("llama-3.1-8b", on="h100", price="2/h")),
    ("pair llama-3.1-70b llama-3.2-1b", lambda: llamath.pair("llama-3.1-70b", "llama-3.2-1b")),
    ("design 8B --top 3", lambda: llamath.design("8B", top=3)),
    ("explain 3540389888", lambda: llamath.explain(3540389888)),
    ("models olmo", lambda: llamath.models("olmo")),
    ("names llama-3-8b", lambda: llamath.names("llama-3-8b")),
]
PICTURES = (
    "count deepseek-v3",
    "diff llama-2-7b llama-3-8b",
    "trace llama-3-8b",
    "fit llama-3.1-8b --on rtx-4090 --context 8k",
    "place llama-3.1-8b --on rtx-3060 --ram 64GiB",
    "design 8B",
)


def cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(int(value)) if isinstance(value, int) else " ".join(str(value).split())


def tables_of(report: Report) -> list[list[list[str]]]:
    found = [x for x in report.html_tables() if isinstance(x, HTMLTable)]
    assert found
    return [[list(x.header), *([cell(y) for y in row] for row in x.rows)] for x in found]


@pytest.mark.parametrize(("line", "make"), TABLES, ids=[x for x, _ in TABLES])
def test_csv_has_the_cells_of_the_report(typed: Typed, line: str, make: Any) -> None:
    report = make()
    first, second, *rest = typed(*line.split(), "--format", "csv").out.splitlines()
    assert first == f"# {report.summary}" and second == f"# llamath {line}"
    blocks = "\n".join(x for x in rest if not x.startswith("# ")).strip("\n").split("\n\n")
    assert [list(csv.reader(x.strip("\n").splitlines())) for x in blocks] == tables_of(report)


@pytest.mark.parametrize(("line", "make"), TABLES, ids=[x for x, _ in TABLES])
def test_markdown_has_the_cells_of_the_report(typed: Typed, line: str, make: Any) -> None:
    report = make()
    lines = typed(*line.split(), "--format", "markdown").out.splitlines()
    assert lines[0] == report.summary and lines[2] == f"`llamath {line}`" and not lines[1] + lines[3]
    rows = [x[2:-2].split(" | ") for x in lines if x.startswith("| ") and set(x) - set("|-: ")]
    assert rows == [[y.replace("|", "&#124;") for y in row] for table in tables_of(report) for row in table]


def test_steps_of_a_trace_sum_to_its_flops(typed: Typed) -> None:
    lines = typed("trace", "deepseek-v3", "--format", "csv").out.splitlines()
    rows = list(csv.DictReader(lines[3:]))
    walk = json.loads(typed("trace", "deepseek-v3", "--json").out)["prompt"]
    assert sum(int(x["times"]) * int(x["FLOPs"]) for x in rows) == walk["flops"]
    assert lines[1] == "# llamath trace deepseek-v3" and lines[0].startswith("# DeepSeek V3: ")


@pytest.mark.parametrize("value", ["=1+1", "@x", "+a", "-cmd|x"])
def test_no_cell_of_csv_is_a_formula(value: str) -> None:
    lines = list(tables_rows("=s", [html_table(("a",), [(value,), ("-1.5",), ("\x1b[31m",)])], "csv", "llamath x"))
    assert lines[4:] == [f"'{value}", "-1.5", "\\u{1b}[31m"] and lines[0] == "# =s"


@pytest.mark.parametrize("name", ["config", "gpus", "ls", "verify"])
def test_other_tables_are_printed_too(typed: Typed, name: str) -> None:
    folder = Path(__file__).parents[2] / "examples" / "tiny-llama"
    found = typed(name, {"config": "gpt2", "gpus": "h100"}.get(name, folder), "--format", "markdown")
    assert found.status == 0 and "| --- |" in found.out and f"`llamath {name} " in found.out


@pytest.mark.parametrize("line", PICTURES)
def test_svg_says_how_it_was_drawn(typed: Typed, tmp_path: Path, line: str) -> None:
    target = tmp_path / "x.svg"
    assert typed(*line.split(), "--brief", f"--svg={target}", "--force").status == 0
    tree = ET.fromstring(target.read_text())
    height = float(tree.attrib["height"])
    words = [(x.text, float(x.attrib["y"])) for x in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert words[-1][0] == f"llamath {line}" and max(y for _, y in words) == words[-1][1] < height
    background = next(tree.iter("{http://www.w3.org/2000/svg}rect"))
    assert float(background.attrib["height"]) == height and tree.attrib["viewBox"].endswith(f" {height:g}")


def test_pictures_of_files_show_no_path(typed: Typed, tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "examples" / "tiny-llama"
    typed("count", folder, "--set", "vocab_size=77", "--brief", "--svg", tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    assert "llamath count tiny-llama --set vocab_size=77<" in text and str(folder.parent) not in text


@pytest.mark.parametrize("line", PICTURES)
def test_png_is_the_svg_at_twice_its_size(typed: Typed, tmp_path: Path, line: str) -> None:
    pytest.importorskip("resvg_py")
    found = typed(*line.split(), "--brief", "--png", tmp_path / "x.png", "--svg", tmp_path / "x.svg")
    assert found.status == 0 and found.err.count("wrote ") == 2
    data, svg = (tmp_path / "x.png").read_bytes(), (tmp_path / "x.svg").read_text()
    root = ET.fromstring(svg)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == tuple(2 * int(root.attrib[x]) for x in ("width", "height"))
    assert len(data) > 1.5 * len(png.svg_to_png(svg.replace("<text ", "<desc ").replace("</text>", "</desc>")))


def test_png_has_light_colors_only() -> None:
    pytest.importorskip("resvg_py")
    from llamath.render.svg.svg_shapes import rect, svg_document

    svg = svg_document((20, 20), "t", "d", [rect((0, 0, 20, 20), "head")])
    assert "prefers-color-scheme: dark" in svg
    same = svg_document((20, 20), "t", "d", [rect((0, 0, 20, 20), "head").replace('class="head"', 'fill="#dccff2"')])
    assert png.svg_to_png(svg) == png.svg_to_png(same)


def test_png_without_a_font_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resvg = pytest.importorskip("resvg_py")
    monkeypatch.setattr(resvg, "svg_to_bytes", partial(resvg.svg_to_bytes, skip_system_fonts=True))
    with pytest.raises(LlamathError, match="no font"):
        png.svg_to_png("<svg/>")


def test_png_without_its_extra_says_what_to_install(typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "resvg_py":
            raise ImportError(name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    found = typed("count", "gpt2", "--png", tmp_path / "x.png")
    assert found.status == 2 and "pip install 'llamath[png]'" in found.err and not found.out and not any(tmp_path.iterdir())
