"""`write_file`: the lines of the one readable PyTorch file that is a model."""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ...checkpoint.naming.scheme import Scheme
from ...core.parameter_count import formula_symbols, sections_of
from ...core.tree import LETTERS, Block, Stack, fold
from ...model import FamilyModel
from ...utils.errors import safe
from ...utils.named_tuple import NamedTuple
from .checkpoint_names import hf_attributes as attributes_of
from .checkpoint_names import name_rows, numbered, other_formats, views
from .class_code import Attribute, ClassCode
from .class_words import class_summary
from .forward_code import Line
from .model_code import ModelWriter
from .refusal import NotWritten
from .symbols import DIM, NUMBER, SYMBOL, tag_of
from .syntax.line_breaks import WIDTH, break_line, with_comment, wrap
from .syntax.trees import Rewriter, changed, is_same, named, unparse, walk


class FileLine(NamedTuple):
    """A line of the file, and what it stands for."""

    text: str
    block: str = ""  # the class that it is in
    operations: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()  # patterns of paths


_NOTES: Mapping[str, str] = {
    "eps": "epsilon of the norms",
    "theta": "base of the rotary positions",
    "local_theta": "base of the rotary positions of layers with a window",
    "rope_factor": "factor of the context of pretraining",
    "original_context": "tokens of the context of pretraining",
    "low_freq_factor": "pairs that turn less often are slowed down",
    "high_freq_factor": "pairs that turn more often stay",
    "beta_fast": "pairs that turn more often in that context stay",
    "beta_slow": "pairs that turn less often are slowed down",
    "attention_factor": "factor of the rotated queries and keys",
    "rotary_dim": "channels of a head that turn",
    "window": "tokens that a layer with a window sees",
    "chunk": "tokens of a chunk, which see each other",
    "softcap": "limit of the logits",
    "attention_softcap": "limit of the attention scores",
    "attention_scale": "factor of the attention scores",
    "attention_scale_factor": "factor of the attention scores",
    "routed_scaling_factor": "factor of the experts' weights",
    "groups": "groups of experts",
    "kept_groups": "groups that a token's experts are chosen from",
    "top_k": "num_experts_per_tok",
    "layers": "number of layers",
    "max_bias": "exponent of ALiBi's steepest slope",
    "limit": "limit of activations",
    "gate_limit": "limit of the gate and of up",
    "gate_alpha": "factor inside the sigmoid",
    "residual_multiplier": "factor of each branch",
    "logit_scale": "factor of the logits",
    "embedding_scale": "factor of the embeddings",
}
"""Tag of a number of the config -> its description."""


_FIRST = ("d", "H", "K", "h", "F", "V", "L")
"""The letters that most models have, which come first."""


class _WithoutBias(Rewriter):
    """Leaves out bias=True of the modules that have a bias by default."""

    def visit(self, node: Any) -> Any:
        if isinstance(node, ast.Call) and node.keywords and unparse(node.func) in _BIASED:
            kept = [x for x in node.keywords if x.arg != "bias" or unparse(x.value) != "True"]
            node = changed(node, keywords=kept)
        return super().visit(node)


_BIASED = ("nn.Linear", "nn.LayerNorm")


class _Rename(Rewriter):
    """Gives the attributes of blocks other names."""

    def __init__(self, writer: FileWriter, block: Block) -> None:
        self._writer = writer
        self._block = block

    def visit(self, node: Any) -> Any:
        owner = self._owner(node.value) if isinstance(node, ast.Attribute) else None
        if owner is not None:
            node = changed(node, attr=self._writer.attribute(owner, node.attr))
        return super().visit(node)

    def _owner(self, x: ast.expr) -> Block | None:
        """Return the block that an expression is."""
        if isinstance(x, ast.Name):
            return self._block if x.id == "self" else None
        if isinstance(x, ast.Subscript):
            return self._owner(x.value)
        outer = self._owner(x.value) if isinstance(x, ast.Attribute) else None
        if outer is None:
            return None
        assert isinstance(x, ast.Attribute)
        child = getattr(outer, x.attr, None)
        return next(iter(child)) if isinstance(child, Stack) else _as_block(child)


