"""The catalog of presets: published models with name, public ids, release date, license, source,
parameters and config, in one file whose entries are parsed on demand.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from ..utils.errors import Call, UnknownModel, nearest, safe
from ..utils.record_type import Record

if TYPE_CHECKING:
    from .refused_models import RefusedModel

FILE = os.path.join(os.path.dirname(__file__), "presets.json")


class Preset(Record):
    """A published model. Its ids have weights of the same shapes; date, license and context are
    those of `public_id`.
    """

    slug: str
    name: str
    ids: tuple[str, ...]
    aliases: tuple[str, ...]
    public_id: str  # the id that was asked for: the first one, unless it is another one's
    # YYYY-MM-DD or YYYY-MM, when the weights became available; None if unknown
    released: str | None
    license: str | None  # as the repository names it; None if unknown
    organization: str | None  # that made the model; None if unknown
    source: str
    parameters: int
    config: Mapping[str, Any]
    grade: str = "file"  # where the configuration is from, one of `GRADES`
    unknown_keys: tuple[str, ...] = ()  # of the configuration, those that are not known here
    # ids with the first id's date, license and context, such as the instruct model published with
    # it
    same_release: tuple[str, ...] = ()
    # of other ids: those of date, license and context that are known, a name, a note, and further
    # unknown keys
    facts: Mapping[str, Mapping[str, Any]] = {}
    # what its publisher quantized, by dtype: the id, those of other ids with the same recipe, the
    # source of the recipe, and the recipe
    quantized: Mapping[str, Mapping[str, Any]] = {}
    # name of the model whose architecture this is, where facts of `public_id` are unknown
    architecture_of: str = ""
    unknown: tuple[str, ...] = ()  # what is unknown of `public_id`: context, license, date
    note: str = ""  # on `public_id`
    mtp_copies: bool = True  # whether MTP layers repeat the embedding and the head in its files

    def for_id(self, public_id: str) -> Preset:
        """Return the preset of one of its ids; what is not known of this id is not taken from
        the first one.
        """
        if public_id in (self.public_id, *self.same_release):
            return self.replace(public_id=public_id)
        facts = self.facts.get(public_id, {})
        unknown = tuple(
            word
            for word, key in (("context", "context"), ("license", "license"), ("date", "released"))
            if key not in facts
        )
        return self.replace(
            name=facts.get("name", public_id.rpartition("/")[2]),
            public_id=public_id,
            released=facts.get("released"),
            license=facts.get("license"),
            organization=_organization(public_id),
            config=_config_of(self.config, facts),
            unknown_keys=(*self.unknown_keys, *facts.get("unknown_keys", ())),
            architecture_of=self.name if unknown else "",
            unknown=unknown,
            note=facts.get("note", ""),
            quantized={
                dtype: {**x, "id": x["ids"][public_id]}
                for dtype, x in self.quantized.items()
                if public_id in x.get("ids", {})
            },
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known of an id that has another one's architecture, and of its
        configuration.
        """
        notes = [self.note] if self.note else []
        if self.unknown:
            notes.append(
                f"same architecture as {self.architecture_of}; {_words(self.unknown)} of "
                f"{self.public_id} {_verb(self.unknown)} not known here"
            )
        if self.unknown_keys:
            notes.append(
                f"{_words(self.unknown_keys)} in the config of {self.public_id} "
                f"{_verb(self.unknown_keys)} not known here"
            )
        return tuple(notes)


GRADES = {
    "file": "config.json as published, or a published table of dimensions",
    "copy": "config.json of a quantized copy",
    "subset": "keys of config.json as others quote them; the published total agrees",
    "assembled": "keys from several sources; the published total agrees",
    "defaults": "defaults of the class in transformers; the published total agrees",
}
"""How far the configuration of a preset is the published one."""


