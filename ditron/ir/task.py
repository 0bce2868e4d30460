"""The task dialect: a program on distributed tensors, in SSA form.

One op per operation of the user's program, on tensors with global shapes and one placement per mesh
axis; a dimension that several axes cut is cut by the first of them, then each part by the next.
Placements may be left out of results, for `infer-placements` to fill in. What each op makes of its
operands is in `ditron.plan.spec` and the files beside it, how placements go together in
`ditron.plan.placement_table`.

A collective works over one mesh axis, in each group of ranks along it, and only on dimensions that
no later axis cuts within. Every op is pure, so dead code may go; but `task.update` writes to its
state, which is one buffer that lives from run to run: what it held before cannot be read after, and
what it holds at the end is what the last update made.
"""

from __future__ import annotations

from xdsl.ir import Dialect

from ditron.ir.attrs import ChoiceAttr, MeshAttr, PlacementsAttr, TensorType
from ditron.ir.task_attention import AttentionJoinOp, AttentionOp, AttentionPartsOp, HeadsOp
from ditron.ir.task_call import CallOp, CutsAttr
from ditron.ir.task_collectives import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    AxisOp,
    BroadcastOp,
    CollectiveOp,
    ReduceScatterOp,
    ShardOp,
    ShiftOp,
    move_op,
)
from ditron.ir.task_compute import (
    AddOp,
    BinaryOp,
    CastOp,
    ExpOp,
    GeluOp,
    MatmulOp,
    MulOp,
    PointwiseOp,
    ReluOp,
    SiluOp,
    SubOp,
    UnaryOp,
)
from ditron.ir.task_layers import (
    AmaxOp,
    ArgmaxOp,
    EmbeddingOp,
    ReductionOp,
    RmsNormOp,
    RopeOp,
    SoftmaxOp,
)
from ditron.ir.task_program import (
    ComputeOp,
    InputOp,
    OutputOp,
    ProgramOp,
    PureOp,
    ScalarOp,
    SourceOp,
    StateOp,
    WeightOp,
    role_of,
    spec_of,
)
from ditron.ir.task_views import (
    ConcatOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
    UpdateOp,
    find_state,
)
from ditron.plan.spec import TensorSpec

__all__ = [
    "AddOp",
    "AllGatherOp",
    "AllReduceOp",
    "AllToAllOp",
    "AmaxOp",
    "ArgmaxOp",
    "AttentionJoinOp",
    "AttentionOp",
    "AttentionPartsOp",
    "AxisOp",
    "BinaryOp",
    "BroadcastOp",
    "CallOp",
    "CastOp",
    "CollectiveOp",
    "ComputeOp",
    "ConcatOp",
    "EmbeddingOp",
    "ExpOp",
    "GeluOp",
    "HeadsOp",
    "InputOp",
    "MatmulOp",
    "MulOp",
    "OutputOp",
    "PointwiseOp",
    "ProgramOp",
    "PureOp",
    "ReduceScatterOp",
    "ReductionOp",
    "ReluOp",
    "ReshapeOp",
    "RmsNormOp",
    "RopeOp",
    "ScalarOp",
    "ShardOp",
    "ShiftOp",
    "SiluOp",
    "SliceOp",
    "SoftmaxOp",
    "SourceOp",
    "StateOp",
    "SubOp",
    "Task",
    "TensorSpec",
    "TransposeOp",
    "UnaryOp",
    "UpdateOp",
    "WeightOp",
    "find_state",
    "move_op",
    "role_of",
    "spec_of",
]

Task = Dialect(
    "task",
    [
        *(ProgramOp, InputOp, WeightOp, StateOp, ScalarOp, OutputOp),
        *(MatmulOp, AddOp, SubOp, MulOp, SiluOp, GeluOp, ReluOp, ExpOp, CastOp, CallOp),
        *(RmsNormOp, SoftmaxOp, RopeOp, EmbeddingOp, AmaxOp, ArgmaxOp),
        *(AttentionOp, AttentionPartsOp, AttentionJoinOp),
        *(SliceOp, ReshapeOp, TransposeOp, ConcatOp, UpdateOp),
        *(AllGatherOp, ReduceScatterOp, AllReduceOp, AllToAllOp, BroadcastOp, ShiftOp, ShardOp),
    ],
    [MeshAttr, PlacementsAttr, TensorType, ChoiceAttr, CutsAttr],
)
