"""Headers of packed checkpoints in the layouts of their quantizers, derived from a model's plain headers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from math import ceil, prod

import llamath
from llamath.checkpoint.formats.dtypes import DTYPES
from llamath.checkpoint.formats.manifest import CheckpointFile, Manifest, Tensor

Header = tuple[str, str, tuple[int, ...]]
"""Name, dtype and shape."""
Writer = Callable[[str, int, int], Iterable[Header]]
"""A weight's stem (without `.weight`), outputs and inputs → the tensors stored for it."""


def tensors(headers: Iterable[Header]) -> list[Tensor]:
    """Concatenate packed tensors with their spans."""
    header_list = list(headers)
    ends = list(accumulate(DTYPES[dtype].size(prod(shape)) for _, dtype, shape in header_list))
    return [
        Tensor(*x, 0, end - DTYPES[x[1]].size(prod(x[2])), end)
        for x, end in zip(header_list, ends, strict=True)
    ]


def manifest(headers: Iterable[Header]) -> Manifest:
    """Return a manifest of one file with these tensors."""
    stored = tuple(tensors(headers))
    return Manifest(
        format="safetensors",
        files=(CheckpointFile("model.safetensors", stored[-1].end if stored else 0),),
        tensors=stored,
    )


def plain(model: str, dtype: str = "BF16") -> list[Header]:
    """Return a preset's tensors with their names on the Hub."""
    loaded = llamath.load(model)
    return [
        (x.name, dtype, tuple(map(int, x.shape))) for x in loaded.scheme("hf").tensors(loaded.tree)
    ]


def packed(
    headers: Iterable[Header], writer: Writer, include_embeddings: bool = False
) -> Iterator[Header]:
    """The matrices of the layers (or with `include_embeddings`, the embedding and the head too) in this layout, the others unchanged."""
    for name, dtype, shape in headers:
        if len(shape) == 2 and (include_embeddings or "_proj" in name):
            yield from writer(name.removesuffix(".weight"), *shape)
        else:
            yield name, dtype, shape


