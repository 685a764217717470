"""`find_presets`: the presets with some words in their names, with the sizes of their models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from ...catalog import Preset, normalize_name, presets, read_preset, slugs
from ...catalog.refused_models import REFUSED_MODELS, RefusedModel
from ...core.blocks import AttentionBase, Decoder
from ...core.mixers import RecurrentMixer
from ...core.multimodal import parts_of
from ...core.tree import Block, fold, fold_blocks
from ...loading import load_family
from ...model import FamilyModel
from ...render.report import Report
from ...render.tables import Cell, Column, Part, Table, Text
from ...utils.errors import Call, UnknownModel, nearest, safe
from ...utils.number_format import format_count, short_count
from ...utils.record_type import Record, encode_json
from ..storage.choose_storage import weight_storage


class PresetSummary(Record):
    """A preset and the sizes of its model."""

    preset: str
    name: str
    family: str
    ids: tuple[str, ...]
    total: int
    active: int
    layers: int
    width: int
    heads: int | None
    kv_heads: int | None
    vocabulary: int
    context: int | None
    # dense or moe; hybrid or recurrent if some or all layers have recurrent states; vision if it
    # reads images
    kinds: tuple[str, ...]
    weight_bytes: int  # in the dtype, or with the quantization, of its config
    released: str | None  # YYYY-MM-DD or YYYY-MM
    license: str | None
    source: str
    grade: str  # how far its configuration is the published one, one of `GRADES`


class PresetFit(Record):
    """The result of `fit` for a preset that fits on GPUs."""

    preset: str
    dtype: str  # of the weights
    kv_dtype: str
    context: int  # tokens of the sequence
    total: int  # bytes on the fullest GPU
    memory: int  # of that GPU
    max_context: int | None  # None: any
    decode_ceiling: float | None  # tokens a second; None: the bandwidth is unknown


class PresetList(Report):
    """Presets; iterable. Of those that fit on GPUs, `fits` has the memory and the speed."""

    models: tuple[PresetSummary, ...]
    refused: tuple[RefusedModel, ...] = ()  # known by these names, and not counted
    on: str = ""
    fits: tuple[PresetFit, ...] = ()
    best_first: bool = False  # the largest first, but last what is slower than one reads
    unknown_bandwidth: str = ""  # the device whose bandwidth is not known
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the presets and the refused models, or with GPUs what fits on these."""
        rest: dict[str, object] = {"refused": self.refused}
        if self.on:
            rest = {"on": self.on, "fits": self.fits, "notes": self.notes}
        return {x: encode_json(y) for x, y in {"models": self.models, **rest}.items()}

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.models or (self.refused and not self.on))

    @property
    def summary(self) -> str:
        """The size of a single preset, or the number of presets and the range of their sizes."""
        if not self.models:
            many = format_count(len(self.refused), "refused model")
            return f"no preset fits on {self.on}" if self.on else f"no preset, {many}"
        if self.on:
            largest, fit = max(zip(self.models, self.fits, strict=True), key=lambda x: x[0].total)
            many = format_count(len(self.models), "preset")
            verb = "fits" if len(self.models) == 1 else "fit"
            return (
                f"{many} {verb} on {self.on}, the largest is {largest.preset} "
                f"({short_count(largest.total)}) in {fit.dtype}"
            )
        if len(self.models) == 1:
            preset = self.models[0]
            active = (
                f", {short_count(preset.active)} active" if preset.active != preset.total else ""
            )
            return (
                f"{preset.name}: {preset.total:,} parameters ({short_count(preset.total)}){active}"
            )
        sizes = sorted(x.total for x in self.models)
        return (
            f"{format_count(len(sizes), 'preset')} with {short_count(sizes[0])} to "
            f"{short_count(sizes[-1])} parameters"
        )

    @property
    def headline(self) -> str:
        """Nothing: the table begins at once."""
        return ""

    @property
    def entries(self) -> Sequence[PresetSummary]:
        """The presets."""
        return self.models

    @property
    def _order(self) -> str:
        if self.unknown_bandwidth:
            first = "the largest first, " if self.best_first else ""
            return f"{first}as the memory bandwidth of {self.unknown_bandwidth} is not known"
        if not self.best_first:
            return "tokens/s are upper bounds"
        return (
            "tokens/s are upper bounds; the largest first, and last those that are slower than "
            f"one reads ({READING:g} tokens/s)"
        )

    def tables(self) -> Iterable[Part]:
        """A row for each preset."""
        if self.on:
            if not self.models:
                yield Text(self.summary)
                return
            rows = tuple(map(_fit_cells, self.models, self.fits))
            yield Table(columns=_FIT_COLUMNS, rows=rows)
            yield Text(f"{self.summary}; 1 sequence each; {self._order}")
            return
        if self.models:
            yield Table(columns=_COLUMNS, rows=tuple(map(_cells, self.models)))
            yield Text(format_count(len(self.models), "preset"))
        for x in self.refused:
            yield Text(f"refused: {x.name}, {x.public_id}: {x.reason}", hanging="  ")


