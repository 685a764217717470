"""Files of distributed checkpoints, DeepSpeed and numpy written by hand, and hostile variants of them with the codes of their errors."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping, Sequence

from support import hostile_pth
from support.hostile_pth import (
    APPENDS,
    BUILD,
    DICT,
    LIST,
    MARK,
    NONE,
    REDUCE,
    SETITEMS,
    called,
    get,
    listed,
    mapped,
    named,
    number,
    put,
    stream,
    tensor,
    text,
    tupled,
)

# .metadata of torch.distributed.checkpoint, without memo

METADATA = "torch.distributed.checkpoint.metadata."
NEW = b")\x81"


def record(name: str, state: bytes) -> bytes:
    """An instance of a class, with its attributes."""
    return named(name if "." in name else METADATA + name) + NEW + state + BUILD


def size(*numbers: int) -> bytes:
    return called("torch.Size", tupled(*map(number, numbers)))


def properties(dtype: str = "torch.float32") -> bytes:
    layout = called("torch.serialization._get_layout", text("torch.strided"))
    order = called(f"{METADATA}_MEM_FORMAT_ENCODING", number(0))
    return record("TensorProperties", tupled(named(dtype), layout, b"\x89", order, b"\x89"))


def chunk(offsets: Sequence[int], sizes: Sequence[int]) -> bytes:
    return record(
        "ChunkStorageMetadata", mapped({"offsets": size(*offsets), "sizes": size(*sizes)})
    )


def described(shape: Sequence[int], *chunks: bytes, dtype: str = "torch.float32") -> bytes:
    entries = {"properties": properties(dtype), "size": size(*shape), "chunks": listed(*chunks)}
    return record("TensorStorageMetadata", mapped(entries))


def key(name: str, offset: bytes | None) -> bytes:
    return record(
        "MetadataIndex",
        mapped(
            {"fqn": text(name), "index": NONE} | ({"offset": offset} if offset is not None else {})
        ),
    )


def place(file: str = "__0_0.distcp", start: int = 0, length: int = 64) -> bytes:
    attributes = {"relative_path": text(file), "offset": number(start), "length": number(length)}
    return record("torch.distributed.checkpoint.filesystem._StorageInfo", mapped(attributes))


def pairs(items: Sequence[tuple[bytes, bytes]]) -> bytes:
    return DICT + MARK + b"".join(a + b for a, b in items) + SETITEMS


def metadata(
    tensors: Mapping[str, bytes],
    stored: Sequence[tuple[bytes, bytes]],
    more: Mapping[str, bytes] = {},
) -> bytes:
    attributes = {
        "state_dict_metadata": mapped(tensors),
        "storage_data": pairs(stored),
        "version": text("1.0.0"),
        **more,
    }
    return stream(record("Metadata", mapped(attributes)))


HALVES = {
    "w": described((4, 2), chunk((0, 0), (2, 2)), chunk((2, 0), (2, 2))),
    "step": record("BytesStorageMetadata", DICT),
}
STORED = [
    (key("w", size(0, 0)), place()),
    (key("w", size(2, 0)), place(start=64)),
    (key("step", None), place("__1_0.distcp")),
]
VALID = metadata(HALVES, STORED)


def dcp() -> dict[str, tuple[bytes, str]]:
    """Hostile `.metadata` files and the codes of their errors."""

    def one(entry: bytes) -> bytes:
        return metadata({"w": entry}, STORED)

    return {
        "a call of os.system": (stream(called("posix.system", text("true"))), "global"),
        "a call of eval": (metadata({"w": called("builtins.eval", text("1"))}, []), "global"),
        "a call of a class": (stream(called(f"{METADATA}Metadata")), "call"),
        "getattr of a class": (stream(called("builtins.getattr", named(f"{METADATA}Metadata"), text("x"))), "call"),
        "an instance of a function": (stream(named("builtins.getattr") + NEW), "call"),
        "an instance with arguments": (stream(named(f"{METADATA}Metadata") + tupled(number(1)) + b"\x81"), "call"),
        "attributes twice": (stream(record("Metadata", DICT) + DICT + BUILD), "build"),
        "attributes of a dictionary": (stream(DICT + DICT + BUILD), "build"),
        "a list": (stream(LIST), "record"),
        "no attributes": (stream(named(f"{METADATA}Metadata") + NEW), "record"),
        "an attribute twice": (stream(record("Metadata", pairs([(text("a"), NONE), (text("a"), NONE)]))), "record"),
        "a name twice": (metadata({}, [], {"state_dict_metadata": pairs([(text("w"), HALVES["w"])] * 2)}), "duplicate"),
        "a name that is a number": (metadata({}, [], {"state_dict_metadata": pairs([(number(1), HALVES["w"])])}), "key"),
        "a chunk stored twice": (metadata(HALVES, [*STORED, STORED[0]]), "duplicate"),
        "an unknown dtype": (one(described((1,), dtype="torch.strange")), "global"),
        "a size that is negative": (one(described((-1,))), "size"),
        "a size of 2**63": (one(described((1 << 63,))), "size"),
        "a size of 65 dimensions": (one(described((1,) * 65)), "size"),
        "chunks that are a number": (one(record("TensorStorageMetadata", mapped({"properties": properties(), "size": size(1), "chunks": number(1)}))), "record"),
        "a chunk that is a tensor": (one(described((1,), HALVES["w"])), "record"),
        "a place without a file": (metadata(HALVES, [(key("w", None), record("torch.distributed.checkpoint.filesystem._StorageInfo", DICT)), (key("step", None), place(start=-1))]), "record"),
        "bytes behind it": (VALID + b"x", "trailing"),
        "no protocol": (VALID[2:], "protocol"),
        "a cut": (VALID[:-40], "truncated"),
        "the same chunks a thousand times": (shared_chunks(1000), "limit"),
    }  # fmt: skip


def shared_chunks(n: int) -> bytes:
    """A list of n chunks that is shared by n tensors."""
    chunks = LIST + put(1) + MARK + (chunk((0,), (1,)) + put(2)) + get(2) * (n - 1) + APPENDS
    first = record(
        "TensorStorageMetadata",
        mapped({"properties": properties() + put(0), "size": size(n), "chunks": chunks}),
    )
    other = record(
        "TensorStorageMetadata", mapped({"properties": get(0), "size": size(n), "chunks": get(1)})
    )
    return metadata({"t0": first, **{f"t{i}": other for i in range(1, n)}}, [])


def many_chunks(n: int) -> bytes:
    """One tensor of n chunks, each stored."""
    tensors = {"w": described((n,), *(chunk((i,), (1,)) for i in range(n)))}
    return metadata(tensors, [(key("w", size(i)), place(start=8 * i, length=8)) for i in range(n)])


# pickles of DeepSpeed, in torch's archive


def zero_optimizer(
    stage: bytes = number(2), count: bytes = listed(number(2)), more: Mapping[str, bytes] = {}
) -> bytes:
    groups = {
        "single_partition_of_fp32_groups": listed(tensor()),
        "fp32_flat_groups": listed(tensor()),
    }
    state = mapped(
        {
            "zero_stage": stage,
            "partition_count": count,
            **groups,
            "ds_version": text("0.18.0"),
            **more,
        }
    )
    return stream(mapped({"optimizer_state_dict": state}))


def zero_model(shapes: bytes | None = None) -> bytes:
    groups = listed(mapped({"w": size(2, 3)})) if shapes is None else shapes
    entries = {
        "module": mapped({"w": tensor()}),
        "param_shapes": groups,
        "buffer_names": LIST,
        "shared_params": DICT,
        "global_steps": number(7),
    }
    return stream(mapped(entries))


SCALER = (
    called("deepspeed.runtime.fp16.loss_scaler.LossScaler", number(1))
    + mapped({"cur_scale": number(1)})
    + BUILD
)
ENUM = called("deepspeed.runtime.zero.config.ZeroStageEnum", number(2))
ZERO_STREAMS = {
    "an optimizer": zero_optimizer(),
    "objects of DeepSpeed": zero_optimizer(ENUM, number(2), {"loss_scaler": SCALER}),
    "model states": zero_model(),
    "lists of objects": zero_optimizer(
        more={
            "x": called("a.B") + MARK + number(1) + APPENDS,
            "y": called("a.C") + pairs([(text("k"), NONE)])[:0],
        }
    ),
}


def zero() -> dict[str, tuple[bytes, str]]:
    """Hostile pickles of DeepSpeed and the codes of their errors."""
    shared = listed(DICT + put(0), get(0))
    return {
        "stage 4": (zero_optimizer(number(4)), "deepspeed"),
        "stage of an unknown class": (zero_optimizer(called("a.B")), "deepspeed"),
        "no partitions": (zero_optimizer(count=number(0)), "deepspeed"),
        "a partition that is a number": (
            zero_optimizer(more={"single_partition_of_fp32_groups": listed(number(1))}),
            "duplicate_key",
        ),
        "a list": (stream(LIST), "deepspeed"),
        "shapes that are numbers": (zero_model(listed(mapped({"w": number(1)}))), "deepspeed"),
        "shapes that are negative": (
            zero_model(listed(mapped({"w": tupled(number(-1))}))),
            "deepspeed",
        ),
        "shapes that are shared": (zero_model(shared), "deepspeed"),
        "a call of a tensor": (stream(tensor() + tupled() + REDUCE), "call"),
    }


def zero_file(data: bytes) -> bytes:
    return hostile_pth.zipped(data, {"0": hostile_pth.SIX})


# archives of numpy


def npy(
    descr: str = "'<f4'",
    shape: str = "(2, 3)",
    order: str = "False",
    data: bytes = bytes(24),
    version: int = 1,
    header: str | None = None,
) -> bytes:
    text_ = (
        f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"
        if header is None
        else header
    )
    width = 2 if version == 1 else 4
    text_ += " " * (-(8 + width + len(text_) + 1) % 64) + "\n"
    return (
        b"\x93NUMPY"
        + bytes((version, 0))
        + struct.pack("<H" if version == 1 else "<I", len(text_))
        + text_.encode()
        + data
    )


def npz(arrays: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in arrays.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return file.getvalue()


def overlapping_npz() -> bytes:
    """Two entries of the directory for one member, as overlapping archives have."""
    data = npz({"a.npy": npy(), "b.npy": npy()})
    at = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    return data[: at + 42] + b"\0\0\0\0" + data[at + 46 :]


ARRAYS: dict[str, bytes] = {
    "float32": npz({"a.npy": npy()}),
    "Fortran order": npz({"a.npy": npy(order="True")}),
    "deflated": npz({"a.npy": npy(), "b.npy": npy()}, zipfile.ZIP_DEFLATED),
    "version 2": npz({"a.npy": npy(version=2)}),
    "a scalar": npz({"a.npy": npy(shape="()", data=bytes(4))}),
    "a vector": npz({"a/b.npy": npy(shape="(6,)")}),
    "no elements": npz({"a.npy": npy(shape="(0, 3)", data=b"")}),
    "text": npz({"a.npy": npy("'<U2'", "(1,)", data=bytes(8))}),
    "half precision": npz(
        {"a.npy": npy("'<f2'", data=bytes(12)), "b.npy": npy("'|u1'", data=bytes(6))}
    ),
}


def hostile_npz() -> dict[str, tuple[bytes, str]]:
    """Hostile archives and the codes of their errors."""
    return {
        "pickled objects": (npz({"a.npy": npy("'|O'", "(1,)", data=b"cos\nsystem\n")}), "objects"),
        "records": (
            npz({"a.npy": npy("[('x', '<f4'), ('y', '|O')]", "(1,)", data=bytes(12))}),
            "objects",
        ),
        "big-endian numbers": (npz({"a.npy": npy("'>f4'")}), "dtype"),
        "an unnamed type": (npz({"a.npy": npy("'|V2'", data=bytes(12))}), "dtype"),
        "too few bytes": (npz({"a.npy": npy(data=bytes(20))}), "size"),
        "too many bytes": (npz({"a.npy": npy(data=bytes(28))}), "size"),
        "a huge shape": (
            npz({"a.npy": npy(shape="(9999999999999999999, 9999999999999999999)")}),
            "size",
        ),
        "a negative shape": (npz({"a.npy": npy(shape="(-1, 3)")}), "header_text"),
        "an expression": (npz({"a.npy": npy(shape="(2*3,)")}), "header_text"),
        "a call": (npz({"a.npy": npy(header="__import__('os').system('true')")}), "header_text"),
        "a key too many": (
            npz(
                {
                    "a.npy": npy(
                        header="{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), 'x': 1, }"
                    )
                }
            ),
            "header_text",
        ),
        "another magic": (npz({"a.npy": b"X" + npy()[1:]}), "magic"),
        "version 9": (npz({"a.npy": npy()[:6] + b"\x09" + npy()[7:]}), "magic"),
        "a header beyond the end": (
            npz({"a.npy": npy()[:8] + b"\xff\xff" + npy()[10:]}),
            "header_length",
        ),
        "another file": (npz({"a.npy": npy(), "b.txt": b"x"}), "member"),
        "the same name twice": (npz({"a.npy": npy(), "A.npy": npy()}), "duplicate_member"),
        "a name outside": (npz({"../a.npy": npy()}), "name"),
        "overlapping members": (overlapping_npz(), "overlap"),
        "a cut": (npz({"a.npy": npy()})[:-30], "end_record"),
        "bytes before it": (b"x" * 9 + npz({"a.npy": npy()}), "end_record"),
        "a damaged deflated member": (
            npz({"a.npy": npy()}, zipfile.ZIP_DEFLATED).replace(b"\x9b", b"\xff", 1),
            "deflated",
        ),
    }
