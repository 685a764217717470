"""A site with Pyodide counts a config of any family with the library itself, in Chromium, when it is asked to."""

from __future__ import annotations

import functools
import json
import re
import shutil
import threading
import zipfile
from collections.abc import Iterator
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from llamath.analysis.understand.count.count_report import CountReport
from llamath.analysis.understand.fact_sheet import fact_sheet
from llamath.loading import load_family
from llamath.utils.errors import LlamathError
from llamath.web.gallery.library_site import COUNT_PAGE, PYODIDE, packed_sources
from llamath.web.gallery.opened_config import answer
from llamath.web.gallery.site_files import write_gallery
from llamath.web.gallery.site_pages import site_policy
from support.browser_page import browser, new_context, shown_text, visit
from support.chromium import HANG_MS
from support.firefox import FIREFOX, Firefox
from support.page_models import page_of
from support.release import usual

assert browser
TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "web" / "node_modules" / "pyodide"
FILES = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
ARIA = json.loads((TESTS / "tiny_multimodal/aria.json").read_text())["plain"]
COUNTED = next(iter(json.loads((TESTS / "tiny/diffllama.json").read_text()).values()))
HOSTILE = "<img src=x onerror=pwned()>.json"
OFFER = "[data-part=library]"
ENDED = "#page:not([data-busy])"


def write_site(folder: Path, pyodide: dict[str, bytes]) -> Path:
    (folder / PYODIDE).mkdir(parents=True)
    for name, content in pyodide.items():
        (folder / PYODIDE / name).write_bytes(content)
    write_gallery(str(folder), ["gpt2"], processes=1)
    return folder


@pytest.fixture(scope="module")
def real_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not PACKAGE.is_dir():
        pytest.skip("the packages of web/ are not installed")
    folder = tmp_path_factory.mktemp("real") / "site"
    return write_site(folder, {x: (PACKAGE / x).read_bytes() for x in FILES})


