"""Models that are known by name and refused: their configuration, or what it means, is not known
here, and is not guessed.
"""

from __future__ import annotations

from ..utils.record_type import Record


class RefusedModel(Record):
    """A published model that cannot be counted, with what is known of it."""

    name: str
    public_id: str
    released: str
    license: str
    reason: str


REFUSED_MODELS = tuple(
    RefusedModel(name=name, public_id=public_id, released=released, license=terms, reason=reason)
    for name, public_id, released, terms, reason in (
        (
            *("Antares 1B", "fdtn-ai/antares-1b", "2026-07-21", "apache-2.0"),
            "hidden_size, num_attention_heads, num_key_value_heads and shared_intermediate_size "
            "of its config are not known here; 40 layers with a vocabulary of 100,352 and 80 KiB "
            "of cache per token fit many",
        ),
        (
            *("Ling 2.5 1T", "inclusionAI/Ling-2.5-1T", "2026-02-15", "mit"),
            "of its config only the numbers of layers are known here: 10 with latent attention, "
            "70 with lightning attention",
        ),
        (
            *("Ling 2.6 1T", "inclusionAI/Ling-2.6-1T", "2026-04-23", "mit"),
            "of its config only the numbers of layers are known here: 10 with latent attention, "
            "70 with lightning attention",
        ),
        (
            *("Motif 3 Beta", "Motif-Technologies/Motif-3-Beta", "2026-07-21"),
            "motif-non-commercial",
            "neither the widths in its config nor the weights of its attention (GDLA) are known "
            "here",
        ),
        (
            *("Xiaomi MiMo-V2.5 310B", "XiaomiMiMo/MiMo-V2.5", "2026-04-22", "mit"),
            "its config and its towers for images, video and sound are not known here; MiMo V2 "
            "Flash has another order of layers",
        ),
        (
            *("Xiaomi MiMo-V2.5-Pro 1.02T", "XiaomiMiMo/MiMo-V2.5-Pro", "2026-04-22", "mit"),
            "hybrid_layer_pattern of its config, which says where its windows are, is not known "
            "here",
        ),
        (
            *("ZAYA1-8B", "Zyphra/ZAYA1-8B", "2026-05-06", "apache-2.0"),
            "its config is known by defaults alone, which make 8.84B parameters, 8.30B without "
            "embeddings, instead of the published 8.4B",
        ),
    )
)
"""Refused models, by name."""
