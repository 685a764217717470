"""`Model`: one model with its tree, its names and where it came from; what `llamath.load` returns."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from .analysis.count.parameters import Count, Parameters, count
from .checkpoint.naming.scheme import Scheme
from .core.blocks import Decoder
from .core.config import Config
from .core.meta_args import ModelArgs
from .core.record_type import Record
from .core.tree import Leaf, walk
from .families import Family


class Model(Record):
    """A model known down to its last weight."""

    name: str
    family: Family
    tree: Decoder
    config: Config
    source: str
    notes: tuple[str, ...] = ()
    args: ModelArgs | None = None  # what it was made from, where that was Meta's `params.json`
    wrapper: str = ""  # the type of the multimodal model that this is the text part of

    @cached_property
    def count(self) -> Count:
        """The count view: sections, groups, formula."""
        return count(self.tree)

    @property
    def parameters(self) -> Parameters:
        """The counts that people confuse, each exact."""
        return self.count.parameters

    @property
    def weights(self) -> Iterator[Leaf]:
        """Every weight in tensor order, one per expert, streamed; a tied head comes too, with no parameters of its own."""
        return walk(self.tree)

    def scheme(self, name: str) -> Scheme:
        """How its tensors are named in files: `hf`, `meta` or `gguf`."""
        from .core.errors import UnknownModel

        if (found := self.family.schemes.get(name)) is None:
            known = ", ".join(self.family.schemes)
            raise UnknownModel(f"the {self.family.name} family has no {name} names", hint=f"it has {known}")
        return found

    def _repr_html_(self) -> str:
        from .render.html import count_html

        return count_html(self)
