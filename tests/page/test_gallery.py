"""The static gallery: its files, its numbers, and its views in Chromium from the disk."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import llamath
from llamath.analysis.understand.fact_sheet import fact_sheet
from llamath.catalog import presets
from llamath.cli import cli
from llamath.utils.errors import LlamathError
from llamath.web.gallery import site_files
from llamath.web.gallery.gallery_entry import catalog_entry, gallery_entry
from llamath.web.gallery.known_forms import FORMS
from llamath.web.gallery.site_files import EMBED, MARKER, write_gallery
from llamath.web.gallery.site_pages import site_assets
from support.browser_page import (
    EMPTY,
    at_widths,
    browser,
    go_to,
    lent_page,
    new_context,
    page_data,
    shown_config,
    shown_text,
    visit,
    wait_until_drawn,
)
from support.page_models import data_of

assert browser
SAMPLE = [
    "llama-2-7b",
    "llama-3-8b",
    "deepseek-v3",
    "gemma-3-27b",
    "gpt2",
    "jamba-v0.1",
    "qwen2-vl-7b",
    "falcon-mamba-7b",
]
VIEWS = ["cards", "wall", "table", "timeline", "kinship", "plot", "compare"]
MM2 = (96 / 25.4) ** 2
"""CSS pixels of a square millimetre."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery") / "site"
    write_gallery(str(folder), SAMPLE, processes=1)
    return folder


def test_site_has_a_page_for_each_model(site: Path) -> None:
    files = {str(x.relative_to(site)) for x in site.rglob("*") if x.is_file()}
    assert files == {
        "index.html",
        MARKER,
        *(f"models/{x}.html" for x in SAMPLE),
        *(f"assets/{x}" for x in site_assets()),
        FORMS,
        EMBED,
    }
    page = (site / "models/gpt2.html").read_text()
    assert all(f'"../assets/{x}"' in page for x in site_assets() if x.startswith("page-"))
    assert max(len((site / f"models/{x}.html").read_bytes()) for x in SAMPLE) < 200_000
    assert page_data((site / "models/gpt2.html").read_text())["models"][0]["name"] == "GPT-2 small"


def test_entries_state_the_facts_of_the_models(site: Path) -> None:
    entries = {x["id"]: x for x in page_data((site / "index.html").read_text())["models"]}
    assert list(entries) == SAMPLE
    for slug, x in entries.items():
        facts = fact_sheet(llamath.load(slug))
        assert (x["total"], x["active"], x["layers"], x["context"]) == (
            facts.total,
            facts.active,
            facts.layers,
            facts.context,
        )
        assert (x["kv"], x["kv_full"], x["flops"]) == (
            facts.kv_per_token,
            facts.kv_full_context,
            facts.flops_first_token,
        )
        assert (x["organization"], x["released"], x["attention"]) == (
            facts.organization,
            facts.released,
            facts.attention,
        )


@pytest.mark.parametrize(
    "slug",
    [
        *SAMPLE,
        "gemma-4-26b-a4b",
        "llama-4-maverick",
        "nemotron-h-8b",
        "openelm-1.1b",
        "longcat-flash",
    ],
)
def test_bars_and_shapes_sum_to_the_parameters(slug: str) -> None:
    model = llamath.load(slug)
    entry = gallery_entry(model, slug)
    picture = entry["picture"]
    bars = [
        *picture["before"],
        *picture["after"],
        *(picture["kinds"][kind] for kind, n in picture["runs"] for _ in range(n)),
    ]
    assert sum(n for _, n in picture["runs"]) == int(model.tree.layers.n)
    assert sum(int(part[1]) for bar in bars for part in bar) == model.parameters.total
    towers = sum(int(part[1]) for bar in bars for part in bar if part[0] == "vision")
    assert sum(int(part[2]) for bar in bars for part in bar) - towers == model.parameters.active
    elements = 0
    for _, shape, copies, _ in entry["shapes"]:
        n = int(copies)
        for size in shape:
            n *= int(size)
        elements += n
    assert elements == model.parameters.tied_counted_twice


