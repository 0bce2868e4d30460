"""Every op has its things, found by its name.

For op `task.all_gather`: class `AllGatherOp`; its name in a valid golden test
`tests/filecheck/task/*.mlir` and in an invalid one, `tests/filecheck/task/invalid*.mlir`; a row in
`docs/dialects/task.md`; and, for ops that compute (task and core), a function `all_gather` in
`ditron/runtime/reference.py`.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from gen_docs import load_dialects
from xdsl.ir import Operation

ROOT = Path(__file__).resolve().parent.parent

NOT_COMPUTING = frozenset(
    {
        "task.program",
        "task.input",
        "task.weight",
        "task.state",
        "task.scalar",
        "task.output",
        "core.func",
        "core.load",
        "core.store",
        "core.gather",
        "core.load_at",
        "core.store_at",
        "core.index",
    }
)
"""Ops that hold or pass tensors: there is nothing to refer to."""

REFERENCE_NAME = {"core.dot": "matmul", "core.sum": "total", "core.max": "amax"}
"""Reference functions that serve an op of another name."""


def missing_things(op: type[Operation], root: Path) -> list[str]:
    """What the op lacks, one message each."""
    dialect, _, short = op.name.partition(".")
    missing: list[str] = []
    class_name = "".join(part.capitalize() for part in short.split("_")) + "Op"
    if op.__name__ != class_name:
        missing.append(f"its class is {op.__name__}, expected {class_name}")
    folder = root / "tests/filecheck" / dialect
    tests = sorted(folder.glob("*.mlir"))
    for kind, expected in (("valid", False), ("invalid", True)):
        files = [t for t in tests if t.name.startswith("invalid") == expected]
        if not any(mentions(file, op.name) for file in files):
            pattern = "invalid*.mlir" if expected else "ops.mlir"
            missing.append(f"no {kind} IR test: tests/filecheck/{dialect}/{pattern}")
    page = root / f"docs/dialects/{dialect}.md"
    if not page.is_file() or f"| `{op.name}` |" not in page.read_text():
        missing.append(f"no row in docs/dialects/{dialect}.md: `make docs`")
    if dialect in ("task", "core") and op.name not in NOT_COMPUTING:
        function = REFERENCE_NAME.get(op.name, short)
        if function not in function_names(root / "ditron/runtime/reference.py"):
            missing.append(f"no function {function} in ditron/runtime/reference.py")
    return missing


def mentions(file: Path, op_name: str) -> bool:
    """Whether a test's IR, not only its comments, has the op."""
    code = "\n".join(re.sub(r"//.*", "", line) for line in file.read_text().splitlines())
    return re.search(rf"(?<![\w.]){re.escape(op_name)}(?![\w.])", code) is not None


def function_names(file: Path) -> set[str]:
    """Top-level functions of a Python file."""
    if not file.is_file():
        return set()
    return {n.name for n in ast.parse(file.read_text()).body if isinstance(n, ast.FunctionDef)}


def main(root: Path = ROOT) -> int:
    """1 where an op lacks something."""
    failed = False
    for dialect in load_dialects().values():
        for op in dialect.operations:
            for message in missing_things(op, root):
                failed = True
                print(f"{op.name}: {message}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
