"""Regenerate tests/golden/chat.json: conversations as transformers renders the published chat
templates.

    python tools/regenerate_chat.py [--templates FOLDER]
        [--wheel transformers-4.43.4-py3-none-any.whl] [--check]

A template is taken from FOLDER/FORMAT.jinja, else from the Hugging Face repository in SOURCES
(gated ones need HF_TOKEN), else from the source code of transformers 4.43.4, the last version with
default templates (`pip download --no-deps transformers==4.43.4`). Entries whose template cannot be
obtained are kept and listed. `--check` writes nothing; the exit code is 1 if a text differs. The
tests get the token ids of Mistral's formats from mistral-common itself, so that they are not
stored.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

GOLDEN = Path(__file__).parents[1] / "tests" / "golden" / "chat.json"
CONVERSATION = [("user", "Count to 3."), ("assistant", " 1, 2, 3 "), ("user", "  and\nback  ")]
CONVERSATIONS = [CONVERSATION, [("system", " Be brief.\n"), *CONVERSATION], CONVERSATION[:1]]
"""Spaces at the ends show which turns a format strips."""


class Source(NamedTuple):
    """The source of a template, and the tokens that it refers to."""

    description: str
    bos: str = ""
    eos: str = ""
    repository: str = ""
    # a file in transformers 4.43.4, and the variable that the template is assigned to
    wheel: tuple[str, str] = ("", "")


_LLAMA, _COHERE = "transformers/models/llama", "transformers/models/cohere"
SOURCES = {
    "llama-2": Source(
        "transformers 4.43.4, LlamaTokenizer.default_chat_template",
        "<s>",
        "</s>",
        wheel=(f"{_LLAMA}/tokenization_llama.py", "template"),
    ),
    "command-r": Source(
        "transformers 4.43.4, CohereTokenizerFast.default_chat_template",
        "<BOS_TOKEN>",
        wheel=(f"{_COHERE}/tokenization_cohere_fast.py", "default_template"),
    ),
    "llama-3": Source(
        "transformers 4.43.4, convert_llama_weights_to_hf.py",
        "<|begin_of_text|>",
        wheel=(f"{_LLAMA}/convert_llama_weights_to_hf.py", "chat_template"),
    ),
    "chatml": Source(
        "teknium/OpenHermes-2.5-Mistral-7B",
        "<s>",
        "<|im_end|>",
        "teknium/OpenHermes-2.5-Mistral-7B",
    ),
    "gemma": Source("google/gemma-3-4b-it", "<bos>", "<eos>", "google/gemma-3-4b-it"),
    "phi-3": Source(
        "microsoft/Phi-3-small-8k-instruct, Phi-3-vision",
        "",
        "<|endoftext|>",
        "microsoft/Phi-3-vision-128k-instruct",
    ),
    "phi-4": Source("microsoft/phi-4", "<|endoftext|>", "<|im_end|>", "microsoft/phi-4"),
    "deepseek-v2": Source(
        "deepseek-ai/DeepSeek-V2-Chat",
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "deepseek-ai/DeepSeek-V2-Chat",
    ),
    "granite": Source(
        "ibm-granite/granite-3.0-8b-instruct",
        "",
        "<|end_of_text|>",
        "ibm-granite/granite-3.0-8b-instruct",
    ),
    "glm-4": Source("THUDM/glm-4-9b-chat", "", "<|endoftext|>", "THUDM/glm-4-9b-chat"),
    "zephyr": Source("HuggingFaceH4/zephyr-7b-beta", "<s>", "</s>", "HuggingFaceH4/zephyr-7b-beta"),
    "olmo-2": Source(
        "allenai/OLMo-2-1124-7B-Instruct",
        "<|endoftext|>",
        "<|endoftext|>",
        "allenai/OLMo-2-1124-7B-Instruct",
    ),
    "deepseek-v3": Source(
        "deepseek-ai/DeepSeek-V3",
        "<｜begin▁of▁sentence｜>",
        "<｜end▁of▁sentence｜>",
        "deepseek-ai/DeepSeek-V3",
    ),
    "llama-3.1": Source(
        "meta-llama/Llama-3.1-8B-Instruct, without its part for tools",
        "<|begin_of_text|>",
        "<|eot_id|>",
        "meta-llama/Llama-3.1-8B-Instruct",
    ),
    "llama-4": Source(
        "meta-llama/Llama-4-Scout-17B-16E-Instruct, without its part for tools",
        "<|begin_of_text|>",
        "<|eot|>",
        "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    ),
}
DEFAULT_TEXTS = {"USE_DEFAULT_PROMPT": "false", "DEFAULT_SYSTEM_MESSAGE": ""}
"""Replacements that transformers 4.43.4 makes in its default templates, without a default system
prompt."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--templates", type=Path, help="a folder with templates named FORMAT.jinja")
    parser.add_argument("--wheel", type=Path, help="the wheel of transformers 4.43.4")
    parser.add_argument(
        "--check", action="store_true", help="compare with the stored file and write nothing"
    )
    args = parser.parse_args()
    stored = {(x["format"], json.dumps(x["turns"])): x for x in json.loads(GOLDEN.read_text())}
    entries, different, kept = [], [], []
    for name, source in SOURCES.items():
        template = find_template(name, source, args.templates, args.wheel)
        if template is None:
            kept.append(name)
        for turns in CONVERSATIONS:
            old = stored.get((name, json.dumps(turns)))
            entry = {"format": name, "template": source.description, "turns": turns}
            text = (
                render(template, source, turns)
                if template is not None
                else old["text"]
                if old
                else ""
            )
            entries.append(entry | {"text": text})
            if old is None or old["text"] != text:
                different.append(f"{name}: {old and old['text']!r} -> {text!r}")
    print(*different, sep="\n", end="\n" if different else "")
    print(
        f"{len(different)} of {len(entries)} texts differ; without a template: "
        f"{', '.join(kept) or 'none'}"
    )
    if not args.check:
        GOLDEN.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
    return int(args.check and bool(different))


