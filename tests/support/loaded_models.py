"""`LoadedModels`: models that several tests of a file use, each loaded when it is first asked for,
so that collection loads none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import llamath


class LoadedModels(Mapping[str, llamath.Model]):
    """The models of these presets."""

    def __init__(self, *names: str) -> None:
        self._models: dict[str, llamath.Model | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> llamath.Model:
        if (model := self._models[name]) is None:
            self._models[name] = model = llamath.load(name)
        return model

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)
