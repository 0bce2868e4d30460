// RUN: ditron-opt %s -p 'choose-algorithms{algorithm="one-shot" tile=32,96},lower-task-to-device,decompose-collectives' | filecheck %s --check-prefix=ONE
// RUN: ditron-opt %s -p 'choose-algorithms{algorithm="two-shot" tile=32,96},lower-task-to-device,decompose-collectives' | filecheck %s --check-prefix=TWO

// Every rank adds 0, ..., n - 1 for itself: replicas are bit-equal.
// ONE: %[[PART:.*]] = device.buffer "matmul" scratch[66, 96]
// ONE: device.grid @{{.*}}reduce engine sm
// ONE-NEXT: device.view %[[PART]]{{.*}} at 0 :
// ONE-NEXT: device.view %[[PART]]{{.*}} at 1 :
// ONE-NEXT: device.view %[[PART]]{{.*}} at 2 :
// ONE-NEXT: device.view %[[PART]]{{.*}} at 3 :
// ONE-NOT: engine copy

// Each rank adds its own rows, then sends them to all.
// TWO: %[[ME:.*]] = device.rank
// TWO: %[[PART:.*]] = device.buffer "matmul" scratch[66, 96]
// TWO: %[[Y:.*]] = device.buffer "y" output[66, 96]
// TWO: device.grid @{{.*}}reduce engine sm
// TWO-NEXT: device.view %[[PART]][%[[ME]] * 17 {{.*}} at (%[[ME]] + 1) mod 4 :
// TWO: device.grid @{{.*}}gather engine copy in (%[[P:.*]] = 3, %{{.*}} = 1) {
// TWO-NEXT: %[[PEER:.*]] = device.index (%[[ME]] + %[[P]] + 1) mod 4
// TWO-NEXT: %[[S:.*]] = device.view %[[Y]][%[[ME]] * 17
// TWO-NEXT: %[[T:.*]] = device.view %[[Y]][%[[ME]] * 17 {{.*}} at %[[PEER]] :
// TWO-NEXT: device.put %[[S]] -> %[[T]]

task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<66x64xbf16, [shard(1)]>
  %w = task.weight "w" : !task.tensor<64x96xbf16, [shard(0)]>
  %p = task.matmul %x, %w : !task.tensor<66x64xbf16, [shard(1)]>, !task.tensor<64x96xbf16, [shard(0)]> -> !task.tensor<66x96xbf16, [partial(sum)]>
  %y = task.all_reduce %p axis "tp" : !task.tensor<66x96xbf16, [partial(sum)]> -> !task.tensor<66x96xbf16, [replicate]>
  task.output "y", %y : !task.tensor<66x96xbf16, [replicate]>
}
