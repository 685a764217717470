"""Pages of the models of this launch, of presets, of configs that were sent and, if enabled, of
models on the hub; see `model_ids`.

The server's own process only keeps what was computed: others compute it, which can be killed.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence

from ...catalog import slugs
from .answering import answers_of
from .error_page import PageError
from .json_api import SENT
from .messages import Answer, Launch, pack_call
from .model_ids import is_hub_id
from .posted_configs import PostedConfig, PostedConfigs
from .work_slots import WorkSlots

_MAX_CACHED_PAGES = 16


class Pages:
    """Asks for pages and reports, and caches pages by the ids of their models."""

    def __init__(self, launch: Launch) -> None:
        self.models, self.hub, self.slugs = (
            tuple(launch.named_models),
            launch.hub,
            frozenset(slugs()),
        )
        self.cache: OrderedDict[tuple[str, ...], bytes] = OrderedDict()
        self.chunks: dict[int, bytes] = {}
        self.posted = PostedConfigs()
        self.work = WorkSlots(answers_of, launch)

    def initial_ids(self) -> tuple[str, ...]:
        """Return the ids of the first page: the models of this launch if there are one or two."""
        return self.models if len(self.models) in (1, 2) else ()

    def is_known(self, model_ids: Sequence[str]) -> bool:
        """Whether every id exists."""
        return all(
            x in self.slugs
            or x in self.models
            or x in self.posted.configs
            or (self.hub and is_hub_id(x))
            for x in model_ids
        )

    async def get(self, model_ids: tuple[str, ...], link_prefix: str) -> bytes:
        """Return the page of one or two models, or the page to choose one if there are no ids."""
        key = (*model_ids, link_prefix)
        if key in self.cache:
            self.cache.move_to_end(key)
            return self.cache[key]
        if not self.is_known(model_ids):
            again = (
                (" A config is kept until the server ends, or many more follow: open it again.")
                if _has_posted(model_ids)
                else ""
            )
            raise PageError(404, f"There is no model with this id.{again}")
        if model_ids:
            is_question = not self.slugs.issuperset(model_ids)
            found = await self._ask(
                "page",
                self._posted(model_ids),
                is_question=is_question,
                ids=model_ids,
                link_prefix=link_prefix,
            )
        else:
            entries = self.posted.newest_entries
            found = await self._ask("choose", {}, entries=entries)
            if entries != self.posted.newest_entries:
                return found.body
        self.cache[key] = found.body
        while len(self.cache) > _MAX_CACHED_PAGES:
            self.cache.popitem(last=False)
        return found.body

    async def gallery_chunk(self, text: str) -> bytes:
        """Return a part of the gallery, by its number."""
        if not (text.isascii() and text.isdigit() and len(text) < 6):
            raise PageError(404, "There is no part of the gallery with this number.")
        number = int(text)
        if number not in self.chunks:
            self.chunks[number] = (await self._ask("chunk", {}, number=number)).body
        return self.chunks[number]

    async def report(
        self,
        name: str,
        values: Sequence[tuple[str, str]],
        accepts_gzip: bool,
        sent: PostedConfig | None,
    ) -> Answer:
        """Return what a command prints; the model of a config that is sent is kept if it has a
        page.
        """
        configs = self._posted([x for _, x in values])
        lists = ""
        if sent is not None:
            configs[SENT] = sent
            lists = "" if sent.id in self.posted.configs else sent.id
        answer = await self._ask(
            "report",
            configs,
            is_question=True,
            name=name,
            values=values,
            accepts_gzip=accepts_gzip,
            lists=lists,
        )
        if sent is not None and answer.has_page:
            self._keep(sent, answer.entry)
        return answer

    async def header(self, sent: PostedConfig, size: int) -> Answer:
        """Return what the first bytes of a file say of its tensors."""
        return await self._ask("header", {SENT: sent}, is_question=True, size=size)

    def _keep(self, config: PostedConfig, entry: object) -> None:
        """Keep a config that was sent, and list it in the gallery."""
        self.posted.keep(config, self.posted.entries.get(config.id) if entry is None else entry)
        for key in [x for x in self.cache if len(x) == 1]:
            del self.cache[key]

    def _posted(self, names: Sequence[str]) -> dict[str, PostedConfig]:
        """Return the configs that are named."""
        return {x: self.posted.configs[x] for x in names if x in self.posted.configs}

    async def _ask(
        self,
        method: str,
        configs: dict[str, PostedConfig],
        *,
        is_question: bool = False,
        **arguments: object,
    ) -> Answer:
        answer = Answer.unpack(
            await self.work.ask(pack_call(method, configs, **arguments), is_question=is_question)
        )
        if answer.error:
            raise PageError(answer.status, answer.error)
        return answer


def _has_posted(model_ids: Sequence[str]) -> bool:
    """Whether one of these ids is of the form that configs have which were sent."""
    return any(re.fullmatch("~[0-9a-f]{12}", x) for x in model_ids)
