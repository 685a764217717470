"""Meta's `ModelArgs` (the contents of `params.json`), and their exact conversion from and to
Hugging Face's keys.

The feed-forward width is `multiple_of · ⌈int(ffn_dim_multiplier · int(2 · 4 · dim / 3)) /
multiple_of⌉` (llama's `model.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.config import Config
from ..core.expr import Expr, ceil_div, floor_div
from ..utils.errors import ConfigError, nearest, safe
from ..utils.record_type import Record


class ModelArgs(Record):
    """The arguments of Meta's reference implementation, with its defaults."""

    dim: int = 4096
    n_layers: int = 32
    n_heads: int = 32
    n_kv_heads: int | None = None
    vocab_size: int = -1
    multiple_of: int = 256
    ffn_dim_multiplier: float | None = None
    norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    max_batch_size: int = 32
    max_seq_len: int = 2048
    use_scaled_rope: bool = False

    @property
    def ffn_width(self) -> int:
        """The width of the MLP that the reference computes."""
        return ffn_width(self.dim, self.multiple_of, self.ffn_dim_multiplier)


_PRINTED = r"\s*ModelArgs\(([^()]{0,2000})\)\s*"
_DIMENSIONS = ("dim", "n_layers", "n_heads")
_OPTIONAL = ("n_kv_heads", "ffn_dim_multiplier")
"""Arguments whose default is None."""

UNSUPPORTED_KEYS = (
    "moe",
    "moe_args",
    "ffn_exp",
    "vision_args",
    "vision_num_cross_attention_layers",
)
"""Keys of `params.json` files of other models, with weights that the Llama reference does not
have."""

LLAMA3_ROPE_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""The meaning of `use_scaled_rope`: constants in the reference's code."""


def ffn_width(dim: int, multiple_of: int, multiplier: float | None) -> int:
    """Return the width of the MLP by Meta's rule."""
    width = unscaled_ffn_width(dim)
    if multiplier is not None:
        width = int(multiplier * width)
    return round_up_to_multiple(width, multiple_of)


def unscaled_ffn_width(dim: int) -> int:
    """Return ⌊8 · dim / 3⌋, the width before `ffn_dim_multiplier`."""
    return floor_div(8 * dim, 3)


def round_up_to_multiple(width: int, multiple_of: int) -> int:
    """Return multiple_of · ⌈width / multiple_of⌉."""
    return multiple_of * ceil_div(width, multiple_of)


def params_rule() -> dict[str, Any]:
    """Return the conversion of a `params.json` to Hugging Face's keys as data: its keys with their
    defaults, the same keys of a config, those that have one value, and the width of the MLP.
    """
    names = {key: name for key, name in META_NAME_OF_KEY.items() if name in ModelArgs.fields}
    names |= {key: key for key in ("vocab_size", "rope_theta")}
    names |= {key: name for name, key in _EXTRA_KEYS.items()}
    config = args_to_config(ModelArgs(vocab_size=1))
    width = unscaled_ffn_width(Expr.variable("dim", 0))
    rounded = round_up_to_multiple(Expr.variable("width", 0), Expr.variable("multiple_of", 1))
    return {
        "defaults": json.dumps({key: getattr(ModelArgs, key) for key in ModelArgs.fields}),
        "names": names,
        "constant": json.dumps({key: x for key, x in config.items() if key not in names}),
        "scaling": json.dumps(LLAMA3_ROPE_SCALING),
        "width": Expr.const(width).to_expression_json(),
        "rounded": Expr.const(rounded).to_expression_json(),
    }


META_NAME_OF_KEY = {
    "hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "intermediate_size": "multiple_of and ffn_dim_multiplier", "rms_norm_eps": "norm_eps",
}  # fmt: skip
"""Hugging Face's key → Meta's name, for errors about a `params.json`."""


def is_params(data: Mapping[str, Any]) -> bool:
    """Whether these are the keys of a `params.json` instead of a `config.json`."""
    return "dim" in data and "n_layers" in data and "model_type" not in data


def short_args(data: Mapping[str, Any], width: int = 48) -> str:
    """Return the keys of a `params.json` in as many characters as the name of a model may have;
    an empty string for other keys.
    """
    if not is_params(data):
        return ""
    text = ",".join(f"{key}={data[key]}" for key in ModelArgs.fields if data.get(key) is not None)
    return text if len(text) <= width else f"{text[:width].rpartition(',')[0]},…"


