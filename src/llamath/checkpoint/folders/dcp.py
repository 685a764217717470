"""Read the metadata of a distributed checkpoint of PyTorch (DCP, as FSDP saves it): a `.metadata`
file and `__0_0.distcp` files.

`.metadata` is a pickle stream of a few dataclasses (`torch/distributed/checkpoint/metadata.py`,
2.13). They become inert records: an allow-list of class names, no class, no attribute lookup, no
call. Each tensor is stored in chunks; a chunk is an item in a file, written by `torch.save`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

from ...utils.errors import FormatError, safe
from ...utils.record_type import Record
from ..formats.folder import Folder, check_file_name
from ..formats.folder_kind import DISTRIBUTED_SUFFIX, METADATA_FILE
from ..formats.source import Source
from ..formats.torch_files.pickle_reader import KNOWN, Opcode, PickleInterpreter, unknown_opcode
from ..formats.torch_files.torch_objects import DTYPES, Global

_MAX_METADATA_BYTES = 64 << 20
_MAX_DIMENSIONS = 64
_METADATA = "torch.distributed.checkpoint.metadata."
_OLD = "torch.distributed._shard.sharded_tensor.metadata."
_CLASSES = frozenset(
    (
        *(
            f"{_METADATA}{x}"
            for x in (
                "Metadata",
                "TensorStorageMetadata",
                "BytesStorageMetadata",
                "ChunkStorageMetadata",
            )
        ),
        *(f"{_METADATA}{x}" for x in ("TensorProperties", "MetadataIndex", "StorageMeta")),
        *("torch.distributed.checkpoint.filesystem._StorageInfo", f"{_OLD}TensorProperties"),
        "torch.distributed._shard.metadata.ShardMetadata",
    )
)
"""Classes whose instances become records."""
_SIZE, _ORDERED = "torch.Size", "collections.OrderedDict"
_FORMATS = (f"{_METADATA}_MEM_FORMAT_ENCODING", f"{_OLD}MEM_FORMAT_ENCODING")
_IGNORED = frozenset(
    (
        *("torch.serialization._get_layout", "builtins.getattr", *_FORMATS),
        *(
            f"{module}.{x}"
            for module in ("pathlib", "pathlib._local")
            for x in ("PosixPath", "WindowsPath", "PurePosixPath")
        ),
    )
)
"""Functions and classes whose results are not needed: memory layouts and paths."""


class Chunk(NamedTuple):
    """A part of a tensor, and the item in a file that holds it; the file is empty if the
    metadata names none.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str = ""
    start: int = 0
    length: int = 0
    is_transformed: bool = False  # compressed or otherwise encoded


class ChunkedTensor(NamedTuple):
    """A tensor as the metadata declares it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[Chunk, ...]


class DcpCheckpoint(Record):
    """The content of `.metadata`, and the sizes of the files that exist."""

    folder: str
    tensors: tuple[ChunkedTensor, ...]
    objects: Mapping[str, Chunk]  # names of pickled objects that are no tensors, such as a step
    sizes: Mapping[str, int]  # of the files in the folder, by name
    metadata_bytes: int
    version: str = ""

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that the metadata name."""
        chunks = [*(y for x in self.tensors for y in x.chunks), *self.objects.values()]
        return tuple(sorted({x.file for x in chunks if x.file}))


def read_dcp(folder: Folder) -> DcpCheckpoint:
    """Read the metadata of a distributed checkpoint."""
    path = folder.path(METADATA_FILE)
    source = folder.open(METADATA_FILE) if METADATA_FILE in folder.names() else None
    if source is None:
        raise FormatError(
            "missing_metadata",
            f"{safe(folder.name)}: expected {METADATA_FILE} beside "
            f"{DISTRIBUTED_SUFFIX} files, found none",
        )
    with source:
        tensors, objects, version = parse_metadata(source)
        metadata_bytes = source.size
    names = [x for x in folder.names() if x.endswith(DISTRIBUTED_SUFFIX)]
    sizes = dict(zip(names, folder.map_names(lambda x: _size(folder, x), names), strict=True))
    existing = {file: size for file, size in sizes.items() if size >= 0}
    found = DcpCheckpoint(
        folder=folder.name,
        tensors=tensors,
        objects=objects,
        sizes=existing,
        metadata_bytes=metadata_bytes,
        version=version,
    )
    for name in found.files:
        check_file_name(name)
    if not tensors and not objects:
        raise FormatError("empty", f"{safe(path)} describes no tensors")
    return found


