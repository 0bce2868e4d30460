// RUN: not ditron-opt %s 2>&1 | filecheck %s
// RUN: not ditron-opt %s -p no-such-pass 2>&1 | filecheck %s --check-prefix=PASS
// RUN: not ditron-opt %s -p 'canonicalise' 2>&1 | filecheck %s --check-prefix=NEAR
// RUN: not ditron-opt %s -p 'cse{only=3}' 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not ditron-opt no-such-file.mlir 2>&1 | filecheck %s --check-prefix=FILE

// CHECK: errors.mlir:[[# @LINE + 6]]:3: error: arith.addi: operand 'rhs'
// CHECK-NEXT: "arith.addi"
// CHECK-NOT: Traceback
// CHECK-NOT: func.func
func.func @f(%a: i32, %b: i64) {
  "test.op"() : () -> ()
  %c = "arith.addi"(%a, %b) : (i32, i64) -> i32
  func.return
}

// PASS: ditron-opt: error: no pass is named 'no-such-pass'
// NEAR: ditron-opt: error: no pass is named 'canonicalise', did you mean 'canonicalize'?
// OPTION: ditron-opt: error: pass 'cse': {{.*}}"only"
// FILE: ditron-opt: error: cannot read no-such-file.mlir: No such file or directory
