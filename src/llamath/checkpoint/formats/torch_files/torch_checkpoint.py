"""Read PyTorch checkpoints (`.pth`, `.pt`, `.bin`): tensors by dotted name, without loading or
running anything.

There are two containers: the ZIP archive of torch 1.6 and later, and the older sequence of five
pickle streams followed by the storages (`torch/serialization.py`, 2.13). Bytes are little-endian;
big-endian archives are refused. The manifest's metadata are `container` (zip or legacy), `version`,
`byteorder`, and `values`, the plain values by dotted name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from ....utils.errors import FormatError, safe
from ....utils.file_diagnosis import truncated_hint
from ..manifest import CheckpointFile, Manifest, Tensor
from ..source import Source
from .pickle_reader import PickleInterpreter
from .torch_objects import Global, Storage, TensorRecord
from .torch_zip import Archive

MAX_PICKLE_BYTES = 64 << 20
"""Maximum bytes of a pickle stream."""
FIRST_WINDOW = 1 << 20
"""Bytes of a legacy file that are read at first; eight times as many if its streams are longer."""
_MAX_DEPTH = 64
"""Maximum nesting of dictionaries and lists."""
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
_VERSIONS = range(1, 11)
_TRUNCATED = ("truncated", "end_record")
"""Codes of the errors of a file that ends too early."""
_PART = r"(consolidated\.)([0-9]{2})(\.pth)"


class TorchContent(NamedTuple):
    """The unpickled object of a file, and the positions of its storages."""

    root: Any
    storages: Mapping[str, Storage]
    starts: Mapping[str, int]  # first byte of each storage in the file
    budget: int
    metadata: Mapping[str, Any]


def read(source: Source) -> Manifest:
    """Read the manifest of one file."""
    with _named(source):
        content = _read_content(source, PickleInterpreter)
        tensors, values = tensors_of(content)
    stored = sum(storage.bytes for storage in content.storages.values())
    file = CheckpointFile(source.name, source.size, source.size - stored)
    return Manifest(
        format="torch",
        files=(file,),
        tensors=tuple(tensors),
        metadata={**content.metadata, "values": values},
    )


def read_content(
    source: Source, interpreter: type[PickleInterpreter] = PickleInterpreter
) -> TorchContent:
    """Read the object in one file, as records."""
    with _named(source):
        return _read_content(source, interpreter)


@contextmanager
def _named(source: Source) -> Iterator[None]:
    """Add the name of the file to errors, and a hint to those of a file that ends too early."""
    try:
        yield
    except FormatError as error:
        hint = truncated_hint(source.name) if error.code in _TRUNCATED else ""
        raise error.in_file(source.name, hint) from None


def _read_content(source: Source, interpreter: type[PickleInterpreter]) -> TorchContent:
    is_zip = source.read(0, min(4, source.size)) == b"PK\3\4"
    return _read_zip(source, interpreter) if is_zip else _read_legacy(source, interpreter)


def _read_zip(source: Source, interpreter: type[PickleInterpreter]) -> TorchContent:
    archive = Archive(source)
    if "constants.pkl" in archive.members or any(
        name.startswith("code/") for name in archive.members
    ):
        hint = "it contains code; save its state_dict() instead"
        raise FormatError(
            "torchscript", "this is a TorchScript archive, not a checkpoint", hint=hint
        )
    metadata = _zip_metadata(archive)
    stream = archive.read("data.pkl", MAX_PICKLE_BYTES)
    machine = interpreter(stream, 5)
    root, end = machine.run()
    if end != len(stream):
        raise FormatError(
            "trailing", f"{len(stream) - end:,} bytes follow the pickle stream in data.pkl"
        )
    starts = {}
    for key, storage in machine.storages.items():
        member = archive.members.get(f"data/{key}")
        if member is None:
            raise FormatError(
                "missing_member", f"the archive has no data/{safe(key)}, which its tensors use"
            )
        if member.size != storage.bytes:
            raise FormatError(
                "storage_size",
                f"data/{safe(key)} has {member.size:,} bytes, and "
                f"is declared with {storage.bytes:,}",
            )
        starts[key] = member.start
    return TorchContent(root, machine.storages, starts, machine.budget, metadata)


def _zip_metadata(archive: Archive) -> dict[str, Any]:
    """Read the archive's version and byte order, with the checks that torch makes."""
    if ".data/version" in archive.members:
        raise FormatError(
            "version", "it has a .data/version, as packages do and checkpoints do not"
        )
    version = archive.read("version", 64).removesuffix(b"\n")
    if not version.isdigit() or int(version) not in _VERSIONS:
        raise FormatError(
            "version", f"expected a version from 1 to 10, found {safe(repr(version))}"
        )
    order = archive.read("byteorder", 64) if "byteorder" in archive.members else b"little"
    if order != b"little":
        hint = "load and save it with torch on a little-endian machine"
        raise FormatError(
            "byteorder",
            f"expected bytes in little-endian order, found {safe(repr(order))}",
            hint=hint,
        )
    valid_contents = {".storage_alignment": bytes.isdigit, ".data/serialization_id": bytes.isascii}
    for name, is_valid in valid_contents.items():
        if name in archive.members and not is_valid(archive.read(name, 1000)):
            raise FormatError("version", f"its {name} has content that torch does not write")
    return {"container": "zip", "version": int(version), "byteorder": "little"}