def test_catalog_states_the_totals_of_its_models() -> None:
    for preset in list(presets())[::40]:
        entry = gallery_entry(llamath.load(preset.slug), preset.slug)
        known = {key: x for key, x in catalog_entry(preset).items() if key != "ids"}
        assert {key: entry.get(key) for key in known} | {"name": preset.name} == known, preset.slug


def test_folder_that_is_no_gallery_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(LlamathError, match="is not a gallery") as caught:
        write_gallery(str(tmp_path), ["gpt2"], processes=1)
    assert "force=True" in caught.value.hint
    assert [x.name for x in tmp_path.iterdir()] == ["thesis.txt"]
    write_gallery(str(tmp_path), ["gpt2"], force=True, processes=1)
    assert (tmp_path / "thesis.txt").read_text() == "years of work" and (
        tmp_path / "models/gpt2.html"
    ).exists()
    (tmp_path / "a file").write_text("x")
    with pytest.raises(LlamathError, match="not a folder"):
        write_gallery(str(tmp_path / "a file"), ["gpt2"], force=True, processes=1)


def test_gallery_is_replaced_as_a_whole_and_keeps_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    write_gallery(str(folder), ["gpt2", "distilgpt2"], processes=1)
    (folder / "CNAME").write_text("example.org")
    with pytest.raises(LlamathError):
        write_gallery(str(folder), ["gpt2", str(tmp_path / "missing")], processes=1)
    assert (folder / "models/distilgpt2.html").exists()
    site = write_gallery(str(folder), ["gpt2"], processes=2)
    assert (
        not (folder / "models/distilgpt2.html").exists()
        and (folder / "CNAME").read_text() == "example.org"
    )
    assert [x.name for x in tmp_path.iterdir()] == ["site"]
    assert site.models == 1 and site.bytes == sum(
        x.stat().st_size
        for x in folder.rglob("*")
        if x.is_file() and x.name not in ("CNAME", MARKER)
    )


def test_command_writes_a_gallery_of_files(tmp_path: Path) -> None:
    (tmp_path / "My Model").mkdir()
    (tmp_path / "My Model/config.json").write_text(
        json.dumps(dict(llamath.load("gpt2").config.data))
    )
    done = CliRunner().invoke(
        cli,
        [
            "export",
            "gpt2",
            "distilgpt2",
            str(tmp_path / "My Model"),
            "-o",
            str(tmp_path / "site"),
            "--json",
        ],
    )
    assert done.exit_code == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["models"] == 3 and (tmp_path / "site/models/my-model.html").exists()
    again = CliRunner().invoke(
        cli, ["export", "gpt2", "gpt2", "gpt2", "-o", str(tmp_path / "site")]
    )
    assert again.exit_code == 2 and "given twice" in again.stderr
    assert CliRunner().invoke(cli, ["export"]).exit_code == 2
    page = CliRunner().invoke(cli, ["export", "-o", str(tmp_path / "page.html")])
    assert page.exit_code == 2 and "is no name for the folder of a gallery" in page.stderr


# what follows needs Chromium


class SiteTab:
    """A tab that shows files of a site, and records errors and requests elsewhere."""

    def __init__(self, browser: Any, site: Path, at: str, **how: Any) -> None:
        self.wrong: list[str] = []
        self.lent = lent_page(browser, how.pop("width", 1280), 900, **how)
        self.page = self.lent.__enter__()
        self.listeners = {
            "pageerror": lambda x: self.wrong.append(str(x)),
            "console": lambda x: (
                self.wrong.append(x.text) if x.type in ("error", "warning") else None
            ),
            "request": lambda x: (
                None
                if x.url.startswith((site.as_uri(), "blob:", EMPTY))
                else self.wrong.append(x.url)
            ),
        }
        for event, listener in self.listeners.items():
            self.page.on(event, listener)
        visit(self.page, f"{(site / 'index.html').as_uri()}{at}")

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self.lent.__exit__(kind, *rest)
        for event, listener in self.listeners.items():
            self.page.remove_listener(event, listener)
        assert kind or not self.wrong, self.wrong


@pytest.fixture
def tab(browser: Any, site: Path) -> Iterator[Any]:
    with SiteTab(browser, site, "") as page:
        yield page


def names(tab: Any) -> list[str]:
    found: list[str] = tab.locator(".models a.model").all_text_contents()
    return found


