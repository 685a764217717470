"""`name_rows`, `views` and `hf_attributes`: the names of weights in files, how each is read of its
stored tensor, and Hugging Face's names for the attributes of the classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from ...checkpoint.naming.scheme import Scheme, UnnamedWeight
from ...checkpoint.naming.stored_layouts import count_groups, layout_params_at, values_last
from ...checkpoint.open import cached_copy, is_remote_name, names_checkpoint, open_checkpoint
from ...core.expr import Expr, total
from ...core.tree import LETTERS, Block, Folded, Leaf, Stack, Weight, fold
from ...model import FamilyModel
from ...utils.errors import Call, Name, safe
from ...utils.named_tuple import NamedTuple
from .model_code import ModelWriter
from .refusal import NotWritten

_WORDS = frozenset(
    {"flip", "heads", "rows", "split", "shifted", "each", "quarters", "unit", "lead", "flat"}
    | {"below", "decay"}
)
"""Words of layouts that `load` can undo."""


def scheme_of_files(model: FamilyModel) -> Scheme:
    """Return the names of weights in the local files that a model was loaded from, or in published
    files; files that `load` cannot read are refused.
    """
    published, location = model.scheme("hf"), model.location
    path = cached_copy(location) if location and is_remote_name(location) else location
    if not path or not names_checkpoint(path):
        return published
    from ...checkpoint.naming.detect_scheme import detect_scheme

    opened = open_checkpoint(path, allow_partial=True, local_only=True)
    stored = {x.name: tuple(x.shape) for x in opened.manifest.tensors}
    if not stored:
        return published
    convert = Call("convert", Name("source"), Name("target"), names="hf", dtype="bf16")
    hint = f"{convert} writes files that it reads"
    if opened.manifest.format != "safetensors":
        raise NotWritten(f"`load` for {opened.manifest.format} files", hint=hint)
    if opened.packing_config is not None:
        raise NotWritten("`load` for quantized files", hint=hint)
    match = detect_scheme(model.tree, (published, *model.family.hf_forms), stored)
    for name, tensor, found in zip(match.names, match.tensors, match.found, strict=True):
        if found is None:
            raise NotWritten(f"`load` for files without {safe(name)}", hint=hint)
        if found != tuple(map(int, tensor.shape)):
            raise NotWritten(f"`load` for files in which {safe(name)} is {found}", hint=hint)
    return match.scheme


class NameRow(NamedTuple):
    """A module or weight here, its stored name, and its names in other formats."""

    module: str
    stored: str
    others: str


def other_formats(model: FamilyModel) -> list[str]:
    """Return the other formats whose names of a model's weights are known."""
    return [x for x in ("meta", "gguf") if x in model.family.schemes]


def name_rows(model: FamilyModel, scheme: Scheme, path: Callable[[str], str]) -> list[NameRow]:
    """Return the names of all modules, with `{}` for numbers; `path` is where they are here."""
    others = [model.scheme(x) for x in other_formats(model)]
    found: dict[tuple[str, str], NameRow] = {}
    for x in _distinct(model.tree):
        source = x.weight.tied or x.pattern
        stored = scheme.stored_name(source)
        here = path(x.pattern)
        module, _, leaf = here.rpartition(".")
        whole = stored.endswith(f".{leaf}")
        key = (module, stored.removesuffix(f".{leaf}")) if whole else (here, stored)
        if key not in found:
            names = [_other_name(other, source, leaf) for other in others]
            row = ", ".join(y or "none" for y in names)
            found[key] = NameRow(numbered(key[0]), numbered(key[1]), row)
    return list(found.values())


def _distinct(tree: Block) -> Iterable[Folded]:
    return {x.pattern: x for x in fold(tree)}.values()


def numbered(pattern: str) -> str:
    """Return a pattern with `{}` in the place of its letters."""
    return pattern.replace(LETTERS[0], "{}").replace(LETTERS[1], "{}")


