"""What no family should have to check for itself: keys that make a configuration more, or other, than the family it names."""

from __future__ import annotations

from .core.blocks import Decoder
from .core.config import Config
from .core.errors import ConfigError, safe
from .core.tree import iter_stacks

OTHER = {
    "add_cross_attention": "cross-attention to an encoder",
    "is_encoder_decoder": "an encoder beside the decoder",
    "pruned_heads": "heads that have been cut out",
    "block_configs": "layers that differ one by one",
}
"""Keys that, when they are true or not empty, add weights or take some away."""

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
HEADER = "count the checkpoint itself instead: its header is exact for any model"


def reject_unsupported(config: Config, tree: Decoder, unread: list[str]) -> None:
    """Refuse what the family's tree does not show: a number that leaves it out would be wrong."""
    for key, what in OTHER.items():
        if key in unread and config.data[key]:
            raise config.error(key, f"says that there is {what}, which this family does not count", HEADER)
    for key in EXPERTS:
        if key in unread and isinstance(n := config.data[key], int) and n > 1:
            raise config.error(key, f"says that there are {n} experts, and this family has none", "is model_type right? " + HEADER)
    for layer, _ in tree.layers.distinct():
        for experts in iter_stacks(layer):
            if experts.active is not None and not 0 < experts.active <= experts.n:
                found = f"{config.source}: a token cannot pass through {experts.active} of {experts.n} experts"
                raise ConfigError(found, hint="num_experts_per_tok should be at most the number of experts")


def config_notes(config: Config, unread: list[str]) -> list[str]:
    """What was assumed, and what was not read."""
    notes = [f"{key} is not given: {value} is the family's default" for key, value in config.assumed_dims.items()]
    if isinstance(config.data.get("auto_map"), dict):
        notes.append("auto_map says that its class comes with the checkpoint: counted as the family that model_type names")
    if unread:
        from .glossary import NOTHING

        if unknown := [safe(key, 60) for key in unread if key not in NOTHING and not key.startswith("_")]:
            notes.append(f"not read: {', '.join(unknown)}")
    return notes
