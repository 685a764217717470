"""Store the --json output of commands for all presets and examples, and compare two snapshots
number by number.

    python tools/snapshot.py write FILE.jsonl.gz
    python tools/snapshot.py compare OLD.jsonl.gz NEW.jsonl.gz

A snapshot has one JSON object per line: {"id", "argv", "exit", "stdout", "stderr"}. What is run is
listed in tools/snapshot_commands.py. `compare` matches lines by id and ignores argv, so an option
can be renamed there without losing the comparison. `write` runs the llamath of the checkout that
this file is in. It needs click 8.2 or newer, and torch for trace, run and same --logits. The
floating-point results of run/logprobs, trace/prompt and logits/* may differ between processors.
chat, convert, export and serve are not covered.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shlex
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

from snapshot_commands import ROOT, Invocation, invocations

WORKERS = 2
VOLATILE = {"tokens_per_second"}
"""Keys whose values differ from run to run; they are not stored."""

RENAMED_KEYS: dict[str, str] = {}
"""Keys renamed on purpose: glob for the end of the old path -> the new key in the same object,
or a path below it ("totals/active")."""

OTHER_ACTIVATIONS = """
cerebras-gpt-13b classic-405b deepseek-* distilgpt2 exaone-4-* gemma-3-* gemma-4-* glm-4.5* gpt-j-6b
gpt-oss-* gpt2* granite-3.1-?b-a* kimi-k2 lfm2-* llama-4-scout minimax-m2 mistral-small-4-*
mixtral-* muse-glimmer-* nemotron-3-* olmo-[23]-* olmoe-* opt-* phi-3.5-moe phi-mini-moe
qwen1.5-moe-* qwen2-57b-* qwen3-*b-a*b qwen3.5-* santacoder-* starcoder-* starcoderbase-*
wizardcoder-* tiny/bloom* tiny/deepseek_v[23]* tiny/exaone4* tiny/gemma4* tiny/glm4_moe* tiny/gpt2*
tiny/gpt_bigcode* tiny/gpt_oss* tiny/granitemoe* tiny/lfm2* tiny/llama4* tiny/minimax_m2*
tiny/mixtral* tiny/mpt* tiny/nemotron_h* tiny/olmo* tiny/opt* tiny/phimoe* tiny/qwen2_moe*
tiny/qwen3_* unproven/classic* unproven/deepseek* unproven/minicpm* unproven/mistral4* unproven/mpt*
unproven/muse_glimmer* """.split()
"""The models whose saved activations or peak decision 0019 corrects."""

ACCEPTED: list[tuple[str, str, str]] = [
    ("*", "stdout", "errors are JSON on stdout with --json"),
    ("memory/*", "exit", "exit code 1 if nothing fits on --on"),
    ("explain/*", "exit", "exit code 1 without an explanation"),
    (
        "fit/*/tp2,pp2",
        "*",
        "fit --on now assumes 4,096 tokens, too; with --context at the former "
        "value all numbers are equal",
    ),
    ("memory/*", "stdout/letters/[sT]", "the keys of a query are T; s is only q_lora_rank"),
    *(
        (
            f"{command}/{model}*",
            "*",
            "tensor parallelism divides the states of convolutions: decision 0018",
        )
        for command in ("fit", "plan")
        for model in ("lfm2", "nemotron-3", "qwen3-next", "qwen3.5")
    ),
    (
        "flops/*",
        "stdout/letters/P*",
        "the numbers of attended pairs are A, Aw and Ac; P is the number of earlier tokens",
    ),
    (
        "flops/*",
        "stdout/products/*",
        "products are in the order of computation; all numbers are equal, except k_up and v_up "
        "if unpacked",
    ),
    (
        "flops/*",
        "stdout/decode_otherwise",
        "decoding with expanded keys and values expands all "
        "cached latent vectors again: decision 0018",
    ),
    ("flops/*/full", "stdout/decode", "the same, with --unpacked"),
    ("flops/*/full", "stdout/groups/decode/attention/weights", "the same, with --unpacked"),
    (
        "trace/*",
        "*/steps*",
        "steps are the recorded operations; weights, FLOPs and cached "
        "elements, step by step, are equal",
    ),
    (
        "trace/prompt",
        "*/likely/*",
        "attention is computed as `run` computes it, no longer with written-out matrix products",
    ),
    *(
        (f"{command}/{model}/*", "stdout/*", "decision 0019")
        for command in ("fit", "memory", "plan")
        for model in OTHER_ACTIVATIONS
    ),
    *(
        (f"{command}/{model}", "stdout/*", "decision 0019")
        for command in ("fit", "memory", "plan")
        for model in OTHER_ACTIVATIONS
    ),
    ("*", "*/notes*", "notes appear only where the reader must act or could be misled"),
]
"""Differences accepted on purpose: glob for the id, glob for the path, reason.

