"""Where a config's section on quantization disagrees with the packings in the headers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...checkpoint.quantization.recipes import read_recipe
from ...checkpoint.quantization.registry import producer_of_method
from ...utils.errors import UnknownQuantization, safe


def recipe_disagreements(
    section: Mapping[str, Any] | None, kinds: Collection[str], is_mlx: bool = False
) -> Iterator[str]:
    """Yield how a config's section on quantization disagrees with the packings in the headers;
    what `ls` can tell without a family.
    """
    kinds = sorted({x for x in kinds if x not in ("ggml", "fp8-cache")})
    found = ", ".join(kinds)
    if section is None:
        if kinds:
            yield (
                f"the headers have quantized weights ({found}), and the config declares no "
                "quantization"
            )
        return
    try:
        recipe = read_recipe(section, is_mlx=is_mlx)
    except UnknownQuantization as error:
        yield f"the recipe of the config is not understood: {error}"
        return
    producer = producer_of_method(recipe.method)
    expected = () if producer is None else producer.recognized
    if not kinds:
        yield (
            f"the config declares {recipe.method} ({safe(recipe.name, 60)}), and the headers "
            "have no quantized weights of its kind"
        )
    elif others := [x for x in kinds if not x.startswith(expected)]:
        yield (
            f"the config declares {recipe.method} ({safe(recipe.name, 60)}), and the headers "
            f"have weights of {', '.join(others)}"
        )