def parse_args_text(text: str) -> dict[str, Any] | None:
    """Return the keys of ModelArgs written as
    `dim=4096,n_layers=32,n_heads=32,vocab_size=32000`, or as Python prints them:
    `ModelArgs(dim=4096, n_kv_heads=None, …)`; None for any other text.
    """
    keys: dict[str, Any] = {}
    if text.lstrip().startswith("ModelArgs("):
        call = re.fullmatch(_PRINTED, text)
        if call is None:
            hint = "paste it whole, with numbers: ModelArgs(dim=4096, n_layers=32, n_heads=32)"
            raise ConfigError(f"{safe(text, 40)} is no ModelArgs(…)", hint=hint)
        keys = {name: getattr(ModelArgs, name) for name in _DIMENSIONS}
        text = call[1].strip().removesuffix(",")
    first, equals, _ = text.partition("=")
    if not keys and (not equals or not first.strip().isidentifier()):
        return None
    given: set[str] = set()
    for part in text.split(",") if text else ():
        key, _, value = (x.strip() for x in part.partition("="))
        if key not in (*ModelArgs.fields, *_EXTRA_KEYS):
            near = nearest(key, ModelArgs.fields)
            hint = (
                f"did you mean {near[0]}?" if near else (f"known are {', '.join(ModelArgs.fields)}")
            )
            raise ConfigError(f"unknown key {safe(repr(key), 40)} in ModelArgs", hint=hint)
        if key in given:
            raise ConfigError(f"{key} is given twice in ModelArgs")
        given.add(key)
        if value != "None" or key not in _OPTIONAL:  # None: the default of the reference
            keys[key] = _parse_value(key, value)
    if missing := [key for key in _DIMENSIONS if key not in keys]:
        raise ConfigError(
            f"ModelArgs lack {' and '.join(missing)}",
            hint="like dim=4096,n_layers=32,n_heads=32,vocab_size=32000",
        )
    return keys


