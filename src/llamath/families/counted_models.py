"""Models of which every weight is counted, and only some passes computed: FLOPs, memory and
trace, but no generation.
"""

from __future__ import annotations

from collections.abc import Callable

from ..checkpoint.naming.scheme import Scheme
from ..core.config import Config
from ..core.multimodal import CountedBlock
from ..utils.named_tuple import NamedTuple
from .multimodal_registry import WRAPPERS
from .registry import FAMILIES, Builder, Declared, Family, import_module_of

ModulesBuilder = Callable[[Config], tuple[CountedBlock, dict[str, str]]]

ENCODER_NOTE = (
    "the encoder reads a prompt of T tokens once, those of images among them; generated tokens "
    "are the decoder's. A context of T tokens is "
    "T in the encoder and as many in the decoder, whose tokens attend to both"
)
"""The meaning of a number of tokens for a model with an encoder."""


class CountedModel(NamedTuple):
    """A kind of model that is counted by its modules.

    `build` returns them, and parts of names to replace, from a whole configuration; `family` builds
    the tree that computes, whose weights have other names; `claim` is how the model is counted, in
    words.
    """

    build: ModulesBuilder
    family: Family
    claim: str


COUNTED: Declared[CountedModel] = Declared()
"""Model type → how it is counted; `find_counted` imports the module of a type first."""


def counted_model(claim: str, modules: ModulesBuilder) -> Callable[[Builder], Family]:
    """Count the model type with the name of a builder's module by its modules; the builder makes
    the tree that computes.
    """

    def decorate(build: Builder) -> Family:
        module = build.__module__.rpartition(".")[2]
        unnamed = Scheme(name="hf", outside={}, inside={}, layer="")
        made = Family(name=module, module=module, types=(module,), build=build, hf=unnamed)
        COUNTED.add(made.types, CountedModel(modules, made, claim))
        return made

    return decorate


def find_counted(model_type: str) -> CountedModel | None:
    """Return how a model type is counted that has no family; None for another."""
    import_module_of(model_type, COUNTED, FAMILIES, WRAPPERS)
    return COUNTED.get(model_type)
