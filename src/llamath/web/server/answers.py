"""What a process of the server computes: pages, parts of the gallery and reports, each from one
message.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ...model import FamilyModel, Model, with_family
from ...utils.errors import LlamathError, worded
from .error_page import PageError, error_json
from .json_api import SENT
from .messages import Answer, Launch, unpack_call
from .model_ids import find_named, is_hub_id, load_hub_model, load_preset, refuse_huge
from .page_html import page_from_data
from .posted_configs import UNNAMED, PostedConfig

if TYPE_CHECKING:
    from ..gallery.live_gallery import LiveGallery

_MIN_COMPRESSED, _MAX_NOTES = 1000, 1500
"""The shortest answer that is compressed, in bytes, and the longest notes of a header, in
characters."""


class Answers:
    """Answers messages with the models of the launch; what one needs is imported when it is
    asked for, so that the first one waits less.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch, self.models, self.tools = launch, launch.named_models, launch.api()
        self.configs: dict[str, PostedConfig] = {}

    def __call__(self, message: bytes) -> bytes:
        """Return the answer to a message."""
        method, arguments, self.configs = unpack_call(message)
        methods: dict[str, Callable[..., Answer]] = {
            "page": self.page,
            "choose": self.choose,
            "chunk": self.chunk,
            "report": self.report,
            "header": self.header,
        }
        try:
            with worded(self.launch.words):
                return methods[method](**arguments).pack()
        except LlamathError as error:
            return Answer(
                status=error.status if isinstance(error, PageError) else 422, error=str(error)
            ).pack()

    @property
    def gallery(self) -> LiveGallery:
        """The gallery of the models of the launch."""
        from ..gallery.live_gallery import LiveGallery

        return LiveGallery(self.models, self.launch.hub)

    def page(self, ids: Sequence[str], link_prefix: str) -> Answer:
        """Return the page of one or two models."""
        from ..page_data.live.live_data import bundled_live_parts
        from ..page_data.page_data import build_page_data

        models = [self._shown_model(x) for x in ids]
        for model in models:
            refuse_huge(model)
        live = bundled_live_parts(models)
        data = build_page_data(models, live) | {"served": {"up": link_prefix, "ids": list(ids)}}
        return Answer(body=page_from_data(data, live, connects=True).encode())

    def choose(self, entries: Sequence[Any]) -> Answer:
        """Return the page to choose a model, with the entries of configs that were sent."""
        return Answer(body=self.gallery.page(entries).encode())

    def chunk(self, number: int) -> Answer:
        """Return a part of the gallery's data."""
        if number >= self.gallery.num_chunks:
            raise PageError(404, "There is no part of the gallery with this number.")
        return Answer(
            body=json.dumps(
                self.gallery.chunk(number), ensure_ascii=False, separators=(",", ":")
            ).encode()
        )

    def report(
        self, name: str, values: Sequence[tuple[str, str]], accepts_gzip: bool, lists: str
    ) -> Answer:
        """Return what a command prints, and the entry of the config that was sent if its id to
        be is given by `lists`.
        """
        answer = self.tools[name].answer([(key, value) for key, value in values], self._named_model)
        data = answer.text.encode()
        headers = {"Llamath-Exit-Code": str(2 if answer.error else answer.exit_code)}
        if answer.notes and not answer.error:
            headers["Llamath-Notes"] = json.dumps(" ".join(answer.notes.split())[:_MAX_NOTES])
        if accepts_gzip and len(data) >= _MIN_COMPRESSED:
            headers["Content-Encoding"] = "gzip"
            data = gzip.compress(data, 5, mtime=0)
        sent = self.configs.get(SENT)
        shown = None if sent is None or answer.error is not None else sent.shown_model
        entry = None
        if shown is not None and lists:
            from ..gallery.gallery_entry import gallery_entry

            entry = gallery_entry(shown, lists)
        return Answer(
            status=answer.status,
            body=data,
            headers=headers,
            has_page=shown is not None,
            entry=entry,
        )

    def header(self, size: int) -> Answer:
        """Return what the first bytes of a file say of its tensors; `size` is that of the file."""
        from .dropped_headers import header_json

        sent = self.configs[SENT]
        try:
            return Answer(body=header_json(sent.data, sent.name or UNNAMED, size).encode())
        except LlamathError as error:
            status = error.status if isinstance(error, PageError) else 422
            refusal = PageError(status, str(error), hint=error.hint)
            return Answer(status=status, body=error_json(refusal).encode())

    def _named_model(self, text: str) -> Model:
        """Return the model that a request of the API names.

        It is `-`, the config that was sent, `~1`, the id of a config that was sent before, a
        preset, ModelArgs, or a repository on the hub if that is enabled.
        """
        own = self._own_model(text)
        return (
            find_named(text, self.launch.hub_limits if self.launch.hub else None)
            if own is None
            else own
        )

    def _shown_model(self, model_id: str) -> FamilyModel:
        own = self._own_model(model_id)
        if own is not None:
            sent = self.configs.get(model_id)
            return (sent and sent.shown_model) or with_family(own)
        if is_hub_id(model_id):
            return with_family(load_hub_model(model_id, self.launch.hub_limits))
        return load_preset(model_id)

    def _own_model(self, text: str) -> Model | None:
        return self.configs[text].model if text in self.configs else self.models.get(text)
