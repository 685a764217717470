"""Texts from files and from models in output: no control characters, no markup in Markdown, no formulas in CSV."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from pathlib import Path

import pytest

from llamath.cli.generation_options import write
from llamath.cli.output import echo_json
from llamath.render.csv_rows import format_table, markdown_text, tables_rows
from support.hub_server import CONFIG, safetensors
from support.typed_commands import Typed

NAMES = [
    *(
        "<img src=x onerror=alert(1)>",
        "</td><script>alert(1)</script>",
        "[x](javascript:alert(1))",
        "![x](http://evil.example/p.png)",
    ),
    *(
        "<javascript:alert(1)>",
        "a|b",
        "a\\|b",
        "`x`",
        "``x",
        "&lt;b&gt;",
        "&#60;b&#62;",
        "a\nb",
        "a\r\nb",
        "[x]: http://evil.example",
    ),
    *(
        "\x1b[2J\x1b]0;title\x07a",
        "\x9b31m",
        "\x7f",
        "\u202eabc",
        "\u2028x",
        "\x00nul",
        "a\x85b",
        "=HYPERLINK(1)",
        "+1+1|cmd",
        "@SUM(1)",
    ),
    *("-2+3+cmd|' /C calc'!A0", "\t=1+1", "  =2+5", "a,=1+1", 'a",@b', "+cmd", "-", "x;=1"),
]
MARKUP = re.compile(r"[<>`\[\]]|\\(?!\\)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose tensors have these names, in a folder whose name has markup."""
    path = (
        tmp_path_factory.mktemp("names")
        / "<img src=x onerror=alert(1)> [a](javascript:b) `c` a,=1+1"
    )
    path.mkdir()
    (path / "model.safetensors").write_bytes(
        safetensors(dict.fromkeys(NAMES, (1,)), {"\x1b[31m=cmd": "<img src=x>\x1b[2J"})
    )
    (path / "config.json").write_text(
        json.dumps(
            {
                **CONFIG,
                "</script><script>": NAMES[0],
                "\x1b[2J": "\u202e",
                "_name_or_path": "=1|`x`",
            }
        )
    )
    return path


def formulas(text: str) -> list[str]:
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    return [x for x in cells if re.match(r"\s*[=+@-]", x) and not re.fullmatch(r"[+-][\d.,]+%?", x)]


def test_tables_contain_no_markup_and_no_formula(typed: Typed, folder: Path) -> None:
    lines = [
        ["count"],
        ["config"],
        ["ls"],
        ["ls", "--all"],
        ["count", "--all"],
        ["diff", "gpt2"],
        ["diff", "gpt2", "llama-3-8b"],
    ]
    for command, *more in [*lines, ["memory"], ["flops"], ["diff", "--set", "vocab_size=300"]]:
        shown = typed(command, str(folder), *more, "--format", "markdown")
        assert shown.status == 0 and not MARKUP.search(re.sub(r"(?m)^(`+).*\1$", "", shown.out)), (
            command
        )
        for block in shown.out.split("\n\n"):
            rows = [x for x in block.splitlines() if x.startswith("|")]
            assert len({x.count("|") for x in rows}) <= 1
        table = typed(command, str(folder), *more, "--format", "csv")
        assert table.status == 0 and not formulas(table.out), command
        for text in (shown.out, shown.err, table.out, table.err):
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e]", text), (
                command
            )


def test_markdown_reads_as_the_text(folder: Path) -> None:
    for name in NAMES:
        shown = markdown_text(name)
        assert not MARKUP.search(shown) and "|" not in shown and "\n" not in shown
        assert html.unescape(shown) == " ".join(name.splitlines())
        rows = list(format_table(("a",), [(name,)], "markdown"))
        assert len(rows) == 3 and rows[-1].count("|") == 2
        assert not formulas(
            "\n".join(format_table(("a", name), [(name, "+5.1%"), ("-3", "-1,024")], "csv"))
        )


def test_the_command_above_a_table_stays_code() -> None:
    for command in ("llamath count `x`", "``", "a ``` b `` c"):
        line = list(tables_rows("summary", [], "markdown", command))[2]
        fence = re.match("`+", line)
        assert (
            fence is not None
            and line.endswith(fence[0])
            and len(fence[0]) not in map(len, re.findall("`+", command))
        )


def test_generated_text_in_a_pipe_has_no_controls(capsys: pytest.CaptureFixture[str]) -> None:
    write("".join(map(chr, range(0x20))) + "\x1b[31mred\x9b0m\x7f\u202eend\n")
    out = capsys.readouterr().out
    assert (
        not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out)
        and "\t" in out
        and out.count("\n") == 2
        and "[31mred" in out
    )
    echo_json({"text": "".join(map(chr, range(0xA0)))})
    out = capsys.readouterr().out
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", out) and json.loads(out)[
        "text"
    ] == "".join(map(chr, range(0xA0)))
