"""`WeightFormat`: how weights are stored: in a plain dtype, packed by one scheme, as a recipe
chooses, or as a GGUF file type.

`format_names.parse_weight_format` parses the names that users write; `declared_weight_format`
reads what a configuration declares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...utils.errors import Argument, UnknownQuantization, safe
from ...utils.record_type import Record
from ..formats.dtypes import DType, find_dtype
from . import QUANTIZATION_KEYS

if TYPE_CHECKING:
    from .matrix_formats import MatrixFormat
    from .recipes import Recipe

DTYPE_KEYS = ("dtype", "torch_dtype")
_MatrixFunction = Callable[[int, int], int]
"""A number for a matrix of (outputs, inputs)."""


class WeightFormat(Record):
    """A storage format of weights: the matrices of linear layers are packed, everything else has
    a plain dtype.
    """

    name: str  # as users write it
    unpacked_dtype: str = "BF16"  # of everything that is not packed
    packing: str = ""  # the scheme of the packed matrices, or the short name of the plain dtype
    # how packed matrices are stored; None: nothing is packed, or as the recipe chooses
    matrix: MatrixFormat | None = None
    recipe: Recipe | None = None  # the format of each matrix, if a quantization config declares it
    experts_only: bool = False  # in mixtures of experts, only the experts are packed
    gguf_file_type: str = ""  # llama.cpp chooses a type for every tensor
    is_pure: bool = False  # every quantized matrix has the type of the file instead
    own_rate: str = ""  # the GPU rate of a plain dtype

    @property
    def is_packed(self) -> bool:
        """Whether matrices are packed."""
        return self.matrix is not None or self.recipe is not None

    @property
    def matrix_bytes(self) -> _MatrixFunction | None:
        """The bytes of a matrix; None if nothing is packed, or if the recipe chooses."""
        return None if self.matrix is None else self.matrix.bytes

    @property
    def formula(self) -> str:
        """The formula of `matrix_bytes`, for a matrix [out, in]."""
        return "" if self.matrix is None else self.matrix.formula

    @property
    def compute_rate(self) -> str:
        """The GPU rate of products of packed matrices; empty: that of `compute_dtype`."""
        return self.own_rate if self.matrix is None else self.matrix.compute_rate

    @property
    def compute_dtype(self) -> str:
        """The plain dtype of activations."""
        if self.gguf_file_type or self.unpacked_dtype == "F16":
            return "F16"
        return "F32" if self.unpacked_dtype == "F32" else "BF16"


PLAIN_FORMATS = {
    "fp32": WeightFormat(name="fp32", unpacked_dtype="F32", packing="fp32", own_rate="fp32"),
    "fp16": WeightFormat(name="fp16", unpacked_dtype="F16", packing="fp16"),
    "bf16": WeightFormat(name="bf16", unpacked_dtype="BF16", packing="bf16"),
}


def declared_weight_format(config: Mapping[str, Any]) -> WeightFormat:
    """Return the format that a model's configuration declares for its weights: a plain dtype, or
    a quantization recipe.
    """
    dtype = stated_dtype(config)
    if dtype is not None and dtype.short_name not in PLAIN_FORMATS:
        raise _wrong_dtype(config)
    plain = PLAIN_FORMATS["bf16" if dtype is None else dtype.short_name]
    for key in QUANTIZATION_KEYS:
        if isinstance(section := config.get(key), Mapping):
            from .recipes import read_recipe

            if "expert_dtype" in config:  # DeepSeek-V4 has it outside of the section
                section = {"expert_dtype": config["expert_dtype"], **section}
            recipe = read_recipe(section, plain.unpacked_dtype, is_mlx=key == "quantization")
            unpacked = plain.unpacked_dtype if dtype is not None else recipe.default_dtype
            return WeightFormat(
                name=recipe.name, unpacked_dtype=unpacked or plain.unpacked_dtype, recipe=recipe
            )
    return plain


def stated_dtype(config: Mapping[str, Any]) -> DType | None:
    """Return the dtype that a model's configuration states, `dtype` before the older
    `torch_dtype`, as transformers reads them; None if it states none.
    """
    text = _dtype_text(config)
    dtype = find_dtype(text)
    if text and dtype is None:
        raise _wrong_dtype(config)
    return dtype


def _dtype_text(config: Mapping[str, Any]) -> str:
    found = (x for key in DTYPE_KEYS if (x := config.get(key)) not in (None, ""))
    return str(next(found, ""))


def _wrong_dtype(config: Mapping[str, Any]) -> UnknownQuantization:
    found = safe(_dtype_text(config), 40)
    return UnknownQuantization(
        f"the config's dtype is {found}: expected float32, float16 or bfloat16",
        hint=f"correct it, or give the format of the weights: {Argument('dtype', 'bf16')}",
    )


def states_weight_format(config: Mapping[str, Any]) -> bool:
    """Return whether a configuration says in which format its weights were released."""
    return any(config.get(key) for key in (*DTYPE_KEYS, *QUANTIZATION_KEYS))
