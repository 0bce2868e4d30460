"""lower-to-shmem: one op for one, the same plan; transports refuse what they lack."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from xdsl.context import Context

import ditron as dt
from ditron.analysis.expand import expand
from ditron.errors import OptionError
from ditron.ir import device, shmem
from ditron.passes.lower_to_shmem import COUNTERPARTS, TRANSPORTS, LowerToShmemPass, TransportName
from ditron.pipelines import default_pipeline
from ditron.plan.storage import plan_hash, to_bytes
from ditron.plan.tables import Plan
from tests.unit.lowered import PROGRAMS, ag_gemm, find, gemm_rs, lower, parse

OPTIONS = [
    dt.Options(algorithm="mesh-push", tile=(2, 3), workers=2),
    dt.Options(algorithm="mesh-pull", copy_lanes=2),
    dt.Options(algorithm="ring", chunk_bytes=16),
    dt.Options(algorithm="two-shot", fusion=False),
]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_plan_stays_the_same(name: str, options: dt.Options):
    module = lower(PROGRAMS[name](3), options)
    before, ops = expand(module), Counter(op.name for op in module.walk())
    LowerToShmemPass("posix").apply(Context(), module)
    module.verify()
    assert to_bytes(expand(module)) == to_bytes(before)
    after = Counter(op.name for op in module.walk())
    for old, new in COUNTERPARTS.items():
        assert after[new.name] == ops[old.name]
        assert after[old.name] == 0
    assert sum(after.values()) == sum(ops.values())
    # It prints and parses back, and that has the same plan too, but for the lines in it.
    again = expand(parse(str(module)))
    assert _without_lines(again) == _without_lines(before)


def _without_lines(plan: Plan) -> str:
    return plan_hash(replace(plan, ops=tuple(replace(op, location="") for op in plan.ops)))


def test_locations_are_kept():
    module = lower(ag_gemm(3), dt.Options(algorithm="mesh-push"))
    before = [str(op.location) for op in module.walk()]
    LowerToShmemPass().apply(Context(), module)
    assert [str(op.location) for op in module.walk()] == before


@pytest.mark.parametrize("transport", [t for t in TRANSPORTS if t != "copy-engine"])
def test_transports_that_have_everything_that_is_made(transport: TransportName):
    for algorithm in ("mesh-push", "mesh-in-place"):
        module = lower(gemm_rs(3), dt.Options(algorithm=algorithm))
        LowerToShmemPass(transport).apply(Context(), module)
        module.verify()


BUFFERS = """device.program @p ranks 2 {
  %me = device.rank
  %x = device.buffer "x" input[4] : !device.buffer<4xf32, symmetric>
  %y = device.buffer "y" scratch[4] : !device.buffer<4xf32, symmetric>
  %s = device.signals "s" : !device.signals<1>
  device.grid @g engine ENGINE in () {
    %a = device.view %x[0] [4] SOURCE : !device.buffer<4xf32, symmetric> -> !core.view<4xf32>
    %b = device.view %y[0] [4] at (1 - %me) : !device.buffer<4xf32, symmetric> -> !core.view<4xf32>
    BODY : !core.view<4xf32> SEP !core.view<4xf32>
    device.notify %s[0] at (1 - %me) VERB 1 after AFTER : !device.signals<1>
  }
}
core.func @k(%a: !core.view<4xf32>, %b: !core.view<4xf32>) {
  %t = core.load %a : !core.view<4xf32> -> !core.tile<4xf32>
  core.store %t, %b : !core.tile<4xf32>, !core.view<4xf32>
}"""


def put(verb: str, after: str) -> str:
    text = BUFFERS.replace("ENGINE", "copy").replace("SOURCE", "").replace("SEP", "->")
    return text.replace("BODY", "device.put %a -> %b").replace("VERB", verb).replace("AFTER", after)


def call() -> str:
    text = BUFFERS.replace("ENGINE", "sm").replace("SOURCE", "").replace("SEP", ",")
    text = text.replace("BODY", "device.call @k(%a, %b)")
    return text.replace("VERB", "set").replace("AFTER", "put")


@pytest.mark.parametrize(
    ("text", "transport", "lack"),
    [
        (put("add", "put"), "copy-engine", "signal add"),
        (put("set", "put").replace("set 1", "set 2"), "copy-engine", "signal set 2"),
        (put("set", "fence"), "peer", "signal after fence"),
        (put("add", "quiet"), "peer", "signal after quiet"),
        (call(), "copy-engine", "access in place"),
    ],
)
def test_what_a_transport_lacks_is_refused_at_its_line(
    text: str, transport: TransportName, lack: str
):
    module = parse(text)
    with pytest.raises(OptionError) as caught:
        LowerToShmemPass(transport).apply(Context(), module)
    assert caught.value.message.startswith(f"transport {transport} has no {lack}: ")
    assert caught.value.where is not None
    name, line = caught.value.where.split(":")[:2]
    assert name == "test.mlir"
    guilty = "device.call" if lack == "access in place" else "device.notify"
    assert guilty in text.splitlines()[int(line) - 1]


@pytest.mark.parametrize("after", ["end", "put", "fence", "quiet"])
@pytest.mark.parametrize("transport", ["posix", "nvshmem", "rocshmem"])
def test_signals_may_follow_anything(transport: TransportName, after: str):
    module = parse(put("add", after))
    LowerToShmemPass(transport).apply(Context(), module)
    (signal,) = find(module, "shmem.signal")
    assert isinstance(signal, shmem.SignalOp)
    assert signal.after.data == after


@pytest.mark.parametrize("after", ["end", "put", "fence", "quiet"])
def test_flags_may_follow_anything_on_a_stream(after: str):
    module = parse(put("set", after))
    LowerToShmemPass("copy-engine").apply(Context(), module)
    assert len(find(module, "shmem.signal")) == 1


@pytest.mark.parametrize("algorithm", [None, "mesh-push", "mesh-pull", "ring"])
def test_kernels_add_where_copy_engines_set(algorithm: str | None):
    module = ag_gemm(3).ir
    for step in default_pipeline(dt.Options(algorithm=algorithm), "h200", driven=True):
        step.apply(Context(), module)
    LowerToShmemPass("copy-engine").apply(Context(), module)
    module.verify()


def test_copies_kernels_and_hand_overs_stay():
    module = lower(ag_gemm(2), dt.Options(algorithm="mesh-pull"))
    kinds = (device.CopyOp, device.CallOp, device.AcquireOp, device.ReleaseOp)
    before = [op for op in module.walk() if isinstance(op, kinds)]
    LowerToShmemPass().apply(Context(), module)
    assert [op for op in module.walk() if isinstance(op, kinds)] == before


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_program_gives_the_same_text_and_plan(name: str):
    options = dt.Options(algorithm="mesh-push", tile=(2, 3), workers=2)

    def made() -> tuple[str, bytes]:
        module = lower(PROGRAMS[name](3), options)
        plan = to_bytes(expand(module))
        LowerToShmemPass().apply(Context(), module)
        return str(module), plan

    assert made() == made()
