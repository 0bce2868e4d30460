"""A model that answers: logits and greedy tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self, cast

import torch

from ditron.errors import InputError, ModelError
from ditron.models.config import Config, read_config
from ditron.models.decoder import Shape, tensor_axis
from ditron.models.programs import Programs, Target
from ditron.models.weights import fuse, read_folder
from ditron.plan.dtypes import DTYPES, DType, Kind, as_dtype, bf16
from ditron.plan.options import Options
from ditron.plan.placement import Mesh
from ditron.runtime.inputs import torch_dtype


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
        self,
        ids: torch.Tensor | Sequence[Sequence[int]],
        max_new_tokens: int = 32,
        *,
        prefill: bool = False,
    ) -> torch.Tensor:
        """The likeliest continuation: ids [batch, seq] -> [batch, seq + max_new_tokens].

        Args:
            ids: the prompt.
            max_new_tokens: how many to add; all but the last have to fit `ctx`.
            prefill: take the prompt at once, by a program of its length; else token by token, by
                the program that goes on.

        Raises:
            InputError: as `logits`.
        """
        ids = self._as_ids(ids, max_new_tokens - 1)
        return torch.cat([ids, *self.stream(ids, max_new_tokens, prefill=prefill)], 1)

    def stream(
        self,
        ids: torch.Tensor | Sequence[Sequence[int]],
        max_new_tokens: int = 32,
        *,
        prefill: bool = False,
    ) -> Iterator[torch.Tensor]:
        """The tokens of `generate` as they come, each [batch, 1]: one launch a token."""
        ids = self._as_ids(ids, max_new_tokens - 1)
        seq, begin = ids.shape[1], 0
        token = ids[:, :1]
        if prefill:
            token, begin = self.logits(ids)[:, -1:].argmax(-1), seq
            yield token
            self.programs.hand_over(f"prefill-{seq}", "decode")
        for at in range(begin, seq + max_new_tokens - 1):
            out = self.programs["decode"].run({"ids": token, "pos": at})["next"]
            prompt = at + 1 < seq
            token = ids[:, at + 1 : at + 2] if prompt else out
            if not prompt:
                yield token

    def close(self) -> None:
        """End the programs' processes."""
        self.programs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
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