def _read_legacy(source: Source, interpreter: type[PickleInterpreter]) -> TorchContent:
    head = source.read(0, min(512, source.size))
    if _is_tar(head):
        raise FormatError(
            "tar",
            "this is the tar container of torch before 0.4",
            hint="load and save it with a later torch",
        )
    if not head.startswith(b"\x80"):
        raise FormatError(
            "magic",
            "this is neither a ZIP archive nor a pickle stream, so it is not a torch checkpoint",
        )
    window = min(FIRST_WINDOW, source.size)
    while True:
        try:
            machine, root, keys, at = _read_streams(source.read(0, window), interpreter)
            break
        except FormatError as error:
            if error.code != "truncated" or window >= min(source.size, MAX_PICKLE_BYTES):
                raise
            window = min(window * 8, source.size, MAX_PICKLE_BYTES)
    metadata = {"container": "legacy", "version": PROTOCOL, "byteorder": "little"}
    return TorchContent(
        root,
        machine.storages,
        _storage_starts(source, machine.storages, keys, at),
        machine.budget,
        metadata,
    )


def _read_streams(
    data: bytes, interpreter: type[PickleInterpreter]
) -> tuple[PickleInterpreter, Any, list[Any], int]:
    """Read the five streams; returns the object, the storages' keys and the start of the
    storages.
    """
    machine = interpreter(data, 6)
    magic, at = machine.run()
    if type(magic) is not int or magic != MAGIC:
        raise FormatError("magic", "a pickle stream, but not one that torch.save wrote")
    protocol, at = machine.run(at)
    if type(protocol) is not int or protocol != PROTOCOL:
        raise FormatError(
            "version", f"expected version {PROTOCOL} of the older container, found another"
        )
    system, at = machine.run(at)
    if (
        type(system) is not dict
        or system.get("protocol_version") != PROTOCOL
        or system.get("little_endian") is not True
    ):
        raise FormatError(
            "byteorder", "expected the system information of a little-endian machine, found another"
        )
    root, at = machine.run(at)
    keys, at = machine.run(at)
    if type(keys) is not list or not all(type(key) is str for key in keys):
        raise FormatError("storage", "the storages' keys are not a list of strings")
    if len(set(keys)) != len(keys) or set(keys) != machine.storages.keys():
        raise FormatError(
            "storage", "the storages in the file differ from those that the tensors use"
        )
    return machine, root, keys, at


