"""Configs that a page or a program sends: read within limits, built by `load`, and kept in memory,
the newest few.

A config is data: no key of it names a file or an address that is read. Its name only labels it.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ...checkpoint.open import FoundConfig
from ...loading import load
from ...model import FamilyModel, Model
from ...utils.errors import UnknownModel, safe
from ...utils.strict_json import CONFIG_FILES, parse_json
from .error_page import PageError
from .model_ids import refuse_huge

if TYPE_CHECKING:
    from starlette.requests import Request

MAX_POSTED = 4 << 20
"""Bytes of a config; the longest published ones have some hundred thousand."""
MAX_FIRST_BYTES = 64 << 20
"""Bytes of a file of weights in which its header is; published ones have up to 12 million."""
NAME_HEADER, ID_HEADER = "Llamath-Name", "Llamath-Model"
UNNAMED = "standard input"
"""What a config without a name is called, as by the command line, which reads it there."""
_SHOWN_UNNAMED = "your config"
"""What pages call it."""
_MAX_KEPT, _MAX_KEPT_BYTES, _MAX_NAME, _MAX_HEADER, _SECONDS = 16, 4 * MAX_POSTED, 80, 960, 10.0
_NAME = re.compile(r"(?:[!'()*A-Za-z0-9._~-]|%[0-9A-Fa-f]{2})*")
"""A name as browsers encode it; a character has up to four bytes."""


class UnsupportedConfig(UnknownModel):
    """A config that arrived, of a model that no family describes; unlike the name of no model,
    it is there.
    """


class PostedConfig:
    """A config that was sent; its model is built where it is asked for, which is in another
    process than the server's.
    """

    def __init__(self, data: bytes, name: str = "") -> None:
        self.data, self.name = data, safe(name, _MAX_NAME)
        self._given_name = name

    @cached_property
    def id(self) -> str:
        """The id, which is made of the content and the name."""
        name = self._given_name.encode("utf-8", "surrogatepass")
        return f"~{hashlib.sha256(name + bytes(1) + self.data).hexdigest()[:12]}"

    @cached_property
    def model(self) -> Model:
        """The model; one that is too large is refused."""
        # no path, so that no message depends on the files of this machine
        source = f"the file {self.name}" if self.name else UNNAMED
        keys = parse_json(self.data, source, finite=False)
        try:
            model = load(FoundConfig(name=self.name or UNNAMED, source=source, keys=keys))
        except UnknownModel as error:
            raise UnsupportedConfig(str(error), hint=error.hint) from None
        refuse_huge(model)
        return (
            model.replace(name=f"{self.name} ({model.family.name})")
            if self.name in CONFIG_FILES and isinstance(model, FamilyModel)
            else model
        )

    @property
    def shown_model(self) -> FamilyModel | None:
        """The model that a page can show; None if it was not asked for, could not be built, or has
        no family.
        """
        model: Model | None = vars(self).get("model")
        if not isinstance(model, FamilyModel):
            return None
        return model if self.name else model.replace(name=f"{_SHOWN_UNNAMED} ({model.family.name})")


class PostedConfigs:
    """The newest configs, with their entries of the gallery, by their ids; they are forgotten
    when the server ends.
    """

    def __init__(self) -> None:
        self.configs: dict[str, PostedConfig] = {}
        self.entries: dict[str, object] = {}

    @property
    def newest_entries(self) -> list[object]:
        """The entries, the newest first."""
        return [x for x in reversed(self.entries.values()) if x is not None]

    def keep(self, config: PostedConfig, entry: object) -> None:
        """Keep a config, and forget the oldest ones if there are too many or their content is
        too long.
        """
        self._forget(config.id)
        self.configs[config.id], self.entries[config.id] = config, entry
        while (
            len(self.configs) > _MAX_KEPT
            or sum(len(x.data) for x in self.configs.values()) > _MAX_KEPT_BYTES
        ):
            self._forget(next(iter(self.configs)))

    def _forget(self, config_id: str) -> None:
        self.configs.pop(config_id, None)
        self.entries.pop(config_id, None)


async def read_posted(request: Request) -> PostedConfig:
    """Read the body of a request, which the access policy has admitted by its declared length
    and type.
    """
    import asyncio

    try:
        async with asyncio.timeout(_SECONDS):
            data = await request.body()
    except TimeoutError:
        raise PageError(408, f"The config did not arrive within {_SECONDS:g} seconds.") from None
    name = request.headers.get(NAME_HEADER, "")
    if len(name) > _MAX_HEADER or not _NAME.fullmatch(name):
        raise PageError(
            400,
            f"{NAME_HEADER} should be a file name of at most {_MAX_NAME} characters, "
            f"percent-encoded: found {safe(repr(name), 60)}",
        )
    return PostedConfig(data, unquote(name))


async def discard_body(request: Request) -> None:
    """Read the body of a request that is refused, so that the client reads why, and not that its
    connection was reset.
    """
    import asyncio

    from starlette.requests import ClientDisconnect

    with suppress(ClientDisconnect, TimeoutError):
        async with asyncio.timeout(_SECONDS):
            async for _ in request.stream():
                pass
