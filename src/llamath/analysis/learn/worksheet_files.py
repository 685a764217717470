"""A worksheet as a file: Markdown, a Jupyter notebook, or an HTML page that prints well."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...utils.errors import LlamathError, safe
from .exercise import Exercise
from .worksheet import Worksheet

_HOW = (
    "Answer with a number in full, with a product, or rounded with a unit: 16,777,216, 4096*4096, "
    "d*H*h, 2^24 or 16.8M."
)


def sheet_text(sheet: Worksheet, path: str) -> str:
    """Return the content of a file for a worksheet, by the ending of its name."""
    return writer_of(path)(sheet)


def writer_of(path: str) -> Callable[[Worksheet], str]:
    """Return what writes a file of this name."""
    ending = os.path.splitext(path)[1].lower()
    if ending not in _WRITERS:
        found = f"found {safe(repr(os.path.basename(path)), 60)}"
        raise LlamathError(
            f"a worksheet is a file that ends in .md, .ipynb or .html, {found}",
            hint="like -o sheet.md",
        )
    return _WRITERS[ending]


def _letters(sheet: Worksheet) -> str:
    return ", ".join(f"{name} = {n:,}" for name, n in sheet.letters.items())


def _origin(sheet: Worksheet) -> str:
    chosen = "" if sheet.seed is None else f", seed {sheet.seed}"
    return f"Made by llamath from the weights of {sheet.study.name}{chosen}."


def _markdown(sheet: Worksheet) -> str:
    return "\n".join(_markdown_lines(sheet)) + "\n"


def _markdown_lines(sheet: Worksheet) -> Iterator[str]:
    yield from (f"# {_plain(sheet.title)}", "")
    for paragraph in sheet.explanation:
        yield from (_plain(paragraph), "")
    yield from (f"Letters: {_letters(sheet)}", "", _HOW, "", "## Questions", "")
    for i, x in enumerate(sheet.exercises, 1):
        yield from (f"{i}. {_plain(x.text)}", "", f"    Answer: ______________ {x.unit}", "")
    if sheet.solutions:
        yield from ("## Solutions", "")
        for i, x in enumerate(sheet.exercises, 1):
            lines = [f"    {line}" for line in x.solution]
            yield from (f"{i}. Hint: {_plain(x.hint)}", "", *lines, "")
    yield _plain(_origin(sheet))


def _plain(text: str) -> str:
    """Return text in which Markdown finds no markup."""
    return "".join(f"\\{x}" if x in "\\`*_[]<>#|" else x for x in text)


def _notebook(sheet: Worksheet) -> str:
    arguments: dict[str, Any] = {"model": sheet.slug or sheet.asked or sheet.study.name}
    if sheet.seed is not None:
        arguments |= {"questions": len(sheet.exercises), "seed": sheet.seed}
    words = "".join(f", {name}={value!r}" for name, value in arguments.items())
    text = "\n\n".join(map(_plain, sheet.explanation))
    how = f"Letters: {_plain(_letters(sheet))}\n\n{_plain(_HOW)}"
    cells = [
        _text_cell(f"# {_plain(sheet.title)}\n\n{text}\n\n{how}"),
        _code_cell(f"import llamath\n\nsheet = llamath.lesson({sheet.name!r}{words})"),
    ]
    for i, x in enumerate(sheet.exercises, 1):
        cells.append(_text_cell(f"**{i}.** {_plain(x.text)} (in {x.unit})"))
        cells.append(_code_cell(f'print(llamath.check(sheet[{x.id!r}], ""))'))
        if sheet.solutions:
            cells.append(_text_cell(_folded_solution(x)))
    cells.append(_text_cell(_plain(_origin(sheet))))
    for i, cell in enumerate(cells):
        cell["id"] = f"cell-{i}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return json.dumps(
        {
            "cells": cells,
            "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
            "nbformat": 4,
            "nbformat_minor": 5,
        },
        ensure_ascii=False,
        indent=1,
    )


def _folded_solution(x: Exercise) -> str:
    from html import escape  # its table of entities takes long to import

    lines = "<br>".join(escape(line) for line in x.solution)
    return f"<details><summary>Solution</summary>{lines}</details>"


def _text_cell(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source.splitlines(keepends=True)}


def _code_cell(source: str) -> dict[str, Any]:
    lines = source.splitlines(keepends=True)
    rest: dict[str, Any] = {"execution_count": None, "outputs": []}
    return {"cell_type": "code", "metadata": {}, "source": lines, **rest}


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44em;margin:2em auto;padding:0 1em;"
    "color:#14171c;background:#fcfbf8}ol>li{margin:0 0 1.2em;break-inside:avoid}"
    ".answer{display:block;border-bottom:1px solid;width:16em;text-align:right;margin-top:1.4em}"
    "pre{white-space:pre-wrap;margin:.3em 0}footer{color:#474d57;font-size:14px}"
    "@media(prefers-color-scheme:dark){body{color:#eef1f5;background:#0f131a}footer{color:#a8b0bc}}"
    "@media print{body{margin:0;color:#000;background:#fff}.solutions{break-before:page}}"
)


def _html(sheet: Worksheet) -> str:
    from html import escape

    title = escape(sheet.title)
    text = "".join(f"<p>{escape(x)}</p>" for x in sheet.explanation)
    asked = "".join(
        f'<li>{escape(x.text)}<span class="answer">{escape(x.unit)}</span></li>'
        for x in sheet.exercises
    )
    solved = ""
    if sheet.solutions:
        rows = "".join(f"<li><pre>{escape(chr(10).join(x.solution))}</pre></li>" for x in sheet)
        solved = f'<section class="solutions"><h2>Solutions</h2><ol>{rows}</ol></section>'
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{title}</h1>{text}<p>Letters: {escape(_letters(sheet))}</p><p>{escape(_HOW)}</p>"
        f"<h2>Questions</h2><ol>{asked}</ol>{solved}"
        f"<footer>{escape(_origin(sheet))}</footer></body></html>\n"
    )


_WRITERS: Mapping[str, Callable[[Worksheet], str]] = {
    ".md": _markdown,
    ".ipynb": _notebook,
    ".html": _html,
}
