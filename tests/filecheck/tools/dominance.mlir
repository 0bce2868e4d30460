// RUN: not ditron-opt %s 2>&1 | filecheck %s

// Two regions deep, as a check that stops at the first level would miss it.
// CHECK: dominance.mlir:[[# @LINE + 5]]:7: error: arith.addi: operand #1 (%late) is used before it is defined
func.func @f(%n: index, %i: i1) {
  %c0 = arith.constant 0 : index
  scf.for %k = %c0 to %n step %n {
    scf.if %i {
      %s = arith.addi %k, %late : index
    }
    %late = arith.constant 1 : index
  }
  func.return
}
