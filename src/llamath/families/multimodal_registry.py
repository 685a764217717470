"""The registry of multimodal models: what their model types make of the text model inside, which
towers and projectors they add to it, and their names in files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from ..checkpoint.naming.scheme import Scheme, renamed_scheme
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.tree import Block
from ..utils.named_tuple import NamedTuple
from ..utils.record_type import Record
from .registry import FAMILIES, Declared, Family, import_module_of

if TYPE_CHECKING:
    from ..core.towers import VisionTower

Names = Mapping[str, str]

TEXT_KEYS = ("text_config", "llm_config", "language_config")
"""Keys of the text model's configuration."""

INNER_KEY = "config"
"""Key of the sections of a wrapper that has them inside it."""

_IN_MODEL = {
    "language_model.model.": "model.language_model.",
    "language_model.lm_head": "lm_head",
    "model.llm.layers.": "model.language_model.layers.",
    "vision_tower.": "model.vision_tower.",
    "multi_modal_projector.": "model.multi_modal_projector.",
}
"""Names in memory."""
_IN_LAYERS = "layers.{l}."


_SAVED_TOWER = {"vision_tower.vision_model.": "vision_tower."}
_IN_MEMORY = {
    "language_model.model.": "model.language_model.",
    "language_model.lm_head": "lm_head",
    "vision_tower.vision_model.": "model.vision_tower.",
    **{x: f"model.{x}" for x in ("vision_tower.", "multi_modal_projector.", "image_newline")},
}
LLAVA_FORMS = {
    "hf-5": _SAVED_TOWER,
    "hf-modules": _IN_MEMORY,
    "hf-mixed": _IN_MEMORY | {"vision_tower.vision_model.": "model.vision_tower.vision_model."},
}
"""Other forms of names that published files have as `language_model.model.…`,
`vision_tower.vision_model.…`: those that transformers 5 saves, those of its modules in memory, and
those of earlier versions' modules.
"""

WHOLE = ("", "language_model.")
LANGUAGE_MODEL = ("model.", "model.language_model.")
TEXT_MODEL = ("model.", "model.text_model.")
"""The prefix of the text model's names by itself, and the prefix that replaces it in files."""


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
        self, config: Config, text: Decoder, family: Family, wrapper: Wrapper
    ) -> tuple[Family, Decoder]:
        """Return the whole model of a configuration and its text model, with the text model's
        family, which now names all weights.
        """
        tree, names, layouts, in_memory = self.build(config, text)
        modules = {**self.modules, **in_memory}
        published = wrapper.rename_text(family.hf)
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


class Variant(NamedTuple):
    """A wrapper that was published under the model type of another one: a key and its value there,
    and the type that it has here.
    """

    key: str
    value: object
    model_type: str


class Wrapper(Record):
    """Facts about multimodal model types: the text model, where its configuration and tensors
    are, and the builder of the towers.
    """

    types: str  # model types, separated by spaces
    text_type: str = ""  # type of the text model where a configuration does not say it
    overrides_type: bool = False  # a configuration names another model as its text model
    # the prefix of the text model's names by itself, and the prefix that replaces it in files
    prefix: tuple[str, str] = ("", "")
    # whether the class ties embedding and head by default; None if it leaves that to the text model
    tied: bool | None = None
    # whose configuration says whether they are tied: that of the whole model first, or either, or
    # the text model's alone, which has the head itself
    tied_by: Literal["whole", "either", "text"] = "whole"
    tied_keys: tuple[str, ...] = ("tie_word_embeddings",)  # the first that is given decides
    # published with the keys of the text model at the outer level
    flat: bool = False
    outer_keys: str = ""  # keys at that level that are not the text model's, separated by spaces
    # published with its sections inside a key `config`, as `text`, `vision` and so on
    inner: bool = False
    note: str = ""  # what the text model computes otherwise than by itself
    variants: tuple[Variant, ...] = ()
    # what builds towers and projectors; None if only the text model is known
    family: MultimodalFamily | None = None

    def rename_text(self, scheme: Scheme) -> Scheme:
        """Return the naming scheme of a text model inside this wrapper."""
        old, new = self.prefix

        def rename(name: str) -> str:
            return new + name.removeprefix(old) if name.startswith(old) else name

        return scheme.replace(
            layer=rename(scheme.layer),
            outside={path: rename(name) for path, name in scheme.outside.items()},
        )


WRAPPERS: Declared[Wrapper] = Declared()
"""Model type → its wrapper; `find_wrapper` imports the module of a type first."""


def declare_wrapper(wrapper: Wrapper) -> None:
    """Declare model types whose towers are not known, only their text model."""
    WRAPPERS.add(wrapper.types.split(), wrapper)


def multimodal(
    *wrappers: Wrapper,
    forms: Mapping[str, Names] = {},
    saves_outputs_first: bool = False,
    modules: Names = MappingProxyType({}),
    inside: Names = MappingProxyType({}),
    plain: frozenset[str] = frozenset(),
) -> Callable[[Callable[[Config, Decoder], Assembly]], MultimodalFamily]:
    """Make a multimodal family of a builder that has the name of its module, for the model types
    of these wrappers.
    """

    def decorate(build: Callable[[Config, Decoder], Assembly]) -> MultimodalFamily:
        name = build.__module__.rpartition(".")[2]
        made = MultimodalFamily(
            name=name,
            build=build,
            forms=forms,
            saves_outputs_first=saves_outputs_first,
            modules=modules,
            inside=inside,
            plain=plain,
        )
        for wrapper in wrappers:
            declare_wrapper(wrapper.replace(family=made))
        return made

    return decorate


def find_wrapper(model_type: str, *, has_sections: bool = True) -> Wrapper:
    """Return the wrapper of a model type; one without facts if no module declares it.

    The type of a configuration without a section for a text model is that of a text model, as a
    rule, so that both are looked up at once.
    """
    import_module_of(model_type, WRAPPERS, *(() if has_sections else (FAMILIES,)))
    return WRAPPERS.get(model_type) or Wrapper(types=model_type)
