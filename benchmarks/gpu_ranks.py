"""Ranks on GPUs of their own: right results, and times beside NCCL, cuBLAS and async TP.

    python -m benchmarks.gpu_ranks                 # a rank a GPU
    python -m benchmarks.gpu_ranks --ranks 2       # more ranks than GPUs: under MPS, without NCCL
    python -m benchmarks.gpu_ranks --sections heaps,check --heaps ipc,nvshmem
    python -m benchmarks.gpu_ranks --dry           # no GPU: build and cross-compile all programs
    torchrun --nproc-per-node 2 -m benchmarks.gpu_ranks --sections check,ag,rs,ar,reduce

Sections: `check` runs every collective and algorithm and the examples (997 rows a rank among them)
against torch: in turn, 1,000 launches more (`--launches`), and replays of a captured graph with
counters that cross 2^31; with memory by each of `--heaps`. `heaps` times how such memory is made.
`ag`, `rs`, `ar` are products with an all-gather, a reduce-scatter, an all-reduce; `reduce` is
all-reduces by themselves; `trace` writes what ran when.

Every time is the median over samples of the slowest rank, between events on the device, from a
barrier of the GPUs on; the host enqueues while they are kept busy. All ways of a shape take turns.
NVLink multicast is off for all. Results go to benchmarks/results/gpu_ranks.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist

import ditron as dt
from benchmarks import ranks_measure as measure
from benchmarks import ranks_programs as programs
from benchmarks.gpu_first_run import mps, options_for, say
from ditron.errors import DitronError
from ditron.runtime.cuda_driver import sm_count
from ditron.runtime.gpu_processes import rank_environment

ROOT = Path(__file__).resolve().parents[1]
SECTIONS = ("heaps", "check", "ag", "rs", "ar", "reduce", "trace")
RANK_S = 560


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """What the user wants."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=0, help="processes; one a GPU by default")
    parser.add_argument("--share", type=int, default=0, help="ranks on a GPU, others' as well")
    parser.add_argument("--sms", type=int, default=0, help="of a GPU, where ranks share it")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--dry", action="store_true", help="compile everything for sm_90 and end")
    parser.add_argument("--seconds", type=float, default=500, help="start no row later than this")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--heaps", default="ipc", help="that `heaps` and `check` try")
    parser.add_argument("--launches", type=int, default=1000, help="in a row, of a check")
    parser.add_argument("--only", default="", help="a pattern of checks' names")
    parser.add_argument("--few", action="store_true", help="two shapes a section")
    chosen = parser.parse_args(words)
    unknown = set(chosen.sections.split(",")) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}; there are {', '.join(SECTIONS)}")
    chosen.heaps = chosen.heaps.split(",")
    return chosen


