// RUN: ditron-opt %s | filecheck %s
// RUN: ditron-opt %s | ditron-opt | filecheck %s
// RUN: ditron-opt %s --print-op-generic | ditron-opt | filecheck %s

// CHECK-LABEL: task.program @layers mesh #task.mesh<tp = 4> {
task.program @layers mesh #task.mesh<tp = 4> {
  %ids = task.input "ids" : !task.tensor<16xi64, [replicate]>
  %table = task.weight "table" : !task.tensor<100x64xbf16, [shard(0)]>
  %gain = task.weight "gain" : !task.tensor<64xbf16, [replicate]>
  %q = task.input "q" : !task.tensor<16x4x8xbf16, [shard(1)]>
  %cos = task.input "cos" : !task.tensor<16x1x8xf32, [replicate]>
  %sin = task.input "sin" : !task.tensor<16x1x8xf32, [replicate]>
  // CHECK: %[[E:.*]] = task.embedding %{{.*}}, %{{.*}} name "embed" : !task.tensor<16xi64, [replicate]>, !task.tensor<100x64xbf16, [shard(0)]> -> !task.tensor<16x64xbf16, [partial(sum)]>
  %e = task.embedding %ids, %table name "embed" : !task.tensor<16xi64, [replicate]>, !task.tensor<100x64xbf16, [shard(0)]> -> !task.tensor<16x64xbf16, [partial(sum)]>
  // CHECK-NEXT: %[[X:.*]] = task.reduce_scatter %[[E]]
  %x = task.reduce_scatter %e dim 0 axis "tp" : !task.tensor<16x64xbf16, [partial(sum)]> -> !task.tensor<16x64xbf16, [shard(0)]>
  // CHECK-NEXT: %[[N:.*]] = task.rms_norm %[[X]] gain %{{.*}} eps 1.000000e-06 name "norm" choice #task.choice<tile 8x64> : !task.tensor<16x64xbf16, [shard(0)]>, !task.tensor<64xbf16, [replicate]> -> !task.tensor<16x64xbf16, [shard(0)]>
  %n = task.rms_norm %x gain %gain eps 1.000000e-06 name "norm" choice #task.choice<tile 8x64> : !task.tensor<16x64xbf16, [shard(0)]>, !task.tensor<64xbf16, [replicate]> -> !task.tensor<16x64xbf16, [shard(0)]>
  // CHECK-NEXT: %[[M:.*]] = task.rms_norm %[[N]] eps 0.000000e+00 : !task.tensor<16x64xbf16, [shard(0)]> -> !task.tensor<16x64xbf16, [shard(0)]>
  %m = task.rms_norm %n eps 0.0 : !task.tensor<16x64xbf16, [shard(0)]> -> !task.tensor<16x64xbf16, [shard(0)]>
  // CHECK-NEXT: %[[S:.*]] = task.softmax %[[M]] dim 1 name "probs" : !task.tensor<16x64xbf16, [shard(0)]> -> !task.tensor<16x64xbf16, [shard(0)]>
  %s = task.softmax %m dim 1 name "probs" : !task.tensor<16x64xbf16, [shard(0)]> -> !task.tensor<16x64xbf16, [shard(0)]>
  // CHECK-NEXT: %[[R:.*]] = task.rope %{{.*}}, %{{.*}}, %{{.*}} name "rope" : !task.tensor<16x4x8xbf16, [shard(1)]>, !task.tensor<16x1x8xf32, [replicate]>, !task.tensor<16x1x8xf32, [replicate]> -> !task.tensor<16x4x8xbf16, [shard(1)]>
  %r = task.rope %q, %cos, %sin name "rope" : !task.tensor<16x4x8xbf16, [shard(1)]>, !task.tensor<16x1x8xf32, [replicate]>, !task.tensor<16x1x8xf32, [replicate]> -> !task.tensor<16x4x8xbf16, [shard(1)]>
  task.output "s", %s : !task.tensor<16x64xbf16, [shard(0)]>
  task.output "r", %r : !task.tensor<16x4x8xbf16, [shard(1)]>
}
