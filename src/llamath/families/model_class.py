"""Variants of a family's causal model by class: sequence classification and headless models, as
named by `architectures`.
"""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.constructors import linear
from .registry import Family

BASE_PREFIXES = (
    "model.",
    "transformer.",
    "gpt_neox.",
    "backbone.",
    "biogpt.",
    "gpt_neox_japanese.",
)
"""Prefixes of the base model's tensors, which a checkpoint of the headless model lacks."""

HEADED = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def apply_class(family: Family, tree: Decoder, config: Config) -> tuple[Family, Decoder, str]:
    """Return the family and tree of the class in the configuration, with a note if it is not the
    causal model.
    """
    architectures = config.get("architectures", [""])
    name = architectures[0] if architectures and isinstance(architectures[0], str) else ""
    if name.endswith(HEADED) or not name:
        return family, tree, ""
    if name.endswith("ForSequenceClassification"):
        labels = config.dim(
            "n", "num_labels", default=len(config.get("id2label", {"0": "", "1": ""}))
        )
        hf = family.hf.with_changes(outside={"head": "score"})
        return (
            family.replace(hf=hf),
            tree.replace(head=linear(labels, tree.width)),
            f"{name}: score [{labels}, {tree.width}] instead of a head",
        )
    if name.endswith("Model") and "Double" not in name:
        return (
            family.replace(hf=headless_scheme(family.hf)),
            tree.replace(head=None),
            f"{name}: no head, and names without the base model's prefix",
        )
    return family, tree, f"unknown class {name[:60]}: counted as the causal model of its family"


def headless_scheme(scheme: Scheme) -> Scheme:
    """Return the naming scheme of the headless model."""
    base = next((x for x in BASE_PREFIXES if scheme.layer.startswith(x)), "")
    outside = {path: name.removeprefix(base) for path, name in scheme.outside.items()}
    return scheme.replace(layer=scheme.layer.removeprefix(base), outside=outside, name="hf-bare")
