"""FastVLM: FastViTHD, convolutions and attention on a grid that halves five times, and LLaVA's MLP
on its features (arXiv:2412.13303).

The sizes of the tower are those of its name in timm, `fastvit_mci3`; files have its branches joined
to single convolutions.
"""

from __future__ import annotations

from ...core.blocks import Decoder
from ...core.config import Config
from ...core.constructors import layer_norm, linear, weight
from ...core.multimodal import CountedBlock
from ...core.tree import repeat
from ...utils.errors import UnknownModel, safe
from ..counted_towers import Modules, conv, counted, counted_part
from ..multimodal_registry import LANGUAGE_MODEL, Assembly, Wrapper, assemble, multimodal
from ..tower_parts import part_config

_TOWER, _ARGUMENTS = "fastvit_mci3", {"inference_mode": True}
_WIDTHS, _DEPTHS, _ATTENDING = (96, 192, 384, 768, 1536), (2, 12, 24, 4, 2), 3
"""Of the stages, from number 3 on with attention."""
_FEATURES = 3072


@multimodal(
    Wrapper(
        types="fast_vlm", text_type="qwen2", prefix=LANGUAGE_MODEL, tied=False, tied_by="either"
    )
)
def fast_vlm(c: Config, text: Decoder) -> Assembly:
    v = part_config(c, "vision_config", {})
    name, args = v.get("architecture", _TOWER), v.get("model_args", _ARGUMENTS)
    if name != _TOWER or dict(args) != _ARGUMENTS:
        raise UnknownModel(
            f"{c.source}: vision_config.architecture is {safe(repr(name), 60)}",
            hint=f"known: {_TOWER} in inference_mode",
        )
    v.ignore(
        "do_pooling",
        "global_pool",
        "hidden_size",
        "initializer_range",
        "label_names",
        "model_type",
        "num_classes",
        "pretrained_cfg",
    )
    c.ignore(
        "image_seq_length",
        "vision_feature_select_strategy",
        "vision_feature_layer",
        "projector_hidden_act",
    )
    out, bias = text.width, c.get("multimodal_projector_bias", True)
    projector: Modules = {
        "linear_1": linear(out, _FEATURES, bias),
        "linear_2": linear(out, out, bias),
    }
    return assemble(
        text,
        vision=("model.vision_tower.timm_model.", counted_part(_fastvit())),
        projector=("model.multi_modal_projector.", counted_part(projector)),
    )


def _fastvit() -> Modules:
    first, last = _WIDTHS[0], _WIDTHS[-1]
    return {
        "stem.0.reparam_conv": conv(first, 3, 3, 3),
        "stem.1.reparam_conv": conv(first, 1, 3, 3),
        "stem.2.reparam_conv": conv(first, first, 1, 1),
        **{name: module for i in range(len(_WIDTHS)) for name, module in _stage(i).items()},
        "final_conv.se.fc1": conv(_FEATURES // 16, _FEATURES, 1, 1),
        "final_conv.se.fc2": conv(_FEATURES, _FEATURES // 16, 1, 1),
        "final_conv.reparam_conv": conv(2 * last, 1, 3, 3),
    }


def _stage(i: int) -> Modules:
    d, stage = _WIDTHS[i], f"stages.{i}"
    before: Modules = {
        f"{stage}.downsample.proj.0.reparam_conv": conv(d, 1, 7, 7),
        f"{stage}.downsample.proj.1.reparam_conv": conv(d, d, 1, 1),
    }
    places: Modules = {f"{stage}.pos_emb.reparam_conv": conv(d, 1, 7, 7)}
    return {
        **(before if i else {}),
        **(places if i >= _ATTENDING else {}),
        f"{stage}.blocks": repeat(_block(d, i >= _ATTENDING), _DEPTHS[i]),
    }


def _block(d: int, attends: bool) -> CountedBlock:
    factors, number = weight(d, 1, 1, role="scale"), weight(d, role="scale").replace(buffer=True)
    attention: Modules = {
        "norm": layer_norm(d, 1e-5),
        "token_mixer.qkv": linear(3 * d, d),
        "token_mixer.proj": linear(d, d, bias=True),
        "layer_scale_1.gamma": factors,
    }
    mixing: Modules = {"token_mixer.reparam_conv": conv(d, 1, 3, 3)}
    return counted(
        {
            **(attention if attends else mixing),
            "mlp.conv.conv": conv(d, 1, 7, 7, bias=False),
            "mlp.conv.bn.weight": weight(d, role="scale"),
            "mlp.conv.bn.bias": weight(d, role="bias"),
            **dict.fromkeys(("mlp.conv.bn.running_mean", "mlp.conv.bn.running_var"), number),
            "mlp.conv.bn.num_batches_tracked": weight(role="scale").replace(buffer=True),
            "mlp.fc1": conv(4 * d, d, 1, 1),
            "mlp.fc2": conv(d, 4 * d, 1, 1),
            "layer_scale_2.gamma" if attends else "layer_scale.gamma": factors,
        }
    )