def start(args: argparse.Namespace, words: list[str]) -> int:
    """A process a rank, as torchrun would start them."""
    gpus = torch.cuda.device_count()
    ranks = args.ranks or gpus
    share = args.share or -(-ranks // max(gpus, 1))
    with mps() if share > 1 else contextlib.nullcontext(dict(os.environ)) as environment:
        environment |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(ranks),
            "NCCL_NVLS_ENABLE": "0",
            "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
            "OMP_NUM_THREADS": str(max((os.cpu_count() or 1) // max(ranks, share), 1)),
            **rank_environment(share),
        }
        command = [sys.executable, "-m", "benchmarks.gpu_ranks", *words]
        command += ["--sms", str(sm_count(0))]
        started = [
            subprocess.Popen(command, cwd=ROOT, env={**environment, "RANK": str(r)})
            for r in range(ranks)
        ]
        try:
            until = time.monotonic() + RANK_S
            while any(process.poll() is None for process in started):
                time.sleep(0.1)
                if any(process.poll() for process in started) or time.monotonic() > until:
                    return 1
            return 0
        finally:
            for process in started:
                process.kill()


def free_port() -> int:
    """A port of this host that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def dry(args: argparse.Namespace) -> int:
    """Build and cross-compile what would run."""
    ranks, failed = args.ranks or 2, 0
    for section, way in all_ways(args, ranks, dt.Options(workers=128, copy_lanes=4)):
        begin = time.perf_counter()
        try:
            with way.compile("sm_90") as exe:
                exe.assembly()
            say(f"ok   {section} {way.name} ({time.perf_counter() - begin:.1f} s)")
        except DitronError as error:
            failed += not refused(error)
            word = "refused" if refused(error) else "FAIL"
            say(f"{word} {section} {way.name}: {str(error)[:300]}")
    return int(failed > 0)


def all_ways(
    args: argparse.Namespace, ranks: int, options: dt.Options
) -> Iterator[tuple[str, programs.Way]]:
    """(section, way) of all that would be compiled."""
    for section in args.sections.split(","):
        if section == "check":
            yield from ((section, way) for way in checks(args, ranks, options))
        elif section in programs.KINDS:
            for shape in programs.KINDS[section][: 2 if args.few else None]:
                for way in programs.fused(section, shape, ranks, options):
                    yield f"{section} {shape}", way
        elif section == "reduce":
            for size in programs.REDUCE_BYTES[:: 4 if args.few else 1]:
                yield from (
                    (f"{section} {size}", w) for w in programs.reduces(size, ranks, options)
                )


def checks(args: argparse.Namespace, ranks: int, options: dt.Options) -> Iterator[programs.Way]:
    """The checks that the arguments ask for."""
    for way in programs.checks(ranks, options):
        if re.search(args.only, way.name):
            yield from (way.on(heap) for heap in args.heaps)


def rank_main(args: argparse.Namespace) -> int:
    """One rank."""
    begin = time.monotonic()
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    gpus = torch.cuda.device_count()
    torch.cuda.set_device(rank % gpus)
    alone = ranks <= gpus
    device = torch.device("cuda", rank % gpus)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if alone else "gloo", device_id=device if alone else None
    )
    args.out.mkdir(parents=True, exist_ok=True)
    this = measure.Ranks(ranks, rank, nccl=alone, repeats=args.repeats)
    options = options_for(ranks, share=args.share, sms=args.sms)
    found: dict[str, object] = {"versions": versions(ranks)}
    fine = True
    for section in args.sections.split(","):
        rows: list[dict[str, object]] = []
        for label, run in tasks(section, args, this, options):
            if this.largest(time.monotonic() - begin) > args.seconds:
                this.say(f"     out of time: {section} {label} and what follows is left out")
                break
            try:
                rows.append({"what": label, **run()})
                this.say(f"{section} {label}: {measure.line(rows[-1])}")
            except (DitronError, AssertionError, RuntimeError) as error:
                fine = fine and refused(error)
                word = "refused" if refused(error) else "FAIL"
                rows.append({"what": label, word: str(error)[:500]})
                say(f"rank {rank} {word} {section} {label}: {str(error)[:1500]}")
        found[section] = rows
        if rank == 0:
            write(args.out / "gpu_ranks.json", found)
    this.say(f"=== {'all fine' if fine else 'not all fine'} ({time.monotonic() - begin:.0f} s)")
    dist.barrier()
    os._exit(0 if fine else 1)


def write(path: Path, found: dict[str, object]) -> None:
    """Sections that are new replace those that are there."""
    before: dict[str, object] = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, **found}, indent=1) + "\n")


def refused(error: Exception) -> bool:
    """Whether a program is one that GPUs do not run yet."""
    return any(
        words in str(error)
        for words in ("no Triton code", "has no code for", "waits for a later grid")
    )


def tasks(
    section: str, args: argparse.Namespace, this: measure.Ranks, options: dt.Options
) -> Iterator[tuple[str, Callable[[], dict[str, object]]]]:
    """(label, what to run) of a section."""
    few = 2 if args.few else None
    if section == "check":
        for way in checks(args, this.ranks, options):
            yield way.name, lambda way=way: measure.check(this, way, args.launches)
    elif section == "heaps":
        pairs = product(args.heaps, programs.HEAP_BYTES)
        yield from ((f"{h} {s >> 20} MiB", partial(measure.heap, this, h, s)) for h, s in pairs)
    elif section in programs.KINDS:
        for shape in programs.KINDS[section][:few]:
            ways = programs.fused(section, shape, this.ranks, options)
            yield str(shape), lambda s=shape, w=ways: measure.fused(this, section, s, w)
    elif section == "reduce":
        for size in programs.REDUCE_BYTES[:: 4 if args.few else 1]:
            ways = programs.reduces(size, this.ranks, options)
            yield f"{size} bytes", lambda s=size, w=ways: measure.reduce(this, s, w)
    else:
        for kind in programs.KINDS:
            for way in programs.fused(kind, programs.KINDS[kind][0], this.ranks, options)[:1]:
                path = args.out / f"gpu_ranks_{kind}_{way.name}.trace.json"
                yield f"{kind} {way.name}", lambda w=way, p=path: measure.trace(this, w, p)


def versions(ranks: int) -> dict[str, object]:
    """What the figures were made with."""
    return {
        "device": torch.cuda.get_device_name(),
        "gpus": torch.cuda.device_count(),
        "ranks": ranks,
        "torch": torch.__version__,
        "triton": version("triton"),
        "nccl": version("nvidia-nccl-cu13"),
        "python": platform.python_version(),
    }


def main(words: list[str]) -> int:
    """Start the ranks, or be one."""
    args = arguments(words)
    if args.dry:
        return dry(args)
    return rank_main(args) if "RANK" in os.environ else start(args, words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
