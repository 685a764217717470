"""The pages that exist, and how they are made: of the launch's models, of presets and, if enabled, of models on the hub.

The id of a model is a preset's slug, `~1` for the first model of the launch, or `hub:owner:name`; paths and addresses are never ids.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence

from ...catalog import read_preset, slugs
from ...checkpoint.hub import Limits, read_config
from ...core.errors import ConfigError, LlamathError, RemoteError, safe
from ...loading import load
from ...model import Model
from ..page_data.page_data import build_page_data
from .chooser import chooser_page
from .page_html import page_from_data

MAX_CACHED_PAGES, MAX_CONCURRENT, MAX_WAITING, WAIT_SECONDS = 16, 2, 16, 20
"""Cached pages, concurrent page builds, waiting requests, and the time limit of waiting."""
HUB_ID = re.compile(r"hub:([A-Za-z0-9][A-Za-z0-9._-]{0,95}):([A-Za-z0-9][A-Za-z0-9._-]{0,95})", re.ASCII)
HUB_LIMITS = Limits(connect=5, read=10, response=12, session=15, redirects=3)
MAX_LAYERS = 1000
"""The largest number of layers of a model from the hub; the time to build a page grows with it."""


class PageRefused(LlamathError):
    """A page is refused; `status` is the HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Pages:
    """Builds and caches pages by the ids of their models."""

    def __init__(self, own: Sequence[Model], hub: bool = False, hub_limits: Limits = HUB_LIMITS) -> None:
        self.own = {f"~{i}": x for i, x in enumerate(own, 1)}
        self.hub, self.hub_limits, self.known = hub, hub_limits, frozenset(slugs())
        self.cached: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self.gate, self.waiting = asyncio.Semaphore(MAX_CONCURRENT), 0

    def first(self) -> tuple[str, ...]:
        """The ids on the first page: the launch's models if there are one or two."""
        return tuple(self.own) if len(self.own) in (1, 2) else ()

    def is_known(self, wanted: Sequence[str]) -> bool:
        """Whether every id exists."""
        return all(x in self.known or x in self.own or (self.hub and HUB_ID.fullmatch(x)) for x in wanted)

    async def get(self, wanted: tuple[str, ...], up: str) -> str:
        """Return the page of one or two models, or without ids the page to choose one; `up` is the prefix of relative links."""
        key = (*wanted, up)
        if key in self.cached:
            self.cached.move_to_end(key)
            return self.cached[key]
        if not self.is_known(wanted):
            raise PageRefused(404, "No model with this id.")
        text = await self._in_thread(lambda: self._make(wanted, up))
        self.cached[key] = text
        while len(self.cached) > MAX_CACHED_PAGES:
            self.cached.popitem(last=False)
        return text

    async def _in_thread(self, make: Callable[[], str]) -> str:
        """Run `make` in a thread; it occupies a slot until the thread ends, even if the request was cancelled."""
        if self.waiting >= MAX_WAITING:
            raise PageRefused(429, "Too many requests; try again in a moment.")
        self.waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self.gate.acquire()
                work = asyncio.ensure_future(asyncio.to_thread(make))
                work.add_done_callback(self._ended)
                return await asyncio.shield(work)
        except TimeoutError:
            raise PageRefused(429, "This takes too long; try again in a moment.") from None
        finally:
            self.waiting -= 1

    def _ended(self, work: asyncio.Future[str]) -> None:
        self.gate.release()
        if not work.cancelled():
            work.exception()

    def _make(self, wanted: tuple[str, ...], up: str) -> str:
        if not wanted:
            return chooser_page(tuple(self.own.values()), self.hub)
        models = [self.own.get(x) or (load_hub_model(x, self.hub_limits) if HUB_ID.fullmatch(x) else load_preset(x)) for x in wanted]
        return page_from_data(build_page_data(models) | {"served": {"up": up, "ids": list(wanted)}})


def load_preset(slug: str) -> Model:
    """Load the preset of a slug, never a file of that name."""
    found = read_preset(slug)
    return load(found.config).replace(name=found.name, source=f"preset {slug}: {found.source}")


def load_hub_model(text: str, limits: Limits = HUB_LIMITS) -> Model:
    """Load a model from its config on the hub; nothing else of the repository is read."""
    found = HUB_ID.fullmatch(text)
    assert found is not None
    name = f"{found[1]}/{found[2]}"
    try:
        keys, where = read_config(f"hf://{name}", limits=limits)
    except RemoteError as error:
        raise PageRefused(404 if error.code in ("missing", "id") else 424, str(error)) from None
    except LlamathError as error:
        raise PageRefused(422, str(error)) from None
    try:
        model = load(keys)
        if len(model.tree.layers) > MAX_LAYERS:
            raise ConfigError(f"{name} has {len(model.tree.layers):,} layers, and pages are limited to {MAX_LAYERS:,}")
    except LlamathError as error:
        raise PageRefused(422, f"{error}. {error.hint}".removesuffix(". ")) from None
    return model.replace(name=name, source=safe(where))
