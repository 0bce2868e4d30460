"""Emitted kernels compiled for GPUs that are not here, and what the gate must refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from triton_support import cross, example

import ditron as dt
from ditron.backends.triton import compile as compiling
from ditron.backends.triton.compiled import Compiled
from ditron.backends.triton.gate import check_compiled
from ditron.backends.triton.targets import TARGETS
from ditron.errors import CompileError
from ditron.runtime.gpu_program import TritonProgram
from ditron.runtime.gpu_source import write_source

CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("00_matmul", {"m": 997, "n": 1376, "k": 520, "tp": 1}, {"tile": (128, 256)}),
    ("01_ag_gemm", {"m": 997, "n": 1376, "k": 520}, {"algorithm": "mesh-push"}),
    ("01_ag_gemm", {"m": 2048, "n": 2048, "k": 1024}, {"algorithm": "mesh-in-place"}),
    ("02_gemm_rs", {"m": 512, "n": 512, "k": 512}, {"algorithm": "mesh-push"}),
    ("03_gemm_ar", {"m": 7, "n": 512, "k": 512}, {"algorithm": "one-shot"}),
    ("04_mlp", {}, {"algorithm": "mesh-push"}),
    # A row alone, and rows that no asynchronous copy loads.
    ("00_matmul", {"m": 1, "n": 1000, "k": 1001, "tp": 1}, {}),
    ("00_matmul", {"m": 300, "n": 1001, "k": 1001, "tp": 1}, {}),
]


def program_of(target: str, name: str, sizes: dict[str, Any], options: dict[str, Any]) -> Any:
    chosen = dt.Options(workers=16, **options)
    return cross(dt.compile(example(name, **sizes), target=target, options=chosen)).program


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
@pytest.mark.parametrize(("name", "sizes", "options"), CASES)
def test_examples_compile(
    target: str, name: str, sizes: dict[str, Any], options: dict[str, Any]
) -> None:
    kernels = compiling.compile_program(program_of(target, name, sizes, options))
    rows = sizes.get("m", 0)  # one is multiplied and added in the plain way
    assert any(kernel.launch.dots for kernel in kernels) == (rows != 1)


@pytest.fixture(scope="module", params=["sm_90", "gfx942"])
def gemm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Compiled, TritonProgram]:
    """A matmul that waits for every tile, and notifies."""
    program = program_of(request.param, *CASES[1])
    launch = next(x for x in program.launches if x.dots and x.always and x.notifies)
    path = write_source(program.source, tmp_path_factory.mktemp("source"))
    (compiled,) = compiling.compile_kernels(path, [launch], TARGETS[request.param])
    return compiled, program


def changed(compiled: Compiled, edit: Callable[[str], str]) -> Compiled:
    form = "ptx" if "ptx" in compiled.asm else "amdgcn"
    text = edit(compiled.text)
    assert text != compiled.text
    return replace(compiled, asm={form: text})


def without(pattern: str) -> Callable[[str], str]:
    return lambda text: re.sub(rf"^.*({pattern}).*\n", "", text, flags=re.MULTILINE)


POLL = r"ld\.global\.\w+\.acquire|buffer_inv"
RELEASE = r"(?:red|atom)\.global\.\w+\.release|buffer_wbl2"
MUTANTS: dict[str, tuple[Callable[[str], str], str]] = {
    "no wait": (without(r"(//|;) wait \d+$"), "is gone"),
    "no notify": (without(r"(//|;) notify \d+$"), "is gone"),
    "no poll": (without(POLL), "does not acquire"),
    "no release": (without(RELEASE), "is not sent|is never sent"),
    "no barriers": (without(r"bar\.sync|s_barrier"), "barrier"),
    "poll at another scope": (
        lambda text: re.sub(r"sys\.acquire", "gpu.acquire", text).replace(
            "buffer_inv sc0 sc1", "buffer_inv sc1"
        ),
        "has scope gpu, needs sys",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_what_is_lost_is_missed(gemm: tuple[Compiled, TritonProgram], name: str) -> None:
    compiled, program = gemm
    target = TARGETS[program.target]
    check_compiled(compiled, program.sites, target)
    edit, message = MUTANTS[name]
    with pytest.raises(CompileError, match=message):
        check_compiled(changed(compiled, edit), program.sites, target)


def test_a_load_before_the_wait_is_seen(gemm: tuple[Compiled, TritonProgram]) -> None:
    compiled, program = gemm
    load = next(
        line
        for line in compiled.text.splitlines()
        if re.match(r"\s*(@\S+ )?(cp\.async\.bulk\.tensor|(global|buffer)_load_dwordx)", line)
    )
    first = r"^(\s*.*(?:ld\.global\.\w+\.acquire|buffer_inv).*)$"
    with pytest.raises(CompileError, match="may run before"):
        check_compiled(
            changed(
                compiled,
                lambda text: re.sub(
                    first, lambda m: f"{load}\n{m[1]}", text, count=1, flags=re.MULTILINE
                ),
            ),
            program.sites,
            TARGETS[program.target],
        )


def test_a_load_by_descriptor_needs_a_proxy_fence(gemm: tuple[Compiled, TritonProgram]) -> None:
    compiled, program = gemm
    if program.target != "sm_90":
        assert "_tiles" not in program.source
        return
    assert "cp.async.bulk.tensor" in compiled.text
    with pytest.raises(CompileError, match="no proxy fence stands between a wait and `"):
        check_compiled(
            changed(compiled, lambda text: text.replace("fence.proxy.async.global;", "")),
            program.sites,
            TARGETS["sm_90"],
        )


# A store through a descriptor in place of a plain one, and what makes it safe to tell of.
STORE = """tile = tl.make_tensor_descriptor({name}, [512, 512], [512, 1], [64, 128])
        tile.store([m * 64, n * 128], as_bf16)
        tl.inline_asm_elementwise("{asm}", "=r,r", [task], tl.int32, is_pure=False, pack=1)
