"""Pages of the models of this launch, of presets and, if enabled, of models on the hub.

The id of a model is a preset's slug, `~1` for the first model of this launch, or `hub:owner:name`; paths and addresses are never ids.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence

from ...catalog import read_preset, slugs
from ...checkpoint.hub import Limits, read_config
from ...loading import load
from ...model import Model
from ...utils.errors import ConfigError, LlamathError, RemoteError, safe
from ..page_data.page_data import build_page_data
from .chooser import chooser_page
from .page_html import page_from_data

_MAX_CACHED_PAGES, _MAX_CONCURRENT, _MAX_WAITING, _WAIT_SECONDS = 16, 2, 16, 20
"""Cached pages, concurrent page builds, waiting requests, and the time limit of waiting."""
_HUB_ID = re.compile(r"hub:([A-Za-z0-9][A-Za-z0-9._-]{0,95}):([A-Za-z0-9][A-Za-z0-9._-]{0,95})", re.ASCII)
HUB_LIMITS = Limits(connect=5, read=10, response=12, session=15, redirects=3)
_MAX_LAYERS = 1000
"""The largest number of layers of a model from the hub; the time to build a page grows with it."""


class PageError(LlamathError):
    """A page that cannot be shown, with the HTTP status of the response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Pages:
    """Builds and caches pages by the ids of their models."""

    def __init__(self, models: Sequence[Model], hub: bool = False, hub_limits: Limits = HUB_LIMITS) -> None:
        self.models = {f"~{i}": x for i, x in enumerate(models, 1)}
        self.hub, self.hub_limits, self.slugs = hub, hub_limits, frozenset(slugs())
        self.cache: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self.slots, self.waiting = asyncio.Semaphore(_MAX_CONCURRENT), 0

    def initial_ids(self) -> tuple[str, ...]:
        """Return the ids of the first page: the models of this launch if there are one or two."""
        return tuple(self.models) if len(self.models) in (1, 2) else ()

    def is_known(self, model_ids: Sequence[str]) -> bool:
        """Whether every id exists."""
        return all(x in self.slugs or x in self.models or (self.hub and _HUB_ID.fullmatch(x)) for x in model_ids)

    async def get(self, model_ids: tuple[str, ...], link_prefix: str) -> str:
        """Return the page of one or two models, or the page to choose one if there are no ids."""
        key = (*model_ids, link_prefix)
        if key in self.cache:
            self.cache.move_to_end(key)
            return self.cache[key]
        if not self.is_known(model_ids):
            raise PageError(404, "There is no model with this id.")
        text = await self._in_thread(lambda: self._build(model_ids, link_prefix))
        self.cache[key] = text
        while len(self.cache) > _MAX_CACHED_PAGES:
            self.cache.popitem(last=False)
        return text

    async def _in_thread(self, build: Callable[[], str]) -> str:
        """Run `make` in a thread; it occupies a slot until the thread ends, even if the request was cancelled."""
        if self.waiting >= _MAX_WAITING:
            raise PageError(429, "Too many requests; try again in a moment.")
        self.waiting += 1
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await self.slots.acquire()
                task = asyncio.ensure_future(asyncio.to_thread(build))
                task.add_done_callback(self._release_slot)
                return await asyncio.shield(task)
        except TimeoutError:
            raise PageError(429, "The server is busy; try again in a moment.") from None
        finally:
            self.waiting -= 1

    def _release_slot(self, task: asyncio.Future[str]) -> None:
        self.slots.release()
        if not task.cancelled():
            task.exception()

    def _build(self, model_ids: tuple[str, ...], link_prefix: str) -> str:
        if not model_ids:
            return chooser_page(tuple(self.models.values()), self.hub)
        models = [
            self.models.get(x) or (_load_hub_model(x, self.hub_limits) if _HUB_ID.fullmatch(x) else load_preset(x)) for x in model_ids
        ]
        return page_from_data(build_page_data(models) | {"served": {"up": link_prefix, "ids": list(model_ids)}})


def load_preset(slug: str) -> Model:
    """Load the preset of a slug, never a file of that name."""
    preset = read_preset(slug)
    return load(preset.config).replace(name=preset.name, source=f"preset {slug}: {preset.source}")


def _load_hub_model(model_id: str, limits: Limits = HUB_LIMITS) -> Model:
    """Load a model from its config on the hub; nothing else of the repository is read."""
    match = _HUB_ID.fullmatch(model_id)
    assert match is not None
    name = f"{match[1]}/{match[2]}"
    try:
        config, source = read_config(f"hf://{name}", limits=limits)
    except RemoteError as error:
        raise PageError(404 if error.code in ("missing", "id") else 424, str(error)) from None
    except LlamathError as error:
        raise PageError(422, str(error)) from None
    try:
        model = load(config)
        if len(model.tree.layers) > _MAX_LAYERS:
            raise ConfigError(f"{name} has {len(model.tree.layers):,} layers, and pages are limited to {_MAX_LAYERS:,}")
    except LlamathError as error:
        raise PageError(422, f"{error}. {error.hint}".removesuffix(". ")) from None
    return model.replace(name=name, source=safe(source))
