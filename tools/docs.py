"""Regenerate the generated parts of README and docs; with --check, fail where a page is stale.

- A ```console block that begins with `$ llamath …` gets the output of its commands. A line `…`
  stands for omitted lines and stays.
- `<!-- options COMMAND -->` … `<!-- end -->` gets the options of a command, as click declares them,
  and a link to the shared ones.
- `<!-- questions -->` … `<!-- end -->` gets the commands that ask questions, with the names of
  their options, by what they are about.
- `<!-- shared options -->` … `<!-- end -->` gets the options that many commands share.
- `<!-- json COMMAND LINE -->` precedes a table whose first column must name the keys of that
  command's JSON output; those that all commands share may be left out.
- `<!-- commands -->` … `<!-- end -->` gets the list of commands with links to their pages; every
  command needs a page.
- Lines of prose have at most 100 characters; tables and code may have more.
- `<!-- multimodal -->` … `<!-- end -->` gets the types of multimodal models that are counted whole.
- `<!-- published models -->` … `<!-- end -->` gets the tables of `tools/architecture_gallery.py`.
- `<!-- predictions -->` … `<!-- end -->` gets the tables of `tools/prediction_tables.py`.
- `<!-- peers -->` … `<!-- end -->` gets the answers of other tools, as `bench/peers.py` kept them.
- `<!-- recipes -->` … `<!-- end -->` gets the formats of quantization recipes: tensors and bytes of
  a matrix, bits per weight.
- `<!-- tour MODEL -->` … `<!-- end -->` gets the stops of the tour of a model.
- `<!-- source PATH -->` … `<!-- end -->` gets the text of a Python file.
- A ```bench block gets the figures of bench/results, a ```speed block those of bench/run.py, a
  ```reading block those of bench/verify_full.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent, fill

import click

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
SKILL = ROOT / "src" / "llamath" / "cli" / "SKILL.md"
CONSOLE = re.compile(r"^```console\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = re.compile(r"^<!-- options ([a-z]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
SHARED_OPTIONS = re.compile(
    r"^<!-- shared options -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL
)
QUESTIONS = re.compile(r"^<!-- questions -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
MULTIMODAL = re.compile(r"^<!-- multimodal -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
PUBLISHED = re.compile(r"^<!-- published models -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
PREDICTIONS = re.compile(r"^<!-- predictions -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
ANSWERS = re.compile(r"^<!-- peers -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
RECIPES = re.compile(r"^<!-- recipes -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
SOURCE = re.compile(r"^<!-- source (\S+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
TOUR = re.compile(r"^<!-- tour (\S+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
FORMULAS = re.compile(r"^<!-- formulas (\w+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^<!-- commands -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
JSON_KEYS = re.compile(r"^<!-- json (.*?) -->\n\n((?:\|.*\n)+)", re.MULTILINE)
COMMAND = re.compile(r"((?:.*\\\n)*.*)\n((?:.|\n)*)")
"""A command, which may continue on lines after a backslash, and its output."""
BENCH = re.compile(r"^```bench\n.*?^```$", re.MULTILINE | re.DOTALL)
READING = re.compile(r"^```reading\n.*?^```$", re.MULTILINE | re.DOTALL)
SPEED = re.compile(r"^```speed\n.*?^```$", re.MULTILINE | re.DOTALL)
CUT = "…\n"
WIDTH = 96
COMMON_KEYS = {"model", "family", "source", "notes"}
"""JSON keys that docs/reference/models-and-units.md explains for all commands."""
PEERS = ("llama-cpp-python", "openvino")
SPEEDS = {
    "ready": "ready",
    "first": "first",
    "answer": "answer",
    "512 read": "prefill",
    "decode 1": "decode_1",
    "decode 8": "decode_8",
}


def output(command: str, errors: bool = True) -> str:
    # the plain loops, which compute the same numbers on every processor
    env = os.environ | {
        "COLUMNS": "80",
        "NO_COLOR": "1",
        "LLAMATH_NATIVE_PATH": "reference",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        shlex.split(command.replace("\\\n", " ")),
        capture_output=True,
        text=True,
        env=env,
        cwd=ROOT,
        timeout=600,
    )
    return done.stdout + (done.stderr if errors else "")


def console(match: re.Match[str]) -> str:
    """Return a console block with the current output of its commands."""
    text = ""
    for part in re.split(r"^(?=\$ )", match[1], flags=re.MULTILINE):
        if not part:
            continue
        command, old = COMMAND.match(part).groups()  # type: ignore[union-attr]
        new = output(command.removeprefix("$ "))
        text += f"{command}\n{abridged(old, new) if CUT in old else new}"
    return f"```console\n{text}```"


def abridged(old: str, new: str) -> str:
    """Return the first and last lines of an output, as many as the block showed before."""
    head, _, tail = old.partition(CUT)
    lines = new.splitlines(keepends=True)
    last = lines[len(lines) - tail.count("\n") :] if tail else []
    return "".join([*lines[: head.count("\n")], CUT, *last])


def command_named(name: str) -> click.Command:
    from llamath.cli import cli

    result = cli.get_command(click.Context(cli), name)
    assert result is not None, f"there is no command {name}"
    return result


def list_item(text: str) -> str:
    return fill(
        f"- {text}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def own_options(name: str) -> list[tuple[str, str]]:
    """Return the options of a command that are not shared by declaration, with their help."""
    from llamath.cli.command_group import SharedOption

    command = command_named(name)
    context = click.Context(command, info_name=f"llamath {name}")
    records = (
        parameter.get_help_record(context)
        for parameter in command.params
        if isinstance(parameter, click.Option) and not isinstance(parameter, SharedOption)
    )
    return [x for x in records if x is not None]


@cache
def repeated_options() -> dict[str, tuple[str, str]]:
    """Return the options that at least three commands have with the same help, by name; without
    those of one name that mean different things."""
    counts = Counter(record for name in command_names() for record in own_options(name))
    often = [record for record, n in counts.most_common() if n >= 3]
    names = Counter(option_name(record) for record in often)
    return {option_name(x): x for x in often if names[option_name(x)] == 1}


def option_name(record: tuple[str, str]) -> str:
    return record[0].partition(" ")[0]


def option_lines(name: str) -> Iterator[str]:
    """Yield the options of a command as a Markdown list, and last a link to those that other
    commands have, too."""
    from llamath.cli.command_group import Command

    command = command_named(name)
    assert isinstance(command, Command)
    elsewhere = []
    for record in own_options(name):
        if repeated_options().get(option_name(record)) == record:
            elsewhere.append(option_name(record))
        else:
            yield list_item(f"`{record[0]}`: {record[1]}")
    shared = ", ".join(f"`{x}`" for x in (*elsewhere, *command.shared_names))
    yield list_item(f"[Common options](models-and-units.md#common-options): {shared or 'none'}")


def options(match: re.Match[str]) -> str:
    return "\n".join(
        [f"<!-- options {match[1]} -->", "", *option_lines(match[1]), "", "<!-- end -->"]
    )


def questions(_: re.Match[str]) -> str:
    """Return the commands that ask questions, with the names of their options."""
    from llamath.cli.question_options import FieldOption

    lines = []
    for name in command_names():
        groups: dict[str, list[str]] = {}
        for x in command_named(name).params:
            if isinstance(x, FieldOption):
                groups.setdefault(x.group, []).append(
                    f"`{x.opts[0]} {x.metavar or ''}".rstrip() + "`"
                )
        words = [
            f"{f'for {about} ' if about else ''}{', '.join(names)}"
            for about, names in groups.items()
        ]
        if words:
            lines.append(list_item(f"`llamath {name}`: {'; '.join(words)}"))
    return "\n".join(["<!-- questions -->", "", *lines, "", "<!-- end -->"])


def shared_options(_: re.Match[str]) -> str:
    from llamath.cli import cli
    from llamath.cli.command_group import shared_option_records

    lines = [
        list_item(f"`{option}`: {text}")
        for option, text in (
            *shared_option_records(click.Context(cli)),
            *repeated_options().values(),
        )
    ]
    return "\n".join(["<!-- shared options -->", "", *lines, "", "<!-- end -->"])


def source(match: re.Match[str]) -> str:
    return "\n".join(
        [
            f"<!-- source {match[1]} -->",
            "",
            "```python",
            (ROOT / match[1]).read_text().rstrip(),
            "```",
            "",
            "<!-- end -->",
        ]
    )


def tour(match: re.Match[str]) -> str:
    """Return the stops of a model's tour as sections, each with its lines of code."""
    from llamath.analysis.learn.tour.tour import tour_of
    from llamath.loading import load_family

    lines = [f"<!-- tour {match[1]} -->"]
    for i, x in enumerate(tour_of(load_family(match[1])).stops, 1):
        lines += ["", f"## {i}. {x.title}", "", fill(x.what, WIDTH), "", fill(x.why, WIDTH)]
        lines += ["", "```text", x.formula, "```"] if x.formula else []
        count = fill(f"This stop {x.sum}; so far {x.so_far:,}.", WIDTH, break_long_words=False)
        lines += ["", count]
        code = dedent("\n".join(y.text for y in x.code))
        lines += ["", "```text", code, "```"] if x.code else []
    return "\n".join([*lines, "", "<!-- end -->"])


