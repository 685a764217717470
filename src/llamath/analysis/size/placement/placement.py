"""`place_model`: where each weight goes on a machine with GPUs, RAM and a disk, and how fast decode
can be at most.

What every token uses (attention, norms, routers, shared experts, dense MLPs, the KV cache) goes to
the GPUs first, and experts last, as llama.cpp's `--n-cpu-moe` keeps them: those of the first layers
in RAM. If not even the rest fits, whole layers stay in RAM, the first ones first, as with `-ngl`.
What does not fit in RAM is read from the disk through the page cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from ....engines import find_engine
from ....hardware import Device
from ....questions.serving_questions import RAM_BANDWIDTH
from ....render.report import Report
from ....render.tables import Bar, Bars, Code, Column, Part, Table, Text, heading
from ....utils.number_format import format_bytes
from ....utils.record_type import Record
from ..fit.fit_words import format_sequences
from ..memory.inference_memory import MemoryCalculator
from ..serving.launch_command import checkpoint_address
from .layer_sizes import ModelBytes, layer_sizes
from .placement_flags import device_map, ktransformers_flags, llama_cpp_flags, with_disk

if TYPE_CHECKING:
    from ....model import FamilyModel

RAM_RESERVE = 2 * 2**30
"""Bytes of RAM that are left to the system."""
PlaceKind = Literal["gpu", "ram", "disk"]


class Machine(Record):
    """GPUs, RAM and a disk."""

    gpus: tuple[Device, ...]
    ram: int = 0
    ram_bandwidth: int = RAM_BANDWIDTH
    disk_bandwidth: int = 0  # 0: nothing may stay on the disk


class PlacedShare(Record):
    """What lies on one device."""

    device: str
    kind: PlaceKind
    memory: int
    dense: int  # bytes of weights that every token uses, the head and the embedding included
    experts: int
    cache: int
    own: int  # bytes of the engine
    read: float  # bytes that a decode step is expected to read
    bandwidth: int  # 0: unknown
    layers: tuple[int, int] = (0, 0)  # those whose attention is here

    @property
    def used(self) -> int:
        """The bytes that are taken."""
        return self.dense + self.experts + self.cache + self.own

    @property
    def seconds(self) -> float:
        """The time to read what a decode step reads."""
        return self.read / self.bandwidth if self.bandwidth else 0.0


class Placement(Report):
    """Where each weight goes, as flags of engines, with the bound on decode."""

    json_fields: ClassVar[tuple[str, ...]] = (
        *(
            "model=model.name",
            "dtype",
            "kv_dtype",
            "context",
            "batch",
            "fits",
            "devices",
            "layers_on_gpu",
            "layers_with_experts_in_ram",
        ),
        *(
            "distinct_experts",
            "decode_ceiling",
            "llama_cpp",
            "override_tensor",
            "device_map",
            "ktransformers",
            "shortfall",
            "notes",
        ),
    )

    model: FamilyModel
    sizes: ModelBytes
    dtype: str
    kv_dtype: str
    context: int
    batch: int
    devices: tuple[PlacedShare, ...]
    first_gpu_layer: int  # layers before it are in RAM
    cpu_experts: int  # the experts of the layers before this one are in RAM
    head_on_gpu: bool
    owners: tuple[int, ...]  # the GPU of each layer; −1: RAM
    distinct_experts: float  # of a layer, in a decode step of all sequences
    shortfall: int  # bytes that fit nowhere
    llama_cpp: str
    override_tensor: str
    device_map: dict[str, int | str]
    ktransformers: str
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether everything has a place."""
        return self.shortfall == 0

    @property
    def layers_on_gpu(self) -> int:
        """The number of layers whose attention is on GPUs."""
        return len(self.owners) - self.first_gpu_layer

    @property
    def layers_with_experts_in_ram(self) -> int:
        """The number of layers whose experts are in RAM."""
        return sum(bool(x.experts) for x in self.sizes.layers[: self.cpu_experts])

    @property
    def decode_ceiling(self) -> float | None:
        """Upper bound on tokens per second of all sequences; None: a bandwidth is unknown."""
        if self._unknown:
            return None
        seconds = sum(x.seconds for x in self.devices)
        return self.batch / seconds if seconds else 0.0

    @property
    def _unknown(self) -> str:
        """The device whose bandwidth would be needed and is not known."""
        return next((x.device for x in self.devices if x.read and not x.bandwidth), "")

    @property
    def summary(self) -> str:
        """The flags and the bound."""
        if not self.fits:
            return (
                f"{self.model.name}: {format_bytes(self.shortfall)} fit neither the GPUs nor "
                "the RAM"
            )
        ceiling = self.decode_ceiling
        speed = "speed unknown" if ceiling is None else f"at most {ceiling:.1f} tokens/s"
        flags = " ".join(self.llama_cpp.replace("\\\n", " ").split())
        return f"{self.model.name}: {flags}; {speed}"

    @property
    def headline(self) -> str:
        """Whether everything has a place."""
        verdict = "fits" if self.fits else f"{format_bytes(self.shortfall)} too large"
        return f"{self.model.name}: {verdict}"

    @property
    def setting(self) -> str:
        """The dtypes and the sequences."""
        sequences = format_sequences(self.batch, self.context)
        return f"{self.dtype}, cache in {self.kv_dtype}; {sequences}; from {self.model.source}"

    def __bool__(self) -> bool:
        return self.fits

    def tables(self) -> Iterable[Part]:
        """The bytes on each device, the bound on decode, and the flags of engines."""
        yield Bars(tuple(Bar(x.device, _parts(x), x.memory) for x in self.devices), _MARKS)
        yield Table(columns=_COLUMNS, rows=tuple(map(_cells, self.devices)))
        if not self.fits:
            yield Text(
                "more RAM, a disk (128GiB disk=7GB/s), a smaller dtype or context", apart=True
            )
            return
        yield heading("decode at most, an upper bound")
        yield Text(self._speed, indent="  ")
        yield Code(self.llama_cpp, "llama.cpp")
        if self.override_tensor:
            yield Code(self.override_tensor, "or, instead of --n-cpu-moe or --cpu-moe")
        if self.device_map:
            yield Code("\n".join(self._device_map()), "transformers")
        if self.ktransformers:
            yield Code(self.ktransformers, "KTransformers, in SGLang")

    @property
    def _speed(self) -> str:
        if self._unknown:
            return (
                f"unknown, as the memory bandwidth of {self._unknown} is; bw=500GB/s after its "
                "name gives one"
            )
        shares = (x for x in self.devices if x.seconds)
        times = " + ".join(f"{x.seconds * 1000:.3g} ms {x.device}" for x in shares)
        text = (
            f"{self.decode_ceiling:,.3g} tokens/s: one after another {times}, bytes over bandwidth"
        )
        if self.sizes.experts:
            read = f"{self.distinct_experts:.3g} of {self.sizes.experts}"
            text += f"; {read} experts of a layer are read"
        return text

    def _device_map(self) -> Iterator[str]:
        entries = [f"    {name!r}: {place!r}," for name, place in self.device_map.items()]
        yield "device_map = {"
        yield from entries[:_MAX_ENTRIES]
        if len(entries) > _MAX_ENTRIES:
            yield f"    # … {len(entries) - _MAX_ENTRIES:,} more: --json has all"
        yield "}"


