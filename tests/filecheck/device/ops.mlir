// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// CHECK: core.func @add
core.func @add(%a: !core.view<64x8xf32>, %b: !core.view<64x8xf32>, %y: !core.view<64x8xf32>) {
}

// CHECK: device.program @p ranks 4 heap 4096 {
device.program @p ranks 4 heap 4096 {
  // CHECK-NEXT: %[[ME:.*]] = device.rank
  %me = device.rank
  // CHECK-NEXT: %[[X:.*]] = device.buffer "x" input[min(250 - %[[ME]] * 63, 64), 8] offset 0 : !device.buffer<64x8xf32, symmetric>
  %x = device.buffer "x" input [min(250 - %me * 63, 64), 8] offset 0 : !device.buffer<64x8xf32, symmetric>
  // CHECK-NEXT: %[[W:.*]] = device.buffer "w" weight[64, 8] : !device.buffer<64x8xf32, local>
  %w = device.buffer "w" weight [64, 8] : !device.buffer<64x8xf32, local>
  // CHECK-NEXT: %[[G:.*]] = device.buffer "g" scratch[256, 8] : !device.buffer<256x8xf32, symmetric>
  %g = device.buffer "g" scratch [256, 8] : !device.buffer<256x8xf32, symmetric>
  // CHECK-NEXT: %[[Y:.*]] = device.buffer "y" output[64, 8] : !device.buffer<64x8xf32, local>
  %y = device.buffer "y" output [64, 8] : !device.buffer<64x8xf32, local>
  // CHECK-NEXT: %[[READY:.*]] = device.signals "ready" : !device.signals<4>
  %ready = device.signals "ready" : !device.signals<4>
  // CHECK-NEXT: device.collective all_gather %[[X]] -> %[[G]] dim 0 size 250 axis "tp" ranks 4 stride 1 choice <mesh push chunk 64> : !device.buffer<64x8xf32, symmetric> -> !device.buffer<256x8xf32, symmetric>
  device.collective all_gather %x -> %g dim 0 size 250 axis "tp" ranks 4 stride 1 choice <mesh push chunk 64> : !device.buffer<64x8xf32, symmetric> -> !device.buffer<256x8xf32, symmetric>
  // CHECK-NEXT: device.grid @acquire engine host in () {
  device.grid @acquire engine host in () {
    // CHECK-NEXT: device.acquire %[[X]] : !device.buffer<64x8xf32, symmetric>
    device.acquire %x : !device.buffer<64x8xf32, symmetric>
  }
  // CHECK: device.grid @gather engine copy in (%[[P:.*]] = 3, %[[C:.*]] = 2) {
  device.grid @gather engine copy in (%p = 3, %c = 2) {
    // CHECK-NEXT: %[[PEER:.*]] = device.index (%[[ME]] + %[[P]] + 1) mod 4
    %peer = device.index (%me + %p + 1) mod 4
    // CHECK-NEXT: %[[T:.*]] = device.table dense<[0, 2, 1]> : tensor<3xi64>[%[[P]]]
    %t = device.table dense<[0, 2, 1]> : tensor<3xi64>[%p]
    // CHECK-NEXT: %[[S:.*]] = device.view %[[X]][%[[C]] * 32, 0] [32, 8] : !device.buffer<64x8xf32, symmetric> -> !core.view<32x8xf32>
    %src = device.view %x[%c * 32, 0] [32, 8] : !device.buffer<64x8xf32, symmetric> -> !core.view<32x8xf32>
    // CHECK-NEXT: %[[D:.*]] = device.view %[[G]][%[[ME]] * 64 + %[[C]] * 32, 0] [32, 8] at %[[PEER]] : !device.buffer<256x8xf32, symmetric> -> !core.view<32x8xf32>
    %dst = device.view %g[%me * 64 + %c * 32, 0] [32, 8] at %peer : !device.buffer<256x8xf32, symmetric> -> !core.view<32x8xf32>
    // CHECK-NEXT: device.schedule lane[%[[P]]] order[%[[T]], %[[C]]] where[%[[PEER]] ne %[[ME]]]
    device.schedule lane [%p] order [%t, %c] where [%peer ne %me]
    // CHECK-NEXT: device.wait %[[READY]][%[[ME]], 1] ge 2 lag 1 when %[[C]] eq 0 : !device.signals<4>
    device.wait %ready[%me, 1] ge 2 lag 1 when %c eq 0 : !device.signals<4>
    // CHECK-NEXT: device.put %[[S]] -> %[[D]] : !core.view<32x8xf32> -> !core.view<32x8xf32>
    device.put %src -> %dst : !core.view<32x8xf32> -> !core.view<32x8xf32>
    // CHECK-NEXT: device.notify %[[READY]][%[[ME]]] at %[[PEER]] add 1 after put when %[[C]] lt 2 : !device.signals<4>
    device.notify %ready[%me] at %peer add 1 after put when %c lt 2 : !device.signals<4>
  }
  // CHECK: device.grid @fetch engine copy in
  device.grid @fetch engine copy in (%p = 3) {
    %src = device.view %x[0, 0] [64, 8] at (%me + %p) mod 4 : !device.buffer<64x8xf32, symmetric> -> !core.view<64x8xf32>
    %dst = device.view %g[%p * 64, 0] [64, 8] : !device.buffer<256x8xf32, symmetric> -> !core.view<64x8xf32>
    // CHECK: device.get
    device.get %src -> %dst : !core.view<64x8xf32> -> !core.view<64x8xf32>
    // CHECK-NEXT: device.notify {{.*}} set 3 after quiet
    device.notify %ready[%p] at %me set 3 after quiet : !device.signals<4>
  }
  device.grid @own engine copy in () {
    %src = device.view %x[0, 0] [64, 8] : !device.buffer<64x8xf32, symmetric> -> !core.view<64x8xf32>
    %dst = device.view %g[max(%me, 0) * 64, 0] [64, 8] : !device.buffer<256x8xf32, symmetric> -> !core.view<64x8xf32>
    // CHECK: device.copy
    device.copy %src -> %dst : !core.view<64x8xf32> -> !core.view<64x8xf32>
  }
  // CHECK: device.grid @sum engine sm queue in (%{{.*}} = 1) {
  device.grid @sum engine sm queue in (%m = 1) {
    %a = device.view %g[%m * 64, 0] [64, 8] : !device.buffer<256x8xf32, symmetric> -> !core.view<64x8xf32>
    %b = device.view %w[0, 0] [64, 8] : !device.buffer<64x8xf32, local> -> !core.view<64x8xf32>
    %c = device.view %y[0, 0] [64, 8] : !device.buffer<64x8xf32, local> -> !core.view<64x8xf32>
    // CHECK: device.call @add(%{{.*}}, %{{.*}}, %{{.*}}) : !core.view<64x8xf32>, !core.view<64x8xf32>, !core.view<64x8xf32>
    device.call @add(%a, %b, %c) : !core.view<64x8xf32>, !core.view<64x8xf32>, !core.view<64x8xf32>
  }
  device.grid @release engine host in () {
    // CHECK: device.release
    device.release %x : !device.buffer<64x8xf32, symmetric>
  }
}