A path looks like stdout/weights/0/parameters or exit; * in a glob also matches across slashes. A
missing invocation has the path "".
"""


def run(call: Invocation) -> tuple[Invocation, int, bytes]:
    """One invocation in this process: its exit code, and its line of the snapshot, compressed;
    -1 is an exception that nothing caught."""
    from click.testing import CliRunner

    from llamath.cli import cli
    from llamath.utils.errors import LlamathError

    done = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"}).invoke(
        cli, call.argv, input=call.stdin
    )
    code, stderr, error = done.exit_code, done.stderr, done.exception
    # which llamath.cli.main turns into a message and exit code 2
    if isinstance(error, LlamathError):
        code, stderr = 2, f"{stderr}error: {error}\nhint: {error.hint}\n"
    elif error is not None and not isinstance(error, SystemExit):
        code, stderr = -1, f"{stderr}{type(error).__name__}: {error}\n"
    out, err = (x.replace(f"{ROOT}/", "") for x in (done.stdout, stderr))
    try:
        stdout = json.loads(
            out,
            object_hook=lambda x: {key: value for key, value in x.items() if key not in VOLATILE},
        )
    except ValueError:
        stdout = out
    line = json.dumps(
        {"id": call.id, "argv": call.argv, "exit": code, "stdout": stdout, "stderr": err},
        ensure_ascii=False,
    )
    return call, code, gzip.compress(f"{line}\n".encode(), 6, mtime=0)


def write(target: Path, only: str) -> int:
    """Run everything and write the snapshot; exit code 1 if a command crashed."""
    start, calls = time.monotonic(), [x for x in invocations() if fnmatchcase(x.id, only)]
    twice = [name for name, n in Counter(x.id for x in calls).items() if n > 1]
    assert not twice, f"ids that are used twice: {twice}"
    target = target.resolve()
    os.chdir(ROOT)
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    sys.path.insert(0, str(ROOT / "src"))
    with Pool(WORKERS) as pool:
        done = sorted(
            pool.imap_unordered(run, calls, chunksize=8), key=lambda x: (x[0].argv, x[0].id)
        )
    with target.open("wb") as file:
        file.writelines(member for _, _, member in done)
    codes = Counter(code for _, code, _ in done)
    seconds = time.monotonic() - start
    print(
        f"{len(done):,} invocations in {seconds:.0f} s, {target.stat().st_size / 1e6:.1f} MB; "
        f"exit codes {dict(sorted(codes.items()))}"
    )
    for call, code, _ in done:
        if code == -1:
            print(f"crashed: {call.id}: llamath {shlex.join(call.argv)}")
    return int(-1 in codes)


NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?!\d)|\d{4,}", re.ASCII)
MISSING = object()


class Difference(NamedTuple):
    kind: str  # "number", "text", or "numbers in text"
    path: str
    what: str


def differences(old: Any, new: Any, path: str = "") -> Iterator[Difference]:
    """Return the differences between two JSON values, apart from keys that only `new` has."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            below = f"{path}/{key}" if path else key
            if (other := renamed(new, key, below)) is MISSING:
                yield Difference("number", below, f"{short(value)} -> the key is gone")
            else:
                yield from differences(value, other, below)
    elif isinstance(old, list) and isinstance(new, list):
        old, new = in_one_order(old), in_one_order(new)
        if len(old) != len(new):
            yield Difference("number", path, f"length {len(old)} -> {len(new)}")
        for i, pair in enumerate(zip(old, new, strict=False)):
            yield from differences(*pair, f"{path}/{i}")
    elif isinstance(old, str) and isinstance(new, str):
        if old != new:
            a, b = ([x.replace(",", "") for x in NUMBER.findall(text)] for text in (old, new))
            yield Difference(
                "text" if a == b else "numbers in text", path, f"{short(old)} -> {short(new)}"
            )
    elif repr(old) != repr(new):  # which tells 1 from 1.0 and True
        yield Difference("number", path, f"{short(old)} -> {short(new)}")