READING = 5.3
"""Tokens a second at which people read: 238 words a minute (Brysbaert 2019,
doi:10.1016/j.jml.2019.104047), 4 tokens for 3 words."""

_COLUMNS = (
    Column("preset"),
    Column("total", "short"),
    Column("active", "short"),
    Column("L", "number", "layers", drop=4),
    Column("width", "count", drop=3),
    Column("H/K", "right", "", drop=2),
    Column("heads", "number", shown=False),
    Column("kv_heads", "number", shown=False),
    Column("vocab", "count", "vocabulary", drop=1),
    Column("context", "count", drop=5),
    Column("released"),
    Column("license", "name"),
)
"""L layers, H heads, K key/value heads, as in all formulas."""


_FIT_COLUMNS = (
    Column("preset"),
    Column("total", "short"),
    Column("active", "short", drop=4),
    Column("weights", key="dtype"),
    Column("KV cache", key="kv_dtype", drop=3),
    Column("context", "count"),
    Column("GiB", "GiB", "bytes"),
    Column("of", "GiB", "memory", drop=2),
    Column("max context", "count", drop=1),
    Column("tokens/s ≤", "rate", "decode_ceiling"),
)


def _fit_cells(x: PresetSummary, fit: PresetFit) -> tuple[Any, ...]:
    active = x.active if x.active != x.total else Cell(x.active, text="")
    return (
        *(x.preset, x.total, active, fit.dtype, fit.kv_dtype, fit.context, fit.total, fit.memory),
        *(fit.max_context, fit.decode_ceiling),
    )


def _cells(x: PresetSummary) -> tuple[Any, ...]:
    heads = "/".join(str(n) for n in (x.heads, x.kv_heads) if n is not None)
    active = x.active if x.active != x.total else Cell(x.active, text="")
    return (
        *(x.preset, x.total, active, x.layers, x.width, heads, x.heads, x.kv_heads),
        *(x.vocabulary, x.context, x.released or UNKNOWN, x.license or UNKNOWN),
    )


UNKNOWN = "unknown"
"""What tables show for a date or a license that is not known."""

SORT_KEYS: Mapping[str, Callable[[PresetSummary], int | str]] = {
    "params": lambda x: x.total,
    "active": lambda x: x.active,
    "context": lambda x: x.context or 0,
    "date": lambda x: x.released or "",
}
"""What presets can be sorted by, the largest or newest first; those whose value is unknown come
last."""


