"""One program for several sizes: a plan for each, and inputs run on the smallest that they fit.

    exe = dt.compile(program, dims={"m": (1, 8, 64, 512)})
    exe.run({"x": x, "w": w})  # x [300, k]: the plan of m = 512, with zeros behind

The bucket follows from the sizes of the inputs alone, so every rank takes the same without talking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import product
from typing import Self

import torch

from ditron.analysis.padding import Sized, open_dims
from ditron.analysis.symbols import task_program
from ditron.builder.task import Program
from ditron.errors import InputError, OptionError, ProgramError
from ditron.executable import Executable, Inputs, Tensors

Bucket = tuple[int, ...]
Factory = Callable[..., object]


class BucketedExecutable:
    """A program compiled for several sizes. Also a context manager, which closes all of them.

    Attributes:
        dims: the sizes of each name, increasing.
        plans: an executable for each bucket, by its sizes in the order of `dims`.
    """

    def __init__(
        self,
        program: object,
        dims: Mapping[str, Sequence[int]],
        build: Callable[[Program], Executable],
    ) -> None:
        if not callable(program):
            raise ProgramError(
                "with dims compile takes the function that makes the program: def program(m): ..."
            )
        self.dims = _checked(dims)
        programs = {sizes: self._make(program, sizes) for sizes in product(*self.dims.values())}
        self._open = self._open_dims(program, programs)
        with ExitStack() as stack:
            self.plans = {
                sizes: stack.enter_context(build(made)) for sizes, made in programs.items()
            }
            self._stack = stack.pop_all()

    def at(self, **sizes: int) -> Executable:
        """The plan of the smallest bucket that holds these sizes, one of each name.

        Raises:
            InputError: a size is larger than the largest bucket.
            OptionError: a name that is missing or unknown.
        """
        if sizes.keys() != self.dims.keys():
            raise OptionError(f"expected sizes of {', '.join(self.dims)}, got {', '.join(sizes)}")
        return self.plans[tuple(self._bucket(sizes).values())]

    def run(self, inputs: Inputs) -> dict[str, torch.Tensor]:
        """Launch the plan of the smallest bucket that the inputs fit; see `Executable.run`.

        Raises:
            InputError: a size is larger than the largest bucket, or inputs disagree.
        """
        sizes = self._sizes(inputs)
        bucket = self._bucket(sizes)
        given = {name: self._padded(name, value, bucket) for name, value in inputs.items()}
        out = self.plans[tuple(bucket.values())].run(given)
        return {name: value[self._box(name, sizes)] for name, value in out.items()}

    def bind(self, weights: Tensors) -> None:
        """Put weights in place for all buckets; each holds its own copy."""
        for executable in self.plans.values():
            executable.bind(weights)

    def close(self) -> None:
        """End all processes and free all memory."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self, program: Factory, sizes: Bucket) -> Program:
        made = program(**dict(zip(self.dims, sizes, strict=True)))
        if not isinstance(made, Program):
            raise ProgramError(f"the program's function returned {made!r}, expected a dt.Program")
        return made

    def _open_dims(
        self, program: Factory, programs: Mapping[Bucket, Program]
    ) -> dict[str, tuple[str | None, ...]]:
        """Which dimensions of inputs and outputs are which of the sizes, in every bucket."""
        largest = tuple(sizes[-1] for sizes in self.dims.values())
        made = dict(programs)
        for at, known in enumerate(self.dims.values()):
            if len(known) == 1:  # nothing to compare with: twice the size, for what divides it
                twice = (*largest[:at], 2 * largest[at], *largest[at + 1 :])
                made[twice] = self._make(program, twice)
        first, *others = (
            Sized(task_program(made[sizes].ir), dict(zip(self.dims, sizes, strict=True)))
            for sizes in (largest, *(s for s in made if s != largest))
        )
        return open_dims(first, others)

    def _sizes(self, inputs: Inputs) -> dict[str, int]:
        """What each name is, from the inputs."""
        sizes: dict[str, int] = {}
        for tensor, value in inputs.items():
            if not isinstance(value, torch.Tensor):
                continue
            for size, name in zip(value.shape, self._open.get(tensor, ()), strict=False):
                if name is not None and sizes.setdefault(name, size) != size:
                    raise InputError(f"{name} is {sizes[name]}, but {size} in {tensor}")
        missing = [name for name in self.dims if name not in sizes]
        if missing:
            raise InputError(f"no input says what {', '.join(missing)} is")
        return sizes

    def _bucket(self, sizes: Mapping[str, int]) -> dict[str, int]:
        bucket: dict[str, int] = {}
        for name, known in self.dims.items():
            if sizes[name] > known[-1]:
                raise InputError(
                    f"{name} is {sizes[name]}, the largest bucket is {known[-1]}: compile with more"
                )
            bucket[name] = next(size for size in known if size >= sizes[name])
        return bucket

    def _padded(
        self, tensor: str, value: torch.Tensor | float, bucket: Mapping[str, int]
    ) -> torch.Tensor | float:
        names = self._open.get(tensor, ())
        if not isinstance(value, torch.Tensor) or value.dim() != len(names):
            return value  # a number, or something for the plan to refuse
        shape = [
            size if name is None else bucket[name]
            for size, name in zip(value.shape, names, strict=True)
        ]
        if shape == list(value.shape):
            return value
        whole = value.new_zeros(shape)
        whole[tuple(slice(size) for size in value.shape)] = value
        return whole

    def _box(self, tensor: str, sizes: Mapping[str, int]) -> tuple[slice, ...]:
        """The part of an output that the inputs' sizes ask for."""
        return tuple(slice(None if name is None else sizes[name]) for name in self._open[tensor])


def _checked(dims: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    if not dims:
        raise OptionError('dims names at least one size, such as dims={"m": (1, 8, 64)}')
    for name, sizes in dims.items():
        ints = all(isinstance(s, int) and s > 0 for s in sizes)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not sizes or not ints:
            raise OptionError(f"dims[{name!r}] is one or more positive sizes, got {sizes!r}")
    return {name: tuple(sorted(set(sizes))) for name, sizes in dims.items()}