def in_one_order(values: list[Any]) -> list[Any]:
    """Sort the lines of a memory report by their names, so that only their numbers are compared."""
    named = all(isinstance(x, dict) and "what" in x for x in values)
    return (
        sorted(values, key=lambda x: x["what"].replace("optimiser", "optimizer"))
        if named
        else values
    )


def renamed(new: dict[str, Any], key: str, path: str) -> Any:
    """The value in `new` of a key of the old object, by its new name if it was renamed; MISSING
    if there is none."""
    result: Any = new
    for part in next(
        (to for suffix, to in RENAMED_KEYS.items() if fnmatchcase(f"/{path}", f"*/{suffix}")), key
    ).split("/"):
        result = result.get(part, MISSING) if isinstance(result, dict) else MISSING
    return new.get(key, MISSING) if result is MISSING else result


def short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else f"{text[:157]}..."


def lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The id and the text of each line."""
    with gzip.open(path) as file:
        for line in file:
            yield (
                json.JSONDecoder().raw_decode(line[:400].decode(errors="ignore"), len('{"id": '))[
                    0
                ],
                line,
            )


def compare(old: Path, new: Path, only: str, limit: int, texts: bool, strict: bool) -> int:
    """List what differs; exit code 1 if a number does."""
    others = {name: zlib.compress(line, 1) for name, line in lines(new) if fnmatchcase(name, only)}
    counts: Counter[str] = Counter()
    shown: Counter[tuple[str, str, str]] = Counter()
    for name, line in lines(old):
        if not fnmatchcase(name, only):
            continue
        counts["compared"] += 1
        packed = others.pop(name, None)
        other = zlib.decompress(packed) if packed else None
        if line == other:
            continue
        if other is None:
            results = [Difference("number", "", "the invocation is gone")]
        else:
            results = list(
                differences(json.loads(line) | {"argv": None}, json.loads(other) | {"argv": None})
            )
        for kind, path, what in results:
            if any(fnmatchcase(name, x) and fnmatchcase(path, y) for x, y, _ in ACCEPTED):
                counts["accepted"] += 1
                continue
            counts[kind] += 1
            group = kind, name.split("/")[0], re.sub(r"/\d+(?=/|$)", "/*", path)
            shown[group] += 1
            if shown[group] <= limit and (kind != "text" or texts):
                print(f"{kind}: {name}: {path}: {what}")
    for (kind, command, path), n in sorted(shown.items()):
        if n > limit and (kind != "text" or texts):
            print(f"{kind}: {command}: {path}: {n - limit:,} more like this (--limit)")
    print(f"{counts['compared']:,} invocations of {old} compared; {len(others):,} only in {new}")
    print(
        f"{counts['number']:,} numbers, keys, lengths or exit codes differ; "
        f"{counts['accepted']:,} differences accepted"
    )
    print(
        f"{counts['numbers in text']:,} texts have other numbers, {counts['text']:,} texts "
        "only other words"
    )
    return int(counts["number"] > 0 or (strict and counts["numbers in text"] > 0))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("write", help="run everything and write a snapshot")
    one.add_argument("file", type=Path)
    two = commands.add_parser(
        "compare",
        help="list the numbers that differ between two snapshots; exit code 1 if there are any",
    )
    two.add_argument("old", type=Path)
    two.add_argument("new", type=Path)
    two.add_argument(
        "--limit",
        type=int,
        default=5,
        help="differences shown of one command and path; 5 if not given",
    )
    two.add_argument("--texts", action="store_true", help="show texts with other words as well")
    two.add_argument(
        "--strict", action="store_true", help="exit code 1 also if numbers in texts differ"
    )
    for each in (one, two):
        each.add_argument(
            "--only", default="*", metavar="GLOB", help="only the ids that match, like 'memory/*'"
        )
    asked = parser.parse_args()
    if asked.command == "write":
        return write(asked.file, asked.only)
    return compare(asked.old, asked.new, asked.only, asked.limit, asked.texts, asked.strict)


if __name__ == "__main__":
    sys.exit(main())
