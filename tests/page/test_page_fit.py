"""The hardware matrix and the layouts of the page equal `fit` and `plan`."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.size.fit import fit_report
from llamath.analysis.size.fit.fit_report import FitReport, fit
from llamath.analysis.size.fit.format_support import is_supported
from llamath.analysis.size.fit.gpu_ranking import RankedGPU, rank_gpus, smallest_gpus
from llamath.analysis.size.memory.inference_memory import MemoryCalculator, MemoryRequest
from llamath.analysis.size.plan.plan_ranking import PlanRequest, plan
from llamath.analysis.size.plan.serving_plan import plan_serving
from llamath.analysis.size.training.training_memory import TrainingJob, TrainRequest
from llamath.analysis.understand.fact_sheet import fact_sheet
from llamath.cli import cli
from llamath.hardware import Device, find_device
from llamath.questions.layout import Layout
from llamath.web.page_data.facts_data import short_title
from llamath.web.page_data.sizing.layouts_data import _causal_pairs, _drawn_schedule, schedule
from llamath.web.server.page_html import page_from_data
from support.browser_page import (
    NARROW,
    Tab,
    at_widths,
    browser,
    go_to,
    shown_text,
    wait_until_drawn,
)
from support.page_models import data_of, model_of, page_of
from support.release import usual

assert browser
SLUGS = (
    "llama-3-8b",
    "llama-3.1-405b",
    "deepseek-v3",
    "gemma-3-27b",
    "qwen3-next-80b-a3b",
    "gpt2",
    "falcon-mamba-7b",
)
SMALLEST_JS = """(at) => {
  const { data, stateWith, Fitter } = llamath;
  const found = new Fitter(data.models[0].sizes, stateWith({ tp: "", ...at })).smallest;
  return found && [found.gpu.name, Number(found.count), found.decode];
}"""
CELL_JS = """([i, at, gpu, count]) => {
  const { data, stateWith, Fitter } = llamath;
  const cell = new Fitter(data.models[i].sizes, stateWith({ tp: "", ...at })).cell(data.gpus.find((x) => x.name === gpu), count);
  const { layout, replicas } = cell.split;
  return { ...cell, split: [layout.tp, layout.pp, String(replicas)], sequences: cell.sequences?.toString() ?? null, context: cell.context?.toString() ?? null };
}"""
SUGGESTIONS_JS = """([i, at, gpu, count]) => {
  const { data, stateWith, suggestions } = llamath;
  const found = suggestions(data.models[i].sizes, stateWith({ tp: "", ...at }), data.gpus.find((x) => x.name === gpu), count);
  return found.map((x) => ({ ...x, total: x.total.toString() }));
}"""
OPEN_ALL_JS = """async () => {
  const found = [];
  // as modal dialogs make all else inert, each restyles the whole page twice
  HTMLDialogElement.prototype.showModal = HTMLDialogElement.prototype.show;
  for (const x of document.querySelectorAll([".sheet", "#hardware", "#memory", "#speed", "#layouts"].map((y) => `${y} button.number`).join())) {
    x.click();
    for (let i = 0; i < 50 && !document.querySelector("dialog[open]"); i++) await new Promise((done) => setTimeout(done, 4));
    const dialog = document.querySelector("dialog[open]");
    const shown = [...x.childNodes].filter((y) => !y.classList?.contains("hidden")).map((y) => y.textContent).join("");
    found.push([shown, [...dialog.querySelectorAll("pre.formula")].map((y) => y.textContent), dialog.textContent]);
    dialog.close();
    for (let i = 0; i < 50 && document.querySelector("dialog"); i++) await new Promise((done) => setTimeout(done, 4));
  }
  return found;
}"""
Settings = dict[str, str]


def own_dtype(slug: str, at: Settings) -> str:
    """Return the dtype as an option; the model's own is that of its config, to the last scale."""
    return "" if at["dtype"] == data_of(slug)["models"][0]["sizes"]["dtype"] else at["dtype"]


def library_fit(slug: str, at: Settings, gpu: Device, count: int) -> FitReport:
    """Return what `fit` reports under these settings."""
    request = MemoryRequest(
        dtype=own_dtype(slug, at),
        kv_dtype=at["kv"],
        context=int(at["context"]),
        batch=int(at["batch"]),
    )
    return fit(MemoryCalculator(llamath.load(slug), request), gpu, count)


def random_settings(rng: random.Random, data: dict[str, Any]) -> tuple[Settings, str, str]:
    """Return random settings with a GPU and a number of it."""
    sizes = data["models"][0]["sizes"]
    at = {
        "context": str(int(2 ** rng.uniform(0, 21))),
        "batch": str(int(2 ** rng.uniform(0, 8))),
        "dtype": rng.choice(sizes["dtypes"])["name"],
        "kv": rng.choice(sizes["kvs"])["name"],
    }
    return at, rng.choice(data["gpus"])["name"], rng.choice(sizes["gpus"])["count"]


