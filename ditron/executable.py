"""A compiled program: tensors in, launches, tensors out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, cast

import torch
import torch.distributed as dist

from ditron.analysis.report import ProofReport
from ditron.backends.base import Assembly, Built, Local
from ditron.errors import InputError, LaunchError, OptionError
from ditron.plan.placement import Mesh
from ditron.plan.spec import TensorSpec
from ditron.plan.tables import Plan, Role
from ditron.runtime.inputs import as_scalar, check_mapping, check_tensors, zeros_of
from ditron.runtime.sharding import assemble, holds_sum, local_box
from ditron.stages import Stages

Tensors = Mapping[str, torch.Tensor]
Inputs = Mapping[str, torch.Tensor | float]


@dataclass(frozen=True)
class BoundTensor:
    """A tensor of the program; a buffer of its name holds its local parts.

    A number is given as one, and is 0 to `most` where that is said.
    """

    name: str
    spec: TensorSpec
    role: Role
    number: bool = False
    most: int | None = None


class Executable:
    """A compiled program. Also a context manager, which closes it.

    Attributes:
        stages: IR text after each pass.
        plan: the concrete plan of every rank.
        report: what was proved, with counts and times.
        kernels: the emitted source.
        launches: what each rank's host enqueues, on GPUs.
    """

    def __init__(
        self,
        stages: Stages,
        plan: Plan,
        report: ProofReport,
        built: Built,
        mesh: Mesh,
        tensors: Iterable[BoundTensor],
    ) -> None:
        self.stages, self.plan, self.report = stages, plan, report
        self.kernels, self.launches, self._executor = built.source, built.host, built.executor
        self._mesh, self._closed = mesh, False
        self._tensors = {t.name: t for t in tensors}
        weights = [t.name for t in self._tensors.values() if t.role is Role.WEIGHT]
        self._unbound = set(weights)

    @property
    def mesh(self) -> Mesh:
        """The ranks that it runs on."""
        return self._mesh

    def bind(self, weights: Tensors) -> None:
        """Put weights in place, once for all runs; again to change some.

        Args:
            weights: global tensors by name, any of the program's weights, or of its states to
                begin with something else than zeros.

        Raises:
            InputError: a name, shape or dtype that the program does not have.
        """
        check_mapping("weight", weights)
        known = [*self._of(Role.WEIGHT), *self._of(Role.STATE)]
        for name in weights:
            if name not in known:
                have = ", ".join(known) or "none"
                raise InputError(f"the program takes weights {have}; unknown: {name}")
        self._check(weights, [n for n in known if n in weights], "weight")
        self._write(weights)
        self._unbound -= weights.keys()

    def state(self, name: str) -> torch.Tensor:
        """What a state holds after the last launch, as a global tensor.

        Raises:
            InputError: the program has no such state.
        """
        if name not in self._of(Role.STATE):
            have = ", ".join(self._of(Role.STATE)) or "none"
            raise InputError(f"the program has states {have}; unknown: {name}")
        return self._gather(name)

    def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """Launch once.

        Args:
            inputs: every input by name: a global tensor of the program's shape and dtype; for a
                `p.scalar` a plain number will do.

        Returns:
            Every output by name, as a global tensor: shards put together, replicas from rank 0,
            partial sums added in float32 and rounded once.

        Raises:
            InputError: tensors that do not fit the program, or weights that are not bound.
            LaunchError: a rank failed; the executable is unusable until `reset`.
        """
        self._place(inputs)
        self._executor.launch()
        return {name: self._gather(name) for name in self._of(Role.OUTPUT)}

    def run_local(
        self,
        inputs: Tensors,
        out: Tensors | None = None,
        stream: torch.cuda.Stream | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> dict[str, torch.Tensor]:
        """Launch this process's rank once, as under torchrun; every process of a group calls it.

        The first call connects the ranks, after they have compared what they compiled. Later ones
        enqueue work and return: they allocate nothing, wait for nothing and can be captured in a
        CUDA graph.

        Args:
            inputs: this rank's shards of all inputs, on its device; of weights those that are new.
            out: tensors that its outputs are copied to; without it they are returned where they
                lie, until the next launch.
            stream: behind which to run, the current one by default.
            group: the processes that are the ranks, all of them by default.

        Raises:
            OptionError: the target runs no rank in this process.
            InputError: a tensor of another name, shape or dtype.
            LaunchError: the ranks did not compile the same, or the group is of another size.
            HangError: an earlier launch was stopped.
        """
        if not isinstance(self._executor, Local):
            raise OptionError("run_local is for target cuda, a process a GPU; here use run")
        return self._executor.run_local(inputs, out, stream, group)

    def measure(self, inputs: Inputs, repeats: int = 20) -> list[float]:
        """Seconds of each of some launches, slowest rank, with the inputs already in place."""
        if not isinstance(repeats, int) or repeats < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"measure takes at least one repeat, got {repeats!r}")
        self._place(inputs)
        return self._executor.measure(repeats)

    def trace(self, path: str | Path) -> None:
        """Launch once more on the inputs in place; write what ran when as a Chrome trace."""
        self._check_open()
        if self._unbound:
            raise InputError(f"bind {', '.join(sorted(self._unbound))} first")
        try:
            Path(path).open("a").close()
        except OSError as error:
            raise OptionError(f"cannot write {path}: {error.strerror}") from error
        self._executor.trace(path)

    def local(self, name: str, rank: int) -> torch.Tensor:
        """What a rank holds of an output or a state after the last launch."""
        if name not in (*self._of(Role.OUTPUT), *self._of(Role.STATE)):
            raise InputError(f"no output {name!r}; there is {', '.join(self._of(Role.OUTPUT))}")
        if rank not in range(self.plan.ranks):
            raise InputError(f"no rank {rank!r}; there are ranks 0 to {self.plan.ranks - 1}")
        return self._executor.read(name, rank)

    def tensors(self, role: Role) -> dict[str, TensorSpec]:
        """What comes in or out in a role, by name."""
        return {name: self._tensors[name].spec for name in self._of(role)}

    def assembly(self) -> str:
        """The kernels' assembly, where the target is a named architecture.

        Raises:
            OptionError: the target has none to show.
            CompileError: a kernel does not do what its source says, or takes too much.
        """
        if not isinstance(self._executor, Assembly):
            raise OptionError("only targets that name an architecture (sm_90) show assembly")
        return self._executor.assembly()

    def reset(self) -> None:
        """Make the executable usable again after a launch that did not finish; states are zeros."""
        self._check_open()
        self._executor.reset()
        self._write({n: zeros_of(self._tensors[n].spec) for n in self._of(Role.STATE)})

    def _check_open(self) -> None:
        if self._closed:
            raise LaunchError("this executable cannot be used: it is closed")

    def close(self) -> None:
        """End its processes and free its memory; where NVSHMEM made it, all of a group do so."""
        self._closed = True
        self._executor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _of(self, role: Role) -> list[str]:
        return [t.name for t in self._tensors.values() if t.role is role]

    def _place(self, inputs: Inputs) -> None:
        if self._unbound:
            raise InputError(f"bind {', '.join(sorted(self._unbound))} first")
        check_mapping("input", inputs)
        given = dict(inputs)
        for tensor in self._tensors.values():
            if tensor.number and tensor.name in given:
                number = given[tensor.name]
                given[tensor.name] = as_scalar(tensor.name, tensor.spec, tensor.most, number)
        tensors = cast("Tensors", given)
        self._check(tensors, self._of(Role.INPUT), "input")
        self._write(tensors)

    def _check(self, given: Tensors, wanted: Sequence[str], what: str) -> None:
        specs = {name: self._tensors[name].spec for name in wanted}
        check_tensors(self.plan.name, what, specs, given)

    def _write(self, tensors: Tensors) -> None:
        for name, whole in tensors.items():
            tensor = self._tensors[name]
            for rank in range(self.plan.ranks):
                part = whole.detach()[local_box(tensor.spec, self._mesh, rank)]
                if not holds_sum(tensor.spec, self._mesh, rank):
                    part = torch.zeros_like(part)
                self._executor.write(name, rank, part)

    def _gather(self, name: str) -> torch.Tensor:
        spec = self._tensors[name].spec
        return assemble(spec, self._mesh, lambda rank: self.local(name, rank))
