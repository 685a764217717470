"""Pages of the models of this launch, of presets, of configs that were sent and, if enabled, of models on the hub; see `model_ids`."""

from __future__ import annotations

import re
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
from .posted_configs import PostedConfig, PostedConfigs
from .work_slots import PageError, WorkSlots

_MAX_CACHED_PAGES = 16


class Pages:
    """Builds and caches pages by the ids of their models."""

    def __init__(self, models: Sequence[Model], hub: bool = False, hub_limits: Limits = HUB_LIMITS) -> None:
        self.models = {f"~{i}": x for i, x in enumerate(models, 1)}
        self.hub, self.hub_limits, self.slugs = hub, hub_limits, frozenset(slugs())
        self.cache: OrderedDict[tuple[str, ...], str] = OrderedDict()
        self.posted = PostedConfigs()
        self.gallery = LiveGallery(self.models, hub)
        self.work = WorkSlots()

    def initial_ids(self) -> tuple[str, ...]:
        """Return the ids of the first page: the models of this launch if there are one or two."""
        return tuple(self.models) if len(self.models) in (1, 2) else ()

    def is_known(self, model_ids: Sequence[str]) -> bool:
        """Whether every id exists."""
        return all(x in self.slugs or x in self.models or x in self.posted.models or (self.hub and is_hub_id(x)) for x in model_ids)

    def keep(self, config: PostedConfig) -> None:
        """Keep the model of a config that was sent, and list it in the gallery."""
        self.posted.keep(config)
        for key in [x for x in self.cache if len(x) == 1]:
            del self.cache[key]

    async def get(self, model_ids: tuple[str, ...], link_prefix: str) -> str:
        """Return the page of one or two models, or the page to choose one if there are no ids."""
        key = (*model_ids, link_prefix)
        if key in self.cache:
            self.cache.move_to_end(key)
            return self.cache[key]
        if not self.is_known(model_ids):
            again = " A config is kept until the server ends, or many more follow: open it again." if _has_posted(model_ids) else ""
            raise PageError(404, f"There is no model with this id.{again}")
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
        """Return the model that a request of the API names.

        It is `~1`, the id of a config that was sent, a preset, ModelArgs, or a repository on the hub if that is enabled.
        """
        own = self.models.get(text) or self.posted.models.get(text)
        return find_named(text, self.hub_limits if self.hub else None) if own is None else own

    def _build(self, model_ids: tuple[str, ...], link_prefix: str) -> str:
        if not model_ids:
            return self.gallery.page(dict(reversed(self.posted.models.items())))
        models = [self._find(x) for x in model_ids]
        for model in models:
            refuse_huge(model)
        return page_from_data(build_page_data(models) | {"served": {"up": link_prefix, "ids": list(model_ids)}}, connects=True)

    def _find(self, model_id: str) -> Model:
        own = self.models.get(model_id) or self.posted.models.get(model_id)
        if own is not None:
            return own
        return load_hub_model(model_id, self.hub_limits) if is_hub_id(model_id) else load_preset(model_id)


def _has_posted(model_ids: Sequence[str]) -> bool:
    """Whether one of these ids is of the form that configs have which were sent."""
    return any(re.fullmatch("~[0-9a-f]{12}", x) for x in model_ids)
