"""The settings of the page: their initial values, possible values, and the parts that show each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .sizing.inference_data import DEFAULT_GPU

_MEMORY_AND_SPEED = ("memory", "speed", "parameters")


def page_settings(
    models: Sequence[Mapping[str, Any]], gpus: Sequence[Mapping[str, Any]]
) -> list[list[Any]]:
    """Return (name, initial value, values or kind of input, parts); a setting without parts
    redraws the whole page.
    """
    size_data, is_comparison = [x["sizes"] for x in models], len(models) > 1
    views = ["a", *(["b", "difference"] if is_comparison else []), "design"]
    training = size_data[0]["training"]
    # what a model that runs in its page begins with
    first: Mapping[str, Any] = next(iter(models[0].get("live", {}).get("prompts", ())), {})
    card, count = (not is_comparison and size_data[0]["smallest"]) or (
        DEFAULT_GPU,
        size_data[0]["start"],
    )

    def option_names(key: str, of: str = "name") -> list[str]:
        return list(dict.fromkeys(str(y[of]) for x in size_data for y in x[key]))

    return [
        ["view", "difference" if is_comparison else "a", views, []],
        ["section", "", "section", []],
        ["like", "a", views[: len(models)], []],
        ["sizes", "", "sizes", ["design"]],
        ["target", "", "target", ["design"]],
        ["context", size_data[0]["context"], "number", [*_MEMORY_AND_SPEED, "block"]],
        ["batch", "1", "number", [*_MEMORY_AND_SPEED, "block"]],
        ["dtype", "", option_names("dtypes"), _MEMORY_AND_SPEED],
        ["kv", "", option_names("kvs"), _MEMORY_AND_SPEED],
        ["gpus", count, option_names("gpus", "count"), _MEMORY_AND_SPEED],
        ["mode", "run", ["run", "train"], ["memory"]],
        ["tp", "", ["1", "2", "4", "8", "16"], _MEMORY_AND_SPEED],
        [
            "trainers",
            training["start"]["trainers"],
            [y for x in size_data for y in x["training"]["gpus"]],
            ["memory"],
        ],
        *(
            [
                x["name"],
                training["start"].get(x["name"], x["options"][0][0]),
                [y[0] for y in x["options"]],
                ["memory"],
            ]
            for x in training["choices"]
        ),
        ["job", "training", ["training", "long", "serving"], ["layouts"]],
        ["plan", "0", ["0", "1", "2"], ["layouts"]],
        ["card", card, [*(x["name"] for x in gpus), "custom"], _MEMORY_AND_SPEED],
        ["gpumem", "24", "number", _MEMORY_AND_SPEED],
        ["gpubw", "1000", "number", _MEMORY_AND_SPEED],
        ["gpuflops", "150", "number", _MEMORY_AND_SPEED],
        ["map", "parameters", ["parameters", "bytes", "flops", "cache"], ["parameters"]],
        ["by", "part", ["part", "kind"], ["parameters"]],
        ["layer", str(first.get("layer", "")), "layer", ["plate"]],
        ["zoom", "", "zoom", ["plate"]],
        ["tour", "", "place", ["plate"]],
        ["kind_a", "", "place", ["compare"]],
        ["kind_b", "", "place", ["compare"]],
        ["stage", "", "place", ["block"]],
        ["pass", "prompt", ["prompt", "next"], ["block"]],
        ["shapes", "numbers", ["letters", "numbers"], ["block"]],
        ["names", "path", ["path", "hf", "meta", "gguf"], ["tensors"]],
        ["sort", "", ["path", "each", "total"], ["tensors"]],
        ["find", "", "words", ["tensors"]],
        ["theme", "", ["light", "dark"], []],
        *(_live_settings(first) if "live" in models[0] else ()),
    ]


def _live_settings(prompt: Mapping[str, Any]) -> list[list[Any]]:
    """Return the settings of a model that runs in its page: its text, what is shown of it, and
    how the next token is chosen.
    """
    return [
        ["text", prompt.get("text", ""), "text", ["live"]],
        ["token", "", "place", ["live"]],
        ["head", str(prompt.get("head", 0)), "place", ["live"]],
        ["temperature", "0", ["0", "0.5", "0.8", "1", "1.5"], ["live"]],
        ["top_p", "1", ["0.5", "0.9", "0.95", "1"], ["live"]],
        ["seed", "0", "whole", ["live"]],
    ]
