"""The registry of families: what the modules of families declare of model types, found by the
names and sources of these modules and imported on first use.
"""

from __future__ import annotations

import os
from _thread import RLock
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

from ..checkpoint.naming.scheme import Scheme
from ..core.blocks import Decoder
from ..core.config import Config
from ..utils.errors import Call, Name, UnknownModel, nearest, safe
from ..utils.record_type import Record
from .gguf_record import GGUFMetadata

Builder = Callable[[Config], Decoder]
X = TypeVar("X")

_IMPORTING = RLock()
"""Held while modules are imported: a family is declared before the end of its module."""
_IMPORTED: set[str] = set()
"""The modules that were imported to look for a declaration."""
_FOLDERS = ("", "multimodal")
"""Folders of the modules that declare model types, in this package."""


class Family(Record):
    """A builder of trees, with the names of its tensors in each file format; None where that
    format does not exist.
    """

    name: str
    module: str  # in this package
    build: Builder
    hf: Scheme
    types: tuple[str, ...] = ()  # the model types that it builds
    meta: Scheme | None = None
    gguf: Scheme | None = None
    # `general.architecture` of its GGUF files, also where the names in them are not known here
    gguf_arch: str = ""
    gguf_metadata: tuple[GGUFMetadata, ...] = ()  # of its GGUF files; empty: not known here
    why_no_gguf: str = ""  # what of its GGUF files cannot be written, if that is known
    # other forms of the names, as published files or other versions of transformers have them
    hf_forms: tuple[Scheme, ...] = ()
    # name of its chat format (tokenizers/chat_formats.py), for checkpoints whose template and
    # special tokens do not show it
    chat: str = ""
    causal_class: str = ""  # class of the causal model of its first type in transformers
    # routers are linear layers in transformers, which adapters of all linear layers include
    has_linear_routers: bool = False
    # model types (of the whole model) whose experts peft adapts by the names of transformers 4:
    # those that transformers' conversion_mapping.py converts as Mixtral or Qwen2-MoE
    renames_experts: tuple[str, ...] = ()
    # the type of the same model by itself, where transformers has these types only inside
    # multimodal models
    standalone_type: str = ""
    # names of a tree's tensors in Hugging Face's files, where not all trees have those of `hf`
    hf_of: Callable[[Decoder], Scheme] | None = None
    # names in `architectures` that decide the family, whatever the model type says
    architectures: tuple[str, ...] = ()
    # what configurations inside multimodal models leave out, since it is the default of their class
    class_defaults: Mapping[str, int] = MappingProxyType({})

    def __call__(self, config: Config) -> Decoder:
        return self.build(config)

    def for_tree(self, tree: Decoder) -> Family:
        """Return the family with the names of a tree's tensors, some of which may depend on its
        layers.
        """
        hf = (self.hf if self.hf_of is None else self.hf_of(tree)).numbered(int(tree.layers.n))
        return self if hf is self.hf else self.replace(hf=hf)

    @property
    def schemes(self) -> dict[str, Scheme]:
        """The available naming schemes by name."""
        return {x.name: x for x in (self.hf, self.meta, self.gguf) if x}

    def __reduce__(self) -> tuple[Callable[..., Family], tuple[str, dict[str, Any]]]:
        """Pickle the module's name, and the fields that were replaced; a builder is never
        pickled.
        """
        registered = _import_family(self.module)
        return _unpickle, (
            self.module,
            {
                x: getattr(self, x)
                for x in self.fields
                if getattr(self, x) != getattr(registered, x)
            },
        )


class Declared(dict[str, X]):
    """Model type → what a module declares of it; filled as the modules are imported."""

    def add(self, types: Iterable[str], value: X) -> None:
        """Add a value for each of these model types, which no other module may declare."""
        for model_type in types:
            if model_type in self:
                raise ValueError(f"two modules declare the model type {model_type!r}")
            self[model_type] = value

    def find(self, model_type: str) -> X | None:
        """Return the value of a model type, whose module is imported if need be; None for an
        unknown one.
        """
        import_module_of(model_type, self)
        return self.get(model_type)

    def import_all(self) -> Mapping[str, X]:
        """Import all modules, and return the values of all model types."""
        with _IMPORTING:
            for name in _modules_like(""):
                import_module(name, __package__)
        return self


FAMILIES: Declared[Family] = Declared()
"""Model type → its family; `find` imports the module of a type first."""


def family(
    types: str = "",
    *,
    hf: Scheme,
    hf_forms: tuple[Scheme, ...] = (),
    meta: Scheme | None = None,
    gguf: Scheme | None = None,
    gguf_arch: str = "",
    gguf_metadata: GGUFMetadata | tuple[GGUFMetadata, ...] = (),
    why_no_gguf: str = "",
    chat: str = "",
    causal_class: str = "",
    has_linear_routers: bool = False,
    renames_experts: str = "",
    standalone_type: str = "",
    hf_of: Callable[[Decoder], Scheme] | None = None,
    architectures: str = "",
    class_defaults: Mapping[str, int] = MappingProxyType({}),
    name: str = "",
) -> Callable[[Builder], Family]:
    """Make a family of a builder that has the name of its module, for these model types,
    separated by spaces; without them, for the type with the name of the module.
    """

    def decorate(build: Builder) -> Family:
        module = build.__module__.rpartition(".")[2]
        all_types = tuple((types or module).split())
        records = gguf_metadata if isinstance(gguf_metadata, tuple) else (gguf_metadata,)
        made = Family(
            name=name or module,
            module=module,
            types=all_types,
            build=build,
            hf=hf,
            hf_forms=hf_forms,
            meta=meta,
            gguf=gguf,
            gguf_arch=gguf_arch,
            gguf_metadata=tuple(
                x.replace(arch=x.arch or gguf_arch, model_type=x.model_type or all_types[0])
                for x in records
            ),
            why_no_gguf=why_no_gguf,
            chat=chat,
            causal_class=causal_class,
            has_linear_routers=has_linear_routers,
            renames_experts=tuple(renames_experts.split()),
            standalone_type=standalone_type,
            hf_of=hf_of,
            architectures=tuple(architectures.split()),
            class_defaults=class_defaults,
        )
        FAMILIES.add(made.types, made)
        return made

    return decorate


