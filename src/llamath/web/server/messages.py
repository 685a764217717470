"""What the server's process and those that compute for it say to each other.

A message is a line of JSON, with the name of a method of `Answers` and its arguments, and the
configs that it needs. An answer is a line of JSON and the body of the response.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...checkpoint.hub import Limits
from ...model import FamilyModel
from ...utils.errors import Wording
from ...utils.record_type import Record
from .posted_configs import PostedConfig

if TYPE_CHECKING:
    from .json_api import Api


class Launch(Record):
    """What the server was started with: its models, where it may look for others, and the
    function that returns its tools; its errors are in the words of whoever started it.
    """

    models: tuple[FamilyModel, ...]
    api: Callable[[], Api]
    hub: bool
    hub_limits: Limits
    words: Wording

    @property
    def named_models(self) -> dict[str, FamilyModel]:
        """The models by their ids."""
        return {f"~{i}": x for i, x in enumerate(self.models, 1)}


class Answer(Record):
    """The body of a response, its headers, and its status; `error` is the message of a page that
    cannot be shown.

    `has_page` says that the config that was sent has one, and `entry` is what the gallery shows of
    it, if that was asked for.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}
    error: str = ""
    has_page: bool = False
    entry: Any = None

    def pack(self) -> bytes:
        """Return the answer as bytes."""
        head = {name: getattr(self, name) for name in self.fields if name != "body"}
        return json.dumps(head).encode() + b"\n" + self.body

    @classmethod
    def unpack(cls, data: bytes) -> Answer:
        """Read an answer."""
        head, _, body = data.partition(b"\n")
        return cls(**json.loads(head), body=body)


def pack_call(method: str, configs: Mapping[str, PostedConfig], **arguments: Any) -> bytes:
    """Return a message: a method of `Answers`, its arguments, and configs by their names."""
    sizes = [(key, x.name, len(x.data)) for key, x in configs.items()]
    return b"".join(
        [
            json.dumps([method, arguments, sizes]).encode(),
            b"\n",
            *(x.data for x in configs.values()),
        ]
    )


def unpack_call(message: bytes) -> tuple[str, dict[str, Any], dict[str, PostedConfig]]:
    """Read a message: a method, its arguments, and configs by their names."""
    head, _, rest = message.partition(b"\n")
    method, arguments, sizes = json.loads(head)
    configs, start = {}, 0
    for key, name, size in sizes:
        configs[key] = PostedConfig(rest[start : start + size], name)
        start += size
    return method, arguments, configs
