// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// A kernel that does nothing, with views and without.
// CHECK-LABEL: core.func @nothing(%{{.*}}: !core.view<8xf32>) {
// CHECK-NEXT: }
core.func @nothing(%a: !core.view<8xf32>) {
}
// CHECK-LABEL: core.func @empty() {
// CHECK-NEXT: }
core.func @empty() {
}

// Integers are added as they are, and relu is the one function that takes them.
// CHECK-LABEL: core.func @integers
core.func @integers(%a: !core.view<8x1xi32>, %b: !core.view<1x4xi32>, %y: !core.view<8x4xi32>) {
  // CHECK-NEXT: %[[A:.*]] = core.load %{{.*}} : !core.view<8x1xi32> -> !core.tile<8x1xi32>
  %0 = core.load %a : !core.view<8x1xi32> -> !core.tile<8x1xi32>
  // CHECK-NEXT: %[[B:.*]] = core.load %{{.*}} : !core.view<1x4xi32> -> !core.tile<1x4xi32>
  %1 = core.load %b : !core.view<1x4xi32> -> !core.tile<1x4xi32>
  // CHECK-NEXT: %[[C:.*]] = core.add %[[A]], %[[B]] : !core.tile<8x1xi32>, !core.tile<1x4xi32> -> !core.tile<8x4xi32>
  %2 = core.add %0, %1 : !core.tile<8x1xi32>, !core.tile<1x4xi32> -> !core.tile<8x4xi32>
  // CHECK-NEXT: %[[D:.*]] = core.relu %[[C]] : !core.tile<8x4xi32> -> !core.tile<8x4xi32>
  %3 = core.relu %2 : !core.tile<8x4xi32> -> !core.tile<8x4xi32>
  // CHECK-NEXT: core.store %[[D]], %{{.*}} : !core.tile<8x4xi32>, !core.view<8x4xi32>
  core.store %3, %y : !core.tile<8x4xi32>, !core.view<8x4xi32>
}
