"""Figures of a site in the pages of others: the frame, the script, and policies that forbid them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from llamath.web.gallery.site_files import EMBED, write_gallery
from support.browser_page import browser, lent_page, visit

assert browser
LINK = '<a href="{site}/models/gpt2.html">GPT-2</a>'
SCRIPT = '<script src="{site}/embed.js" data-model="gpt2" data-figure="{figure}" async></script>'


class Host(SimpleHTTPRequestHandler):
    """A page named `reported` has a policy that forbids everything and enforces nothing."""

    def end_headers(self) -> None:
        if "reported" in self.path:
            self.send_header("Content-Security-Policy-Report-Only", "default-src 'none'")
        super().end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """Two origins on this machine: a site with figures, and a host with pages of its own."""
    site = tmp_path_factory.mktemp("embed") / "site"
    write_gallery(str(site), ["gpt2", "llama-2-7b", "llama-3-8b"], processes=1)
    pages = tmp_path_factory.mktemp("host")
    servers = [
        ThreadingHTTPServer(("127.0.0.1", 0), partial(Host, directory=str(x)))
        for x in (site, pages)
    ]
    for x in servers:
        threading.Thread(target=x.serve_forever, daemon=True).start()
    a, b = (f"http://127.0.0.1:{x.server_address[1]}" for x in servers)
    yield a, b, pages
    for x in servers:
        x.shutdown()
        x.server_close()


def host_page(folder: Path, name: str, body: str, policy: str = "") -> None:
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    (folder / name).write_text(f"<!doctype html><title>x</title>{meta}<body>{body}")


def test_frame_shows_one_figure_without_header(browser: Any, hosts: tuple[str, str, Path]) -> None:
    site, _, _ = hosts
    with lent_page(browser, 800, 600) as tab:
        for figure, inside in (("plate", ".plate"), ("memory", "#memory"), ("parameters", "h2")):
            visit(tab, "about:blank")
            visit(tab, f"{site}/models/gpt2.html#embed={figure}")
            assert tab.locator("main.embedded header, body > header").count() == 0
            assert tab.locator(inside).count(), figure
            link = tab.locator("main.embedded > p.caption a")
            assert "embed" not in link.get_attribute("href")


def test_foreign_figure_names_those_that_are_known(
    browser: Any, hosts: tuple[str, str, Path]
) -> None:
    site, _, _ = hosts
    with lent_page(browser, 800, 600) as tab:
        visit(tab, f"{site}/models/gpt2.html#embed=%3Cimg+src%3Dx%3E")
        said = tab.text_content(".callout")
        assert "<img src=x>" in said and "plate" in said and "memory" in said
        assert tab.locator("img").count() == 0


def test_script_inserts_a_frame_of_the_figures_height(
    browser: Any, hosts: tuple[str, str, Path]
) -> None:
    site, host, folder = hosts
    host_page(folder, "open.html", (LINK + SCRIPT).format(site=site, figure="plate"))
    with lent_page(browser, 800, 600) as tab:
        tab.goto(f"{host}/open.html")
        tab.wait_for_function("Number(document.querySelector('iframe')?.height) > 0")
        tab.wait_for_function("document.querySelector('iframe').height !== '480'")
        frame = tab.frame_locator("iframe").locator("main.embedded")
        height = tab.evaluate("Number(document.querySelector('iframe').height)")
        assert abs(frame.evaluate("(x) => x.scrollHeight") - height) <= 1
        # a stranger's message changes nothing
        tab.evaluate("postMessage({ llamathHeight: 7 }, '*')")
        tab.evaluate("new Promise((done) => setTimeout(done))")
        assert tab.evaluate("Number(document.querySelector('iframe').height)") == height


@pytest.mark.parametrize(
    ("policy", "frames"),
    [
        ("default-src 'none'", 0),
        ("default-src 'none'; script-src {site}", 0),
        ("default-src 'none'; script-src {site}; frame-src {site}", 1),
    ],
)
def test_strict_policy_leaves_the_link_or_admits_the_frame(
    browser: Any, hosts: tuple[str, str, Path], policy: str, frames: int
) -> None:
    site, host, folder = hosts
    body = (LINK + SCRIPT).format(site=site, figure="plate")
    name = f"strict-{len(policy)}.html"  # of its own: the browser keeps pages
    host_page(folder, name, body, policy.format(site=site))
    with lent_page(browser, 800, 600) as tab:
        tab.goto(f"{host}/{name}", wait_until="load")
        tab.locator("iframe").wait_for(state="attached" if frames else "detached")
        if frames:
            tab.frame_locator("iframe").locator("main.embedded h1").wait_for()
        assert tab.get_attribute("a", "href") == f"{site}/models/gpt2.html"


def test_policy_that_only_reports_leaves_the_frame(
    browser: Any, hosts: tuple[str, str, Path]
) -> None:
    site, host, folder = hosts
    host_page(folder, "reported.html", (LINK + SCRIPT).format(site=site, figure="plate"))
    with lent_page(browser, 800, 600) as tab:
        tab.add_init_script(
            """globalThis.reported = [];
            document.addEventListener("securitypolicyviolation", (x) => {
                if (x.effectiveDirective === "frame-src") reported.push(x.disposition);
            });"""
        )
        tab.goto(f"{host}/reported.html", wait_until="load")
        tab.frame_locator("iframe").locator("main.embedded h1").wait_for()
        assert set(tab.evaluate("reported")) == {"report"}


def test_script_is_small_and_evaluates_nothing(hosts: tuple[str, str, Path]) -> None:
    from llamath.web.server.page_html import read_asset

    text = read_asset(EMBED)
    assert len(text.encode()) < 2000
    assert not any(x in text for x in ("eval(", "Function(", "innerHTML", ".style"))


def test_menu_copies_what_other_pages_need(browser: Any, hosts: tuple[str, str, Path]) -> None:
    site, other, pages = hosts
    with lent_page(browser, 1100, 800) as tab:
        visit(tab, f"{site}/models/gpt2.html")
        tab.evaluate(
            "() => { globalThis.taken = []; navigator.clipboard.writeText = async (x) => taken.push(x); }"
        )
        for form in ("iframe", "script"):
            tab.locator("#memory [aria-label^='Copy or save']").click()
            tab.locator(f"#memory [aria-label$='as {form}']").click()
        frame, script = (str(x) for x in tab.evaluate("taken"))
    assert f'src="{site}/embed.js" data-model="gpt2" data-figure="memory"' in script
    for name, text in (("frame.html", frame), ("script.html", script)):
        host_page(pages, name, text)
        with lent_page(browser, 900, 700) as tab:
            tab.goto(f"{other}/{name}")
            tab.frame_locator("iframe").locator("main.embedded #memory").wait_for()
