"""Write the table of the tensors that llama.cpp loads, from its source: `python
tools/llama_cpp_tensors.py FOLDER VERSION`.

FOLDER is llama.cpp's `src`, VERSION what to call it. A tensor is required if it is created
unconditionally and without a flag; a file with a tensor that no line creates is refused by
llama.cpp ("wrong number of tensors").
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from llamath.checkpoint.gguf_metadata.loaded_tensors import LOADED_TENSORS
from llamath.families.registry import gguf_architectures

_FUSED = {
    "_qkv": [f"blk.#.attn_{x}.{end}" for x in ("q", "k", "v", "qkv") for end in ("weight", "bias")],
    "_gate_up_exps": [f"blk.#.ffn_{x}_exps.weight" for x in ("gate", "up", "gate_up")],
}
"""Functions that create one of several forms of the same matrices."""
_CONDITION = re.compile(
    r"(?:if\s*\([^{};]*\)|else|case [^:{};]*:|default:"
    r"|\]\s*\([^()]*\)(?:\s*->\s*\w+)?)$"
)
_BRACKETS = {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}


def matching(text: str, start: int) -> str:
    """Return the text between the bracket at `start` and the one that closes it."""
    depth = 0
    for i in range(start, len(text)):
        depth += _BRACKETS.get(text[i], 0)
        if not depth:
            return text[start + 1 : i]
    raise ValueError(f"a bracket is not closed: {text[start : start + 60]}")


def arguments(text: str) -> list[str]:
    """Return the arguments of a call."""
    found, depth = [""], 0
    for c in text:
        depth += _BRACKETS.get(c, 0)
        if c == "," and not depth:
            found.append("")
        else:
            found[-1] += c
    return [x.strip() for x in found]


def tensors_of(body: str, names: dict[str, str]) -> tuple[set[str], set[str]]:
    """Return the names of the tensors that a function creates always, and of those that it
    creates sometimes."""
    blocks: list[bool] = []
    conditional = []
    for i, c in enumerate(body):
        if c == "{":
            blocks.append(_CONDITION.search(body[max(0, i - 200) : i].rstrip()) is not None)
        elif c == "}" and blocks:
            blocks.pop()
        conditional.append(any(blocks))
    required, optional = set[str](), set[str]()
    for call in re.finditer(r"create_tensor(_\w+)?\s*\(", body):
        if call[1]:
            optional.update(_FUSED[call[1]])
            continue
        given = arguments(matching(body, call.end() - 1))
        tensor = arguments(given[0].removeprefix("tn").strip()[1:-1])
        end = tensor[1].strip('"') if len(tensor) > 1 and tensor[1].startswith('"') else ""
        name = names[tensor[0]].replace("%d", "#") + (f".{end}" if end else "")
        alone = re.search(
            r"if\s*\([^{};]*\)\s*[\w.\->]*\s*=?\s*$",
            body[max(0, call.start() - 200) : call.start()],
        )
        (optional if conditional[call.start()] or alone or given[-1] != "0" else required).add(name)
    return required, optional - required


def main(folder: str, version: str) -> None:
    """Read the source and write the table."""
    source = Path(folder)
    arch = (source / "llama-arch.cpp").read_text()
    names = dict(re.findall(r'\{\s*(LLM_TENSOR_\w+),\s*"([^"]+)"\s*\}', arch))
    numbers = {
        text: number for number, text in re.findall(r'\{\s*(LLM_ARCH_\w+),\s*"([^"]+)"', arch)
    }
    classes = {}
    for x in re.finditer(
        r"((?:case LLM_ARCH_\w+:\s*)+)return new (llama_model_\w+)\(",
        (source / "llama-model.cpp").read_text(),
    ):
        classes |= dict.fromkeys(re.findall(r"LLM_ARCH_\w+", x[1]), x[2])
    bases = dict(
        re.findall(
            r"struct (llama_model_\w+)\s*(?:final\s*)?:\s*public (llama_model_\w+)",
            (source / "models" / "models.h").read_text(),
        )
    )
    bodies = {}
    for path in sorted((source / "models").glob("*.cpp")):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        for x in re.finditer(r"void (llama_model_\w+)::load_arch_tensors\(", text):
            bodies[x[1]] = matching(text, text.index("{", x.end()))
    table = {}
    for name in gguf_architectures():
        own = classes.get(numbers.get(name, ""), "")
        while own and own not in bodies:
            own = bases.get(own, "")
        if own:
            required, optional = tensors_of(bodies[own], names)
            table[name] = {
                "required": " ".join(sorted(required)),
                "optional": " ".join(sorted(optional)),
            }
    LOADED_TENSORS.write_text(
        json.dumps({"version": version, "architectures": table}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