def _as_block(x: object) -> Block | None:
    return x if isinstance(x, Block) else None


class FileWriter:
    """Writes the file of a model."""

    def __init__(self, model: FamilyModel, scheme: Scheme, *, hf_attributes: bool = False) -> None:
        self._model = model
        self._scheme = scheme
        self._code = ModelWriter(model)
        self._attributes = attributes_of(self._code, scheme) if hf_attributes else {}
        self._keep_paths_apart()
        self._fields: dict[str, str] = {}  # symbol → field of the config
        self._values: dict[str, Any] = {}  # field → value
        self._views = views(model.tree, scheme, self._dimension)
        self._find_fields()
        names = walk([x.tree for x in self._code.classes[-1].lines])
        self._has_positions = any(isinstance(x, ast.Name) and x.id == "pos" for x in names)
        if self._has_positions:
            self._code.use_method("length")
        self.buffers = sum(
            int(x.weight.size) * int(x.copies) for x in fold(model.tree) if x.weight.buffer
        )
        self.trained = sum(
            int(x.weight.parameters) * int(x.copies)
            for x in fold(model.tree)
            if not x.weight.buffer
        )

    def _keep_paths_apart(self) -> None:
        """Leave attributes their names that would give two weights one path, as in layers of two
        kinds.
        """
        known: dict[str, str] = {}
        for x in fold(self._model.tree) if self._attributes else ():
            other = known.setdefault(self.path(x.pattern), x.pattern)
            if other != x.pattern:
                names = {*x.pattern.split("."), *other.split(".")}
                same = set(x.pattern.split(".")) & set(other.split("."))
                kept = {k: v for k, v in self._attributes.items() if k[1] not in names - same}
                self._attributes = kept
                self._keep_paths_apart()
                return

    def _find_fields(self) -> None:
        """Find the fields of the config: dimensions and numbers that the code mentions."""
        used = dict.fromkeys([x for code in self._code.classes for x in code.symbols])
        letters = dict(self._code.letters) | self._code.symbols.letters
        order = [x for x in self._model.key_by_symbol if x in letters]
        order += [x for x in letters if x not in order]
        order.sort(key=lambda x: _FIRST.index(x) if x in _FIRST else len(_FIRST))
        read = {DIM + x for view in self._views for x in re.findall(r"\bc\.(\w+)", view.text)}
        for letter in order:
            if DIM + letter in used.keys() | read:
                self._fields[DIM + letter] = letter
                self._values[letter] = letters[letter]
        for symbol in used:
            if symbol.startswith(NUMBER):
                tag, value = self._code.symbols.numbers[symbol]
                name, i = tag, 1
                while name in self._values:
                    i += 1
                    name = f"{tag}_{i}"
                self._fields[symbol] = name
                self._values[name] = value

    def _dimension(self, x: int) -> str:
        tree = self._code.symbols.dimension(x)
        return unparse(tree).replace(DIM, "c.")

    # The file

    def lines(self) -> list[FileLine]:
        """Return all lines."""
        parts = [
            *self._config(),
            *self._support(),
            *(self._class(code) for code in self._code.classes),
            *self._loading(),
            _plain(
                "@torch.no_grad()",
                "def generate(model, ids, n, temperature=0.0, top_p=1.0):",
                '    """Append n tokens to ids (B, T), one by one: the likeliest, or drawn."""',
                "    cache, new = Cache(), ids",
                "    for _ in range(n):",
                "        logits = model(new, cache)[:, -1]  # (B, V)",
                "        if temperature == 0:",
                "            new = logits.argmax(-1, keepdim=True)",
                "        else:",
                "            p, order = (logits / temperature).softmax(-1).sort(descending=True)",
                "            p[p.cumsum(-1) - p > top_p] = 0  # keep the likeliest, up to this sum",
                "            new = order.gather(-1, p.multinomial(1))",
                "        ids = torch.cat((ids, new), 1)",
                "    return ids",
            ),
            _plain(*self._end()),
        ]
        lines = [x for part in parts for x in (*_plain("", ""), *part)]
        functions, lines = _named_functions(lines)
        text = "\n".join(x.text for x in lines)
        modules = [x for x in ("glob", "math", "re") if _uses(text, f"{x}.")]
        imports = [f"import {x}" for x in modules] + ["from dataclasses import dataclass", ""]
        imports += ["import torch", "from torch import nn"]
        if functions:
            line = f"from torch.nn.functional import {', '.join(functions)}"
            imports += [line] if len(line) <= WIDTH else break_line(f"{line[:32]}({line[32:]})")
        return [*_plain(*self._head(text), "", *imports), *lines]

    def _head(self, text: str) -> list[str]:
        model, code = self._model, self._code
        module = sys.modules.get(f"llamath.families.{model.family.name}")
        about = (module.__doc__ or "").strip().split("\n\n")[0] if module else ""
        n = self.trained + self.buffers
        tokens, keys = code.record.new_tokens.symbol, code.record.past_tokens.symbol
        lines = [f'"""{_in_docstring(model.name)}: {n:,} parameters.', ""]
        about = " ".join(about.split()).removesuffix(".")
        alone = f"Family: {about}. This file is this model alone."
        lines += [*wrap(alone), ""] if about else []
        partial = [x for x in model.notes if x.startswith("text model only")]
        partial = [_in_docstring(f"{x[0].upper()}{x[1:]}.") for x in partial]
        lines += [y for x in partial for y in (*wrap(x), "")]
        buffers = f", {self.buffers:,} of them in buffers" if self.buffers else ""
        formula = formula_symbols(sections_of(model.tree))
        lines += [*wrap(f"Parameters: {formula} = {n:,}{buffers}."), ""]
        has_keys = re.search(rf"\(B, {keys}\b", text)
        up_to_now = f", {keys} tokens up to now, those in the cache included" if has_keys else ""
        letters = (
            f"Letters of shapes: B sequences, {tokens} new tokens{up_to_now}; other "
            "letters are fields of Config."
        )
        how = (
            "Written by `llamath code`. It needs torch 2.5 or newer, and safetensors to load a "
            "checkpoint. All sequences of a batch have the same length, and there is no dropout. "
        )
        made = {"rope": "angles", "attention": "mask"}
        if anew := [x for name, x in made.items() if f"\ndef {name}(" in text]:
            how += f"Each layer computes its {' and '.join(anew)} anew. "
        further = self._model.config.data.get("num_nextn_predict_layers")
        if further and "mtp" not in dict(self._model.tree.children):
            how += "Layers that predict further tokens (num_nextn_predict_layers) are left out. "
        how += (
            "`load` does not read config.json: the sizes are those of Config. A model that is not "
            "loaded has the initial values of torch, not those of its authors."
        )
        return [*lines, *wrap(letters), "", *wrap(how), '"""']

    def _config(self) -> Iterator[list[FileLine]]:
        keys = self._model.key_by_symbol
        rows = []
        for symbol, name in self._fields.items():
            value = self._values[name]
            note = keys.get(name, "") if symbol.startswith(DIM) else _NOTES.get(tag_of(symbol), "")
            note = self._yarn_note(name) or note
            if not note and symbol.startswith(NUMBER):
                note = tag_of(symbol).replace("_", " ")
            rows.append(
                (f"    {name}: {type(value).__name__} = {_number(value)}", note.split("|")[0])
            )
        width = max((len(a) for a, _ in rows if len(a) < 50), default=0)
        lines = ["@dataclass", "class Config:"]
        name = _in_docstring(self._model.name)
        lines += [*_docstring(f"The sizes and numbers of {name}.", 4), ""]
        for a, b in rows:
            line = with_comment(a, b, width)
            lines += break_line(a) if len(a) > WIDTH else [line if len(line) <= WIDTH else a]
        yield _plain(*lines)

    def _yarn_note(self, name: str) -> str:
        """Return what a factor is that YaRN's factor of the context decides."""
        root = 0.1 * math.log(max(float(self._values.get("rope_factor", 1)), 1)) + 1
        factor = "0.1 · ln(rope_factor) + 1"
        for text, value in ((factor, root), (f"({factor})²", root * root)):
            if root > 1 and _is_near(self._values[name], value):
                return f"YaRN: {text}"
        return ""

    def _support(self) -> Iterator[list[FileLine]]:
        for name, lines in self._code.support():
            yield [FileLine(text=x, block=name) for x in lines]

    def _class(self, code: ClassCode) -> list[FileLine]:
        whole = code.name == "Model"
        own = {self.attribute(code.block, x.name) for x in code.attributes}
        ropes = _Pack()
        renamed = _Rename(self, code.block)
        trees = [x.tree for x in code.lines]
        trees = [renamed.visit(x) for x in trees] if self._attributes else trees
        if any("rope" in x.operations for x in code.lines):
            trees = [ropes.visit(x) for x in trees]
        arguments = ["self", *(["c"] if code.needs_config else []), *code.parameters]
        head_lines = [f"class {code.name}(nn.Module):", *_docstring(class_summary(code), 4), ""]
        head_lines += break_line(f"    def __init__({', '.join(arguments)}):")
        head_lines += ["        super().__init__()", *self._kept(code, own, trees, ropes)]
        lines = _plain(*head_lines, block=code.name)

        rows = [
            (f"        self.{self.attribute(code.block, x.name)} = {self._text(x.tree, 'c')}", x)
            for x in code.attributes
        ]
        width = max((len(a) for a, x in rows if x.note and len(a) < 66), default=0)
        for a, x in rows:
            lines += _attribute(a, x, width, code.name)
        head = self._model.tree.head
        if whole and head is not None and head.weight.tied:
            head_name, embed = (self.attribute(code.block, x) for x in ("head", "embed"))
            tied = f"        self.{head_name}.weight = self.{embed}.weight"
            lines += _plain(tied, block=code.name)
        if code.lines:
            lines += _plain("", *self._forward_head(code), block=code.name)
        for tree, line in zip(trees, code.lines, strict=True):
            if whole and isinstance(tree, ast.Return) and self._has_positions:
                lines += _plain("        cache.length = length", block=code.name)
            lines += _statement(self._text(tree, "self", own), line, code.name)
        return lines

    def _text(self, tree: ast.AST, owner: str, taken: Collection[str] = ()) -> str:
        """Return the text of a tree, with attributes of the config, or of the module, in the place
        of symbols.
        """

        def field(found: re.Match[str]) -> str:
            name = self._fields[found[0]]
            return f"{owner}.{name}{'_' * (name in taken)}"

        text = unparse(tree)
        if owner == "c" and "bias=True" in text:
            text = unparse(_WithoutBias().visit(tree))
        return SYMBOL.sub(field, text)

    def _kept(
        self, code: ClassCode, own: set[str], trees: list[Any], ropes: _Pack
    ) -> Iterator[str]:
        """Yield the lines that keep numbers of the config for the forward pass."""
        packed = ropes.found and {y.id for y in walk(trees) if isinstance(y, ast.Name)}
        pairs = []
        for symbol in code.kept_symbols:
            if not packed or symbol in packed:
                name = self._fields[symbol]
                pairs.append((name + "_" * (name in own), f"c.{name}"))
        text = " ".join(map(unparse, trees)) if code.kept_parameters else ""
        pairs += [(x, x) for x in code.kept_parameters if f"self.{x}" in text]
        fields = list(self._fields.values())
        pairs = sorted(dict.fromkeys(pairs), key=lambda x: _place(fields, x[1]))
        while pairs:
            n = len(pairs)
            while n > 1 and len(_assignment(pairs[:n])) > WIDTH:
                n -= 1
            yield _assignment(pairs[:n])
            pairs = pairs[n:]
        for name, tree in ropes.found.items():
            text = self._text(tree, "c").replace("self.", "")
            yield from break_line(f"        self.{name} = {text}")

    def _forward_head(self, code: ClassCode) -> list[str]:
        if code.name == "Model":
            tokens = self._code.record.new_tokens.symbol
            lines = [
                f"    def forward(self, ids, cache=None):  # ids (B, {tokens}) of new tokens",
                "        cache = Cache() if cache is None else cache",
            ]
            if "prompt" in self._code.methods:
                lines.append("        cache.prompt = cache.prompt or ids.shape[1]  # first pass")
            if self._has_positions:
                lines += [
                    "        length = cache.length + ids.shape[1]  # of the sequence up to now",
                    "        pos = torch.arange(cache.length, length, device=ids.device)",
                ]
            return lines
        read = {y for x in code.variants for y in self._code.reads(x.block)}
        inputs = ["self", *code.inputs, *(x for x in ("pos", "cache") if x in read)]
        return [f"    def forward({', '.join(inputs)}):"]

    # Checkpoints

    def _loading(self) -> Iterator[list[FileLine]]:
        places = {x.pattern for x in fold(self._model.tree)}
        patterns = {numbered(self.path(x)) for x in places}
        rows, shifted = name_rows(self._model, self._scheme, self.path), self._scheme.first_layer
        if shifted not in (0, 1):
            raise NotWritten(f"files that number layers from {shifted}")
        kinds = [{"meta": "Meta's", "gguf": "GGUF"}[x] for x in other_formats(self._model)]
        others = f"  # in {', in '.join(kinds)} files" if kinds else ""
        lines = [f"NAMES = {{  # module here: its name in Hugging Face's files{others}"]
        if any("*" in x.others for x in rows):
            starred = "# * rows in another order: the two channels of a pair of rope are neighbours"
            lines.insert(0, starred)
        texts = [(f'    "{x.module}": "{x.stored}",', x.others) for x in rows]
        width = max((len(a) for a, _ in texts if _has_room(texts, len(a))), default=0)
        for a, b in texts:
            line = with_comment(a, b, width if len(a) <= width else 0)
            key, _, name = a.strip().partition(": ")
            if len(line) <= WIDTH:
                lines.append(line)
            elif len(a) <= WIDTH:
                lines += [f"    # {b}", a]
            else:
                above = with_comment(f"    {key}: (", b)
                lines += [above, f"        {name.rstrip(',')}", "    ),"]
        yield _plain(*lines, "}")
        found = 'f"{NAMES[module]}.{leaf}"'
        if any(x.module in patterns for x in rows):  # not all weights are those of a module
            found = f"(NAMES.get(pattern) or {found})"
        yield _plain(
            "def stored_name(name):",
            '    """Map the name of a weight in this file to its name in a checkpoint."""',
            '    pattern, numbers = re.sub(r"\\.\\d+", ".{}", name), re.findall(r"\\d+", name)',
            '    module, _, leaf = pattern.rpartition(".")',
            *(["    numbers[:1] = [str(int(x) + 1) for x in numbers[:1]]"] if shifted else []),
            f"    return {found}.format(*numbers)",
        )
        if self._views:
            yield self._view_lines()
        yield _plain(*self._load())

    def _view_lines(self) -> list[FileLine]:
        given = "c" if any("c." in x.text for x in self._views) else ""
        lines = [
            f"def views({given}):",
            '    """How to read the weights that are stored in another form."""',
            "    return {",
        ]
        parameters = "x, e" if any(x.of_expert for x in self._views) else "x"
        for x in self._views:
            name = numbered(self.path(x.pattern))
            line = f'        "{name}": lambda {parameters}: {x.text},'
            if len(line) <= WIDTH:
                lines.append(line)
            else:
                lines.append(f'        "{name}": lambda {parameters}: (')
                lines += [f"            {x.text}", "        ),"]
        return _plain(*lines, "    }")

    def _load(self) -> list[str]:
        lines = [
            "def load(folder, c=None):",
            '    """Read a checkpoint with these names: a folder with *.safetensors files."""',
            "    from safetensors.torch import load_file",
            "",
            "    c, stored, state = c or Config(), {}, {}",
            '    for file in glob.glob(f"{folder}/*.safetensors"):',
            "        stored |= load_file(file)",
            '    with torch.device("meta"):',
            "        model = Model(c)",
            "    for name in model.state_dict():",
            "        x = stored.get(stored_name(name))",
            "        if x is None or x.dtype.itemsize < 2:",
            '            what = "missing" if x is None else f"quantized, {x.dtype}"',
            '            raise ValueError(f"{stored_name(name)} in {folder} is {what}")',
        ]
        if self._views:
            given = "c" if any("c." in x.text for x in self._views) else ""
            lines.insert(-5, f"    known = views({given})")
            value = "view(x)"
            lines.append('        view = known.get(re.sub(r"\\.\\d+", ".{}", name))')
            if any(x.of_expert for x in self._views):
                lines.append('        e = int(re.findall(r"\\d+", f"0.{name}")[-1])  # its expert')
                value = "view(x, e)"
            lines.append(f"        state[name] = x if view is None else {value}.contiguous()")
        else:
            lines.append("        state[name] = x")
        lines.append("    model.load_state_dict(state, assign=True)")
        head = self._model.tree.head
        if head is not None and head.weight.tied:
            names = [self.attribute(self._model.tree, x) for x in ("head", "embed")]
            lines.append("    model.{}.weight = model.{}.weight".format(*names))
        return [*lines, "    return model"]

    def _end(self) -> list[str]:
        note = f"  # its buffers have {self.buffers:,} numbers" if self.buffers else ""
        return [
            'if __name__ == "__main__":',
            '    with torch.device("meta"):  # allocates no weights',
            f"        model = Model(Config()){note}",
            f"    assert sum(x.numel() for x in model.parameters()) == {self.trained:_}",
        ]

    def attribute(self, block: Block, name: str) -> str:
        """Return the name of an attribute of a block's class."""
        if not self._attributes:
            return name
        return self._attributes.get((str(self._code.class_name(block)), name), name)

    def path(self, pattern: str) -> str:
        """Return the path of a weight or module in the file."""
        if not self._attributes:
            return pattern
        found, block = [], _as_block(self._model.tree)
        for name in pattern.split("."):
            if name in LETTERS:
                found.append(name)
                continue
            found.append(name if block is None else self.attribute(block, name))
            child = getattr(block, name, None)
            if isinstance(child, Stack):
                rest = pattern.split(".")[len(found) + 1 :]
                child = next(x for x, _ in child.distinct() if _has_path(x, rest))
            block = _as_block(child)
        return ".".join(found)

    # What formulas ask

    @property
    def model(self) -> FamilyModel:
        """The model that is written."""
        return self._model

    @property
    def classes(self) -> list[ClassCode]:
        """The classes, inner ones first."""
        return self._code.classes

    @staticmethod
    def summary_of(code: ClassCode) -> str:
        """Return the docstring of a class."""
        return class_summary(code)

    def value_of(self, symbol: str) -> Any:
        """Return the value of a number."""
        return self._code.symbols.numbers[symbol][1]