def formulas(match: re.Match[str]) -> str:
    """Return a table of formulas of the cheat sheet."""
    from cheat_sheet import table

    return f"<!-- formulas {match[1]} -->\n\n{table(match[1])}\n\n<!-- end -->"


def command_names() -> list[str]:
    from llamath.cli import cli

    return sorted(cli.list_commands(click.Context(cli)))


def commands(_: re.Match[str]) -> str:
    """Return the commands by the headings of `llamath --help`."""
    from llamath.cli.command_group import GROUPS

    lines = []
    for heading, group in GROUPS.items():
        lines += [
            f"### {heading}",
            "",
            *(f"- [{name}](reference/{name}.md): {text}" for name, text in group.items()),
            "",
        ]
    return "\n".join(["<!-- commands -->", "", *lines, "<!-- end -->"])


def wrong_keys(path: Path, text: str) -> Iterator[str]:
    """Yield a message for each table of JSON keys that differs from what the command prints."""
    for command, table in JSON_KEYS.findall(text):
        documented = {
            x for row in table.splitlines()[2:] for x in re.findall(r"`(\w+)`", row.split("|")[1])
        }
        printed = output(command, errors=False)
        if not printed.startswith("{"):
            yield f"{path.name}: `{command}` prints no JSON object: {printed}"
            continue
        actual = set(json.JSONDecoder().raw_decode(printed)[0])  # notes on stderr may follow
        missing, extra = actual - documented - COMMON_KEYS, documented - actual
        if missing or extra:
            yield (
                f"{path.name}: JSON keys of `{command}`: missing {sorted(missing)}, "
                f"extra {sorted(extra)}"
            )


