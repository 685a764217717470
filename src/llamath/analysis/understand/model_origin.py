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
    "llama3": "Llama 3 license",
    "llama2": "Llama 2 license",
    "deepseek": "DeepSeek license",
}


def license_name(name: str | None) -> str | None:
    """Return a license as people write it; `other` says only that it is none of the usual ones."""
    if name is None:
        return None
    if name == "other":
        return "license of its own"
    says_what = "license" in name or name.startswith(("cc-", "bsd-", "bigscience", "bigcode"))
    return _LICENSES.get(name) or (name if says_what else f"{name} license")