_MAX_ENTRIES = 12
"""Entries of a device map that are printed."""
_MARKS = (("used by every token", "█"), ("experts", "▓"), ("KV cache", "▒"), ("engine", "░"))
_COLUMNS = (
    Column("GiB", key="device"),
    Column("layers", "layers", drop=2),
    Column("every token", "GiB", "dense"),
    Column("experts", "GiB"),
    Column("KV cache", "GiB", "cache"),
    Column("engine", "GiB", "own", drop=1),
    Column("of", "GiB", "memory"),
    Column("read a step", "GiB", "read"),
)


def _parts(x: PlacedShare) -> tuple[int, ...]:
    return x.dense, x.experts, x.cache, x.own


def _cells(x: PlacedShare) -> tuple[Any, ...]:
    layers = ((x.layers[0], x.layers[1] - 1, 1),) if x.layers[1] else None
    return x.device, layers, *_parts(x), x.memory or None, round(x.read)


class _Split(NamedTuple):
    """The GPU of each layer (−1: RAM), and the layers whose experts are in RAM."""

    owners: tuple[int, ...]
    cpu_experts: int
    head_on_gpu: bool


def place_model(calculator: MemoryCalculator, machine: Machine) -> Placement:
    """Return where each weight goes."""
    engine = find_engine("llama.cpp")
    sizes = layer_sizes(calculator, engine)
    own = _own_bytes(
        calculator, engine.figure("cuda_context_gib")[1], engine.figure("ubatch_tokens")
    )
    split = _split(
        sizes, machine.gpus, own, int(calculator.tree.vocab) * 4 * engine.figure("ubatch_tokens")
    )
    batch = calculator.request.batch
    distinct = _distinct_experts(sizes, batch)
    share = distinct / sizes.experts if sizes.experts else 0.0
    shares = [
        *_gpu_shares(sizes, machine.gpus, split, own, share),
        _ram_share(sizes, machine, split, share),
    ]
    ram, shortfall = shares[-1], 0
    room = machine.ram - RAM_RESERVE
    notes = [f"RAM: {RAM_RESERVE // 2**30} GiB are left to the system"]
    if (over := ram.used - max(room, 0)) > 0:
        if machine.disk_bandwidth:
            shares[-1:] = _spill(ram, over, share, machine.disk_bandwidth)
            notes.append(
                "disk: the same share of every read misses the page cache; popular "
                "experts miss it less"
            )
            notes.append(
                "transformers maps no files: device_map has whole modules on 'disk', "
                "which needs an offload_folder"
            )
        else:
            shortfall = over
    if machine.ram_bandwidth == RAM_BANDWIDTH:
        notes.append(
            f"RAM: {RAM_BANDWIDTH / 1e9:.1f} GB/s are assumed, two channels of "
            "DDR5-5600; 64GiB bw=50GB/s names another rate"
        )
    if sizes.experts and batch > 1:
        notes.append(
            "routing is even and independent: B sequences use E·(1 − (1 − k/E)^B) of E experts"
        )
    modules = {}
    if calculator.model.is_text_alone:
        notes.append("transformers loads the towers, too: there is no device_map of the text alone")
    else:
        modules = device_map(sizes, split.owners, split.cpu_experts, split.head_on_gpu)
    if over > 0 and machine.disk_bandwidth:
        modules = with_disk(modules, sizes, max(room, 0))
    flags = llama_cpp_flags(
        calculator, sizes, split.owners, split.cpu_experts, split.head_on_gpu, len(machine.gpus)
    )
    kt = ktransformers_flags(calculator, sizes, split.cpu_experts, split.owners, len(machine.gpus))
    if kt and (stand_in := checkpoint_address(calculator).note):
        notes.append(stand_in)
    return Placement(
        model=calculator.model,
        sizes=sizes,
        dtype="as stored" if calculator.stored is not None else calculator.packer.name,
        kv_dtype=calculator.kv_dtype,
        context=calculator.context,
        batch=batch,
        devices=tuple(shares),
        first_gpu_layer=_first_gpu_layer(split.owners),
        cpu_experts=split.cpu_experts,
        head_on_gpu=split.head_on_gpu,
        owners=split.owners,
        distinct_experts=distinct,
        shortfall=shortfall,
        llama_cpp=flags[0],
        override_tensor=flags[1],
        device_map=modules,
        ktransformers=kt,
        notes=(*notes, *calculator.notes),
    )


