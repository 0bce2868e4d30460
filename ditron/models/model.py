"""A model that answers: programs of its steps, compiled when they are first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, cast

import torch

from ditron import compiler
from ditron.builder.task import Program
from ditron.errors import InputError, ModelError
from ditron.ir import task
from ditron.models.config import Config, read_config
from ditron.models.decoder import Shape, decoder, tensor_axis
from ditron.models.weights import Tensors, fuse, read_folder
from ditron.plan.dtypes import DTYPES, DType, Kind, as_dtype, bf16
from ditron.plan.options import Options
from ditron.plan.placement import Mesh
from ditron.runtime.inputs import torch_dtype

REFERENCE = "reference"
"""The target that compiles nothing: programs run op by op on whole tensors, by torch."""


class Runnable(Protocol):
    """What a program becomes: an `Executable`, or its like that runs the reference."""

    def bind(self, weights: Tensors) -> None: ...

    def run(self, inputs: dict[str, Any]) -> dict[str, torch.Tensor]: ...

    def close(self) -> None: ...


class ReferenceRun:
    """A program run by its reference, with weights bound and states kept."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._kept: Tensors = {}
        self._states = [op.tensor_name.data for op in _task_program(program).states]

    def bind(self, weights: Tensors) -> None:
        self._kept |= weights

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
        self._built: dict[str, Runnable] = {}
        self._weights: Tensors = {}

    def source(self, name: str) -> Program:
        """A program before it is compiled.

        Raises:
            KeyError: there is none of this name.
        """
        kind, _, tokens = name.partition("-")
        if name == "decode":
            shape, outputs = self._shape, ["next"]
        elif kind == "prefill" and tokens.isdecimal():
            shape, outputs = replace(self._shape, tokens=int(tokens)), ["logits"]
        else:
            raise KeyError(name)
        return decoder(self._config, self._mesh, shape, outputs, self._axis)

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

    def __iter__(self) -> Iterator[str]:
        return iter({"decode": None, **self._built})

    def __len__(self) -> int:
        return len({"decode", *self._built})

    def close(self) -> None:
        """End all their processes."""
        for built in self._built.values():
            built.close()
        self._built.clear()


class Model:
    """A language model on a mesh; also a context manager, which closes it.

    Attributes:
        config: what the model is.
        programs: its programs, compiled when first asked for.
        loaded: whether it has weights.
    """

    def __init__(self, config: Config, mesh: Mesh, shape: Shape, axis: str, target: Target) -> None:
        self.config = config
        self._shape, self._ranks = shape, mesh.size(axis)
        self.programs = Programs(config, mesh, shape, axis, target)
        self.programs.source("decode")  # what does not fit is refused now
        self.loaded = False

    def load(self, checkpoint: Mapping[str, torch.Tensor]) -> None:
        """Take weights, by Hugging Face's names; they are converted to the model's dtype.

        Raises:
            ModelError: a checkpoint of another model.
        """
        dtype = torch_dtype(self._shape.dtype.name)
        self.programs.bind(fuse(self.config, checkpoint, self._ranks, self._shape.ctx, dtype))
        self.loaded = True

    def logits(self, ids: torch.Tensor | Sequence[Sequence[int]]) -> torch.Tensor:
        """Logits of the token after each: ids [batch, seq] -> [batch, seq, vocab] in float32.

        Raises:
            InputError: ids that are no batch of the model's, more tokens than `ctx`, or no weights.
        """
        ids = self._as_ids(ids, 0)
        out = self.programs[f"prefill-{ids.shape[1]}"].run({"ids": ids, "pos": 0})
        return out["logits"].float()

    def generate(
        self, ids: torch.Tensor | Sequence[Sequence[int]], max_new_tokens: int = 32
    ) -> torch.Tensor:
        """The likeliest continuation: ids [batch, seq] -> [batch, seq + max_new_tokens].

        Raises:
            InputError: as `logits`; all tokens but the last have to fit `ctx`.
        """
        ids = self._as_ids(ids, max_new_tokens - 1)
        return torch.cat([ids, *self.stream(ids, max_new_tokens)], 1)

    def stream(
        self, ids: torch.Tensor | Sequence[Sequence[int]], max_new_tokens: int = 32
    ) -> Iterator[torch.Tensor]:
        """The tokens of `generate` as they come, each [batch, 1]: one launch a token.

        The prompt goes token by token through the same program, which keeps the cache.
        """
        ids = self._as_ids(ids, max_new_tokens - 1)
        step = self.programs["decode"]
        token = ids[:, :1]
        for pos in range(ids.shape[1] + max_new_tokens - 1):
            out = step.run({"ids": token, "pos": pos})["next"]
            if pos + 1 < ids.shape[1]:
                token = ids[:, pos + 1 : pos + 2]
            else:
                token = out
                yield token

    def close(self) -> None:
        """End the programs' processes."""
        self.programs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _as_ids(self, given: torch.Tensor | Sequence[Sequence[int]], more: int) -> torch.Tensor:
        """Tokens as a tensor, for which and for `more` there has to be room."""
        if not self.loaded:
            raise InputError("the model has no weights yet: load(checkpoint) first")
        ids = torch.as_tensor(given)
        if ids.is_floating_point() or ids.dim() != 2 or ids.shape[0] != self._shape.batch:
            raise InputError(
                f"ids are integers [batch={self._shape.batch}, seq], got {tuple(ids.shape)} of"
                f" {ids.dtype}"
            )
        if not 0 < ids.shape[1] <= self._shape.ctx - max(more, 0) or more < 0:
            raise InputError(
                f"a cache of ctx={self._shape.ctx} places has no room for {ids.shape[1]} tokens"
                f" and {more} more"
            )
        if int(ids.min()) < 0 or int(ids.max()) >= self.config.vocab:
            raise InputError(
                f"ids are 0 to {self.config.vocab - 1}, got {int(ids.min())} to {int(ids.max())}"
            )
        return ids.long()


