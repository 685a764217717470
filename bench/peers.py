"""Answers of installed peers about presets, compared with the conformance set: rows tried,
exact, off and refused."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import llamath
from harness import keep

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from prediction_tables import peer_table

ROOT = Path(__file__).parents[1]
CONTEXT = "8192"
Answer = Callable[["Case"], int]


class Case(NamedTuple):
    """A row of the set, with its model and a folder with its config.json."""

    row: Mapping[str, Any]
    config: dict[str, Any]
    folder: Path


def transformers_class(config: Mapping[str, Any]) -> Any:
    """Return the auto class that has the head and, where there are any, the towers."""
    import transformers

    text = not {"vision_config", "audio_config"} & set(config)
    return transformers.AutoModelForCausalLM if text else transformers.AutoModelForMultimodalLM


@lru_cache(maxsize=1)
def meta_model(folder: Path) -> Any:
    """Return the model of transformers on the meta device."""
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(str(folder))
    with torch.device("meta"):
        return transformers_class(json.loads((folder / "config.json").read_text())).from_config(
            config
        )


def count_by_transformers(case: Case) -> int:
    return sum(x.numel() for x in meta_model(case.folder).parameters())


def count_by_torchinfo(case: Case) -> int:
    import torchinfo

    return int(torchinfo.summary(meta_model(case.folder), verbose=0).total_params)


def estimate_by_accelerate(case: Case) -> int:
    """As `accelerate estimate-memory` builds and sums it, without its download."""
    import torch
    import transformers
    from accelerate import init_empty_weights
    from accelerate.utils import calculate_maximum_sizes

    config = transformers.AutoConfig.from_pretrained(str(case.folder))
    with init_empty_weights():
        model = transformers.AutoModel.from_config(config, torch_dtype=torch.float32)
    return int(calculate_maximum_sizes(model)[0])


def bf16_header(case: Case) -> dict[str, Any]:
    """Return the header of a safetensors file with the model's weights in bf16."""
    model = llamath.load(case.row["preset"])
    tensors = [(x.name, tuple(map(int, x.shape))) for x in model.scheme("hf").tensors(model.tree)]
    ends = list(accumulate(2 * prod(shape) for _, shape in tensors))
    return {
        name: {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
        for (name, shape), begin, end in zip(tensors, [0, *ends], ends, strict=False)
    }


def ask_hf_mem(case: Case) -> Any:
    """Return what hf-mem says of a repository with this config and this header; requests are
    answered here.
    """
    import httpx2

    run = import_module("hf_mem.run")

    header = json.dumps(bf16_header(case)).encode()
    stored = len(header).to_bytes(8, "little") + header
    classes = ["ForConditionalGeneration" if "text_config" in case.config else "ForCausalLM"]
    pages = {
        "config.json": json.dumps({"architectures": classes, **case.config}).encode(),
        "model.safetensors": stored,
    }

    def respond(request: httpx2.Request) -> httpx2.Response:
        name = request.url.path.rpartition("/")[2]
        if name not in pages:
            return httpx2.Response(200, json=[{"type": "file", "path": x} for x in pages])
        first, _, last = (
            request.headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")
        )
        return httpx2.Response(
            200, content=pages[name][int(first) : int(last) + 1 if last else None]
        )

    class Client(httpx2.AsyncClient):
        def __init__(self, **_: Any) -> None:
            super().__init__(transport=httpx2.MockTransport(respond))

    plain, run.httpx2.AsyncClient = run.httpx2.AsyncClient, Client
    try:
        return asyncio.run(
            run.arun(
                "org/name",
                experimental=True,
                max_model_len=int(CONTEXT),
                kv_cache_dtype="bfloat16",
            )
        )
    finally:
        run.httpx2.AsyncClient = plain


def weights_by_hf_mem(case: Case) -> int:
    return int(ask_hf_mem(case).memory)


def cache_by_hf_mem(case: Case) -> int:
    return int(ask_hf_mem(case).kv_cache)


def read_by_gguf(case: Case) -> int:
    """The bytes that gguf-py reads in a sparse file with the tensors that llamath names."""
    import gguf
    import numpy

    path = case.folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for x in llamath.stored_names(case.row["preset"], names="gguf", dtype="q8_0").tensors:
        if x.mtp:
            continue
        kind = gguf.GGMLQuantizationType[x.dtype]
        block, size = gguf.GGML_QUANT_SIZES[kind]
        writer.add_tensor_info(
            x.name,
            gguf.quant_shape_to_byte_shape(tuple(x.shape), kind),
            numpy.dtype("uint8"),
            prod(x.shape) // block * size,
            raw_dtype=kind,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + 2 * case.row["bytes"]["q8_0"])
    try:
        return sum(int(x.n_bytes) for x in gguf.GGUFReader(path).tensors)
    finally:
        path.unlink()


QUESTIONS: tuple[tuple[str, str, tuple[str, ...], Answer], ...] = (
    ("transformers", "parameters", ("parameters", "total"), count_by_transformers),
    ("torchinfo", "parameters", ("parameters", "total"), count_by_torchinfo),
    ("accelerate", "bytes in fp32", ("bytes", "fp32"), estimate_by_accelerate),
    ("hf-mem", "bytes of a header in bf16", ("bytes", "bf16"), weights_by_hf_mem),
    ("hf-mem", "cache of 8,192 tokens", ("kv_bytes", CONTEXT), cache_by_hf_mem),
    ("gguf", "bytes of a header in q8_0", ("bytes", "q8_0"), read_by_gguf),
)
"""The package, what it is asked, where the answer is in a row, and how it is asked."""


def installed() -> dict[str, str]:
    """Return the versions of the peers that are installed."""
    found = {}
    for package in ("torch", *dict.fromkeys(x for x, *_ in QUESTIONS)):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            print(f"{package} is not installed", file=sys.stderr)
    return found


def expected(row: Mapping[str, Any], path: tuple[str, ...]) -> tuple[int, ...]:
    """Return the right answers: a module's parameters may leave out stored buffers; a GGUF file has
    the text model alone.
    """
    value = row[path[0]] and row[path[0]].get(path[1])
    if value is None or (path[1] == "q8_0" and {"vision", "audio"} & set(row["parts"])):
        return ()
    return (value, value - row["parameters"]["buffers"]) if path[0] == "parameters" else (value,)


def ask(case: Case, packages: Mapping[str, str]) -> Iterator[tuple[str, str, str, tuple[int, int]]]:
    """Yield package, question, outcome, and the answer next to the right one."""
    for package, question, path, answer in QUESTIONS:
        right = expected(case.row, path)
        if package not in packages or not right:
            continue
        try:
            found = answer(case)
        except Exception as error:  # whatever a peer raises is a refusal
            yield package, question, f"refused: {type(error).__name__}", (0, 0)
            continue
        yield package, question, "exact" if found in right else "off", (found, right[0])


def ask_all(rows: Sequence[Mapping[str, Any]], packages: Mapping[str, str], log: Path) -> None:
    """Append the outcomes for the rows that are not in the log."""
    done = {x["preset"] for x in current(read(log), rows, packages)}
    presets = json.loads((ROOT / "src" / "llamath" / "catalog" / "presets.json").read_text())
    with tempfile.TemporaryDirectory() as temporary, log.open("a") as file:
        for number, row in enumerate(rows):
            if row["preset"] in done:
                continue
            folder = Path(temporary) / row["preset"]
            folder.mkdir()
            config = presets[row["preset"]]["config"]
            (folder / "config.json").write_text(json.dumps(config))
            outcomes = list(ask(Case(row, config, folder), packages))
            line = {"preset": row["preset"], "row": row, "packages": packages, "outcomes": outcomes}
            print(json.dumps(line), file=file, flush=True)
            print(f"{number + 1} of {len(rows)}: {row['preset']}", file=sys.stderr)


def read(log: Path) -> list[dict[str, Any]]:
    """Return the lines of a log."""
    return [json.loads(x) for x in log.read_text().splitlines()] if log.exists() else []


def current(
    lines: Sequence[dict[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    packages: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Return the lines about today's rows and by today's packages."""
    known = {x["preset"]: x for x in rows}
    return [
        x
        for x in lines
        if x.get("packages") == packages and x.get("row") == known.get(x["preset"], {})
    ]


def tally(lines: Sequence[Mapping[str, Any]], packages: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the outcomes of each question."""
    results = {}
    for package, question, *_ in QUESTIONS:
        found = [
            (line["preset"], outcome, answers)
            for line in lines
            for peer, asked, outcome, answers in line["outcomes"]
            if (peer, asked) == (package, question)
        ]
        if found:
            refused = Counter(x.removeprefix("refused: ") for _, x, _ in found if "refused" in x)
            results[package, question] = {
                "peer": package,
                "version": packages[package],
                "question": question,
                "tried": len(found),
                "exact": sum(x == "exact" for _, x, _ in found),
                "off": {preset: y for preset, x, y in found if x == "off"},
                "refused": dict(refused.most_common()),
            }
    return list(results.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path, help="file of outcomes, which is continued")
    parser.add_argument("words", nargs="*", help="presets with these words alone, not recorded")
    asked, packages = parser.parse_args(), installed()
    text = (ROOT / "conformance" / "models.jsonl").read_text()
    rows = [json.loads(x) for x in text.splitlines()]
    chosen = [x for x in rows if all(word in x["preset"] for word in asked.words)]
    ask_all(chosen, packages, asked.log)
    outcomes = tally(current(read(asked.log), rows, packages), packages)
    print("\n".join(peer_table(outcomes)))
    if not asked.words:
        keep("peers", outcomes)


if __name__ == "__main__":
    main()