def test_models_are_found_filtered_and_sorted(tab: Any) -> None:
    assert len(names(tab)) == len(SAMPLE) and names(tab)[0] == "Gemma 3 27B"  # the newest
    tab.keyboard.press("/")
    tab.keyboard.type("llama")
    assert set(names(tab)) == {"Llama 2 7B", "Llama 3 8B"}
    tab.fill("#find", "")
    tab.select_option("#kind", "moe")
    assert set(names(tab)) == {"DeepSeek V3", "Jamba v0.1 52B"}
    tab.select_option("#attention", "MLA")
    assert names(tab) == ["DeepSeek V3"]
    tab.select_option("#attention", "")
    tab.select_option("#kind", "")
    tab.fill("#most", "8B")
    totals = {x: llamath.load(x).parameters.total for x in SAMPLE}
    assert len(names(tab)) == sum(n <= 8e9 for n in totals.values())
    tab.fill("#most", "")
    tab.select_option("#sort", "-total")
    shown = "[...document.querySelectorAll('[data-model]')].map(x => x.dataset.model)"
    assert tab.evaluate(shown) == sorted(SAMPLE, key=lambda x: -totals[x])
    tab.click("button[data-value=table]")
    tab.click("th button:has-text('Parameters')")
    tab.click("th button:has-text('Parameters')")
    by_size = sorted(SAMPLE, key=lambda x: -totals[x])
    assert (
        tab.evaluate("[...document.querySelectorAll('tr[data-model]')].map(x => x.dataset.model)")
        == by_size
    )
    assert tab.locator("[aria-sort=descending]").count() == 1
    tab.click("th button:has-text('Parameters')")
    assert (
        tab.evaluate("[...document.querySelectorAll('tr[data-model]')].map(x => x.dataset.model)")
        == by_size[::-1]
    )


def test_state_is_in_the_address(browser: Any, site: Path) -> None:
    with SiteTab(browser, site, "#view=table&find=llama&sort=total&columns=layers,kv") as tab:
        assert names(tab) == ["Llama 2 7B", "Llama 3 8B"]
        assert tab.locator("thead th").all_text_contents()[1:3] == ["Layers", "KV per token"]
        tab.click("button[data-value=plot]")
        wait_until_drawn(tab)
        assert "view=plot" in tab.url and "find=llama" in tab.url
        tab.go_back()
        wait_until_drawn(tab)
        assert tab.locator("table.models").count() == 1


INVALID = [
    "#view=<img src=x>",
    "#sort=__proto__",
    "#columns=x;y",
    "#a=nothing&b=../x&view=compare",
    "#" + "x" * 5000,
    "#%",
]


def test_invalid_address_is_harmless(browser: Any, site: Path) -> None:
    """Of a gallery that is loaded, and of one whose address changes."""
    with SiteTab(browser, site, INVALID[0]) as tab:
        for at in INVALID:
            go_to(tab, at)
            assert tab.locator("h1").count() == 1 and tab.locator("img").count() == 0, at


def test_columns_are_chosen_and_saved_as_csv(tab: Any) -> None:
    tab.click("button[data-value=table]")
    tab.click(".column-choice summary")
    tab.check("text=FFN size")
    tab.click(".column-choice summary")
    tab.fill("#find", "llama")
    with tab.expect_download() as download:
        tab.click("text=Save CSV")
    text = Path(download.value.path()).read_text()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {x["name"]: (x["ffn"], x["total"], x["kv"]) for x in rows} == {
        "Llama 2 7B": ("11008", "6738415616", "524288"),
        "Llama 3 8B": ("14336", "8030261248", "131072"),
    }


def test_model_page_opens_from_the_disk_and_leads_back(tab: Any) -> None:
    tab.fill("#find", "deepseek")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/models/deepseek-v3.html")
    assert tab.text_content("h1") == "DeepSeek V3"
    assert tab.text_content("[data-part=parameters]") == "parameters: 671,026,419,200"
    tab.click("text=Compare with…")
    tab.wait_for_url("**/index.html#with=deepseek-v3")
    assert "DeepSeek V3" in tab.text_content(".comparing")
    tab.fill("#find", "gpt-2")
    tab.keyboard.press("Enter")
    wait_until_drawn(tab)
    assert tab.text_content("h1") == "Two models side by side"
    assert tab.locator("figure h2").all_text_contents() == ["DeepSeek V3", "GPT-2 small"]