"""
LANDED = "cp.async.bulk.wait_group 0;\\n fence.proxy.async;\\n mov.b32 $0, $1;"


def test_a_store_by_descriptor_has_landed_before_a_notify(tmp_path: Path) -> None:
    """Emitted code stores plainly what it tells of; here that is changed by hand."""
    program = program_of("sm_90", "02_gemm_rs", CASES[3][1], CASES[3][2])
    launch = next(x for x in program.launches if x.dots)
    name = launch.arguments[0].name
    store = STORE.format(name=name, asm=LANDED)
    source, count = re.subn(rf"tl\.store\({name} .*\n", lambda _: store, program.source)
    assert launch.notifies
    assert count == 1
    path = write_source(source, tmp_path)
    (compiled,) = compiling.compile_kernels(path, [launch], TARGETS["sm_90"])
    check_compiled(compiled, program.sites, TARGETS["sm_90"])
    for pattern, instead, message in (
        (r"fence\.proxy\.async;", "", "has no proxy fence behind it"),
        (r"bulk\.wait_group\s+0", "bulk.wait_group.read 0", "may not have landed"),
    ):
        with pytest.raises(CompileError, match=message):
            check_compiled(
                changed(compiled, lambda text, p=pattern, i=instead: re.sub(p, i, text)),
                program.sites,
                TARGETS["sm_90"],
            )


def test_a_notify_in_a_flat_loop_comes_behind_the_stores(tmp_path: Path) -> None:
    program = program_of("sm_90", *CASES[3])
    launch = next(x for x in program.launches if x.dots)
    head, kernel = program.source.split(f"def {launch.kernel}(")[0], program.source
    kernel = kernel.removeprefix(head)
    loop = r"for (\w+) in (?:tl\.)?range\((.*?)(?:, flatten=True)?\):"
    flat = re.sub(loop, r"for \1 in tl.range(\2, flatten=True):", kernel, count=1)
    path = write_source(head + flat, tmp_path)
    (compiled,) = compiling.compile_kernels(path, [launch], TARGETS["sm_90"])
    check_compiled(compiled, program.sites, TARGETS["sm_90"])
    with pytest.raises(CompileError, match="a store may come after the barrier"):
        check_compiled(
            changed(compiled, lambda text: text.replace("bar.sync 0; mov", "mov")),
            program.sites,
            TARGETS["sm_90"],
        )
    with pytest.raises(CompileError, match="8 bytes of registers are spilled"):
        check_compiled(replace(compiled, spills=8), program.sites, TARGETS["sm_90"])


def test_loads_that_do_not_run_ahead_are_seen(tmp_path: Path) -> None:
    program = program_of("sm_90", "00_matmul", {"m": 512, "n": 1024, "k": 512, "tp": 1}, {})
    (launch,) = program.launches
    stopped = program.source.replace("sums = tl.dot", "tl.debug_barrier(); sums = tl.dot")
    assert stopped != program.source
    path = write_source(stopped, tmp_path)
    (compiled,) = compiling.compile_kernels(path, [launch], TARGETS["sm_90"])
    with pytest.raises(CompileError, match="no load of its products runs ahead"):
        check_compiled(compiled, program.sites, TARGETS["sm_90"])


def test_the_drain_of_amd_is_missed(gemm: tuple[Compiled, TritonProgram]) -> None:
    compiled, program = gemm
    if program.target != "gfx942":
        pytest.skip("only there")
    with pytest.raises(CompileError, match="a store may come after the barrier"):
        check_compiled(changed(compiled, without("; drain$")), program.sites, TARGETS["gfx942"])


def test_each_wait_and_notify_taken_out_of_the_source_is_missed(tmp_path: Path) -> None:
    program = program_of("sm_90", "02_gemm_rs", CASES[3][1], CASES[3][2])
    calls = r"^( *)(?:token \+?= wait|notify|notify_set)\(.*\)$"
    lines = program.source.splitlines()
    found = [i for i, line in enumerate(lines) if re.match(calls, line)]
    assert len(found) > 3
    for i in found:
        keep = re.sub(calls, r"\1token = 0", lines[i])
        source = "\n".join([*lines[:i], keep, *lines[i + 1 :]]) + "\n"
        launch = _launch_at(program, i)
        path = write_source(source, tmp_path)
        (compiled,) = compiling.compile_kernels(path, [launch], TARGETS["sm_90"])
        with pytest.raises(CompileError, match="is gone"):
            check_compiled(compiled, program.sites, TARGETS["sm_90"])


def _launch_at(program: TritonProgram, line: int) -> Any:
    """The launch of the kernel that a line of the source is in."""
    before = "\n".join(program.source.splitlines()[:line])
    name = re.findall(r"^def (\w+)\(", before, re.MULTILINE)[-1]
    return next(x for x in program.launches if x.kernel == name)
