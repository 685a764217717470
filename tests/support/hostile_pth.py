"""Torch checkpoints written by hand: a pickle assembler, a writer of inconsistent ZIP archives, and a corpus of hostile files with their codes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

MAGIC = 0x1950A86A20F9469CFC6C
FULL, FULL64 = 0xFFFF, 0xFFFFFFFF

# the pickle stream, opcode by opcode

MARK, TUPLE, REDUCE, BUILD, BINPERSID, STOP, NONE, TRUE, FALSE = (
    b"(",
    b"t",
    b"R",
    b"b",
    b"Q",
    b".",
    b"N",
    b"\x88",
    b"\x89",
)
LIST, DICT, UNIT, APPEND, APPENDS, SETITEM, SETITEMS = b"]", b"}", b")", b"a", b"e", b"s", b"u"
PROTO = b"\x80\x02"


def text(value: str | bytes, length: int | None = None) -> bytes:
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return b"X" + struct.pack("<I", len(data) if length is None else length) + data


def number(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def called(name: str, *args: bytes) -> bytes:
    return named(name) + tupled(*args) + REDUCE


def named(name: str) -> bytes:
    module, _, last = name.rpartition(".")
    return b"c" + f"{module}\n{last}\n".encode()


def tupled(*items: bytes) -> bytes:
    return MARK + b"".join(items) + TUPLE


def listed(*items: bytes) -> bytes:
    return LIST + MARK + b"".join(items) + APPENDS


def mapped(items: Mapping[str, bytes]) -> bytes:
    return DICT + MARK + b"".join(text(key) + value for key, value in items.items()) + SETITEMS


def put(index: int) -> bytes:
    return b"q" + bytes([index]) if index < 256 else b"r" + struct.pack("<I", index)


def get(index: int) -> bytes:
    return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)


HOOKS = called("collections.OrderedDict")
SIX = b"\0\0\x80?" * 6


def storage(
    kind: str = "torch.FloatStorage",
    key: str = "0",
    count: int = 6,
    more: bytes = b"",
    place: str = "cpu",
) -> bytes:
    return (
        tupled(text("storage"), named(kind), text(key), text(place), number(count) + more)
        + BINPERSID
    )


def tensor(
    storage_bytes: bytes = storage(),
    offset: int = 0,
    shape: Iterable[int] = (2, 3),
    strides: Iterable[int] = (3, 1),
    tail: bytes = FALSE + HOOKS,
) -> bytes:
    sizes, steps = tupled(*map(number, shape)), tupled(*map(number, strides))
    return called(
        "torch._utils._rebuild_tensor_v2", storage_bytes, number(offset), sizes, steps, tail
    )


F8, UNTYPED = named("torch.float8_e4m3fn"), storage("torch.storage.UntypedStorage", count=24)


def third(dtype: bytes = F8, storage_bytes: bytes = UNTYPED, grad: bytes = FALSE) -> bytes:
    return called(
        "torch._utils._rebuild_tensor_v3",
        storage_bytes,
        number(0),
        tupled(number(6)),
        tupled(number(1)),
        grad,
        HOOKS,
        dtype,
    )


def stream(body: bytes) -> bytes:
    return PROTO + body + STOP


def saved(body: bytes) -> bytes:
    """Return a state dict of one valid tensor and one invalid entry."""
    return stream(DICT + MARK + text("w") + tensor() + text("x") + body + SETITEMS)


# the archive, record by record


@dataclass(frozen=True)
class Part:
    """A member, consistent unless fields are replaced."""

    name: bytes
    data: bytes
    flags: int = 0x808
    method: int = 0
    crc: int | None = None
    size: int | None = None
    packed: int | None = None
    at: int | None = None
    kind: int = 0
    disk: int = 0
    extra: bytes = b""
    comment: bytes = b""
    before: bytes = b""
    local: bytes | None = None  # the whole local header
    local_extra: bytes = b"FB\4\0ZZZZ"
    after: bytes | None = None  # the data descriptor

    @property
    def sum(self) -> int:
        return zlib.crc32(self.data) if self.crc is None else self.crc

    def header(self, **lies: int | bytes) -> bytes:
        values = {
            "flags": self.flags,
            "method": 0,
            "crc": 0,
            "packed": 0,
            "size": 0,
            "name": self.name,
            "mark": b"PK\3\4",
        } | lies
        name = bytes(values["name"])  # type: ignore[arg-type]
        numbers = (
            values["flags"],
            values["method"],
            0,
            0,
            values["crc"],
            values["packed"],
            values["size"],
            len(name),
            len(self.local_extra),
        )
        return struct.pack("<4s5H3L2H", values["mark"], 0, *numbers) + name + self.local_extra

    def bytes(self) -> bytes:
        head = self.header() if self.local is None else self.local
        tail = (
            struct.pack("<4s3L", b"PK\7\x08", self.sum, len(self.data), len(self.data))
            if self.data and self.flags & 8
            else b""
        )
        return self.before + head + self.data + (tail if self.after is None else self.after)

    def entry(self, at: int) -> bytes:
        size = len(self.data) if self.size is None else self.size
        packed = size if self.packed is None else self.packed
        lengths = len(self.name), len(self.extra), len(self.comment)
        numbers = (
            self.flags,
            self.method,
            0,
            0,
            self.sum,
            packed,
            size,
            *lengths,
            self.disk,
            0,
            self.kind,
        )
        offset = at + len(self.before) if self.at is None else self.at
        return (
            struct.pack("<4s6H3L5H2L", b"PK\1\2", 0, 0, *numbers, offset)
            + self.name
            + self.extra
            + self.comment
        )


def parts(
    pickled: bytes, data: Mapping[str, bytes] | None = None, order: bytes = b"little"
) -> list[Part]:
    stored = [
        Part(b"a/data/" + key.encode(), value)
        for key, value in ({"0": SIX} if data is None else data).items()
    ]
    stored = [part if part.data else replace(part, flags=0x800) for part in stored]
    return [
        Part(b"a/data.pkl", pickled),
        Part(b"a/byteorder", order),
        *stored,
        Part(b"a/version", b"3\n"),
    ]


def archive(members: Iterable[Part], wide: bool = True, junk: bytes = b"", **lies: int) -> bytes:
    """Return members, directory and end records; `lies` replace fields of the end records."""
    body, directory, count = b"", b"", 0
    for part in members:
        directory += part.entry(len(body))
        body += part.bytes()
        count += 1
    body += junk
    values = {
        "count": count,
        "here": lies.get("count", count),
        "size": len(directory),
        "start": len(body),
        "disk": 0,
        "first": 0,
    }
    values |= {key: value for key, value in lies.items() if key in values}
    fields = values["here"], values["count"], values["size"], values["start"]
    end = b""
    if wide:
        directory_start = len(body) + len(directory)
        version = lies.get("length", 44), 30, 45, values["disk"], values["first"]
        wider = (lies.get(f"{key}64", values[key]) for key in ("here", "count", "size", "start"))
        end += struct.pack("<4sQ2H2L4Q", b"PK\6\6", *version, *wider)
        end += struct.pack(
            "<4sLQL", b"PK\6\7", 0, lies.get("where", directory_start), lies.get("disks", 1)
        )
    narrow = (
        min(fields[0], FULL),
        min(fields[1], FULL),
        min(fields[2], FULL64),
        min(fields[3], FULL64),
    )
    return (
        body
        + directory
        + end
        + struct.pack(
            "<4s4H2LH", b"PK\5\6", values["disk"] & FULL, values["first"] & FULL, *narrow, 0
        )
    )


def zipped(pickled: bytes, data: Mapping[str, bytes] | None = None) -> bytes:
    return archive(parts(pickled, data))


def altered(index: int, part: Part | None = None, **lies: object) -> bytes:
    """The valid archive with one member altered."""
    members = parts(VALID)
    members[index] = replace(members[index] if part is None else part, **lies)  # type: ignore[arg-type]
    return archive(members)


def legacy(
    pickled: bytes,
    keys: bytes = listed(text("0")),
    data: bytes = struct.pack("<q", 6) + SIX,
    magic: bytes = number(MAGIC),
    order: bytes = TRUE,
) -> bytes:
    system = mapped({"protocol_version": number(1001), "little_endian": order})
    return b"".join(
        (stream(magic), stream(number(1001)), stream(system), pickled, stream(keys), data)
    )


VIEWLESS = storage(more=NONE)
VALID = stream(mapped({"w": tensor(), "step": number(7)}))
VALID_OLD = stream(mapped({"w": tensor(VIEWLESS), "step": number(7)}))


def tar(data: bytes) -> bytes:
    """Return the bytes with a valid tar header checksum."""
    head = bytearray(data[:512].ljust(512, b"\0"))
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + data[512:]


# what must be refused


FORBIDDEN = """
posix.system nt.system os.system builtins.eval __builtin__.exec builtins.getattr __builtin__.apply subprocess.Popen sys.exit torch.load
torch.hub.load torch.jit.load torch.storage._load_from_bytes numpy.core.multiarray._reconstruct copyreg._reconstructor functools.partial
torch.nn.modules.linear.Linear operator.methodcaller runpy._run_code builtins.bytes torch.storage.TypedStorage torch.cuda.FloatStorage
torch.nn.parameter.Parameter collections.defaultdict torch._utils._import_dotted_name builtins.set.__init__
"""
REFUSED = {
    "sparse": "torch._utils._rebuild_sparse_tensor",
    "quantized": "torch._utils._rebuild_qtensor torch.QInt8Storage torch.quint4x2 torch.per_channel_affine",
    "nested": "torch._utils._rebuild_nested_tensor",
    "meta": "torch._utils._rebuild_meta_tensor_no_storage",
    "attributes": "torch._utils._rebuild_parameter_with_state torch._tensor._rebuild_from_type_v2",
    "subclass": "torch._utils._rebuild_wrapper_subclass torch._utils._rebuild_device_tensor_from_numpy",
    "dtype": "torch.complex128 torch.float4_e2m1fn_x2 torch.ComplexDoubleStorage torch.bits8 torch.uint4",
}


def streams() -> dict[str, tuple[bytes, str]]:
    """Return hostile streams for a valid archive, with the expected error codes."""
    cases = {
        f"global {name}": (saved(called(name, text("id"))), "global") for name in FORBIDDEN.split()
    }
    cases |= {
        f"named {name}": (saved(named(name)), code)
        for code, names in REFUSED.items()
        for name in names.split()
    }
    opcodes = {
        "INST": b"iposix\nsystem\n", "OBJ": b"o", "NEWOBJ": b"\x81", "NEWOBJ_EX": b"\x92", "STACK_GLOBAL": b"\x93", "EXT1": b"\x82\1",
        "EXT2": b"\x83\1\0", "EXT4": b"\x84\1\0\0\0", "PERSID": b"P0\n", "STRING": b"S'a'\n", "BINSTRING": b"T\2\0\0\0\xff\xfe",
        "UNICODE": b"Va\n", "INT": b"I1\n", "LONG": b"L1L\n", "FLOAT": b"F1\n", "LONG4": b"\x8b\0\0\0\x80",
        "LONG4 negative": b"\x8b\xff\xff\xff\xff", "FRAME": b"\x95" + bytes([255] * 8), "MEMOIZE": b"N\x94", "SHORT_BINUNICODE": b"\x8c\1a",
        "BINUNICODE8": b"\x8d" + bytes([255] * 8), "BINBYTES": b"B\1\0\0\0a", "SHORT_BINBYTES": b"C\1a",
        "BINBYTES8": b"\x8e" + bytes([255] * 8), "BYTEARRAY8": b"\x96" + bytes([255] * 8), "NEXT_BUFFER": b"\x97",
        "READONLY_BUFFER": b"N\x98", "POP": b"NN0", "POP_MARK": b"N(N1",
        "DUP": b"N2", "old DICT": b"(d", "old LIST": b"(l", "old GET": b"g0\n", "old PUT": b"Np0\n", "EMPTY_SET": b"\x8f",
        "FROZENSET": b"(\x91",
        "none": b"\xff", "zero": b"\0",
    }  # fmt: skip
    cases |= {f"opcode {name}": (saved(code), "opcode") for name, code in opcodes.items()}
    return (
        cases
        | _structure()
        | _keys()
        | _multiplied()
        | _calls()
        | _outside()
        | _tensors()
        | _strings()
    )


def _structure() -> dict[str, tuple[bytes, str]]:
    return {
        "empty stream": (b"", "truncated"),
        "no protocol": (DICT + STOP, "protocol"),
        "text protocol": (b"(dp0\n.", "protocol"),
        "protocol 1": (b"\x80\1" + DICT + STOP, "protocol"),
        "protocol 4": (b"\x80\4\x95" + bytes(8) + DICT + STOP, "protocol"),
        "protocol 255": (b"\x80\xff" + DICT + STOP, "protocol"),
        "second protocol": (saved(PROTO + NONE), "protocol"),
        "no stop": (saved(NONE)[:-1], "truncated"),
        "nothing left": (stream(b""), "stack"),
        "two left": (stream(DICT + DICT), "stack"),
        "open mark": (stream(DICT + MARK + NONE), "stack"),
        "bytes after stop": (saved(NONE) + b"\0", "trailing"),
        "stream after stop": (saved(NONE) * 2, "trailing"),
        "reduce of nothing": (stream(REDUCE + NONE * 9), "stack"),
        "tuple without mark": (stream(NONE + TUPLE), "stack"),
        "items without mark": (stream(DICT + SETITEMS), "stack"),
        "tuple of two from one": (stream(NONE + b"\x86"), "stack"),
        "tuple across a mark": (stream(NONE + MARK + NONE + b"\x86" + TUPLE), "stack"),
        "pop across a mark": (stream(DICT + MARK + SETITEM), "stack"),
        "key without value": (stream(DICT + MARK + text("a") + SETITEMS), "stack"),
        "build of nothing": (stream(BUILD + NONE * 9), "stack"),
        "append to a dict": (saved(DICT + NONE + APPEND), "target"),
        "append to a tuple": (saved(UNIT + NONE + APPEND), "target"),
        "append to a tensor": (saved(tensor() + NONE + APPEND), "target"),
        "item of a list": (saved(LIST + text("a") + NONE + SETITEM), "target"),
        "item of a name": (saved(named("torch.float32") + text("a") + NONE + SETITEM), "target"),
        "items of a tensor": (saved(tensor() + MARK + text("a") + NONE + SETITEMS), "target"),
        "memo never set": (saved(get(9)), "memo"),
        "long memo never set": (saved(get(1 << 31)), "memo"),
        "memo at 2**32 - 1": (saved(NONE + put(FULL64)), "memo"),
        "memo set twice": (saved(NONE + put(0) + NONE + put(0)[:-1] + put(0) + put(0)), "memo"),
        "memo with gaps": (saved(NONE + put(0) + NONE + put(3) + TUPLE), "memo"),
        "memo of nothing": (stream(put(0) + NONE * 9), "stack"),
        "100,000 marks": (stream(MARK * 100_000), "depth"),
        "a tuple 100,000 deep": (saved(NONE + b"\x85" * 100_000), "depth"),
        "lists 100,000 deep": (saved(LIST * 100_000 + APPEND * 99_999), "depth"),
        "dicts 200 deep": (saved((DICT + text("a")) * 200 + NONE + SETITEM * 200), "depth"),
        "a list in itself": (saved(LIST + put(0) + get(0) + APPEND), "cycle"),
        "a dict in itself": (saved(DICT + put(0) + text("me") + get(0) + SETITEM), "cycle"),
        "two lists in each other": (
            saved(LIST + put(0) + LIST + put(1) + get(0) + APPEND + APPEND),
            "cycle",
        ),
        "a tuple in itself": (
            saved(LIST + put(0) + b"\x85" + put(1) + get(0) + get(1) + APPEND + b"\x86"),
            "cycle",
        ),
    }


def _keys() -> dict[str, tuple[bytes, str]]:
    keys = {
        "tuple": tupled(number(1), number(2)), "deep tuple": NONE + b"\x85" * 100_000, "list": LIST, "None": NONE, "bool": TRUE,
        "float": b"G" + bytes(8), "tensor": tensor(), "dict": DICT, "name": named("torch.float32"), "empty tuple": UNIT,
    }  # fmt: skip
    cases = {
        f"key {name}": (saved(DICT + key + NONE + SETITEM), "key") for name, key in keys.items()
    }
    cases |= {
        f"keys {name}": (saved(DICT + MARK + key + NONE + SETITEMS), "key")
        for name, key in keys.items()
    }
    twice = {"string": text("a"), "int": number(5)}
    cases |= {
        f"{name} key twice": (saved(DICT + (key + NONE + SETITEM) * 2), "duplicate_key")
        for name, key in twice.items()
    }
    cases["key twice at the top"] = (
        stream(DICT + MARK + (text("w") + tensor()) * 2 + SETITEMS),
        "duplicate_key",
    )
    cases["name twice by two paths"] = (
        stream(mapped({"a.b": tensor(), "a": mapped({"b": tensor()})})),
        "duplicate_name",
    )
    cases["name twice as text and number"] = (
        stream(DICT + MARK + text("1") + tensor() + number(1) + tensor() + SETITEMS),
        "duplicate_name",
    )
    return cases


def _multiplied() -> dict[str, tuple[bytes, str]]:
    laughs = (
        LIST
        + NONE
        + APPEND
        + put(0)
        + b"".join(LIST + MARK + get(i) * 10 + APPENDS + put(i + 1) for i in range(60))
    )
    many, big = listed(*[number(1)] * 50_000), mapped({str(index): NONE for index in range(20_000)})
    encode = (
        named("_codecs.encode")
        + put(1)
        + text("latin1")
        + put(2)
        + (get(1) + get(0) + get(2) + b"\x86" + REDUCE) * 100
    )

    pairs = listed(*(tupled(number(index), NONE) for index in range(5000)))

    def again(value: bytes, name: str) -> tuple[bytes, str]:
        once = get(1) + get(0) + b"\x85" + REDUCE
        return saved(MARK + value + put(0) + named(name) + put(1) + once * 100 + TUPLE), "limit"

    return {
        "a billion laughs": (saved(MARK + laughs + TUPLE), "limit"),
        "one string encoded 100 times": (
            saved(MARK + text("a" * 100_000) + put(0) + encode + TUPLE),
            "limit",
        ),
        "one list made a set 100 times": again(many, "builtins.set"),
        "one tuple made a size 100 times": again(tupled(*[number(1)] * 50_000), "torch.Size"),
        "one dict counted 100 times": again(big, "collections.Counter"),
        "one list of pairs ordered 100 times": again(pairs, "collections.OrderedDict"),
        "one dict built 200 times": (
            saved(MARK + big + put(0) + HOOKS + put(1) + (get(0) + BUILD) * 200 + TUPLE),
            "limit",
        ),
        "one prefix 1,000 times": (
            stream(DICT + text("p" * 50_000) + listed(*[NONE] * 1000) + SETITEM),
            "limit",
        ),
    }


def _calls() -> dict[str, tuple[bytes, str]]:
    ordered = HOOKS
    args: dict[str, tuple[str, bytes]] = {
        "encode with utf-8": ("_codecs.encode", text("a") + text("utf-8")),
        "encode with rot13": ("_codecs.encode", text("a") + text("rot13")),
        "encode what latin1 lacks": ("_codecs.encode", text("\u20ac") + text("latin1")),
        "encode a number": ("_codecs.encode", number(1) + text("latin1")),
        "encode alone": ("_codecs.encode", text("a")),
        "a bytearray of 10**12": ("builtins.bytearray", number(10**12)),
        "a bytearray of text": ("builtins.bytearray", text("a") + text("utf-8")),
        "a set of lists": ("builtins.set", listed(LIST)),
        "a set of deep tuples": ("builtins.set", listed(NONE + b"\x85" * 10_000)),
        "a set of a number": ("builtins.set", number(1)),
        "complex of text": ("builtins.complex", text("1j")),
        "complex of huge ints": ("builtins.complex", number(1 << 2000) + number(0)),
        "a negative Size": ("torch.Size", tupled(number(-1))),
        "a Size of text": ("torch.Size", tupled(text("a"))),
        "a Size of a number": ("torch.Size", number(3)),
        "an unknown device": ("torch.device", text("gpu")),
        "a device twice numbered": ("torch.device", text("cuda:0") + number(1)),
        "a huge device": ("torch.device", text("cuda:300")),
        "a sparse layout": ("torch.serialization._get_layout", text("torch.sparse_coo")),
        "an OrderedDict of a number": ("collections.OrderedDict", number(1)),
        "an OrderedDict of triples": ("collections.OrderedDict", listed(tupled(NONE, NONE, NONE))),
        "a Counter of text": ("collections.Counter", text("aab")),
        "a Counter of a list": ("collections.Counter", listed(text("a"))),
    }
    cases = {
        name: (saved(called(function, arguments)), "argument")
        for name, (function, arguments) in args.items()
    }
    return cases | {
        "call of None": (saved(NONE + UNIT + REDUCE), "call"),
        "call of text": (saved(text("posix.system") + tupled(text("id")) + REDUCE), "call"),
        "call of a tensor": (saved(tensor() + UNIT + REDUCE), "call"),
        "call of a storage type": (saved(called("torch.FloatStorage", number(1 << 40))), "call"),
        "call of an untyped storage": (
            saved(called("torch.storage.UntypedStorage", number(1 << 40))),
            "call",
        ),
        "call of a dtype": (saved(called("torch.float32")), "call"),
        "call with a list": (saved(named("collections.OrderedDict") + LIST + REDUCE), "call"),
        "call with None": (saved(named("collections.OrderedDict") + NONE + REDUCE), "call"),
        "build a tensor with a dict": (saved(tensor() + DICT + BUILD), "build"),
        "build a tensor with a tuple": (
            saved(tensor() + tupled(storage(), number(0), UNIT, UNIT) + BUILD),
            "build",
        ),
        "build a dict": (saved(DICT + DICT + BUILD), "build"),
        "build a name": (saved(named("collections.OrderedDict") + DICT + BUILD), "build"),
        "build a Counter": (saved(called("collections.Counter") + DICT + BUILD), "build"),
        "build with a pair": (saved(ordered + tupled(DICT, DICT) + BUILD), "build"),
        "build with a number as name": (
            saved(ordered + DICT + number(1) + NONE + SETITEM + BUILD),
            "build",
        ),
    }


def _outside() -> dict[str, tuple[bytes, str]]:
    def pid(*items: bytes) -> bytes:
        return saved(tupled(*items) + BINPERSID)

    kind, cpu = named("torch.FloatStorage"), text("cpu")
    return {
        "id of a number": (saved(number(1) + BINPERSID), "persistent"),
        "id of text": (saved(text("storage") + BINPERSID), "persistent"),
        "id of nothing": (saved(UNIT + BINPERSID), "persistent"),
        "id of four": (pid(text("storage"), kind, text("0"), cpu), "persistent"),
        "id of six": (pid(text("storage"), kind, text("0"), cpu, number(6), NONE), "persistent"),
        "id of a module": (pid(text("module"), kind, text("0"), cpu, number(6)), "persistent"),
        "id of a tuple": (
            pid(tupled(text("storage")), kind, text("0"), cpu, number(6)),
            "persistent",
        ),
        "storage without a kind": (
            pid(text("storage"), NONE, text("0"), cpu, number(6)),
            "storage",
        ),
        "storage of a dtype": (
            pid(text("storage"), named("torch.float32"), text("0"), cpu, number(6)),
            "storage",
        ),
        "storage of a function": (
            pid(text("storage"), named("torch.Size"), text("0"), cpu, number(6)),
            "storage",
        ),
        "storage keyed by a number": (
            pid(text("storage"), kind, number(0), cpu, number(6)),
            "storage",
        ),
        "storage nowhere": (pid(text("storage"), kind, text("0"), NONE, number(6)), "storage"),
        "storage of -1": (pid(text("storage"), kind, text("0"), cpu, number(-1)), "storage"),
        "storage of 2**63": (
            pid(text("storage"), kind, text("0"), cpu, number(1 << 63)),
            "storage",
        ),
        "storage of 2**2000": (
            pid(text("storage"), kind, text("0"), cpu, number(1 << 2000)),
            "storage",
        ),
        "storage of True": (pid(text("storage"), kind, text("0"), cpu, TRUE), "storage"),
        "storage as two types": (saved(tensor(storage("torch.IntStorage"))), "storage"),
        "storage of two sizes": (saved(tensor(storage(count=7))), "storage"),
        "storage by itself": (saved(storage()), "storage"),
        "storage not there": (saved(tensor(storage(key="1"))), "missing_member"),
        "storage that climbs": (saved(tensor(storage(key="../data.pkl"))), "missing_member"),
        "storage used by nothing": (saved(listed(storage(key="9"))), "missing_member"),
        "storage too large": (stream(mapped({"w": tensor(storage(count=7))})), "storage_size"),
        "storage of 2**62": (stream(mapped({"w": tensor(storage(count=1 << 62))})), "storage_size"),
        "storage too small": (
            stream(mapped({"w": tensor(storage(count=6, kind="torch.HalfStorage"))})),
            "storage_size",
        ),
    }


def _tensors() -> dict[str, tuple[bytes, str]]:
    v2, param = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
    ints = storage("torch.IntStorage", count=6)
    sized = {
        "a list": LIST,
        "text": tupled(text("2")),
        "a float": tupled(b"G" + bytes(8)),
        "True": tupled(TRUE),
        "None": NONE,
    }
    cases = {
        f"size of {name}": (
            saved(called(v2, storage(), number(0), size, tupled(number(1)), FALSE, HOOKS)),
            "tensor",
        )
        for name, size in sized.items()
    }
    cases |= {
        f"offset of {name}": (
            saved(called(v2, storage(), value, UNIT, UNIT, FALSE, HOOKS)),
            "tensor",
        )
        for name, value in sized.items()
    }
    cases |= {
        f"stride of {name}": (
            saved(called(v2, storage(), number(0), tupled(number(1)), value, FALSE, HOOKS)),
            "tensor",
        )
        for name, value in sized.items()
    }
    whole = {
        "a negative size": (tensor(shape=(-1,), strides=(1,)), "tensor"),
        "a negative stride": (tensor(offset=5, shape=(6,), strides=(-1,)), "tensor"),
        "a negative offset": (tensor(offset=-1, shape=(1,), strides=(1,)), "tensor"),
        "a size of 2**63": (tensor(shape=(1 << 63,), strides=(0,)), "tensor"),
        "a size of 2**2000": (tensor(shape=(1 << 2000,), strides=(0,)), "tensor"),
        "2**80 elements by stride 0": (tensor(shape=(1 << 40, 1 << 40), strides=(0, 0)), "tensor"),
        "2**80 elements and none": (
            tensor(shape=(1 << 40, 1 << 40, 0), strides=(0, 0, 0)),
            "tensor",
        ),
        "an offset of 2**63": (tensor(offset=1 << 63, shape=(0,), strides=(1,)), "tensor"),
        "sizes without strides": (tensor(strides=(1,)), "tensor"),
        "65 dimensions": (tensor(shape=(1,) * 65, strides=(1,) * 65), "tensor"),
        "100,000 dimensions": (tensor(shape=(1,) * 100_000, strides=(1,) * 100_000), "tensor"),
        "one element too many": (tensor(shape=(7,), strides=(1,)), "bounds"),
        "an offset too far": (tensor(offset=6, shape=(), strides=()), "bounds"),
        "a stride too wide": (tensor(strides=(4, 1)), "bounds"),
        "a stride of 2**62": (tensor(strides=(1 << 62, 1)), "bounds"),
        "strides that wrap around 2**64": (
            tensor(shape=(3, 3), strides=((1 << 63) - 1, 2)),
            "bounds",
        ),
        "an offset of 2**62": (tensor(offset=1 << 62, shape=(1,), strides=(1,)), "bounds"),
        "four arguments": (called(v2, storage(), number(0), UNIT, UNIT), "argument"),
        "eight arguments": (
            called(v2, storage(), number(0), UNIT, UNIT, FALSE, HOOKS, NONE, NONE),
            "argument",
        ),
        "no storage": (tensor(NONE), "tensor"),
        "a tensor as storage": (tensor(tensor()), "tensor"),
        "a name as storage": (tensor(named("torch.FloatStorage")), "tensor"),
        "a gradient of 1": (tensor(tail=number(1) + HOOKS), "argument"),
        "hooks": (tensor(tail=FALSE + HOOKS + text("h") + NONE + SETITEM), "hooks"),
        "hooks in a dict": (tensor(tail=FALSE + DICT), "hooks"),
        "hooks in a list": (tensor(tail=FALSE + LIST), "hooks"),
        "a conjugate": (tensor(tail=FALSE + HOOKS + mapped({"conj": TRUE})), "conjugate"),
        "unknown metadata": (tensor(tail=FALSE + HOOKS + listed(NONE)), "conjugate"),
        "a parameter of None": (called(param, NONE, TRUE, HOOKS), "argument"),
        "a parameter of a storage": (called(param, storage(), TRUE, HOOKS), "argument"),
        "a parameter alone": (called(param, tensor()), "argument"),
    }
    cases |= {name: (saved(body), code) for name, (body, code) in whole.items()}
    thirds = {
        "of floats": third(storage_bytes=storage()),
        "to text": third(text("torch.float32")),
        "with a gradient": third(grad=TRUE),
    }
    thirds["to a storage"] = third(named("torch.FloatStorage"))
    cases |= {
        f"a third rebuild {name}": (stream(mapped({"w": body})), "argument")
        for name, body in thirds.items()
    }
    cases["a gradient of integers"] = (
        stream(mapped({"w": tensor(ints, tail=TRUE + HOOKS)})),
        "argument",
    )
    cases["a parameter of integers"] = (
        stream(mapped({"w": called(param, tensor(ints), TRUE, HOOKS)})),
        "argument",
    )
    return cases


def _strings() -> dict[str, tuple[bytes, str]]:
    return {
        "text past the end": (stream(DICT + text("a", 1000)), "truncated"),
        "text of 4 GiB": (stream(DICT + text("a", FULL64)), "truncated"),
        "text that is not UTF-8": (saved(text(b"\xff\xfe")), "text"),
        "text with a lone surrogate": (saved(text("\ud800")), "text"),
        "text that is overlong": (saved(text(b"\xc0\xaf")), "text"),
        "short string that is not UTF-8": (saved(b"U\2\xff\xfe"), "text"),
        "short string past the end": (stream(b"U\xff"), "truncated"),
        "number past the end": (stream(b"\x8a\xff"), "truncated"),
        "name that is not UTF-8": (saved(b"c\xff\nx\n"), "text"),
        "name without end": (saved(b"c" + b"a" * 1000 + b"\n" + NONE * 500), "global"),
        "name of one line": (stream(b"ctorch\n"), "truncated"),
        "name of nothing": (saved(b"c\n\n"), "global"),
        "name with a return": (saved(b"ctorch\r\nfloat32\r\n"), "global"),
        "name that reads on": (saved(b"ctorch\nSize.__init__\n"), "global"),
    }


def archives() -> dict[str, tuple[bytes, str]]:
    """Return hostile archives around a valid stream."""
    good = archive(parts(VALID))
    whole = parts(VALID)
    packed = zlib.compress(VALID)[2:-4]
    bigger = whole[2].header(size=FULL64, packed=FULL64)
    third = len(whole[0].bytes()) + len(whole[1].bytes())
    return _ends(good, whole) | _names(whole) | _records(whole) | {
        "nothing": (b"", "magic"),
        "text": (b"hello, world", "magic"),
        "four bytes": (b"PK\3\4", "truncated"),
        "an empty archive": (archive([]), "magic"),
        "bytes before": (b"#!/bin/sh\n" + good, "magic"),
        "a local header before": (good[:40] + good, "end_record"),
        "bytes after": (good + b"\0", "end_record"),
        "an end record after": (good + good[-22:], "end_record"),
        "an archive after": (good + good, "end_record"),
        "a comment": (good[:-2] + b"\2\0hi", "end_record"),
        "bytes between": (altered(1, before=b"junk"), "gap"),
        "bytes before the directory": (archive(whole, junk=b"junk"), "gap"),
        "a hidden member": (archive([*whole[:3], replace(whole[3], before=Part(b"a/data.pkl", b"x").bytes())]), "gap"),
        "no descriptor": (altered(0, after=b""), "gap"),
        "a descriptor without its mark": (altered(0, after=struct.pack("<3L", whole[0].sum, len(VALID), len(VALID))), "gap"),
        "a descriptor of another sum": (altered(0, after=struct.pack("<4s3L", b"PK\7\x08", 1, len(VALID), len(VALID))), "local_header"),
        "a descriptor of another size": (altered(0, after=struct.pack("<4s3L", b"PK\7\x08", whole[0].sum, 1, 1)), "local_header"),
        "a wide descriptor that lies": (altered(0, after=struct.pack("<4sL2Q", b"PK\7\x08", whole[0].sum, len(VALID), 1)), "local_header"),
        "a descriptor unannounced": (altered(0, flags=0x800, local=whole[0].header(flags=0x800), after=bytes(16)), "local_header"),
        "deflated stream": (altered(0, Part(b"a/data.pkl", packed, method=8, size=len(VALID), packed=len(packed))), "compressed"),
        "deflated storage": (altered(2, method=8), "compressed"),
        "method 99": (altered(2, method=99), "compressed"),
        "two sizes": (altered(2, packed=23), "compressed"),
        "encrypted": (altered(0, flags=0x809), "encrypted"),
        "strongly encrypted": (altered(0, flags=0x848), "encrypted"),
        "a masked directory": (altered(0, flags=0x2808), "encrypted"),
        "a patch": (altered(0, flags=0x828), "flags"),
        "unknown flags": (altered(0, flags=0x8808), "flags"),
        "two members in one place": (archive([*whole, replace(whole[2], name=b"a/data/1", at=third)]), "overlap"),
        "a member inside another": (archive([replace(whole[0], data=VALID + whole[1].bytes(), size=len(VALID) + 90), whole[1]]), "overlap"),
        "a member over the next": (altered(0, size=len(VALID) + 40), "overlap"),
        "a member over the directory": (altered(3, size=200), "overlap"),
        "a member of 4 GiB less 2": (altered(2, size=FULL64 - 1), "overlap"),
        "a header in the directory": (archive([*whole, replace(whole[2], name=b"a/data/1", at=len(good) - 200)]), "gap"),
        "a header past the end": (altered(3, at=FULL64 - 1), "gap"),
        "a header that is none": (altered(2, local=whole[2].header(mark=b"PK\1\2")), "local_header"),
        "a header of another name": (altered(2, local=whole[2].header(name=b"a/data/9")), "local_header"),
        "a header of other flags": (altered(2, local=whole[2].header(flags=0x800)), "local_header"),
        "a header of another method": (altered(2, local=whole[2].header(method=8)), "local_header"),
        "a header of another size": (altered(2, local=whole[2].header(size=9, packed=9)), "local_header"),
        "a header of another sum": (altered(2, local=whole[2].header(crc=9, size=24, packed=24)), "local_header"),
        "a header with a long extra field": (altered(2, local=replace(whole[2], local_extra=bytes(60_000)).header()[:60]), "overlap"),
        "a header full without zip64": (altered(2, local=bigger), "zip64"),
        "an entry on another disk": (altered(1, disk=1), "multi_disk"),
        "an entry with a comment": (altered(1, comment=b"hi"), "directory"),
        "an entry full without zip64": (altered(2, size=FULL64), "zip64"),
        "an entry full with a short zip64": (altered(2, size=FULL64, extra=b"\1\0\x08\0" + bytes(8)), "zip64"),
        "an entry full with a cut zip64": (altered(2, size=FULL64, extra=b"\1\0\x10\0" + bytes(8)), "zip64"),
        "an entry full with an empty zip64": (altered(2, size=FULL64, extra=b"\1\0\0\0\1\0\x10\0" + struct.pack("<2Q", 24, 24)), "zip64"),
        "an entry full with a huge zip64": (altered(2, size=FULL64, extra=b"\1\0\x10\0" + bytes([255] * 16)), "overlap"),
        "an entry full with two zip64 sizes": (altered(2, size=FULL64, extra=b"\1\0\x10\0" + struct.pack("<2Q", 24, 25)), "compressed"),
        "an entry far away by zip64": (altered(2, at=FULL64, extra=b"\1\0\x08\0" + bytes([255] * 8)), "gap"),
    }  # fmt: skip


def _ends(good: bytes, whole: list[Part]) -> dict[str, tuple[bytes, str]]:
    directory = sum(len(part.entry(0)) for part in whole)
    start = sum(len(part.bytes()) for part in whole)
    return {
        "a count too high": (archive(whole, count=5), "directory"),
        "a count too low": (archive(whole, count=3), "directory"),
        "a count of none": (archive(whole, count=0), "directory"),
        "a count of 65,535": (archive(whole, wide=False, count=FULL), "directory"),
        "a count of 2**62": (archive(whole, count=1 << 62), "directory"),
        "counts that differ": (archive(whole, here=3), "multi_disk"),
        "a second disk": (archive(whole, disk=1, first=1), "multi_disk"),
        "a second disk without zip64": (archive(whole, wide=False, disk=1, first=1), "multi_disk"),
        "two disks": (archive(whole, disks=2), "multi_disk"),
        "no disks": (archive(whole, disks=0), "multi_disk"),
        "a directory too long": (archive(whole, size=directory + 1), "end_record"),
        "a directory too short": (archive(whole, size=directory - 1), "end_record"),
        "a directory elsewhere": (archive(whole, start=0), "end_record"),
        "a directory moved": (archive(whole, start=start + 1, size=directory - 1), "directory"),
        "a directory that starts at 0": (
            archive(whole, start=0, size=start + directory),
            "directory",
        ),
        "zip64 of another count": (archive(whole, count64=9, here64=9), "end_record"),
        "zip64 of another size": (archive(whole, size64=1), "end_record"),
        "zip64 of another start": (archive(whole, start64=1 << 40), "end_record"),
        "zip64 elsewhere": (archive(whole, where=0), "end_record"),
        "zip64 at 2**64 - 1": (archive(whole, where=(1 << 64) - 1), "end_record"),
        "zip64 of another length": (archive(whole, length=45), "end_record"),
        "zip64 cut out": (good[:-98] + good[-42:], "end_record"),
        "a locator alone": (b"PK\3\4" + good[-42:], "end_record"),
    }


def _names(whole: list[Part]) -> dict[str, tuple[bytes, str]]:
    names = {
        "climbs": b"a/data/../../etc/passwd", "climbs at first": b"../data.pkl", "absolute": b"/a/data/1",
        "backslash": b"a\\data\\1", "NUL": b"a/data/1\0.txt", "empty": b"", "a dot": b"a/./data/1",
        "two slashes": b"a//data/1", "a folder": b"a/data/1/",
        "too long": b"a/" + b"x" * 600, "not UTF-8": b"a/\xff",
        "another folder": b"b/data.pkl", "no folder": b"data.pkl", "folder alone": b"a",
        "another case of folder": b"A/data/1",
    }  # fmt: skip
    cases = {
        f"name {name}": (archive([*whole, Part(value, b"x")]), "name")
        for name, value in names.items()
    }
    return cases | {
        "name beyond ASCII unmarked": (
            archive([*whole, Part("a/é".encode(), b"x", flags=8)]),
            "name",
        ),
        "name of a folder's kind": (archive([*whole, Part(b"a/data/1", b"x", kind=0x10)]), "name"),
        "first name without folder": (archive([Part(b"x", b"x"), *whole]), "name"),
        "two data.pkl": (archive([*whole, whole[0]]), "duplicate_member"),
        "two data.pkl by case": (archive([*whole, Part(b"a/DATA.pkl", b"x")]), "duplicate_member"),
        "two data.pkl by folder": (archive([*whole, Part(b"b/data.pkl", VALID)]), "name"),
        "two storages": (archive([*whole, whole[2]]), "duplicate_member"),
    }


def _records(whole: list[Part]) -> dict[str, tuple[bytes, str]]:
    def with_version(data: bytes) -> bytes:
        return archive([*whole[:3], Part(b"a/version", data, flags=0x808 if data else 0x800)])

    versions = {
        "0": b"0",
        "11": b"11",
        "text": b"x",
        "nothing": b"",
        "hex": b"0x3",
        "long": b"3" * 65,
        "negative": b"-3",
    }
    cases = {
        f"version of {name}": (with_version(data), "too_large" if name == "long" else "version")
        for name, data in versions.items()
    }
    orders = {
        "big": b"big",
        "middle": b"middle",
        "little with more": b"little\n",
        "nothing at all": b"",
    }
    cases |= {
        f"byte order {name}": (altered(1, data=data, flags=0x808 if data else 0x800), "byteorder")
        for name, data in orders.items()
    }
    return cases | {
        "no stream": (archive(whole[1:]), "missing_member"),
        "no version": (archive(whole[:3]), "missing_member"),
        "no storage": (archive([*whole[:2], whole[3]]), "missing_member"),
        "a package": (archive([*whole, Part(b"a/.data/version", b"3")]), "version"),
        "an alignment of text": (
            archive([*whole, Part(b"a/.storage_alignment", b"many")]),
            "version",
        ),
        "an id that is not text": (
            archive([*whole, Part(b"a/.data/serialization_id", b"\xff")]),
            "version",
        ),
        "an id of a kilobyte": (
            archive([*whole, Part(b"a/.data/serialization_id", b"1" * 1001)]),
            "too_large",
        ),
        "TorchScript": (archive([*whole, Part(b"a/constants.pkl", b"x")]), "torchscript"),
        "TorchScript by its code": (
            archive([*whole, Part(b"a/code/__torch__.py", b"import os")]),
            "torchscript",
        ),
        "another sum of the stream": (altered(0, crc=1), "crc"),
        "another sum of the version": (altered(3, crc=1), "crc"),
        "another sum of the byte order": (altered(1, crc=1), "crc"),
        "a storage of another size": (altered(2, data=SIX[4:]), "storage_size"),
        "an empty storage": (altered(2, data=b"", flags=0x800), "storage_size"),
    }


def old() -> dict[str, tuple[bytes, str]]:
    """Return hostile files of the legacy container."""
    good = legacy(VALID_OLD)
    six = struct.pack("<q", 6)
    pid = (
        tupled(text("module"), named("torch.float32"), text("x.py"), text("import os"), NONE, NONE)
        + BINPERSID
    )
    view = storage(more=tupled(text("1"), number(0), number(3)))
    bodies = {
        "module": (pid, "persistent"),
        "view": (tensor(view), "storage"),
        "id of five": (tensor(storage()), "persistent"),
        "untyped storage": (tensor(storage("torch.storage.UntypedStorage", more=NONE)), "storage"),
        "system": (called("posix.system", text("id")), "global"),
    }
    cases = {
        f"old: {name}": (legacy(stream(mapped({"w": tensor(VIEWLESS), "x": body}))), code)
        for name, (body, code) in bodies.items()
    }
    for name, keys in {
        "none": LIST,
        "another": listed(text("1")),
        "twice": listed(text("0"), text("0")),
        "more": listed(text("0"), text("1")),
    }.items():
        cases[f"old: keys {name}"] = (legacy(VALID_OLD, keys), "storage")
    for name, keys in {
        "a tuple": tupled(text("0")),
        "text": text("0"),
        "numbers": listed(number(0)),
        "tuples": listed(UNIT),
    }.items():
        cases[f"old: keys as {name}"] = (legacy(VALID_OLD, keys), "storage")
    return cases | {
        "old: another magic": (legacy(VALID_OLD, magic=number(MAGIC + 1)), "magic"),
        "old: magic of text": (legacy(VALID_OLD, magic=text("magic")), "magic"),
        "old: a plain pickle": (VALID, "persistent"),
        "old: a plain pickle of numbers": (stream(mapped({"w": number(1)})), "magic"),
        "old: a plain pickle of system": (stream(called("posix.system", text("id"))), "global"),
        "old: magic of protocol 4": (b"\x80\4" + good[2:], "protocol"),
        "old: magic alone": (stream(number(MAGIC)), "truncated"),
        "old: another version": (
            stream(number(MAGIC)) + stream(number(1000)) + good[20:],
            "version",
        ),
        "old: system facts of text": (
            stream(number(MAGIC)) + stream(number(1001)) + stream(text("x")) + good[-200:],
            "byteorder",
        ),
        "old: big-endian": (legacy(VALID_OLD, order=FALSE), "byteorder"),
        "old: endian of 1": (legacy(VALID_OLD, order=number(1)), "byteorder"),
        "old: storage of 5": (legacy(VALID_OLD, data=struct.pack("<q", 5) + SIX), "storage_size"),
        "old: storage of 2**62": (
            legacy(VALID_OLD, data=struct.pack("<q", 1 << 62) + SIX),
            "storage_size",
        ),
        "old: storage of -6": (legacy(VALID_OLD, data=struct.pack("<q", -6) + SIX), "storage_size"),
        "old: storage declared with 2**62": (
            legacy(
                stream(mapped({"w": tensor(storage(more=NONE, count=1 << 62))})),
                data=struct.pack("<q", 1 << 62) + SIX,
            ),
            "truncated",
        ),
        "old: storage cut": (legacy(VALID_OLD, data=six + SIX[:-1]), "truncated"),
        "old: no storage": (legacy(VALID_OLD, data=b""), "truncated"),
        "old: bytes after": (good + b"\0", "trailing"),
        "old: another file after": (good + good, "trailing"),
        "old: a tar": (tar(b"storages".ljust(2048, b"\0")), "tar"),
        "old: also a tar": (
            tar(legacy(stream(mapped({"pad": text("x" * 600), "w": tensor(VIEWLESS)})))),
            "tar",
        ),
        "old: endless marks": (good[:60] + MARK * 2_000_000, "depth"),
    }


def hostile() -> dict[str, tuple[bytes, str]]:
    """Return every hostile file by name, with the expected error code."""
    return (
        {name: (zipped(pickled), code) for name, (pickled, code) in streams().items()}
        | archives()
        | old()
    )
