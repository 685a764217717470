"""`GenericModel`: a model without a family, counted from its state dict: total, names, shapes
and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any, ClassVar, NoReturn

from ..checkpoint.formats.dtypes import DTYPES
from ..checkpoint.formats.manifest import CheckpointFile, Manifest, Tensor
from ..checkpoint.naming.scheme import Scheme, TiedNames
from ..core.blocks import Decoder
from ..core.config import Config
from ..core.parameter_count import Count, Formula, Parameters, sections_of
from ..families.counted_models import CountedModel, find_counted
from ..families.registry import Family
from ..model import Model
from .module_tree import STATE_DICT_NAMES, NoFormula, StateTensor, hide_fields, module_tree


class _GenericFamily(Family):
    """The family of models that have none: the names of their tensors are those of the state
    dict.
    """

    def __reduce__(self) -> tuple[Callable[..., Family], tuple[Any, ...]]:
        return _generic_family, ()


def _build(config: Config) -> Decoder:
    raise NoFormula(
        f"{config.source}: the tensors of a state dict do not follow from other config keys",
        hint="build the model anew",
    )


def _generic_family() -> Family:
    return _GENERIC


_GENERIC = _GenericFamily(name="no", module="", build=_build, hf=STATE_DICT_NAMES)


ENCODER_NOTE = (
    "the encoder reads a prompt of T tokens once, those of images among them; generated tokens "
    "are the decoder's. A context of T tokens is "
    "T in the encoder and as many in the decoder, whose tokens attend to both"
)
"""What a number of tokens means for a model with an encoder."""


class GenericParameters(Parameters):
    """The totals that a state dict tells; the others need a family, and are null in its JSON."""

    fields: ClassVar[tuple[str, ...]] = (
        "total",
        "tied_counted_twice",
        "buffers",
        "extras",
        "claim",
    )
    json_fields: ClassVar[tuple[str, ...]] = tuple(
        x if x in ("total", "tied_counted_twice", "buffers", "extras") else f"{x}=unknown"
        for x in Parameters.fields
    )
    claim: str

    @property
    def unknown(self) -> None:
        """Totals that need a family."""
        return None


hide_fields(GenericParameters, Parameters)


class GenericModel(Model):
    """A model whose tensors are known, and nothing else; two are equal if their tensors and
    configurations are.
    """

    tensors: tuple[StateTensor, ...]

    @cached_property
    def count(self) -> Count:
        sizes = [(x, prod(x.shape)) for x in self.tensors]
        total = sum(n for x, n in sizes if not x.tied and not x.is_buffer)
        buffers = sum(n for x, n in sizes if not x.tied and x.is_buffer)
        parameters = GenericParameters(  # type: ignore[call-arg]  # the other totals are unknown
            total=total,
            tied_counted_twice=sum(n for x, n in sizes if not x.is_buffer),
            extras={"buffers": buffers} if buffers else {},
            claim=self.claim,
        )
        formula = Formula(symbols="", numbers="", letters={}, value=total)
        return Count(
            parameters=parameters,
            groups=self._groups(),
            sections=tuple(sections_of(self.tree)),
            formula=formula,
        )

    @cached_property
    def kind(self) -> CountedModel | None:
        """How its modules and its passes follow from its configuration; None where they do not."""
        kind = find_counted(str(self.config.get("model_type", "")))
        return None if kind is None or kind.claim != self.claim else kind

    @cached_property
    def computable(self) -> Model:
        if (kind := self.kind) is None:
            return self
        read = Config(self.config.data, self.source)
        tree = kind.tree(read)
        notes = tuple(x for x in self.notes if x != ENCODER_NOTE)
        family = _GenericFamily(
            name=str(read.get("model_type", "")), module="", build=_build, hf=STATE_DICT_NAMES
        )
        return Model(
            name=self.name,
            family=family,
            tree=tree,
            config=read,
            outer=read,
            source=self.source,
            notes=(*notes, ENCODER_NOTE),
        )

    @property
    def tied_names(self) -> Iterator[TiedNames]:
        return (TiedNames(x.name, x.tied, x.shape) for x in self.tensors if x.tied)

    def part(self, name: str) -> NoReturn:
        raise NoFormula(
            f"the {name} part needs a family: {self.name} is counted {self.claim}",
            hint="count sums by module",
        )

    def scheme(self, name: str) -> Scheme:
        if name != "hf":
            raise NoFormula(
                f"{self.name} has no {name} names: it is counted {self.claim}",
                hint="its HF names are known",
            )
        return self.family.hf

    def _groups(self) -> Mapping[str, int]:
        """Return the parameters of the modules of the root; the largest one is divided into its
        own.
        """
        groups = _sums(self.tensors, 1)
        largest = max(groups, key=groups.__getitem__, default="")
        inside = {x.name: x for x in self.tensors if x.name.startswith(f"{largest}.")}
        divided = _sums(inside.values(), 2)
        named = [
            (name, divided if name == largest and len(divided) > 1 else {name: n})
            for name, n in groups.items()
        ]
        return {name: n for _, part in named for name, n in part.items() if n}

    @cached_property
    def manifest(self) -> Manifest:
        """The tensors as one file of torch has them, in which those of equal values share their
        bytes; without buffers.
        """
        starts: dict[str, int] = {}
        tensors, at = [], 0
        for x in self.tensors:
            if x.is_buffer:
                continue
            size = DTYPES[x.dtype].size(prod(x.shape))
            start = starts.get(x.tied, at)
            starts[x.name] = start
            tensors.append(
                Tensor(x.name, x.dtype, x.shape, 0, start, start + size, storage=x.tied or x.name)
            )
            at = max(at, start + size)
        return Manifest(
            format="torch", files=(CheckpointFile(self.name, at),), tensors=tuple(tensors)
        )

    def __repr__(self) -> str:
        return f"Model({self.name!r}, {self.parameters.total:,} parameters, {self.claim})"


def _sums(tensors: Any, parts: int) -> dict[str, int]:
    sums: dict[str, int] = {}
    for x in tensors:
        name = ".".join(x.name.split(".")[:-1][:parts]) or x.name
        sums[name] = sums.get(name, 0) + (0 if x.tied or x.is_buffer else prod(x.shape))
    return sums


def generic_model(
    tensors: Sequence[StateTensor],
    claim: str,
    *,
    name: str,
    source: str,
    keys: Mapping[str, Any],
    notes: Sequence[str],
    location: str = "",
) -> GenericModel:
    """Return the model of a state dict; `claim` says whose it is."""
    return GenericModel(
        name=name,
        family=_GENERIC,
        tree=module_tree(tensors, claim),
        config=Config(keys, source),
        source=source,
        notes=tuple(notes),
        location=location,
        tensors=tuple(tensors),
        claim=claim,
    )


def untie(model: GenericModel, names: Collection[str], note: str) -> GenericModel:
    """Return a model whose tensors of these names share no values with others."""
    tensors = [x._replace(tied="") if x.name in names else x for x in model.tensors]
    return model.replace(
        tree=module_tree(tensors, model.claim), tensors=tuple(tensors), notes=(*model.notes, note)
    )