def _parse_value(key: str, text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else float(text)
    except ValueError:
        raise ConfigError(f"{key}={safe(text, 40)}: expected a number, true or false") from None


def parse_params(
    data: Mapping[str, Any], source: str, vocab_size: int | None = None
) -> tuple[ModelArgs, Config]:
    """Parse a `params.json`; `vocab_size` completes those of LLaMA 1 and 2, which lack it."""
    c = Config(data, source)
    if unsupported := next((key for key in UNSUPPORTED_KEYS if c.get(key, None)), None):
        raise c.error(
            unsupported,
            "needs experts or images, which Meta's Llama reference does not have",
            "use the Hugging Face config.json of the same model",
        )
    given = c.get("vocab_size", -1)
    vocab = vocab_size if vocab_size is not None and given == -1 else given
    if vocab == -1:
        state = "is −1" if "vocab_size" in data else "is absent"
        raise ConfigError(
            f"{source}: vocab_size {state}, and there is no tokenizer.model to take it from",
            hint="set vocab_size (LLaMA 1 and 2: 32000, Code Llama: 32016, Llama 3: 128256), or "
            "add tokenizer.model to the folder",
        )
    if type(vocab) is not int or vocab < 1:
        raise c.error("vocab_size", f"should be a positive integer, not {vocab!r}")
    heads = c.dim("H", "n_heads")
    args = ModelArgs(
        dim=int(c.dim("d", "dim")),
        n_layers=int(c.dim("L", "n_layers")),
        n_heads=int(heads),
        n_kv_heads=int(c.dim("K", "n_kv_heads")) if "n_kv_heads" in c else None,
        vocab_size=vocab,
        multiple_of=int(c.dim("m", "multiple_of", default=256)),
        ffn_dim_multiplier=c.get("ffn_dim_multiplier", 1.0) if "ffn_dim_multiplier" in c else None,
        norm_eps=c.get("norm_eps", 1e-5),
        rope_theta=c.get("rope_theta", 10000.0),
        max_batch_size=c.get("max_batch_size", 32),
        max_seq_len=c.get("max_seq_len", 2048),
        use_scaled_rope=c.get("use_scaled_rope", False),
    )
    for key in ("max_batch_size", "max_seq_len"):
        c.dim(key, key, default=1)
    if args.ffn_dim_multiplier is not None and not 0 < args.ffn_dim_multiplier < 1e6:
        raise c.error(
            "ffn_dim_multiplier", f"should be a positive number, not {args.ffn_dim_multiplier!r}"
        )
    return args, c


_EXTRA_KEYS = {"hidden_dim": "intermediate_size", "head_dim": "head_dim"}
"""Keys that only Mistral's params.json has -> config.json's keys."""


def extra_config_keys(c: Config) -> dict[str, Any]:
    """Return the additional keys of Mistral's files, with Hugging Face's names: the width of the
    MLP and the head size.
    """
    return {key: int(c.dim("n", name)) for name, key in _EXTRA_KEYS.items() if name in c}


def args_to_config(args: ModelArgs) -> dict[str, Any]:
    """Return the same model with Hugging Face's keys."""
    keys: dict[str, Any] = {
        "model_type": "llama",
        "vocab_size": args.vocab_size,
        "hidden_size": args.dim,
        "intermediate_size": args.ffn_width,
        "num_hidden_layers": args.n_layers,
        "num_attention_heads": args.n_heads,
        "num_key_value_heads": args.n_kv_heads or args.n_heads,
        "hidden_act": "silu",
        "rms_norm_eps": args.norm_eps,
        "rope_theta": args.rope_theta,
        "tie_word_embeddings": False,
    }
    return keys | ({"rope_scaling": LLAMA3_ROPE_SCALING} if args.use_scaled_rope else {})


def config_to_args(c: Config) -> ModelArgs:
    """Return the arguments of this Llama; an error names a feature that the reference does not
    have.
    """
    d, H = c.dim("d", "hidden_size"), c.dim("H", "num_attention_heads")
    if (h := c.get("head_dim", d // H)) * H != d:
        raise c.error(
            "head_dim",
            f"is {h}: heads of the reference always have size dim / n_heads, {d // H} here",
        )
    for key in ("attention_bias", "mlp_bias"):
        if c.get(key, False):
            raise c.error(key, "is true: the reference has no biases")
    if window := c.get("sliding_window", None):
        raise c.error("sliding_window", f"is {window!r}: the reference has no sliding window")
    if (curve := c.get("hidden_act", "silu")) not in ("silu", "swish"):
        raise c.error("hidden_act", f"is {curve}: the reference has only silu")
    scaling = c.rope()
    kind = scaling.rope_type()
    if kind not in ("default", "llama3"):
        raise scaling.error("rope_type", f"is {kind!r}: the reference has only Llama 3.1's scaling")
    F = c.dim("F", "intermediate_size")
    width = next(ffn_width_args(int(d), int(F)), None)
    if width is None:
        raise c.error(
            "intermediate_size",
            f"is {F}: no multiple_of and ffn_dim_multiplier of "
            f"one or two decimals give it from dim {d}",
        )
    return ModelArgs(
        dim=int(d),
        n_layers=int(c.dim("L", "num_hidden_layers")),
        n_heads=int(H),
        n_kv_heads=int(c.dim("K", "num_key_value_heads", default=H)),
        vocab_size=int(c.dim("V", "vocab_size")),
        multiple_of=width[0],
        ffn_dim_multiplier=width[1],
        norm_eps=c.get("rms_norm_eps", 1e-6),
        rope_theta=scaling.get("rope_theta", c.get("rope_theta", 10000.0)),
        use_scaled_rope=kind == "llama3",
    )


def ffn_width_args(dim: int, F: int) -> Iterator[tuple[int, float | None]]:
    """Yield every (multiple_of, ffn_dim_multiplier) that gives this width, the most likely
    first.
    """
    sizes = [m for m in (256, 1024, 4096, 512, 2048, 128, 64, 32, 16, 8, 4, 2, 1) if F % m == 0]
    yield from ((m, None) for m in sizes[:1] if ffn_width(dim, m, None) == F)
    rough = F / (8 * dim / 3)
    for digits in (1, 2, 3):
        near = sorted(
            {round(rough + step / 10**digits, digits) for step in range(-5, 6)},
            key=lambda x: abs(x - rough),
        )
        for m in [
            m for m in (1024, 4096, 256, 512, 2048, 128, 64, 32, 16, 8, 4, 2, 1) if F % m == 0
        ]:
            yield from ((m, x) for x in near if x > 0 and ffn_width(dim, m, x) == F)
    yield from ((m, None) for m in sizes[1:] if ffn_width(dim, m, None) == F)
    yield from ((F, x) for x in (round(rough, 6),) if x > 0 and ffn_width(dim, F, x) == F)
