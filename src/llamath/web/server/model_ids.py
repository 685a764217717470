"""The models that a request can name: presets, the models of this launch, ModelArgs and, if
enabled, models on the hub; never a file.

The id of a model is a preset's slug, `~1` for the first model of this launch, or `hub:owner:name`;
paths and addresses are never ids.
"""

from __future__ import annotations

import re

from ...analysis.storage.listed_weights import listed_weights
from ...catalog import find_preset, read_preset
from ...checkpoint.hub import Limits, read_config
from ...checkpoint.meta_args import parse_args_text
from ...loading import load, load_family
from ...model import FamilyModel, Model, TensorModel
from ...utils.errors import ConfigError, LlamathError, RemoteError, UnknownModel, safe
from .error_page import PageError

_HUB_ID = re.compile(
    r"hub:([A-Za-z0-9][A-Za-z0-9._-]{0,95}):([A-Za-z0-9][A-Za-z0-9._-]{0,95})", re.ASCII
)
HUB_LIMITS = Limits(connect=5, read=10, response=12, session=15, redirects=3)
_MAX_LAYERS, _MAX_WEIGHTS = 1000, 500_000
"""The largest models: the time to build a page and the length of an answer grow with them."""


def is_hub_id(model_id: str) -> bool:
    """Whether an id of a page names a model on the hub."""
    return bool(_HUB_ID.fullmatch(model_id))


def load_preset(slug: str) -> FamilyModel:
    """Load the preset of a slug, never a file of that name."""
    return load_family(read_preset(slug))


def find_named(text: str, hub: Limits | None) -> Model:
    """Return the model of ModelArgs, of a preset's name or public id, or with `hub` of a
    repository there; never one in a file.
    """
    if (args := parse_args_text(text)) is not None:
        return load(args)
    try:
        preset = find_preset(text)
    except UnknownModel:
        hub_id = text if text.startswith("hub:") else f"hub:{text.replace('/', ':', 1)}"
        if hub is None or not is_hub_id(hub_id):
            raise
        return load_hub_model(hub_id, hub)
    return load(preset)


def load_hub_model(model_id: str, limits: Limits = HUB_LIMITS) -> Model:
    """Load a model from its config on the hub; nothing else of the repository is read."""
    match = _HUB_ID.fullmatch(model_id)
    assert match is not None
    name = f"{match[1]}/{match[2]}"
    try:
        config, source = read_config(f"hf://{name}", limits=limits._replace(public_only=True))
    except RemoteError as error:
        raise PageError(404 if error.code in ("missing", "id") else 424, str(error)) from None
    except LlamathError as error:
        raise PageError(422, str(error)) from None
    try:
        model = load(config).replace(name=name)
        refuse_huge(model)
    except LlamathError as error:
        raise PageError(422, f"{error}. {error.hint}".removesuffix(". ")) from None
    return model.replace(source=safe(source))


def refuse_huge(model: Model) -> None:
    """Refuse a model whose pages and answers would take too long."""
    if isinstance(model, TensorModel):
        return  # it has no page, and its tensors were limited when it was built
    layers = int(model.tree.layers.n)
    if layers > _MAX_LAYERS:
        raise ConfigError(
            f"{safe(model.name)} has {layers:,} layers, and pages are limited to {_MAX_LAYERS:,}"
        )
    if (weights := listed_weights(model.tree)) > _MAX_WEIGHTS:
        raise ConfigError(
            f"{safe(model.name)} has {weights:,} weights, and pages are limited to {_MAX_WEIGHTS:,}"
        )
