// Regions that once ended the process: a loop in one, which has no derivative,
// and thousands of operations.
// REQUIRES: fa-run
// RUN: fa-run %s --check --each-stage --shape=B=1,Sq=40,Sk=40 | FileCheck %s
// RUN: not fa-run %s --backward --shape=B=1,Sq=4,Sk=4 2>&1 | FileCheck %s --check-prefix=LOOP
// RUN: %python -c "t='tensor<1x1x4x8xf32>'; f=lambda n: f'%%a{n} = arith.addf %%a{n-1}, %%s : f32'; print(f'func.func @f(%%q: {t}, %%k: {t}, %%v: {t}) -> {t} {{\n%%o = fa.attention %%q, %%k, %%v score {{\n^bb0(%%s: f32, %%b: index, %%h: index, %%i: index, %%j: index):\n%%a0 = arith.mulf %%s, %%s : f32\n' + '\n'.join(map(f, range(1, 10000))) + f'\nfa.yield %%a9999 : f32\n}} : ({t}, {t}, {t}) -> {t}\nreturn %%o : {t}\n}}')" > %t.mlir
// RUN: fa-run %t.mlir --backward | FileCheck %s --check-prefix=DEEP

// CHECK: ok
// CHECK-NOT: WRONG
// LOOP: 'scf.for' op has no derivative
// DEEP: fa-split-mask-loops

!t = tensor<?x2x?x16xf32>
func.func @loop(%q: !t, %k: !t, %v: !t) -> !t {
  %o = fa.attention %q, %k, %v score {
  ^bb0(%s: f32, %b: index, %h: index, %i: index, %j: index):
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %zero = arith.constant 0.0 : f32
    %r = scf.for %x = %c0 to %j step %c1 iter_args(%y = %zero) -> (f32) {
      %z = arith.addf %y, %s : f32
      scf.yield %z : f32
    }
    fa.yield %r : f32
  } : (!t, !t, !t) -> !t
  return %o : !t
}

