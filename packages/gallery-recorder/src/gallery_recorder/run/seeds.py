"""Seed random number generators for an example, without importing a library."""

import importlib.util
import random
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

#: How to seed each library, by the module whose import creates its generator.
_SEEDING: dict[str, Callable[[Any, int], object]] = {
    "numpy.random": lambda module, seed: module.seed(seed),
    "torch": lambda module, seed: module.manual_seed(seed),
}


def seed_all(seed: int) -> None:
    """Seed Python's generator and those of libraries, now or once they are imported."""
    random.seed(seed)
    for name, function in _SEEDING.items():
        if name in sys.modules:
            function(sys.modules[name], seed)
    sys.meta_path.insert(0, _Seeding(seed))


class _Seeding(MetaPathFinder):
    """Finds modules as usual; seeds those in ``_SEEDING`` after their import."""

    def __init__(self, seed: int) -> None:
        self._seed, self._sought = seed, ""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """The spec of a module to be seeded; None for all others."""
        if fullname not in _SEEDING or fullname == self._sought:
            return None
        self._sought = fullname
        spec = importlib.util.find_spec(fullname)
        self._sought = ""
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def execute_and_seed(module: ModuleType) -> None:
                execute(module)
                _SEEDING[fullname](module, self._seed)

            spec.loader.exec_module = execute_and_seed  # type: ignore[method-assign]
        return spec
