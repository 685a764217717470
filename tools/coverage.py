"""Compare the parameter counts of every model type of the installed transformers with llamath's,
and write docs/concepts/coverage.md.

Each causal and image-text type is built on the meta device at its default configuration and at one
random small one, and the configuration that it saves is counted. `--check` fails if the page is out
of date; `--types bert,t5` prints some types only.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "concepts" / "coverage.md"
DOWNLOADS = ROOT / "tools" / "downloads.json"
STATES = ("exact", "text only", "refused", "wrong", "not built")
_BATCH, _SECONDS_PER_TYPE, _ATTEMPTS = 24, 120, 12

WIDTHS = "hidden_size d_model n_embd embed_dim hidden_dim dim model_dim"
HEADS = (
    "num_attention_heads linear_num_heads n_head n_heads num_heads attention_heads "
    "encoder_attention_heads decoder_attention_heads"
)
KV_HEADS = "num_key_value_heads n_kv_heads num_kv_heads multi_query_group_num"
HEAD_DIMS = "head_dim attention_head_dim kv_channels"
MLP_WIDTHS = (
    "ffn_dim n_inner d_ff mlp_dim ffn_hidden_size encoder_ffn_dim decoder_ffn_dim inner_dim"
)
DEPTHS = "num_hidden_layers n_layer n_layers num_layers depth encoder_layers decoder_layers"
EXPERTS = "num_experts num_local_experts n_routed_experts moe_num_experts"
EXPERTS_PER_TOKEN = "num_experts_per_tok num_experts_per_token moe_top_k moe_k top_k moe_topk"
CONTEXTS = "max_position_embeddings n_positions n_ctx max_sequence_length"
SWITCHES = (
    "tie_word_embeddings attention_bias mlp_bias use_bias qkv_bias use_qk_norm "
    "use_qkv_bias bias attn_bias o_bias"
)
SMALL = {
    "q_lora_rank": 12, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 6,
    "v_head_dim": 10, "index_head_dim": 8,
    "qk_head_dim": 10, "n_group": 1, "topk_group": 1, "num_expert_group": 1, "index_n_heads": 2,
    "first_k_dense_replace": 1,
}  # fmt: skip
"""Keys with fixed small values, where a configuration has them."""
COMPLETED: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {
        "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    },
    "deepseek_v2": {"num_experts_per_tok": 6},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "lfm2_moe": {"layer_types": ("conv", "conv", "full_attention")},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
}
"""Values that the default configurations of these types lack although their classes need them;
tuples are repeated over the layers."""


class Result(NamedTuple):
    """What llamath says about one configuration of a model type, compared with transformers."""

    state: str
    expected: int = 0
    found: int = 0
    text: int = 0  # parameters of the text model, as transformers builds it
    reason: str = ""
    names: str = ""  # how tensor names differ, though the count is equal


class Row(NamedTuple):
    """A model type at its default configuration and at a random small one."""

    model_type: str
    auto: str
    default: Result
    small: Result

    @property
    def state(self) -> str:
        """The worse of both results; a configuration that transformers cannot build says
        nothing."""
        return max(
            (self.default.state, self.small.state),
            key=lambda x: -1 if x == "not built" else STATES.index(x),
        )


def model_types() -> list[tuple[str, str]]:
    """Return every causal and image-text model type of the installed transformers, with the name
    of its auto class."""
    from transformers.models.auto import modeling_auto

    causal = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    images = modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return [
        *((x, "CausalLM") for x in sorted(causal)),
        *((x, "ImageTextToText") for x in sorted(images)),
    ]


def compare(model_type: str, auto: str, seed: int | None) -> Result:
    """Compare the count of one configuration of a type: the default one, or a random small one
    of this seed."""
    import torch
    import transformers
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    transformers.utils.logging.set_verbosity_error()
    mapping = getattr(modeling_auto, f"AutoModelFor{auto}")._model_mapping
    problem = ""
    for attempt in range(1 if seed is None else _ATTEMPTS):
        try:
            config = CONFIG_MAPPING[model_type]()
            if seed is not None:
                config = CONFIG_MAPPING[model_type].from_dict(
                    shrink(complete(model_type, config.to_dict()), random.Random(seed + attempt))
                )
            if model_type in COMPLETED:
                config = CONFIG_MAPPING[model_type].from_dict(
                    complete(model_type, config.to_dict())
                )
            model_class = mapping[type(config)]
            model_class = model_class[0] if isinstance(model_class, tuple) else model_class
            built_from = config
            if (
                texts := config.sub_configs.get("text_config")
            ) is not None and model_class.config_class is texts:
                built_from = config.get_text_config()
            with torch.device("meta"):
                model = model_class._from_config(built_from, attn_implementation="eager")
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            continue
        model.config.architectures = [model_class.__name__]
        return judge(json.loads(model.config.to_json_string()), model)
    return Result("not built", reason=" ".join(problem.split())[:160])


def complete(model_type: str, config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with the values that its class needs and its default lacks."""
    added = {key: x for key, x in COMPLETED.get(model_type, {}).items() if not config.get(key)}
    n = config.get("num_hidden_layers", 0)
    return config | {
        key: [x[i % len(x)] for i in range(n)] if isinstance(x, tuple) else x
        for key, x in added.items()
    }


