"""Does every number that the page shows open a derivation that contains it?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from support.browser_page import go_to

COLLECT_NUMBERS_JS = """([excluded, names, within]) => {
  HTMLDialogElement.prototype.showModal = function () { this.setAttribute("open", ""); };
  const [found, cache] = [[], new Map()];
  const chainsOf = () => [...document.querySelectorAll("dialog[open] pre[aria-label=formula]")].map((y) => y.textContent);
  const until = async (holds) => {
    // the page draws before the task ends; frames are for what it animates
    for (let left = 60; !holds() && left; left -= 1) await (left > 50 ? null : new Promise(requestAnimationFrame));
  };
  const open = async (x) => {
    if (cache.has(x)) return cache.get(x);
    x.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    await until(() => document.querySelector("dialog[open]"));
    cache.set(x, { chains: chainsOf(), keys: x.localName === "button" || x.hasAttribute("tabindex") });
    for (const dialog of document.querySelectorAll("dialog[open]")) {
      dialog.removeAttribute("open");
      dialog.dispatchEvent(new Event("close"));
    }
    await until(() => !document.querySelector("dialog"));
    return cache.get(x);
  };
  const places = [];
  const walker = document.createTreeWalker(document.getElementById("page"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const { parentElement: place, data } = walker.currentNode;
    if (!/\\d/.test(data) || place.closest("title, desc, .hidden, dialog") || (excluded && place.closest(excluded)) || !place.checkVisibility()) continue;
    if (!place.closest(within)) continue;
    let text = data;
    for (const x of names) text = text.replaceAll(x, "");
    if (/\\d/.test(text)) places.push([place, text]);
  }
  return (async () => {
    for (const [place, text] of places) {
      const own = place.closest("button.number, [role=button]");
      const around = own ? [own] : [...(place.closest("tr, li, p > span")?.querySelectorAll(".number") ?? [])];
      const opened = [];
      for (const x of around) opened.push(await open(x));
      found.push([text, opened.flatMap((x) => x.chains), around.length > 0 && opened.every((x) => x.keys), place.outerHTML.slice(0, 160)]);
    }
    return found;
  })();
}"""
NUMBER = re.compile(r"\d(?:[\d,.]*\d)?(?:%|[KMBT]\b| Gi?B\b)?")


def names_with_digits(data: dict[str, Any]) -> list[str]:
    """Return the names of models, dtypes and GPUs that contain digits, longest first."""
    names = [
        y
        for x in data["models"]
        for y in (x["name"], *(z["name"] for z in (*x["sizes"]["dtypes"], *x["sizes"]["kvs"])))
    ]
    names += [y for x in data["gpus"] for y in (x["name"], x["title"])]
    return sorted({x for x in names if re.search(r"\d", x)}, key=len, reverse=True)


def numbers_without_formula(text: str, chains: Sequence[str]) -> list[str]:
    """Return the numbers of a text that are in no formula; a formula has letters first, then numbers."""
    known: set[str] = set()
    for chain in chains:
        letters, *rest = chain.split("\n= ")
        if re.search(r"[^\W\d]", letters):
            known |= {x.replace(",", "") for part in rest for x in NUMBER.findall(part)}
    return [x for x in NUMBER.findall(text) if x.replace(",", "") not in known]


def unexplained_numbers(
    tab: Any, data: dict[str, Any], at: str, within: str, excluded: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """Return the numbers of a state, in the elements that `within` selects, without a derivation that contains them."""
    go_to(tab, at)
    found = tab.evaluate(COLLECT_NUMBERS_JS, [", ".join(excluded), names_with_digits(data), within])
    assert found, (at, within)
    return [
        (at, x, text.strip()[:60], html)
        for text, chains, keys, html in found
        for x in numbers_without_formula(text, chains) or ([] if keys else ["no key"])
    ]


OPEN_NUMBERS_JS = """(within) => {
  HTMLDialogElement.prototype.showModal = function () { this.setAttribute("open", ""); };
  for (const x of document.querySelectorAll("details")) x.open = true;
  const seen = (globalThis.openedNumbers ??= new Set());
  const until = async (holds) => {
    // the page draws before the task ends; frames are for what it animates
    for (let left = 60; !holds() && left; left -= 1) await (left > 50 ? null : new Promise(requestAnimationFrame));
  };
  return (async () => {
    const found = [];
    for (const x of document.querySelectorAll("button.number")) {
      if (!x.closest(within) || x.closest("dialog") || !x.checkVisibility()) continue;
      const label = x.querySelector(".hidden")?.textContent ?? "";
      const text = x.textContent.slice(label.length);
      // of another state of the page
      const row = x.closest("tr, li");
      const same = JSON.stringify([x.closest("section[id]")?.id, row?.textContent, x.className, label, text]);
      if (seen.has(same)) continue;
      seen.add(same);
      x.click();
      await until(() => document.querySelector("dialog[open]"));
      found.push([text, [...document.querySelectorAll("dialog[open] pre[aria-label=formula]")].map((y) => y.textContent)]);
      for (const dialog of document.querySelectorAll("dialog[open]")) {
        dialog.removeAttribute("open");
        dialog.dispatchEvent(new Event("close"));
      }
      await until(() => !document.querySelector("dialog"));
    }
    return found;
  })();
}"""


def opened_numbers(tab: Any, at: str, within: str) -> list[tuple[str, list[str]]]:
    """Return the text of every number button of a state, with the formulas of its dialog: of those
    that an earlier state of this page has not shown beside the same text.
    """
    go_to(tab, at)
    found = tab.evaluate(OPEN_NUMBERS_JS, within)
    return [(text, chains) for text, chains in found]
