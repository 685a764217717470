"""Treemap and findings of the page: shapes, FLOPs, bytes and findings equal the library's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamath.analysis.check.verify.check_checkpoint import verify_checkpoint
from llamath.analysis.size.flops.flops_report import FlopsRequest, count_model_flops
from llamath.analysis.size.memory.cache_bytes import kv_cache_size
from llamath.utils.errors import LlamathError
from llamath.web.page_data.checkpoint_data import load_with_checkpoint
from llamath.web.page_data.page_data import build_page_data
from llamath.web.server.page_html import model_page
from support.browser_page import Tab, browser, shown_text
from support.page_expressions import evaluate
from support.page_models import HOSTILE, data_of, model_of, page_of, write_checkpoint
from support.release import usual

assert browser
SAMPLE = (
    "llama-3-8b mixtral-8x7b deepseek-v3 gemma-3-27b qwen3-next-80b-a3b gpt-oss-20b nemotron-3-super-120b lfm2-350m llama-4-scout"
    " gemma-4-26b-a4b command-r7b opt-350m gpt2 ouro-2.6b-thinking ministral-3-14b"
).split()
SETTINGS = ((1, 1), (7, 3), (4096, 1), (262_145, 5))


@pytest.mark.parametrize("slug", usual(*SAMPLE[::3], release=SAMPLE))
def test_treemap_areas_sum_to_report_totals(slug: str) -> None:
    model, data = model_of(slug), data_of(slug)["models"][0]
    layers = [data["layers"]["kinds"][i] for i in data["layers"]["order"]]
    outside = [x for x in data["tiles"] if not x["path"].startswith("layers.")]
    assert len(layers) == int(model.tree.layers.n)
    for i, section in enumerate(data["sections"]):
        assert sum(int(x["parameters"]) for x in data["tiles"] if x["section"] == i) == int(
            section["total"]
        )
    for dtype in data["sizes"]["dtypes"]:
        in_layers = sum(int(n) for x in layers for n in x["of"][dtype["name"]])
        assert in_layers + sum(
            int(n) * int(each) for x in outside for _, n, each in x["kept"][dtype["name"]]
        ) == int(dtype["bytes"])
    for context, batch in SETTINGS:
        values = {"T": context, "B": batch, "kv_block": 1, "kv_bytes": 2, "conv_bytes": 2}
        whole = count_model_flops(model, FlopsRequest(context=context)).decode.total
        assert sum(evaluate(x["flops"], values) for x in (*data["tiles"], *data["mixing"])) == whole
        kept = kv_cache_size(model.tree, context, batch).bytes
        assert sum(evaluate(x["form"], values) for x in data["cached"]) == kept
        assert sum(evaluate(x["cache"], values) for x in layers) == kept


# what follows needs Chromium


def test_arrow_keys_move_between_numbers_of_a_row(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("mixtral-8x7b"), "#find=experts") as tab:
        tab.focus("tr:has(th.path) .number[data-column='2']")
        details = []
        for key in ("ArrowLeft", "ArrowLeft", "ArrowRight", "ArrowRight", "ArrowRight"):
            tab.keyboard.press(key)
            tab.keyboard.press("Enter")
            details.append(tab.text_content("dialog[open] pre"))
            tab.keyboard.press("Escape")
        assert (
            details[0] == "8·L\n= 8·32\n= 256" and details[1] == "F·d\n= 14,336·4,096\n= 58,720,256"
        )
        assert details[4].endswith("/ all\n= 15,032,385,536 / 46,702,792,704\n= 32.19%")


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: Any) -> Iterator[tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("checkpoints")
    yield (
        write_checkpoint(folder / "whole"),
        write_checkpoint(folder / "not <b>whole", hostile=True),
    )


def test_checkpoint_page_uses_stored_bytes(checkpoints: tuple[Path, Path]) -> None:
    for place in checkpoints:
        data = build_page_data([load_with_checkpoint(str(place))])["models"][0]
        found = verify_checkpoint(str(place))
        own, manifest = data["checkpoint"], found.manifest
        total_bytes = sum(x.bytes for x in manifest.tensors)
        verdict = found.verdict
        counts = f"{verdict.matched} of {verdict.expected} tensors, by {verdict.scheme} names"
        assert own["ok"] == verdict.ok == (own["verdicts"][0]["says"] == counts)
        assert sum(len(x["findings"]) for x in own["verdicts"]) == len(verdict.findings)
        size = (place / "model.safetensors").stat().st_size
        assert int(own["bytes"]) == total_bytes and own["says"].endswith(
            f" tensors, 1 file, {size:,} bytes"
        )
        assert own["verdicts"][3]["table"][-1] == [
            "all",
            f"{len(manifest.tensors)}",
            f"{total_bytes:,}",
            f"{size:,}",
        ]
        first = data["sizes"]["dtypes"][0]
        assert (first["name"], int(first["bytes"])) == ("as stored", total_bytes)
        loose = sum(2 for x in manifest.tensors if x.name in HOSTILE)
        assert (
            sum(int(n) * int(each) for x in data["tiles"] for _, n, each in x["kept"]["as stored"])
            == total_bytes - loose
        )
        assert not own["ok"] or {x["ok"] for x in own["verdicts"]} == {True}
    assert [x["what"] for x in own["verdicts"] if not x["ok"]] == ["names", "shapes"]


def test_config_alone_has_no_findings(checkpoints: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((checkpoints[0] / "config.json").read_text())
    for name in (
        str(tmp_path),
        str(tmp_path / "config.json"),
        str(checkpoints[0] / "config.json"),
        "gpt2",
    ):
        assert build_page_data([load_with_checkpoint(name)])["models"][0]["checkpoint"] is None
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 40)
    broken = load_with_checkpoint(str(tmp_path))
    assert (
        build_page_data([broken])["models"][0]["checkpoint"] is None
        and "its files were not verified" in broken.notes[-1]
    )
    with pytest.raises(LlamathError):
        load_with_checkpoint(str(tmp_path / "nothing.gguf"))


def test_findings_list_their_tensors(
    browser: Any, tmp_path: Path, checkpoints: tuple[Path, Path]
) -> None:
    with Tab(
        browser,
        tmp_path,
        model_page([load_with_checkpoint(str(checkpoints[1]))]),
        "#map=bytes&by=layer",
    ) as tab:
        assert "does not match its config" in tab.text_content(".checkpoint")
        lines = tab.eval_on_selector_all(".checkpoint li", "xs => xs.map((x) => x.textContent)")
        found = [
            (x[0], next(y for y in ("names", "shapes", "types", "files", "vocabulary") if y in x))
            for x in lines
        ]
        assert found == [
            ("✗", "names"),
            ("✗", "shapes"),
            ("✓", "types"),
            ("✓", "files"),
            ("✓", "vocabulary"),
        ]
        tab.click("[data-verdict=names]")
        content = tab.text_content("dialog[open]")
        assert (
            all(x in content for x in HOSTILE[:4])
            and "1 tensor with 10,240 parameters is missing" in content
        )
        assert (
            tab.locator(
                "dialog[open] img, dialog[open] script, main img, main script, [onerror]"
            ).count()
            == 0
        )
        tab.keyboard.press("Escape")
        tab.click("[data-verdict=shapes]")
        assert "stored transposed" in tab.text_content("dialog[open]")
        tab.keyboard.press("Escape")
        size = sum(x.bytes for x in verify_checkpoint(str(checkpoints[1])).manifest.tensors)
        assert shown_text(tab, "[data-part=weights]").replace(",", "") == str(size)


def test_limits_of_a_clamped_gate_are_those_of_its_computation() -> None:
    """The gate has no lower limit, as in `ClampedMLP`'s operation in torch."""
    steps = json.dumps(data_of("gpt-oss-20b")["models"][0]["passes"], ensure_ascii=False)
    assert "g ≤ 7, |up| ≤ 7" in steps and "both within" not in steps
