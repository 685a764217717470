"""Tables as CSV and Markdown, and pictures as SVG and PNG: each says what it is of, and with which settings."""

from __future__ import annotations

import builtins
import csv
import html
import json
import re
import struct
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

import llamath
from llamath.cli import cli
from llamath.cli.command_group import COMMANDS
from llamath.render import png
from llamath.render.csv_rows import report_rows
from llamath.render.report import Report
from llamath.render.tables import Column, Table
from llamath.utils.errors import LlamathError
from support.typed_commands import Typed

TABLES: list[tuple[str, Any]] = [
    ("memory llama-3-8b --context 8k", lambda: llamath.memory("llama-3-8b", context="8k")),
    (
        "memory llama-3-8b --training --layout dp=8,zero=3",
        lambda: llamath.training_memory("llama-3-8b", layout="dp=8,zero=3"),
    ),
    ("fit llama-3.1-8b --on rtx-4090", lambda: llamath.fit("llama-3.1-8b", on="rtx-4090")),
    ("fit gpt2", lambda: llamath.rank_gpus("gpt2")),
    (
        "fit llama-3.1-8b --on 3060-12gb,4090",
        lambda: llamath.compare_machines("llama-3.1-8b", on=["3060-12gb", "4090"]),
    ),
    (
        "quants llama-3.1-8b --on rtx-3060-12gb",
        lambda: llamath.quants("llama-3.1-8b", on="rtx-3060-12gb"),
    ),
    (
        "fit llama-3.1-8b --on rtx-3060-12gb --ram 64GiB",
        lambda: llamath.place("llama-3.1-8b", on="rtx-3060-12gb", ram="64GiB"),
    ),
    ("plan llama-3-8b --on 8xh100 --top 3", lambda: llamath.plan("llama-3-8b", on="8xh100", top=3)),
    (
        "plan llama-3-8b --on 8xh100 --serve",
        lambda: llamath.plan_serving("llama-3-8b", on="8xh100"),
    ),
    (
        "fit llama-3.1-8b --on h100 --price 2/h",
        lambda: llamath.cost("llama-3.1-8b", on="h100", price="2/h"),
    ),
    (
        "fit llama-3.1-70b --draft llama-3.2-1b",
        lambda: llamath.pair("llama-3.1-70b", "llama-3.2-1b"),
    ),
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
    "fit llama-3.1-8b --on rtx-3060-12gb --ram 64GiB",
    "design 8B",
)


