// RUN: ditron-opt %s -p cse,dce --print-ir-after-change 2>&1 | filecheck %s --check-prefix=CHANGE
// RUN: ditron-opt %s -p dce,cse --print-ir-before-all 2>&1 | filecheck %s --check-prefix=BEFORE
// RUN: ditron-opt %s -p dce,cse --print-ir-after-all 2>&1 | filecheck %s --check-prefix=AFTER
// RUN: ditron-opt %s --print-debuginfo | filecheck %s --check-prefix=LOC

// CHANGE: IR Dump After cse
// CHANGE-NOT: IR Dump

// BEFORE: IR Dump Before dce
// BEFORE: arith.constant
// BEFORE: IR Dump Before cse
// BEFORE-NOT: arith.constant

// AFTER: IR Dump After dce
// AFTER-NOT: arith.constant
// AFTER: IR Dump After cse

// LOC: arith.constant 1 : i32 loc("{{.*}}dumps.mlir":[[# @LINE + 2]]:3)
func.func @f() {
  %dead = arith.constant 1 : i32
  func.return
}