def from_hf(  # noqa: PLR0913 - one parameter a choice of the user's
    source: object,
    *,
    mesh: Mesh | None = None,
    batch: int = 1,
    ctx: int = 128,
    target: str = "cpu",
    dtype: DType | torch.dtype | None = None,
    axis: str | None = None,
    machine: str | None = None,
    options: Options | None = None,
) -> Model:
    """A model of Hugging Face's on ditron.

    Args:
        source: a `transformers` model, whose weights are taken; a config of it or a dict of its
            fields, for which `load` brings weights later; or a folder that has `config.json` and,
            for the weights, `*.safetensors`.
        mesh: the ranks; one by default.
        batch: sequences that run together.
        ctx: places of the cache, so the most tokens of a sequence.
        target: as `dt.compile` takes it, or "reference", which runs the same programs by torch.
        dtype: of weights and activations; the weights' own by default, else the config's.
        axis: the mesh axis that heads are cut over, where there are several and none called tp; the
            others share the batch.
        machine: as `dt.compile` takes it.
        options: as `dt.compile` takes them.

    Raises:
        ModelError: an architecture, config or checkpoint that ditron cannot take, or ranks that do
            not divide it.
    """
    mesh = mesh or Mesh(tp=1)
    fields, checkpoint = _open(source)
    config = read_config(fields)
    kept = as_dtype(dtype) if dtype is not None else _dtype_of(config, checkpoint)
    shape = Shape(batch, 1, ctx, kept)
    model = Model(config, mesh, shape, tensor_axis(mesh, axis), Target(target, machine, options))
    if checkpoint is not None:
        model.load(checkpoint)
    return model


def _open(source: object) -> tuple[object, Mapping[str, torch.Tensor] | None]:
    """The config of a source, and its weights if it has any."""
    if isinstance(source, str | Path):
        return read_folder(Path(source))
    state_dict = getattr(source, "state_dict", None)
    if callable(state_dict):
        weights = cast("Mapping[str, torch.Tensor]", state_dict())
        return getattr(source, "config", None), weights
    return source, None


def _dtype_of(config: Config, checkpoint: Mapping[str, torch.Tensor] | None) -> DType:
    """The dtype of the weights, else the config's, else bf16."""
    name = config.dtype
    if checkpoint:
        name = str(next(iter(checkpoint.values())).dtype).removeprefix("torch.")
    known = {d.torch_name: d for d in DTYPES.values() if d.kind is Kind.FLOAT}
    if name is not None and name not in known:
        raise ModelError(f"the weights are {name}, which ditron has not; say dtype=dt.bf16")
    return bf16 if name is None else known[name]


def _task_program(program: Program) -> task.ProgramOp:
    return next(op for op in program.ir.ops if isinstance(op, task.ProgramOp))


def _weights_of(program: Program) -> Iterator[task.WeightOp]:
    return (op for op in _task_program(program).inputs if isinstance(op, task.WeightOp))
