// RUN: ditron-opt %s --split-input-file --parsing-diagnostics | filecheck %s

// CHECK: expected shard, replicate or partial, got split
%0 = "test.op"() : () -> !task.tensor<8xf32, [split(0)]>

// -----
// CHECK: algorithm given twice: ring and mesh
"test.op"() {a = #task.choice<ring mesh>} : () -> ()

// -----
// CHECK: transfer given twice: push and pull
"test.op"() {a = #task.choice<ring push pull>} : () -> ()

// -----
// CHECK: mesh axis 'tp' needs a size of at least 1, got 0
"test.op"() {a = #task.mesh<tp = 0>} : () -> ()

// -----
// CHECK: a mesh has one size for each of its distinct axes, got ['tp', 'tp']
"test.op"() {a = #task.mesh<tp = 2, tp = 2>} : () -> ()

// -----
// CHECK: tensor is shard(1), but shape (8,) has 1 dimensions
%0 = "test.op"() : () -> !task.tensor<8xf32, [shard(1)]>

// -----
// CHECK: f8E5M2 is no element type; expected one of
%0 = "test.op"() : () -> !task.tensor<8xf8E5M2, [shard(0)]>
