"""Pages of the models of this launch, of presets and, if enabled, of models on the hub; see `model_ids`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

from ...catalog import slugs
from ...checkpoint.hub import Limits
from ...model import Model
from ..gallery.live_gallery import LiveGallery
from ..page_data.page_data import build_page_data
from .model_ids import HUB_LIMITS, find_named, is_hub_id, load_hub_model, load_preset, refuse_huge
from .page_html import page_from_data
from .work_slots import PageError, WorkSlots

_MAX_CACHED_PAGES = 16


class Pages:
    """Builds and caches pages by the ids of their models."""

    def __init__(self, models: Sequence[Model], hub: bool = False, hub_limits: Limits = HUB_LIMITS) -> None:
        self.models = {f"~{i}": x for i, x in enumerate(models, 1)}
        self.hub, self.hub_limits, self.slugs = hub, hub_limits, frozenset(slugs())
        self.cache: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self.gallery = LiveGallery(self.models, hub)
        self.work = WorkSlots()

    def initial_ids(self) -> tuple[str, ...]:
        """Return the ids of the first page: the models of this launch if there are one or two."""
        return tuple(self.models) if len(self.models) in (1, 2) else ()

    def is_known(self, model_ids: Sequence[str]) -> bool:
        """Whether every id exists."""
        return all(x in self.slugs or x in self.models or (self.hub and is_hub_id(x)) for x in model_ids)

    async def get(self, model_ids: tuple[str, ...], link_prefix: str) -> str:
        """Return the page of one or two models, or the page to choose one if there are no ids."""
        key = (*model_ids, link_prefix)
        if key in self.cache:
            self.cache.move_to_end(key)
            return self.cache[key]
        if not self.is_known(model_ids):
            raise PageError(404, "There is no model with this id.")
        text = await self.work.run(lambda: self._build(model_ids, link_prefix))
        self.cache[key] = text
        while len(self.cache) > _MAX_CACHED_PAGES:
            self.cache.popitem(last=False)
        return text

    async def gallery_chunk(self, text: str) -> dict[str, Any]:
        """Return a part of the gallery, by its number."""
        if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < self.gallery.num_chunks):
            raise PageError(404, "There is no part of the gallery with this number.")
        return await self.work.run(lambda: self.gallery.chunk(int(text)))

    def find_model(self, text: str) -> Model:
        """Return the model that a request of the API names: `~1`, a preset, ModelArgs, or a repository on the hub if that is enabled."""
        return self.models[text] if text in self.models else find_named(text, self.hub_limits if self.hub else None)

    def _build(self, model_ids: tuple[str, ...], link_prefix: str) -> str:
        if not model_ids:
            return self.gallery.page()
        models = [self.models.get(x) or (load_hub_model(x, self.hub_limits) if is_hub_id(x) else load_preset(x)) for x in model_ids]
        for model in models:
            refuse_huge(model)
        return page_from_data(build_page_data(models) | {"served": {"up": link_prefix, "ids": list(model_ids)}})