def long_lines(path: Path, text: str) -> Iterator[str]:
    """Yield a message for each line of prose that is longer than 100 characters."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if (
            len(line) > 100
            and not fenced
            and not line.lstrip().startswith(("|", "<!--", "[", "`", "description: "))
        ):
            yield f"{path.relative_to(ROOT)}, line {number}: more than 100 characters"


def bench(_: re.Match[str]) -> str:
    lines = []
    for script in ("counting", "headers"):
        path = ROOT / "bench" / "results" / f"{script}.json"
        for result in json.loads(path.read_text())["results"]:
            base = result["rows"][result["against"]]
            lines.append(
                f"{result['title']}, against {result['against']} ({base['cpu_ms']:g} ms "
                f"CPU, {base['memory_mib']:g} MiB)"
            )
            for name, row in result["rows"].items():
                if name != result["against"] and not name.endswith(" --json"):
                    lines.append(
                        f"  {name:<46} {row['cpu_ratio']:8.1f} × CPU "
                        f"{row['memory_ratio']:7.1f} × memory"
                    )
    return "```bench\n" + "\n".join(lines) + "\n```"


def reading(_: re.Match[str]) -> str:
    """Return the results of bench/verify_full.py: GB/s, and the share of the speed of a plain
    sequential read."""
    results = json.loads((ROOT / "bench" / "results" / "verify_full.json").read_text())["results"]
    dtypes = [re.search(r"of (\w+),", x["title"])[1] for x in results]  # type: ignore[index]
    lines = [f"{'GB/s':<44}" + "".join(f"{x:>14}" for x in dtypes)]
    for name in results[0]["rows"]:
        rows = [x["rows"][name] for x in results]
        shares = [f" ({row['share']:.2f})" if "share" in row else "" for row in rows]
        cells = (f"{row['gb_per_s']:.2f}{share}" for row, share in zip(rows, shares, strict=True))
        lines.append(f"{name:<44}" + "".join(f"{x:>14}" for x in cells))
    return "```reading\n" + "\n".join(lines) + "\n```"


def speed(_: re.Match[str]) -> str:
    """Return the results of bench/run.py on all cores: how many times faster than the first peer
    each engine is."""
    results = json.loads((ROOT / "bench" / "results" / "run.json").read_text())["results"]
    results = [x for x in results if x["machine"]["threads"] == x["machine"]["cores"]]
    where: dict[str, str] = {}
    for result in results:
        where |= result["machine"]
    versions = ", ".join(f"{x} {where[x]}" for x in ("torch", "transformers", *PEERS))
    lines = [
        f"{where['processor']}, {where['threads']} threads on {where['cores']} cores, {versions}"
    ]
    lines.append(f"{'':24}" + "".join(f"{x:>9}" for x in (*SPEEDS, "of limit", "beyond", "apart")))
    for result in results:
        title, rounds = result["title"], result["rounds"]
        lines.append(f"{title}, {result['weights'] / 1e9:.2f} GB, rounds: {rounds}")
        for name, row in result["rows"].items():
            cells = "".join(f"{row[f'{x}_speedup']:8.2f}×" for x in SPEEDS.values())
            beyond = (
                f"{row['memory_beyond_weights'] / 1e9:.2f} GB"
                if "memory_beyond_weights" in row
                else "–"
            )
            apart = f"{row['apart']:.1g}" if "apart" in row else "–"
            lines.append(f"  {name:22}{cells}{row['of_limit_1']:9.2f}{beyond:>9}{apart:>9}")
    return "```speed\n" + "\n".join(lines) + "\n```"


_INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
_FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "channel"}
_DYNAMIC = {"num_bits": 8, "dynamic": True}


def _groups(kind: str, weights: dict[str, object], activations: object = None) -> dict[str, object]:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    return {
        "quant_method": "compressed-tensors",
        "format": kind,
        "config_groups": {"group_0": group},
    }


RECIPE_EXAMPLES: dict[str, dict[str, object]] = {
    "fp8, blocks": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "fp8, static": {"quant_method": "fp8", "activation_scheme": "static"},
    "fbgemm_fp8": {"quant_method": "fbgemm_fp8"},
    **{
        f"modelopt {x}": {"quant_method": "modelopt", "quant_algo": x}
        for x in ("FP8", "NVFP4", "W4A16_NVFP4", "W4A8_AWQ", "MXFP8")
    },
    "compressed-tensors pack-quantized": _groups("pack-quantized", _INT4),
    "compressed-tensors pack-quantized, asymmetric": _groups(
        "pack-quantized", _INT4 | {"symmetric": False}
    ),
    "compressed-tensors int-quantized": _groups(
        "int-quantized", _FLOAT8 | {"type": "int"}, _DYNAMIC
    ),
    "compressed-tensors float-quantized": _groups("float-quantized", _FLOAT8, _DYNAMIC),
    "compressed-tensors nvfp4-pack-quantized": _groups(
        "nvfp4-pack-quantized", _INT4 | {"type": "float", "group_size": 16}, {"dynamic": "local"}
    ),
    "compressed-tensors mxfp4-pack-quantized": _groups(
        "mxfp4-pack-quantized", _INT4 | {"type": "float", "group_size": 32}
    ),
    "compressed-tensors marlin-24": _groups("marlin-24", _INT4),
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128},
    "auto-round": {"quant_method": "auto-round", "bits": 4, "group_size": 128},
    "bitsandbytes, 8 bits": {"quant_method": "bitsandbytes", "load_in_8bit": True},
    "bitsandbytes, NF4": {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
    },
    "mxfp4 (gpt-oss)": {"quant_method": "mxfp4"},
    "MLX": {"bits": 4, "group_size": 64},
    "MLX mxfp4": {"bits": 4, "group_size": 32, "mode": "mxfp4"},
    "quark fp8": {
        "quant_method": "quark",
        "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}},
    },
    "torchao int8": {
        "quant_method": "torchao",
        "quant_type": {"default": {"_type": "Int8WeightOnlyConfig", "_data": {}}},
    },
    "hqq": {
        "quant_method": "hqq",
        "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 64}},
    },
    "eetq": {"quant_method": "eetq"},
    "bitnet": {"quant_method": "bitnet"},
    "aqlm": {"quant_method": "aqlm"},
}


_MAX_PARTS = 6
"""The most tensors of a matrix that are all listed."""


def multimodal(match: re.Match[str]) -> str:  # noqa: ARG001
    """Return the types of multimodal models whose towers are known."""
    from llamath.families.multimodal_registry import WRAPPERS

    complete = (x for x, wrapper in WRAPPERS.import_all().items() if wrapper.family is not None)
    return f"<!-- multimodal -->\n\n{fill(', '.join(sorted(complete)), WIDTH)}\n\n<!-- end -->"


def published_models(_: re.Match[str]) -> str:
    """Return what is known here of the models of the public architecture gallery."""
    from architecture_gallery import tables

    return "\n".join(("<!-- published models -->", "", *tables(), "", "<!-- end -->"))


def predictions(_: re.Match[str]) -> str:
    """Return how published figures and llamath's compare."""
    from prediction_tables import tables

    return "\n".join(("<!-- predictions -->", "", *tables(), "", "<!-- end -->"))