def stub(answer: str) -> str:
    """A module in the place of Pyodide whose library answers by this code."""
    return (
        "export const loadPyodide = async () => ({ unpackArchive() {}, runPython() {}, "
        f"pyimport: () => ({{ answer(name, text) {{ {answer} }} }}) }});"
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site whose Pyodide is a stub, which tests choose."""
    folder = tmp_path_factory.mktemp("stub") / "site"
    return write_site(folder, dict.fromkeys(FILES, b""))


class Served:
    """A site on a local port, and what was asked of it."""

    def __init__(self, folder: Path) -> None:
        self.asked: list[str] = []
        asked = self.asked

        class Handler(SimpleHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                asked.append(self.path)

        handler = functools.partial(Handler, directory=str(folder))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: Any) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    context = new_context(browser, viewport={"width": 1024, "height": 800})
    context.add_init_script("globalThis.pwned = () => { throw new Error('pwned'); }")
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda x: wrong.append(str(x)))
    page.on("console", lambda x: wrong.append(x.text) if x.type in ("error", "warning") else None)
    yield page
    context.close()
    assert not wrong, wrong


def offered(tab: Any, address: str, config: Any, name: str = "config.json") -> None:
    """Open a config on a page of the site, until the page offers the library."""
    visit(tab, address)
    content = json.dumps(config).encode()
    file = {"name": name, "mimeType": "application/json", "buffer": content}
    tab.set_input_files("#file-input", files=[file])
    tab.wait_for_selector(OFFER)


def counting(tab: Any, address: str, config: Any, name: str = "config.json") -> None:
    offered(tab, address, config, name)
    tab.click(OFFER)
    tab.wait_for_url(f"**/{COUNT_PAGE}")


def policy_of(path: Path) -> str:
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', path.read_text())
    assert found is not None
    return unescape(found[1])


@pytest.mark.parametrize("at", usual("index.html", release=["models/gpt2.html"]))
def test_config_without_a_form_gets_its_whole_page(tab: Any, real_site: Path, at: str) -> None:
    model = load_family(ARIA)
    with Served(real_site) as served:
        elsewhere: list[str] = []
        tab.context.on(
            "request",
            lambda x: (
                None
                if x.url.startswith((served.address, f"blob:{served.address}"))
                else elsewhere.append(x.url)
            ),
        )
        offered(tab, served.address + at, ARIA)
        library = ("pyodide", "count", ".zip")
        assert not [x for x in served.asked if any(y in x for y in library)], "not asked for"
        tab.click(OFFER)
        tab.wait_for_url(f"**/{COUNT_PAGE}")
        tab.wait_for_selector("[data-part=parameters]")
        tab.wait_for_selector(ENDED)
        asked = [x.split("?")[0].rpartition("/")[2] for x in served.asked]
        assert set(FILES) <= set(asked) and not elsewhere, "from the site, and nowhere else"
        text = "".join(tab.locator("#page").all_text_contents())
        assert shown_text(tab, "[data-part=parameters]") == f"{model.parameters.total:,}"
        assert f"({model.parameters.active:,})" in text
        facts = fact_sheet(model)
        assert facts.description in text and f"{facts.kv_per_token} B per token" in text
        assert tab.title().startswith("config.json")
        all_models = tab.locator("header a", has_text="All models")
        assert all_models.get_attribute("href") == "index.html"
        assert tab.locator("text=Compare with…").count() == 0, "it is no model of the site"


@pytest.mark.release
def test_firefox_counts_the_same(real_site: Path, tmp_path: Path) -> None:
    if FIREFOX is None:
        pytest.skip("Firefox is not installed (as root, `make browser` installs it)")
    kept = json.dumps({"name": "config.json", "text": json.dumps(ARIA)})
    with Served(real_site) as served, Firefox(tmp_path) as firefox:
        firefox.open(f"{served.address}index.html")
        firefox.evaluate(f"sessionStorage.setItem('llamath-config', {json.dumps(kept)})")
        firefox.open(served.address + COUNT_PAGE)
        shown = firefox.evaluate("document.querySelector('[data-part=parameters]').textContent")
        assert shown == f"parameters: {load_family(ARIA).parameters.total:,}"
        probe = "require-trusted-types-for"  # Pyodide asks whether it may import scripts
        assert [x for x in firefox.errors if probe not in x] == []


BROKEN = dict(load_family("llama-3-8b").config.data) | {
    "num_attention_heads": 33,
    "attention_bias": True,
}


@pytest.mark.release
def test_broken_config_gets_the_error_of_the_library(tab: Any, real_site: Path) -> None:
    wrong = json.loads(answer("config.json", json.dumps(BROKEN), "{}"))["wrong"]
    with Served(real_site) as served:
        counting(tab, f"{served.address}index.html", BROKEN)
        tab.wait_for_selector(ENDED)
        assert wrong in tab.text_content("[role=status]")


def test_answer_is_what_the_library_counts() -> None:
    counted = json.loads(answer("config.json", json.dumps(COUNTED), "{}"))
    report = CountReport(model=load_family(COUNTED))
    assert set(counted) == {"title", "count"} and f"{report.total:,}" in counted["count"]
    table = str(report).partition("group ")[2]
    assert len(table) > 500 and table in counted["count"], "the table of `llamath count`"
    page = json.loads(answer("config.json", json.dumps(ARIA), "{}"))
    assert set(page) == {"title", "page"}
    for text in ("", "[]", "{", '{"model_type": "novel"}', '{"a": 1, "a": 2}', "9" * 9999):
        assert set(json.loads(answer("config.json", text, "{}"))) == {"wrong"}, text
    with pytest.raises(LlamathError) as caught:
        load_family(BROKEN)
    wrong = json.loads(answer("config.json", json.dumps(BROKEN), "{}"))["wrong"]
    assert str(caught.value).partition(": ")[2] in wrong
    huge = json.dumps(COUNTED | {"num_hidden_layers": 2000})
    assert "pages are limited" in json.loads(answer("config.json", huge, "{}"))["wrong"]


def test_only_the_page_that_counts_has_more_rights(site: Path) -> None:
    assert policy_of(site / "index.html") == policy_of(site / "models/gpt2.html") == site_policy()
    usual = site_policy().split("; ")
    counts = policy_of(site / COUNT_PAGE).split("; ")
    assert [x for x in counts if x not in usual] == [
        "script-src 'self' 'wasm-unsafe-eval'",
        "connect-src 'self'",
        "worker-src blob:",
        "trusted-types llamath-forms llamath-library",
    ]
    assert [x.split()[0] for x in usual if x not in counts] == ["script-src", "trusted-types"]


def test_exports_of_models_have_no_trace_of_it(site: Path) -> None:
    export = page_of("llama-3-8b")
    for text in ("pyodide", "llamath-library", "wasm-unsafe-eval", "connect-src", COUNT_PAGE):
        assert text not in export, text
        assert (text in (site / COUNT_PAGE).read_text()) or text in (COUNT_PAGE, "pyodide")


def test_worker_is_bound_by_the_policy_of_its_page(tab: Any, site: Path) -> None:
    """Also what is loaded into it reaches no other origin and makes no code from text."""
    with Served(site) as other, Served(site) as served:
        script = f"""
          const tried = [];
          try {{ new Function("1")(); tried.push("eval"); }} catch {{}}
          const request = new XMLHttpRequest();
          request.open("GET", "{other.address}index.html", false);
          try {{ request.send(); tried.push("request"); }} catch {{}}
          return JSON.stringify({{ title: "x", count: `tried: ${{tried}}.` }});"""
        (site / PYODIDE / "pyodide.mjs").write_text(stub(script))
        counting(tab, f"{served.address}index.html", ARIA)
        tab.wait_for_selector("pre")
        assert tab.text_content("pre") == "tried: ." and not other.asked


def test_names_and_answers_are_shown_as_text(tab: Any, site: Path) -> None:
    said = "<script>pwned()</script><img src=x onerror=pwned()>"
    returned = json.dumps({"title": said, "count": said})
    (site / PYODIDE / "pyodide.mjs").write_text(stub(f"return {json.dumps(returned)};"))
    with Served(site) as served:
        counting(tab, f"{served.address}index.html", ARIA, HOSTILE)
        tab.wait_for_selector("pre")
        assert tab.text_content("h1") == HOSTILE and tab.text_content("pre") == said
        assert tab.locator("img, pre script").count() == 0


def test_counting_that_hangs_is_stopped(tab: Any, site: Path) -> None:
    """By the reader while the page answers, and by itself after two minutes of the page's clock."""
    (site / PYODIDE / "pyodide.mjs").write_text(stub("for (;;);"))
    with Served(site) as served:
        counting(tab, f"{served.address}index.html", ARIA)
        tab.wait_for_selector("[role=status]:has-text('Counting')")
        assert len(tab.workers) == 1
        with tab.expect_event("load"):
            tab.click("text=Stop")
            assert tab.text_content("[role=status]") == "Stopped."
            assert tab.evaluate("document.activeElement.role") == "status"
            tab.clock.install()
            tab.click("text=Count it again")
        tab.wait_for_selector("[role=status]:has-text('Counting')")
        tab.clock.run_for(60_000)  # the clock goes on by itself, too
        assert tab.locator("text=Stop").count() == 1
        tab.clock.run_for(61_000)
        tab.wait_for_selector(ENDED)
        assert "not counted within two minutes" in tab.text_content("[role=status]")
        for _ in range(HANG_MS // 50):
            if not tab.workers:
                break
            tab.wait_for_timeout(50)  # the browser ends it in its own time
        assert not tab.workers


def test_library_that_does_not_run_can_be_tried_again(browser: Any, site: Path) -> None:
    """Its file is missing at first, then it ends in an error of many lines."""
    script = site / PYODIDE / "pyodide.mjs"
    script.unlink(missing_ok=True)
    context = new_context(browser)
    tab = context.new_page()
    with Served(site) as served:
        counting(tab, f"{served.address}index.html", ARIA)
        tab.wait_for_selector(ENDED)
        assert "The library does not run here: Failed to fetch" in tab.text_content("main")
        script.write_text(stub("throw new Error('Traceback\\n  at <b>\\nMemoryError: <i>');"))
        with tab.expect_event("load"):
            tab.click("text=Count it again")
        tab.wait_for_selector(ENDED)
        said = tab.text_content("[role=status]")
        assert said == "The library does not run here: MemoryError: <i>"
    context.close()


def test_nothing_is_offered_where_it_cannot_run(tab: Any, site: Path, tmp_path: Path) -> None:
    """From the disk, and of a config that is too long; a page without a config says where to open one."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps(ARIA))
    visit(tab, (site / "index.html").as_uri())
    tab.set_input_files("#file-input", str(config))
    tab.wait_for_selector(".wrong")
    assert tab.locator(OFFER).count() == 0
    with Served(site) as served:
        visit(tab, f"{served.address}index.html")
        config.write_text(json.dumps(ARIA | {"_long": "x" * 5_000_000}))
        tab.set_input_files("#file-input", str(config))
        tab.wait_for_selector(".wrong")
        assert tab.locator(OFFER).count() == 0
        visit(tab, served.address + COUNT_PAGE)
        assert "Open a config in the gallery" in tab.text_content("main")
        assert not [x for x in served.asked if PYODIDE in x]


def test_folder_of_pyodide_is_checked_and_kept(site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    shutil.copytree(site / PYODIDE, folder / PYODIDE)
    (folder / PYODIDE / "python_stdlib.zip").unlink()
    with pytest.raises(LlamathError, match=r"python_stdlib\.zip is missing"):
        write_gallery(str(folder), ["gpt2"], processes=1)
    (folder / PYODIDE / "python_stdlib.zip").write_bytes(b"x")
    for _ in range(2):  # into a folder with Pyodide alone, and in the place of a gallery
        write_gallery(str(folder), ["gpt2"], processes=1)
        assert {x.name for x in (folder / PYODIDE).iterdir()} == set(FILES)
        assert (folder / COUNT_PAGE).is_file()
    shutil.rmtree(folder / PYODIDE)
    write_gallery(str(folder), ["gpt2"], processes=1)
    assert not (folder / COUNT_PAGE).exists() and not list(folder.rglob("*.zip"))


def test_link_to_a_folder_stays_in_a_gallery(site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    write_gallery(str(folder), ["gpt2"], processes=1)
    (folder / PYODIDE).symlink_to(site / PYODIDE, target_is_directory=True)
    write_gallery(str(folder), ["gpt2"], processes=1)
    assert (folder / PYODIDE).is_symlink() and (folder / COUNT_PAGE).is_file()


def test_sources_are_packed_alike_and_small() -> None:
    packed = packed_sources()
    assert packed == packed_sources() and len(packed) < 3_000_000
    names = zipfile.ZipFile(BytesIO(packed)).namelist()
    assert (
        "llamath/web/gallery/opened_config.py" in names and "llamath/catalog/presets.json" in names
    )
    assert not [x for x in names if x.endswith((".safetensors", ".wasm", ".pyc"))]
