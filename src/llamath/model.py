"""`Model`: one model with its tree, its names and where it came from; what `llamath.load`
returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, cast

from .checkpoint.meta_args import ModelArgs
from .checkpoint.naming.scheme import Scheme, TiedNames
from .core.blocks import Decoder
from .core.config import Config
from .core.multimodal import parts_of
from .core.parameter_count import Count, Parameters, count_parameters
from .core.tree import Leaf, walk
from .families.registry import Family
from .utils.errors import UnknownModel, safe
from .utils.record_type import Record

if TYPE_CHECKING:
    from .catalog import Preset
    from .web.notebook import NotebookPage


class Model(Record):
    """A model and all of its weights; two models are equal if they have the same name, family,
    tree and configuration.
    """

    name: str
    family: Family
    tree: Decoder
    config: Config
    source: str
    notes: tuple[str, ...] = ()
    # Meta's arguments, if it was made from a `params.json` or a `ModelArgs`
    args: ModelArgs | None = None
    preset: Preset | None = None  # that it was loaded from, also if keys were changed since
    location: str = ""  # the path or address that it was loaded from; empty for a preset or keys
    wrapper: str = ""  # model type of the multimodal model whose text model this is
    part_name: str = ""  # of a part of a multimodal model: text, vision or audio
    # its whole configuration, if all of its parts are known; `config` is that of the text model
    outer: Config | None = None
    # of a model without a family: whose tensors they are, `as transformers 5.23.0 builds
    # BertForMaskedLM`
    claim: str = ""

    @cached_property
    def count(self) -> Count:
        """The parameter count: sections, groups and formula."""
        return count_parameters(self.tree)

    @property
    def parameters(self) -> Parameters:
        """All totals that are called parameter counts, as exact integers."""
        return self.count.parameters

    @property
    def is_multimodal(self) -> bool:
        """Whether the tree has towers for images or sound beside the text model."""
        return len(parts_of(self.tree)) > 1

    @property
    def key_by_symbol(self) -> dict[str, str]:
        """The configuration key of each letter of a dimension; those of towers are dotted."""
        keys: dict[str, str] = {}
        if self.outer is not None:
            for name, part in (("", self.outer), *self.outer.nested.items()):
                keys |= {
                    letter: f"{name}.{key}".lstrip(".")
                    for letter, key in part.key_by_symbol.items()
                }
        return keys | self.config.key_by_symbol

    @cached_property
    def text(self) -> Model:
        """The text model of a multimodal model; another model is its own."""
        if not self.is_multimodal:
            return self
        others = " and ".join(name for name in parts_of(self.tree) if name != "text")
        return self.replace(
            tree=self.tree.text,
            outer=None,
            notes=(*self.notes, f"text model only; not included: {others}"),
        )

    @property
    def computable(self) -> Model:
        """The model whose tree computes: of a model that is counted by its tensors, one with
        FLOPs, memory and trace if they are known.
        """
        return self

    def part(self, name: str) -> Model:
        """Return one part as a model: `text`, `vision` or `audio`; vision and audio contain
        their projectors.
        """
        parts = parts_of(self.tree)
        if name not in parts:
            known = " and ".join(parts)
            raise UnknownModel(f"{self.name} has no {safe(name, 40)} part", hint=f"it has {known}")
        if len(parts) == 1:
            return self
        return self.replace(
            name=f"{self.name}, {name} part", tree=cast("Decoder", parts[name]), part_name=name
        )

    def stored_tree(self, scheme: Scheme) -> Decoder:
        """The tree that files of a format have: a GGUF file and Meta's have the text model
        alone.
        """
        return (
            self.tree
            if scheme.name.startswith("hf") or scheme.name == "llamath"
            else self.text.tree
        )

    @property
    def weights(self) -> Iterator[Leaf]:
        """Every weight in tensor order, one per expert, streamed; a tied head is included, with
        no parameters of its own.
        """
        return walk(self.tree)

    @property
    def tied_names(self) -> Iterator[TiedNames]:
        """The stored names of the head and of the embedding that it is tied to, in each kind of
        file; none if it is not tied.
        """
        head = self.tree.head
        if head is None or not head.weight.tied:
            return
        shape = tuple(map(int, head.weight.shape))
        for scheme in (self.family.hf, *self.family.hf_forms, self.family.gguf, self.family.meta):
            if scheme is not None:
                yield TiedNames(
                    scheme.stored_name("head.weight"), scheme.stored_name(head.weight.tied), shape
                )

    def scheme(self, name: str) -> Scheme:
        """The names of its tensors in files of one format: `hf`, `meta` or `gguf`."""
        if (scheme := self.family.schemes.get(name)) is None:
            known = ", ".join(self.family.schemes)
            raise UnknownModel(
                f"the {self.family.name} family has no {name} names", hint=f"it has {known}"
            )
        return scheme

    def __repr__(self) -> str:
        return (
            f"Model({self.name!r}, {self.family.name} family, {self.parameters.total:,} parameters)"
        )

    def show(self, other: Model | None = None, *, height: int = 900) -> NotebookPage:
        """Show the interactive page in a notebook, beside that of another model if there is one,
        like `llamath.show`.
        """
        # the page is far above a model
        show: Callable[..., NotebookPage] = import_module(__package__).show
        return show(self, other, height=height)

    def _repr_html_(self) -> str:
        # a report is far above a model
        html: str = import_module(__package__).count(self)._repr_html_()
        return html