def judge(saved: dict[str, Any], model: Any) -> Result:
    """Compare llamath's count of a saved configuration with the module that transformers builds
    of it."""
    import llamath
    from llamath.generic.transformers_script import describe_module

    built = describe_module(model, [])
    expected, text = built["parameters"], text_parameters(model)
    try:
        loaded = llamath.load(saved)
    except llamath.LlamathError as error:
        return Result("refused", expected, 0, text, str(error))
    p = loaded.parameters
    found = p.total - p.buffers
    trained = sum(x.numel() for x in model.parameters() if x.requires_grad)
    stored = {
        name: tuple(shape)
        for name, _, shape, kind, tied in built["tensors"]
        if not tied and kind == "parameter"
    }
    differing = differing_names(loaded, stored)
    if found in (expected, trained):
        return Result("exact", expected, found, text, names=differing)
    if found + unpublished(model) == expected:
        return Result("exact", expected, found, text, names=PUBLISHED[saved["model_type"]])
    state = "text only" if found == text else "wrong"
    return Result(state, expected, found, text, names=differing)


PUBLISHED = {
    "longcat_flash": "counted as published: the class also allocates matrices for its "
    "identity experts"
}
"""Types whose class has parameters that no published file has."""


def unpublished(model: Any) -> int:
    """Return the parameters of a class that its published files lack."""
    if model.config.model_type != "longcat_flash":
        return 0
    c = model.config
    return int(c.num_layers * c.zero_expert_num * 2 * c.expert_ffn_hidden_size * c.hidden_size)


def differing_names(model: Any, stored: Mapping[str, tuple[int, ...]]) -> str:
    """Say which tensor names and shapes differ from those that transformers saves; empty if none
    does."""
    scheme = model.family.hf
    ours = {
        x.name: tuple(map(int, x.shape))
        for x in scheme.tensors(model.tree)
        if not all(y.weight.buffer for y in x.parts)
    }
    missing, extra = sorted(set(stored) - set(ours)), sorted(set(ours) - set(stored))
    shapes = sorted(x for x in set(ours) & set(stored) if ours[x] != stored[x])
    said = [
        f"{what} {len(x)} ({x[0]})"
        for what, x in (("lacks", missing), ("adds", extra), ("differs in", shapes))
        if x
    ]
    return ", ".join(said)


def text_parameters(model: Any) -> int:
    """Return the parameters of the text model inside a module, with its head; 0 if there is
    none."""
    text = model.config.get_text_config()
    if text is model.config:
        return 0
    inside = [x for x in model.modules() if getattr(x, "config", None) is text]
    if not inside:
        return 0
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    parts = [inside[0], *([head] if head is not None else [])]
    return sum({id(x): x.numel() for part in parts for x in part.parameters()}.values())


