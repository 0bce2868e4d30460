"""`ditron generate`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save
from tokenizers import Tokenizer, models, pre_tokenizers
from typer.testing import CliRunner

from ditron.models import random_checkpoint, read_config
from ditron.tools.cli import app

CONFIG: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "vocab_size": 64,
    "num_hidden_layers": 1,
    "dtype": "float32",
}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    def invoke(*arguments: object) -> tuple[int, str, str]:
        words = ["generate", folder, "--target", "reference", *arguments]
        result = CliRunner().invoke(app, [str(word) for word in words])
        unexpected = result.exception
        assert unexpected is None or isinstance(unexpected, SystemExit), unexpected
        return result.exit_code, result.stdout, result.stderr

    return invoke


def test_tokens(run: Run, folder: Path):
    code, out, _ = run("--ids", "1,2,3", "--random", 7, "--new-tokens", 4, "--tp", 2)
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "prompt  1 2 3"
    assert lines[2].startswith("time    ")
    weights = save(random_checkpoint(read_config(CONFIG), 7))
    (folder / "model.safetensors").write_bytes(weights)
    code, out, _ = run("--ids", "1,2,3", "--new-tokens", 4, "--json")
    data = json.loads(out)
    assert code == 0
    assert lines[1] == f"tokens  {' '.join(map(str, data['tokens']))}"
    assert len(data["seconds"]) == 4


def test_text(run: Run, folder: Path):
    words = {f"w{i}": i for i in range(64)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    code, out, _ = run("--prompt", "w5 w9", "--random", 0, "--new-tokens", 2, "--json")
    data = json.loads(out)
    assert code == 0
    assert data["prompt"] == [5, 9]
    assert data["text"].split() == [f"w{i}" for i in (*data["prompt"], *data["tokens"])]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--ids", "1"], 1, "has no *.safetensors; --random SEED makes weights up"),
        (["--ids", "1;2", "--random", 0], 2, "--ids are integers with commas between"),
        (["--random", 0], 2, "say either --ids 1,2,3 or --prompt TEXT"),
        (["--ids", "1", "--prompt", "a"], 2, "say either --ids 1,2,3 or --prompt TEXT"),
        (["--prompt", "a", "--random", 0], 2, "tokenizer.json; or use --ids"),
        (["--ids", "64", "--random", 0], 1, "ids are 0 to 63, got 64 to 64"),
        (["--ids", "1", "--random", 0, "--tp", 4], 1, "num_key_value_heads is 2, which 4 ranks"),
        (["--ids", "1", "--random", 0, "--ctx", 8], 1, "no room for 1 tokens and 31 more"),
    ],
    ids=str,
)
def test_mistakes(run: Run, arguments: list[object], code: int, message: str):
    found, _, err = run(*arguments)
    assert (found, message in err) == (code, True), err


def test_no_folder(tmp_path: Path):
    result = CliRunner().invoke(app, ["generate", str(tmp_path / "none"), "--ids", "1"])
    assert result.exit_code == 1
    assert "cannot read a model from" in result.stderr