def _own_bytes(calculator: MemoryCalculator, context_gib: float, tokens: int) -> int:
    """Return the bytes of a GPU's context and of the activations of a batch of tokens, in fp32."""
    return int(context_gib * 2**30) + 2 * int(calculator.activations(tokens))


def _first_gpu_layer(owners: Sequence[int]) -> int:
    return next((i for i, x in enumerate(owners) if x >= 0), len(owners))


def _distinct_experts(sizes: ModelBytes, batch: int) -> float:
    """Return the expected number of experts of a layer that a step of all sequences uses."""
    return sizes.experts * (1 - (1 - sizes.used / sizes.experts) ** batch) if sizes.experts else 0.0


def _split(sizes: ModelBytes, gpus: Sequence[Device], own: int, logits: int) -> _Split:
    """Return the split that keeps the least outside of the GPUs: experts of the first layers
    first, then whole first layers.
    """
    count = len(sizes.layers)
    with_experts = [i for i, x in enumerate(sizes.layers) if x.experts]
    stops = [0, *(i + 1 for i in with_experts)]
    for cpu_experts in stops:
        owners = _assign(sizes, gpus, own, logits, 0, cpu_experts, True)
        if owners is not None:
            return _Split(owners, cpu_experts, True)
    last = stops[-1] if with_experts else 0
    for first in range(1, count + 1):
        owners = _assign(sizes, gpus, own, logits, first, max(last, 0), True)
        if owners is not None:
            return _Split(owners, last, True)
    return _Split((-1,) * count, last, False)


