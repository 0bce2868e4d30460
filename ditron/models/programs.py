"""A model's programs, each compiled when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch

from ditron import compiler
from ditron.builder.task import Program
from ditron.ir import task
from ditron.models.config import Config
from ditron.models.decoder import Shape, decoder
from ditron.models.weights import Tensors
from ditron.plan.options import Options
from ditron.plan.placement import Mesh

REFERENCE = "reference"
"""The target that compiles nothing: programs run op by op on whole tensors, by torch."""


class Runnable(Protocol):
    """What a program becomes: an `Executable`, or its like that runs the reference."""

    def bind(self, weights: Tensors) -> None: ...

    def state(self, name: str) -> torch.Tensor: ...

    def run(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]: ...

    def close(self) -> None: ...


class ReferenceRun:
    """A program run by its reference, with weights bound and states kept."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._kept: Tensors = {}
        self._states = _states_of(program)

    def bind(self, weights: Tensors) -> None:
        self._kept |= weights

    def state(self, name: str) -> torch.Tensor:
        return self._kept[name]

    def run(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        found = self.program.reference({**self._kept, **inputs})
        self._kept |= {name: found.pop(name) for name in self._states}
        return found

    def close(self) -> None:
        self._kept.clear()


@dataclass(frozen=True)
class Target:
    """What programs are compiled for, as `dt.compile` takes it, or the reference."""

    target: str = "cpu"
    machine: str | None = None
    options: Options | None = None

    def build(self, program: Program) -> Runnable:
        if self.target == REFERENCE:
            return ReferenceRun(program)
        return compiler.compile(program, self.target, self.machine, self.options)


class Programs(Mapping[str, Runnable]):
    """A model's programs by name, each compiled when first asked for.

    `decode` takes one token and says the next; `prefill-T` takes T and gives the logits of all.
    """

    def __init__(self, config: Config, mesh: Mesh, shape: Shape, axis: str, target: Target) -> None:
        self._config, self._mesh, self._shape, self._axis = config, mesh, shape, axis
        self._target = target
        self._sources: dict[str, Program] = {}
        self._built: dict[str, Runnable] = {}
        self._weights: Tensors = {}

    def source(self, name: str) -> Program:
        """A program before it is compiled.

        Raises:
            KeyError: there is none of this name.
        """
        if name in self._sources:
            return self._sources[name]
        kind, _, tokens = name.partition("-")
        if name == "decode":
            shape, outputs = self._shape, ["next"]
        elif kind == "prefill" and tokens.isdecimal():
            shape, outputs = replace(self._shape, tokens=int(tokens)), ["logits"]
        else:
            raise KeyError(name)
        self._sources[name] = decoder(self._config, self._mesh, shape, outputs, self._axis)
        return self._sources[name]

    def bind(self, weights: Tensors) -> None:
        """Give weights to every program, also to those that are compiled later."""
        self._weights = weights
        for built in self._built.values():
            built.close()
        self._built.clear()

    def __getitem__(self, name: str) -> Runnable:
        if name not in self._built:
            program = self.source(name)
            built = self._target.build(program)
            if self._weights:
                used = [op.tensor_name.data for op in _weights_of(program)]
                built.bind({weight: self._weights[weight] for weight in used})
            self._built[name] = built
        return self._built[name]

    def hand_over(self, source: str, target: str) -> None:
        """Copy what one program's states hold to those of another."""
        here, there = self[source], self[target]
        there.bind({name: here.state(name) for name in _states_of(self.source(target))})

    def __iter__(self) -> Iterator[str]:
        return iter({"decode": None, **self._built})

    def __len__(self) -> int:
        return len({"decode", *self._built})

    def close(self) -> None:
        """End all their processes."""
        for built in self._built.values():
            built.close()
        self._built.clear()


def _task_program(program: Program) -> task.ProgramOp:
    return next(op for op in program.ir.ops if isinstance(op, task.ProgramOp))


def _states_of(program: Program) -> list[str]:
    return [op.tensor_name.data for op in _task_program(program).states]


def _weights_of(program: Program) -> Iterator[task.WeightOp]:
    return (op for op in _task_program(program).inputs if isinstance(op, task.WeightOp))
