"""`Model`: what `llamath.load` returns, either a `FamilyModel`, whose family gives formulas and a
forward pass, or a `TensorModel`, which has tensors alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, TypeAlias

from .checkpoint.meta_args import ModelArgs
from .checkpoint.naming.scheme import Scheme, TiedNames, canonical_scheme
from .core.blocks import Decoder
from .core.config import Config
from .core.multimodal import CountedBlock, parts_of
from .core.parameter_count import Count, Parameters, TensorParameters, count_parameters
from .core.tree import Block, Leaf, walk
from .families.counted_models import ENCODER_NOTE, CountedModel
from .families.registry import Family
from .utils.errors import LlamathError, UnknownModel, safe
from .utils.record_type import Record

if TYPE_CHECKING:
    from .catalog import Preset
    from .checkpoint.quantization.weight_format import WeightFormat
    from .generic.module_tree import StateTensor
    from .web.notebook import NotebookPage


class BaseModel(Record):
    """Base of models: a name, a tree of weights, and its source."""

    name: str
    tree: Block
    config: Config
    source: str
    notes: tuple[str, ...] = ()
    preset: Preset | None = None  # that it was loaded from, also if keys were changed since
    location: str = ""  # the path or address that it was loaded from; empty for a preset or keys

    @property
    def weights(self) -> Iterator[Leaf]:
        """Every weight in tensor order, one per expert, streamed; a tied head is included, with
        no parameters of its own.
        """
        return walk(self.tree)

    def _repr_html_(self) -> str:
        # a report is far above a model
        html: str = import_module(__package__).count(self)._repr_html_()
        return html


class DescribedModel(BaseModel):
    """A model that a family describes, or a part of one."""

    family: Family
    part_name: str = ""  # of a part: text, vision, audio or main
    # its whole configuration, if all of its parts are known; `config` is that of the text model
    outer: Config | None = None

    @cached_property
    def count(self) -> Count:
        """The parameter count: sections, groups and formula."""
        return count_parameters(self.tree)

    @property
    def parameters(self) -> Parameters:
        """All totals that are called parameter counts, as exact integers."""
        return self.count.parameters

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


class FamilyModel(DescribedModel):
    """A model that a family describes, and all of its weights; two are equal if they have the same
    name, family, tree and configuration.
    """

    tree: Decoder
    # Meta's arguments, if it was made from a `params.json` or a `ModelArgs`
    args: ModelArgs | None = None
    wrapper: str = ""  # model type of the multimodal model whose text model this is
    from_gguf: bool = False  # its configuration is the metadata of a GGUF file

    @property
    def is_multimodal(self) -> bool:
        """Whether the tree has towers for images or sound beside the text model."""
        return len(parts_of(self.tree)) > 1

    @property
    def is_text_alone(self) -> bool:
        """Whether the model is the text of a multimodal model, whose towers it does not have."""
        return bool(self.wrapper) and not self.is_multimodal

    @cached_property
    def text(self) -> FamilyModel:
        """The text model of a multimodal model; another model is its own."""
        if not self.is_multimodal:
            return self
        others = " and ".join(name for name in parts_of(self.tree) if name != "text")
        return self.replace(
            tree=self.tree.text,
            outer=None,
            notes=(*self.notes, f"text model only; not included: {others}"),
        )

    @cached_property
    def weight_format(self) -> WeightFormat:
        """The format that its configuration declares for its weights."""
        from .checkpoint.quantization.weight_format import declared_weight_format

        return declared_weight_format(self.config.data)

    @property
    def repeats_embedding_in_mtp(self) -> bool:
        """Whether layers for multi-token prediction repeat the embedding and the head in its files;
        most do, and of a preset it is known.
        """
        return self.preset is None or self.preset.mtp_copies

    @cached_property
    def main(self) -> FamilyModel:
        """The text model without layers for multi-token prediction."""
        text = self.text
        if text.tree.mtp is None:
            return text
        return text.replace(tree=text.tree.replace(mtp=None), part_name="main")

    def part(self, name: str) -> DescribedModel:
        """Return one part: `text`, `vision` or `audio`; vision and audio contain their
        projectors.
        """
        parts = parts_of(self.tree)
        if name not in parts:
            known = " and ".join(parts)
            raise UnknownModel(f"{self.name} has no {safe(name, 40)} part", hint=f"it has {known}")
        if len(parts) == 1:
            return self
        return PartModel(
            whole=self,
            part_name=name,
            name=f"{self.name}, {name} part",
            tree=parts[name],
            **{x: getattr(self, x) for x in ("family", "config", "source", "notes", "outer")},
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

    def show(self, other: Model | None = None, *, height: int = 900) -> NotebookPage:
        """Show the interactive page in a notebook, beside that of another model if there is one,
        like `llamath.show`.
        """
        # the page is far above a model
        show: Callable[..., NotebookPage] = import_module(__package__).show
        return show(self, other, height=height)

    def __repr__(self) -> str:
        parameters = f"{self.parameters.total:,} parameters"
        return f"FamilyModel({self.name!r}, {self.family.name} family, {parameters})"


class PartModel(DescribedModel):
    """A part of a multimodal model, which is counted by itself."""

    whole: FamilyModel

    def _repr_html_(self) -> str:
        # a report is far above a model
        html: str = import_module(__package__).count(self.whole, part=self.part_name)._repr_html_()
        return html


class TensorModel(BaseModel):
    """A model without a family: its tensors are known, and neither formulas nor a forward pass; two
    are equal if their tensors and configurations are.
    """

    tree: CountedBlock
    tensors: tuple[StateTensor, ...]
    claim: str  # whose tensors they are: `as transformers 5.23.0 builds BertForMaskedLM`
    passes: CountedModel | None = None  # how its passes follow from its configuration, if they do

    @cached_property
    def parameters(self) -> TensorParameters:
        """The totals that are known without a family, as exact integers."""
        sizes = [(x, prod(x.shape)) for x in self.tensors]
        buffers = sum(n for x, n in sizes if not x.tied and x.is_buffer)
        return TensorParameters(
            total=sum(n for x, n in sizes if not x.tied and not x.is_buffer),
            tied_counted_twice=sum(n for x, n in sizes if not x.is_buffer),
            extras={"buffers": buffers} if buffers else {},
        )

    @cached_property
    def groups(self) -> Mapping[str, int]:
        """The parameters of the modules of the root; the largest one is divided into its own."""
        groups = _sums(self.tensors, 1)
        largest = max(groups, key=groups.__getitem__, default="")
        divided = _sums([x for x in self.tensors if x.name.startswith(f"{largest}.")], 2)
        named = [
            (name, divided if name == largest and len(divided) > 1 else {name: n})
            for name, n in groups.items()
        ]
        return {name: n for _, part in named for name, n in part.items() if n}

    @cached_property
    def computed(self) -> FamilyModel | None:
        """The model with the passes, where FLOPs, memory and trace are computed; None elsewhere."""
        if self.passes is None:
            return None
        config = Config(self.config.data, self.source)
        tree = self.passes.family(config)
        return FamilyModel(
            name=self.name,
            family=self.passes.family.replace(hf=canonical_scheme(tree).replace(name="hf")),
            tree=tree,
            config=config,
            outer=config,
            source=self.source,
            notes=(*self.notes, ENCODER_NOTE),
        )

    @property
    def tied_names(self) -> Iterator[TiedNames]:
        """The names of tensors that share the values of another, and of this one."""
        return (TiedNames(x.name, x.tied, x.shape) for x in self.tensors if x.tied)

    def untied(self, names: Collection[str], note: str) -> TensorModel:
        """Return the model whose tensors of these names share no values with others."""
        tensors = tuple(x._replace(tied="") if x.name in names else x for x in self.tensors)
        from .generic.module_tree import module_tree

        return self.replace(tree=module_tree(tensors), tensors=tensors, notes=(*self.notes, note))

    def __repr__(self) -> str:
        return f"TensorModel({self.name!r}, {self.parameters.total:,} parameters, {self.claim})"


Model: TypeAlias = FamilyModel | TensorModel
"""What `llamath.load` returns."""


def _sums(tensors: Sequence[StateTensor], parts: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for x in tensors:
        name = ".".join(x.name.split(".")[:-1][:parts]) or x.name
        sums[name] = sums.get(name, 0) + (0 if x.tied or x.is_buffer else prod(x.shape))
    return sums


def with_family(model: Model) -> FamilyModel:
    """Return a model that has a family; one without is refused."""
    if isinstance(model, FamilyModel):
        return model
    raise LlamathError(
        f"this needs a model of a known family, and {safe(model.name, 80)} is counted "
        f"{model.claim}: its names and shapes are known, its formulas and its forward pass are not",
        hint="count, names, memory (of the weights), verify and diff work without a family",
    )


def with_passes(model: Model) -> FamilyModel:
    """Return the model whose forward pass is known; a model without one is refused."""
    computed = model.computed if isinstance(model, TensorModel) else None
    return with_family(model) if computed is None else computed