class _Pack(Rewriter):
    """Puts `*self.rope` in the place of the numbers of a rotary embedding."""

    def __init__(self) -> None:
        self.found: dict[str, ast.expr] = {}

    def visit(self, node: Any) -> Any:
        if not isinstance(node, ast.Starred) or not isinstance(node.value, ast.Tuple):
            return super().visit(node)
        name = next((k for k, x in self.found.items() if is_same(x, node.value)), "")
        if not name:
            name = "rope" if not self.found else f"rope_{len(self.found) + 1}"
            self.found[name] = node.value
        return ast.Starred(ast.Attribute(named("self"), name))


def _has_path(block: Block, names: list[str]) -> bool:
    """Whether a block has a part at this path."""
    x: Any = block
    for name in names:
        x = (next(iter(x)) if x else None) if name in LETTERS else getattr(x, name, None)
    return x is not None


def _plain(*lines: str, block: str = "") -> list[FileLine]:
    return [FileLine(x, block) for x in lines]


def _attribute(text: str, made: Attribute, width: int, block: str) -> list[FileLine]:
    """Return the lines that make a part, with its comment if there is room for it."""
    note, weights = made.note, made.weights
    for comment in (note, note.rpartition(", ")[0] if " parameters" in note else "", ""):
        aligned = with_comment(text, comment, width)
        if len(aligned) <= WIDTH:
            return [FileLine(text=aligned, block=block, weights=weights)]
    above = f"        # {note}"
    lines = _plain(above, block=block) if note and len(above) <= WIDTH else []
    return [*lines, *(FileLine(text=x, block=block, weights=weights) for x in break_line(text))]