def _other_name(scheme: Scheme, path: str, leaf: str) -> str:
    """Return the name in another format, with a star if its rows are in another order."""
    try:
        name = scheme.stored_name(path)
    except UnnamedWeight:
        return ""
    mark = "*" if "rotary" in scheme.layout_of(path).split() else ""
    return name.removeprefix(scheme.prefix + scheme.layer).removesuffix(f".{leaf}") + mark


class View(NamedTuple):
    """How a weight is read of the stored tensor x: an expression in x, and in e for an expert."""

    pattern: str
    text: str

    @property
    def of_expert(self) -> bool:
        """Whether it mentions the number of an expert."""
        return "[e]" in self.text


def views(tree: Block, scheme: Scheme, written: Callable[[int], str]) -> list[View]:
    """Return the views of the weights that are not stored as they are; `written` writes a
    dimension.
    """
    if scheme.chunked:
        raise NotWritten("the layout of files in which weights are stored in chunks")
    groups: dict[str, list[Folded]] = {}
    for x in _distinct(tree):
        if not x.weight.tied:
            groups.setdefault(scheme.stored_name(x.pattern), []).append(x)
    return [
        View(x.pattern, text)
        for stored, parts in groups.items()
        for i, x in enumerate(parts)
        if (text := _view(tree, scheme, stored, parts, i, written)) != "x"
    ]


def _view(
    tree: Block,
    scheme: Scheme,
    stored: str,
    parts: list[Folded],
    i: int,
    written: Callable[[int], str],
) -> str:
    x = parts[i]
    words = scheme.layout_of(x.pattern).split()
    if unknown := [word for word in words if word not in _WORDS]:
        raise NotWritten(f"the layout {unknown[0]} of {stored}")
    text = "x"
    if "{e}" in x.pattern and "{e}" not in stored:
        text = f"x.unflatten(0, ({x.num_experts}, -1))[e]" if "below" in words else "x[e]"
    text += ".squeeze(1)" * ("unit" in words) + ".squeeze(0)" * words.count("lead")
    if "flat" in words:
        text += f".view({', '.join(map(written, x.weight.shape))})"
    text += ".mT" * ("flip" in words and len(x.weight.shape) > 1)
    text += ".flatten(0, 1)" * ("split" in words)
    if len(parts) > 1:
        text += _part(tree, words, parts, i, written)
    if "shifted" in words:
        text += " - 1"
    return f"(-{text}).log()" if "decay" in words else text


def _part(
    tree: Block, words: list[str], parts: list[Folded], i: int, written: Callable[[int], str]
) -> str:
    """Return the part of a stored tensor that a weight is, as an index."""
    sizes = [y.weight.shape[0] for y in parts]
    params = layout_params_at(tree, _first_leaf(tree, parts[i].pattern))
    groups = count_groups(words, [int(n) for n in sizes], params)
    order = values_last(list(range(len(parts))), words)
    at = order.index(i)
    if groups == 1:
        before, end = [sizes[j] for j in order[:at]], at == len(order) - 1
        return _range(before, sizes[i], end, written)
    if "rows" in words:
        return f".unflatten(0, (-1, {len(parts)}))[:, {at}]"
    unit = _group_letter(sizes, groups)
    inside = [n.exact_div(unit) for n in sizes]
    before, end = [inside[j] for j in order[:at]], at == len(order) - 1
    part = _range(before, inside[i], end, written).removeprefix("[")
    return f".unflatten(0, ({written(unit)}, -1))[:, {part}.flatten(0, 1)"


def _first_leaf(tree: Block, pattern: str) -> Leaf:
    """Return the first leaf of a pattern, without walking the others: there may be 100,000."""
    indices, weight = _first_weight(tree, pattern.split("."), ())
    return Leaf(pattern, indices, weight, "")


