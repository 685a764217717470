"""`PeftTargets`: which modules and parameters of a model the configuration of an adapter of peft
selects.

Names in `target_modules` are the ends of modules' names, those in `target_parameters` the ends of
parameters' names: `down_proj` is a parameter of that name in any module, `gate.weight` that of any
module `gate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from ...utils.dotted_names import DottedNames
from ...utils.errors import ConfigError, safe
from ...utils.linear_regex import LinearRegex, PatternList

ALL_LINEAR = "all-linear"
"""The value of `target_modules` for every linear layer but the head."""
_EXPERT_PARAMETERS = (
    "gate_up_proj",
    "gate_up_proj_bias",
    "gate_proj",
    "w1",
    "up_proj",
    "w3",
    "down_proj",
    "w2",
    "down_proj_bias",
    "input_linear",
    "output_linear",
    "weight",
    "bias",
)
"""Parameters of experts' modules in the order in which transformers defines them, and in which
peft nests adapters of one module."""


class ModulePatterns:
    """Names or a regular expression that select modules, with peft's rules."""

    def __init__(self, names: object, where: str) -> None:
        self.names: tuple[str, ...] = ()
        self.regex: LinearRegex | None = None
        if isinstance(names, str):
            self.regex = LinearRegex(names, lambda problem: ConfigError(f"{where}: {problem}"))
        elif names is not None:
            self.names = parse_names(names, where)
        self._exact = frozenset(self.names)
        self._ends = DottedNames(self.names, from_end=True)

    def names_whole(self, module: str) -> bool:
        """Whether the whole name of a module is listed; such a module is selected in any layer."""
        return module in self._exact

    def matches(self, module: str) -> bool:
        """Whether a module is selected: by its whole name, by its end, or by the regular
        expression.
        """
        return (
            any(True for _ in self._ends.along(module))
            if self.regex is None
            else self.regex.fullmatch(module)
        )


def parse_names(value: object, where: str) -> tuple[str, ...]:
    """Return a list of names; raise for any other value."""
    if isinstance(value, (list, tuple)) and all(isinstance(x, str) for x in value):
        return tuple(value)
    raise ConfigError(f"{where} should be a list of names, found {safe(repr(value), 60)}")


class LayerFilter:
    """`layers_to_transform` and `layers_pattern`: the layers in which modules are selected."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        layers = config.get("layers_to_transform")
        numbers = [layers] if type(layers) is int else layers or []
        if not isinstance(numbers, list) or not all(type(x) is int for x in numbers):
            raise ConfigError(
                f"{where}: layers_to_transform should be a list of numbers, found "
                f"{safe(repr(layers), 60)}"
            )
        self.layers = (
            None
            if isinstance(config.get("target_modules"), str) or not numbers
            else frozenset(numbers)
        )
        patterns = config.get("layers_pattern") or ()
        names = (
            (patterns,)
            if isinstance(patterns, str)
            else parse_names(patterns, f"{where}: layers_pattern")
        )
        self._has_patterns = bool(names)
        self._patterns = PatternList(
            (rf"(.*?\.)?({x})" for x in names),
            lambda problem: ConfigError(f"{where}: layers_pattern: {problem}"),
        )

    def has(self, module: str) -> bool:
        """Whether a module is in one of the layers."""
        return self.layers is None or self._layer(module) in self.layers

    def _layer(self, module: str) -> int | None:
        """Return the number of its layer, which follows `layers_pattern`, or any name inside
        another.
        """
        parts = module.split(".")
        is_before = (
            self._patterns.match_parents(module)
            if self._has_patterns
            else (i > 0 for i in range(len(parts)))
        )
        for part, matched in zip(parts[1:-1], is_before, strict=False):
            if matched and part.isdecimal() and len(part) < 10:
                return int(part)
        return None


class PeftTargets:
    """The modules and parameters that the configuration of an adapter selects, by peft's rules."""

    def __init__(self, config: Mapping[str, Any], where: str) -> None:
        self._config, self._where = config, where
        targets = config.get("target_modules")
        self.is_all_linear = isinstance(targets, str) and targets.lower() == ALL_LINEAR
        self.saved = self._names("modules_to_save")
        self.parameters = self._names("target_parameters")
        self._parameter_ends = DottedNames(self.parameters, from_end=True)
        self._anywhere = frozenset(x for x in self.parameters if "." not in x)
        paths: dict[str, set[str]] = {}
        for path, dot, parameter in (x.rpartition(".") for x in self.parameters):
            if dot:
                paths.setdefault(path, set()).add(parameter)
        self._by_path = [frozenset(x) for x in paths.values()]
        self._path_ends = DottedNames(paths, from_end=True)

    def _names(self, key: str) -> tuple[str, ...]:
        return parse_names(self._config.get(key) or (), f"{self._where}: {key}")

    # patterns are read where they decide something: an adapter that only lists its tensors may have
    # some that are not supported

    @cached_property
    def modules(self) -> ModulePatterns:
        """The patterns of `target_modules`; none for `all-linear`."""
        targets = None if self.is_all_linear else self._config.get("target_modules")
        return ModulePatterns(targets, f"{self._where}: target_modules")

    @cached_property
    def layers(self) -> LayerFilter:
        """The layers in which modules are selected."""
        return LayerFilter(self._config, self._where)

    @cached_property
    def _excluded(self) -> ModulePatterns:
        return ModulePatterns(
            self._config.get("exclude_modules"), f"{self._where}: exclude_modules"
        )

    @cached_property
    def _saved(self) -> PatternList:
        return PatternList(
            (rf"((^|.*\.){x}($|\..*)).*" for x in self.saved),
            lambda problem: ConfigError(f"{self._where}: modules_to_save: {problem}"),
        )

    def names_module(self, module: str) -> bool:
        """Whether `target_modules` selects a module; `all-linear` names none."""
        return not self.is_all_linear and self.modules.matches(module) and self.allows(module)

    def allows(self, module: str) -> bool:
        """Whether no other key excludes a module."""
        return (
            not self._excluded.matches(module)
            and (self.modules.names_whole(module) or self.layers.has(module))
            and not self._saved.full_matches(module)
        )

    def names_parameter(self, parameter: str) -> bool:
        """Whether `target_parameters` selects a parameter."""
        return any(True for _ in self._parameter_ends.along(parameter))

    def adapted_parameter(self, module: str, depth: int, deepest: int) -> str:
        """Return the parameter of a module to which the adapter at this depth of nesting belongs,
        or an empty string for an adapter of the module itself.

        A module is adapted itself or in its parameters. Adapters of several of them are nested, the
        first parameter innermost. A name without a module is taken for a parameter of this module
        only if the file has an adapter for it.
        """
        names = self._by_path_of(module)
        if len(names) <= deepest:
            names |= self._anywhere
        if not names or self.names_module(module):
            if depth:
                raise ConfigError(
                    f"{self._where}: target_parameters names no parameter of {safe(module)}, "
                    "which has nested adapters"
                )
            return ""
        if len(names) == 1 and not deepest:
            return next(iter(names))
        known = [x for x in _EXPERT_PARAMETERS if x in names]
        if len(known) != len(names) or deepest + 1 != len(known):
            found = f"{deepest + 1} adapters for {', '.join(safe(x, 40) for x in sorted(names))}"
            raise ConfigError(
                f"{self._where}: expected one adapter for each of target_parameters in "
                f"{safe(module)}, found {found}"
            )
        return known[deepest - depth]

    def _by_path_of(self, module: str) -> frozenset[str]:
        return frozenset().union(*(self._by_path[i] for i in self._path_ends.along(module)))
