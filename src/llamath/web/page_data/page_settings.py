"""What the models decide of the page's settings: initial values, and possible ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def page_settings(
    models: Sequence[Mapping[str, Any]],
    gpus: Sequence[Mapping[str, Any]],
    hardware: tuple[str, str],
) -> dict[str, tuple[str, list[str]] | tuple[str]]:
    """Return the initial value and, where they depend on the models, all values by setting.

    `hardware` is the GPU and the number of a comparison. Of one model the page begins with the
    smallest hardware that runs it, whatever else is chosen.
    """
    size_data, is_comparison = [x["sizes"] for x in models], len(models) > 1
    training = size_data[0]["training"]
    start = training["start"]
    stops = max(y for x in models for y in _numbers_of_stops(x))
    # what a model that runs in its page begins with
    first: Mapping[str, Any] = next(iter(models[0].get("live", {}).get("prompts", ())), {})
    card, count = hardware

    def option_names(key: str, of: str = "name") -> list[str]:
        return list(dict.fromkeys(str(y[of]) for x in size_data for y in x[key]))

    return {
        "view": (
            "difference" if is_comparison else "a",
            ["a", *(["b", "difference"] if is_comparison else []), "design"],
        ),
        "like": ("a", ["a", "b"][: len(models)]),
        "context": (size_data[0]["context"],),
        "dtype": ("", ["", *option_names("dtypes")]),
        "kv": ("", ["", *option_names("kvs")]),
        "gpus": (count, ["", *option_names("gpus", "count")]),
        "trainers": (start["trainers"], [y for x in size_data for y in x["training"]["gpus"]]),
        **{
            x["name"]: (start.get(x["name"], x["options"][0][0]), [y[0] for y in x["options"]])
            for x in training["choices"]
        },
        "card": (card, ["", *(x["name"] for x in gpus), "custom"]),
        "tour": ("", ["", *map(str, range(1, stops + 1))]),
        "layer": (str(first.get("layer", "")),),
        "text": (first.get("text", ""),),
        "head": (str(first.get("head", 0)),),
    }


def _numbers_of_stops(model: Mapping[str, Any]) -> Iterator[int]:
    """Yield how many stops the tour of a model has, and those of its variants with other ones."""
    yield len(model["tour"])
    for changes in model["template"]["variants"].values():
        of_tour = changes.get("tour")
        if isinstance(of_tour, list) and len(of_tour) == 2:  # see `changes_between`
            yield len(of_tour[0])
