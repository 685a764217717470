"""`shown_config`: a configuration without the values of unknown keys, for callers who may see a
model and nothing else of a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checkpoint.meta_args import META_NAME_OF_KEY, ModelArgs, is_params
from ..checkpoint.quantization import QUANTIZATION_KEYS
from ..config_keys import NO_EFFECT
from ..config_keys.key_meanings import TOWER_KEYS, describe_key
from ..utils.errors import Call, Name, UnknownModel
from ..utils.file_diagnosis import diagnose_keys
from .counted_models import COUNTED
from .multimodal_registry import INNER_KEY, TEXT_KEYS, WRAPPERS
from .refused import REFUSED
from .registry import FAMILIES, import_module_of

NOT_SHOWN = "(not shown)"
"""Stands for the value of an unknown key."""
_SECTIONS = frozenset((*TEXT_KEYS, INNER_KEY))
_NAMES = (
    NO_EFFECT,
    TOWER_KEYS,
    ModelArgs.fields,
    META_NAME_OF_KEY,
    _SECTIONS,
    ("additional_vocab_size",),
)
_OBJECTS = ("block_configs", "projector_patch_to_query_dict.")
"""Beginnings of keys with a section for each layer, or for each number of patches."""
_MAX_DEPTH, _MAX_DEPTH_OF_RECIPES = 5, 10
_TEXTS_OF_RECIPES = frozenset(
    """_type act_data_type activation_scheme actorder backend block_name_to_quantize block_structure
    bnb_4bit_compute_dtype bnb_4bit_quant_storage bnb_4bit_quant_type checkpoint_format data_type
    dtype dynamic exclude exclude_layers exclude_modules expert_dtype fmt format granularity ignore
    ignored_layers int4_packing_format kv_cache_group kv_cache_quant_algo linear_class
    llm_int8_skip_modules location mode modules_in_block_to_quantize modules_to_convert
    modules_to_not_convert mx_element_dtype name observer observer_cls pack_dtype pack_method
    packing_format qscheme quant_algo quant_method quant_mode quant_type quantization_mode
    quantization_status round_method scale_calculation_mode scale_dtype scale_fmt scale_format
    scale_type skip_modules strategy targets to_quant_block_names type version weight_format
    zero_point_type""".split()
)
"""Keys of the sections that quantizers write whose values are texts: formats, methods, names of
modules."""


def shown_config(keys: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    """Return a model's configuration with the values of unknown keys replaced; raise if a file with
    these keys is none.

    Which keys a file has decides that before any change to them is applied.
    """
    if not is_params(keys) and not _is_model_type(keys.get("model_type")):
        what = diagnose_keys(keys) or "no configuration of a model"
        hint = (
            "a configuration has a model_type that llamath knows; "
            f"{Call('ls', Name('path'))} lists the tensors of any checkpoint"
        )
        raise UnknownModel(f"{source} is {what}, by its model_type and its keys", hint=hint)
    return {key: _shown(key, value, 1) for key, value in keys.items()}


def _is_model_type(text: object) -> bool:
    if not isinstance(text, str):
        return False
    import_module_of(text, FAMILIES, WRAPPERS, COUNTED, REFUSED)
    return any(text in x for x in (FAMILIES, WRAPPERS, COUNTED, REFUSED))


def _shown(key: str, value: Any, depth: int) -> Any:
    """Return the value of a key, dotted if nested; of an unknown key, only whether it is an
    object or a list.
    """
    if key.rpartition(".")[2] in QUANTIZATION_KEYS:
        return _shown_recipe("", value, depth)
    if not _is_known(key) or depth > _MAX_DEPTH:
        return {} if isinstance(value, Mapping) else [] if isinstance(value, list) else NOT_SHOWN
    if isinstance(value, Mapping):
        return {name: _shown(f"{key}.{name}", x, depth + 1) for name, x in value.items()}
    if isinstance(value, list):
        return [_shown(key, x, depth + 1) if isinstance(x, (Mapping, list)) else x for x in value]
    return value


def _shown_recipe(key: str, value: Any, depth: int) -> Any:
    """Return a value in a section on quantization, whose keys may be names of modules: texts
    only of keys that have a text there.
    """
    if isinstance(value, (Mapping, list)):
        if depth > _MAX_DEPTH_OF_RECIPES:
            return {} if isinstance(value, Mapping) else []
        if isinstance(value, list):
            return [_shown_recipe(key, x, depth + 1) for x in value]
        return {name: _shown_recipe(name, x, depth + 1) for name, x in value.items()}
    return NOT_SHOWN if isinstance(value, str) and key not in _TEXTS_OF_RECIPES else value


def _is_known(key: str) -> bool:
    """Whether a key is one of a model's configuration, in the section of its text model, too."""
    outer, _, inner = key.partition(".")
    key = inner if inner and outer in _SECTIONS else key
    last = key.rpartition(".")[2]
    if any(x in names for x in (key, last) for names in _NAMES) or key.startswith(_OBJECTS):
        return True
    return last.endswith(("_token_id", "_token_index")) or describe_key(key) is not None