def _is_near(x: Any, value: float) -> bool:
    return isinstance(x, float) and math.isclose(x, value, rel_tol=1e-12)


def _has_room(texts: list[tuple[str, str]], column: int) -> bool:
    """Whether the comments of all lines that end before a column fit there."""
    return all(len(a) > column or column + len(b) + 4 <= WIDTH for a, b in texts)


def _place(fields: list[str], value: str) -> int:
    """Return where a field of the config is; the parameters of a class are behind these."""
    name = value.removeprefix("c.")
    return fields.index(name) if value.startswith("c.") else len(fields)


def _statement(text: str, line: Line, block: str) -> Iterator[FileLine]:
    """Yield the lines of a statement, with its comment if there is room for it."""
    for code in text.split("\n"):
        code = f"        {code}"
        fits = (x for x in _comments(line.comment) if len(code) + len(x) + 4 <= WIDTH)
        whole = [with_comment(code, next(fits, ""))] if len(code) <= WIDTH else break_line(code)
        for x in whole:
            yield FileLine(text=x, block=block, operations=line.operations, weights=line.weights)


def _docstring(text: str, indent: int) -> list[str]:
    margin = " " * indent
    lines = wrap(f'{margin}"""{text}"""', indent)
    return lines if len(lines) == 1 else [*wrap(f'{margin}"""{text}', indent), f'{margin}"""']