def _size(folder: Folder, name: str) -> int:
    source = folder.open(name)
    if source is None:
        return -1
    with source:
        return source.size


def parse_metadata(source: Source) -> tuple[tuple[ChunkedTensor, ...], dict[str, Chunk], str]:
    """Return the tensors and objects of a `.metadata` file, and its version."""
    try:
        if source.size > _MAX_METADATA_BYTES:
            raise FormatError(
                "too_large",
                f"expected at most {_MAX_METADATA_BYTES:,} bytes, found {source.size:,}",
            )
        data = source.read(0, source.size)
        machine = _MetadataInterpreter(data, 0)
        root, end = machine.run()
        if end != len(data):
            raise FormatError("trailing", f"{len(data) - end:,} bytes follow the pickle stream")
        return _Metadata(root, machine).read()
    except FormatError as error:
        raise error.in_file(source.name) from None


# The pickle stream


class _Pairs:
    """A dictionary as pairs in file order; nothing is hashed."""

    __slots__ = ("pairs",)

    def __init__(self) -> None:
        self.pairs: list[tuple[Any, Any]] = []


class _Instance:
    """An instance of a known class: its class's last name and its attributes."""

    __slots__ = ("kind", "state")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.state: _Pairs | tuple[Any, ...] | None = None


class _Ignored(NamedTuple):
    """A value that is not needed."""

    name: str


class _MetadataInterpreter(PickleInterpreter):
    """An interpreter of the opcodes of protocols 2 to 5 that DCP uses."""

    steps: ClassVar[list[Opcode]]


def _allowed(module: str, name: str) -> Global:
    full = f"{'builtins' if module == '__builtin__' else module}.{name}"
    if full in _CLASSES or full in _IGNORED or full in DTYPES or full in (_SIZE, _ORDERED):
        return Global(full)
    hint = "metadata of DCP need none; do not load this checkpoint with torch"
    raise FormatError(
        "global", f"it refers to {safe(full)}, which could run code and is refused", hint=hint
    )


def _protocol(machine: PickleInterpreter, at: int) -> int:
    if at != machine.begin + 1 or machine.data[at] not in range(2, 6):
        raise FormatError(
            "protocol", f"expected protocol 2 to 5 at the start, found {machine.data[at]}"
        )
    return at + 1


def _frame(machine: PickleInterpreter, at: int) -> int:
    length = int.from_bytes(machine.data[at : at + 8], "little")
    machine.argument_end(at + 8, length)
    return at + 8


def _short_text(machine: PickleInterpreter, at: int) -> int:
    end = machine.argument_end(at + 1, machine.data[at])
    machine.stack.append(machine.data[at + 1 : end].decode())
    return end


def _short_bytes(machine: PickleInterpreter, at: int) -> int:
    end = machine.argument_end(at + 1, machine.data[at])
    machine.stack.append(_Ignored("bytes"))
    return end


def _memoize(machine: PickleInterpreter, at: int) -> int:
    machine.memo[len(machine.memo)] = machine.stack[-1]
    return at


def _stack_global(machine: PickleInterpreter, at: int) -> int:
    name, module = machine.stack.pop(), machine.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise FormatError("global", "expected the name of a class, found another value")
    machine.stack.append(_allowed(module, name))
    return at


def _global(machine: PickleInterpreter, at: int) -> int:
    parts = []
    for _ in range(2):
        end = machine.data.find(b"\n", at, min(at + 200, machine.size))
        if end < 0:
            raise FormatError("global", "a name of over 200 bytes")
        parts.append(machine.data[at:end].decode())
        at = end + 1
    machine.stack.append(_allowed(*parts))
    return at


def _new_dict(machine: PickleInterpreter, at: int) -> int:
    machine.stack.append(_Pairs())
    return at


def _dict_target(machine: PickleInterpreter) -> _Pairs:
    target = machine.stack[-1]
    if type(target) is not _Pairs:
        raise FormatError("target", f"items are added to a {type(target).__name__}")
    return target


def _set_one(machine: PickleInterpreter, at: int) -> int:
    value, key = machine.stack.pop(), machine.stack.pop()
    _dict_target(machine).pairs.append((key, value))
    return at