def answers(_: re.Match[str]) -> str:
    """Return how other tools answer about every preset."""
    from prediction_tables import peers

    return "\n".join(("<!-- peers -->", "", *peers(), "", "<!-- end -->"))


def recipes(_: re.Match[str]) -> str:
    """Return the formats of quantization recipes: the tensors of a matrix, its bytes, and bits
    per weight at 4,096 × 4,096."""
    from llamath.checkpoint.quantization.recipes import Matrix, read_recipe

    lines = [
        "| recipe | tensors of a matrix | bytes | bits per weight |",
        "| --- | --- | --- | ---: |",
    ]
    for name, config in RECIPE_EXAMPLES.items():
        recipe = read_recipe(config)
        to = recipe.choose(Matrix(("model.layers.0.mlp.up_proj",), "expert")).format
        assert to is not None, name
        shown = (
            to.parts
            if len(to.parts) <= _MAX_PARTS
            else [x for x in to.parts if any(axis.letter for axis in x.axes)]
        )
        tensors = ", ".join(f"`{x.suffix.lstrip('.')}` {x.dtype}" for x in shown)
        tensors += f", {len(to.parts) - len(shown)} settings" if len(shown) < len(to.parts) else ""
        lines.append(
            f"| {name} | {tensors} | {to.formula} | {8 * to.bytes(4096, 4096) / 4096**2:.4f} |"
        )
    return "\n".join(["<!-- recipes -->", "", *lines, "", "<!-- end -->"])