def shrink(config: Mapping[str, Any], rng: random.Random, vocab: int = 0) -> dict[str, Any]:
    """Return a configuration with small random dimensions and switches, in nested configurations
    too."""
    heads, head_dim = rng.choice((2, 4, 6)), rng.choice((8, 12, 16))
    vocab = vocab or rng.randrange(300, 500, 2)
    values: dict[str, Any] = {
        **dict.fromkeys(WIDTHS.split(), heads * head_dim),
        **dict.fromkeys(HEADS.split(), heads),
        **dict.fromkeys(KV_HEADS.split(), rng.choice([x for x in (1, 2, heads) if heads % x == 0])),
        **dict.fromkeys(HEAD_DIMS.split(), head_dim),
        **dict.fromkeys(MLP_WIDTHS.split(), rng.randrange(24, 80, 8)),
        **dict.fromkeys(DEPTHS.split(), rng.choice((2, 3, 4))),
        **dict.fromkeys(EXPERTS.split(), rng.choice((4, 8))),
        **dict.fromkeys(EXPERTS_PER_TOKEN.split(), 2),
        **dict.fromkeys(CONTEXTS.split(), 64),
        **SMALL,
        "vocab_size": vocab,
    }
    depths = {config[x] for x in DEPTHS.split() if isinstance(config.get(x), int)}
    small: dict[str, Any] = {}
    for key, value in config.items():
        if key == "per_layer_config" and isinstance(value, Mapping):
            small[key] = {i: x for i, x in value.items() if int(i) < values["num_hidden_layers"]}
        elif isinstance(value, Mapping) and ("model_type" in value or key.endswith("_config")):
            small[key] = shrink(value, rng, vocab)
        elif value is None and key in ("head_dim", "num_key_value_heads") and rng.random() < 0.7:
            small[key] = values[key]
        elif key.endswith("_token_id") and isinstance(value, int):
            small[key] = value % vocab
        elif isinstance(value, list) and len(value) in depths and len(value) > 2:
            continue  # one entry a layer: the class derives it anew
        elif key in values and isinstance(value, int) and not isinstance(value, bool):
            small[key] = values[key]
        elif key.endswith("intermediate_size") and isinstance(value, int):
            small[key] = rng.randrange(24, 80, 8)
        elif key in SWITCHES.split() and isinstance(value, bool):
            small[key] = rng.random() < 0.5
        else:
            small[key] = value
    _shrink_mixers(small, values)
    text = small.get("text_config")
    if isinstance(text, dict) and "hidden_size" in small and "hidden_size" in text:
        small["hidden_size"] = text["hidden_size"]  # of the head (Ovis 2)
    sam, encoder = small.get("sam_config"), small.get("encoder_config")
    if isinstance(sam, dict) and isinstance(encoder, dict) and "downsample_channels" in sam:
        # which the second encoder reads (Unlimited OCR)
        sam["downsample_channels"] = [16, encoder["hidden_size"]]
    return small