def _set_many(machine: PickleInterpreter, at: int) -> int:
    items = machine.pop_mark()
    if len(items) % 2:
        raise FormatError("target", "an odd number of keys and values")
    _dict_target(machine).pairs += zip(items[::2], items[1::2], strict=True)
    return at


def _new_object(machine: PickleInterpreter, at: int) -> int:
    args, kind = machine.stack.pop(), machine.stack.pop()
    if type(kind) is not Global or kind.name not in _CLASSES or args != ():
        raise FormatError(
            "call", "expected an instance of a class of DCP without arguments, found another value"
        )
    machine.stack.append(_Instance(kind.name.rpartition(".")[2]))
    return at


def _build(machine: PickleInterpreter, at: int) -> int:
    state, target = machine.stack.pop(), machine.stack[-1]
    if (
        type(target) is not _Instance
        or type(state) not in (_Pairs, tuple)
        or target.state is not None
    ):
        raise FormatError(
            "build",
            f"attributes of type {type(state).__name__} are set on a {type(target).__name__}",
        )
    target.state = state
    return at


def _reduce(machine: PickleInterpreter, at: int) -> int:
    args, function = machine.stack.pop(), machine.stack[-1]
    if type(function) is not Global or type(args) is not tuple:
        raise FormatError("call", f"it calls a {type(function).__name__}")
    value: Any
    if function.name == _SIZE and len(args) == 1 and type(args[0]) is tuple:
        machine.charge(len(args[0]))
        value = args[0]
    elif function.name == _ORDERED and not args:
        value = _Pairs()
    elif function.name in _IGNORED and (
        function.name != "builtins.getattr" or (args and args[0] in map(Global, _FORMATS))
    ):
        value = _Ignored(function.name)
    else:
        raise FormatError("call", f"it calls {safe(function.name)}, which metadata of DCP do not")
    machine.stack[-1] = value
    return at


_STEPS: dict[bytes, Opcode] = {
    **{code: step for code, step in KNOWN.items()
       if code not in (b"Q", b"b", b"R", b"c", b"}", b"s", b"u", b"\x80")},
    b"\x80": _protocol, b"\x95": _frame, b"\x8c": _short_text, b"C": _short_bytes,
    b"\x94": _memoize, b"\x93": _stack_global,
    b"c": _global, b"\x81": _new_object, b"b": _build, b"R": _reduce, b"}": _new_dict,
    b"s": _set_one, b"u": _set_many,
}  # fmt: skip
_MetadataInterpreter.steps = [_STEPS.get(bytes([code]), unknown_opcode) for code in range(256)]


# The records


