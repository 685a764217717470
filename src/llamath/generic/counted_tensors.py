"""`counted_tensors`: the tensors of a model that is counted but not computed, from its
configuration.
"""

from __future__ import annotations

from ..core.config import Config
from ..core.tree import fold, walk
from ..families.counted_models import CountedModel
from ..utils.errors import ConfigError
from .module_tree import StateTensor
from .transformers_process import dtype_name

_MAX_TENSORS = 1 << 20


def counted_tensors(kind: CountedModel, config: Config) -> list[StateTensor]:
    """Return the tensors of a configuration, with the names in files of its kind; all have the
    dtype that it states.
    """
    tree, renamed = kind.build(config)
    if (n := sum(int(x.copies) for x in fold(tree))) > _MAX_TENSORS:
        raise ConfigError(
            f"{config.source} describes {n:,} tensors, and {_MAX_TENSORS:,} at "
            "most are counted one by one"
        )
    dtype = dtype_name(str(config.get("dtype|torch_dtype", None) or "float32"))

    def rename(name: str) -> str:
        for old, new in renamed.items():
            name = name.replace(old, new)
        return name

    return [
        StateTensor(
            rename(x.path), dtype, tuple(map(int, x.shape)), x.weight.buffer, rename(x.tied_path)
        )
        for x in walk(tree)
    ]
