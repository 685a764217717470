"""MXFP4 of transformers, as gpt-oss stores its experts."""

from __future__ import annotations

from ..recipes import Choice, Matrix, Recipe, always, keep_listed
from ..registry import Keys, Producer
from ..shared.fp4 import mxfp4_blocks_format
from ..shared.name_patterns import NamePatterns, like_transformers
from ..shared.recipe_keys import strings


def _read(config: Keys, _: str) -> Recipe:
    to = mxfp4_blocks_format()
    names = NamePatterns(strings(config, "modules_to_not_convert") or (), like_transformers)
    rules = _experts_only, keep_listed(names, "in modules_to_not_convert"), always(to)
    return Recipe(method="mxfp4", name=to.name, rules=rules, patterns=names.patterns)


def _experts_only(x: Matrix) -> Choice | None:
    if x.kind == "expert":
        return None
    return Choice(None, "router" if x.kind == "router" else "only experts are quantized")


PRODUCER = Producer(read=_read, recognized=("mxfp4",))