def _in_docstring(text: str) -> str:
    """Escape what may have the name of a file, which anybody may have chosen: it neither ends the
    docstring nor begins an escape sequence.
    """
    return safe(text, 400).replace("\\", r"\\").replace('"', r"\"")


def _assignment(pairs: list[tuple[str, str]]) -> str:
    names, values = ", ".join(f"self.{a}" for a, _ in pairs), ", ".join(b for _, b in pairs)
    return f"        {names} = {values}"


def _comments(comment: str) -> list[str]:
    """Return the comment of a line and shorter ones, which are tried in this order."""
    shape, _, remark = comment.partition(": ")
    letters = shape.split(" = ")[0]
    return [comment, *([f"{letters}: {remark}"] if remark else []), shape, letters]


def _named_functions(lines: list[FileLine]) -> tuple[list[str], list[FileLine]]:
    """Return the functions of torch.nn.functional that lines use, and the lines with their names.

    Support functions import theirs by name.
    """
    pattern = re.compile(r"(?<![\w.])F\.(\w+)")
    text = "\n".join([x.text for x in lines])
    used = {x for line in lines if "F." in line.text for x in pattern.findall(line.text)}
    used.update(x for x in _IMPORTED if _uses(text, f"{x}("))
    own = {x.text.split("(")[0].removeprefix("def ") for x in lines if x.text.startswith("def ")}
    named = (x._replace(text=pattern.sub(r"\1", x.text)) if "F." in x.text else x for x in lines)
    return sorted(used - own), list(named)


def _uses(text: str, beginning: str) -> bool:
    """Whether a text has a name that begins so."""
    at = text.find(beginning)
    while at > 0 and (text[at - 1].isalnum() or text[at - 1] in "_."):
        at = text.find(beginning, at + 1)
    return at >= 0


_IMPORTED = ("scaled_dot_product_attention", "conv1d", "softplus", "rms_norm")


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_number, value))})"
    if isinstance(value, float):
        if value != int(value) or abs(value) >= 1e16:
            return repr(value).replace("e-0", "e-")
        return f"{value:_.1f}" if abs(value) >= 10_000 else f"{value:.1f}"
    return f"{value:_}" if isinstance(value, int) and abs(value) >= 10_000 else repr(value)