def _storage_starts(
    source: Source, storages: Mapping[str, Storage], keys: Iterable[str], at: int
) -> dict[str, int]:
    """Return the start of each storage: each follows its number of elements, and the last ends
    the file.
    """
    starts = {}
    for key in keys:
        stored, declared = (
            int.from_bytes(source.read(at, 8), "little", signed=True),
            storages[key].elements,
        )
        if stored != declared:
            raise FormatError(
                "storage_size",
                f"storage {safe(key)} has {stored:,} elements, and is declared with {declared:,}",
            )
        starts[key] = at + 8
        at += 8 + storages[key].bytes
    if at > source.size:
        raise FormatError(
            "truncated", f"the storages need {at:,} bytes of file, which has {source.size:,}"
        )
    if at != source.size:
        raise FormatError("trailing", f"{source.size - at:,} bytes follow the last storage")
    return starts


def _is_tar(head: bytes) -> bool:
    """Whether a tar header's checksum is right by Python's `tarfile`; torch tries that container
    first.
    """
    field = head[148:156]
    try:
        claimed = (
            int.from_bytes(field[1:])
            if field[:1] == b"\x80"
            else int(field.partition(b"\0")[0].strip() or b"0", 8)
        )
    except ValueError:
        return False
    rest = head[:148] + head[156:512]
    unsigned = 256 + sum(rest)
    return len(head) == 512 and claimed in (
        unsigned,
        unsigned - 256 * sum(byte > 127 for byte in rest),
    )


def tensors_of(content: TorchContent) -> tuple[list[Tensor], dict[str, Any]]:
    """Return all tensors by dotted name, and the plain values in dictionaries."""
    tensors: list[Tensor] = []
    values: dict[str, Any] = {}
    seen: set[str] = set()
    for name, leaf, keyed in _leaves(content.root, content.budget):
        kind = type(leaf)
        if kind is TensorRecord:
            if name in seen:
                raise FormatError(
                    "duplicate_name", f"two tensors are named {safe(name)}, by different paths"
                )
            seen.add(name)
            base, storage = content.starts[leaf.storage.key], leaf.storage.key
            tensors.append(
                Tensor(
                    name,
                    leaf.dtype,
                    leaf.shape,
                    0,
                    base + leaf.start,
                    base + leaf.end,
                    leaf.strides,
                    storage,
                )
            )
        elif kind is Storage:
            raise FormatError("storage", f"{safe(name)} is a storage, not a tensor")
        elif keyed and kind in (bool, int, float, str, type(None), Global):
            values[name] = leaf.name if kind is Global else leaf
    return tensors, values


def _leaves(root: Any, budget: int) -> Iterator[tuple[str, Any, bool]]:
    """Yield everything that is not a container, with its dotted name and whether it is in a
    dictionary; visits are charged.
    """
    if not isinstance(root, (dict, list)) and type(root) is not tuple:
        yield "", root, False
        return
    path = [(id(root), "", isinstance(root, dict), _items(root))]
    active = {id(root)}
    while path:
        container, prefix, keyed, items = path[-1]
        for key, value in items:
            name = prefix + key
            budget -= 1 + len(name)
            if budget < 0:
                raise FormatError("limit", "the same values are reached too often")
            if not isinstance(value, (dict, list)) and type(value) is not tuple:
                yield name, value, keyed
                continue
            if id(value) in active:
                raise FormatError("cycle", f"{safe(name)} contains itself")
            if len(path) >= _MAX_DEPTH:
                raise FormatError(
                    "depth", f"{safe(name)} is nested more than {_MAX_DEPTH} levels deep"
                )
            active.add(id(value))
            path.append((id(value), f"{name}.", isinstance(value, dict), _items(value)))
            break
        else:
            active.remove(container)
            path.pop()


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((key if type(key) is str else key.decode(), item) for key, item in value.items())
    return ((str(index), item) for index, item in enumerate(value))


def siblings(name: str, listing: Iterable[str]) -> list[str]:
    """Return all shards of a set like `consolidated.00.pth` in order, or just the name of any
    other file.
    """
    match = re.fullmatch(_PART, name)
    if not match:
        return [name]
    present = {part for part in listing if re.fullmatch(_PART, part)} | {name}
    expected = [f"{match[1]}{index:02}{match[3]}" for index in range(len(present))]
    if missing := [part for part in expected if part not in present]:
        last = max(present)
        raise FormatError(
            "shards",
            f"{safe(missing[0])} is missing, though {safe(last)} exists",
            hint="download the whole set",
        )
    return expected