def _words(names: tuple[str, ...]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _verb(names: tuple[str, ...]) -> str:
    return "are" if len(names) > 1 else "is"


def normalize_name(name: str) -> str:
    """Return a name without case and punctuation, for comparison; a plus counts, as Command R+ is
    not Command R.
    """
    return "".join(x for x in name.lower().replace("+", "plus") if x.isalnum())


def normalize_with_dots(name: str) -> str:
    """Return a name without case and punctuation except dots: OPT 1.3B is not OPT 13B."""
    return "".join(x for x in name.lower().replace("+", "plus") if x.isalnum() or x == ".")


FORMS = (normalize_with_dots, normalize_name)
"""The ways in which names are compared, the stricter first."""


_ORGANIZATIONS = {
    "01-ai": "01.AI",
    "BSC-LT": "Barcelona Supercomputing Center",
    "ByteDance": "ByteDance",
    "ByteDance-Seed": "ByteDance",
    "CohereLabs": "Cohere",
    "EleutherAI": "EleutherAI",
    "HuggingFaceTB": "Hugging Face",
    "JetBrains": "JetBrains",
    "LGAI-EXAONE": "LG AI Research",
    "LLM360": "LLM360",
    "LiquidAI": "Liquid AI",
    "MiniMaxAI": "MiniMax",
    "NX-AI": "NXAI",
    "Nanbeige": "Nanbeige",
    "OpenAssistant": "OpenAssistant",
    "OpenGVLab": "Shanghai AI Laboratory",
    "OpenLLM-France": "OpenLLM France",
    "OrionStarAI": "OrionStar",
    "PrimeIntellect": "Prime Intellect",
    "Qwen": "Alibaba",
    "Salesforce": "Salesforce",
    "Soofi-Project": "SOOFI Consortium",
    "TinyLlama": "TinyLlama",
    "WeiboAI": "Weibo",
    "WizardLMTeam": "WizardLM",
    "XiaomiMiMo": "Xiaomi",
    "adept": "Adept",
    "ai21labs": "AI21 Labs",
    "allenai": "Allen Institute for AI",
    "amd": "AMD",
    "apple": "Apple",
    "arcee-ai": "Arcee AI",
    "badtheorylabs": "Bad Theory Labs",
    "baichuan-inc": "Baichuan",
    "baidu": "Baidu",
    "bigcode": "BigCode",
    "bigscience": "BigScience",
    "cerebras": "Cerebras",
    "codellama": "Meta",
    "croissantllm": "CroissantLLM",
    "databricks": "Databricks",
    "deepseek-ai": "DeepSeek",
    "distilbert": "Hugging Face",
    "facebook": "Meta",
    "google": "Google",
    "h2oai": "H2O.ai",
    "humain-ai": "HUMAIN",
    "ibm-ai-platform": "IBM",
    "ibm-granite": "IBM",
    "inceptionai": "Inception",
    "inclusionAI": "Ant Group",
    "internlm": "Shanghai AI Laboratory",
    "kakaocorp": "Kakao",
    "kyutai": "Kyutai",
    "meituan-longcat": "Meituan",
    "meta-llama": "Meta",
    "meta-models": "Meta",
    "microsoft": "Microsoft",
    "mistralai": "Mistral AI",
    "moonshotai": "Moonshot AI",
    "mosaicml": "MosaicML",
    "nvidia": "NVIDIA",
    "openai": "OpenAI",
    "openai-community": "OpenAI",
    "openbmb": "OpenBMB",
    "openchat": "OpenChat",
    "openlm-research": "OpenLM Research",
    "ornith-ai": "Ornith",
    "poolside": "Poolside",
    "rednote-hilab": "rednote",
    "rinna": "rinna",
    "sarvamai": "Sarvam AI",
    "stabilityai": "Stability AI",
    "stepfun-ai": "StepFun",
    "swiss-ai": "Swiss AI Initiative",
    "tencent": "Tencent",
    "thinkingmachines": "Thinking Machines Lab",
    "tiiuae": "Technology Innovation Institute",
    "togethercomputer": "Together AI",
    "tokyotech-llm": "Institute of Science Tokyo",
    "upstage": "Upstage",
    "utter-project": "EuroLLM",
    "xai-org": "xAI",
    "zai-org": "Z.ai",
}
"""Account on the Hugging Face Hub → the organization that makes models; accounts that copy models
are not listed.
"""


def _organization(public_id: str) -> str | None:
    return _ORGANIZATIONS.get(public_id.partition("/")[0])


def _config_of(config: Mapping[str, Any], facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of an id with these facts: with its context length, in the section of the
    text model where it is stated there, and without a dtype where another one's is not its own.
    """
    if "quantization_config" in facts.get("unknown_keys", ()):
        config = {x: y for x, y in config.items() if x not in ("dtype", "torch_dtype")}
    if (context := facts.get("context")) is None:
        return config
    key = "max_position_embeddings"
    text = config.get("text_config")
    if isinstance(text, Mapping) and key not in config:
        return {**config, "text_config": {**text, key: context}}
    return {**config, key: context}


@cache
def _file() -> bytes:
    with open(FILE, "rb") as file:
        return file.read()


@cache
def _entries() -> dict[str, str]:
    """Return the text of each preset; an entry begins and ends with a line of its own."""
    entries = _file().decode().removeprefix('{\n"').removesuffix("\n}\n").split(',\n"')
    return dict(x.split('": ', 1) for x in entries)


def _entry(slug: str) -> bytes:
    """Return the text of one preset, without reading the others; empty if there is none."""
    if _entries.cache_info().currsize:  # all are known already
        return _entries().get(slug, "").encode()
    if not slug.isprintable() or not {'"', "\\"}.isdisjoint(slug):
        return b""
    begin = f'\n"{slug}": '.encode()
    start = _file().find(begin)
    if start < 0:
        return b""
    end = _file().find(b',\n"', start)
    return _file()[start + len(begin) : end] if end >= 0 else _file()[start + len(begin) : -3]


def has_preset(slug: str) -> bool:
    """Whether there is a preset of exactly this name."""
    return bool(_entry(slug))


@cache
def slugs() -> tuple[str, ...]:
    """Return the names of all presets."""
    return tuple(_entries())


@cache
def read_preset(slug: str) -> Preset:
    """Read one preset."""
    from ..utils.strict_json import parse_json

    data = parse_json(_entry(slug), f"{FILE}, {slug}")
    ids = tuple(data["ids"])
    public_id = next(iter(ids), "")
    return Preset(
        slug=slug,
        name=data["name"],
        ids=ids,
        public_id=public_id,
        aliases=tuple(data.get("aliases", ())),
        released=data.get("released"),
        license=data.get("license"),
        organization=data.get("organization") or _organization(public_id),
        source=data["source"],
        parameters=data["parameters"],
        config=data["config"],
        grade=data.get("grade", "file"),
        unknown_keys=tuple(data.get("unknown_keys", ())),
        same_release=tuple(data.get("same_release", ())),
        facts=data.get("facts", {}),
        quantized=data.get("quantized", {}),
        mtp_copies=data.get("mtp_copies", True),
    )


def presets() -> Iterator[Preset]:
    """Yield all presets, by slug."""
    return map(read_preset, slugs())


def find_public_id(text: str) -> Preset | None:
    """Return the preset of a public id, or None; the Hub ignores case in ids, too, but not
    punctuation.
    """
    wanted = text.lower()
    named = (read_preset(slug) for slug, entry in _entries().items() if wanted in entry.lower())
    return next(
        (x.for_id(known) for x in named for known in x.ids if known.lower() == wanted), None
    )


def find_refused(name: str) -> RefusedModel | None:
    """Return the refused model of a name or public id, or None; without case and punctuation."""
    from .refused_models import REFUSED_MODELS

    wanted = normalize_with_dots(name)
    return next(
        (
            x
            for x in REFUSED_MODELS
            for known in (x.name, x.public_id, x.public_id.rpartition("/")[2])
            if normalize_with_dots(known) == wanted
        ),
        None,
    )


def refusal(model: RefusedModel) -> UnknownModel:
    """Return the error for a model that is known and refused."""
    return UnknownModel(
        f"{model.name} ({model.public_id}) is refused, not guessed: {model.reason}",
        hint=f"with a network, hf://{model.public_id} reads its config.json; "
        f"{Call('models')} lists the presets",
    )


def nearest_ids(public_id: str) -> list[str]:
    """Return the public ids of presets that are most similar to another id."""
    known = _public_ids()
    return [known[x] for x in nearest(normalize_name(public_id), known, cutoff=0.8)]


@cache
def _public_ids() -> dict[str, str]:
    return {normalize_name(x): x for preset in presets() for x in preset.ids}


def misspelled_ids(public_id: str) -> list[str]:
    """Return the public ids that this id misspells: one letter is missing, two are exchanged, or
    one inside of a word is wrong or too much. Digits make versions, and letters at the ends of
    words variants: GLM-4.5V, Bloomz and Ring are models of their own.
    """
    wanted = public_id.lower()
    return [
        known
        for preset in presets()
        for known in preset.ids
        if abs(len(known) - len(wanted)) < 2 and _is_misspelling(wanted, known.lower())
    ]


def _is_misspelling(wrong: str, right: str) -> bool:
    start = _common_length(wrong, right)
    found, expected = wrong[start:], right[start:]
    end = _common_length(found[::-1], expected[::-1])
    before, after = wrong[:start][-1:], wrong[len(wrong) - end :][:1]
    found, expected = found[: len(found) - end], expected[: len(expected) - end]
    if not (found + expected).isalpha():
        return False
    if len(found) == 2:
        return found == expected[::-1]
    inside = before.isalpha() and after.isalpha()
    twice = found == before and not expected
    return len(found) < 2 and len(expected) < 2 and (inside or twice or not found)


def _common_length(a: str, b: str) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


@cache
def _by_slug(form: Callable[[str], str]) -> dict[str, tuple[str, str]]:
    return {form(slug): (slug, "") for slug in slugs()}


@cache
def _by_other_name(form: Callable[[str], str]) -> dict[str, tuple[str, str]]:
    """Return the preset of each alias, and the preset and id of each id with and without its
    organization.
    """
    found: dict[str, tuple[str, str]] = {}
    for preset in presets():
        for alias in preset.aliases:
            found.setdefault(form(alias), (preset.slug, ""))
        for public_id in preset.ids:
            own_name = preset.facts.get(public_id, {}).get("name", public_id)
            for text in (public_id, public_id.rpartition("/")[2], own_name):
                found.setdefault(form(text), (preset.slug, public_id))
    return found


def find_preset(name: str) -> Preset:
    """Find a preset by name, alias or public id, ignoring case and punctuation; the error for an
    unknown name lists the nearest.
    """
    if has_preset(name):
        return read_preset(name)
    for names in (_by_slug, _by_other_name):
        for form in FORMS:
            if found := names(form).get(form(name)):
                slug, public_id = found
                return read_preset(slug).for_id(public_id) if public_id else read_preset(slug)
    if refused := find_refused(name):
        raise refusal(refused)
    known = {normalize_name(x): x for preset in presets() for x in (*preset.ids, preset.slug)}
    word = normalize_name(name)
    longer = [x for x in known if x.startswith(word) and "/" not in known[x]] if word else []
    near = [*dict.fromkeys(known[x] for x in (*longer, *nearest(word, known)))][:3]
    hint = (
        f"did you mean {', '.join(near)}?"
        if near
        else f"{Call('models')} lists the presets; a repository on the Hub is owner/name"
    )
    raise UnknownModel(
        f"{safe(name)!r} is not a file, folder, preset or known public id", hint=hint
    )