def find_family(model_type: str, source: str = "config") -> Family:
    """Return the family of a model type; the error for an unknown one names the nearest."""
    found = FAMILIES.find(model_type)
    if found is None:
        raise _unsupported_type_error(model_type, source)
    return found


def gguf_records(arch: str) -> tuple[GGUFMetadata, ...]:
    """Return how the headers of an architecture of GGUF files are read, in the order in which the
    records are tried; empty for an unknown one.
    """
    with _IMPORTING:
        for module in _modules_like(arch):
            import_module(module, __package__)
            found = _own_records(arch)
            if last := next((x for x in found if x.applies is None), None):
                first = [y for x in last.tried_first.split() for y in find_family(x).gguf_metadata]
                return (*first, last)
    return ()


def gguf_architectures() -> list[str]:
    """Return the architectures of GGUF files whose metadata are known."""
    families = FAMILIES.import_all().values()
    return sorted({x.arch for family in families for x in family.gguf_metadata})


def _own_records(arch: str) -> list[GGUFMetadata]:
    return [x for family in FAMILIES.values() for x in family.gguf_metadata if x.arch == arch]


def type_of_architecture(name: str) -> str | None:
    """Return the model type of a class in `architectures` that decides the family, declared by a
    module whose name it begins with; None for any other.
    """
    lower = name.lower()
    with _IMPORTING:
        for module, folder in _module_names():
            plain = module.replace("_", "")
            if not folder and len(plain) > 3 and lower.startswith(plain):
                found = getattr(import_module(f"{__package__}.{module}"), module, None)
                if isinstance(found, Family) and name in found.architectures:
                    return found.types[0]
    return None


def import_module_of(model_type: str, *declared: Mapping[str, object]) -> None:
    """Import the module that declares a model type in one of these tables.

    It mentions the type or has its name; all modules are imported for a type that none of them
    declares.
    """
    with _IMPORTING:
        if not model_type or any(model_type in x for x in declared):
            return
        if len(_IMPORTED) == len(_module_names()):
            return  # none of them declares it
        for name in _modules_like(model_type):
            import_module(name, __package__)
            _IMPORTED.add(name)
            if any(model_type in x for x in declared):
                return


def _modules_like(model_type: str) -> Iterator[str]:
    """Yield the names of all modules here: those that mention a model type or have its name before
    the others, and those that begin with most of it first.
    """
    wanted = model_type.replace("-", "_")

    def shared(name: str) -> int:
        n = 0
        for a, b in zip(name, wanted, strict=False):
            if a != b:
                break
            n += 1
        return n

    others = []
    for place in sorted(_module_names(), key=lambda x: -shared(x[0])):
        if place[0] == wanted or _mentions(place, model_type):
            yield _module_at(place)
        else:
            others.append(place)
    yield from map(_module_at, others)


def _module_at(place: tuple[str, str]) -> str:
    name, folder = place
    return f".{folder}.{name}" if folder else f".{name}"


def _mentions(place: tuple[str, str], model_type: str) -> bool:
    """Whether a model type is a word of a text in the source of a module."""
    name, folder = place
    path = os.path.join(os.path.dirname(__file__), folder, f"{name}.py")
    with open(path, "rb") as file:
        text, ends = file.read(), (b'"', b" ")
    word = model_type.encode(errors="surrogatepass")
    return any(x + word + y in text for x in ends for y in ends)


@cache
def _module_names() -> list[tuple[str, str]]:
    """Return the name and the folder of each module."""
    names = [
        (file.removesuffix(".py"), folder)
        for folder in _FOLDERS
        for file in os.listdir(os.path.join(os.path.dirname(__file__), folder))
        if file.endswith(".py") and file != "__init__.py"
    ]
    return sorted(names, key=lambda x: (x[1], x[0]))


def _import_family(module: str) -> Family:
    registered: Family = getattr(import_module(f"{__package__}.{module}"), module)
    return registered


def _unpickle(module: str, changes: dict[str, Any]) -> Family:
    registered = _import_family(module)
    return registered.replace(**changes) if changes else registered


def other_ways() -> str:
    """Return the hint of a refusal: how to count a model that no family describes."""
    from importlib.util import find_spec

    advice = "count its checkpoint instead of its config: the header is exact for any model"
    if all(find_spec(x) is not None for x in ("transformers", "torch")):
        call = Call("count", Name("model"), via="transformers")
        advice += f"; {call} counts the class in transformers"
    return advice


def _unsupported_type_error(model_type: str, source: str) -> UnknownModel:
    """Return the error for a model type without a family."""
    from .refused import REFUSED

    name, advice = safe(repr(model_type), 60), other_ways()
    if reason := REFUSED.get(model_type):
        return UnknownModel(f"{source}: model_type {name} is not supported: {reason}", hint=advice)
    near = nearest(model_type, FAMILIES.import_all())
    hint = f"did you mean {' or '.join(near)}? Otherwise " if near else ""
    return UnknownModel(f"{source}: unknown model_type {name}", hint=hint + advice)
