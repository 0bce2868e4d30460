"""The code of docs/authoring.md runs as it stands, and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs/authoring.md"


def test_the_page_runs(capsys: pytest.CaptureFixture[str]):
    text = PAGE.read_text()
    scope: dict[str, Any] = {"__name__": "authoring"}
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        line = text.count("\n", 0, block.start(1))
        code = "\n" * line + block.group(1)  # tracebacks show the page's own lines
        exec(compile(code, str(PAGE), "exec"), scope)
    printed = capsys.readouterr().out
    assert "1 output as the program says, on every rank" in printed
    assert printed.count("def ") == 1  # one fused function
    assert "torch.mm(" in printed
    assert "@take" in printed
    assert "next launch" in printed
