// RUN: ditron-opt %s -p 'choose-algorithms{algorithm="mesh-push" tile=32,96},lower-task-to-device,decompose-collectives' | filecheck %s

// CHECK: %[[ME:.*]] = device.rank
// CHECK: %[[PART:.*]] = device.buffer "matmul" scratch[66, 96]
// CHECK: %[[Y:.*]] = device.buffer "y" output[min(max(66 - %[[ME]] * 17, 0), 17), 96]
// CHECK: %[[SLOTS:.*]] = device.buffer {{.*}} scratch{{.*}}symmetric

// Each rank sends the rows of the others to a slot of its own at them.
// CHECK: device.grid @{{.*}} engine copy in (%[[P:.*]] = 3, %{{.*}} = 1) {
// CHECK-NEXT: %[[PEER:.*]] = device.index (%[[ME]] + %[[P]] + 1) mod 4
// CHECK-NEXT: %[[S:.*]] = device.view %[[PART]][%[[PEER]] * 17
// CHECK-NEXT: %[[T:.*]] = device.view %[[SLOTS]][%[[ME]] * 17 {{.*}} at %[[PEER]] :
// CHECK-NEXT: device.put %[[S]] -> %[[T]]

// The owner adds owner + 1, ..., owner, its own part last, in float32, and rounds once.
// CHECK: device.grid @{{.*}} engine sm
// CHECK-NEXT: %[[A:.*]] = device.view %[[SLOTS]][(%[[ME]] + 1) mod 4 * 17
// CHECK-NEXT: %[[B:.*]] = device.view %[[SLOTS]][(%[[ME]] + 2) mod 4 * 17
// CHECK-NEXT: %[[C:.*]] = device.view %[[SLOTS]][(%[[ME]] + 3) mod 4 * 17
// CHECK-NEXT: %[[D:.*]] = device.view %[[PART]][%[[ME]] * 17
// CHECK-NEXT: %[[E:.*]] = device.view %[[Y]]
// CHECK-NEXT: device.call @[[SUM:[a-z_]+]](%[[A]], %[[B]], %[[C]], %[[D]], %[[E]])
// CHECK: core.func @[[SUM]](
// CHECK-COUNT-3: core.add {{.*}}xf32> -> !core.tile<{{.*}}xf32>
// CHECK-NEXT: core.cast {{.*}}xf32> -> !core.tile<{{.*}}xbf16>
// CHECK-NEXT: core.store

task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<66x64xbf16, [shard(1)]>
  %w = task.weight "w" : !task.tensor<64x96xbf16, [shard(0)]>
  %p = task.matmul %x, %w : !task.tensor<66x64xbf16, [shard(1)]>, !task.tensor<64x96xbf16, [shard(0)]> -> !task.tensor<66x96xbf16, [partial(sum)]>
  %y = task.reduce_scatter %p dim 0 axis "tp" : !task.tensor<66x96xbf16, [partial(sum)]> -> !task.tensor<66x96xbf16, [shard(0)]>
  task.output "y", %y : !task.tensor<66x96xbf16, [shard(0)]>
}
