"""A few golden tests as lit runs them: real processes, pipes and exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_tools_under_lit() -> None:
    lit = [sys.executable, "-c", "from lit.main import main; main()", "-v", str(HERE / "tools")]
    done = subprocess.run(lit, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed: 3" in done.stdout, done.stdout
