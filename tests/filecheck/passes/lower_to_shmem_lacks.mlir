// RUN: ditron-opt %s -p 'lower-to-shmem{transport=nvshmem}' | filecheck %s
// RUN: not ditron-opt %s -p 'lower-to-shmem{transport=peer}' 2>&1 | filecheck %s --check-prefix=PEER
// RUN: not ditron-opt %s -p 'lower-to-shmem{transport=copy-engine}' 2>&1 | filecheck %s --check-prefix=ENGINE

// What a transport lacks is refused at the op's line.
// CHECK-LABEL: device.program @p
device.program @p ranks 2 {
  // CHECK-NEXT: %[[ME:.*]] = device.rank
  %me = device.rank
  %x = device.buffer "x" input [4] : !device.buffer<4xf32, symmetric>
  %y = device.buffer "y" scratch [4] : !device.buffer<4xf32, symmetric>
  %s = device.signals "s" : !device.signals<1>
  // CHECK: device.grid @g
  device.grid @g engine copy in () {
    %a = device.view %x[0] [4] : !device.buffer<4xf32, symmetric> -> !core.view<4xf32>
    %b = device.view %y[0] [4] at 1 - %me : !device.buffer<4xf32, symmetric> -> !core.view<4xf32>
    // CHECK: shmem.putmem
    device.put %a -> %b : !core.view<4xf32> -> !core.view<4xf32>
    // ENGINE: lower_to_shmem_lacks.mlir:[[# @LINE + 2]]: {{.*}}transport copy-engine has no signal add
    // CHECK-NEXT: shmem.signal %{{.*}}[0] at 1 - %[[ME]] add 1 after put
    device.notify %s[0] at 1 - %me add 1 after put : !device.signals<1>
    // PEER: lower_to_shmem_lacks.mlir:[[# @LINE + 2]]: {{.*}}transport peer has no signal after quiet
    // CHECK-NEXT: shmem.signal %{{.*}}[0] at 1 - %[[ME]] add 1 after quiet
    device.notify %s[0] at 1 - %me add 1 after quiet : !device.signals<1>
  }
}
