"""Positions in parsed IR, located errors, dominance, and ditron-opt's exit codes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects import arith, builtin, func, scf, test
from xdsl.dialects.builtin import FileLineColLoc, ModuleOp
from xdsl.ir import Attribute
from xdsl.utils.diagnostic import Diagnostic
from xdsl.utils.exceptions import ParseError, VerifyException

from ditron.ir.frontend import describe_fault, parse_module, position, verify_module
from ditron.tools import opt

NESTED = """\
func.func @f(%n: index, %c: i1) {
  scf.if %c {
    %a = arith.addi %n, %n : index
  }
  func.return
}
"""


@pytest.fixture
def ctx() -> Context:
    context = Context()
    for dialect in (arith.Arith, builtin.Builtin, func.Func, scf.Scf, test.Test):
        context.load_dialect(dialect)
    return context


def test_every_op_has_the_position_of_its_text(ctx: Context):
    module = parse_module(ctx, NESTED, "n.mlir")
    found = {op.name: position(op) for op in module.walk() if not isinstance(op, ModuleOp)}
    assert found["func.func"] == "n.mlir:1:1"
    assert found["scf.if"] == "n.mlir:2:3"
    assert found["arith.addi"] == "n.mlir:3:5"
    assert found["func.return"] == "n.mlir:5:3"


def test_columns_count_characters(ctx: Context):
    text = '"test.op"() {a = "ä"} : () -> () "test.op"() : () -> ()'
    _, op = parse_module(ctx, text, "u.mlir").ops
    assert isinstance(op.location, FileLineColLoc)
    assert position(op) == f"u.mlir:1:{text.rindex(chr(34) + 'test') + 1}"


def test_a_location_in_the_text_wins(ctx: Context):
    module = parse_module(ctx, '"test.op"() : () -> () loc("user.py":7:0)', "d.mlir")
    (op,) = module.ops
    assert position(op) == "user.py:7"


def test_a_fault_names_its_position_and_only_its_op(ctx: Context):
    text = NESTED.replace("arith.addi %n, %n : index", '"arith.addi"(%n, %c) : (index, i1) -> i1')
    with pytest.raises(VerifyException) as caught:
        parse_module(ctx, text, "n.mlir")
    first, *rest = describe_fault(caught.value, "n.mlir").splitlines()
    assert first.startswith("n.mlir:3:5: error: arith.addi: ")
    assert len(rest) == 1
    assert "func.func" not in rest[0]


def test_a_parse_error_names_its_position(ctx: Context):
    with pytest.raises(ParseError) as caught:
        parse_module(ctx, "func.func @f( {\n}", "p.mlir")
    assert describe_fault(caught.value).startswith("p.mlir:1:15: error: ")


def test_an_attribute_that_does_not_verify_gets_a_position(ctx: Context):
    with pytest.raises(ParseError) as caught:
        parse_module(ctx, '\n"test.op"() {a = dense<[1, 2]> : tensor<3xi32>} : () -> ()', "a.mlir")
    assert describe_fault(caught.value).startswith("a.mlir:2:")


@pytest.mark.parametrize(
    "text",
    [
        '"test.op"(%x) : (i32) -> ()\n%x = "test.op"() : () -> i32',
        '"test.op"() ({ %x = "test.op"() : () -> i32 }) : () -> ()\n"test.op"(%x) : (i32) -> ()',
        '%x = "test.op"(%x) : (i32) -> i32',
    ],
    ids=["later", "inside another region", "itself"],
)
def test_values_are_defined_before_they_are_used(ctx: Context, text: str):
    with pytest.raises((VerifyException, ParseError)):
        parse_module(ctx, text)


def test_blocks_of_a_graph_may_use_each_others_values(ctx: Context):
    text = """
    "test.op"() ({
      ^a:
        %x = "test.op"() : () -> i32
        "test.termop"() : () -> ()
      ^b:
        "test.op"(%x) : (i32) -> ()
        "test.termop"() : () -> ()
    }) : () -> ()
    """
    verify_module(parse_module(ctx, text))


def test_xdsl_is_left_as_it_was(ctx: Context):
    stock = Diagnostic.raise_exception
    with pytest.raises((VerifyException, ParseError)):
        parse_module(ctx, '"test.op"(%x) : (i32) -> ()\n%x = "test.op"() : () -> i32')
    assert Diagnostic.raise_exception is stock


def run_opt(*arguments: str, text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    return opt.main(arguments)


def test_opt_counts_lines_of_a_split_file_from_its_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    good, bad = (
        '"test.op"() : () -> ()',
        '"test.op"(%x) : (i32) -> ()\n%x = "test.op"() : () -> i32',
    )
    text = f"{good}\n// -----\n\n{bad}"
    assert run_opt("--split-input-file", text=text, monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().err.startswith("stdin:4:1: error: test.op: operand #0 (%x)")


def test_opt_disables_verification_for_one_run_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    stock = Attribute.__post_init__
    text = '"test.op"(%x) : (i32) -> ()\n%x = "test.op"() : () -> i32'
    assert run_opt("--disable-verify", text=text, monkeypatch=monkeypatch) == 0
    assert '"test.op"(%x)' in capsys.readouterr().out
    assert Attribute.__post_init__ is stock


def test_opt_refuses_what_is_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "x.mlir"
    path.write_bytes(b"\xff\xfe")
    assert opt.main([str(path)]) == 2
    assert "is not UTF-8 text: byte 0 is 0xff" in capsys.readouterr().err


def test_opt_names_output_it_cannot_write(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run_opt("-o", "/no/such/folder/x", text="", monkeypatch=monkeypatch) == 2
    assert "cannot write /no/such/folder/x" in capsys.readouterr().err


def test_opt_is_interrupted_quietly(monkeypatch: pytest.MonkeyPatch):
    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(opt.DitronOpt, "run", interrupt)
    assert run_opt(text="", monkeypatch=monkeypatch) == 130
