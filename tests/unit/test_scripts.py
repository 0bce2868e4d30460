"""The checks that CI runs on the repository itself: each refuses the one thing it is for."""

from __future__ import annotations

from pathlib import Path

import check_filecheck
import check_op_docs
import gen_docs
import pytest
from run_lines import Command, parse_run_lines

from ditron.ir.task import AllGatherOp, InputOp

GOOD = """\
// RUN: ditron-opt %s | filecheck %s
// RUN: not ditron-opt %s -p 'a{b=1 c="x | y"}' 2>&1 \\
// RUN:   | filecheck %s --check-prefix=BAD
// CHECK-LABEL: @f
// CHECK-NEXT: return
// CHECK-COUNT-2: x
// BAD{LITERAL}: error
// Check that prose is left alone: here is some.
func.func @f() { func.return }
"""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    path = tmp_path / "test.mlir"
    path.write_text(GOOD)
    return path


def test_run_lines(golden: Path):
    first, second = parse_run_lines(golden)
    assert first.line == 1
    assert first.commands == (
        Command("ditron-opt", (str(golden),)),
        Command("filecheck", (str(golden),)),
    )
    tool = Command("ditron-opt", (str(golden), "-p", 'a{b=1 c="x | y"}'), negated=True, merged=True)
    assert second.line == 2
    assert second.commands[0] == tool


@pytest.mark.parametrize("text", ["ditron-opt %s > out", "ditron-opt %t", "a && b", "| filecheck"])
def test_run_lines_refuse_what_they_cannot_run(tmp_path: Path, text: str):
    path = tmp_path / "test.mlir"
    path.write_text(f"// RUN: {text}\n")
    with pytest.raises(ValueError, match="cannot read RUN line"):
        parse_run_lines(path)


def test_a_good_golden_test_passes(golden: Path):
    assert check_filecheck.check_file(golden) == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("CHECK-NEXT:", "CHECK-NXT:", ":5: CHECK-NXT: is no directive"),
        ("CHECK-NEXT:", "CHCK-NEXT:", ":5: CHCK-NEXT: is no directive"),
        ("CHECK-NEXT:", "CHECK-NEXT", ":5: CHECK-NEXT is no directive"),
        ("CHECK-COUNT-2:", "CHECK-COUNT:", ":6: CHECK-COUNT: is no directive"),
        ("CHECK-LABEL:", "check-label:", ":4: check-label: is no directive"),
        ("BAD{LITERAL}:", "WORSE:", ":7: WORSE: is no directive"),
        ("BAD{LITERAL}:", "WORSE:", "no line for prefix BAD"),
        ("ditron-opt %s | filecheck %s", "ditron-opt %s", ":4: CHECK-LABEL: is no directive"),
        ("ditron-opt %s | filecheck", "ditron-opt %s > x | filecheck", "cannot read RUN line"),
    ],
)
def test_a_golden_test_that_tests_less_is_refused(golden: Path, old: str, new: str, fault: str):
    golden.write_text(GOOD.replace(old, new))
    assert any(fault in found for found in check_filecheck.check_file(golden))


def test_a_file_without_run_line_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "test.mlir").write_text("// CHECK: x\n")
    assert check_filecheck.main(tmp_path) == 1
    assert "no RUN line" in capsys.readouterr().err


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository in which `task.all_gather` has all its things."""
    files = {
        "tests/filecheck/task/ops.mlir": '%0 = task.all_gather %x dim 0 axis "tp"',
        "tests/filecheck/task/invalid.mlir": '"task.all_gather"(%x)',
        "docs/dialects/task.md": "| `task.all_gather` | `operand` |",
        "ditron/runtime/reference.py": "def all_gather(x): return x",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    return tmp_path


def test_an_op_with_all_its_things_passes(tree: Path):
    assert check_op_docs.missing_things(AllGatherOp, tree) == []


@pytest.mark.parametrize(
    ("file", "text", "fault"),
    [
        ("tests/filecheck/task/ops.mlir", "// task.all_gather", "no valid IR test"),
        ("tests/filecheck/task/ops.mlir", "task.all_gather_more", "no valid IR test"),
        ("tests/filecheck/task/invalid.mlir", "", "no invalid IR test"),
        ("docs/dialects/task.md", "task.all_gather", "no row in docs"),
        ("ditron/runtime/reference.py", "all_gather = None", "no function all_gather"),
    ],
)
def test_an_op_that_lacks_something_is_named(tree: Path, file: str, text: str, fault: str):
    (tree / file).write_text(text + "\n")
    (found,) = check_op_docs.missing_things(AllGatherOp, tree)
    assert fault in found


def test_only_ops_that_compute_need_a_reference(tree: Path):
    missing = check_op_docs.missing_things(InputOp, tree)
    assert not any("reference" in message for message in missing)
    assert len(missing) == 3


def test_generated_docs_are_noticed_when_stale(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert gen_docs.main(["--check"], tmp_path) == 1
    assert gen_docs.main([], tmp_path) == 0
    assert gen_docs.main(["--check"], tmp_path) == 0
    page = tmp_path / "docs/dialects/task.md"
    page.write_text(page.read_text().replace("task.matmul", "task.matmuls"))
    capsys.readouterr()
    assert gen_docs.main(["--check"], tmp_path) == 1
    assert capsys.readouterr().err.startswith("docs/dialects/task.md: stale")


def test_generated_docs_have_a_row_an_op():
    pages = {str(path): text for path, text in gen_docs.pages()}
    for name, dialect in gen_docs.load_dialects().items():
        for op in dialect.operations:
            assert f"| `{op.name}` |" in pages[f"docs/dialects/{name}.md"]
