"""Writes docs/dialects/*.md and docs/passes.md from the code; `--check` fails on stale ones."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from xdsl.ir import Dialect, Operation
from xdsl.irdl import IRDLOperation
from xdsl.passes import ModulePass, get_pass_option_infos

from ditron.universe import DIALECTS, DITRON_UNIVERSE

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Written by scripts/gen_docs.py from the code: `make docs`. -->\n"


def load_dialects() -> dict[str, Dialect]:
    """Load every dialect of ditron's, by name."""
    return {name: load() for name, load in DIALECTS.items()}


def summary(cls: type) -> str:
    """The first line of a class's docstring, or of the nearest base of ditron's that has one."""
    for base in cls.__mro__:
        if base.__module__.startswith("ditron") and base.__doc__:
            return inspect.cleandoc(base.__doc__).splitlines()[0]
    return ""


def op_row(op: type[Operation]) -> str:
    """A table row: name, operands, results, properties, what it does."""
    assert issubclass(op, IRDLOperation)
    definition = op.get_irdl_definition()
    columns = (
        (name for name, _ in definition.operands),
        (name for name, _ in definition.results),
        definition.properties,
    )
    cells = [f"`{op.name}`", *(", ".join(f"`{n}`" for n in names) for names in columns)]
    return table_row([*cells, summary(op)])


def table_row(cells: list[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def dialect_page(name: str, dialect: Dialect) -> str:
    """One dialect: the module's docstring, then a row for each op, type and attribute."""
    ops = list(dialect.operations)
    module = import_module(f"ditron.ir.{name}")
    lines = [f"# The `{name}` dialect", "", NOTE, inspect.getdoc(module) or "", ""]
    lines += [table_row(["op", "operands", "results", "properties", "what it does"])]
    lines += ["|---|---|---|---|---|", *(op_row(op) for op in ops)]
    if attributes := list(dialect.attributes):
        lines += ["", table_row(["type or attribute", "what it holds"]), "|---|---|"]
        lines += [table_row([f"`{attr.name}`", summary(attr)]) for attr in attributes]
    return "\n".join(lines) + "\n"


def pass_section(cls: type[ModulePass]) -> str:
    """One pass: its options with types and defaults, then its docstring."""
    lines = [f"## `{cls.name}`", ""]
    for option in get_pass_option_infos(cls):
        default = f" (default `{option.default_value}`)" if option.default_value else ""
        kind = option.expected_type.strip("'\"")
        lines.append(f"* `{option.name.replace('_', '-')}`: `{kind}`{default}")
    if dataclasses.fields(cls):
        lines.append("")
    doc = inspect.getdoc(inspect.getmodule(cls)) or ""
    own = inspect.cleandoc(cls.__doc__) if cls.__doc__ else ""
    if own.startswith(f"{cls.__name__}("):  # what dataclass writes where there is no docstring
        own = ""
    own = own.removeprefix("See the module's docstring").lstrip(".; ")
    return "\n".join([*lines, f"{doc}\n\n{own[0].upper() + own[1:]}" if own else doc])


def passes_page() -> str:
    """Every pass, in the order in which the pipeline runs them."""
    sections = [pass_section(load()) for load in DITRON_UNIVERSE.all_passes.values()]
    intro = "Each runs alone from `ditron-opt -p 'name{option=value}'`; here in pipeline order."
    return "\n\n".join(["# Passes", NOTE + "\n" + intro, *sections]).rstrip() + "\n"


def pages() -> Iterator[tuple[Path, str]]:
    """Each generated file, relative to the root, with its text."""
    for name, dialect in load_dialects().items():
        yield Path("docs/dialects") / f"{name}.md", dialect_page(name, dialect)
    yield Path("docs/passes.md"), passes_page()


def stale_pages(root: Path) -> list[Path]:
    """Generated files that are missing or differ from what the code says."""
    return [
        path
        for path, text in pages()
        if not (root / path).is_file() or (root / path).read_text() != text
    ]


def main(argv: list[str], root: Path = ROOT) -> int:
    """`--check`: 1 where a file is stale. Otherwise write all."""
    if argv == ["--check"]:
        stale = stale_pages(root)
        for path in stale:
            print(f"{path}: stale, run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for path, text in pages():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
