"""The date and the license of a model in words."""

from __future__ import annotations

_MONTHS = (
    "January February March April May June July August September October November December"
).split()


def month_of(date: str | None) -> str | None:
    """Return the month of a date: `April 2024`."""
    if date is None:
        return None
    year, month, *_ = date.split("-")
    return f"{_MONTHS[int(month) - 1]} {year}"


_LICENSES = {
    "apache-2.0": "Apache 2.0",
    "mit": "MIT",
    "llama2": "Llama 2 license",
    "llama3": "Llama 3 license",
    "llama3.1": "Llama 3.1 license",
    "llama3.2": "Llama 3.2 license",
    "llama3.3": "Llama 3.3 license",
    "llama4": "Llama 4 license",
    "deepseek": "DeepSeek license",
    "gemma": "Gemma license",
    "qwen": "Qwen license",
    "qwen-research": "Qwen research license",
    "qwen-community-1.0": "Qwen community license 1.0",
    "tongyi-qianwen": "Tongyi Qianwen license",
    "tongyi-qianwen-research": "Tongyi Qianwen research license",
    "modified-mit": "modified MIT license",
    "exaone": "EXAONE license",
    "k-exaone": "K-EXAONE license",
    "kimi-k3": "Kimi K3 license",
    "glm-4": "GLM-4 license",
    "lfm1.0": "LFM license 1.0",
    "openmdw-1.1": "OpenMDW 1.1",
    "mrl": "Mistral research license",
    "mnpl": "Mistral non-production license",
    "falcon-180b": "Falcon 180B license",
    "falcon-llm-license": "Falcon LLM license",
    "falcon-mamba-7b-license": "Falcon Mamba 7B license",
    "nvidia-open-model-license": "NVIDIA open model license",
    "nvidia-nemotron-open-model-license": "NVIDIA Nemotron open model license",
    "jamba-open-model-license": "Jamba open model license",
    "minimax-community": "MiniMax community license",
    "tencent-hy-community": "Tencent Hy community license",
    "tencent-hunyuan-a13b": "Tencent Hunyuan A13B license",
    "grok-2-community": "Grok 2 community license",
    "cc-by-4.0": "CC BY 4.0",
    "cc-by-sa-4.0": "CC BY-SA 4.0",
    "cc-by-nc-4.0": "CC BY-NC 4.0",
    "cc-by-nc-sa-4.0": "CC BY-NC-SA 4.0",
    "bsd-3-clause": "BSD 3-Clause",
    "bigcode-openrail-m": "BigCode OpenRAIL-M",
    "bigscience-bloom-rail-1.0": "BigScience BLOOM RAIL 1.0",
    "apple-amlr": "Apple AMLR",
}


def license_name(name: str | None) -> str | None:
    """Return a license as people write it; `other` says only that it is none of the usual ones."""
    if name is None:
        return None
    if name == "other":
        return "license of its own"
    says_what = "license" in name or name.startswith(("cc-", "bsd-", "bigscience", "bigcode"))
    return _LICENSES.get(name) or (name if says_what else f"{name} license")