def test_comparison_shows_facts_and_shapes_of_both(browser: Any, site: Path) -> None:
    with SiteTab(browser, site, "#view=compare&a=llama-2-7b&b=llama-3-8b") as tab:
        row = tab.locator("tr[data-row=kv_heads] > *").all_text_contents()
        assert row == ["KV heads", "32", "8", "0.25\xa0×"]
        changes = {
            x[0]: x[3]
            for x in (
                y.locator("> *").all_text_contents()
                for y in tab.locator("table.shapes tbody tr").all()
            )
        }
        assert (
            changes["layers.attn.k.weight"] == "−402,653,184"
            and changes["layers.attn.q.weight"] == ""
        )
        signs = str.maketrans({",": "", "+": "", "−": "-"})
        difference = (
            llamath.load("llama-3-8b").parameters.total
            - llamath.load("llama-2-7b").parameters.total
        )
        assert sum(int(x.translate(signs)) for x in changes.values() if x) == difference
        causes = llamath.diff("llama-2-7b", "llama-3-8b").causes
        labels = tab.locator(".waterfall .cause")
        assert labels.all_text_contents() == [x.label for x in causes]
        shown = tab.locator(".waterfall tbody tr:not(.total, .axis) td .number")
        numbers = [x.rpartition(": ")[2].translate(signs) for x in shown.all_text_contents()]
        assert [int(x) for x in numbers] == [x.delta for x in causes]
        assert "llamath diff" not in tab.text_content("main")
        heights = tab.evaluate(
            "[...document.querySelectorAll('.pair figure svg')].map(x => x.querySelector('.c-ffn').getBBox().height)"
        )
        assert heights[0] / heights[1] == pytest.approx(11008 / 14336, rel=0.01)  # to one scale
        tab.click("button[data-value=only]")
        assert tab.locator("tr[data-row=layers]").count() == 0
        tab.click("text=Swap models")
        wait_until_drawn(tab)
        reverse = llamath.diff("llama-3-8b", "llama-2-7b").causes
        assert labels.all_text_contents() == [x.label for x in reverse]


def test_points_are_links_reached_by_arrow_keys(browser: Any, site: Path) -> None:
    with SiteTab(browser, site, "#view=plot&x=total&y=kv") as tab:
        assert tab.locator(".points a").count() == len(SAMPLE) - 1  # Falcon Mamba has no KV cache
        assert tab.locator(".points a[tabindex='0']").count() == 1
        tab.focus(".points a[tabindex='0']")
        label = tab.evaluate("document.activeElement.getAttribute('aria-label')")
        assert label.startswith("GPT-2 small: 36 KiB")
        tab.keyboard.press("End")
        assert tab.evaluate("document.activeElement.dataset.model") == "deepseek-v3"
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/models/deepseek-v3.html")


def test_gallery_opens_on_cards_at_every_width(browser: Any, site: Path) -> None:
    with SiteTab(browser, site, "") as tab:
        for width in at_widths(tab, 390, 768, 1440):
            assert tab.locator(".cards .card").count() == len(SAMPLE), width
            assert tab.locator("table.models").count() == 0, width
            inner = "(x) => x.getBoundingClientRect().width - x.parentElement.clientWidth"
            room = tab.locator(".card .mini").evaluate_all(f"all => all.map({inner})")
            assert {round(x) for x in room} == {-32}, "as wide as the card within its padding"
            first = tab.locator(".card").first.bounding_box()
            assert first["y"] < 500 and first["x"] + first["width"] <= width


AREAS = """Object.fromEntries([...document.querySelectorAll('.wall [data-model]')].map((tile) => [tile.dataset.model,
  [...tile.querySelectorAll('path[class^=c-]')].flatMap((x) => [...x.getAttribute('d').matchAll(/h([\\d.]+)v([\\d.]+)/g)])
    .reduce((sum, [, w, h]) => sum + w * h, 0)]))"""


