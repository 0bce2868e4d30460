"""docs/errors.md has every error, and its examples raise what it says, in the same words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ditron import errors

PAGE = Path(__file__).resolve().parents[2] / "docs/errors.md"
TEXT = PAGE.read_text()
SECTIONS = {
    found[1]: found[2]
    for found in re.finditer(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
}
BLOCKS = {
    name: found
    for name, text in SECTIONS.items()
    if (found := re.search(r"```python\n(.*?)```\n```text\n(.*?)```", text, re.DOTALL))
}
BASES = ("DitronError", "ProofError")


def test_every_error_is_there():
    known = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.DitronError)
    }
    assert set(SECTIONS) == known


def test_every_section_says_what_raises_it_and_what_to_do():
    for name, text in SECTIONS.items():
        if name not in BASES:
            assert "\nRaised: " in text, name
            assert "\nTo do: " in text, name


@pytest.mark.parametrize("name", BLOCKS)
def test_an_example_raises_what_the_page_shows(name: str):
    first = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert first is not None
    scope: dict[str, Any] = {"__name__": "prog"}
    exec(compile(first[1], "relu.py", "exec"), scope)
    code = compile(BLOCKS[name][1], "prog.py", "exec")
    kind = vars(errors)[name]
    with pytest.raises(kind) as caught:
        exec(code, scope)
    assert type(caught.value) is kind
    assert str(caught.value).strip() == BLOCKS[name][2].strip()
