"""What `ditron generate` does: a model of a folder continues a prompt."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ditron.errors import ModelError, OptionError
from ditron.models import from_hf, random_checkpoint
from ditron.models.model import Model
from ditron.plan.options import Options
from ditron.plan.placement import Mesh


@dataclass(frozen=True)
class GenerateRequest:
    """The arguments of `ditron generate`."""

    folder: Path
    ids: str | None = None
    prompt: str | None = None
    new_tokens: int = 32
    tp: int = 1
    ctx: int = 128
    random: int | None = None
    prefill: bool = False


@dataclass(frozen=True)
class Generated:
    """What a model said. `seconds`: one a new token, the first with the prompt before it."""

    prompt: list[int]
    tokens: list[int]
    text: str | None
    seconds: list[float]


def generate(
    request: GenerateRequest, target: str, machine: str | None, options: Options
) -> Generated:
    """Continue a prompt greedily, with a progress bar on a terminal.

    Raises:
        OptionError: a prompt that cannot be read.
        ModelError: a folder that holds no model that ditron can run.
    """
    tokenizer = _Tokenizer(request.folder)
    ids = _read_ids(request, tokenizer)
    mesh = Mesh(tp=request.tp)
    model = from_hf(
        request.folder,
        mesh=mesh,
        ctx=request.ctx,
        target=target,
        machine=machine,
        options=options,
    )
    with model:
        _give_weights(model, request)
        tokens, seconds = _run(model, ids, request)
    text = tokenizer.decode(ids + tokens) if request.prompt is not None else None
    return Generated(ids, tokens, text, seconds)


def _give_weights(model: Model, request: GenerateRequest) -> None:
    if request.random is not None:
        model.load(random_checkpoint(model.config, request.random))
    elif not model.loaded:
        raise ModelError(f"{request.folder} has no *.safetensors; --random SEED makes weights up")


def _run(model: Model, ids: list[int], request: GenerateRequest) -> tuple[list[int], list[float]]:
    screen = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    tokens, seconds = list[int](), list[float]()
    with Progress(
        *columns, TimeElapsedColumn(), console=screen, disable=not screen.is_terminal
    ) as bar:
        shown = bar.add_task("compiling, then tokens", total=request.new_tokens)
        before = time.perf_counter()
        for token in model.stream([ids], request.new_tokens, prefill=request.prefill):
            tokens.append(int(token))
            seconds.append(time.perf_counter() - before)
            before = time.perf_counter()
            bar.update(shown, advance=1, description="tokens")
    return tokens, seconds


def print_generated(found: Generated) -> None:
    """The text, else the tokens, and how long one took."""
    out = [found.text] if found.text is not None else []
    out.append(f"prompt  {' '.join(map(str, found.prompt))}")
    out.append(f"tokens  {' '.join(map(str, found.tokens))}")
    steps = found.seconds[1:]
    if steps:
        out.append(f"time    {1e3 * median(steps):.2f} ms a token, median of {len(steps)}")
    sys.stdout.write("\n".join(out) + "\n")


def generated_data(found: Generated) -> dict[str, Any]:
    """The same as data."""
    return asdict(found)


def _read_ids(request: GenerateRequest, tokenizer: _Tokenizer) -> list[int]:
    if (request.ids is None) == (request.prompt is None):
        raise OptionError("say either --ids 1,2,3 or --prompt TEXT")
    if request.prompt is not None:
        return tokenizer.encode(request.prompt)
    try:
        return [int(word) for word in cast("str", request.ids).split(",")]
    except ValueError:
        raise OptionError(f"--ids are integers with commas between, got {request.ids!r}") from None


class _Tokenizer:
    """The folder's `tokenizer.json`, read when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "tokenizer.json"

    def encode(self, text: str) -> list[int]:
        return list(self._open().encode(text).ids)

    def decode(self, ids: list[int]) -> str:
        return str(self._open().decode(ids))

    def _open(self) -> Any:  # noqa: ANN401 - the library has no types
        try:
            from tokenizers import Tokenizer  # noqa: PLC0415 - optional
        except ImportError as error:
            raise OptionError("--prompt needs the package tokenizers; or use --ids") from error
        if not self.path.is_file():
            raise OptionError(f"--prompt needs {self.path}; or use --ids")
        return Tokenizer.from_file(str(self.path))