def find_presets(
    words: Sequence[str] = (),
    sort: str | None = None,
) -> PresetList:
    """Return the presets and the refused models that have all these words in their name, ids,
    aliases or family; a kind of `model_kinds` chooses those of this kind. Words that match nothing
    are an error.

    `sort` is one of `SORT_KEYS`.
    """
    found = [x for x in presets() if all(_matches(x, word.lower()) for word in words)]
    refused = tuple(
        x
        for x in REFUSED_MODELS
        if all(_is_part(word.lower(), f"{x.name} {x.public_id}".lower()) for word in words)
    )
    if not found and not refused:
        wanted = " ".join(words)
        near = nearest(wanted, slugs())
        hint = (
            f"did you mean {near[0]}? {Call('models')} lists all"
            if near
            else f"{Call('models')} lists all"
        )
        raise UnknownModel(f"no preset matches {safe(repr(wanted), 60)}", hint=hint)
    summaries = [_summarize_preset(x.slug) for x in found]
    return PresetList(
        models=tuple(sorted(summaries, key=SORT_KEYS[sort], reverse=True) if sort else summaries),
        refused=refused,
    )


@cache
def _summarize_preset(slug: str) -> PresetSummary:
    """Load a preset and return its sizes; a server or an agent lists them more than once."""
    preset, model = read_preset(slug), load_family(slug)
    tree = model.tree
    attention = next(
        (x for layer, _ in tree.layers.distinct() for x in _mixers(layer) if hasattr(x, "heads")),
        None,
    )
    return PresetSummary(
        preset=preset.slug,
        name=preset.name,
        family=model.family.name,
        ids=preset.ids,
        total=model.parameters.total,
        active=model.parameters.active,
        layers=int(tree.layers.n),
        width=int(tree.width),
        heads=_int(getattr(attention, "heads", None)),
        kv_heads=_int(getattr(attention, "kv_heads", None)),
        vocabulary=int(tree.vocab),
        context=_int(tree.context),
        kinds=model_kinds(tree),
        weight_bytes=_weight_bytes(model),
        released=preset.released,
        license=preset.license,
        source=preset.source,
        grade=preset.grade,
    )


def _matches(preset: Preset, word: str) -> bool:
    """Return whether a word is in a preset's names; a kind is no name."""
    if word in MODEL_KINDS:
        return word in _summarize_preset(preset.slug).kinds
    return _has_word(preset, word)


def _has_word(preset: Preset, word: str) -> bool:
    """Return whether a word is in a preset's names."""
    own = (x["name"] for x in preset.facts.values() if "name" in x)
    names = (preset.slug, preset.name, preset.config["model_type"], *preset.ids, *preset.aliases)
    return _is_part(word, " ".join((*names, *own)).lower())


def _is_part(word: str, names: str) -> bool:
    """Return whether a word is in names; a number must be the beginning of a part, so that `3`
    does not match 13B.
    """
    if word[:1].isdigit():
        return any(
            x.startswith(word)
            for x in names.replace("/", " ").replace("-", " ").replace("_", " ").split()
        )
    return normalize_name(word) in normalize_name(names)


MODEL_KINDS = ("dense", "moe", "hybrid", "recurrent", "vision")
"""All kinds of models."""


def model_kinds(tree: Decoder) -> tuple[str, ...]:
    """Return the kinds of a model: dense or moe, hybrid or recurrent if some or all mixers have
    states, vision if it reads images.
    """
    has_experts = any(x.num_experts for x in fold(tree))
    mixers = [x.block for x in fold_blocks(tree)]
    has_attention, has_states = (
        any(isinstance(x, kind) for x in mixers) for kind in (AttentionBase, RecurrentMixer)
    )
    states = ["hybrid" if has_attention else "recurrent"] if has_states else []
    return (
        "moe" if has_experts else "dense",
        *states,
        *(["vision"] if "vision" in parts_of(tree) else []),
    )


def _weight_bytes(model: FamilyModel) -> int:
    storage = weight_storage(model.tree, model.weight_format, names=model.family.schemes.get("hf"))
    return int(sum(x.bytes for x in storage.sums()))


def _mixers(layer: Block) -> Iterator[Block]:
    return (
        child
        for _, child in layer.children
        if isinstance(child, Block) and child.group == "attention"
    )


def _int(value: int | None) -> int | None:
    return None if value is None else int(value)