@pytest.mark.parametrize("unit", [1000, 100, 10])
def test_wall_draws_every_parameter_in_one_area_unit(browser: Any, site: Path, unit: int) -> None:
    with SiteTab(browser, site, f"#view=wall&unit={unit}") as tab:
        for _ in at_widths(tab, 390, 1440):
            areas = tab.evaluate(AREAS)
            assert set(areas) == set(SAMPLE)
            for slug, area in areas.items():
                expected = llamath.load(slug).parameters.total / (unit * 1e6) * MM2
                assert area == pytest.approx(expected, rel=0.01, abs=0.03), slug
            square = tab.locator(".wall-unit svg").bounding_box()
            assert square["width"] ** 2 == pytest.approx(100 * MM2, rel=1e-3)
            legend = {1000: "100B", 100: "10.0B", 10: "1.00B"}[unit]
            assert legend in tab.text_content(".wall-unit")


def test_wall_names_every_model(browser: Any, site: Path) -> None:
    entries = page_data((site / "index.html").read_text())["models"]
    with SiteTab(browser, site, "#view=wall") as tab:
        for width in at_widths(tab, 390, 1440):
            text = tab.inner_text(".years")
            assert [x["name"] for x in entries if x["name"] not in text] == [], width


def test_wall_goes_by_date_and_opens_by_keys(browser: Any, site: Path) -> None:
    entries = {x["id"]: x for x in page_data((site / "index.html").read_text())["models"]}
    with SiteTab(browser, site, "#view=wall") as tab:
        shown = "[...document.querySelectorAll('.wall [data-model]')].map((x) => x.dataset.model)"
        order = tab.evaluate(shown)
        dates = [entries[x]["released"] for x in order]
        assert dates == sorted(dates)
        assert tab.locator(".wall a[tabindex='0']").count() == 1
        tab.focus(".wall a[tabindex='0']")
        tab.keyboard.press("ArrowRight")
        at = "document.activeElement.parentElement.dataset.model"
        assert tab.evaluate(at) == order[1]
        name = entries[order[1]]["name"]
        assert name in tab.text_content(".magnifier")
        assert tab.get_attribute("a:focus", "aria-label").startswith(f"{name}: ")
        tab.keyboard.press("Enter")
        tab.wait_for_url(f"**/models/{order[1]}.html")