def find_template(name: str, source: Source, folder: Path | None, wheel: Path | None) -> str | None:
    """Return the template of a format from the first place that has it."""
    places: list[Callable[[], str | None]] = [
        lambda: (folder / f"{name}.jinja").read_text() if folder else None,
        lambda: read_from_hub(source.repository) if source.repository else None,
        lambda: read_from_wheel(wheel, *source.wheel) if wheel and source.wheel[0] else None,
    ]
    for read in places:
        try:
            result = read()
        except Exception as error:  # a missing file, a gated repository, no network
            print(
                f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:120]}",
                file=sys.stderr,
            )
            continue
        if result is not None:
            return result
    return None


def read_from_hub(repository: str) -> str | None:
    """Return the template of a repository: chat_template.jinja, else that of
    tokenizer_config.json."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        return Path(hf_hub_download(repository, "chat_template.jinja")).read_text()
    except EntryNotFoundError:
        config = json.loads(Path(hf_hub_download(repository, "tokenizer_config.json")).read_text())
    template = config.get("chat_template")
    if isinstance(template, list):
        template = next(x["template"] for x in template if x["name"] == "default")
    return template if isinstance(template, str) else None


def read_from_wheel(wheel: Path, file: str, variable: str) -> str:
    """Return the string that a source file in the wheel assigns to a variable, with its
    placeholders replaced; nothing is executed."""
    with zipfile.ZipFile(wheel) as archive:
        tree = ast.parse(archive.read(file).decode())
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == variable
        ):
            value = node.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                text = value.value
                for placeholder, replacement in DEFAULT_TEXTS.items():
                    text = text.replace(placeholder, replacement)
                return text
    raise LookupError(f"{file} assigns no string to {variable}")


def render(template: str, source: Source, turns: list[tuple[str, str]]) -> str:
    """Render a conversation as `apply_chat_template` does."""
    from transformers.utils.chat_template_utils import render_jinja_template

    messages: list[dict[str, Any]] = [{"role": role, "content": text} for role, text in turns]
    tokens = {"bos_token": source.bos, "eos_token": source.eos}
    (text,), _ = render_jinja_template(
        conversations=[messages], chat_template=template, add_generation_prompt=True, **tokens
    )
    return str(text)


if __name__ == "__main__":
    sys.exit(main())
