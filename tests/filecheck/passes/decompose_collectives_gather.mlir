// RUN: ditron-opt %s -p 'choose-algorithms{algorithm="mesh-push" chunk-bytes=4096 tile=32,24},lower-task-to-device,decompose-collectives' | filecheck %s --check-prefix=PUSH
// RUN: ditron-opt %s -p 'choose-algorithms{algorithm="mesh-pull" tile=32,24},lower-task-to-device,decompose-collectives' | filecheck %s --check-prefix=PULL
// RUN: ditron-opt %s -p 'choose-algorithms{algorithm="mesh-in-place" tile=32,24},lower-task-to-device,decompose-collectives' | filecheck %s --check-prefix=PLACE
// RUN: ditron-opt %s -p 'choose-algorithms{algorithm="ring" tile=32,24},lower-task-to-device,decompose-collectives' | filecheck %s --check-prefix=RING

// PUSH: %[[ME:.*]] = device.rank
// PUSH: %[[X:.*]] = device.buffer "x"
// PUSH: %[[G:.*]] = device.buffer "all_gather" scratch{{.*}}symmetric
// PUSH-NOT: device.collective
// PUSH: device.grid @{{.*}} engine copy in (%[[C:.*]] = 2) {
// PUSH: device.copy
// PUSH: device.grid @{{.*}} engine copy in (%[[P:.*]] = 3, %[[D:.*]] = 2) {
// PUSH-NEXT: %[[PEER:.*]] = device.index (%[[ME]] + %[[P]] + 1) mod 4
// PUSH-NEXT: %[[S:.*]] = device.view %[[X]][%[[D]] * 32, 0] [min(32, 63 - %[[D]] * 32), 64]
// PUSH-NEXT: %[[T:.*]] = device.view %[[G]][%[[ME]] * 63 + %[[D]] * 32, 0] {{.*}} at %[[PEER]] :
// PUSH-NEXT: device.put %[[S]] -> %[[T]]

// Peers read the input, so the host hands it over and gets it back.
// PULL: %[[ME:.*]] = device.rank
// PULL: %[[X:.*]] = device.buffer "x" input{{.*}}symmetric
// PULL: device.acquire %[[X]]
// PULL: device.grid @{{.*}} engine copy in (%[[P:.*]] = 3, %[[C:.*]] = 1) {
// PULL-NEXT: %[[PEER:.*]] = device.index (%[[ME]] + %[[P]] + 1) mod 4
// PULL-NEXT: %[[S:.*]] = device.view %[[X]]{{.*}} at %[[PEER]] :
// PULL-NEXT: %[[T:.*]] = device.view {{.*}}[%[[PEER]] * 63 + %[[C]] * 63, 0]
// PULL-NEXT: device.get %[[S]] -> %[[T]]
// PULL: device.release %[[X]]

// In place nothing moves and the gathered buffer is gone.
// PLACE: %[[X:.*]] = device.buffer "x"
// PLACE-NOT: "all_gather"
// PLACE-NOT: engine copy
// PLACE: device.acquire %[[X]]
// PLACE: device.grid @matmul engine sm in (%[[P:.*]] = 4, %[[M:.*]] = 2, %{{.*}} = 1) {
// PLACE-NEXT: device.view %[[X]][%[[M]] * 32, 0] [min(32, 63 - %[[M]] * 32), 64] at %[[P]] :
// PLACE: device.release %[[X]]

// RING: %[[ME:.*]] = device.rank
// RING: %[[G:.*]] = device.buffer "all_gather"
// RING: device.grid @{{.*}} engine copy in (%[[S:.*]] = 3, %{{.*}} = 1) {
// RING-NEXT: %[[OWNER:.*]] = device.index (%[[ME]] - %[[S]]) mod 4
// RING-NEXT: %[[V:.*]] = device.view %[[G]][%[[OWNER]] * 63
// RING-NEXT: %[[T:.*]] = device.view %[[G]][%[[OWNER]] * 63 {{.*}} at (%[[ME]] + 1) mod 4 :
// RING-NEXT: device.put %[[V]] -> %[[T]]

task.program @p mesh #task.mesh<tp = 4> {
  %x = task.input "x" : !task.tensor<250x64xbf16, [shard(0)]>
  %w = task.weight "w" : !task.tensor<64x96xbf16, [shard(1)]>
  %g = task.all_gather %x dim 0 axis "tp" : !task.tensor<250x64xbf16, [shard(0)]> -> !task.tensor<250x64xbf16, [replicate]>
  %y = task.matmul %g, %w : !task.tensor<250x64xbf16, [replicate]>, !task.tensor<64x96xbf16, [shard(1)]> -> !task.tensor<250x96xbf16, [shard(1)]>
  task.output "y", %y : !task.tensor<250x96xbf16, [shard(1)]>
}
