"""`config`: the configuration said twice, as Hugging Face's keys and as Meta's `ModelArgs`, each key with what it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..args import ModelArgs, from_hf
from ..config import Config
from ..errors import ConfigError
from ..glossary import GLOSSARY, NOTHING
from ..record import Record

UNKNOWN = "not a key that is known here"


class Key(Record):
    """One key: its value, whether that is the family's default because the key is absent, what it says and what it moves."""

    key: str
    value: Any
    absent: bool
    says: str
    moves: str


class Configuration(Record):
    """Both sayings; `meta` is None where the reference cannot express the model, and `why` says why."""

    keys: tuple[Key, ...]
    meta: ModelArgs | None
    why: str = ""


def configuration(config: Config, own: bool) -> Configuration:
    """Explain a configuration that has been read; `own` says that its family is the one Meta's reference implements."""
    keys = [_key(name, value, config) for name, value in config.data.items()]
    keys += [_key(name, value, config) for name, value in config.absent.items() if name not in config.data]
    if not own:
        return Configuration(keys=tuple(keys), meta=None, why="Meta's reference implements the llama family alone")
    try:
        return Configuration(keys=tuple(keys), meta=from_hf(Config(config.data, config.source)))
    except ConfigError as error:
        return Configuration(keys=tuple(keys), meta=None, why=str(error))


def _key(name: str, value: object, config: Config) -> Key:
    says, moves = GLOSSARY.get(name) or (NOTHING.get(name, UNKNOWN), "nothing")
    return Key(key=name, value=value, absent=config.data.get(name) is None, says=says, moves=moves)


def params_json(args: ModelArgs) -> Mapping[str, Any]:
    """The fields that a published `params.json` has."""
    skipped = {"max_batch_size", "max_seq_len"} | ({"use_scaled_rope"} if not args.use_scaled_rope else set())
    return {name: value for name in args.fields if name not in skipped and (value := getattr(args, name)) is not None}