def test_wall_sets_models_without_a_date_apart(browser: Any, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    write_gallery(str(folder), ["gpt2", "specinfer-llama-68m", "gpt2-medium"], processes=1)
    with SiteTab(browser, folder, "#view=wall") as tab:
        years = tab.locator(".year")
        assert years.locator("h3").all_text_contents() == ["2019", "Release date not known"]
        last = years.last.locator("[data-model]")
        assert last.get_attribute("data-model") == "specinfer-llama-68m"
        assert "release date unknown" in last.locator("a").get_attribute("aria-label")


def test_kinship_sets_models_below_their_ancestors(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # their own pages are not what is tested
    monkeypatch.setattr(site_files, "build_page_data", lambda *_: data_of("gpt2"))
    monkeypatch.setattr(site_files, "_MOST_COMPARED", 0)
    folder = tmp_path / "site"
    # the last id is one of a preset with another name
    slugs = ["deepseek-r1", "glm-5", "deepseek-v3.2", "deepseek-v3", "falcon-rw-1b"]
    slugs.append("mistral-7b-v0.1")
    write_gallery(str(folder), slugs, processes=1)
    entries = {x["id"]: x for x in page_data((folder / "index.html").read_text())["models"]}
    assert entries["deepseek-r1"]["kin"] == {
        "of": "deepseek-v3",
        "name": "DeepSeek V3",
        "changes": [],
    }
    assert entries["falcon-rw-1b"]["kin"] is None
    with SiteTab(browser, folder, "#view=kinship") as tab:
        labels = tab.locator(".kin a.model")
        order = [x.get_attribute("data-model") for x in labels.all()]
        assert order[0] == "mistral-7b-v0.1"
        assert order[1:] == ["deepseek-v3", "deepseek-r1", "deepseek-v3.2", "glm-5"]
        said = [x.get_attribute("aria-label") for x in labels.all()]
        assert "DeepSeek R1 is DeepSeek V3" in said[2]
        assert "GLM-5 744B A40B is DeepSeek V3.2 with " in said[4]
        lines = tab.locator(".kin-line")
        changed = [("changed" in x.get_attribute("class")) for x in lines.all()]
        assert changed == [False, True, False], "V3.2 alone has another block"
        assert "Falcon RW 1B" in tab.text_content(".picture")
        says = "; ".join(
            f"{entries[x]['kin']['name']}, the nearest of {entries[x]['name']}" for x in order[:2]
        )
        assert tab.text_content(".kin-missing") == f"Not shown here: {says}."
        tab.focus(".kin a[data-model=glm-5]")
        assert "GLM-5" in tab.text_content(".kin-text")
        tab.click(".firsts summary")
        assert "sparse MLA: DeepSeek V3.2" in " ".join(tab.text_content(".firsts").split())


def test_timeline_has_a_line_for_each_organization(browser: Any, site: Path) -> None:
    with SiteTab(browser, site, "#view=timeline") as tab:
        assert tab.locator(".points a").count() == 8  # each model with a date
        dates = """[...document.querySelectorAll('.picture svg text.tabular')].map((x) => [x.parentNode, x.getBoundingClientRect()])
          .map(([group, box]) => [group.querySelector('path').getBoundingClientRect().x, box.x, box.right])"""
        for _ in at_widths(tab, 390, 768, 1440):
            marks = sorted(tab.evaluate(dates))
            steps = [b[0] - a[0] for a, b in pairwise(marks)]
            assert len(marks) >= 3 and max(steps) < 1.03 * min(steps), "at equal distances"
            assert all(a[2] + 4 < b[1] for a, b in pairwise(marks)), "no two dates meet"
        assert tab.locator(".point-name").count() == 8
        tab.select_option("#only", "Meta")
        assert set(tab.locator(".point-name").all_text_contents()) == {"Llama 2 7B", "Llama 3 8B"}
        tab.click("button[data-value=family]")
        tab.select_option("#only", "llama")
        assert tab.text_content("section h2") == "llama, over time"


@pytest.mark.parametrize("width", [390, 768, 1440, 2560])
def test_nothing_scrolls_sideways_and_text_has_12_pixels(
    browser: Any, site: Path, width: int
) -> None:
    small = """[...document.querySelectorAll('#page :not(.mark)')].filter((x) => [...x.childNodes].some((y) => y.nodeType === 3 && y.data.trim())
      && x.getClientRects().length && parseFloat(getComputedStyle(x).fontSize) < 12).map((x) => x.outerHTML.slice(0, 80))"""
    with SiteTab(browser, site, "", width=width) as tab:
        for view in VIEWS:
            tab.click(f"button[data-value={view}]")
            wait_until_drawn(tab)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width, view
            assert tab.evaluate(small) == [], view
            if view == "table" and width == 390:
                frame = (
                    "(x => [x.scrollWidth, x.clientWidth])(document.querySelector('.table-frame'))"
                )
                inner, room = tab.evaluate(frame)
                assert inner <= room, "columns that fit"


def test_printed_gallery_has_the_models_without_controls(tab: Any) -> None:
    tab.emulate_media(media="print")
    assert (
        tab.is_visible(".models.cards")
        and tab.locator("select:visible, input:visible, .button:visible").count() == 0
    )


def open_config(tab: Any, folder: Path, config: dict[str, Any], name: str = "config.json") -> None:
    (folder / name).write_text(json.dumps(config))
    tab.set_input_files("#file-input", str(folder / name))


@pytest.mark.parametrize("at", ["index.html", "models/gpt2.html"])
@pytest.mark.parametrize("slug", ["llama-3.1-70b", "qwen2.5-7b", "gpt2-xl", "deepseek-v3"])
def test_config_of_every_known_form_is_counted(
    tab: Any, site: Path, tmp_path: Path, slug: str, at: str
) -> None:
    model = llamath.load(slug)
    visit(tab, (site / at).as_uri())
    open_config(tab, tmp_path, dict(model.config.data))
    tab.wait_for_selector("[data-part=designed]")
    assert shown_text(tab, "[data-part=designed]") == f"{model.parameters.total:,}"
    own = json.loads(shown_config(tab))
    assert llamath.load(own).parameters.total == model.parameters.total


@pytest.mark.parametrize("at", ["index.html", "models/gpt2.html"])
def test_opened_config_keeps_its_other_keys(tab: Any, site: Path, tmp_path: Path, at: str) -> None:
    config = dict(llamath.load("gpt2").config.data) | {"n_layer": 13, "layer_norm_epsilon": 0.125}
    visit(tab, (site / at).as_uri())
    open_config(tab, tmp_path, config)
    tab.wait_for_selector(".edit-note:has-text('layer_norm_epsilon 0.125')")
    own = json.loads(shown_config(tab))
    assert (own["n_layer"], own["layer_norm_epsilon"]) == (13, 0.125)
    assert tab.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize("at", ["index.html", "models/gpt2.html"])
def test_config_of_another_family_keeps_its_window(
    tab: Any, site: Path, tmp_path: Path, at: str
) -> None:
    config = dict(llamath.load("mistral-7b").config.data) | {"max_position_embeddings": 32_768}
    for window, cached in ((None, "4 GiB at its context of 32,768."), (1024, "128 MiB at")):
        visit(tab, (site / at).as_uri())
        open_config(tab, tmp_path, {**config, "sliding_window": window})
        tab.wait_for_selector(f"[data-part=bytes]:has-text('{cached}')")
        name, own = tab.text_content(".hero code"), json.loads(shown_config(tab))
        assert "config.json" in name and own["sliding_window"] == window
        tab.reload()
        tab.wait_for_selector(f"[data-part=bytes]:has-text('{cached}')")
        assert "no context length" not in tab.inner_text("main")
    visit(tab, tab.url.partition("&keys")[0])
    tab.wait_for_selector(".hero:has-text('taken to be those of')")


@pytest.mark.parametrize("at", ["index.html", "models/gpt2.html"])
def test_params_json_opens_in_the_gallery(tab: Any, site: Path, tmp_path: Path, at: str) -> None:
    params = {"dim": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 8, "vocab_size": 128256}
    params |= {"multiple_of": 1024, "ffn_dim_multiplier": 1.3, "norm_eps": 1e-5}
    visit(tab, (site / at).as_uri())
    open_config(tab, tmp_path, params, "params.json")
    tab.wait_for_selector("[data-part=designed]")
    assert shown_text(tab, "[data-part=designed]") == "8,030,261,248"


@pytest.mark.parametrize("at", ["index.html", "models/gpt2.html"])
def test_config_without_a_known_form_is_named(
    tab: Any, site: Path, tmp_path: Path, at: str
) -> None:
    visit(tab, (site / at).as_uri())
    open_config(tab, tmp_path, {"model_type": "novel", "num_hidden_layers": 3})
    tab.wait_for_selector(".wrong")
    text = tab.text_content(".wrong")
    assert (
        'it describes model_type "novel" (3 layers)' in text and "llamath count config.json" in text
    )
    open_config(
        tab, tmp_path, dict(llamath.load("llama-3-8b").config.data) | {"attention_bias": True}
    )
    tab.wait_for_selector(".wrong:has-text('attention_bias differs')")
    (tmp_path / "notes.txt").write_text("hello, this is a text")
    tab.set_input_files("#file-input", str(tmp_path / "notes.txt"))
    tab.wait_for_selector(".wrong:has-text('it is a text file, not a checkpoint')")


def test_closed_forms_are_loaded_only_for_a_config(
    browser: Any, site: Path, tmp_path: Path
) -> None:
    with SiteTab(browser, site, "") as tab:
        asked: list[str] = []
        tab.on("request", lambda x: asked.append(x.url))
        tab.reload()
        assert not [x for x in asked if x.endswith(FORMS)]
        open_config(tab, tmp_path, {"model_type": "novel"})
        tab.wait_for_selector(".wrong")
        assert [x for x in asked if x.endswith(FORMS)]
    context = new_context(browser)
    stranger = context.new_page()
    visit(stranger, (site / "index.html").as_uri())
    for attempt in (
        "trustedTypes.createPolicy('other', {})",
        "document.createElement('script').src = 'x.js'",
    ):
        assert stranger.evaluate(
            f"() => {{ try {{ {attempt}; return false }} catch {{ return true }} }}"
        ), attempt
    context.close()