def _first_weight(
    block: Block, path: list[str], indices: tuple[int, ...]
) -> tuple[tuple[int, ...], Weight]:
    name, *rest = path
    child = dict(block.children)[name]
    if isinstance(child, Weight):
        return indices, child
    if isinstance(child, Block):
        return _first_weight(child, rest, indices)
    left = {id(x) for x, _ in child.distinct()}
    for i, x in enumerate(child, child.first):
        if id(x) in left:
            left.remove(id(x))
            with suppress(KeyError):  # of blocks without such a weight
                return _first_weight(x, rest[1:], (*indices, i))
        if not left:
            break
    raise KeyError(name)


def _range(before: list[Expr], size: Expr, end: bool, written: Callable[[int], str]) -> str:
    start = total(before) if before else None
    stop = None if end else total([*before, size])
    first, last = ("" if x is None else written(x) for x in (start, stop))
    if "*" in f"{first}{last}" or "+" in f"{first}{last}":  # as a formatter writes it
        return f"[{first} :{' ' * bool(last)}{last}]".replace("[ :", "[:")
    return f"[{first}:{last}]"


def _group_letter(sizes: list[Expr], groups: int) -> Expr:
    """Return the number of groups as a letter that all sizes have, or as a number."""
    letters = [x for n in sizes for x in n.letters.items()]
    for letter, value in letters:
        common = all(letter in n.letters for n in sizes)
        if value == groups and (common or letter in ("K", "Hk")):
            return Expr(letter, groups)
    return Expr.const(groups)


Attributes = dict[tuple[str, str], str]
"""Class and attribute → the attribute's other name."""


def hf_attributes(code: ModelWriter, scheme: Scheme) -> Attributes:
    """Return the attributes that have another name in Hugging Face's files, where a path there has
    as many parts as here; an attribute with two names keeps its own.
    """
    found: dict[tuple[str, str], set[str]] = {}
    for owner, name, other in _pairs(code, scheme, code.tree, ""):
        found.setdefault((owner, name), set()).add(other)
    result = {k: next(iter(v)) if len(v) == 1 else k[1] for k, v in found.items()}
    for owner in {x for x, _ in result}:
        names = [y for (x, _), y in result.items() if x == owner]
        for key in [x for x in result if x[0] == owner]:
            if names.count(result[key]) > 1 or not result[key].isidentifier():
                result[key] = key[1]
    return {k: v for k, v in result.items() if v != k[1]}


def _pairs(
    code: ModelWriter, scheme: Scheme, block: Block, path: str
) -> Iterator[tuple[str, str, str]]:
    """Yield the class, each attribute, and what it is in the name of a weight inside."""
    owner, depth = code.class_name(block), path.count(".") + 1 if path else 0
    if owner is None:
        return
    for name, child in block.children:
        inner = f"{path}.{name}" if path else name
        letter = LETTERS[LETTERS[0] in inner]
        blocks = [x for x, _ in child.distinct()] if isinstance(child, Stack) else [child]
        for x in blocks:
            at = f"{inner}.{letter}" if isinstance(child, Stack) else inner
            leaves = [at] if isinstance(x, Weight) else [f"{at}.{y}" for y in _leaves(x, at)]
            for leaf in leaves:
                theirs = _inside_model(scheme, leaf)
                if len(theirs) == leaf.count(".") + 1:
                    yield owner, name, theirs[depth]
            if isinstance(x, Block):
                yield from _pairs(code, scheme, x, at)


def _leaves(block: Block, path: str) -> list[str]:
    return [x.pattern for x in fold(block, int(LETTERS[0] in path)) if not x.weight.tied]


def _inside_model(scheme: Scheme, path: str) -> list[str]:
    """Return the parts of a stored name, without that of the module that holds the layers."""
    try:
        stored = scheme.stored_name(path)
    except UnnamedWeight:
        return []
    start = (scheme.prefix + scheme.layer).partition("{l}")[0].rstrip(".").rpartition(".")[0]
    return (stored.removeprefix(f"{start}.") if start else stored).split(".")
