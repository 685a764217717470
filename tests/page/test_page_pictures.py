"""The pictures of the page do not change unnoticed: their shapes, colours, places and labels."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from llamath.web.gallery.site_files import write_gallery
from llamath.web.server.page_html import page_from_data
from support import page_models
from support.browser_page import UNFOLD, browser, lent_page, visit, wait_until_drawn
from support.picture_text import FIXED_SIZES, PICTURE_NODES, TOKENS, picture_text
from support.release import usual

assert browser
GOLDEN = Path(__file__).parents[1] / "golden" / "pictures"


class Picture(NamedTuple):
    """Elements of a page of one or two models, or of the gallery, drawn for a width."""

    models: str
    elements: str
    width: int = 900
    state: str = ""


PICTURES = {
    "model-dense": Picture("llama-3-8b", ".plate-whole .skyline", 1000),
    "model-moe": Picture("deepseek-v3", ".plate-whole .skyline", 1000),
    "model-hybrid": Picture("qwen3-next-80b-a3b", ".plate-whole .skyline", 1000),
    "model-multimodal": Picture("gemma-3-27b", ".plate-whole .skyline", 1000),
    "model-phone": Picture("deepseek-v3", ".plate-whole .skyline", 340),
    "block-dense": Picture("llama-3-8b", ".layer-picture", 1200),
    "block-moe": Picture("deepseek-v3", ".layer-picture", 1200),
    "block-hybrid": Picture("qwen3-next-80b-a3b", ".layer-picture", 1200, "#layer=0"),
    "block-phone": Picture("llama-3-8b", ".layer-picture, .plate-scene ol", 340),
    "block-phone-moe": Picture("deepseek-v3", ".layer-picture", 340),
    "matrix": Picture("llama-3-8b", ".plate-scene svg", 900, "#zoom=attn%2Fattn.k"),
    "parameters": Picture("mixtral-8x7b", ".icicle svg"),
    "attention": Picture("llama-3-8b", ".attention-cards svg", 320),
    "masks": Picture("gemma-3-27b", ".mask-card svg", 300),
    "masks-chunked": Picture("llama-4-scout", ".mask-card svg", 300),
    "positions": Picture("llama-3.1-8b", "#positions svg", 640),
    "experts": Picture("gpt-oss-20b", ".experts-pair svg", 560, "#batch=4"),
    "memory": Picture("llama-3-8b", ".memory-chart svg", 760, "#context=32768&batch=4"),
    "memory-training": Picture("llama-3-8b", ".memory-chart svg", 760, "#mode=train"),
    "memory-map": Picture("llama-3-8b", ".memory-map svg", 760, "#context=32768&batch=4"),
    "speed": Picture("llama-3-8b", "#speed svg", 560),
    "hardware": Picture("llama-3.1-70b", "table.hardware"),
    "layouts": Picture("llama-3.1-405b", "#layouts svg", 700),
    "difference": Picture("llama-2-7b llama-3-8b", "table.waterfall, #shapes svg", 700),
    "gallery-cards": Picture("gallery", ".card svg", 252, "#view=cards"),
}
GALLERY = ["llama-3-8b", "deepseek-v3", "qwen3-next-80b-a3b", "gemma-3-27b"]


def data_of(models: str) -> dict[str, Any]:
    return page_models.data_of(*models.split())


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery") / "site"
    write_gallery(str(folder), GALLERY, processes=1)
    return folder / "index.html"


@contextmanager
def drawn_page(browser: Any, path: Path, picture: Picture) -> Iterator[Any]:
    """Open a page whose pictures have this width, and labels the widths of `FIXED_SIZES`."""
    width = "Number(new URLSearchParams(location.search).get('width'))"
    scripts = [f"globalThis.pictureWidth = {width}; {FIXED_SIZES}"]
    look = {"color_scheme": "light", "reduced_motion": "reduce"}
    with lent_page(browser, 1440, 900, scripts, **look) as tab:
        visit(tab, f"{path.as_uri()}?width={picture.width}{picture.state}")
        tab.evaluate(UNFOLD)
        wait_until_drawn(tab)
        yield tab


def text_of(tab: Any, elements: str) -> str:
    return picture_text(tab.locator(elements).evaluate_all(PICTURE_NODES, TOKENS))


def page_of(picture: Picture, folder: Path, gallery: Path) -> Path:
    if picture.models == "gallery":
        return gallery
    path = folder / "page.html"
    path.write_text(page_from_data(data_of(picture.models)))
    return path


MUTATIONS = {
    "another colour": "(all) => { all.find((x) => x.matches('rect, path')).style.fill = 'var(--c-vision)'; }",
    "a shape is missing": "(all) => { all.findLast((x) => x.matches('rect, path, circle')).remove(); }",
    "a shape is moved": "(all) => { const x = all.find((x) => x.matches('rect:not(.hit)')); x.setAttribute('x', Number(x.getAttribute('x')) + 2); }",
    "a shape is larger": "(all) => { const x = all.find((x) => x.matches('rect:not(.hit)')); x.setAttribute('height', Number(x.getAttribute('height')) + 2); }",
    "labels are swapped": """(all) => {
      const [a, ...rest] = all.filter((x) => x.matches('text'));
      const b = rest.find((x) => x.textContent !== a.textContent);
      [a.textContent, b.textContent] = [b.textContent, a.textContent];
    }""",
}
"""Changes of a picture; `all` are its shapes and labels."""


CHANGED = {"model-moe", "block-moe", "memory", "memory-map", "experts"}
"""Pictures that are changed after they were compared: the text shows each change."""
USUAL = [
    "block-phone",
    "difference",
    "gallery-cards",
    "hardware",
    "masks",
    "model-hybrid",
    "parameters",
]
USUAL += sorted(CHANGED)
"""Pictures that `make test` compares, one of each kind."""


@pytest.mark.parametrize("name", usual(*USUAL, release=PICTURES))
def test_golden_picture(browser: Any, tmp_path: Path, gallery: Path, name: str) -> None:
    picture, path = PICTURES[name], GOLDEN / f"{name}.txt"
    with drawn_page(browser, page_of(picture, tmp_path, gallery), picture) as tab:
        text = text_of(tab, picture.elements)
        if os.environ.get("LLAMATH_GOLDEN"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), (
            "LLAMATH_GOLDEN=1 writes it anew; look at the picture and read the difference"
        )
        for mutation in MUTATIONS.values() if name in CHANGED else ():
            shapes = f"({mutation})([...document.querySelector('{picture.elements}').querySelectorAll('*:not(pattern *, clipPath *)')])"
            tab.evaluate(f"() => {{ {shapes} }}")
            after = text_of(tab, picture.elements)
            assert after != text, mutation
            text = after


def test_every_golden_picture_is_tested() -> None:
    assert {x.stem for x in GOLDEN.iterdir()} == set(PICTURES)


def test_golden_pictures_show_a_missing_layer(browser: Any, tmp_path: Path) -> None:
    data = page_models.as_made(deepcopy(data_of("deepseek-v3")))
    data["models"][0]["plate"]["order"][1][1] -= 1
    path = tmp_path / "page.html"
    path.write_text(page_from_data(data))
    with drawn_page(browser, path, PICTURES["model-moe"]) as tab:
        assert (
            text_of(tab, PICTURES["model-moe"].elements) != (GOLDEN / "model-moe.txt").read_text()
        )
