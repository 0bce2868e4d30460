"""Emitted source as a Python module: a real file, so that Triton and tracebacks can read it."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from ditron.errors import PlanError


def write_source(source: str, folder: Path) -> Path:
    """Write source to a file named after what it says."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    path = folder / f"ditron_{digest}.py"
    if not path.exists():
        draft = path.with_suffix(f".{id(source)}.tmp")
        draft.write_text(source, encoding="utf-8")
        draft.replace(path)
    return path


def load_source(path: Path) -> ModuleType:
    """Import the module in a file.

    Raises:
        PlanError: it is not a Python file.
    """
    name = f"ditron_kernels.{path.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PlanError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