def _shrink_mixers(small: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Make the heads of state-space layers, the kinds of attention by layer, and shared layers
    consistent with the small dimensions."""
    heads, width, n = values["num_heads"], values["hidden_size"], values["num_hidden_layers"]
    if {"mamba_n_heads", "mamba_d_head", "mamba_expand"} <= small.keys():
        inner = small["mamba_d_ssm"] if small.get("mamba_d_ssm") else small["mamba_expand"] * width
        small |= {"mamba_n_heads": heads, "mamba_d_head": inner // heads}
        if small.get("mamba_d_ssm"):
            small["mamba_d_ssm"] = heads * small["mamba_d_head"]
    elif {"num_heads", "head_dim", "expand"} <= small.keys():
        small |= {"head_dim": small["expand"] * width // heads, "n_groups": 2}
    if "attention_types" in small:
        small["attention_types"] = [
            [["global", "local"], 1],
            *([[["local"], n - 2]] if n > 2 else []),
        ]
        small.pop("attention_layers", None)
    if "num_kv_shared_layers" in small:
        small["num_kv_shared_layers"] = 0


def work() -> None:
    """Compare the types that standard input lists, and print a line of JSON for each."""

    def expire(*_: object) -> None:
        raise TimeoutError(f"more than {_SECONDS_PER_TYPE} seconds")

    signal.signal(signal.SIGALRM, expire)
    output, sys.stdout = sys.stdout, sys.stderr
    for model_type, auto in json.load(sys.stdin):
        results = []
        for seed in (None, zlib.crc32(model_type.encode())):
            signal.alarm(_SECONDS_PER_TYPE)
            try:
                results.append(compare(model_type, auto, seed))
            except Exception as error:
                results.append(Result("wrong", reason=f"{type(error).__name__}: {error}"))
            signal.alarm(0)
        print(json.dumps([model_type, auto, *results]), file=output, flush=True)


def measure(types: list[tuple[str, str]]) -> Iterator[Row]:
    """Yield a row for each type; a batch of types has a process of its own, which goes on behind
    a type that ends it."""
    left = list(types)
    while left:
        batch, left = left[:_BATCH], left[_BATCH:]
        while batch:
            command = [sys.executable, __file__, "--work"]
            done = subprocess.run(
                command,
                input=json.dumps(batch),
                capture_output=True,
                text=True,
                timeout=_SECONDS_PER_TYPE * 2 * _BATCH,
            )
            lines = done.stdout.splitlines()
            yield from (
                Row(x[0], x[1], Result(*x[2]), Result(*x[3])) for x in map(json.loads, lines)
            )
            batch = batch[len(lines) :]
            if batch and done.returncode:
                failed, *batch = batch
                reason = Result(
                    "not built",
                    reason=f"the process ended with {done.returncode}: {done.stderr[-200:]}",
                )
                yield Row(*failed, reason, reason)


PROVEN_BY_TESTS = {
    "kimi_k3": "tests/oracle/test_kimi_k3.py: the published index",
    "deepseek_v41": "tests/oracle/test_deepseek_v41.py: the published index",
}
"""Types that neither transformers nor a preset has, with the test that compares their published
size."""


def family_state(model_type: str) -> str:
    """Return what llamath says about a type that transformers does not have, by the published
    total of a preset or by a test."""
    from llamath import LlamathError, load
    from llamath.catalog import presets
    from llamath.families.counted_models import find_counted

    for preset in presets():
        if preset.config.get("model_type") == model_type:
            try:
                model = load(preset.slug)
            except LlamathError:
                return "refused"
            return "text only" if any("text model only" in x for x in model.notes) else "exact"
    counted = find_counted(model_type) is not None
    return "exact" if counted or model_type in PROVEN_BY_TESTS else "refused"


def shares(rows: list[Row]) -> tuple[dict[str, float], dict[str, str]]:
    """Return the downloads (millions) by state, and the state of each model type with known
    downloads."""
    downloads = json.loads(DOWNLOADS.read_text())
    states: dict[str, str] = {}
    for row in rows:
        if row.model_type not in states or row.auto == "ImageTextToText":
            states[row.model_type] = row.state
    known = {x: states.get(x) or family_state(x) for x in downloads["millions"]}
    sums = dict.fromkeys(STATES, 0.0)
    for model_type, millions in downloads["millions"].items():
        sums[known[model_type]] += millions
    sums["not listed"] = downloads["total"] - sum(downloads["millions"].values())
    return sums, known


HEAD = """# Which models are counted

Written by `tools/coverage.py`, which takes minutes: run it after families or transformers changed.

Every causal and image-text model type of transformers {version} is built on the meta device, at its
default configuration and at one random small configuration; llamath counts the configuration that
transformers saves for it.

- **exact**: the number of parameters is that of the class.
- **text only**: the exact number of the text model inside; a note says that the rest is not
  counted.
- **refused**: an error with the reason, and no number. `llamath count MODEL --via transformers`
  [counts the class](../reference/count.md#models-without-a-family).
- **wrong**: another number.
- **not built**: transformers itself cannot build it, or needs a package that is not installed.
"""
COUNTED_ONLY = """
## Counted only

Of some text models llamath knows every weight, but does not compute their passes, because one of
their operations serves no model that people discuss or download much. `count`, `names`, `ls`,
`verify`, `diff`, `facts`, `quants` and `convert` work; `flops`, `memory`, `fit`, `plan`, `trace`
and `run` refuse them by name, with exit code 2. What is not computed:

{parts}
"""
AUTO_CLASSES = {"CausalLM": "causal", "ImageTextToText": "image-text"}
BY_TYPE = (
    "Where two states stand, the first is that of the default configuration, the second that of "
    "the small one."
)
_COMPLETED_NOTE = (
    "Where the default configuration of a class lacks a value that the class needs, it is added"
)


def counted_only_parts() -> list[str]:
    """Return what the text models that are counted only would compute, by family and part."""
    from llamath.core.tree import Block
    from llamath.families.registry import FAMILIES

    FAMILIES.import_all()

    def kinds(one: type[Block]) -> Iterator[type[Block]]:
        yield one
        for x in one.__subclasses__():
            yield from kinds(x)

    return sorted({what for x in kinds(Block) if (what := getattr(x.forward, "counted_only", ""))})


def page(rows: list[Row], version: str) -> str:
    """Return the page."""
    completed = "; ".join(
        f"{', '.join(f'`{key}`' for key in added)} of `{x}`" for x, added in COMPLETED.items()
    )
    head = (
        HEAD.format(version=version)
        + "\n"
        + "\n".join(wrap(f"{_COMPLETED_NOTE}: {completed}."))
        + "\n"
    )
    lines = [head, "| types | " + " | ".join(STATES) + " |", "| --- |" + " ---: |" * len(STATES)]
    for auto, title in AUTO_CLASSES.items():
        counts = Counter(x.state for x in rows if x.auto == auto)
        lines.append(
            f"| {title}: {sum(counts.values())} | "
            + " | ".join(str(counts[x]) for x in STATES)
            + " |"
        )
    sums, known = shares(rows)
    downloads = json.loads(DOWNLOADS.read_text())
    total = downloads["total"]
    lines += [
        "",
        "## By downloads",
        "",
        *wrap(f"The share of {downloads['source']} ({total} million in all):"),
        "",
    ]
    lines += ["| state | downloads, millions | share |", "| --- | ---: | ---: |"]
    lines += [f"| {state} | {n:.1f} | {100 * n / total:.1f}% |" for state, n in sums.items() if n]
    listed = 100 * sums["exact"] / sum(downloads["millions"].values())
    note = f"Of the downloads of the listed types, {listed:.1f}% are of exact ones."
    lines += [
        "",
        *wrap(
            f"{note} A type that transformers does not have is exact if a preset of "
            "it, or a test, has its published size."
        ),
    ]
    others = {x: y for x, y in known.items() if y != "exact"}
    if others:
        lines += [
            "",
            *wrap(
                "Not exact: "
                + ", ".join(
                    f"`{x}` ({downloads['millions'][x]} million, {y})" for x, y in others.items()
                )
                + "."
            ),
        ]
    lines += (
        COUNTED_ONLY.format(parts="\n".join(f"- {x}" for x in counted_only_parts()))
        .rstrip("\n")
        .split("\n")
    )
    lines += ["", "## By type", "", *wrap(BY_TYPE)]
    for auto, title in AUTO_CLASSES.items():
        by_states: dict[str, list[str]] = {}
        for x in rows:
            if x.auto == auto:
                states = dict.fromkeys((x.default.state, x.small.state))
                by_states.setdefault(", ".join(states), []).append(f"`{x.model_type}`")
        lines += ["", f"### {title.capitalize()}", ""]
        lines += [
            line
            for states, types in by_states.items()
            for line in wrap(f"- {states}: {', '.join(types)}", "  ")
        ]
    wrong = [(x.model_type, y) for x in rows for y in (x.default, x.small) if y.state == "wrong"]
    if wrong:
        lines += [
            "",
            "## Wrong",
            "",
            "| model type | transformers | llamath |",
            "| --- | ---: | ---: |",
        ]
        lines += [f"| `{name}` | {x.expected:,} | {x.found:,} |" for name, x in wrong]
    return "\n".join(lines) + "\n"


def wrap(text: str, indent: str = "") -> list[str]:
    return fill(
        text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ).split("\n")


def show(rows: Iterable[Row]) -> Iterator[Row]:
    """Print each row that is not exact, and the totals; yield all rows."""
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        counts.setdefault(row.auto, Counter())[row.state] += 1
        for what, x in (("default", row.default), ("small", row.small)):
            if x.state != "exact" or x.names:
                sizes = (
                    f"{x.found:,} of {x.expected:,} (text {x.text:,})"
                    if x.state in ("wrong", "text only")
                    else ""
                )
                print(
                    f"{row.auto:16}{row.model_type:28}{what:9}{x.state:11}{sizes} "
                    f"{x.reason[:150]}{x.names[:200]}",
                    flush=True,
                )
        yield row
    for auto, states in counts.items():
        print(
            f"{auto}: {sum(states.values())} types, "
            + ", ".join(f"{n} {x}" for x in STATES if (n := states[x]))
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--types", default="", help="print these model types only, separated by commas"
    )
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work()
        return 0
    wanted = arguments.types.split(",") if arguments.types else None
    rows = list(show(measure([x for x in model_types() if wanted is None or x[0] in wanted])))
    if wanted is not None:
        return int(any(x.state == "wrong" for x in rows))
    import transformers

    fresh = page(rows, transformers.__version__)
    if arguments.check:
        return int(PAGE.read_text() != fresh)
    PAGE.write_text(fresh)
    return 0


if __name__ == "__main__":
    sys.exit(main())
