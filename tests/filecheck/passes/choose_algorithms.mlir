// RUN: ditron-opt %s -p choose-algorithms | filecheck %s
// RUN: ditron-opt %s -p 'choose-algorithms{algorithm="mesh-push" chunk-bytes=4096 tile=32,24}' | filecheck %s --check-prefix=GIVEN
// RUN: ditron-opt %s -p 'choose-algorithms{per-op="up:tile=16x8","all_*:algorithm=ring"}' | filecheck %s --check-prefix=PEROP
// RUN: ditron-opt %s -p 'choose-algorithms{machine="h800x8"}' | filecheck %s --check-prefix=GPU
// RUN: not ditron-opt %s -p 'choose-algorithms{algorithm="magic"}' 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not ditron-opt %s -p 'choose-algorithms{machine="nowhere"}' 2>&1 | filecheck %s --check-prefix=MACHINE
// RUN: not ditron-opt %s -p 'choose-algorithms{tile=3}' 2>&1 | filecheck %s --check-prefix=TILE

// A shared-memory machine reads the peer's shard in place; what it was weighed against stands there.
// CHECK: task.all_gather {{.*}} choice #task.choice<mesh in-place chunk 63 cost_ns {{[0-9]+}} over "mesh {{.*}}" {{[0-9]+}}
// A product and what is computed on its tiles have one tile; what stands there already is kept.
// CHECK: task.matmul {{.*}} name "up" choice #task.choice<tile 7x5 cost_ns {{[0-9]+}}>
// CHECK: task.silu {{.*}} choice #task.choice<tile 7x5>

// 4096 bytes are 32 rows of 64 bf16.
// GIVEN: task.all_gather {{.*}} choice #task.choice<mesh push chunk 32 cost_ns
// GIVEN: task.matmul {{.*}} choice #task.choice<tile 32x24>
// GIVEN: task.silu {{.*}} choice #task.choice<tile 7x5>

// PEROP: task.all_gather {{.*}} choice #task.choice<ring push chunk 63
// PEROP: task.matmul {{.*}} choice #task.choice<tile 16x8>

// GPU: task.all_gather {{.*}} choice #task.choice<mesh
// GPU: task.matmul {{.*}} choice #task.choice<tile 7x5

// UNKNOWN: ditron-opt: error: no collective has an algorithm 'magic'; there are
// MACHINE: ditron-opt: error: no machine 'nowhere'; there are
// TILE: ditron-opt: error: tile is two

task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<250x64xbf16, [shard(0)]>
  %w = task.weight "w" : !task.tensor<64x96xbf16, [shard(1)]>
  %g = task.all_gather %x dim 0 axis "tp" : !task.tensor<250x64xbf16, [shard(0)]> -> !task.tensor<250x64xbf16, [replicate]>
  %h = task.matmul %g, %w name "up" : !task.tensor<250x64xbf16, [replicate]>, !task.tensor<64x96xbf16, [shard(1)]> -> !task.tensor<250x96xbf16, [shard(1)]>
  %y = task.silu %h choice #task.choice<tile 7x5> : !task.tensor<250x96xbf16, [shard(1)]> -> !task.tensor<250x96xbf16, [shard(1)]>
  task.output "y", %y : !task.tensor<250x96xbf16, [shard(1)]>
}