def text_of(value: object) -> str:
    """A value of `rows()` as CSV has it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


@pytest.mark.parametrize(("line", "make"), TABLES, ids=[x for x, _ in TABLES])
@pytest.mark.slow
def test_csv_has_the_values_of_the_rows(typed: Typed, line: str, make: Any) -> None:
    report = make()
    first, second, *rest = typed(*line.split(), "--format", "csv").out.splitlines()
    assert first == f"# {report.summary}" and second == f"# llamath {line}"
    blocks = "\n".join(x for x in rest if not x.startswith("# ")).strip("\n").split("\n\n")
    tables = [x for x in report.tables() if isinstance(x, Table)]
    assert len(blocks) == len(tables) >= 1
    for i, block in enumerate(blocks):
        found = list(csv.DictReader(block.strip("\n").splitlines()))
        rows = report.rows(i)
        assert [list(x) for x in found] == [list(x) for x in rows]
        for x, row in zip(found, rows, strict=True):
            for key, value in row.items():
                assert isinstance(value, list | dict) or x[key].lstrip("'") == text_of(value)


@pytest.mark.parametrize(("line", "make"), TABLES, ids=[x for x, _ in TABLES])
@pytest.mark.slow
def test_markdown_and_html_have_the_cells_of_the_terminal(
    typed: Typed, line: str, make: Any
) -> None:
    report = make()
    lines = typed(*line.split(), "--format", "markdown").out.splitlines()
    assert (
        lines[0] == report.summary and lines[2] == f"`llamath {line}`" and not lines[1] + lines[3]
    )
    rows = [x[2:-2].split(" | ") for x in lines if x.startswith("| ") and set(x) - set("|-: ")]
    tables = [x for x in report.tables() if isinstance(x, Table)]
    with_heading = sum(any(y.heading for y in x.columns if y.shown) for x in tables)
    assert with_heading >= len(rows) - sum(len(x.rows) for x in tables) >= 1
    shown = " ".join(html.unescape(re.sub("<[^>]*>", "|", report._repr_html_())).split())
    for row in rows[:200]:
        assert all(f"|{html.unescape(x).strip()}|" in shown for x in row if x.strip())


@pytest.mark.slow
def test_steps_of_a_trace_sum_to_its_flops(typed: Typed) -> None:
    lines = typed("trace", "deepseek-v3", "--format", "csv").out.splitlines()
    rows = list(csv.DictReader(lines[3:]))
    walk = json.loads(typed("trace", "deepseek-v3", "--json").out)["prompt"]
    assert sum(int(x["times"]) * int(x["FLOPs"]) for x in rows) == walk["flops"]
    assert lines[1] == "# llamath trace deepseek-v3" and lines[0].startswith("# DeepSeek V3: ")


class OneCell(Report):
    value: str

    @property
    def summary(self) -> str:
        return "=s"

    def tables(self) -> Iterable[Table]:
        rows = ((self.value,), ("-1.5",), ("\x1b[31m",))
        yield Table(columns=(Column("a"),), rows=rows)


@pytest.mark.parametrize("value", ["=1+1", "@x", "+a", "-cmd|x"])
def test_no_cell_of_csv_is_a_formula(value: str) -> None:
    lines = list(report_rows(OneCell(value=value), "csv", "llamath x"))
    assert lines[4:] == [f"'{value}", "-1.5", "\\u{1b}[31m"] and lines[0] == "# =s"


FOLDER = str(Path(__file__).parents[2] / "examples" / "tiny-llama")
WITHOUT_TABLES = {"code", "run", "serve", "export"}
"""Commands that answer with text, pages or a server."""
OTHER_TABLES = {
    "learn": (),
    "count": ("llama-3-8b", "--all"),
    "facts": ("deepseek-v3",),
    "config": ("gpt2",),
    "diff": ("llama-2-7b", "llama-3-8b", "gpt2"),
    "trace": ("llama-3-8b",),
    "ls": (FOLDER, "--all"),
    "verify": (FOLDER, "--set", "num_key_value_heads=4"),
    "convert": (FOLDER, "edited", "--layers", "0", "--dry-run"),
    "same": (FOLDER, FOLDER),
    "flops": ("llama-3-8b",),
    "gpus": ("h100",),
}
"""Commands with tables, besides those above, whose cells are compared."""


def formats_of(name: str) -> set[str]:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return {
        y
        for x in command.params
        if x.name == "format" and isinstance(x.type, click.Choice)
        for y in x.type.choices
    }


def test_every_command_with_a_table_has_both_formats() -> None:
    with_tables = {name for name in COMMANDS if formats_of(name) >= {"csv", "markdown"}}
    assert with_tables == COMMANDS.keys() - WITHOUT_TABLES
    assert with_tables == OTHER_TABLES.keys() | {line.split()[0] for line, _ in TABLES}


@pytest.mark.parametrize("form", ["csv", "markdown"])
@pytest.mark.parametrize("name", OTHER_TABLES)
@pytest.mark.slow
def test_every_table_says_what_it_is_of(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, form: str
) -> None:
    monkeypatch.chdir(tmp_path)
    words = list(OTHER_TABLES[name])
    found = typed(name, *words, "--format", form)
    assert found.status == int(name == "verify"), found.err
    first, second, third, fourth, *rest = found.out.splitlines()
    shown = [Path(x).name if "/" in x else x for x in words]
    if form == "csv":
        assert (
            first.startswith("# ")
            and second == f"# llamath {' '.join([name, *shown])}"
            and not third
        )
        header, *rows = csv.reader(
            x for x in [fourth, *rest][: [*rest, ""].index("") + 1] if not x.startswith("# ")
        )
        assert (
            (rows or name == "same")
            and {len(x) for x in rows} <= {len(header)}
            and not all(x.isdigit() for x in header)
        )
    else:
        assert (
            first and not second and third == f"`llamath {' '.join([name, *shown])}`" and not fourth
        )
        table = [x for x in rest if x.startswith("|")]
        assert len(table) > (1 if name == "same" else 2) and set(table[1]) <= set("|-: ")


def llamath_help(name: str) -> str:
    """The help of a command."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command.get_help(click.Context(command, info_name=name))