def _assign(
    sizes: ModelBytes,
    gpus: Sequence[Device],
    own: int,
    logits: int,
    first: int,
    cpu_experts: int,
    head: bool,
) -> tuple[int, ...] | None:
    """Return the GPU of each layer from `first` on, filling one GPU after the other; None if
    they do not fit.
    """
    if not gpus:
        return None
    room = [x.memory - own - _copied_experts(sizes, cpu_experts) for x in gpus]
    room[-1] -= (sizes.head + logits) if head else 0
    if room[-1] < 0:
        return None
    owners, at = [-1] * first, 0
    for i, x in enumerate(sizes.layers[first:], first):
        need = x.dense + x.cache + (x.experts if i >= cpu_experts else 0)
        while at < len(gpus) and room[at] < need:
            at += 1
        if at == len(gpus):
            return None
        room[at] -= need
        owners.append(at)
    return tuple(owners)


def _copied_experts(sizes: ModelBytes, cpu_experts: int) -> int:
    """Return the bytes of the largest tensor of experts in RAM, which is copied to a GPU for a
    prompt.
    """
    return max((x.largest_expert_tensor for x in sizes.layers[:cpu_experts]), default=0)


def _gpu_shares(
    sizes: ModelBytes, gpus: Sequence[Device], split: _Split, own: int, share: float
) -> Iterator[PlacedShare]:
    for g, device in enumerate(gpus):
        mine = [i for i, x in enumerate(split.owners) if x == g]
        head = sizes.head if split.head_on_gpu and g == len(gpus) - 1 else 0
        dense = sum(sizes.layers[i].dense for i in mine) + head
        experts = sum(sizes.layers[i].experts for i in mine if i >= split.cpu_experts)
        cache = sum(sizes.layers[i].cache for i in mine)
        name = device.title if len(gpus) == 1 else f"GPU {g}: {device.title}"
        yield PlacedShare(
            device=name,
            kind="gpu",
            memory=device.memory,
            dense=dense,
            experts=experts,
            cache=cache,
            own=own + _copied_experts(sizes, split.cpu_experts),
            read=dense + experts * share + cache,
            bandwidth=device.bandwidth,
            layers=(mine[0], mine[-1] + 1) if mine else (0, 0),
        )


def _ram_share(sizes: ModelBytes, machine: Machine, split: _Split, share: float) -> PlacedShare:
    mine = [i for i, x in enumerate(split.owners) if x < 0]
    dense = sum(sizes.layers[i].dense for i in mine)
    head = 0 if split.head_on_gpu else sizes.head - (sizes.embedding if sizes.tied else 0)
    experts = sum(
        x.experts
        for i, x in enumerate(sizes.layers)
        if i < split.cpu_experts or split.owners[i] < 0
    )
    cache = sum(sizes.layers[i].cache for i in mine)
    head_read = 0 if split.head_on_gpu else sizes.head
    return PlacedShare(
        device="RAM",
        kind="ram",
        memory=machine.ram,
        dense=dense + head + sizes.embedding + sizes.rest,
        experts=experts,
        cache=cache,
        own=0,
        read=dense + head_read + experts * share + cache,
        bandwidth=machine.ram_bandwidth,
        layers=(mine[0], mine[-1] + 1) if mine else (0, 0),
    )


def _spill(ram: PlacedShare, over: int, share: float, bandwidth: int) -> list[PlacedShare]:
    """Return RAM and disk if RAM lacks this many bytes: experts first, each read as often as the
    others.
    """
    experts = min(over, ram.experts)
    dense = min(over - experts, ram.dense)
    missed = min(experts * share + dense, ram.read)
    kept = ram.replace(
        experts=ram.experts - experts, dense=ram.dense - dense, read=ram.read - missed
    )
    changes = {
        "memory": over,
        "dense": dense,
        "experts": experts,
        "cache": 0,
        "read": missed,
        "bandwidth": bandwidth,
        "layers": (0, 0),
    }
    return [kept, ram.replace(device="disk", kind="disk", **changes)]
