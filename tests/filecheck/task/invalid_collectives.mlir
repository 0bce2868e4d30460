// RUN: ditron-opt %s --split-input-file --verify-diagnostics | filecheck %s

// CHECK: task.all_gather: all_gather(dim=1) needs x shard(1), but it is shard(0): all_gather(x, dim=0) makes it whole
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.all_gather %x dim 1 axis "tp" : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate]>
}

// -----
// CHECK: task.reduce_scatter: reduce_scatter(dim=0) needs x partial(sum), but it is replicate: x is whole on every rank already
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [replicate]>
  %y = task.reduce_scatter %x dim 0 axis "tp" : !task.tensor<8x4xf32, [replicate]> -> !task.tensor<8x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(0)]>
}

// -----
// CHECK: task.all_reduce: Mesh(tp=4) has no axis 'dp'; it has tp
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [partial(sum)]>
  %y = task.all_reduce %x axis "dp" : !task.tensor<8x4xf32, [partial(sum)]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate]>
}

// -----
// CHECK: task.all_to_all: all_to_all(split_dim=1, concat_dim=0) needs x shard(0), but it is shard(1): x lies as wanted already
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(1)]>
  %y = task.all_to_all %x split 1 concat 0 axis "tp" : !task.tensor<8x4xf32, [shard(1)]> -> !task.tensor<8x4xf32, [shard(1)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(1)]>
}

// -----
// CHECK: task.all_to_all: all_to_all: split_dim and concat_dim are both 0; nothing would move
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.all_to_all %x split 0 concat 0 axis "tp" : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(0)]>
}

// -----
// CHECK: task.broadcast: broadcast(root=4): tp has 4 ranks, so root is 0 to 3
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.broadcast %x dim 0 root 4 axis "tp" : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate]>
}

// -----
// CHECK: task.broadcast: the result should be !task.tensor<2x4xf32, [replicate]>, got !task.tensor<8x4xf32, [replicate]>
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0)]>
  %y = task.broadcast %x dim 0 root 1 axis "tp" : !task.tensor<8x4xf32, [shard(0)]> -> !task.tensor<8x4xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate]>
}

// -----
// CHECK: task.shift: shift(by=1) needs equal shards, but x's dim 0 of 6 is cut into 4; make it a multiple of 4
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<6x4xf32, [shard(0)]>
  %y = task.shift %x dim 0 by 1 axis "tp" : !task.tensor<6x4xf32, [shard(0)]> -> !task.tensor<6x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<6x4xf32, [shard(0)]>
}

// -----
// CHECK: task.shard: shard(dim=0) needs x replicate, but it is partial(sum): all_reduce(x) or reduce_scatter(x, dim=...) sums it
task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [partial(sum)]>
  %y = task.shard %x dim 0 axis "tp" : !task.tensor<8x4xf32, [partial(sum)]> -> !task.tensor<8x4xf32, [shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [shard(0)]>
}

// -----
// CHECK: task.all_gather: all_gather(dim=0): x is [shard(0), shard(0)], so its dim 0 is cut once more within each part on dp; use all_gather(x, dim=0, axis="tp") first
task.program @p mesh #task.mesh<dp = 2, tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [shard(0), shard(0)]>
  %y = task.all_gather %x dim 0 axis "dp" : !task.tensor<8x4xf32, [shard(0), shard(0)]> -> !task.tensor<8x4xf32, [replicate, shard(0)]>
  task.output "y", %y : !task.tensor<8x4xf32, [replicate, shard(0)]>
}

// -----
// CHECK: task.all_reduce: all_reduce needs x partial(sum) on tp, but it is shard(0): all_gather(x, dim=0, axis="tp") makes it whole
task.program @p mesh #task.mesh<dp = 2, tp = 4> {
  %x = task.input "x" : !task.tensor<8x4xf32, [partial(sum), shard(0)]>
  %y = task.all_reduce %x axis "tp" : !task.tensor<8x4xf32, [partial(sum), shard(0)]> -> !task.tensor<8x4xf32, [partial(sum), replicate]>
  task.output "y", %y : !task.tensor<8x4xf32, [partial(sum), replicate]>
}