@pytest.mark.parametrize(
    "slug", usual("llama-3-8b", "deepseek-v3", "falcon-mamba-7b", release=SLUGS)
)
def test_matrix_equals_fit(
    browser: Any,
    tmp_path: Path,
    slug: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """20 questions about each model, and before a release 150: the page answers by its own functions."""

    class NoSuggester:
        def __init__(self, *of: object) -> None:
            pass

        def suggestions(self) -> tuple[()]:
            return ()

    monkeypatch.setattr(
        fit_report, "Suggester", NoSuggester
    )  # what would fit instead is tested below
    rng, data, fitting = random.Random(slug), data_of(slug), 0
    number = 150 if request.config.getoption("--all") else 20
    with Tab(browser, tmp_path, page_from_data(data), width=NARROW) as tab:
        for i in range(number):
            at, gpu, count = random_settings(rng, data)
            shown, found = (
                tab.evaluate(CELL_JS, [0, at, gpu, count]),
                library_fit(slug, at, find_device(gpu), int(count)),
            )
            where = (at, gpu, count)
            assert shown["fits"] == found.fits, where
            assert shown["split"] == [
                str(found.layout.tp),
                str(found.layout.pp),
                str(found.replicas),
            ], where
            if found.fits:
                fitting += 1
                assert shown["sequences"] == (
                    None if found.max_batch is None else str(found.max_batch)
                ), where
                assert found.ceilings is not None
                assert shown["decode"] == pytest.approx(
                    found.ceilings.decode.tokens_per_second, rel=1e-6
                ), where
            else:
                assert shown["decode"] is None, "no speed without memory"
                assert shown["context"] == (
                    None if found.max_context is None else str(found.max_context)
                ), where
                assert shown["short"] == pytest.approx(
                    found.total - find_device(gpu).memory, rel=1e-9
                ), where
            if i % 5 == 0:
                assert_smallest(tab.evaluate(SMALLEST_JS, at), slug, at)
    assert fitting  # a state of constant size, without a cache, fits nearly everywhere
    assert fitting < number or slug == "falcon-mamba-7b"


def smallest_of(slug: str, at: Settings) -> RankedGPU | None:
    """Return the library's smallest hardware among the GPUs of the page."""
    request = MemoryRequest(
        dtype=own_dtype(slug, at),
        kv_dtype=at["kv"],
        context=int(at["context"]),
        batch=int(at["batch"]),
    )
    known = (find_device(x["name"]) for x in data_of(slug)["gpus"])
    calculator = MemoryCalculator(llamath.load(slug), request)
    return smallest_gpus(calculator, [x for x in known if is_supported(x, at["dtype"])])


def assert_smallest(shown: list[Any] | None, slug: str, at: Settings) -> None:
    """Compare the page's smallest hardware with the library's, which has at most one node."""
    found = smallest_of(slug, at)
    if found is None:
        assert shown is None or shown[1] > 8, at
        return
    assert shown is not None and shown[:2] == [found.device.name, found.count], at
    assert shown[2] == pytest.approx(found.decode_ceiling, rel=1e-6), at


@pytest.mark.parametrize(
    "slug",
    usual(
        "deepseek-v3",
        "falcon-mamba-7b",
        "llama-3.2-11b-vision",
        release=[*SLUGS, "gpt-oss-120b", "mistral-7b", "dots-llm1", "longcat-flash", "jamba-v0.1"],
    ),
)
def test_all_places_name_the_smallest_hardware(browser: Any, tmp_path: Path, slug: str) -> None:
    """The first screen, the heading, the chosen cell, the verdict, the speed: all what `facts` and `fit` say."""
    smallest = fact_sheet(model_of(slug)).runs_on[0].gpu
    assert smallest is not None
    ranking = rank_gpus(MemoryCalculator(llamath.load(slug), MemoryRequest()))
    assert smallest == ranking.smallest, "of all that `fit` lists"
    verdict = llamath.fit(slug, on=f"{smallest.count}x{smallest.device.name}")
    assert verdict.fits and verdict.total == smallest.total
    title, count = short_title(smallest.device.title), smallest.count
    with Tab(browser, tmp_path, page_of(slug), width=1440) as tab:
        assert tab.text_content(".runs strong") == f"{count} × {re.sub(SIZE, '', title)}"
        speed = f"{shown_text(tab, '[data-speed=decode-rate]')} tokens/s"
        runs = tab.text_content(".runs").replace("\xa0", " ")
        assert ("of common GPUs" in runs) == bool(smallest.device.common)
        assert speed in runs and speed in tab.text_content("#speed-title")
        heading = tab.text_content("#hardware-title").split(" run")[0]
        assert heading == f"{NUMBERS[count]} {re.sub(SIZE, '', title)}"
        chosen = tab.locator("#hardware .cell[aria-pressed=true]")
        assert chosen.get_attribute("data-fit") == f"{smallest.device.name} {count}"
        assert "with memory to spare" in chosen.text_content()
        assert smallest.device.common in tab.text_content("#hardware")
        where = f"{f'{count} × ' if count > 1 else ''}{smallest.device.title}"
        assert tab.text_content("#hardware .verdict .sub").endswith(f" fits on {where}")
        on = f"{count} ×" if count > 1 else "one"
        assert f"on {on} {smallest.device.title}:" in tab.text_content("#speed-title")
        used = f"{smallest.total / 2**30:.1f} of {smallest.device.memory / 2**30:.1f} GiB"
        assert used in tab.text_content(".runs")


def test_first_screen_says_that_a_context_is_too_long(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        assert "Holds its full context of 8k" in tab.text_content(".runs")
        for context, says in ((131_072, "16 times"), (12_288, "1.5 times"), (8_200, "more than")):
            go_to(tab, f"#context={context}&batch=16")
            for place in (".runs", ".settings-answer"):
                text = tab.text_content(place)
                assert f"{says} its own context" in text and "full context" not in text, place


NUMBERS = {1: "One", 2: "Two", 4: "Four", 8: "Eight"}
SIZE = r",? \d+GB$"


def test_first_screen_and_heading_follow_the_settings(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b"), width=1440) as tab:
        for at in ({"context": "200000"}, {"batch": "300"}, {"dtype": "fp8"}, {"batch": "4096"}):
            go_to(tab, "&".join(f"{name}={x}" for name, x in at.items()))
            found = tab.evaluate(SMALLEST_JS, {})
            assert_smallest(
                found,
                "llama-3-8b",
                {"context": "8192", "batch": "1", "dtype": "bf16", "kv": "bf16"} | at,
            )
            badge = tab.locator("#hardware .cell", has=tab.locator("em"))
            assert badge.get_attribute("data-fit") == f"{found[0]} {found[1]}"
            name = tab.text_content(".runs strong").partition(" × ")
            assert int(name[0]) == found[1]
            assert tab.text_content("#hardware-title").split(" run")[0].endswith(name[2])
            # until a GPU is chosen, the cell, the verdict and the speed are of the answer
            title = find_device(found[0]).title
            where = title if found[1] == 1 else f"{found[1]} × {title}"
            chosen = tab.locator("#hardware .cell[aria-pressed=true]")
            assert chosen.get_attribute("data-fit") == f"{found[0]} {found[1]}"
            assert tab.text_content("#hardware .verdict .sub").endswith(f" fits on {where}")
            assert f" {title}: " in tab.text_content("#speed-title")
            assert tab.input_value("#choice-card") == found[0]
        tab.click("#hardware [data-fit='l40s 1']")
        wait_until_drawn(tab)
        tab.fill("#batch", "64")
        wait_until_drawn(tab)
        chosen = tab.locator("#hardware .cell[aria-pressed=true]")
        assert chosen.get_attribute("data-fit") == "l40s 1", "a choice stays"
        tab.select_option("#choice-card", "")
        wait_until_drawn(tab)
        assert "card" not in tab.evaluate("location.hash")
        assert chosen.locator("em").count() == 1


SUGGESTION_CASES = [
    ("llama-3-8b", "rtx-4090", "1", {"context": "100000"}),
    ("llama-3-8b", "rtx-4060-ti-16gb", "1", {}),
    ("llama-3.1-405b", "rtx-4090", "1", {}),
    ("llama-3.1-405b", "h100-sxm", "8", {}),
    ("deepseek-v3", "h100-sxm", "8", {"batch": "16"}),
    ("gemma-3-27b", "rtx-4090", "1", {"batch": "4"}),
    ("qwen3-next-80b-a3b", "l40s", "2", {}),
]


@pytest.mark.parametrize(
    ("slug", "gpu", "count", "changes"), usual(*SUGGESTION_CASES[::2], release=SUGGESTION_CASES)
)
def test_suggestions_are_those_of_fit(
    browser: Any, tmp_path: Path, slug: str, gpu: str, count: str, changes: Settings
) -> None:
    data = data_of(slug)
    sizes = data["models"][0]["sizes"]
    at = {
        "context": sizes["context"],
        "batch": "1",
        "dtype": sizes["dtype"],
        "kv": sizes["kv"],
    } | changes
    with Tab(browser, tmp_path, page_from_data(data), width=NARROW) as tab:
        shown = {x["change"]: x for x in tab.evaluate(SUGGESTIONS_JS, [0, at, gpu, count])}
    found = library_fit(slug, at, find_device(gpu), int(count))
    assert not found.fits and shown
    formats, counts = {x["name"] for x in sizes["dtypes"]}, {x["count"] for x in sizes["gpus"]}
    for x in found.instead:
        options = dict(zip(x.change.split()[::2], x.change.split()[1::2], strict=True))
        number = (
            options.get("--on", "1x").partition("x")[0]
            if "--on" in options and options["--on"][0].isdigit()
            else "1"
        )
        if (
            "--offload" in options
            or options.get("--dtype", at["dtype"]) not in formats
            or number not in counts
        ):
            continue  # the page has no such control
        if "--on" in options and options["--on"].removeprefix(f"{number}x") not in {
            y["name"] for y in data["gpus"]
        }:
            continue
        assert shown[x.change]["total"] == str(x.total), x.change
    if gpu == "rtx-4090" and slug == "llama-3.1-405b":
        assert {"--on 8xh200", "--dtype awq --on 16xrtx-4090"} <= {*shown}
    for x in shown.values():
        changed = at | {name: value for name, value in x["to"].items() if name in at}
        report = library_fit(
            slug, changed, find_device(x["to"].get("card", gpu)), int(x["to"].get("gpus", count))
        )
        assert report.fits and str(report.total) == x["total"], x["change"]


def test_cells_show_speed_only_where_the_model_fits(browser: Any, tmp_path: Path) -> None:
    data = data_of("deepseek-v3")
    with Tab(browser, tmp_path, page_from_data(data), width=1280) as tab:
        cells = {x.get_attribute("data-fit"): x for x in tab.locator("#hardware .cell").all()}
        texts = {
            name: (x.inner_text(), x.locator(".hidden").text_content()) for name, x in cells.items()
        }
        assert any("too little" in text for text, _ in texts.values()) and any(
            "tokens/s" in text for text, _ in texts.values()
        )
        for name, (text, label) in texts.items():
            assert ("does not fit" in label) != ("tokens/s" in text), name
            assert ("does not fit" in label) != ("tokens per second" in label), name
        assert (
            sum(
                "the smallest of common GPUs that runs it with memory to spare" in label
                for _, label in texts.values()
            )
            == 1
        )
        lacking = tab.locator("#hardware tr", has_text="no FP8").all()
        assert [x.locator("b").first.inner_text() for x in lacking] == ["A100 SXM 80GB"]
        cells["a100-80gb 16"].click()
        wait_until_drawn(tab)
        (note,) = (x for x in llamath.fit("deepseek-v3", on="16xa100-80gb").notes if "no FP8" in x)
        for place in ("#hardware .verdict", "#speed"):
            assert f"{note[0].upper()}{note[1:]}." in tab.text_content(place)
        cells["h100-sxm 8"].click()
        wait_until_drawn(tab)
        assert (
            tab.text_content("#hardware .verdict .sub")
            == "DeepSeek V3 does not fit on 8 × H100 SXM 80GB"
        )
        heading = tab.text_content("#hardware-title")
        assert heading == "Eight H100 SXM do not run it in fp8; four B200 SXM do"
        assert tab.locator("#speed table").count() == 0 and "does not fit" in tab.text_content(
            "#speed-title"
        )
        tab.click("#hardware .instead .button >> nth=0")
        wait_until_drawn(tab)
        assert tab.text_content("#hardware .verdict .sub").startswith("DeepSeek V3 fits on")
        said = tab.text_content("[data-sizing=fits]")
        assert "no first token before" in said and "tokens/s" in said
        go_to(tab, "#card=rtx-4090&gpus=64")
        assert "64 of them need 8 machines" in tab.text_content("[data-sizing=machines]")
        assert tab.locator("#speed table").count() == 1


@pytest.mark.parametrize("slug", ["llama-3-8b", "qwen3-next-80b-a3b"])
def test_mark_of_the_smallest_hardware_touches_no_text(
    browser: Any, tmp_path: Path, slug: str
) -> None:
    gap = """(() => {
      const mark = document.querySelector('.hardware .cell em');
      const range = document.createRange();
      return Math.min(...[...mark.parentElement.querySelectorAll('b, small')].map((x) => {
        range.selectNodeContents(x);
        return mark.getBoundingClientRect().left - range.getBoundingClientRect().right;
      }));
    })()"""
    with Tab(browser, tmp_path, page_of(slug), width=1440) as tab:
        assert tab.evaluate(gap) >= 6


def test_formats_are_spelled_alike_in_the_page(browser: Any, tmp_path: Path) -> None:
    at = "context=8192&dtype=q4_k_m&kv=q8_0&card=rtx-4060-ti-16gb"
    with Tab(browser, tmp_path, page_of("llama-3-8b"), width=1440) as tab:
        go_to(tab, at)
        assert tab.input_value("#choice-dtype") == "q4_k_m"
        words = tab.inner_text("body") + tab.text_content("#choice-dtype option:checked")
        assert words.count("Q4_K_M") >= 5 and words.count("Q8_0") >= 3
        # the command line's spelling stands in its commands alone
        assert not re.search(r"\b(q\d_[k\d]\w*|awq|gptq\w*)\b", words)


def test_invalid_setting_leaves_the_bar_as_it_is(browser: Any, tmp_path: Path) -> None:
    height = "document.querySelector('.settings-bar').offsetHeight"
    fits = "x => { const copy = x.cloneNode(); copy.style.cssText = 'max-width: none; position: absolute'; copy.append(new Option(x.selectedOptions[0].text)); x.after(copy); const w = copy.offsetWidth; copy.remove(); return w <= x.offsetWidth }"
    with Tab(browser, tmp_path, page_of("deepseek-v3"), width=1440) as tab:
        before = tab.evaluate(height)
        assert before <= 48, "one row"
        tab.fill("#context", "abc")
        assert "a whole number" in tab.text_content("#context-note")
        assert tab.is_visible("#context-note") and tab.evaluate(height) == before
        for gpu in ("rtx-4090", "rtx-4060-ti-16gb", "mi300x"):
            tab.select_option("#choice-card", gpu)
            assert tab.eval_on_selector("#choice-card", fits), gpu


def test_batch_chart_ends_at_the_sequences_that_fit(browser: Any, tmp_path: Path) -> None:
    at = {"batch": "1", "dtype": "bf16", "kv": "bf16"}
    with Tab(browser, tmp_path, page_of("qwen3-next-80b-a3b"), width=NARROW) as tab:
        for count, context, ends_there in ((2, "8192", True), (8, "8192", True), (8, "16", False)):
            go_to(tab, f"card=h200&gpus={count}&context={context}")
            on = find_device("h200")
            most = library_fit("qwen3-next-80b-a3b", at | {"context": context}, on, count).max_batch
            label = tab.get_attribute("#speed [aria-label^='Decode against']", "aria-label")
            text = tab.text_content("#speed")
            assert ("the most that fit" in label) == ("as many as fit" in text) == ends_there
            end = f"{most:,}" if ends_there else "4,096"
            assert f"up to {end} sequences" in label and f"tokens/s at {end}" in text


def test_speed_that_stands_still_is_explained(browser: Any, tmp_path: Path) -> None:
    at = {"context": "8192", "batch": "1", "dtype": "bf16", "kv": "bf16"}
    with Tab(browser, tmp_path, page_of("llama-3-8b"), width=NARROW) as tab:
        said = tab.text_content("#hardware .plateau")
        many, few = (int(x) for x in re.findall(r"(\d+) × (?:RTX|\()", said))
        of = {n: library_fit("llama-3-8b", at, find_device("rtx-4090"), n) for n in (many, few)}
        assert of[many].layout.tp == of[few].layout.tp
        rates = [x.ceilings.decode.tokens_per_second for x in of.values() if x.ceilings]
        assert f"{rates[0]:.2g}" == f"{rates[1]:.2g}"
        for x in of.values():
            assert f"TP {x.layout.tp}" in said and (x.layout.pp == 1 or f"PP {x.layout.pp}" in said)


def test_first_state_of_large_models_fits(browser: Any, tmp_path: Path) -> None:
    for slug, count in (("llama-3.1-405b", 8), ("deepseek-v3", 4)):
        with Tab(browser, tmp_path, page_of(slug)) as tab:
            if slug == "llama-3.1-405b":
                assert "Just fits 4 × MI300X, 190.8 of 192.0 GiB each" in tab.text_content(".runs")
            assert f" fits on {count} × " in tab.text_content("#hardware .verdict .sub")
            tab.click("#mode [data-value=train]")
            assert (
                tab.locator("#memory td.lacking").count()
                < tab.locator("#memory table.gpus tbody tr").count()
            )


def test_context_warning_is_that_of_the_command_line(browser: Any, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["fit", "gpt2", "--on", "h100", "--context", "100000"])
    with Tab(browser, tmp_path, page_of("gpt2"), "#context=100000") as tab:
        shown = (
            tab.text_content("#hardware .context-warning")
            .removeprefix("Warning: ")
            .removesuffix(".")
        )
        assert shown and shown in done.stderr
        assert tab.text_content("#memory .context-warning").endswith(f"{shown}.")
        tab.fill("#context", "1024")
        wait_until_drawn(tab)
        assert tab.text_content("#hardware .context-warning") == ""


def test_custom_gpu_is_sized(browser: Any, tmp_path: Path) -> None:
    with Tab(
        browser,
        tmp_path,
        page_of("llama-3-8b"),
        "#card=custom&gpumem=20&gpubw=800&gpuflops=100&batch=3",
    ) as tab:
        gpu = find_device("h100-sxm").replace(
            name="custom", memory=20 * 2**30, bandwidth=800 * 10**9, flops={"bf16": 100 * 10**12}
        )
        at = {"context": "8192", "batch": "3", "dtype": "bf16", "kv": "bf16"}
        found = library_fit("llama-3-8b", at, gpu, 1)
        assert found.fits and found.ceilings is not None and found.ceilings.prefill is not None
        assert f"(memory for {found.max_context:,} tokens)" in tab.text_content(
            "[data-sizing=fits]"
        )
        assert shown_text(tab, "[data-sizing=total]") == f"{found.total / 2**30:.2f} GiB"
        for name, limit in (("decode", found.ceilings.decode), ("prefill", found.ceilings.prefill)):
            rate = float(shown_text(tab, f"[data-speed={name}-rate]").replace(",", ""))
            assert rate == pytest.approx(limit.tokens_per_second, rel=0.005)
        assert tab.locator("#gpumem").count() == 0, "an address opens nothing"
        tab.select_option("#choice-card", "l40s")
        tab.select_option("#choice-card", "custom")
        tab.wait_for_function("() => document.activeElement.id === 'gpumem'")
        tab.fill("#gpumem", "16")
        wait_until_drawn(tab)
        assert "does not fit on Custom GPU" in tab.text_content("#hardware .verdict .sub")


def test_gpus_that_differ_in_memory_have_names_of_their_own(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b"), "#card=a100-40gb&gpus=1") as tab:
        names = tab.locator("#memory .gpus tbody th").all_text_contents()
        assert len(names) == len(set(names))
        assert {"A100 SXM 40GB", "A100 SXM 80GB", "RTX 4090"} <= set(names)
        assert tab.text_content(".settings-answer").startswith("1 × A100 SXM 40GB")


def test_users_and_context_change_the_matrix(browser: Any, tmp_path: Path) -> None:
    with Tab(browser, tmp_path, page_of("llama-3-8b")) as tab:
        label = "#hardware [data-fit='rtx-4090 1']"
        before = tab.text_content(label)
        tab.fill("#context", "4k")
        wait_until_drawn(tab)
        longer = tab.text_content(label)
        tab.fill("#batch", "200")
        wait_until_drawn(tab)
        assert len({before, longer, tab.text_content(label)}) == 3
        assert "4,096 tokens" in longer and "does not fit" in tab.text_content(label)
        tab.focus("#hardware .cell[tabindex='0']")
        tab.keyboard.press("ArrowUp")
        tab.keyboard.press("ArrowRight")
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
        assert tab.locator("#hardware .cell[tabindex='0']").count() == 1


@pytest.mark.parametrize("slug", ["llama-3-8b", "llama-3.1-405b", "deepseek-v3"])
def test_layouts_are_those_of_plan(slug: str) -> None:
    found, model, gpu = (
        data_of(slug)["models"][0]["parallel"],
        llamath.load(slug),
        find_device("h100-sxm"),
    )
    training, serving = found["training"], found["serving"]
    report = plan(
        model,
        (int(training["gpus"]), gpu),
        PlanRequest(top=3, fixed={"cp": 1, "microbatch": 1, "interleave": 1}),
    )
    assert len(training["plans"]) == len(report.plans) > 0
    for shown, wanted in zip(training["plans"], report.plans, strict=True):
        degrees, _, experts = shown["name"].partition(", ")
        factors = [int(x.rpartition(" ")[2]) for x in degrees.split(" × ")]
        assert prod(factors) == report.gpus and all(n > 1 for n in factors)
        assert experts == (f"experts over {wanted.layout.ep}" if wanted.layout.ep > 1 else "")
        assert shown["axes"] == {
            name: str(getattr(wanted.layout, name)) for name in ("tp", "pp", "cp", "ep", "dp")
        }
        assert sum(map(int, shown["parts"].values())) == int(shown["memory"]) == wanted.memory
        assert (
            sum(shown["seconds"].values()) == pytest.approx(wanted.timing.step)
            and shown["mfu"] == wanted.mfu
        )
        job = TrainingJob(
            model,
            TrainRequest(dtype=report.dtype, gradients="fp32", context=report.context, fused=True),
        )
        stages = job.with_layout(wanted.layout).report().stages
        assert [sum(map(int, x["parts"].values())) for x in shown["stages"]] == [
            x.total for x in stages
        ]
        assert (shown["experts"] is None) == (wanted.layout.ep == 1)
        if shown["experts"] is not None:
            assert (
                int(shown["experts"]["each"]) * wanted.layout.ep
                == int(shown["experts"]["all"])
                == 256
            )
            assert shown["experts"]["ranks"] == [
                i % wanted.layout.ep for i in range(wanted.layout.tp * wanted.layout.cp)
            ]
        assert len(shown["stages"]) == wanted.layout.pp and (shown["schedule"] is None) == (
            wanted.layout.pp == 1
        )
        if drawn := shown["schedule"]:
            end = max(start + 1 + backward for _, _, backward, start in drawn["slots"])
            idle = 1 - 3 * drawn["microbatches"] / end
            bubble = wanted.layout.pp - 1
            assert idle == pytest.approx(bubble / (bubble + wanted.layout.count), abs=0.005)
    served = plan_serving(
        model, MemoryCalculator(model, MemoryRequest()), (int(serving["gpus"]), gpu)
    )
    wanted_plans = [
        (str(x.layout.tp), str(x.layout.pp), str(x.replicas), str(x.batch))
        for x in served.plans[:3]
    ]
    assert [(x["tp"], x["pp"], x["replicas"], x["batch"]) for x in serving["plans"]] == wanted_plans


@pytest.mark.parametrize(
    "slug", ["llama-3.1-405b", "llama-3.1-8b", "deepseek-v3", "qwen3-next-80b-a3b"]
)
def test_long_training_layouts_are_those_of_plan(slug: str) -> None:
    """A rank has two parts of each sequence and the keys and values of the others, as the library's step time counts them."""
    model, long = llamath.load(slug), data_of(slug)["models"][0]["parallel"]["long"]
    request = PlanRequest(
        top=3, context=int(long["context"]), fixed={"microbatch": 1, "interleave": 1}
    )
    report = plan(model, (int(long["gpus"]), find_device("h100-sxm")), request)
    assert [x["axes"]["cp"] for x in long["plans"]] == [str(x.layout.cp) for x in report.plans]
    assert bool(long["undivided"]) == any(x.what == "CP 2" for x in report.rejected)
    for shown, wanted in zip(long["plans"], report.plans, strict=True):
        parts, layout = shown["parts_of_sequence"], wanted.layout
        assert sum(map(int, shown["parts"].values())) == int(shown["memory"]) == wanted.memory
        assert sum(shown["seconds"].values()) == pytest.approx(wanted.timing.step)
        assert (parts is None) == (layout.cp == 1)
        if parts is None:
            continue
        assert int(parts["tokens"]) * layout.cp == report.context and parts[
            "parts"
        ] == 2 * layout.cp == 2 * len(parts["pairs"])
        assert (
            sum(map(int, parts["pairs"])) == report.context * (report.context + 1) // 2
            and len(set(parts["pairs"])) == 1
        )
        assert int(parts["received"]) == int(parts["gathered"]) * (layout.cp - 1) // layout.cp
        assert int(parts["sent"]) == int(wanted.timing.sent.context)
        if layout.pp == 1 and len(model.tree.layers.distinct()) == 1:
            passes = 4 if layout.recompute == "full" else 3
            assert int(parts["sent"]) == passes * layout.count * int(model.tree.layers.n) * int(
                parts["gathered"]
            )
    if slug == "qwen3-next-80b-a3b":
        assert long["undivided"] == "a recurrent state is passed from token to token"


@pytest.mark.parametrize("ranks", [2, 4, 16])
def test_parts_of_a_sequence_are_those_of_torch(ranks: int) -> None:
    """torch's context parallelism gives rank i the parts i and 2·CP − 1 − i."""
    balancer = pytest.importorskip(
        "torch.distributed.tensor.experimental._context_parallel._load_balancer"
    )
    tokens, part = 64 * ranks, 32
    indices = (
        balancer._HeadTailLoadBalancer(tokens, ranks, "cpu")._generate_indices().flatten().tolist()
    )
    for rank in range(ranks):
        own = indices[rank * 2 * part : (rank + 1) * 2 * part]
        wanted = [
            *range(rank * part, (rank + 1) * part),
            *range(tokens - (rank + 1) * part, tokens - rank * part),
        ]
        assert own == wanted
        assert sum(i + 1 for i in own) == _causal_pairs(rank, part) + _causal_pairs(
            2 * ranks - 1 - rank, part
        )


@pytest.mark.parametrize("width", [1440, 390])
def test_context_parallelism_is_drawn(browser: Any, tmp_path: Path, width: int) -> None:
    data = data_of("llama-3.1-405b")
    plans = data["models"][0]["parallel"]["long"]["plans"]
    index = next(i for i, x in enumerate(plans) if x["parts_of_sequence"])
    parts, cp = plans[index]["parts_of_sequence"], int(plans[index]["axes"]["cp"])
    with Tab(
        browser, tmp_path, page_from_data(data), f"#job=long&plan={index}", width=width
    ) as tab:
        assert f"CP {cp}" in tab.text_content("#layouts-title")
        assert tab.locator(".sequence-parts [role=button]").count() == cp
        tab.locator(".sequence-parts [data-rover]").first.focus()
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("Enter")
        assert (
            tab.locator(".sequence-parts [aria-pressed=true]")
            .get_attribute("aria-label")
            .startswith("CP rank 1: tokens ")
        )
        assert f"in parts 1 and {2 * cp - 2}" in tab.text_content(".sequence-parts dl")
        for name, number in (
            ("tokens", "tokens"),
            ("pairs", "pairs"),
            ("received", "received"),
            ("sent", "sent"),
        ):
            tab.click(f"[data-cp={name}]")
            wanted = parts[number][1] if name == "pairs" else parts[number]
            assert f"{int(wanted):,}" in tab.text_content("dialog[open]"), name
            tab.keyboard.press("Escape")
        cut = """() => [...document.querySelectorAll('#layouts svg text')].filter((x) => {
          const [a, b] = [x.getBoundingClientRect(), x.closest('svg').getBoundingClientRect()];
          return a.left < b.left - 1 || a.right > b.right + 1 || parseFloat(getComputedStyle(x).fontSize) < 12;
        }).map((x) => x.textContent)"""
        assert (
            tab.evaluate(cut) == []
            and tab.evaluate("document.documentElement.scrollWidth") <= width
        )


@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 1), (4, 8), (8, 16), (5, 3)])
def test_schedule_is_1f1b(stages: int, microbatches: int) -> None:
    """No two passes of a stage overlap, data arrive before they are used, and the bubble is that of 1F1B."""
    slots = list(schedule(stages, microbatches))
    ends = {(x.stage, x.microbatch, x.backward): x.start + 1 + x.backward for x in slots}
    assert len(ends) == len(slots) == 2 * stages * microbatches
    assert max(ends.values()) == 3 * (microbatches + stages - 1)
    for i in range(stages):
        own = sorted((x.start, x.start + 1 + x.backward) for x in slots if x.stage == i)
        assert all(a[1] <= b[0] for a, b in pairwise(own))
        starts, in_flight = sorted((x.start, x.backward) for x in slots if x.stage == i), 0
        for _, backward in starts:
            in_flight += -1 if backward else 1
            assert 0 <= in_flight <= stages - i, (
                "1F1B holds no more microbatches than stages follow"
            )
    for x in slots:
        before = (
            (x.stage + 1, x.microbatch, True) if x.backward else (x.stage - 1, x.microbatch, False)
        )
        assert ends.get(before, 0) <= x.start
        assert not x.backward or ends[x.stage, x.microbatch, False] <= x.start


def test_a_bubble_too_small_to_be_seen_is_not_drawn() -> None:
    assert _drawn_schedule(Layout(pp=2, microbatches=16_384)) is None
    for pp, count in ((2, 64), (8, 64), (16, 120), (64, 16), (3, 128), (2, 200)):
        drawn = _drawn_schedule(Layout(pp=pp, microbatches=count))
        assert drawn is not None
        assert drawn["stages"] <= 8 and drawn["microbatches"] <= 200, (pp, count)
        share = (drawn["stages"] - 1) / (drawn["microbatches"] + drawn["stages"] - 1)
        assert share == pytest.approx((pp - 1) / (count + pp - 1), abs=0.02), (pp, count)


def test_layouts_can_be_chosen(browser: Any, tmp_path: Path) -> None:
    data = data_of("llama-3.1-405b")
    plans = data["models"][0]["parallel"]["training"]["plans"]
    with Tab(browser, tmp_path, page_from_data(data)) as tab:
        for i, x in enumerate(plans):
            tab.click(f"#plan [data-value='{i}']")
            assert f" train it as {x['name']}, at" in tab.text_content("#layouts-title")
            assert f"{100 * x['mfu']:.0f}%" in tab.text_content("#layouts-title")
            tab.click("[data-plan=memory]")
            assert f"{int(x['memory']):,} bytes" in tab.text_content("dialog[open]")
            tab.keyboard.press("Escape")
        for i in (0, 1):
            tab.focus(
                f"#layouts .gpu-stage:nth-of-type({i + 1})"
            ) if i == 0 else tab.keyboard.press("ArrowRight")
            tab.keyboard.press("Enter")
            assert f"stage {i} holds" in tab.text_content("#layouts .parts caption")
            tab.click("[data-plan=stage]")
            assert f"{sum(map(int, x['stages'][i]['parts'].values())):,} bytes" in tab.text_content(
                "dialog[open]"
            )
            tab.keyboard.press("Escape")
            tab.focus("#layouts .gpu-stage[aria-pressed=true]")
        tab.click("#job [data-value=serving]")
        assert (
            "serve at most" in tab.text_content("#layouts-title")
            and tab.locator("#layouts .schedule").count() == 0
        )


@pytest.mark.parametrize(
    ("slug", "at"),
    usual(
        ("llama-3-8b", "#gpus=8&dtype=q4_k_m&kv=q8_0&card=b200&job=serving"),
        ("llama-3-8b", "#mode=train&trainers=8&tp=2&zero=3&context=4097"),
        release=[("llama-3-8b", "#context=5000&batch=7"), ("llama-3.1-405b", "#job=long")],
    ),
)
def test_every_number_opens_a_formula_that_contains_it(
    browser: Any, tmp_path: Path, slug: str, at: str
) -> None:
    with Tab(browser, tmp_path, page_of(slug), at) as tab:
        found = tab.evaluate(OPEN_ALL_JS)
    assert len(found) > 30
    letters = {x["letter"] for x in data_of(slug)["models"][0]["letters"]}
    for shown, formulas, text in found:
        products = [line for x in formulas for line in x.split("\n") if "·" in line]
        used = {y for x in products for y in re.findall(r"(?<![\w.])[^\W\d]\w*(?![.\w])", x)}
        assert all(f"{x}: " in text for x in used & letters), (shown, used & letters, text)
        numbers = re.findall(r"\d[\d,.]*", shown)
        results = {y for x in formulas for y in re.findall(r"\d[\d,.]*\d|\d", x)}
        assert formulas and (not numbers or any(n.rstrip(".,") in results for n in numbers)), (
            shown,
            formulas,
        )


MAP_JS = """() => {
  const svg = document.querySelector('.memory-map svg');
  const box = (x) => { const { left, right, top, bottom } = x.getBoundingClientRect(); return { left, right, top, bottom }; };
  const cells = [...svg.querySelectorAll('.map-cell')].map((x) => ({
    title: x.querySelector('title').textContent, text: x.querySelector('text')?.textContent ?? '',
    cell: box(x.querySelector('rect')), number: box(x.querySelector('text')) }));
  const lines = [...svg.querySelectorAll('.border')].flatMap((path) => {
    const toScreen = path.getScreenCTM();
    return Array.from({ length: Math.ceil(path.getTotalLength() / 2) }, (_, i) => path.getPointAtLength(2 * i).matrixTransform(toScreen)).map((p) => [p.x, p.y]);
  });
  return { cells, lines, names: [...svg.querySelectorAll('[data-border]')].map((x) => x.dataset.border) };
}"""


def test_every_cell_of_the_heat_map_has_its_number(browser: Any, tmp_path: Path) -> None:
    """The number stands within its cell, no border crosses it, and it is the page's own memory."""
    ask = "([T, B]) => pageTest.memory(0, { context: T, batch: B }).total"
    with Tab(browser, tmp_path, page_of("llama-3.1-405b"), "#gpus=8", width=1440) as tab:
        for width in at_widths(tab, 1440, 1024, 768, 390):
            found = tab.evaluate(MAP_JS)
            assert len(found["cells"]) >= 27 and found["names"], width
            for x in found["cells"]:
                cell, number = x["cell"], x["number"]
                assert x["text"] and f": {x['text']} " in x["title"], (width, x["title"])
                assert cell["left"] <= number["left"] and number["right"] <= cell["right"], x
                assert not any(
                    number["left"] < px < number["right"] and number["top"] < py < number["bottom"]
                    for px, py in found["lines"]
                ), (width, x["title"])
            for x in found["cells"][::17]:
                tokens, batch = re.findall(r"\d[\d,]*", x["title"])[:2]
                bytes_of = int(tab.evaluate(ask, [tokens.replace(",", ""), batch]))
                shown, unit = (
                    (float(x["text"].removesuffix(" Ti")), 2**40)
                    if x["text"].endswith("Ti")
                    else (float(x["text"]), 2**30)
                )
                assert bytes_of / unit == pytest.approx(shown, rel=0.05 if unit > 2**30 else 0.006)
