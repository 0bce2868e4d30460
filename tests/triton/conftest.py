from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ditron.backends.triton.interpreted import Worker

collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["test_*.py"]

# Another environment with another Triton to run the same tests in.
OTHER = os.environ.get("DITRON_OTHER_PYTHON")
PYTHONS = [sys.executable, *([OTHER] if OTHER else [])]


@pytest.fixture(scope="session", params=PYTHONS, ids=lambda p: Path(p).parents[1].name)
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    pytest.importorskip("greenlet")
    pytest.importorskip("ml_dtypes")
    made = Worker(request.param)
    yield made
    made.close()
