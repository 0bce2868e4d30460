// RUN: not ditron-opt %s -p fuse-tiles 2>&1 | filecheck %s --check-prefix=LOWER
// RUN: not ditron-opt %s -p decompose-collectives 2>&1 | filecheck %s --check-prefix=LOWER
// RUN: not ditron-opt %s -p order-tiles 2>&1 | filecheck %s --check-prefix=LOWER
// RUN: not ditron-opt %s -p plan-memory 2>&1 | filecheck %s --check-prefix=LOWER
// RUN: not ditron-opt %s -p schedule-tasks 2>&1 | filecheck %s --check-prefix=LOWER
// RUN: not ditron-opt %s -p insert-signals 2>&1 | filecheck %s --check-prefix=LOWER
// RUN: not ditron-opt %s -p elide-waits 2>&1 | filecheck %s --check-prefix=LOWER
// RUN: not ditron-opt %s -p verify-delivery 2>&1 | filecheck %s --check-prefix=LOWER
// RUN: not ditron-opt %s -p verify-race-free 2>&1 | filecheck %s --check-prefix=LOWER
// RUN: not ditron-opt %s -p verify-deadlock-free 2>&1 | filecheck %s --check-prefix=LOWER
// RUN: not ditron-opt %s -p lower-to-shmem 2>&1 | filecheck %s --check-prefix=LOWER

// A pass that comes too early names the one that must run first.
// LOWER: ditron-opt: error: no device.program here: run lower-task-to-device first

task.program @p mesh #task.mesh<tp = 2> {
  %x = task.input "x" : !task.tensor<8x6xf32, [replicate]>
  %y = task.relu %x : !task.tensor<8x6xf32, [replicate]> -> !task.tensor<8x6xf32, [replicate]>
  task.output "y", %y : !task.tensor<8x6xf32, [replicate]>
}