class _Metadata:
    """Reads the records of one stream; values that are reached more than once are charged each
    time.
    """

    def __init__(self, root: Any, machine: PickleInterpreter) -> None:
        self.root, self.machine = root, machine

    def read(self) -> tuple[tuple[ChunkedTensor, ...], dict[str, Chunk], str]:
        """Return the tensors, the objects and the version."""
        root = self.attributes(self.root, "Metadata")
        stored = self.storage(root.get("storage_data"))
        tensors: list[ChunkedTensor] = []
        objects: dict[str, Chunk] = {}
        names: set[str] = set()
        for name, entry in self.pairs(root.get("state_dict_metadata"), "state_dict_metadata"):
            if type(name) is not str:
                raise FormatError(
                    "key", f"expected the names of tensors, found a {type(name).__name__}"
                )
            if name in names:
                raise FormatError("duplicate", f"{safe(name)} is described twice")
            names.add(name)
            if type(entry) is _Instance and entry.kind == "BytesStorageMetadata":
                objects[name] = self.located(stored, name, None, (), ())
            else:
                tensors.append(self.tensor(name, entry, stored))
        version = root.get("version")
        return tuple(tensors), objects, version if type(version) is str else ""

    def attributes(self, value: Any, kind: str) -> dict[str, Any]:
        """Return the attributes of an instance of a class."""
        if type(value) is not _Instance or value.kind != kind or type(value.state) is not _Pairs:
            raise FormatError("record", f"expected a {kind}, found another value")
        self.machine.charge(len(value.state.pairs))
        attributes: dict[str, Any] = {}
        for key, item in value.state.pairs:
            if type(key) is not str or key in attributes:
                raise FormatError("record", f"the attributes of a {kind} should be different names")
            attributes[key] = item
        return attributes

    def pairs(self, value: Any, what: str) -> list[tuple[Any, Any]]:
        """Return the pairs of a dictionary."""
        if type(value) is not _Pairs:
            raise FormatError("record", f"{what} should be a dictionary")
        self.machine.charge(len(value.pairs))
        return value.pairs

    def storage(self, value: Any) -> dict[tuple[str, tuple[int, ...] | None], dict[str, Any]]:
        """Return where each chunk is stored, by the tensor's name and the chunk's offsets; None
        for objects.
        """
        stored: dict[tuple[str, tuple[int, ...] | None], dict[str, Any]] = {}
        for key, info in self.pairs(value, "storage_data"):
            index = self.attributes(key, "MetadataIndex")
            name, offset = index.get("fqn"), index.get("offset")
            if type(name) is not str:
                raise FormatError("record", "a MetadataIndex should have a name")
            place = (name, None if offset is None else self.size(offset, name))
            if place in stored:
                raise FormatError("duplicate", f"a chunk of {safe(name)} is stored twice")
            stored[place] = self.attributes(info, "_StorageInfo")
        return stored

    def size(self, value: Any, name: str) -> tuple[int, ...]:
        """Return sizes or offsets."""
        if (
            type(value) is not tuple
            or len(value) > _MAX_DIMENSIONS
            or not all(type(x) is int and 0 <= x < 1 << 63 for x in value)
        ):
            raise FormatError(
                "size",
                f"{safe(name)} has a size or an offset that is not a list "
                f"of up to {_MAX_DIMENSIONS} integers",
            )
        self.machine.charge(len(value))
        return value

    def tensor(
        self,
        name: str,
        entry: Any,
        stored: Mapping[tuple[str, tuple[int, ...] | None], dict[str, Any]],
    ) -> ChunkedTensor:
        """Return a tensor with its chunks."""
        attributes = self.attributes(entry, "TensorStorageMetadata")
        properties, chunks = attributes.get("properties"), attributes.get("chunks")
        state = (
            properties.state
            if type(properties) is _Instance and properties.kind == "TensorProperties"
            else None
        )
        if type(state) is _Pairs:
            state = (self.attributes(properties, "TensorProperties").get("dtype"),)
        dtype = state[0] if type(state) is tuple and state else None
        if type(dtype) is not Global or dtype.name not in DTYPES:
            raise FormatError("dtype", f"{safe(name)} has an unknown dtype")
        if type(chunks) is not list:
            raise FormatError("record", f"the chunks of {safe(name)} should be a list")
        self.machine.charge(8 * len(chunks))
        shape = self.size(attributes.get("size"), name)
        return ChunkedTensor(
            name, DTYPES[dtype.name], shape, tuple(self.chunks(name, chunks, stored))
        )

    def chunks(
        self,
        name: str,
        chunks: list[Any],
        stored: Mapping[tuple[str, tuple[int, ...] | None], dict[str, Any]],
    ) -> Iterator[Chunk]:
        """Yield the chunks of a tensor."""
        for x in chunks:
            kind = x.kind if type(x) is _Instance else ""
            attributes = self.attributes(
                x, kind if kind == "ShardMetadata" else "ChunkStorageMetadata"
            )
            offsets = attributes.get("offsets", attributes.get("shard_offsets"))
            sizes = attributes.get("sizes", attributes.get("shard_sizes"))
            offsets, sizes = (tuple(y) if type(y) is list else y for y in (offsets, sizes))
            place = self.size(offsets, name)
            yield self.located(stored, name, place, place, self.size(sizes, name))

    def located(
        self,
        stored: Mapping[tuple[str, tuple[int, ...] | None], dict[str, Any]],
        name: str,
        place: tuple[int, ...] | None,
        offsets: tuple[int, ...],
        sizes: tuple[int, ...],
    ) -> Chunk:
        """Return a chunk with the item that stores it."""
        info = stored.get((name, place))
        if info is None:
            return Chunk(offsets, sizes)
        file, start, length = (info.get(x) for x in ("relative_path", "offset", "length"))
        if (
            type(file) is not str
            or type(start) is not int
            or type(length) is not int
            or start < 0
            or length < 0
        ):
            raise FormatError(
                "record", f"the place of {safe(name)} should be a file, an offset and a length"
            )
        return Chunk(offsets, sizes, file, start, length, bool(info.get("transform_descriptors")))
