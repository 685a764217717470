"""What a class of the reference adds to or takes from the family's causal model: `architectures` in a configuration says which it is."""

from __future__ import annotations

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.constructors import linear
from .registry import Family

BASE_PREFIXES = ("model.", "transformer.", "gpt_neox.", "backbone.")
"""What stands before every name inside the headless model; a checkpoint of that alone has none of it."""

HEADED = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def apply_class(family: Family, tree: Decoder, config: Config) -> tuple[Family, Decoder, str]:
    """The family and tree of the class that the configuration names, and a remark where it is not the causal model."""
    named = config.get("architectures", [""])
    name = named[0] if named and isinstance(named[0], str) else ""
    if name.endswith(HEADED) or not name:
        return family, tree, ""
    if name.endswith("ForSequenceClassification"):
        labels = config.dim("n", "num_labels", default=len(config.get("id2label", {"0": "", "1": ""})))
        hf = family.hf.with_changes(outside={"head": "score"})
        return (
            family.replace(hf=hf),
            tree.replace(head=linear(labels, tree.width)),
            f"{name}: score [{labels}, {tree.width}] in place of a head",
        )
    if name.endswith("Model") and "Double" not in name:
        return (
            family.replace(hf=headless_scheme(family.hf)),
            tree.replace(head=None),
            f"{name}: no head, and names without their first part",
        )
    return family, tree, f"architectures says {name[:60]}: counted as the causal model of its family"


def headless_scheme(scheme: Scheme) -> Scheme:
    """The scheme of the headless model saved alone."""
    base = next((x for x in BASE_PREFIXES if scheme.layer.startswith(x)), "")
    outside = {path: name.removeprefix(base) for path, name in scheme.outside.items()}
    return scheme.replace(layer=scheme.layer.removeprefix(base), outside=outside, name="hf-bare")
