// RUN: %triton-dist-opt %s --pass convert-shmem-to-llvm --transport rocshmem | FileCheck %s
// Single elements for each type that ROCSHMEM has, waits and tests for each of OpenSHMEM's. Integers below 32 bits are extended as the ABI asks;
// the symbols abbreviate what they repeat (S0_).

module attributes {"ttg.target" = "hip:gfx942", "ttg.threads-per-warp" = 64 : i32} {
llvm.mlir.global external @global_smem() {addr_space = 3 : i32} : !llvm.array<0 x i8>

// CHECK-LABEL: llvm.func @elements_i8(
llvm.func @elements_i8(%ptr: !llvm.ptr<1>, %n: i64, %pe: i32, %value: i8) {
  // CHECK: llvm.call @_ZN8rocshmem16rocshmem_schar_pEPaai({{.*}}) : (!llvm.ptr, i8 {llvm.signext}, i32) -> ()
  shmem.p i8 %ptr, %value, %pe : !llvm.ptr<1>, i8
  // CHECK: llvm.call @_ZN8rocshmem16rocshmem_schar_gEPKai({{.*}}) : (!llvm.ptr, i32) -> i8
  %g = shmem.g i8 %ptr, %pe : !llvm.ptr<1>, i8
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_u8(
llvm.func @elements_u8(%ptr: !llvm.ptr<1>, %n: i64, %pe: i32, %value: i8) {
  // CHECK: llvm.call @_ZN8rocshmem16rocshmem_uchar_pEPhhi({{.*}}) : (!llvm.ptr, i8 {llvm.zeroext}, i32) -> ()
  shmem.p u8 %ptr, %value, %pe : !llvm.ptr<1>, i8
  // CHECK: llvm.call @_ZN8rocshmem16rocshmem_uchar_gEPKhi({{.*}}) : (!llvm.ptr, i32) -> i8
  %g = shmem.g u8 %ptr, %pe : !llvm.ptr<1>, i8
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_i16(
llvm.func @elements_i16(%ptr: !llvm.ptr<1>, %n: i64, %pe: i32, %value: i16) {
  // CHECK: llvm.call @_ZN8rocshmem16rocshmem_short_pEPssi({{.*}}) : (!llvm.ptr, i16 {llvm.signext}, i32) -> ()
  shmem.p i16 %ptr, %value, %pe : !llvm.ptr<1>, i16
  // CHECK: llvm.call @_ZN8rocshmem16rocshmem_short_gEPKsi({{.*}}) : (!llvm.ptr, i32) -> i16
  %g = shmem.g i16 %ptr, %pe : !llvm.ptr<1>, i16
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_short_wait_untilEPsis(
  %w = shmem.wait_until i16 %ptr, ne %value : !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @_ZN8rocshmem19rocshmem_short_testEPsis({{.*}}) : (!llvm.ptr, i32, i16 {llvm.signext}) -> i32
  %t = shmem.test i16 %ptr, eq %value : !llvm.ptr<1>, i16, i32
  // CHECK: llvm.call @_ZN8rocshmem29rocshmem_short_wait_until_allEPsmPKiis(
  %all = shmem.wait_until_all i16 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @_ZN8rocshmem29rocshmem_short_wait_until_anyEPsmPKiis(
  %any = shmem.wait_until_any i16 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_short_wait_until_someEPsmPmPKiis(
  %some = shmem.wait_until_some i16 %ptr, %n, %ptr, %ptr, lt %value : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @_ZN8rocshmem36rocshmem_short_wait_until_all_vectorEPsmPKiiS0_(
  %all_vector = shmem.wait_until_all_vector i16 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem36rocshmem_short_wait_until_any_vectorEPsmPKiiS0_(
  %any_vector = shmem.wait_until_any_vector i16 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem37rocshmem_short_wait_until_some_vectorEPsmPmPKiiS0_(
  %some_vector = shmem.wait_until_some_vector i16 %ptr, %n, %ptr, %ptr, ge %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_u16(
llvm.func @elements_u16(%ptr: !llvm.ptr<1>, %n: i64, %pe: i32, %value: i16) {
  // CHECK: llvm.call @_ZN8rocshmem17rocshmem_ushort_pEPtti({{.*}}) : (!llvm.ptr, i16 {llvm.zeroext}, i32) -> ()
  shmem.p u16 %ptr, %value, %pe : !llvm.ptr<1>, i16
  // CHECK: llvm.call @_ZN8rocshmem17rocshmem_ushort_gEPKti({{.*}}) : (!llvm.ptr, i32) -> i16
  %g = shmem.g u16 %ptr, %pe : !llvm.ptr<1>, i16
  // CHECK: llvm.call @_ZN8rocshmem26rocshmem_ushort_wait_untilEPtit(
  %w = shmem.wait_until u16 %ptr, ne %value : !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @_ZN8rocshmem20rocshmem_ushort_testEPtit({{.*}}) : (!llvm.ptr, i32, i16 {llvm.zeroext}) -> i32
  %t = shmem.test u16 %ptr, eq %value : !llvm.ptr<1>, i16, i32
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_ushort_wait_until_allEPtmPKiit(
  %all = shmem.wait_until_all u16 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_ushort_wait_until_anyEPtmPKiit(
  %any = shmem.wait_until_any u16 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @_ZN8rocshmem31rocshmem_ushort_wait_until_someEPtmPmPKiit(
  %some = shmem.wait_until_some u16 %ptr, %n, %ptr, %ptr, lt %value : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i16, i64
  // CHECK: llvm.call @_ZN8rocshmem37rocshmem_ushort_wait_until_all_vectorEPtmPKiiS0_(
  %all_vector = shmem.wait_until_all_vector u16 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem37rocshmem_ushort_wait_until_any_vectorEPtmPKiiS0_(
  %any_vector = shmem.wait_until_any_vector u16 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem38rocshmem_ushort_wait_until_some_vectorEPtmPmPKiiS0_(
  %some_vector = shmem.wait_until_some_vector u16 %ptr, %n, %ptr, %ptr, ge %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_i32(
llvm.func @elements_i32(%ptr: !llvm.ptr<1>, %n: i64, %pe: i32, %value: i32) {
  // CHECK: llvm.call @_ZN8rocshmem14rocshmem_int_pEPiii({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.p i32 %ptr, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem14rocshmem_int_gEPKii({{.*}}) : (!llvm.ptr, i32) -> i32
  %g = shmem.g i32 %ptr, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem23rocshmem_int_wait_untilEPiii(
  %w = shmem.wait_until i32 %ptr, ne %value : !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @_ZN8rocshmem17rocshmem_int_testEPiii({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %t = shmem.test i32 %ptr, eq %value : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem27rocshmem_int_wait_until_allEPimPKiii(
  %all = shmem.wait_until_all i32 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @_ZN8rocshmem27rocshmem_int_wait_until_anyEPimPKiii(
  %any = shmem.wait_until_any i32 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @_ZN8rocshmem28rocshmem_int_wait_until_someEPimPmPKiii(
  %some = shmem.wait_until_some i32 %ptr, %n, %ptr, %ptr, lt %value : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @_ZN8rocshmem34rocshmem_int_wait_until_all_vectorEPimPKiiS0_(
  %all_vector = shmem.wait_until_all_vector i32 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem34rocshmem_int_wait_until_any_vectorEPimPKiiS0_(
  %any_vector = shmem.wait_until_any_vector i32 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem35rocshmem_int_wait_until_some_vectorEPimPmPKiiS0_(
  %some_vector = shmem.wait_until_some_vector i32 %ptr, %n, %ptr, %ptr, ge %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_u32(
llvm.func @elements_u32(%ptr: !llvm.ptr<1>, %n: i64, %pe: i32, %value: i32) {
  // CHECK: llvm.call @_ZN8rocshmem15rocshmem_uint_pEPjji({{.*}}) : (!llvm.ptr, i32, i32) -> ()
  shmem.p u32 %ptr, %value, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem15rocshmem_uint_gEPKji({{.*}}) : (!llvm.ptr, i32) -> i32
  %g = shmem.g u32 %ptr, %pe : !llvm.ptr<1>, i32
  // CHECK: llvm.call @_ZN8rocshmem24rocshmem_uint_wait_untilEPjij(
  %w = shmem.wait_until u32 %ptr, ne %value : !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @_ZN8rocshmem18rocshmem_uint_testEPjij({{.*}}) : (!llvm.ptr, i32, i32) -> i32
  %t = shmem.test u32 %ptr, eq %value : !llvm.ptr<1>, i32, i32
  // CHECK: llvm.call @_ZN8rocshmem28rocshmem_uint_wait_until_allEPjmPKiij(
  %all = shmem.wait_until_all u32 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @_ZN8rocshmem28rocshmem_uint_wait_until_anyEPjmPKiij(
  %any = shmem.wait_until_any u32 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @_ZN8rocshmem29rocshmem_uint_wait_until_someEPjmPmPKiij(
  %some = shmem.wait_until_some u32 %ptr, %n, %ptr, %ptr, lt %value : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i32, i64
  // CHECK: llvm.call @_ZN8rocshmem35rocshmem_uint_wait_until_all_vectorEPjmPKiiS0_(
  %all_vector = shmem.wait_until_all_vector u32 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem35rocshmem_uint_wait_until_any_vectorEPjmPKiiS0_(
  %any_vector = shmem.wait_until_any_vector u32 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem36rocshmem_uint_wait_until_some_vectorEPjmPmPKiiS0_(
  %some_vector = shmem.wait_until_some_vector u32 %ptr, %n, %ptr, %ptr, ge %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_i64(
llvm.func @elements_i64(%ptr: !llvm.ptr<1>, %n: i64, %pe: i32, %value: i64) {
  // CHECK: llvm.call @_ZN8rocshmem15rocshmem_long_pEPlli({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.p i64 %ptr, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem15rocshmem_long_gEPKli({{.*}}) : (!llvm.ptr, i32) -> i64
  %g = shmem.g i64 %ptr, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem24rocshmem_long_wait_untilEPlil(
  %w = shmem.wait_until i64 %ptr, ne %value : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem18rocshmem_long_testEPlil({{.*}}) : (!llvm.ptr, i32, i64) -> i32
  %t = shmem.test i64 %ptr, eq %value : !llvm.ptr<1>, i64, i32
  // CHECK: llvm.call @_ZN8rocshmem28rocshmem_long_wait_until_allEPlmPKiil(
  %all = shmem.wait_until_all i64 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem28rocshmem_long_wait_until_anyEPlmPKiil(
  %any = shmem.wait_until_any i64 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem29rocshmem_long_wait_until_someEPlmPmPKiil(
  %some = shmem.wait_until_some i64 %ptr, %n, %ptr, %ptr, lt %value : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem35rocshmem_long_wait_until_all_vectorEPlmPKiiS0_(
  %all_vector = shmem.wait_until_all_vector i64 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem35rocshmem_long_wait_until_any_vectorEPlmPKiiS0_(
  %any_vector = shmem.wait_until_any_vector i64 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem36rocshmem_long_wait_until_some_vectorEPlmPmPKiiS0_(
  %some_vector = shmem.wait_until_some_vector i64 %ptr, %n, %ptr, %ptr, ge %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_u64(
llvm.func @elements_u64(%ptr: !llvm.ptr<1>, %n: i64, %pe: i32, %value: i64) {
  // CHECK: llvm.call @_ZN8rocshmem16rocshmem_ulong_pEPmmi({{.*}}) : (!llvm.ptr, i64, i32) -> ()
  shmem.p u64 %ptr, %value, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem16rocshmem_ulong_gEPKmi({{.*}}) : (!llvm.ptr, i32) -> i64
  %g = shmem.g u64 %ptr, %pe : !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem25rocshmem_ulong_wait_untilEPmim(
  %w = shmem.wait_until u64 %ptr, ne %value : !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem19rocshmem_ulong_testEPmim({{.*}}) : (!llvm.ptr, i32, i64) -> i32
  %t = shmem.test u64 %ptr, eq %value : !llvm.ptr<1>, i64, i32
  // CHECK: llvm.call @_ZN8rocshmem29rocshmem_ulong_wait_until_allEPmmPKiim(
  %all = shmem.wait_until_all u64 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem29rocshmem_ulong_wait_until_anyEPmmPKiim(
  %any = shmem.wait_until_any u64 %ptr, %n, %ptr, gt %value : !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem30rocshmem_ulong_wait_until_someEPmmS0_PKiim(
  %some = shmem.wait_until_some u64 %ptr, %n, %ptr, %ptr, lt %value : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64, i64
  // CHECK: llvm.call @_ZN8rocshmem36rocshmem_ulong_wait_until_all_vectorEPmmPKiiS0_(
  %all_vector = shmem.wait_until_all_vector u64 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem36rocshmem_ulong_wait_until_any_vectorEPmmPKiiS0_(
  %any_vector = shmem.wait_until_any_vector u64 %ptr, %n, %ptr, le %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  // CHECK: llvm.call @_ZN8rocshmem37rocshmem_ulong_wait_until_some_vectorEPmmS0_PKiiS0_(
  %some_vector = shmem.wait_until_some_vector u64 %ptr, %n, %ptr, %ptr, ge %ptr : !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, !llvm.ptr<1>, i64
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_f32(
llvm.func @elements_f32(%ptr: !llvm.ptr<1>, %n: i64, %pe: i32, %value: f32) {
  // CHECK: llvm.call @_ZN8rocshmem16rocshmem_float_pEPffi({{.*}}) : (!llvm.ptr, f32, i32) -> ()
  shmem.p f32 %ptr, %value, %pe : !llvm.ptr<1>, f32
  // CHECK: llvm.call @_ZN8rocshmem16rocshmem_float_gEPKfi({{.*}}) : (!llvm.ptr, i32) -> f32
  %g = shmem.g f32 %ptr, %pe : !llvm.ptr<1>, f32
  llvm.return
}

// CHECK-LABEL: llvm.func @elements_f64(
llvm.func @elements_f64(%ptr: !llvm.ptr<1>, %n: i64, %pe: i32, %value: f64) {
  // CHECK: llvm.call @_ZN8rocshmem17rocshmem_double_pEPddi({{.*}}) : (!llvm.ptr, f64, i32) -> ()
  shmem.p f64 %ptr, %value, %pe : !llvm.ptr<1>, f64
  // CHECK: llvm.call @_ZN8rocshmem17rocshmem_double_gEPKdi({{.*}}) : (!llvm.ptr, i32) -> f64
  %g = shmem.g f64 %ptr, %pe : !llvm.ptr<1>, f64
  llvm.return
}
}
