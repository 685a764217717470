"""`quants`: a model in each dtype and published mixture of types, or each GGUF file of a folder:
bytes, bits per weight, and what fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ....checkpoint.formats.dtypes import DTYPES
from ....checkpoint.quantization.weight_format import states_weight_format
from ....core.tree import TOWER_GROUPS, fold
from ....hardware import Device
from ....render.report import Report
from ....render.tables import Cell, Column, Table
from ....utils.errors import LlamathError
from ....utils.number_format import format_bytes
from ....utils.record_type import Record
from ...storage.choose_storage import mmproj_weight
from ...storage.weight_bytes import WeightStorage
from ..memory.inference_memory import MemoryCalculator, largest_fitting
from .fit_words import gpus_option
from .format_support import is_supported
from .serving_layouts import LayoutChooser
from .suggestions import total_of_fitting

if TYPE_CHECKING:
    from ....model import FamilyModel

_SERVER_FORMATS = (
    "bf16",
    "fp8",
    "bnb-int8",
    "nvfp4",
    "mxfp4",
    "awq",
    "gptq",
    "bnb-nf4",
    "bnb-nf4-dq",
)
_MLX_FORMATS = tuple(f"mlx-{bits}bit" for bits in (8, 6, 5, 4, 3))
_GGUF_FILE_TYPES = (
    *(
        "q8_0",
        "q6_k",
        "q5_k_m",
        "q5_k_s",
        "q5_1",
        "q5_0",
        "q4_k_m",
        "q4_k_s",
        "q4_1",
        "q4_0",
        "iq4_nl",
        "iq4_xs",
        "mxfp4_moe",
    ),
    *(
        "q3_k_l",
        "q3_k_m",
        "q3_k_s",
        "iq3_m",
        "iq3_s",
        "iq3_xs",
        "iq3_xxs",
        "q2_k",
        "q2_k_s",
        "iq2_m",
        "iq2_s",
        "iq2_xs",
        "iq2_xxs",
    ),
    *("iq1_m", "iq1_s"),
)
_OLD_TYPES = ("q4_0", "q4_1", "q5_0", "q5_1")
"""Types with larger errors than newer ones of as many bits (llama.cpp,
tools/quantize/README.md); not chosen if another fits."""
_ONLY_MIXTURES = ("mxfp4", "mxfp4_moe")
"""Formats of the experts of a mixture."""


class QuantRow(Record):
    """A model in one dtype or mixture of types, or one file."""

    name: str  # of the dtype, or of the file
    dtype: str  # as the file declares it
    bytes: int
    bits: float  # per weight
    unquantized: tuple[str, ...]  # parts of the model in 16 bits or more
    unquantized_bytes: int
    supported: bool | None = None  # whether programs run it on the GPU
    total: int | None = None  # bytes on the most loaded GPU, if it fits
    max_context: int | None = None  # the longest that fits, at most the model's own; 0: none

    @property
    def fits(self) -> bool | None:
        """Return whether the context that was asked for fits; None without a GPU."""
        return None if self.supported is None else self.total is not None


class QuantsReport(Report):
    """The dtypes of a model or the files of a folder, largest first."""

    model: FamilyModel
    quants: tuple[QuantRow, ...]
    are_files: bool
    gpu: Device | None
    count: int
    context: int
    kv_dtype: str
    notes: tuple[str, ...] = ()
    released: str = ""  # the format in which the model was released; empty of files
    released_bytes: int | None = None

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "source=model.source",
            "are_files",
            "gpu",
            "count",
            "context",
            "kv_dtype",
            "rows=quants",
            "best=best.name",
            "released",
            "notes",
        ),
    )

    @property
    def best(self) -> QuantRow | None:
        """The format in which the model was released, if it fits; else the row of the most bits of
        those that fit and are smaller, of an old type only if no other is. None if none fits, or
        without a GPU.
        """
        fitting = [x for x in self.quants if x.fits and x.supported]
        if released := next((x for x in fitting if x.name == self.released), None):
            return released
        if self.released_bytes is not None:
            fitting = [x for x in fitting if x.bytes < self.released_bytes]
        return max(fitting, key=lambda x: (x.dtype.lower() not in _OLD_TYPES, x.bits), default=None)

    @property
    def fits(self) -> bool:
        """Return whether any row fits; without a GPU there is no such question."""
        return self.gpu is None or self.best is not None

    @property
    def summary(self) -> str:
        """The row to choose, or the range of sizes."""
        sizes = sorted(x.bytes for x in self.quants)
        if self.gpu is None:
            kind = "files" if self.are_files else "dtypes and mixtures"
            return (
                f"{self.model.name}: {len(sizes)} {kind}, {format_bytes(sizes[0])} to "
                f"{format_bytes(sizes[-1])}"
            )
        where = f"{gpus_option(self.count, self.gpu)}, {self.context:,} tokens"
        if self.best is None:
            return f"{self.model.name} on {where}: none fits"
        return (
            f"{self.model.name} on {where}: {self.best.name}, "
            f"{format_bytes(self.best.bytes)}, {self.best.bits:.2f} bits per weight"
        )

    @property
    def setting(self) -> str:
        """The cache and the source."""
        return f"KV cache in {self.kv_dtype}; from {self.model.source}"

    @property
    def entries(self) -> Sequence[QuantRow]:
        """The dtypes or files."""
        return self.quants

    def tables(self) -> Iterable[Table]:
        """A row for each dtype or file."""
        columns = [
            Column("file" if self.are_files else "dtype", key="name"),
            Column("GB", "GB", "bytes"),
            Column("bits", ".2"),
            Column("unquantized", "few", drop=1),
        ]
        legend = "bits: per weight, scales included; unquantized: largest parts in 16 bits or more"
        legend += f"; as released: {self.released}" if self.released else ""
        if self.gpu is None:
            yield Table(columns=tuple(columns), rows=tuple(map(_cells, self.quants)), legend=legend)
            return
        columns += [
            Column("GiB", "GiB", "total"),
            Column("context", "count", "max_context"),
            Column("", "fits", "fits"),
            Column("supported", shown=False),
        ]
        where = f"{gpus_option(self.count, self.gpu)} with {self.context:,} tokens"
        yield Table(
            columns=tuple(columns),
            rows=tuple((*_cells(x), *_cells_on_gpu(x)) for x in self.quants),
            legend=f"{legend}; GiB: on the fullest GPU of {where}; context: the longest that fits, "
            "at most the model's own",
        )

    def __bool__(self) -> bool:
        return self.fits


def _cells(x: QuantRow) -> tuple[Any, ...]:
    plain = Cell(x.unquantized, text="all") if x.unquantized_bytes == x.bytes else x.unquantized
    return x.name, x.bytes, x.bits, plain


def _cells_on_gpu(x: QuantRow) -> tuple[Any, ...]:
    verdict = x.fits if x.supported else Cell(x.fits, text="no kernels")
    return x.total, x.max_context or None, verdict, x.supported


def list_quants(calculator: MemoryCalculator, gpu: Device | None, count: int) -> QuantsReport:
    """Return a model in every dtype and mixture of types that can store it, and as released."""
    own = _as_released(calculator)
    released = [] if own is None else [own.packer.name]
    names = dict.fromkeys((*released, *_formats(calculator, gpu)))
    rows = [_of_dtype(calculator, name, gpu, count) for name in names]
    return _report(calculator, [x for x in rows if x is not None], gpu, count, are_files=False)


def list_files(
    files: Sequence[tuple[str, str, MemoryCalculator]], gpu: Device | None, count: int
) -> QuantsReport:
    """Return the files of a folder, given with their names, declared types and sizes."""
    rows = [_of_file(*x, gpu, count) for x in files]
    return _report(files[0][2], rows, gpu, count, are_files=True)


def _report(
    calculator: MemoryCalculator,
    rows: list[QuantRow],
    gpu: Device | None,
    count: int,
    are_files: bool,
) -> QuantsReport:
    own = None if are_files else _as_released(calculator)
    return QuantsReport(
        released="" if own is None else own.packer.name,
        released_bytes=None if own is None else sum(x.bytes for x in own.weights),
        model=calculator.model,
        quants=tuple(sorted(rows, key=lambda x: -x.bytes)),
        are_files=are_files,
        gpu=gpu,
        count=count,
        context=calculator.context,
        kv_dtype=calculator.kv_dtype,
        notes=(*calculator.model.notes, *(() if are_files else _tower_notes(calculator.model))),
    )


def _tower_notes(model: FamilyModel) -> Iterator[str]:
    """Yield a note on towers, which GGUF has in a file of their own."""
    towers = [x for x in fold(model.tree) if x.group in TOWER_GROUPS]
    if towers:
        size = format_bytes(sum(mmproj_weight(x).total for x in towers))
        yield (
            f"each size includes the towers, in GGUF {size} in a file of their own (mmproj); "
            "the part text has none"
        )


def _as_released(calculator: MemoryCalculator) -> MemoryCalculator | None:
    """Return a model in the format that its config states, if that states one."""
    if not states_weight_format(calculator.model.config.data):
        return None
    return MemoryCalculator(calculator.model, calculator.request.replace(dtype=""))


def _formats(calculator: MemoryCalculator, gpu: Device | None) -> Iterator[str]:
    """Yield the dtypes and mixtures of types of a model; MLX's are for Apple's GPUs alone."""
    has_experts = any(x.num_experts for x in fold(calculator.tree))
    mlx = [x for x in _MLX_FORMATS if gpu is None or is_supported(gpu, x)]
    for name in (*_SERVER_FORMATS, *mlx, *_GGUF_FILE_TYPES):
        if has_experts or name not in _ONLY_MIXTURES:
            yield name


def _of_dtype(
    calculator: MemoryCalculator, name: str, gpu: Device | None, count: int
) -> QuantRow | None:
    """Return a model in a dtype; None if it cannot be stored so."""
    sizes = MemoryCalculator(calculator.model, calculator.request.replace(dtype=name))
    try:
        storage = sizes.storage
    except LlamathError:
        return None
    if storage is None:
        return None
    row = QuantRow(
        name=name,
        dtype=name,
        bytes=storage.bytes,
        bits=storage.bits,
        unquantized=tuple(_unquantized_groups(storage)),
        unquantized_bytes=_plain_bytes({x.codec: x.bytes for x in storage.sums()}),
    )
    return row if gpu is None else _on_gpu(row, sizes, gpu, count)


def _of_file(
    name: str, dtype: str, sizes: MemoryCalculator, gpu: Device | None, count: int
) -> QuantRow:
    assert sizes.stored is not None
    by_dtype = {x.what.removeprefix("weights, "): x.bytes for x in sizes.stored.lines}
    parameters = sum(int(x.weight.parameters) * int(x.copies) for x in fold(sizes.tree))
    row = QuantRow(
        name=name,
        dtype=dtype,
        bytes=sum(by_dtype.values()),
        bits=8 * sum(by_dtype.values()) / (parameters or 1),
        unquantized=tuple(x for x in by_dtype if _is_plain(x)),
        unquantized_bytes=_plain_bytes(by_dtype),
    )
    return row if gpu is None else _on_gpu(row, sizes, gpu, count)


def _on_gpu(row: QuantRow, sizes: MemoryCalculator, gpu: Device, count: int) -> QuantRow:
    chooser, batch, most = (
        LayoutChooser(sizes),
        sizes.request.batch,
        max(int(sizes.tree.context or 0), sizes.context),
    )

    def total(context: int) -> int | None:
        return total_of_fitting(chooser, gpu, count, context, batch)

    longest = (
        most
        if total(most) is not None
        else largest_fitting(lambda n: n <= most and total(n) is not None, most)
    )
    return row.replace(
        supported=is_supported(gpu, row.dtype.lower()) if row.dtype else True,
        total=total(sizes.context),
        max_context=most if longest is None else longest,
    )


def _is_plain(codec: str) -> bool:
    dtype = DTYPES.get(codec)
    return dtype is not None and dtype.block == 1 and dtype.bytes >= 2


def _plain_bytes(by_codec: dict[str, int]) -> int:
    return sum(size for codec, size in by_codec.items() if _is_plain(codec))


def _unquantized_groups(storage: WeightStorage) -> Iterator[str]:
    """Yield the parts of the model that are mostly in 16 bits or more, largest first: experts in 4
    bits may have biases in 16.
    """
    plain: dict[str, int] = {}
    packed: dict[str, int] = {}
    for x in storage.weights:
        sizes = plain if _is_plain(x.codec) else packed
        sizes[x.leaf.group] = sizes.get(x.leaf.group, 0) + x.total
    most = (name for name in plain if plain[name] > packed.get(name, 0))
    yield from sorted(most, key=lambda name: -plain[name])
