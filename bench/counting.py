"""Process time of a count, compared with `python -c pass` and with tools that answer the same
question."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from harness import keep, report, side_by_side

PYTHON = sys.executable
LLAMATH = str(Path(PYTHON).parent / "llamath")
PRESET = "llama-3-8b"


def code(text: str) -> list[str]:
    return [PYTHON, "-c", text]


def own() -> dict[str, list[str]]:
    contract = "import json, llamath; print(json.dumps(llamath.count('%s').to_json()))"
    return {
        "python -c pass": code("pass"),
        "import llamath": code("import llamath"),
        "JSON count, library": code(contract % PRESET),
        "JSON count, command line": [LLAMATH, "count", PRESET, "--json"],
        "printed table": [LLAMATH, "count", PRESET],
        "DeepSeek-V3 totals, library": code(
            "import llamath; print(llamath.load('deepseek-v3').parameters)"
        ),
        "DeepSeek-V3 printed table": [LLAMATH, "count", "deepseek-v3"],
        "import click alone": code("import click"),
    }


def peers(config: Path) -> dict[str, list[str]]:
    meta = f"""
import torch, transformers
with torch.device('meta'):
    config = transformers.AutoConfig.from_pretrained({str(config)!r})
    model = transformers.AutoModelForCausalLM.from_config(config)
"""
    return {
        "llamath": [LLAMATH, "count", str(config), "--json"],
        "transformers on the meta device": code(
            meta + "print(sum(x.numel() for x in model.parameters()))"
        ),
        "torchinfo on that": code(
            meta + "import torchinfo; print(torchinfo.summary(model, verbose=0).total_params)"
        ),
        "accelerate's estimator, without its download": code(
            f"""
import transformers
from accelerate import init_empty_weights
from accelerate.utils import calculate_maximum_sizes
with init_empty_weights():
    config = transformers.AutoConfig.from_pretrained({str(config)!r})
    model = transformers.AutoModel.from_config(config)
print(calculate_maximum_sizes(model))
"""
        ),
    }


def main() -> None:
    import llamath

    results = [report("llamath alone", side_by_side(own(), 21), "python -c pass", 21)]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        for preset, rounds in (("llama-3-8b", 3), ("mixtral-8x7b", 3)):
            config.write_text(json.dumps(dict(llamath.load(preset).config.data)))
            results.append(
                report(f"peers, {preset}", side_by_side(peers(config), rounds), "llamath", rounds)
            )
    keep("counting", results)


if __name__ == "__main__":
    main()
