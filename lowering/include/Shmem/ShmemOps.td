//===- ShmemOps.td - The one table of SHMEM operations ------------------===//
//
// Adding an operation means one entry here, one function in
// triton_dist/language, one implementation in triton_dist/world/cpu and one
// test in tests/lowering. The C++ lowering is generic over this table.
//
//===--------------------------------------------------------------------===//

#ifndef SHMEM_OPS_TD
#define SHMEM_OPS_TD

include "mlir/Interfaces/SideEffectInterfaces.td"
include "Shmem/ShmemDialect.td"
include "Shmem/ShmemEnums.td"
include "Shmem/ShmemInterfaces.td"

//===--------------------------------------------------------------------===//
// Types and classes
//===--------------------------------------------------------------------===//

// Triton's pointers until its conversion to LLVM, LLVM's afterwards. Triton's
// headers are no part of its wheel, so its type is known by name.
def Shmem_Ptr : Type<
    CPred<"::triton_dist::shmem::isScalarPointer($_self)">, "scalar pointer">;

/// Who makes the library call.
class Shmem_Caller<string name> { string cppValue = "::triton_dist::shmem::Caller::" # name; }
def Shmem_EveryThread : Shmem_Caller<"EveryThread">; // pure queries: the answer is needed everywhere
def Shmem_Block : Shmem_Caller<"Block">;             // all threads together, the library's `_block` routine
def Shmem_Elected : Shmem_Caller<"Elected">;         // one thread, between two barriers of the program

class Shmem_Op<string mnemonic, list<Trait> traits = []>
    : Op<Shmem_Dialect, mnemonic, traits>;

/// An op that becomes one library call whose C arguments are the op's arguments in the order written.
class Shmem_LibraryOp<string mnemonic, string nvshmem, Shmem_Caller caller, list<Trait> traits>
    : Shmem_Op<mnemonic, !listconcat(traits, [Shmem_LibraryCall])> {
  bit release = 0;
  bit acquire = 0;
  list<string> signature = !foreach(i, !range(!size(arguments)),
      !if(!isa<Attr>(!getdagarg<Constraint>(arguments, i)),
          "\"" # !getdagname(arguments, i) # "\"", "\"\""));
  let extraClassDeclaration =
      "static ::llvm::StringRef getNvshmemCallee() { return \"" # nvshmem # "\"; }\n" #
      "static ::triton_dist::shmem::Caller getCaller() { return " # caller.cppValue # "; }\n" #
      "static bool isRelease() { return " # release # "; }\n" #
      "static bool isAcquire() { return " # acquire # "; }\n" #
      "static ::llvm::ArrayRef<::llvm::StringRef> getCallSignature() {\n" #
      "  static const ::std::array<::llvm::StringRef, " # !size(arguments) # "> names = {" #
      !interleave(signature, ", ") # "};\n  return names;\n}\n";
}

class Shmem_Query<string mnemonic, string nvshmem>
    : Shmem_LibraryOp<mnemonic, nvshmem, Shmem_EveryThread, [Pure]>;

// Ops below act on memory that the IR does not model, so nothing may move
// across them, merge them or drop them.
defvar Shmem_Effects = MemoryEffects<[MemRead, MemWrite]>;

class Shmem_BlockOp<string mnemonic, string nvshmem>
    : Shmem_LibraryOp<mnemonic, nvshmem, Shmem_Block, [Shmem_Effects]>;

class Shmem_ElectedOp<string mnemonic, string nvshmem>
    : Shmem_LibraryOp<mnemonic, nvshmem, Shmem_Elected, [Shmem_Effects]>;

//===--------------------------------------------------------------------===//
// Queries
//===--------------------------------------------------------------------===//

def Shmem_MyPeOp : Shmem_Query<"my_pe", "nvshmem_my_pe"> {
  let summary = "number of the calling PE";
  let description = [{
    C: `int shmem_my_pe(void)` (OpenSHMEM 1.5, 9.1.3).

    ```mlir
    %me = shmem.my_pe : i32
    ```
  }];
  let results = (outs I32:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Shmem_NPesOp : Shmem_Query<"n_pes", "nvshmem_n_pes"> {
  let summary = "number of PEs in the world";
  let description = [{
    C: `int shmem_n_pes(void)` (OpenSHMEM 1.5, 9.1.4).

    ```mlir
    %n = shmem.n_pes : i32
    ```
  }];
  let results = (outs I32:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Shmem_SymmOffsetOp : Shmem_Query<"symm_offset", "nvshmem_ptr"> {
  let summary = "distance in bytes from a symmetric object to its copy on a PE";
  let description = [{
    C: `(char *)shmem_ptr(ptr, pe) - (char *)ptr` (OpenSHMEM 1.5, 9.4.3). The
    language's `symm_at(ptr, pe)` is `ptr` plus this distance.

    A distance rather than an address, because of alignment: symmetric heaps are
    mapped at page boundaries, so the distance is a multiple of the page size
    whatever `ptr` is, and `tt.divisibility` may say so. Triton then knows that
    the peer's copy is aligned exactly as the local object is, and keeps 16-byte
    accesses. Where the PE cannot be reached by load and store, `ptr` plus the
    distance is null.

    ```mlir
    %d = shmem.symm_offset %ptr, %pe {tt.divisibility = dense<4096> : tensor<1xi32>} : !tt.ptr<f32>
    ```
  }];
  let arguments = (ins Shmem_Ptr:$ptr, I32:$pe);
  let results = (outs I64:$result);
  let assemblyFormat = "$ptr `,` $pe attr-dict `:` type($ptr)";
}

//===--------------------------------------------------------------------===//
// Remote memory access
//===--------------------------------------------------------------------===//

class Shmem_RmaOp<string mnemonic, string nvshmem> : Shmem_BlockOp<mnemonic, nvshmem> {
  let arguments = (ins Shmem_Ptr:$dst, Shmem_Ptr:$src, I64:$nbytes, I32:$pe);
  let assemblyFormat =
      "$dst `,` $src `,` $nbytes `,` $pe attr-dict `:` type($dst) `,` type($src)";
}

def Shmem_PutmemOp : Shmem_RmaOp<"putmem", "nvshmemx_putmem_block"> {
  let summary = "copy bytes to a symmetric object on a PE";
  let description = [{
    C: `void shmem_putmem(void *dst, const void *src, size_t nbytes, int pe)`
    (OpenSHMEM 1.5, 9.5.1). `dst` is symmetric, `src` any memory of this PE. When it
    returns, `src` may be written again; delivery is complete after `quiet`.

    ```mlir
    shmem.putmem %dst, %src, %nbytes, %pe : !tt.ptr<f32>, !tt.ptr<f32>
    ```
  }];
}

def Shmem_PutmemNbiOp : Shmem_RmaOp<"putmem_nbi", "nvshmemx_putmem_nbi_block"> {
  let summary = "start copying bytes to a symmetric object on a PE";
  let description = [{
    C: `void shmem_putmem_nbi(void *dst, const void *src, size_t nbytes, int pe)`
    (OpenSHMEM 1.5, 9.6.1). `src` must not be written before `quiet`.
  }];
}

def Shmem_GetmemOp : Shmem_RmaOp<"getmem", "nvshmemx_getmem_block"> {
  let summary = "copy bytes from a symmetric object on a PE";
  let description = [{
    C: `void shmem_getmem(void *dst, const void *src, size_t nbytes, int pe)`
    (OpenSHMEM 1.5, 9.5.4). `src` is symmetric. When it returns, `dst` holds the data
    for every thread of the program.
  }];
  let acquire = 1;
}

def Shmem_GetmemNbiOp : Shmem_RmaOp<"getmem_nbi", "nvshmemx_getmem_nbi_block"> {
  let summary = "start copying bytes from a symmetric object on a PE";
  let description = [{
    C: `void shmem_getmem_nbi(void *dst, const void *src, size_t nbytes, int pe)`
    (OpenSHMEM 1.5, 9.6.2). `dst` holds the data after `quiet`.
  }];
}

//===--------------------------------------------------------------------===//
// Signalling
//===--------------------------------------------------------------------===//

class Shmem_PutmemSignalBase<string mnemonic, string nvshmem> : Shmem_BlockOp<mnemonic, nvshmem> {
  let arguments = (ins Shmem_Ptr:$dst, Shmem_Ptr:$src, I64:$nbytes, Shmem_Ptr:$sig_addr,
                       I64:$signal, Shmem_SignalUpdate:$sig_op, I32:$pe);
  let assemblyFormat = [{
    $dst `,` $src `,` $nbytes `,` $sig_addr `,` $sig_op $signal `,` $pe attr-dict
    `:` type($dst) `,` type($src) `,` type($sig_addr)
  }];
  let release = 1;
}

def Shmem_PutmemSignalOp
    : Shmem_PutmemSignalBase<"putmem_signal", "nvshmemx_putmem_signal_block"> {
  let summary = "copy bytes to a PE, then update a signal there";
  let description = [{
    C: `void shmem_putmem_signal(void *dst, const void *src, size_t nbytes,
    uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)` (OpenSHMEM 1.5,
    9.8.1). Who sees the updated signal sees the data.

    ```mlir
    shmem.putmem_signal %dst, %src, %nbytes, %sig, add %one, %pe
        : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
    ```
  }];
}

def Shmem_PutmemSignalNbiOp
    : Shmem_PutmemSignalBase<"putmem_signal_nbi", "nvshmemx_putmem_signal_nbi_block"> {
  let summary = "start copying bytes to a PE, with a signal behind them";
  let description = [{
    C: `void shmem_putmem_signal_nbi(…)` (OpenSHMEM 1.5, 9.8.2). As
    `putmem_signal`; `src` must not be written before `quiet`.
  }];
}

def Shmem_SignalOpOp : Shmem_ElectedOp<"signal_op", "nvshmemx_signal_op"> {
  let summary = "update a signal on a PE";
  let description = [{
    C: `void nvshmemx_signal_op(uint64_t *sig_addr, uint64_t signal, int sig_op,
    int pe)`. Who sees the updated signal sees what this program wrote before,
    locally or through `symm_at`; puts need a `fence` in between, as in the
    standard.

    ```mlir
    shmem.signal_op %sig, add %one, %pe : !tt.ptr<i64>
    ```
  }];
  let arguments = (ins Shmem_Ptr:$sig_addr, I64:$signal, Shmem_SignalUpdate:$sig_op, I32:$pe);
  let assemblyFormat = "$sig_addr `,` $sig_op $signal `,` $pe attr-dict `:` type($sig_addr)";
  let release = 1;
}

def Shmem_SignalWaitUntilOp
    : Shmem_ElectedOp<"signal_wait_until", "nvshmem_signal_wait_until"> {
  let summary = "wait until a local signal compares true";
  let description = [{
    C: `uint64_t shmem_signal_wait_until(uint64_t *sig_addr, int cmp,
    uint64_t cmp_value)` (OpenSHMEM 1.5, 9.8.4). Returns the value that ended the
    wait; it is also the token that `token_zero` takes.

    ```mlir
    %seen = shmem.signal_wait_until %sig, ge %n : !tt.ptr<i64>
    ```

    The language places it inside an `scf.if` on `shmem.always` (see there).
  }];
  let arguments = (ins Shmem_Ptr:$sig_addr, Shmem_Cmp:$cmp, I64:$cmp_value);
  let results = (outs I64:$result);
  let assemblyFormat = "$sig_addr `,` $cmp $cmp_value attr-dict `:` type($sig_addr)";
  let acquire = 1;
}

//===--------------------------------------------------------------------===//
// Ordering and collectives
//===--------------------------------------------------------------------===//

def Shmem_FenceOp : Shmem_ElectedOp<"fence", "nvshmem_fence"> {
  let summary = "order the program's earlier puts before its later ones";
  let description = "C: `void shmem_fence(void)` (OpenSHMEM 1.5, 9.11.1), for each PE.";
  let assemblyFormat = "attr-dict";
  let release = 1;
}

def Shmem_QuietOp : Shmem_ElectedOp<"quiet", "nvshmem_quiet"> {
  let summary = "complete the program's outstanding operations";
  let description = [{
    C: `void shmem_quiet(void)` (OpenSHMEM 1.5, 9.11.2). Puts have arrived, gets
    have returned, and `src` of non-blocking puts may be written again.
  }];
  let assemblyFormat = "attr-dict";
  let release = 1;
  let acquire = 1;
}

class Shmem_WorldCollective<string mnemonic, string nvshmem> : Shmem_BlockOp<mnemonic, nvshmem> {
  let assemblyFormat = "attr-dict";
  let release = 1;
  let acquire = 1;
}

def Shmem_BarrierAllOp : Shmem_WorldCollective<"barrier_all", "nvshmemx_barrier_all_block"> {
  let summary = "complete outstanding operations and wait for every PE";
  let description = [{
    C: `void shmem_barrier_all(void)` (OpenSHMEM 1.5, 9.10.1). Called by one
    program of each PE at a time; all PEs' grids must be resident.
  }];
}

def Shmem_SyncAllOp : Shmem_WorldCollective<"sync_all", "nvshmemx_sync_all_block"> {
  let summary = "wait for every PE";
  let description = [{
    C: `void shmem_sync_all(void)` (OpenSHMEM 1.5, 9.10.2). As `barrier_all`, but
    remote updates are not completed: only memory that a PE itself wrote is visible.
  }];
}

//===--------------------------------------------------------------------===//
// Tokens: keep loads behind waits through Triton's software pipeliner
//===--------------------------------------------------------------------===//

def Shmem_TokenZeroOp : Shmem_Op<"token_zero", [Pure]> {
  let summary = "zero that depends on a token";
  let description = [{
    The language's `consume_token(ptr, token)` is `ptr` plus this zero: to Triton's
    passes an address that is unknown before the wait, to the machine nothing.
    Triton's pipeliner issues the loads of later iterations early; it moves a wait
    that produces the address along with them.

    ```mlir
    %zero = shmem.token_zero %token {tt.divisibility = dense<4096> : tensor<1xi32>} : i32
    ```
  }];
  let arguments = (ins I64:$token);
  let results = (outs I32:$result);
  let assemblyFormat = "$token attr-dict `:` type($result)";
}

def Shmem_AlwaysOp : Shmem_Op<"always", [Pure]> {
  let summary = "true, which no pass before the lowering can know";
  let description = [{
    Triton's pipeliner can predicate an `scf.if`, but not an op that it does not
    know. A wait therefore stands inside an `if` on this condition:

    ```mlir
    %true = shmem.always : i1
    %token = scf.if %true -> i64 {
      %seen = shmem.signal_wait_until %sig, ge %n : !tt.ptr<i64>
      scf.yield %seen : i64
    } else {
      scf.yield %n : i64
    }
    ```
  }];
  let results = (outs I1:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

#endif // SHMEM_OPS_TD
