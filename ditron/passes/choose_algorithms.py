"""choose-algorithms: decide how each op is carried out, and write it on the op.

    %g = task.all_gather %x dim 0 axis "tp" : ...
    %y = task.matmul %g, %w : ...
    ->
    %g = task.all_gather %x dim 0 axis "tp" choice #task.choice<mesh in-place chunk 128
      cost_ns 5841000 over "mesh push chunk 128 tile 128x512" 6012000> : ...
    %y = task.matmul %g, %w choice #task.choice<tile 128x512 cost_ns ...> : ...

Needs: task IR with placements. Ensures: every compute op and collective has a `choice`; choices
that stand there already are kept. A collective gets algorithm, transfer and chunk (rows of its
dimension a transfer), a compute op its tile, a reduction both.

A collective is weighed together with the products that it feeds or drains: every algorithm,
transfer, chunk and tile that the machine file offers and the options leave open, priced in closed
form (`plan/candidates.py`). A product and the pointwise ops around it get one tile, so that they
can fuse. Each choice says what it is expected to cost, the next best way, and by what change that
would win. Where two ways are nearly equal and the program is small, the timeline engine plays both
(`passes/play_choices.py`). The same program, options and machine always get the same choices.

Where the machine has a library, its products are candidates too: whole boxes, one after another in
the order of a stream, own rows first or last, while copies go on. They are as fast as products can
be, but start a call a box (`by library`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ditron.analysis.symbols import task_program
from ditron.errors import OptionError
from ditron.ir import task
from ditron.passes.choices import Chooser
from ditron.passes.play_choices import play_choices
from ditron.plan.machine import Machine, load_machine
from ditron.plan.options import OpOptions, Options


@dataclass(frozen=True)
class ChooseAlgorithmsPass(ModulePass):
    """See the module's docstring.

    `per_op` items are `pattern:key=value`; `play` lets the timeline engine decide near ties;
    with `in_place` workers make the transfers, and tasks may reach peers' memory; without it copy
    engines do, and tasks may not.
    """

    name = "choose-algorithms"

    machine: str = "cpu"
    algorithm: str | None = None
    chunk_bytes: int | None = None
    tile: tuple[int, ...] = ()
    library: bool | None = None
    per_op: tuple[str, ...] = field(default=())
    play: bool = True
    in_place: bool = True

    @staticmethod
    def of(options: Options, machine: str, *, in_place: bool = True) -> ChooseAlgorithmsPass:
        """The pass that carries out a user's options."""
        return ChooseAlgorithmsPass(
            machine,
            options.algorithm,
            options.chunk_bytes,
            options.tile or (),
            options.library,
            told_per_op(options),
            in_place=in_place,
        )

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        options = Options(
            algorithm=self.algorithm,
            chunk_bytes=self.chunk_bytes,
            tile=_tile(self.tile),
            library=self.library,
            per_op=parse_per_op(self.per_op),
        )
        machine = _by_workers(load_machine(self.machine))
        if not self.in_place:
            machine = load_machine(self.machine)
            capabilities = replace(machine.capabilities, peer_pointers=False)
            machine = replace(machine, capabilities=capabilities)
        program = task_program(op)
        ops = [one for one in program.body.block.ops if isinstance(one, task.ComputeOp)]
        options.check_patterns([one.label() for one in ops])
        chooser = Chooser(program, machine, options)
        chooser.run()
        if self.play:
            play_choices(op, chooser, machine, self.machine)


def _by_workers(machine: Machine) -> Machine:
    """The machine with transfers by workers, where those reach peers at a rate of their own."""
    worker, copy = machine.engines["sm"], machine.engines["copy"]
    if not worker.gbytes_s:
        return machine
    slower = replace(copy, gbytes_s=worker.gbytes_s, start_us=worker.start_us)
    return replace(machine, engines={**machine.engines, "copy": slower})


def told_per_op(options: Options) -> tuple[str, ...]:
    """`per_op` as a pass takes it: `pattern:key=value`, one an item."""
    return tuple(
        f"{pattern}:{key}={value}"
        for pattern, own in options.per_op.items()
        for key, value in _settings(own)
    )


def _settings(options: OpOptions) -> Iterator[tuple[str, str]]:
    if options.algorithm is not None:
        yield "algorithm", options.algorithm
    if options.chunk_bytes is not None:
        yield "chunk-bytes", str(options.chunk_bytes)
    if options.tile is not None:
        yield "tile", "x".join(map(str, options.tile))
    if options.library is not None:
        yield "library", str(options.library).lower()
    if options.splits is not None:
        yield "splits", str(options.splits)


def _tile(sizes: Sequence[int]) -> tuple[int, int] | None:
    if not sizes:
        return None
    if len(sizes) != 2:
        raise OptionError(f"tile is two sizes, got {len(sizes)}")
    return (sizes[0], sizes[1])


def parse_per_op(items: Sequence[str]) -> dict[str, OpOptions]:
    """What such items say.

    Raises:
        OptionError: they are not of that form.
    """
    settings: dict[str, dict[str, str]] = {}
    for item in items:
        pattern, _, setting = item.rpartition(":")
        key, _, value = setting.partition("=")
        if not pattern or key not in KEYS or not value:
            raise OptionError(
                f"per-op takes pattern:key=value with key {', '.join(KEYS)}, got {item!r}"
            )
        settings.setdefault(pattern, {})[key] = value
    return {pattern: _op_options(own) for pattern, own in settings.items()}


KEYS = ("algorithm", "chunk-bytes", "tile", "library", "splits")


def _op_options(own: dict[str, str]) -> OpOptions:
    try:
        chunk = int(own["chunk-bytes"]) if "chunk-bytes" in own else None
        tile = _tile([int(s) for s in own["tile"].split("x")]) if "tile" in own else None
        splits = int(own["splits"]) if "splits" in own else None
    except ValueError as error:
        raise OptionError(f"per-op sizes are whole numbers: {error}") from error
    library = own["library"] == "true" if "library" in own else None
    return OpOptions(own.get("algorithm"), chunk, tile, library, splits)
