"""Fuzz targets: for every reader of untrusted bytes, its seeds, its dictionary, and a run that ends
in a result or a LlamathError.

An input may begin with a byte that says how the rest is wrapped, so that checksums and lengths
which a mutation breaks are made good.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from llamath.checkpoint.tensor_stats import TensorStats

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from support import hostile_folders, hostile_gguf, hostile_index, hostile_pth, hostile_safetensors  # noqa: E402

MAX_BYTES = 8192
"""Bytes of an input; what only long ones could do is in the hostile corpora."""


class Differs(Exception):
    """A file that is read here and not, or otherwise, by the reference."""


class Target(NamedTuple):
    """One reader."""

    modules: tuple[str, ...]  # what to watch for coverage
    seeds: Callable[[], Iterator[bytes]]
    words: Callable[[], Iterable[bytes]]
    run: Callable[[bytes], object]
    json: bool = False  # whether tokens, not only bytes, are worth exchanging
    packages: tuple[str, ...] = ()  # references that it is compared with


def _made(corpora: Iterable[Iterable[bytes | Callable[[], bytes]]], wraps: int) -> Iterator[bytes]:
    """Every short file of the corpora behind each of the bytes that say how it is wrapped."""
    for corpus in corpora:
        for seed in corpus:
            data = seed() if callable(seed) else seed
            if len(data) < MAX_BYTES:
                yield from (bytes([i]) + data for i in range(wraps))


# safetensors: as it is, or a header whose length is right and whose data are there

_ENDS = re.compile(rb'"data_offsets"\s*:\s*\[\s*\d+\s*,\s*(\d{1,4})\s*\]')


def _safetensors_seeds() -> Iterator[bytes]:
    files = [
        *(make for _, make in hostile_safetensors.short().values()),
        *hostile_safetensors.odd().values(),
    ]
    for data in (make() for make in files):
        if len(data) < MAX_BYTES:
            yield from (b"\0" + data, b"\1" + data[8:])
    yield from (b"\0" + data for data in islice(hostile_safetensors.mutants(0), 300))


def _safetensors(data: bytes) -> object:
    import safetensors

    from llamath.checkpoint.formats.safetensors import read
    from llamath.checkpoint.formats.source import Bytes

    wrap, data = data[:1], data[1:]
    if wrap == b"\1":
        end = max(map(int, _ENDS.findall(data)), default=0)
        data = hostile_safetensors.file(data, bytes(i % 251 for i in range(end)))
    manifest = read(Bytes(data))
    try:
        theirs = safetensors.deserialize(data)
    except safetensors.SafetensorError as error:
        raise Differs(f"safetensors refuses: {error}") from None
    same = sorted((name, x["dtype"], tuple(x["shape"]), bytes(x["data"])) for name, x in theirs)
    if same != sorted((x.name, x.dtype, x.shape, data[x.start : x.end]) for x in manifest.tensors):
        raise Differs("safetensors reads something else")
    return manifest


# GGUF: as it is, or with zeros after it


def _gguf_seeds() -> Iterator[bytes]:
    whole = [hostile_gguf.valid(version, order).bytes() for version in (2, 3) for order in "<>"]
    return _made(
        ([make for _, make in hostile_gguf.hostile().values()], hostile_gguf.odd().values(), whole),
        2,
    )


def _gguf(data: bytes) -> object:
    from llamath.checkpoint.formats.gguf import Array, read, values
    from llamath.checkpoint.formats.source import Bytes

    source = Bytes(data[1:] + bytes(4096 if data[:1] == b"\1" else 0))
    manifest = read(source)
    for value in manifest.metadata.values():
        if isinstance(value, Array):
            for _ in islice(values(source, value), 1000):
                pass
    for x in manifest.tensors:
        if not 0 <= x.start <= x.end <= source.size:
            raise Differs(f"a tensor's bytes {x.start} to {x.end} are not in the file")
    return manifest


# torch: as it is, or a pickle stream in a sound archive, or in the older container


def _pth_seeds() -> Iterator[bytes]:
    yield from _made(
        [(data for data, _ in {**hostile_pth.archives(), **hostile_pth.old()}.values())], 1
    )
    streams = [
        hostile_pth.VALID,
        hostile_pth.VALID_OLD,
        *(data for data, _ in hostile_pth.streams().values()),
    ]
    yield from (bytes([i]) + data for data in streams if len(data) < MAX_BYTES for i in (1, 2))
    yield from (
        b"\0" + data
        for data in (
            hostile_pth.zipped(hostile_pth.VALID),
            hostile_pth.legacy(hostile_pth.VALID_OLD),
        )
    )


def _pth(data: bytes) -> object:
    from llamath.checkpoint.formats.source import Bytes
    from llamath.checkpoint.formats.torch_files.torch_checkpoint import read

    wrap, data = data[:1], data[1:]
    if wrap in (b"\1", b"\2"):
        data = (
            hostile_pth.zipped(data, {"0": hostile_pth.SIX, "1": b""})
            if wrap == b"\1"
            else hostile_pth.legacy(data)
        )
    manifest = read(Bytes(data))
    for x in manifest.tensors:
        if not 0 <= x.start <= x.end <= len(data):
            raise Differs(f"a tensor's bytes {x.start} to {x.end} are not in the file")
    return manifest


def _pth_words() -> Iterator[bytes]:
    from llamath.checkpoint.formats.torch_files import torch_objects as rebuild

    yield from (
        hostile_pth.named(name) for name in (*rebuild.CALLS, *rebuild.STORAGES, *rebuild.DTYPES)
    )
    yield from (
        hostile_pth.storage(),
        hostile_pth.HOOKS,
        hostile_pth.PROTO,
        b"PK\3\4",
        b"PK\1\2",
        b"PK\5\6",
        b"PK\6\6",
        b"PK\6\7",
    )


# indexes and configurations: JSON


def _index_seeds() -> Iterator[bytes]:
    return (
        data
        for data in (
            make()
            for make in [
                *(x for _, x in hostile_index.hostile().values()),
                *hostile_index.odd().values(),
            ]
        )
        if len(data) < MAX_BYTES
    )


def _index(data: bytes) -> object:
    from llamath.checkpoint.formats.checkpoint_files import read_index
    from llamath.checkpoint.formats.folder import Folder, check_file_name
    from llamath.checkpoint.formats.source import Bytes, Source
    from llamath.utils.strict_json import parse_json

    class Memory(Folder):
        """A folder of one shard."""

        name = "memory"

        def open(self, name: str) -> Source | None:
            return (
                Bytes(hostile_safetensors.valid(), name)
                if check_file_name(name) == hostile_index.SHARD
                else None
            )

        def json(self, name: str) -> dict[str, Any]:
            return parse_json(data, name)

    folder = read_index(Memory(), "x.index.json")
    for name in folder.index.weight_map.values():
        if any(x in "/\\:" or unicodedata.category(x) in ("Cc", "Cs") for x in name) or name in (
            "",
            ".",
            "..",
        ):
            raise Differs(f"the shard {name!r} was taken for a plain name")
    return folder


def _configs() -> Iterator[Mapping[str, Any]]:
    for path in sorted((TESTS / "tiny").glob("*.json")):
        yield from json.loads(path.read_text()).values()
    yield {
        "dim": 64,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 2,
        "vocab_size": 128,
        "multiple_of": 16,
        "norm_eps": 1e-5,
    }


def _config_seeds() -> Iterator[bytes]:
    return (json.dumps(config).encode() for config in _configs())


def _config_words() -> Iterator[bytes]:
    names: set[str] = set()
    for config in _configs():
        names |= {json.dumps(x) for x in config} | {json.dumps(x) for x in config.values()}
    yield from (x.encode() for x in sorted(names))
    yield from _odd_words()


def _config(data: bytes) -> object:
    from llamath.loading import load
    from llamath.utils.strict_json import parse_json

    model = load(parse_json(data, "fuzz"))
    return model.parameters.total, list(model.config.unread())


# regular expressions of adapters: a pattern, a zero byte, a text


def _regex_seeds() -> Iterator[bytes]:
    patterns = (
        ".*\\.(q|v)_proj",
        "a*",
        "(a|b)+?c{2,3}",
        "[^a-c]\\d\\w",
        "^x$|\\by",
        "(?:ab)?",
        "[\\w.]{1,}",
        "(a(b(c)*)+)?",
    )
    yield from (
        f"{x}\0{text}".encode() for x in patterns for text in ("a.q_proj", "abcc", "x", "", "a1_")
    )


try:
    import re2
except ImportError:
    re2 = None


def _regex(data: bytes) -> object:
    from llamath.utils.errors import FormatError
    from llamath.utils.linear_regex import LinearRegex

    pattern, _, text = data.decode("latin-1").partition("\0")
    regex = LinearRegex(pattern)
    found = regex.fullmatch(text)
    if not text.isascii() or not text.isprintable() or not pattern.isascii() or "\\B" in pattern:
        raise FormatError(
            "not_compared", "characters or an assertion that versions of Python treat differently"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if (
            sum(map(pattern.count, "*+{?")) <= 3
            and len(text) <= 12
            and len(pattern) < 100
            and found != bool(re.fullmatch(pattern, text))
        ):
            raise Differs(f"{pattern!r} and {text!r}: found {found}")
    if (other := _found_by_re2(pattern, text)) is not None and found != other:
        raise Differs(f"{pattern!r} and {text!r}: found {found}, RE2 {other}")
    return found


def _found_by_re2(pattern: str, text: str) -> bool | None:
    """Return what RE2, which needs linear time as well, finds; None where it is not installed, or
    has another syntax.
    """
    if re2 is None or re.search(r"\{,|\\[^dDwWsSb.\\(){}\[\]|*+?^$-]|\[[^]]*\[", pattern):
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options).fullmatch(text) is not None
    except re2.error:
        return None


# adapters: a configuration and the shapes of tensors, against a small Llama

_Q = "base_model.model.model.layers.0.self_attn.q_proj"
_LORA = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 8,
    "target_modules": ["q_proj"],
    "base_model_name_or_path": "x/y",
}
_EXPERTS = "base_model.model.model.layers.1.mlp.experts"


def _adapter_cases() -> Iterator[dict[str, Any]]:
    plain = {f"{_Q}.lora_A.weight": [4, 16], f"{_Q}.lora_B.weight": [16, 4]}
    yield {"config": _LORA, "tensors": plain}
    yield {
        "config": _LORA | {"use_dora": True},
        "tensors": plain | {f"{_Q}.lora_magnitude_vector": [16], f"{_Q}.lora_B.bias": [16]},
    }
    more = {
        "rank_pattern": {"q.*": 4},
        "alpha_pattern": {"^q": 2},
        "layers_to_transform": [0],
        "layers_pattern": "layers",
    }
    yield {
        "config": _LORA
        | more
        | {"exclude_modules": ".*v", "modules_to_save": ["lm_head"], "use_rslora": True},
        "tensors": plain,
    }
    embedding = "base_model.model.model.embed_tokens"
    tensors = {
        f"{embedding}.lora_embedding_A": [4, 50],
        f"{embedding}.lora_embedding_B": [16, 4],
        f"{embedding}.base_layer.weight": [50, 16],
    }
    yield {"config": _LORA | {"target_modules": "all-linear"}, "tensors": tensors}
    nested = {f"{_EXPERTS}.{x}lora_{y}.weight": [16, 16] for x in ("", "base_layer.") for y in "AB"}
    yield {
        "config": _LORA | {"target_parameters": ["experts.gate_up_proj", "experts.down_proj"]},
        "tensors": nested,
    }
    rows = {f"{embedding}.token_adapter.trainable_tokens_delta": [2, 16]}
    yield {
        "config": _LORA | {"trainable_token_indices": {"embed_tokens": [1, 70]}},
        "tensors": rows,
    }
    yield {
        "config": {"peft_type": "IA3", "feedforward_modules": [], "target_modules": ["k_proj"]},
        "tensors": {f"{_Q}.ia3_l": [16, 1]},
    }
    yield {"config": {"peft_type": "LOHA"}, "tensors": {f"{_Q}.hada_w1_a": [4, 4]}}
    mlx = {"rank": 4, "scale": 2.0, "keys": ["self_attn.q_proj"]}
    config = {"fine_tune_type": "lora", "num_layers": 1, "lora_parameters": mlx}
    name = "model.layers.0.self_attn.q_proj"
    yield {
        "config": config,
        "tensors": {f"{name}.lora_a": [16, 4], f"{name}.lora_b": [4, 16], f"{name}.m": [16]},
    }


def _adapter_seeds() -> Iterator[bytes]:
    return (json.dumps(x).encode() for x in _adapter_cases())


def _adapter_words() -> Iterator[bytes]:
    words = {json.dumps(key) for x in _adapter_cases() for part in x.values() for key in part}
    words |= {
        json.dumps(value)
        for x in _adapter_cases()
        for part in x.values()
        for value in part.values()
    }
    yield from (x.encode() for x in sorted(words))
    yield from _odd_words()


def _adapter(data: bytes) -> object:
    from llamath.analysis.check.kinds.adapter_check import verify_adapter
    from llamath.checkpoint.adapters import read_adapter
    from llamath.checkpoint.formats.manifest import CheckpointFile, Manifest, Tensor
    from llamath.utils.errors import FormatError
    from llamath.utils.strict_json import parse_json

    global _base
    keys = parse_json(data, "fuzz")
    config, shapes = keys.get("config"), keys.get("tensors")
    is_shape = lambda x: (  # noqa: E731
        isinstance(x, list) and len(x) <= 64 and all(type(y) is int and 0 <= y < 1 << 40 for y in x)
    )
    if (
        not isinstance(config, dict)
        or not isinstance(shapes, dict)
        or not all(map(is_shape, shapes.values()))
    ):
        raise FormatError("input", "no configuration and shapes")
    tensors = tuple(Tensor(name, "F32", tuple(shape), 0, 0, 4) for name, shape in shapes.items())
    manifest = Manifest(
        format="safetensors",
        files=(CheckpointFile("adapter_model.safetensors", 9),),
        tensors=tensors,
    )
    adapter = read_adapter(manifest, config, "fuzz")
    if _base is None:
        from llamath.loading import load

        sizes = {
            "hidden_size": 16,
            "intermediate_size": 40,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "vocab_size": 50,
        }
        _base = load({"model_type": "llama", **sizes})
    report = verify_adapter(adapter, "fuzz", _base)
    text = [report.summary, report.title, *(x.message + x.hint for x in report.findings)]
    if not all(x.isprintable() for x in text):
        raise Differs("unescaped text")
    return json.dumps(report.to_json())


_base: Any = None


# distributed checkpoints, DeepSpeed and numpy


def _dcp_seeds() -> Iterator[bytes]:
    return _made(
        [
            [hostile_folders.VALID, hostile_folders.many_chunks(3)],
            [data for data, _ in hostile_folders.dcp().values()],
        ],
        1,
    )


def _dcp(data: bytes) -> object:
    from llamath.analysis.check.kinds.dcp_check import cover_problem
    from llamath.checkpoint.folders.dcp import parse_metadata
    from llamath.checkpoint.formats.source import Bytes

    tensors, _, _ = parse_metadata(Bytes(data[1:]))
    return [cover_problem(x.shape, [(y.offsets, y.sizes) for y in x.chunks]) for x in tensors]


def _dcp_words() -> Iterator[bytes]:
    from llamath.checkpoint.formats.torch_files.torch_objects import DTYPES

    yield from (
        hostile_pth.named(name)
        for name in (
            *list(DTYPES)[:4],
            f"{hostile_folders.METADATA}MetadataIndex",
            "builtins.getattr",
        )
    )
    yield from (
        hostile_folders.size(2, 2),
        hostile_folders.chunk((0,), (1,)),
        hostile_folders.place(),
        hostile_folders.NEW,
    )
    yield from (b"\x94", b"\x93", b"\x8c\1a", b"\x95" + bytes(8), b"h\0", b"q\0")


def _zero_seeds() -> Iterator[bytes]:
    return _made(
        [
            hostile_folders.ZERO_STREAMS.values(),
            [data for data, _ in hostile_folders.zero().values()],
        ],
        2,
    )


def _zero(data: bytes) -> object:
    from llamath.checkpoint.folders.deepspeed import RankFile, parse_model_states, parse_optimizer
    from llamath.checkpoint.formats.source import Bytes

    parse = parse_optimizer if data[:1] == b"\0" else parse_model_states
    return parse(Bytes(hostile_folders.zero_file(data[1:])), RankFile("x", 0, 0))


def _zero_words() -> Iterator[bytes]:
    yield from (
        hostile_folders.SCALER,
        hostile_folders.ENUM,
        hostile_folders.tensor(),
        hostile_folders.size(2, 3),
        hostile_folders.NEW,
    )
    yield from (
        hostile_pth.text(x)
        for x in ("zero_stage", "partition_count", "param_shapes", "optimizer_state_dict")
    )


def _npz_seeds() -> Iterator[bytes]:
    yield from _made(
        [
            hostile_folders.ARRAYS.values(),
            [data for data, _ in hostile_folders.hostile_npz().values()],
        ],
        1,
    )
    yield from (
        b"\1" + hostile_folders.npy(),
        b"\1" + hostile_folders.npy("'<i8'", "(3,)"),
        b"\2" + hostile_folders.npy(version=2),
    )


def _npz(data: bytes) -> object:
    """An archive as it is, or one array in a sound archive, stored or deflated; what is read is
    what numpy reads."""
    import io
    import zipfile

    import numpy as np

    from llamath.checkpoint.formats.npz import read
    from llamath.checkpoint.formats.source import Bytes

    wrap, data = data[:1], data[1:]
    if wrap in (b"\1", b"\2"):
        data = hostile_folders.npz(
            {"a.npy": data}, zipfile.ZIP_STORED if wrap == b"\1" else zipfile.ZIP_DEFLATED
        )
    manifest = read(Bytes(data))
    ours = {x.name: x.shape for x in manifest.tensors}
    if sum(x.elements for x in manifest.tensors) > 1 << 16:
        return ours
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            archive = np.load(io.BytesIO(data))
            theirs = {name: archive[name].shape for name in ours}
    except Exception as error:
        # numpy also checks sums and the whole of a deflated member
        if (
            isinstance(error, zipfile.BadZipFile | EOFError)
            or type(error).__name__ == "error"
            or "Bad CRC" in str(error)
        ):
            return ours
        raise Differs(f"numpy refuses: {type(error).__name__}: {error}") from None
    if theirs != ours:
        raise Differs(f"numpy reads {theirs}, found {ours}")
    return ours


def _npz_words() -> Iterator[bytes]:
    yield from (
        b"\x93NUMPY",
        b"'descr': ",
        b"'<f4'",
        b"'|O'",
        b"'shape': (2, 3)",
        b"'fortran_order': True",
        b"(1,)",
        b"PK\3\4",
        b"PK\1\2",
    )


def _pipeline_seeds() -> Iterator[bytes]:
    parts = {
        "unet": ["diffusers", "UNet2DConditionModel"],
        "scheduler": ["diffusers", "PNDMScheduler"],
        "safety_checker": [None, None],
    }
    yield json.dumps({"_class_name": "P", "_diffusers_version": "0.1", **parts}).encode()


def _pipeline(data: bytes) -> object:
    from llamath.checkpoint.folders.diffusers import parse_pipeline
    from llamath.utils.strict_json import parse_json

    found = parse_pipeline(parse_json(data, "fuzz"), "/nowhere")
    for x in found.parts:
        if "/" in x.name or x.name in ("", ".", ".."):
            raise Differs(f"the part {x.name!r} was taken for a plain name")
    return found


# sums: text; values: a dtype, a shape, and bytes that arrive in pieces


def _sums_seeds() -> Iterator[bytes]:
    digest = "0123456789abcdef" * 4
    lines = (
        f"{digest}  a.bin",
        f"{digest} *./b c",
        f"SHA256 (d) = {digest}",
        f"SHA256 (e) = f) = {digest}",
        "# x",
        "",
        digest,
    )
    yield from (f"{x}\n{y}\n".encode() for x in lines for y in lines)


def _sums(data: bytes) -> object:
    from llamath.checkpoint.file_sums import parse_sums
    from llamath.utils.errors import FormatError

    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise FormatError("utf8", "not text") from None
    sums = parse_sums(text, "fuzz")
    if not all(
        name and len(x) == 64 and set(x) <= set("0123456789abcdef") for name, x in sums.items()
    ):
        raise Differs(f"malformed sums were read: {sums}")
    return sums


# files: a kind of name, and a file's first bytes, which are compared with the readers of formats;
# names: those of tensors and of files

_NAMES = (
    "model.safetensors",
    "model.bin",
    "model",
    "x.safetensors.aria2",
    "x.incomplete",
    "x.lock",
    "hf://org/name@main/x.safetensors",
)


def _file_seeds() -> Iterator[bytes]:
    from support.fuzz_files import BROKEN, VALID

    yield from (bytes([i]) + x for x in (*BROKEN, *VALID) for i in range(len(_NAMES)))


def _file_words() -> Iterable[bytes]:
    return (
        b"version https://git-lfs.github.com/spec/v1",
        b"<!doctype html",
        b"<?xml",
        b"<Error>",
        b'{"error":',
        b"\x80\x02",
        b"GGUF",
        b"size 9",
    )


def _file(data: bytes) -> object:
    from llamath.checkpoint.formats import safetensors
    from llamath.checkpoint.formats.checkpoint_files import read_source
    from llamath.checkpoint.formats.source import Bytes
    from llamath.utils.errors import FormatError
    from llamath.utils.file_diagnosis import HEAD_BYTES, diagnose

    name, data = _NAMES[data[0] % len(_NAMES)] if data else "x", data[1:]
    for expected in ("a checkpoint", "JSON", "a tokenizer"):
        found = diagnose(data[:HEAD_BYTES], name, len(data), expected)
        if found and not (
            found.message.isprintable()
            and found.hint.isprintable()
            and found.hint
            and len(found.message) < 1000
        ):
            raise Differs(f"a diagnosis that cannot be shown: {found}")
    try:
        manifest = safetensors.read(Bytes(data, name))
    except FormatError:
        return read_source(Bytes(data, name))
    if read_source(Bytes(data, name)) != manifest:
        raise Differs("a safetensors file is read otherwise if its format is detected")
    return manifest


def _names_seeds() -> Iterator[bytes]:
    model = (
        "model.embed_tokens.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.1.mlp.up_proj.weight",
        "lm_head.weight",
    )
    for prefix in (
        "",
        "module.",
        "_orig_mod.module.",
        "model.module.",
        "state_dict.model._forward_module.",
        "model.",
    ):
        yield "\n".join(
            (*(prefix + x for x in model), "optimizer.state.0.exp_avg", "rng_state")
        ).encode()
    yield "\n".join(
        (
            "config.json",
            "model-00001-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "optimizer.pt",
        )
    ).encode()
    yield b"adapter_config.json\nadapter_model.bin\nx.gguf\nmodel.safetensors.aria2"


def _names_words() -> Iterable[bytes]:
    return (
        b"module.",
        b"_orig_mod.",
        b"_fsdp_wrapped_module.",
        b"optimizer.",
        b"state.",
        b"param_groups.",
        b"-00001-of-00002",
        b"\n",
        b".",
    )


def _names(data: bytes) -> object:
    from llamath.checkpoint.formats.choose_files import choose_files
    from llamath.checkpoint.formats.folder import Folder
    from llamath.checkpoint.formats.manifest import Manifest, Tensor
    from llamath.checkpoint.naming.training_names import (
        describe_wrappers,
        fold_numbers,
        model_tensors,
        training_state,
        without_wrappers,
    )
    from llamath.utils.errors import FormatError

    lines = data.decode("utf-8", "replace").split("\n")[:500]
    tensors = tuple(Tensor(x, "F32", (1,), 0, 4 * i, 4 * i + 4) for i, x in enumerate(lines))
    values = {x: 0 for x in lines if "param_groups" in x}
    manifest = Manifest(format="torch", files=(), tensors=tensors, metadata={"values": values})
    expected = [
        frozenset(
            map(
                fold_numbers,
                (
                    "model.embed_tokens.weight",
                    "model.layers.{l}.mlp.up_proj.weight",
                    "lm_head.weight",
                ),
            )
        )
    ]
    found = model_tensors(manifest, expected)
    if len(found.manifest.tensors) + len(found.state) != len(lines) or len(found.state) != len(
        training_state(manifest)
    ):
        raise Differs("tensors were lost")
    if found.manifest is manifest and found.description:
        raise Differs("names are said to have changed")
    if any(without_wrappers(without_wrappers(x)) != without_wrappers(x) for x in lines):
        raise Differs("wrappers are left")
    describe_wrappers(lines)
    try:
        folder = Folder()
        folder.name = "fuzz"
        chosen = choose_files(folder, sorted(set(lines)))
    except FormatError:
        return found
    if not set(chosen.names) <= set(lines) and not any(
        x.endswith((".gguf", ".pth")) for x in chosen.names
    ):
        raise Differs(f"files were chosen that are not there: {chosen}")
    return found


_MOST_VALUE_BYTES = 192
_VALUE_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "", "F8_E4M3": "", "F8_E5M2": "",
    "F8_E4M3FNUZ": "", "F8_E5M2FNUZ": "",
    "F8_E8M0": "", "U8": "u1", "Q8_0": "", "Q4_K": "",
}  # fmt: skip
_BLOCK_TYPES = ("Q8_0", "Q4_K")


def _values_seeds() -> Iterator[bytes]:
    for kind in range(len(_VALUE_TYPES)):
        for width in (0, 2, 15):
            yield bytes((kind, width, 255)) + bytes(range(16))
            yield bytes((kind, width, 2)) + bytes(range(0, 256, 3))
            yield bytes((kind, width, 1)) + b"\xff\x7f\x00\x00" * 10 + bytes(40)
            yield bytes((kind, width, 0)) + bytes(_MOST_VALUE_BYTES)


def _float_words() -> Iterator[bytes]:
    """Bit patterns around the largest finite numbers, zeros, and the smallest numbers."""
    for x in (
        0x7F,
        0x80,
        0xFF,
        0x7C00,
        0x7BFF,
        0xFC00,
        0x7F80,
        0x7F7F,
        0xFF80,
        0x8000,
        1,
        0x7F800000,
        0xFF7FFFFF,
        0x80000000,
    ):
        yield x.to_bytes(4, "little").rstrip(b"\0") * 3
    yield from (b"\0" * 64, b"\0\0\0\0\0\0\xf0\x7f", b"\xff\xff\xff\xff\xff\xff\xef\xff")


def _values(data: bytes) -> object:
    """Rows that arrive in up to four pieces, or byte by byte; few bytes, since the readers of
    longer ones are the same code."""
    from llamath.checkpoint.formats.dtypes import DTYPES
    from llamath.checkpoint.formats.manifest import Tensor
    from llamath.checkpoint.tensor_stats import TensorStats
    from llamath.utils.errors import FormatError

    if len(data) < 16:
        raise FormatError("short", "too short")
    (number, width, cut), data = data[:3], data[3 : 3 + _MOST_VALUE_BYTES]
    dtype, width = list(_VALUE_TYPES)[number % len(_VALUE_TYPES)], 1 + width % 64
    width = 1 if dtype in _BLOCK_TYPES else width
    size = DTYPES[dtype].size(width * DTYPES[dtype].block)
    rows = len(data) // size
    if not rows:
        raise FormatError("short", "no whole row")
    data = data[: rows * size]
    shape = (rows // 2, 2, width) if cut & 4 and rows % 2 == 0 else (rows, width)
    if dtype in _BLOCK_TYPES:
        shape = (rows, DTYPES[dtype].block)
    step = 1 if cut == 255 else -(-len(data) // (1 + cut % 4))
    stats = TensorStats(
        Tensor("x", dtype, shape, 0, 0, len(data)), dtype if dtype != "U8" else "packed"
    )
    for at in range(0, len(data), step):
        stats.feed(memoryview(data)[at : at + step])
    stats.finish()
    if not stats.complete:
        raise Differs(f"{dtype}: not complete after all bytes")
    if dtype != "U8":
        _compare_values(stats, dtype, data)
    return stats.nan, stats.infinite, stats.is_zero


def _compare_values(stats: TensorStats, dtype: str, data: bytes) -> None:
    """Compare the statistics with numpy's of the decoded values, of block types with those of
    the decoded scales."""
    import numpy as np

    from llamath.checkpoint.formats.number_arrays import float8_table
    from llamath.checkpoint.quantization.ggml_values import decode_ggml

    if dtype in _BLOCK_TYPES:
        blocks = decode_ggml(data, dtype)
        parts = (blocks.scale,) if dtype == "Q8_0" else (blocks.super_scale, blocks.super_minimum)
        values = np.concatenate([x.reshape(-1) for x in parts])
    elif dtype == "BF16":
        values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    elif dtype.startswith("F8_"):
        values = float8_table(dtype)[np.frombuffer(data, "u1")]
    else:
        values = np.frombuffer(data, _VALUE_TYPES[dtype])
    with np.errstate(all="ignore"):
        values = values.astype("f8")
        # E8M0 has no zero: bytes that were not written
        is_zero = not (any(data) if dtype == "F8_E8M0" else values.any())
        largest = float(np.abs(values).max())
        norm = float(np.linalg.norm(values / max(1e-300, largest))) * largest
    found = stats.nan, stats.infinite, stats.is_zero
    expected = int(np.isnan(values).sum()), int(np.isinf(values).sum()), is_zero
    if found != expected:
        raise Differs(f"{dtype}: found {found}, numpy {expected}")
    if not any(expected[:2]) and 1e-150 < norm < 1e150 and abs(stats.norm() - norm) > 1e-3 * norm:
        raise Differs(f"{dtype}: the norm is {stats.norm()}, numpy {norm}")


_ODD = (
    '{ } [ ] : , 0 1 2 3 7 64 -1 1.5 1e999 1e-9 true false null "" "a" "\\ud800" {} [] [0] {"a":1}'
).split()
_ODD += [
    str(2**63),
    str(2**64),
    "9" * 40,
    '"' + "n" * 300 + '"',
    '"../x"',
    '"\\u001b[2J"',
    " ",
    "\n",
]


def _odd_words() -> Iterable[bytes]:
    return (x.encode() for x in _ODD)


def _fields() -> Iterator[bytes]:
    yield from (
        f'"{x}"'.encode()
        for x in "dtype shape data_offsets __metadata__ U8 F32 F4 F6_E2M3 BOOL C64".split()
    )
    yield from (
        b"[0,1]",
        b"[1]",
        b"[]",
        b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}',
        *_odd_words(),
    )


def _kinds() -> Iterator[bytes]:
    yield from (
        b"general.alignment",
        b"split.no",
        b"split.count",
        b"GGUF",
        b"\2\0\0\0",
        b"\3\0\0\0",
        b"\0\0\0\3",
    )
    yield from (
        i.to_bytes(size, order)
        for i in (0, 1, 8, 9, 32, 2**31, 2**32 - 1)
        for size in (4, 8)
        for order in ("little", "big")
    )
    yield from ((2**64 - i).to_bytes(8, "little") for i in (1, 8, 32, 1 << 63))


_FORMATS, _FOLDERS, _JSON = (
    "llamath.checkpoint.formats.",
    "llamath.checkpoint.folders.",
    ("llamath.utils.strict_json",),
)
TARGETS = {
    "safetensors": Target(
        (f"{_FORMATS}safetensors",),
        _safetensors_seeds,
        _fields,
        _safetensors,
        json=True,
        packages=("safetensors",),
    ),
    "gguf": Target((f"{_FORMATS}gguf", f"{_FORMATS}source"), _gguf_seeds, _kinds, _gguf),
    "pth": Target(
        tuple(
            _FORMATS + x
            for x in ("torch_checkpoint", "torch_zip", "pickle_reader", "torch_objects")
        ),
        _pth_seeds,
        _pth_words,
        _pth,
    ),
    "index": Target(
        (*_JSON, f"{_FORMATS}checkpoint_files", f"{_FORMATS}folder"),
        _index_seeds,
        _odd_words,
        _index,
        json=True,
    ),
    "files": Target(
        ("llamath.utils.file_diagnosis", f"{_FORMATS}checkpoint_files"),
        _file_seeds,
        _file_words,
        _file,
    ),
    "names": Target(
        ("llamath.checkpoint.naming.training_names", f"{_FORMATS}choose_files"),
        _names_seeds,
        _names_words,
        _names,
    ),
    "sums": Target(
        ("llamath.checkpoint.file_sums",),
        _sums_seeds,
        lambda: (b"SHA256 (", b") = ", b"  ", b" *", b"./"),
        _sums,
    ),
    "values": Target(
        ("llamath.checkpoint.tensor_stats",),
        _values_seeds,
        _float_words,
        _values,
        packages=("numpy",),
    ),
    "regex": Target(
        ("llamath.utils.linear_regex",),
        _regex_seeds,
        lambda: (b"(?:", b"{1,2}", b"\\b", b"[^", b"]*?", b"|"),
        _regex,
    ),
    "adapter": Target(
        (
            "llamath.checkpoint.adapters",
            "llamath.analysis.check.kinds.adapter_check",
            "llamath.utils.linear_regex",
        ),
        _adapter_seeds,
        _adapter_words,
        _adapter,
        json=True,
    ),
    "dcp": Target(
        (f"{_FOLDERS}dcp", f"{_FORMATS}pickle_reader", "llamath.analysis.check.kinds.dcp_check"),
        _dcp_seeds,
        _dcp_words,
        _dcp,
    ),
    "deepspeed": Target(
        (f"{_FOLDERS}deepspeed", f"{_FORMATS}torch_checkpoint"), _zero_seeds, _zero_words, _zero
    ),
    "npz": Target(
        (f"{_FORMATS}npz", f"{_FORMATS}torch_zip"),
        _npz_seeds,
        _npz_words,
        _npz,
        packages=("numpy",),
    ),
    "pipeline": Target(
        (f"{_FOLDERS}diffusers", *_JSON), _pipeline_seeds, _odd_words, _pipeline, json=True
    ),
    "config": Target(
        (
            *_JSON,
            "llamath.core.config",
            "llamath.loading",
            "llamath.checkpoint.meta_args",
            "llamath.families",
        ),
        _config_seeds,
        _config_words,
        _config,
        json=True,
    ),
}
