"""The registry of multimodal models: which towers and projectors a model type adds to its text
model, and their names in files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple

from ..checkpoint.naming.scheme import renamed_scheme
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.towers import VisionTower
from ..core.tree import Block
from ..utils.record_type import Record
from .registry import Family
from .wrappers import COMPLETE_TYPES, with_wrapper_prefix

Names = Mapping[str, str]


_IN_MODEL = {
    "language_model.model.": "model.language_model.",
    "language_model.lm_head": "lm_head",
    "model.llm.layers.": "model.language_model.layers.",
    "vision_tower.": "model.vision_tower.",
    "multi_modal_projector.": "model.multi_modal_projector.",
}
"""Names in memory."""
_IN_LAYERS = "layers.{l}."


class Part(NamedTuple):
    """A tower or projector with its names in files: module or leaf pattern inside it → stored
    name, and layout.
    """

    block: Block
    names: Names
    layouts: Names = MappingProxyType({})
    # names in the modules of transformers, where they differ by more than their beginning
    in_memory: Names = MappingProxyType({})


class Tower(NamedTuple):
    """A vision tower with its names in files, as a `Part`."""

    block: VisionTower
    names: Names
    layouts: Names = MappingProxyType({})


class Assembly(NamedTuple):
    """A whole multimodal model: its tree, and names and layouts of the towers' and projectors'
    weights.
    """

    tree: Decoder
    names: Names
    layouts: Names
    in_memory: Names = MappingProxyType({})

    def seeing_later(self, tokens: str) -> Assembly:
        """Return the model with tokens of images that attend to later tokens, too: see
        `Decoder.sees_later`.
        """
        return self._replace(tree=self.tree.replace(sees_later=tokens))


def assemble(text: Decoder, **parts: tuple[str, Part | Tower] | None) -> Assembly:
    """Add parts to a text model; `vision=("vision_tower.", tower)` is the field of `Decoder`,
    the prefix of the names, and the part.
    """
    present = {field: x for field, x in parts.items() if x is not None}
    names: dict[str, str] = {}
    layouts: dict[str, str] = {}
    in_memory: dict[str, str] = {}
    for field, (prefix, part) in present.items():
        names |= {f"{field}.{path}": prefix + name for path, name in part.names.items()}
        layouts |= {f"{field}.{path}": layout for path, layout in part.layouts.items()}
        in_memory |= (
            {f"{field}.{path}": name for path, name in part.in_memory.items()}
            if isinstance(part, Part)
            else {}
        )
    return Assembly(
        text.replace(**{field: part.block for field, (_, part) in present.items()}),
        names,
        layouts,
        in_memory,
    )


class MultimodalFamily(Record):
    """A builder of whole multimodal models: (configuration, text model) → assembly."""

    name: str
    build: Callable[[Config, Decoder], Assembly]
    # name of another form of the names → beginning of a published name → beginning in that form
    forms: Mapping[str, Names]
    # transformers saves stacks of experts with outputs first, where published files have inputs
    # first
    saves_outputs_first: bool = False
    # path → name in memory, where that is more than another beginning
    modules: Names = MappingProxyType({})
    # module in a layer of the text model → published name, where the text model alone has another
    inside: Names = MappingProxyType({})
    plain: frozenset[str] = frozenset()  # keys of layouts that the modules in memory do not have

    def complete(
        self, config: Config, text: Decoder, family: Family, wrapper: str
    ) -> tuple[Family, Decoder]:
        """Return the whole model of a configuration and its text model, with the text model's
        family, which now names all weights.
        """
        tree, names, layouts, in_memory = self.build(config, text)
        modules = {**self.modules, **in_memory}
        published = with_wrapper_prefix(family.hf, wrapper)
        hf = published.with_changes(outside=names, layouts={**published.layouts, **layouts})
        forms = tuple(renamed_scheme(hf, name, x) for name, x in self.forms.items())
        hf = hf.with_changes(inside=self.inside)
        if modules:
            split = {x for x in hf.layouts if hf.layouts[x] == "rows" and _IN_LAYERS + x in modules}
            unchanged = {
                path: x
                for path, x in hf.layouts.items()
                if path not in {*modules, *split, *self.plain}
            }
            inside = {
                x.removeprefix(_IN_LAYERS): name
                for x, name in modules.items()
                if x.startswith(_IN_LAYERS)
            }
            outside = {x: name for x, name in modules.items() if not x.startswith(_IN_LAYERS)}
            base = renamed_scheme(hf, "hf-modules", self.forms.get("hf-modules", _IN_MODEL))
            forms += (base.with_changes(outside=outside, inside=inside, layouts=unchanged),)
        if self.saves_outputs_first:
            forms += (
                hf.replace(
                    name="hf-5",
                    layouts={path: x for path, x in hf.layouts.items() if ".experts." not in path},
                ),
            )
        return family.replace(hf=hf, hf_forms=forms), tree


def multimodal(
    *,
    forms: Mapping[str, Names] = {},
    saves_outputs_first: bool = False,
    modules: Names = MappingProxyType({}),
    inside: Names = MappingProxyType({}),
    plain: frozenset[str] = frozenset(),
) -> Callable[[Callable[[Config, Decoder], Assembly]], MultimodalFamily]:
    """Make a multimodal family of a builder, which has the name of its module; `MULTIMODAL`
    lists its model types.
    """

    def decorate(build: Callable[[Config, Decoder], Assembly]) -> MultimodalFamily:
        name = build.__module__.rpartition(".")[2]
        return MultimodalFamily(
            name=name,
            build=build,
            forms=forms,
            saves_outputs_first=saves_outputs_first,
            modules=modules,
            inside=inside,
            plain=plain,
        )

    return decorate


def find_multimodal(model_type: str) -> MultimodalFamily | None:
    """Return what builds the towers of a model type; None if only its text model is known."""
    module = COMPLETE_TYPES.get(model_type)
    if module is None:
        return None
    found: MultimodalFamily = getattr(import_module(f"{__package__}.multimodal.{module}"), module)
    return found