def awq(x: str, o: int, i: int, group: int = 128) -> Iterator[Header]:
    yield f"{x}.qweight", "I32", (i, o // 8)
    yield f"{x}.qzeros", "I32", (i // group, o // 8)
    yield f"{x}.scales", "F16", (i // group, o)


def awq_gemv(x: str, o: int, i: int, group: int = 128) -> Iterator[Header]:
    width = ceil(i / group / 8)
    yield f"{x}.qweight", "I32", (o, i // 8)
    yield f"{x}.qzeros", "I32", (o, width)
    yield f"{x}.scales", "F16", (o, 8 * width)


def awq_fast(x: str, o: int, i: int, group: int = 128) -> Iterator[Header]:
    width = 8 * ceil(i / group / 8)
    yield f"{x}.qweight", "I16", (o // 4, i)
    yield f"{x}.scales", "F16", (width, o)
    yield f"{x}.scaled_zeros", "F16", (width, o)


def gptq(bits: int, group: int = 128, index: bool = True, zeros: bool = True) -> Writer:
    def write(x: str, o: int, i: int) -> Iterator[Header]:
        yield f"{x}.qweight", "I32", (i // 32 * bits, o)
        if zeros:
            yield f"{x}.qzeros", "I32", (ceil(i / group), o // 32 * bits)
        yield f"{x}.scales", "F16", (ceil(i / group), o)
        if index:
            yield f"{x}.g_idx", "I32", (i,)

    return write


def marlin(x: str, o: int, i: int, group: int = 128) -> Iterator[Header]:
    yield f"{x}.B", "I32", (i // 16, 2 * o)
    yield f"{x}.s", "F16", (i // group, o)
    yield f"{x}.workspace", "I32", (o // 128 * 16,)


def bnb4(quant: str = "nf4", nested: bool = True, storage: str = "U8") -> Writer:
    def write(x: str, o: int, i: int) -> Iterator[Header]:
        each, blocks = 2 * DTYPES[storage].bytes, o * i // 64
        yield f"{x}.weight", storage, (o * i // each, 1)
        yield f"{x}.weight.absmax", "U8" if nested else "F32", (blocks,)
        yield f"{x}.weight.quant_map", "F32", (16,)
        if nested:
            yield f"{x}.weight.nested_absmax", "F32", (ceil(blocks / 256),)
            yield f"{x}.weight.nested_quant_map", "F32", (256,)
        yield f"{x}.weight.quant_state.bitsandbytes__{quant}", "U8", (81,)

    return write


def bnb8(x: str, o: int, i: int) -> Iterator[Header]:
    yield f"{x}.weight", "I8", (o, i)
    yield f"{x}.SCB", "F32", (o,)
    yield f"{x}.weight_format", "U8", ()


def fp8_blocks(x: str, o: int, i: int) -> Iterator[Header]:
    yield f"{x}.weight", "F8_E4M3", (o, i)
    yield f"{x}.weight_scale_inv", "F32", (ceil(o / 128), ceil(i / 128))


def fp8_channels(x: str, o: int, i: int) -> Iterator[Header]:
    yield f"{x}.weight", "F8_E4M3", (o, i)
    yield f"{x}.weight_scale", "BF16", (o, 1)
    yield f"{x}.input_scale", "BF16", (1,)


def fp8_mistral(x: str, o: int, i: int) -> Iterator[Header]:
    yield f"{x}.weight", "F8_E4M3", (o, i)
    yield f"{x}.qscale_weight", "BF16", ()
    yield f"{x}.qscale_act", "BF16", ()


def int8(x: str, o: int, i: int) -> Iterator[Header]:
    yield f"{x}.weight", "I8", (o, i)
    yield f"{x}.weight_scale", "BF16", (o, 1)


def nvfp4(x: str, o: int, i: int) -> Iterator[Header]:
    yield f"{x}.weight", "U8", (o, i // 2)
    yield f"{x}.weight_scale", "F8_E4M3", (o, i // 16)
    yield f"{x}.weight_scale_2", "F32", ()
    yield f"{x}.input_scale", "F32", ()


def compressed_nvfp4(x: str, o: int, i: int) -> Iterator[Header]:
    yield f"{x}.weight_packed", "U8", (o, i // 2)
    yield f"{x}.weight_scale", "F8_E4M3", (o, i // 16)
    yield f"{x}.weight_global_scale", "F32", (1,)
    yield f"{x}.input_global_scale", "F32", (1,)


def compressed_mxfp4(x: str, o: int, i: int) -> Iterator[Header]:
    yield f"{x}.weight_packed", "U8", (o, i // 2)
    yield f"{x}.weight_scale", "U8", (o, i // 32)


def compressed(bits: int, group: int, zeros: bool = False, index: bool = False) -> Writer:
    def write(x: str, o: int, i: int) -> Iterator[Header]:
        groups = i // group if group > 0 else 1
        yield f"{x}.weight_packed", "I32", (o, ceil(i * bits / 32))
        yield f"{x}.weight_scale", "BF16", (o, groups)
        yield f"{x}.weight_shape", "I64", (2,)
        if zeros:
            yield f"{x}.weight_zero_point", "I32", (ceil(o * bits / 32), groups)
        if index:
            yield f"{x}.weight_g_idx", "I32", (i,)

    return write


def mlx(bits: int, group: int) -> Writer:
    def write(x: str, o: int, i: int) -> Iterator[Header]:
        yield f"{x}.weight", "U32", (o, i * bits // 32)
        yield f"{x}.scales", "BF16", (o, i // group)
        yield f"{x}.biases", "BF16", (o, i // group)

    return write


def mlx_mxfp4(x: str, o: int, i: int) -> Iterator[Header]:
    yield f"{x}.weight", "U32", (o, i // 8)
    yield f"{x}.scales", "U8", (o, i // 32)


def gpt_oss(model: str) -> Iterator[Header]:
    """The experts of gpt-oss as published, transposed relative to the class in transformers."""
    for name, dtype, shape in plain(model):
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            experts, inputs, outputs = shape
            yield f"{name}_blocks", "U8", (experts, outputs, inputs // 32, 16)
            yield f"{name}_scales", "U8", (experts, outputs, inputs // 32)
        else:
            yield name, dtype, shape