def test_every_picture_is_drawn_as_svg_and_png() -> None:
    options = {
        name: {x.name for x in cli.get_command(click.Context(cli), name).params}
        for name in COMMANDS
    }
    drawing = {name for name, own in options.items() if "picture" in own}
    assert drawing == {x.split()[0] for x in PICTURES}
    assert drawing == {
        name for name in COMMANDS if "-o draws" in " ".join((llamath_help(name)).split())
    }


@pytest.mark.parametrize(
    "line",
    [pytest.param(x, marks=[pytest.mark.slow] * x.startswith("trace")) for x in PICTURES],
)
def test_svg_says_how_it_was_drawn(typed: Typed, tmp_path: Path, line: str) -> None:
    target = tmp_path / "x.svg"
    assert typed(*line.split(), "--brief", f"--output={target}", "--force").status == 0
    tree = ET.fromstring(target.read_text())
    height = float(tree.attrib["height"])
    words = [(x.text, float(x.attrib["y"])) for x in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert words[-1][0] == f"llamath {line}" and max(y for _, y in words) == words[-1][1] < height
    background = next(tree.iter("{http://www.w3.org/2000/svg}rect"))
    assert float(background.attrib["height"]) == height and tree.attrib["viewBox"].endswith(
        f" {height:g}"
    )


def test_pictures_of_files_show_no_path(typed: Typed, tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "examples" / "tiny-llama"
    typed("count", folder, "--set", "vocab_size=77", "--brief", "-o", tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text()
    assert (
        "llamath count tiny-llama --set vocab_size=77<" in text and str(folder.parent) not in text
    )


@pytest.mark.parametrize("line", PICTURES)
@pytest.mark.slow
def test_png_is_the_svg_at_twice_its_size(typed: Typed, tmp_path: Path, line: str) -> None:
    pytest.importorskip("resvg_py")
    for name in ("x.png", "x.svg"):
        found = typed(*line.split(), "--brief", "-o", tmp_path / name)
        assert found.status == 0 and found.err.count("wrote ") == 1
    data, svg = (tmp_path / "x.png").read_bytes(), (tmp_path / "x.svg").read_text()
    root = ET.fromstring(svg)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == tuple(
        2 * int(root.attrib[x]) for x in ("width", "height")
    )
    assert len(data) > 1.5 * len(
        png.svg_to_png(svg.replace("<text ", "<desc ").replace("</text>", "</desc>"))
    )


@pytest.mark.parametrize("name", ["x.pdf", "x", "svg", ".svg/x"])
def test_a_picture_of_another_kind_is_refused(typed: Typed, tmp_path: Path, name: str) -> None:
    found = typed("count", "gpt2", "-o", tmp_path / name)
    assert found.status == 2 and not found.out and not any(tmp_path.iterdir())
    assert "-o: expected a name that ends in .svg or .png, found" in found.err


def test_png_has_light_colors_only() -> None:
    pytest.importorskip("resvg_py")
    from llamath.render.svg.svg_shapes import rect, svg_document

    svg = svg_document((20, 20), "t", "d", [rect((0, 0, 20, 20), "head")])
    assert "prefers-color-scheme: dark" in svg
    same = svg_document(
        (20, 20), "t", "d", [rect((0, 0, 20, 20), "head").replace('class="head"', 'fill="#dccff2"')]
    )
    assert png.svg_to_png(svg) == png.svg_to_png(same)


def test_png_without_a_font_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    resvg = pytest.importorskip("resvg_py")
    monkeypatch.setattr(resvg, "svg_to_bytes", partial(resvg.svg_to_bytes, skip_system_fonts=True))
    monkeypatch.setattr(png, "_sans_serif", png._sans_serif.__wrapped__)
    with pytest.raises(LlamathError, match="no font"):
        png.svg_to_png("<svg/>")


def test_png_without_its_extra_says_what_to_install(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name == "resvg_py":
            raise ImportError(name=name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    found = typed("count", "gpt2", "-o", tmp_path / "x.png")
    assert (
        found.status == 2
        and "pip install 'llamath[png]'" in found.err
        and not found.out
        and not any(tmp_path.iterdir())
    )
