"""`counted_tensors`: the tensors of a model that is counted but not computed, from its configuration."""

from __future__ import annotations

from ..core.config import Config
from ..core.tree import walk
from ..families.counted_models import CountedModel
from .module_tree import StateTensor
from .transformers_process import dtype_name


def counted_tensors(kind: CountedModel, config: Config) -> list[StateTensor]:
    """Return the tensors of a configuration, with the names in files of its kind; all have the dtype that it states."""
    tree, renamed = kind.build(config)
    dtype = dtype_name(str(config.get("dtype|torch_dtype", None) or "float32"))

    def rename(name: str) -> str:
        for old, new in renamed.items():
            name = name.replace(old, new)
        return name

    return [StateTensor(rename(x.path), dtype, tuple(map(int, x.shape)), x.weight.buffer, rename(x.weight.tied)) for x in walk(tree)]