GENERATED = {
    MULTIMODAL: multimodal,
    PUBLISHED: published_models,
    PREDICTIONS: predictions,
    ANSWERS: answers,
    RECIPES: recipes,
    SOURCE: source,
    TOUR: tour,
    FORMULAS: formulas,
    CONSOLE: console,
    OPTIONS: options,
    SHARED_OPTIONS: shared_options,
    QUESTIONS: questions,
    COMMANDS: commands,
    BENCH: bench,
    READING: reading,
    SPEED: speed,
}


def main() -> int:
    check = "--check" in sys.argv
    expected = [Path(x).resolve() for x in sys.argv[1:] if not x.startswith("-")]
    stale, wrong = [], []
    for path in expected or [
        *sorted(ROOT.glob("*.md")),
        *sorted((ROOT / "docs").rglob("*.md")),
        SKILL,
    ]:
        text = fresh = path.read_text()
        for pattern, generate in GENERATED.items():
            fresh = pattern.sub(generate, fresh)
        wrong += [*wrong_keys(path, fresh), *long_lines(path, fresh)]
        if fresh != text:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(fresh)
    wrong += [
        f"the command {x} has no page in docs/reference"
        for x in command_names()
        if not (REFERENCE / f"{x}.md").exists()
    ]
    for line in wrong:
        print(line, file=sys.stderr)
    if stale:
        print(("stale: " if check else "written: ") + ", ".join(stale), file=sys.stderr)
    return int(bool(wrong) or (check and bool(stale)))


if __name__ == "__main__":
    sys.exit(main())
