//===- ShmemOps.td - The one table of SHMEM operations ------------------===//
//
// The C++ lowering is generic over this table, and the build makes a Python
// module from it (cmake/generate_op_table.py), which the language, the CPU
// world, the checker, the reference and the tests import. docs/adding-an-op.md
// lists what an operation needs besides its entry.
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
class Shmem_Pointer<bit symmetric_> : Type<
    CPred<"::triton_dist::shmem::isScalarPointer($_self)">, "scalar pointer"> {
  bit symmetric = symmetric_;
}
def Shmem_Ptr : Shmem_Pointer<0>;
// Names an object on other PEs, too, so that it must lie in the symmetric heap.
def Shmem_SymmetricPtr : Shmem_Pointer<1>;

// The value of an element, as routines take it in registers. Its type follows from the op's `type` (see registerType).
class Shmem_ElementValue : AnyTypeOf<[I8, I16, I32, I64, F32, F64]>;
def Shmem_Value : Shmem_ElementValue;

/// The element types that an op with a `type` takes, on whatever transport.
class Shmem_ElementTypes<list<string> names_> {
  list<string> names = names_;
  list<string> cppValues = !foreach(name, names, "::triton_dist::shmem::ElementType::" # name);
}
defvar Shmem_WideIntegers = ["I32", "U32", "I64", "U64"];
defvar Shmem_Words = !listconcat(["I16", "U16"], Shmem_WideIntegers);
defvar Shmem_WideFloats = ["F32", "F64"];
// OpenSHMEM 1.5's standard and bitwise AMO types.
def Shmem_AtomicIntegers : Shmem_ElementTypes<Shmem_WideIntegers>;
// Its extended AMO types: of fetch, set and swap, and of our additions, which extend OpenSHMEM.
def Shmem_AtomicNumbers : Shmem_ElementTypes<!listconcat(Shmem_WideIntegers, Shmem_WideFloats)>;
// Its point-to-point synchronization types.
def Shmem_Waited : Shmem_ElementTypes<Shmem_Words>;
// All that memory is copied and reduced in.
def Shmem_AnyElement : Shmem_ElementTypes<
    !listconcat(["I8", "U8"], Shmem_Words, ["F16", "BF16"], Shmem_WideFloats)>;

/// Who makes the library call, where the op has no `scope` that says so.
class Shmem_Caller<string name> { string cppValue = "::triton_dist::shmem::Caller::" # name; }
def Shmem_EveryThread : Shmem_Caller<"EveryThread">; // queries: the answer is needed everywhere
def Shmem_SomeWarps : Shmem_Caller<"EveryThread">;   // every thread of them
def Shmem_Block : Shmem_Caller<"Block">;             // all threads together
def Shmem_Elected : Shmem_Caller<"Elected">;         // one thread, between two barriers of the program

/// What the C routine returns: the op's result (void where it has none), an int
/// that we ignore, or nothing although the op has a result: a token, zero. Or an
/// address on a PE from which the result follows: how far from the first argument
/// it is, or whether it is not null. The last two are asked about the first byte
/// of the heap, which the lowering passes.
class Shmem_Returns<string name> { string cppValue = "::triton_dist::shmem::Returns::" # name; }
def Shmem_Result : Shmem_Returns<"Result">;
def Shmem_Status : Shmem_Returns<"Status">;
def Shmem_Token : Shmem_Returns<"Token">;
def Shmem_Distance : Shmem_Returns<"Distance">;
def Shmem_HeapDistance : Shmem_Returns<"HeapDistance">;
def Shmem_HeapIsReachable : Shmem_Returns<"HeapIsReachable">;

/// What an op does to memory and to the order of accesses. The CPU world's
/// schedules and its log for triton-dist-check follow from this, and from the
/// names of the operands. `rma`: it loads or stores data on behalf of the program.
class Shmem_Effect<string summary_, bit rma_ = 0> {
  string summary = summary_;
  bit rma = rma_;
}
def Shmem_NoEffect : Shmem_Effect<"touches no memory and orders nothing">;
def Shmem_Put : Shmem_Effect<"copies `src` to `dst` on `pe`", 1>;
def Shmem_PutElement : Shmem_Effect<"stores `value` to `dst` on `pe`, relaxed", 1>;
def Shmem_PutSignal : Shmem_Effect<"copies `src` to `dst` on `pe`, then updates `sig_addr` there", 1>;
def Shmem_Get : Shmem_Effect<"copies `src` on `pe` to `dst`", 1>;
def Shmem_GetElement : Shmem_Effect<"loads `src` on `pe`", 1>;
def Shmem_UpdateSignal : Shmem_Effect<"updates `sig_addr` on `pe`">;
def Shmem_UpdateAtomic : Shmem_Effect<"updates `dst` on `pe`: see Update">;
def Shmem_Look : Shmem_Effect<"loads words of this PE, the first operand">;
def Shmem_Await : Shmem_Effect<"loads words of this PE, the first operand, until each has compared true">;
def Shmem_Fence : Shmem_Effect<"orders earlier puts before later ones, to `pe` or to all PEs">;
def Shmem_Quiet : Shmem_Effect<"completes operations on `pe`, or on all PEs">;
def Shmem_Sync : Shmem_Effect<"waits for the PEs of `team`, or for all">;
def Shmem_Barrier : Shmem_Effect<"completes operations, then waits for the PEs of `team`, or for all">;
def Shmem_Exchange : Shmem_Effect<"loads `src` and stores `dst` on all PEs of `team`">;

/// What an atomic makes of a word.
class Shmem_Update<string summary_> { string summary = summary_; }
def Shmem_Keep : Shmem_Update<"itself">;
def Shmem_Set : Shmem_Update<"`value`">;
def Shmem_Add : Shmem_Update<"its sum with `value`, or with 1">;
def Shmem_And : Shmem_Update<"its bitwise and with `value`">;
def Shmem_Or : Shmem_Update<"its bitwise or with `value`">;
def Shmem_Xor : Shmem_Update<"its bitwise exclusive or with `value`">;
def Shmem_CompareSwap : Shmem_Update<"`value`, if it is `cond`">;

/// An element type's name in a library's routines.
class Shmem_TypeName<string type, string name> {
  string cppValue = "{::triton_dist::shmem::ElementType::" # type # ", \"" # name # "\"}";
}

// ROCSHMEM's routines are written as its headers declare them: they are C++, and
// their symbols follow from the parameters. Behind `for` stand the types that a
// routine exists for, in the library's spelling.
defvar Rocshmem_CTypes = " for schar uchar short ushort int uint long ulong float double";
defvar Rocshmem_Words = " for short ushort int uint long ulong";
defvar Rocshmem_IntegerAtomic = " for int32 uint32 int64 uint64";
defvar Rocshmem_AnyAtomic = Rocshmem_IntegerAtomic # " float double";

class Shmem_Op<string mnemonic, list<Trait> traits = []>
    : Op<Shmem_Dialect, mnemonic, traits> {
  string section = ""; // of the reference
  // A line of a kernel for the reference, which tests compile. `x` and `y` point to float32, `counters` and `indices` to
  // int64, `flags` to int32 and `signal` to a signal, all symmetric; `pe` is a PE and `n` an int32.
  string example = "";
  Shmem_Effect effect = Shmem_NoEffect;
  // The result is a multiple of a page: heaps are mapped at page boundaries, and zero is a multiple of anything.
  bit pageMultiple = 0;
  string declarePageMultiple = "static constexpr bool isPageMultiple() { return " # pageMultiple # "; }\n";
}

/// An op that becomes one library call whose C arguments are the op's arguments
/// in the order written, but for those that name the routine.
class Shmem_LibraryOp<string mnemonic, Shmem_Caller caller, list<Trait> traits>
    : Shmem_Op<mnemonic, !listconcat(traits, [Shmem_LibraryCall])> {
  Shmem_Caller calledBy = caller;
  string nvshmem = "";
  string rocshmem = "";
  string rocshmem6 = rocshmem; // up to ROCm 6.4
  // NVSHMEM has some routines under other names of types: C's own, or, of a float, those of its bits.
  list<Shmem_TypeName> nvshmemTypeNames = [];
  Shmem_ElementTypes elements = Shmem_AnyElement;
  // Copies nbytes from src to dst. Our own library also has routines for copies of whole vectors and for copies between
  // aligned addresses: `$aligned`.
  bit copies = 0;
  // Our own library's names follow from the mnemonic.
  string nameSuffix = "";
  string p2p = "triton_dist_" # mnemonic # nameSuffix;
  Shmem_Returns returns = Shmem_Result;
  Shmem_Returns nvshmemReturns = returns;
  bit release = 0;
  bit acquire = 0;
  bit p2pFences = 0; // our own routine does all the ordering that the two above ask for
  bit wait = 0; // ends when somebody else acts: see shmem.always
  bit collective = 0; // every PE of a team must call it
  bit nbi = 0; // `src` is read, or `dst` written, until `quiet`
  bit forAllPes = 0; // routines without a PE among their arguments act on all
  // Libraries other than ours have a routine for one block, `(dst, src, nbytes, pe)`, which is called for each.
  bit byBlocks = 0;
  // Our own routine takes a last argument: the number of the place that waits, for reports of long waits.
  bit takesSite = !or(wait, collective);
  // What a report of a wait says that it compares, where it is no element.
  string comparedWord = "u64";
  // NVSHMEM keeps `nelems` elements of each PE in memory of a fixed size.
  bit nvshmemScratch = 0;
  // After a wait of ours on NVSHMEM: its test of the same words, which makes a network's writes consistent.
  string nvshmemTest = "";

  list<string> signature = !foldl([]<string>, !range(!size(arguments)), names, i,
      !if(!isa<Shmem_PlanEnum>(!getdagarg<Constraint>(arguments, i)), names,
          !listconcat(names, [!if(!isa<Attr>(!getdagarg<Constraint>(arguments, i)),
              "\"" # !getdagname(arguments, i) # "\"", "\"\"")])));
  // MLIR lists attributes by the alphabet; Python passes them as they stand here.
  list<string> attributes = !foldl([]<string>, !range(!size(arguments)), names, i,
      !if(!isa<Attr>(!getdagarg<Constraint>(arguments, i)),
          !listconcat(names, ["\"" # !getdagname(arguments, i) # "\""]), names));
  list<string> symmetric = !foldl([]<string>, !range(!size(arguments)), names, i,
      !if(!isa<Attr>(!getdagarg<Constraint>(arguments, i)), names,
          !listconcat(names, [!if(!isa<Shmem_Pointer>(!getdagarg<Constraint>(arguments, i)),
              !if(!cast<Shmem_Pointer>(!getdagarg<Constraint>(arguments, i)).symmetric,
                  "\"" # !getdagname(arguments, i) # "\"", "\"\""), "\"\"")])));
  list<string> values = !foldl([]<string>, !range(!size(arguments)), names, i,
      !if(!isa<Attr>(!getdagarg<Constraint>(arguments, i)), names,
          !listconcat(names, [!if(!isa<Shmem_ElementValue>(!getdagarg<Constraint>(arguments, i)),
              "\"" # !getdagname(arguments, i) # "\"", "\"\"")])));
  bit returnsElement = !foldl(0, !range(!size(results)), found, i,
      !or(found, !isa<Shmem_ElementValue>(!getdagarg<Constraint>(results, i))));
  bit hasPe = !foldl(0, !range(!size(arguments)), found, i, !or(found, !eq(!getdagname(arguments, i), "pe")));
  bit hasTeam = !foldl(0, !range(!size(arguments)), found, i, !or(found, !eq(!getdagname(arguments, i), "team")));
  list<string> typeNames = !foreach(name, nvshmemTypeNames, name.cppValue);
  let extraClassDeclaration = declarePageMultiple #
      "::llvm::SmallVector<::mlir::Value> getCopied() { return {" # !if(copies, "getDst(), getSrc(), getNbytes()", "") # "}; }\n" #
      "::mlir::Value getPeOperand() { return " # !if(hasPe, "getPe()", "::mlir::Value()") # "; }\n" #
      "::mlir::Value getTeamOperand() { return " # !if(hasTeam, "getTeam()", "::mlir::Value()") # "; }\n" #
      "::mlir::Value getScratchElements() { return " # !if(nvshmemScratch, "getNelems()", "::mlir::Value()") # "; }\n" #
      "static ::llvm::ArrayRef<::llvm::StringRef> getAttributesInOrder() {\n" #
      "  static const ::std::array<::llvm::StringRef, " # !size(attributes) # "> names = {" #
      !interleave(attributes, ", ") # "};\n  return names;\n}\n" #
      "static ::llvm::StringRef getRoutine(::triton_dist::shmem::Transport transport) {\n" #
      "  return ::triton_dist::shmem::pickRoutine(transport, {\"" # nvshmem # "\", \"" # rocshmem # "\", \"" #
          rocshmem6 # "\", \"" # p2p # "\"});\n}\n" #
      "static ::triton_dist::shmem::Returns getReturns(::triton_dist::shmem::Transport transport) {\n" #
      "  return transport == ::triton_dist::shmem::Transport::Nvshmem ? " # nvshmemReturns.cppValue # " : " #
      returns.cppValue # ";\n}\n" #
      "static ::llvm::ArrayRef<::triton_dist::shmem::TypeName> getNvshmemTypeNames() {\n" #
      "  static const ::std::array<::triton_dist::shmem::TypeName, " # !size(typeNames) # "> names = {{" #
      !interleave(typeNames, ", ") # "}};\n  return names;\n}\n" #
      "static constexpr bool isWait() { return " # wait # "; }\n" #
      "static bool isCollective() { return " # collective # "; }\n" #
      "static bool isRma() { return " # effect.rma # "; }\n" #
      "static bool isForAllPes() { return " # forAllPes # "; }\n" #
      "static bool isByBlocks() { return " # byBlocks # "; }\n" #
      "static ::llvm::StringRef getComparedWord() { return \"" # comparedWord # "\"; }\n" #
      "static bool takesSite() { return " # takesSite # "; }\n" #
      "static ::llvm::StringRef getNvshmemTest() { return \"" # nvshmemTest # "\"; }\n" #
      "static ::llvm::ArrayRef<::llvm::StringRef> getSymmetricOperands() {\n" #
      "  static const ::std::array<::llvm::StringRef, " # !size(symmetric) # "> names = {" #
      !interleave(symmetric, ", ") # "};\n  return names;\n}\n" #
      "static ::llvm::ArrayRef<::llvm::StringRef> getValueOperands() {\n" #
      "  static const ::std::array<::llvm::StringRef, " # !size(values) # "> names = {" #
      !interleave(values, ", ") # "};\n  return names;\n}\n" #
      "static bool returnsElement() { return " # returnsElement # "; }\n" #
      "static ::llvm::ArrayRef<::triton_dist::shmem::ElementType> getElementTypes() {\n" #
      "  static const ::std::array<::triton_dist::shmem::ElementType, " # !size(elements.cppValues) # "> types = {" #
      !interleave(elements.cppValues, ", ") # "};\n  return types;\n}\n" #
      "::triton_dist::shmem::Caller getCaller() { return ::triton_dist::shmem::callerOf(*this, " # caller.cppValue # "); }\n" #
      "bool isRelease() { return ::triton_dist::shmem::isRelease(*this, " # release # "); }\n" #
      "bool isAcquire() { return ::triton_dist::shmem::isAcquire(*this, " # acquire # "); }\n" #
      "static bool ordersItself(::triton_dist::shmem::Transport transport) {\n" #
      "  return " # p2pFences # " && transport == ::triton_dist::shmem::Transport::P2p;\n}\n" #
      "static ::llvm::ArrayRef<::llvm::StringRef> getCallSignature() {\n" #
      "  static const ::std::array<::llvm::StringRef, " # !size(signature) # "> names = {" #
      !interleave(signature, ", ") # "};\n  return names;\n}\n";
}

class Shmem_Query<string mnemonic>
    : Shmem_LibraryOp<mnemonic, Shmem_EveryThread, [Pure]>;

// Ops below act on memory that the IR does not model, so nothing may move
// across them, merge them or drop them.
defvar Shmem_Effects = MemoryEffects<[MemRead, MemWrite]>;

class Shmem_WarpsOp<string mnemonic>
    : Shmem_LibraryOp<mnemonic, Shmem_SomeWarps, [Shmem_Effects]>;

class Shmem_BlockOp<string mnemonic>
    : Shmem_LibraryOp<mnemonic, Shmem_Block, [Shmem_Effects]> {
  let nameSuffix = !if(copies, "$aligned", "") # "$scope";
}

class Shmem_ElectedOp<string mnemonic>
    : Shmem_LibraryOp<mnemonic, Shmem_Elected, [Shmem_Effects]>;

let section = "Queries" in {

def Shmem_MyPeOp : Shmem_Query<"my_pe"> {
  let summary = "number of the calling PE";
  let description = [{
    C: `int shmem_my_pe(void)` (OpenSHMEM 1.5, 9.1.2).

    ```mlir
    %me = shmem.my_pe : i32
    ```
  }];
  let results = (outs I32:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let nvshmem = "nvshmem_my_pe";
  let rocshmem = "int rocshmem_my_pe()";
  let example = "next_pe = (dl.my_pe() + 1) % dl.n_pes()";
}

def Shmem_NPesOp : Shmem_Query<"n_pes"> {
  let summary = "number of PEs in the world";
  let description = [{
    C: `int shmem_n_pes(void)` (OpenSHMEM 1.5, 9.1.3).

    ```mlir
    %n = shmem.n_pes : i32
    ```
  }];
  let results = (outs I32:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let nvshmem = "nvshmem_n_pes";
  let rocshmem = "int rocshmem_n_pes()";
  let example = "last = dl.my_pe() == dl.n_pes() - 1";
}

def Shmem_TeamMyPeOp : Shmem_Query<"team_my_pe"> {
  let summary = "number of the calling PE in a team, -1 outside of it";
  let description = "C: `int shmem_team_my_pe(shmem_team_t team)` (OpenSHMEM 1.5, 9.4.1).";
  let arguments = (ins I32:$team);
  let results = (outs I32:$result);
  let assemblyFormat = "$team attr-dict `:` type($result)";
  let nvshmem = "nvshmem_team_my_pe";
  let rocshmem = "int rocshmem_team_my_pe(rocshmem_team_t)";
  let example = "me = dl.team_my_pe(dl.TEAM_WORLD)";
}

def Shmem_TeamNPesOp : Shmem_Query<"team_n_pes"> {
  let summary = "number of PEs in a team";
  let description = "C: `int shmem_team_n_pes(shmem_team_t team)` (OpenSHMEM 1.5, 9.4.2).";
  let arguments = (ins I32:$team);
  let results = (outs I32:$result);
  let assemblyFormat = "$team attr-dict `:` type($result)";
  let nvshmem = "nvshmem_team_n_pes";
  let rocshmem = "int rocshmem_team_n_pes(rocshmem_team_t)";
  let example = "size = dl.team_n_pes(dl.TEAM_WORLD)";
}

def Shmem_TeamTranslatePeOp : Shmem_Query<"team_translate_pe"> {
  let summary = "number in one team of a PE of another, -1 if it is not there";
  let description = [{
    C: `int shmem_team_translate_pe(shmem_team_t src_team, int src_pe,
    shmem_team_t dest_team)` (OpenSHMEM 1.5, 9.4.5).
  }];
  let arguments = (ins I32:$src_team, I32:$src_pe, I32:$dest_team);
  let results = (outs I32:$result);
  let assemblyFormat = "$src_team `,` $src_pe `,` $dest_team attr-dict `:` type($result)";
  let nvshmem = "nvshmem_team_translate_pe";
  let rocshmem = "int rocshmem_team_translate_pe(rocshmem_team_t, int, rocshmem_team_t)";
  let example = "pe = dl.team_translate_pe(dl.TEAM_WORLD, pe, dl.TEAM_WORLD)";
}

def Shmem_SymmOffsetOp : Shmem_Query<"symm_offset"> {
  let summary = "distance in bytes from a symmetric object to its copy on a PE";
  let description = [{
    C: `(char *)shmem_ptr(ptr, pe) - (char *)ptr` (OpenSHMEM 1.5, 9.1.8). The
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
  let arguments = (ins Shmem_SymmetricPtr:$ptr, I32:$pe);
  let results = (outs I64:$result);
  let assemblyFormat = "$ptr `,` $pe attr-dict `:` type($ptr)";
  let nvshmem = "nvshmem_ptr";
  let rocshmem = "void *rocshmem_ptr(const void *, int)";
  let p2p = "triton_dist_ptr";
  let returns = Shmem_Distance;
  let pageMultiple = 1;
  let example = "tile = tl.load(dl.symm_at(x, pe) + tl.arange(0, 128))";
}

def Shmem_HeapDistanceOp : Shmem_Query<"heap_distance"> {
  let summary = "distance in bytes from this PE's symmetric heap to a PE's";
  let description = [{
    What `symm_offset` is for every object: the language's `symm_at` of a block of
    pointers adds it. Only for PEs that can be reached by load and store.

    ```mlir
    %d = shmem.heap_distance %pe {tt.divisibility = dense<4096> : tensor<1xi32>} : i64
    ```
  }];
  let arguments = (ins I32:$pe);
  let results = (outs I64:$result);
  let assemblyFormat = "$pe attr-dict `:` type($result)";
  let nvshmem = "nvshmem_ptr";
  let nvshmemReturns = Shmem_HeapDistance;
  let pageMultiple = 1;
  let example = "dl.store(x + tl.arange(0, 128), 1.0, pe)";
}

def Shmem_IsReachableOp : Shmem_Query<"is_reachable"> {
  let summary = "whether a PE's heap can be reached by load and store";
  let description = "C: `shmem_ptr(ptr, pe) != NULL` (OpenSHMEM 1.5, 9.1.8), for any symmetric `ptr`.";
  let arguments = (ins I32:$pe);
  let results = (outs I32:$result);
  let assemblyFormat = "$pe attr-dict `:` type($result)";
  let nvshmem = "nvshmem_ptr";
  let nvshmemReturns = Shmem_HeapIsReachable;
  let example = "direct = dl.is_reachable(pe)";
}

} // section

let section = "Remote memory access" in {

class Shmem_RmaOp<string mnemonic, Shmem_Effect effect_, Shmem_Pointer dst, Shmem_Pointer src>
    : Shmem_BlockOp<mnemonic> {
  let effect = effect_;
  let arguments = (ins dst:$dst, src:$src, I64:$nbytes, I32:$pe, Shmem_ThreadScope:$scope);
  let assemblyFormat =
      "$scope $dst `,` $src `,` $nbytes `,` $pe attr-dict `:` type($dst) `,` type($src)";
  let copies = 1;
  let nvshmem = "nvshmem_" # mnemonic # "$scope";
  let rocshmem = "void rocshmem_" # mnemonic # "$scope(void *, const void *, size_t, int)";
}

def Shmem_PutmemOp : Shmem_RmaOp<"putmem", Shmem_Put, Shmem_SymmetricPtr, Shmem_Ptr> {
  let summary = "copy bytes to a symmetric object on a PE";
  let description = [{
    C: `void shmem_putmem(void *dst, const void *src, size_t nbytes, int pe)`
    (OpenSHMEM 1.5, 9.6.1.1). `dst` is symmetric, `src` any memory of this PE. When it
    returns, `src` may be written again; delivery is complete after `quiet`. It orders
    nothing: not what the program stored before it, nor other puts.

    ```mlir
    shmem.putmem block %dst, %src, %nbytes, %pe : !tt.ptr<f32>, !tt.ptr<f32>
    ```
  }];
  let example = "dl.putmem(x, y, n * 4, pe)";
}

def Shmem_PutmemNbiOp : Shmem_RmaOp<"putmem_nbi", Shmem_Put, Shmem_SymmetricPtr, Shmem_Ptr> {
  let summary = "start copying bytes to a symmetric object on a PE";
  let description = [{
    C: `void shmem_putmem_nbi(void *dst, const void *src, size_t nbytes, int pe)`
    (OpenSHMEM 1.5, 9.6.2.1). `src` must not be written before `quiet`. On `p2p` the
    copy is made before it returns.
  }];
  let nbi = 1;
  let example = "dl.putmem_nbi(x, y, n * 4, pe)";
}

def Shmem_GetmemOp : Shmem_RmaOp<"getmem", Shmem_Get, Shmem_Ptr, Shmem_SymmetricPtr> {
  let summary = "copy bytes from a symmetric object on a PE";
  let description = [{
    C: `void shmem_getmem(void *dst, const void *src, size_t nbytes, int pe)`
    (OpenSHMEM 1.5, 9.6.1.4). `src` is symmetric. When it returns, `dst` holds the data
    for every thread of the program.
  }];
  let acquire = 1;
  let example = "dl.getmem(y, x, n * 4, pe)";
}

def Shmem_GetmemNbiOp : Shmem_RmaOp<"getmem_nbi", Shmem_Get, Shmem_Ptr, Shmem_SymmetricPtr> {
  let summary = "start copying bytes from a symmetric object on a PE";
  let description = [{
    C: `void shmem_getmem_nbi(void *dst, const void *src, size_t nbytes, int pe)`
    (OpenSHMEM 1.5, 9.6.2.2). `dst` holds the data after `quiet`. On `p2p` the copy is
    made before it returns.
  }];
  let nbi = 1;
  let example = "dl.getmem_nbi(y, x, n * 4, pe)";
}

class Shmem_StridedOp<string mnemonic, Shmem_Effect effect_, Shmem_Pointer dst, Shmem_Pointer src>
    : Shmem_BlockOp<mnemonic> {
  let effect = effect_;
  let arguments = (ins dst:$dst, src:$src, I64:$dst_stride, I64:$src_stride, I64:$nelems,
                       I32:$pe, Shmem_ElementType:$type, Shmem_ThreadScope:$scope);
  let assemblyFormat = [{
    $scope $type $dst `,` $src `,` $dst_stride `,` $src_stride `,` $nelems `,` $pe attr-dict
    `:` type($dst) `,` type($src)
  }];
  let nvshmem = "nvshmem_$type_" # mnemonic # "$scope";
  let nameSuffix = "_$type$scope";
}

def Shmem_IputOp : Shmem_StridedOp<"iput", Shmem_Put, Shmem_SymmetricPtr, Shmem_Ptr> {
  let summary = "copy elements at a stride to a symmetric object on a PE";
  let description = [{
    C: `void shmem_TYPENAME_iput(TYPE *dst, const TYPE *src, ptrdiff_t dst_stride,
    ptrdiff_t src_stride, size_t nelems, int pe)` (OpenSHMEM 1.5, 9.6.1.3). Strides
    are in elements. Order and completion are those of `putmem`.
  }];
  let example = "dl.iput(x, y, 1, 16, n, pe)  # a column of a matrix with 16 columns";
}

def Shmem_IgetOp : Shmem_StridedOp<"iget", Shmem_Get, Shmem_Ptr, Shmem_SymmetricPtr> {
  let summary = "copy elements at a stride from a symmetric object on a PE";
  let description = [{
    C: `void shmem_TYPENAME_iget(TYPE *dst, const TYPE *src, ptrdiff_t dst_stride,
    ptrdiff_t src_stride, size_t nelems, int pe)` (OpenSHMEM 1.5, 9.6.1.6).
  }];
  let acquire = 1;
  let example = "dl.iget(y, x, 1, 16, n, pe)";
}

class Shmem_BlocksOp<string mnemonic, Shmem_Effect effect_, Shmem_Pointer dst, Shmem_Pointer src, string ofOneBlock>
    : Shmem_BlockOp<mnemonic> {
  let effect = effect_;
  let arguments = (ins dst:$dst, src:$src, I64:$dst_stride, I64:$src_stride, I64:$bsize, I64:$nblocks,
                       I32:$pe, Shmem_ElementType:$type, Shmem_ThreadScope:$scope);
  let assemblyFormat = [{
    $scope $type $dst `,` $src `,` $dst_stride `,` $src_stride `,` $bsize `,` $nblocks `,` $pe attr-dict
    `:` type($dst) `,` type($src)
  }];
  let byBlocks = 1;
  let nvshmem = "nvshmem_" # ofOneBlock # "$scope";
  let rocshmem = "void rocshmem_" # ofOneBlock # "$scope(void *, const void *, size_t, int)";
  let nameSuffix = "_$type$scope";
}

def Shmem_IbputOp : Shmem_BlocksOp<"ibput", Shmem_Put, Shmem_SymmetricPtr, Shmem_Ptr, "putmem"> {
  let summary = "copy blocks of elements at a stride to a symmetric object on a PE";
  let description = [{
    C: `void shmem_TYPENAME_ibput(TYPE *dst, const TYPE *src, ptrdiff_t dst_stride,
    ptrdiff_t src_stride, size_t bsize, size_t nblocks, int pe)` (OpenSHMEM 1.6, 9.6.1.4).
    Strides are in elements, from the first element of a block to that of the next.
    Blocks must not overlap in `dst`, where they arrive in no order. Order and completion
    are those of `putmem`; on libraries without such a routine, NVSHMEM and ROCSHMEM, a
    loop of that copies block by block.

    ```mlir
    shmem.ibput block f32 %dst, %src, %columns, %width, %width, %rows, %pe : !tt.ptr<f32>, !tt.ptr<f32>
    ```
  }];
  let example = "dl.ibput(x, y, 16, 4, 4, n, pe)  # a tile, 4 wide, of a matrix with 16 columns";
}

def Shmem_IbgetOp : Shmem_BlocksOp<"ibget", Shmem_Get, Shmem_Ptr, Shmem_SymmetricPtr, "getmem"> {
  let summary = "copy blocks of elements at a stride from a symmetric object on a PE";
  let description = [{
    C: `void shmem_TYPENAME_ibget(TYPE *dst, const TYPE *src, ptrdiff_t dst_stride,
    ptrdiff_t src_stride, size_t bsize, size_t nblocks, int pe)` (OpenSHMEM 1.6, 9.6.1.8).
    Strides as in `ibput`; otherwise as `getmem`.
  }];
  let acquire = 1;
  let example = "dl.ibget(y, x, 4, 16, 4, n, pe)";
}

def Shmem_POp : Shmem_ElectedOp<"p"> {
  let summary = "write one element to a symmetric object on a PE";
  let description = [{
    C: `void shmem_TYPENAME_p(TYPE *dst, TYPE value, int pe)` (OpenSHMEM 1.5, 9.6.1.2).
    It orders nothing: who sees the element need not see what the program stored or put
    before. A flag is `signal_op` or `atomic_set`, or `p` behind `fence`.
  }];
  let arguments = (ins Shmem_SymmetricPtr:$dst, Shmem_Value:$value, I32:$pe, Shmem_ElementType:$type);
  let assemblyFormat = "$type $dst `,` $value `,` $pe attr-dict `:` type($dst) `,` type($value)";
  let effect = Shmem_PutElement;
  let nvshmem = "nvshmem_$type_p";
  string rocshmemTypes = Rocshmem_CTypes;
  let rocshmem = "void rocshmem_$type_p($type *, $type, int)" # rocshmemTypes;
  let nameSuffix = "_$type";
  let example = "dl.p(counters, 1, pe)";
}

def Shmem_GOp : Shmem_ElectedOp<"g"> {
  let summary = "read one element of a symmetric object on a PE";
  let description = [{
    C: `TYPE shmem_TYPENAME_g(const TYPE *src, int pe)` (OpenSHMEM 1.5, 9.6.1.5).
  }];
  let arguments = (ins Shmem_SymmetricPtr:$src, I32:$pe, Shmem_ElementType:$type);
  let results = (outs Shmem_Value:$result);
  let assemblyFormat = "$type $src `,` $pe attr-dict `:` type($src) `,` type($result)";
  let effect = Shmem_GetElement;
  let nvshmem = "nvshmem_$type_g";
  string rocshmemTypes = Rocshmem_CTypes;
  let rocshmem = "$type rocshmem_$type_g(const $type *, int)" # rocshmemTypes;
  let nameSuffix = "_$type";
  let acquire = 1;
  let example = "count = dl.g(counters, pe)";
}

} // section

let section = "Signalling" in {

class Shmem_PutmemSignalBase<string mnemonic> : Shmem_BlockOp<mnemonic> {
  let arguments = (ins Shmem_SymmetricPtr:$dst, Shmem_Ptr:$src, I64:$nbytes, Shmem_SymmetricPtr:$sig_addr,
                       I64:$signal, Shmem_SignalUpdate:$sig_op, I32:$pe, Shmem_ThreadScope:$scope);
  let assemblyFormat = [{
    $scope $dst `,` $src `,` $nbytes `,` $sig_addr `,` $sig_op $signal `,` $pe attr-dict
    `:` type($dst) `,` type($src) `,` type($sig_addr)
  }];
  let effect = Shmem_PutSignal;
  let copies = 1;
  let nvshmem = "nvshmem_" # mnemonic # "$scope";
  let rocshmem =
      "void rocshmem_" # mnemonic # "$scope(void *, const void *, size_t, uint64_t *, uint64_t, int, int)";
  let release = 1;
  let p2pFences = 1;
}

def Shmem_PutmemSignalOp : Shmem_PutmemSignalBase<"putmem_signal"> {
  let summary = "copy bytes to a PE, then update a signal there";
  let description = [{
    C: `void shmem_putmem_signal(void *dst, const void *src, size_t nbytes,
    uint64_t *sig_addr, uint64_t signal, int sig_op, int pe)` (OpenSHMEM 1.5,
    9.8.3). Who sees the updated signal sees the data.

    ```mlir
    shmem.putmem_signal block %dst, %src, %nbytes, %sig, add %one, %pe
        : !tt.ptr<f32>, !tt.ptr<f32>, !tt.ptr<i64>
    ```
  }];
  let example = "dl.putmem_signal(x, y, n * 4, signal, 1, dl.SIGNAL_ADD, pe)";
}

def Shmem_PutmemSignalNbiOp : Shmem_PutmemSignalBase<"putmem_signal_nbi"> {
  let summary = "start copying bytes to a PE, with a signal behind them";
  let description = [{
    C: `void shmem_putmem_signal_nbi(…)` (OpenSHMEM 1.5, 9.8.4). As
    `putmem_signal`; `src` must not be written before `quiet`.
  }];
  let nbi = 1;
  let example = "dl.putmem_signal_nbi(x, y, n * 4, signal, 1, dl.SIGNAL_SET, pe)";
}

def Shmem_SignalOpOp : Shmem_ElectedOp<"signal_op"> {
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
  let arguments = (ins Shmem_SymmetricPtr:$sig_addr, I64:$signal, Shmem_SignalUpdate:$sig_op, I32:$pe);
  let assemblyFormat = "$sig_addr `,` $sig_op $signal `,` $pe attr-dict `:` type($sig_addr)";
  let effect = Shmem_UpdateSignal;
  let nvshmem = "nvshmemx_signal_op";
  let rocshmem = "void rocshmem_uint64_atomic_$sig_op(uint64_t *, uint64_t, int)";
  let release = 1;
  let example = "dl.signal_op(signal, 1, dl.SIGNAL_ADD, pe)";
}

def Shmem_SignalFetchOp : Shmem_ElectedOp<"signal_fetch"> {
  let summary = "read a local signal atomically";
  let description = "C: `uint64_t shmem_signal_fetch(const uint64_t *sig_addr)` (OpenSHMEM 1.5, 9.8.5).";
  let arguments = (ins Shmem_Ptr:$sig_addr);
  let results = (outs I64:$result);
  let assemblyFormat = "$sig_addr attr-dict `:` type($sig_addr)";
  let effect = Shmem_Look;
  let nvshmem = "nvshmem_signal_fetch";
  let rocshmem = "uint64_t rocshmem_signal_fetch(const uint64_t *)";
  let acquire = 1;
  let example = "arrived = dl.signal_fetch(signal)";
}

def Shmem_SignalWaitUntilOp : Shmem_ElectedOp<"signal_wait_until"> {
  let summary = "wait until a local signal compares true";
  let description = [{
    C: `uint64_t shmem_signal_wait_until(uint64_t *sig_addr, int cmp,
    uint64_t cmp_value)` (OpenSHMEM 1.5, 9.10.15). Returns the value that ended the
    wait; it is also the token that `token_zero` takes.

    ```mlir
    %seen = shmem.signal_wait_until %sig, ge %n : !tt.ptr<i64>
    ```

    The language places it inside an `scf.if` on `shmem.always` (see there).
  }];
  let arguments = (ins Shmem_Ptr:$sig_addr, Shmem_Cmp:$cmp, I64:$cmp_value);
  let results = (outs I64:$result);
  let assemblyFormat = "$sig_addr `,` $cmp $cmp_value attr-dict `:` type($sig_addr)";
  let effect = Shmem_Await;
  let nvshmem = p2p; // polls a word of this PE, as NVSHMEM's would, and reports
  let rocshmem = "void rocshmem_ulong_wait_until(uint64_t *, int, uint64_t)";
  let acquire = 1;
  let wait = 1;
  let example = "token = dl.signal_wait_until(signal, dl.CMP_GE, n)";
}

} // section

let section = "Atomic memory operations" in {

class Shmem_AtomicOp<string mnemonic, string what, string signature_, string section_>
    : Shmem_ElectedOp<"atomic_" # mnemonic> {
  let summary = "atomically " # what;
  let description =
      "C: `" # signature_ # "` (OpenSHMEM 1.5, " # section_ # "). `sem` orders the program's own accesses around it " #
      "for observers in `scope`, as for Triton's atomics (in IR, where other ops have a `scope`, that is `mem_scope`).";
  let effect = Shmem_UpdateAtomic;
  Shmem_Update update = Shmem_Keep;
  let nvshmem = "nvshmem_$type_atomic_" # mnemonic;
  // NVSHMEM adds to 64-bit integers with a sign under the name of C's long only.
  let nvshmemTypeNames = !if(!eq(update, Shmem_Add), [Shmem_TypeName<"I64", "long">], []<Shmem_TypeName>);
  let nameSuffix = "_$type";
  let elements = Shmem_AtomicIntegers;
  string rocshmemTypes = Rocshmem_IntegerAtomic;
}

class Shmem_AtomicFetchBase<string mnemonic, string what, string signature_, string section_>
    : Shmem_AtomicOp<mnemonic, what, signature_, section_> {
  let arguments = (ins Shmem_SymmetricPtr:$dst, I32:$pe, Shmem_ElementType:$type, Shmem_Sem:$sem, Shmem_MemScope:$mem_scope);
  let results = (outs Shmem_Value:$result);
  let assemblyFormat = "$sem $mem_scope $type $dst `,` $pe attr-dict `:` type($dst) `,` type($result)";
  let rocshmem = "$type rocshmem_$type_atomic_" # mnemonic # "($type *, int)" # rocshmemTypes;
}

class Shmem_AtomicUpdateBase<string mnemonic, string what, string signature_, string section_>
    : Shmem_AtomicOp<mnemonic, what, signature_, section_> {
  let arguments = (ins Shmem_SymmetricPtr:$dst, Shmem_Value:$value, I32:$pe, Shmem_ElementType:$type, Shmem_Sem:$sem,
                       Shmem_MemScope:$mem_scope);
  let assemblyFormat = "$sem $mem_scope $type $dst `,` $value `,` $pe attr-dict `:` type($dst) `,` type($value)";
  let rocshmem = "void rocshmem_$type_atomic_" # mnemonic # "($type *, $type, int)" # rocshmemTypes;
}

class Shmem_AtomicFetchUpdateBase<string mnemonic, string what, string signature_, string section_>
    : Shmem_AtomicUpdateBase<mnemonic, what, signature_, section_> {
  let results = (outs Shmem_Value:$result);
  let assemblyFormat = [{
    $sem $mem_scope $type $dst `,` $value `,` $pe attr-dict `:` type($dst) `,` type($value) `,` type($result)
  }];
  let rocshmem = "$type rocshmem_$type_atomic_" # mnemonic # "($type *, $type, int)" # rocshmemTypes;
}

def Shmem_AtomicFetchOp : Shmem_AtomicFetchBase<"fetch", "read an element on a PE",
    "TYPE shmem_TYPENAME_atomic_fetch(const TYPE *src, int pe)", "9.7.1.1"> {
  let elements = Shmem_AtomicNumbers;
  let rocshmemTypes = Rocshmem_AnyAtomic;
  let example = "count = dl.atomic_fetch(counters, pe, sem=\"acquire\")";
}
def Shmem_AtomicSetOp : Shmem_AtomicUpdateBase<"set", "write an element on a PE",
    "void shmem_TYPENAME_atomic_set(TYPE *dst, TYPE value, int pe)", "9.7.1.2"> {
  let update = Shmem_Set;
  let elements = Shmem_AtomicNumbers;
  let rocshmemTypes = Rocshmem_AnyAtomic;
  let example = "dl.atomic_set(counters, 0, pe, sem=\"release\")";
}
def Shmem_AtomicIncOp : Shmem_AtomicOp<"inc", "increment an element on a PE",
    "void shmem_TYPENAME_atomic_inc(TYPE *dst, int pe)", "9.7.1.6"> {
  let update = Shmem_Add;
  let arguments = (ins Shmem_SymmetricPtr:$dst, I32:$pe, Shmem_ElementType:$type, Shmem_Sem:$sem, Shmem_MemScope:$mem_scope);
  let assemblyFormat = "$sem $mem_scope $type $dst `,` $pe attr-dict `:` type($dst)";
  let rocshmem = "void rocshmem_$type_atomic_inc($type *, int)" # rocshmemTypes;
  let example = "dl.atomic_inc(counters, pe)";
}
def Shmem_AtomicFetchIncOp : Shmem_AtomicFetchBase<"fetch_inc", "read and increment an element on a PE",
    "TYPE shmem_TYPENAME_atomic_fetch_inc(TYPE *dst, int pe)", "9.7.1.5"> {
  let update = Shmem_Add;
  let example = "ticket = dl.atomic_fetch_inc(counters, pe)";
}
def Shmem_AtomicAddOp : Shmem_AtomicUpdateBase<"add", "add to an element on a PE",
    "void shmem_TYPENAME_atomic_add(TYPE *dst, TYPE value, int pe)", "9.7.1.8"> {
  let update = Shmem_Add;
  let elements = Shmem_AtomicNumbers;
  let example = "dl.atomic_add(counters, n, pe, sem=\"relaxed\")";
}
def Shmem_AtomicFetchAddOp : Shmem_AtomicFetchUpdateBase<"fetch_add", "read and add to an element on a PE",
    "TYPE shmem_TYPENAME_atomic_fetch_add(TYPE *dst, TYPE value, int pe)", "9.7.1.7"> {
  let update = Shmem_Add;
  let elements = Shmem_AtomicNumbers;
  let example = "start = dl.atomic_fetch_add(counters, n, pe)";
}
def Shmem_AtomicAndOp : Shmem_AtomicUpdateBase<"and", "and into an element on a PE",
    "void shmem_TYPENAME_atomic_and(TYPE *dst, TYPE value, int pe)", "9.7.1.10"> {
  let update = Shmem_And;
  let example = "dl.atomic_and(flags, 1, pe)";
}
def Shmem_AtomicFetchAndOp : Shmem_AtomicFetchUpdateBase<"fetch_and", "read and and into an element on a PE",
    "TYPE shmem_TYPENAME_atomic_fetch_and(TYPE *dst, TYPE value, int pe)", "9.7.1.9"> {
  let update = Shmem_And;
  let example = "before = dl.atomic_fetch_and(flags, 1, pe)";
}
def Shmem_AtomicOrOp : Shmem_AtomicUpdateBase<"or", "or into an element on a PE",
    "void shmem_TYPENAME_atomic_or(TYPE *dst, TYPE value, int pe)", "9.7.1.12"> {
  let update = Shmem_Or;
  let example = "dl.atomic_or(flags, 4, pe)";
}
def Shmem_AtomicFetchOrOp : Shmem_AtomicFetchUpdateBase<"fetch_or", "read and or into an element on a PE",
    "TYPE shmem_TYPENAME_atomic_fetch_or(TYPE *dst, TYPE value, int pe)", "9.7.1.11"> {
  let update = Shmem_Or;
  let example = "before = dl.atomic_fetch_or(flags, 4, pe)";
}
def Shmem_AtomicXorOp : Shmem_AtomicUpdateBase<"xor", "exclusive-or into an element on a PE",
    "void shmem_TYPENAME_atomic_xor(TYPE *dst, TYPE value, int pe)", "9.7.1.14"> {
  let update = Shmem_Xor;
  let example = "dl.atomic_xor(flags, 4, pe)";
}
def Shmem_AtomicFetchXorOp : Shmem_AtomicFetchUpdateBase<"fetch_xor", "read and exclusive-or into an element on a PE",
    "TYPE shmem_TYPENAME_atomic_fetch_xor(TYPE *dst, TYPE value, int pe)", "9.7.1.13"> {
  let update = Shmem_Xor;
  let example = "before = dl.atomic_fetch_xor(flags, 4, pe)";
}
def Shmem_AtomicSwapOp : Shmem_AtomicFetchUpdateBase<"swap", "exchange an element on a PE",
    "TYPE shmem_TYPENAME_atomic_swap(TYPE *dst, TYPE value, int pe)", "9.7.1.4"> {
  let update = Shmem_Set;
  // NVSHMEM's swap of a double finds the right bits, and then converts them to a double as if they were a number
  // (3.4.5, NVSHMEM_TYPE_SWAP_CAST in device/nvshmem_defines.h; mended in 3.8.0).
  let nvshmemTypeNames = [Shmem_TypeName<"F64", "uint64">];
  let elements = Shmem_AtomicNumbers;
  let rocshmemTypes = Rocshmem_AnyAtomic;
  let example = "before = dl.atomic_swap(counters, 0, pe)";
}
def Shmem_AtomicCompareSwapOp : Shmem_AtomicOp<"compare_swap", "exchange an element on a PE if it has a value",
    "TYPE shmem_TYPENAME_atomic_compare_swap(TYPE *dst, TYPE cond, TYPE value, int pe)", "9.7.1.3"> {
  let update = Shmem_CompareSwap;
  let arguments = (ins Shmem_SymmetricPtr:$dst, Shmem_Value:$cond, Shmem_Value:$value, I32:$pe, Shmem_ElementType:$type,
                       Shmem_Sem:$sem, Shmem_MemScope:$mem_scope);
  let results = (outs Shmem_Value:$result);
  let assemblyFormat = [{
    $sem $mem_scope $type $dst `,` $cond `,` $value `,` $pe attr-dict
    `:` type($dst) `,` type($cond) `,` type($value) `,` type($result)
  }];
  let rocshmem = "$type rocshmem_$type_atomic_compare_swap($type *, $type, $type, int)" # rocshmemTypes;
  let example = "holder = dl.atomic_compare_swap(flags, -1, dl.my_pe(), pe, sem=\"acquire\")";
}

} // section

let section = "Point-to-point synchronisation" in {

/// On local elements that other PEs update. The vector forms compare element i
/// with cmp_values[i].
class Shmem_PointToPoint<string mnemonic, string what, string signature_, string section_>
    : Shmem_ElectedOp<mnemonic> {
  let summary = what;
  let description = "C: `" # signature_ # "` (OpenSHMEM 1.5, " # section_ # "). `status` and `indices` as there; a null " #
      "`status` selects all elements.";
  let effect = Shmem_Look;
  let elements = Shmem_Waited;
  let nvshmemTypeNames = [Shmem_TypeName<"I16", "short">, Shmem_TypeName<"U16", "ushort">];
  string rocshmemTypes = Rocshmem_Words;
  let nvshmem = !if(wait, p2p, "nvshmem_$type_" # mnemonic); // ours polls as NVSHMEM's would, and reports
  let nvshmemTest = !if(wait, "nvshmem_$type_test" # !if(!ge(!find(mnemonic, "_until_"), 0), "_any", ""), "");
  let nameSuffix = "_$type";
  let acquire = 1;
}

class Shmem_OneElement<string mnemonic, string what, string signature_, string section_>
    : Shmem_PointToPoint<mnemonic, what, signature_, section_> {
  let arguments = (ins Shmem_Ptr:$ivar, Shmem_Cmp:$cmp, Shmem_Value:$cmp_value, Shmem_ElementType:$type);
  let assemblyFormat = "$type $ivar `,` $cmp $cmp_value attr-dict `:` type($ivar) `,` type($cmp_value) `,` type($result)";
}

class Shmem_ManyElements<string mnemonic, string what, string signature_, string section_>
    : Shmem_PointToPoint<mnemonic, what, signature_, section_> {
  let arguments = (ins Shmem_Ptr:$ivars, I64:$nelems, Shmem_Ptr:$status, Shmem_Cmp:$cmp, Shmem_Value:$cmp_value,
                       Shmem_ElementType:$type);
  let assemblyFormat = [{
    $type $ivars `,` $nelems `,` $status `,` $cmp $cmp_value attr-dict
    `:` type($ivars) `,` type($status) `,` type($cmp_value) `,` type($result)
  }];
}

class Shmem_ManyElementsVector<string mnemonic, string what, string signature_, string section_>
    : Shmem_PointToPoint<mnemonic, what, signature_, section_> {
  let arguments = (ins Shmem_Ptr:$ivars, I64:$nelems, Shmem_Ptr:$status, Shmem_Cmp:$cmp, Shmem_Ptr:$cmp_values,
                       Shmem_ElementType:$type);
  let assemblyFormat = [{
    $type $ivars `,` $nelems `,` $status `,` $cmp $cmp_values attr-dict
    `:` type($ivars) `,` type($status) `,` type($cmp_values) `,` type($result)
  }];
}

class Shmem_SomeElements<string mnemonic, string what, string signature_, string section_>
    : Shmem_PointToPoint<mnemonic, what, signature_, section_> {
  let arguments = (ins Shmem_Ptr:$ivars, I64:$nelems, Shmem_Ptr:$indices, Shmem_Ptr:$status, Shmem_Cmp:$cmp,
                       Shmem_Value:$cmp_value, Shmem_ElementType:$type);
  let assemblyFormat = [{
    $type $ivars `,` $nelems `,` $indices `,` $status `,` $cmp $cmp_value attr-dict
    `:` type($ivars) `,` type($indices) `,` type($status) `,` type($cmp_value) `,` type($result)
  }];
}

class Shmem_SomeElementsVector<string mnemonic, string what, string signature_, string section_>
    : Shmem_PointToPoint<mnemonic, what, signature_, section_> {
  let arguments = (ins Shmem_Ptr:$ivars, I64:$nelems, Shmem_Ptr:$indices, Shmem_Ptr:$status, Shmem_Cmp:$cmp,
                       Shmem_Ptr:$cmp_values, Shmem_ElementType:$type);
  let assemblyFormat = [{
    $type $ivars `,` $nelems `,` $indices `,` $status `,` $cmp $cmp_values attr-dict
    `:` type($ivars) `,` type($indices) `,` type($status) `,` type($cmp_values) `,` type($result)
  }];
}

defvar Shmem_AllArguments = "(TYPE *ivars, size_t nelems, const int *status, int cmp, TYPE cmp_value)";
defvar Shmem_AllVectorArguments = "(TYPE *ivars, size_t nelems, const int *status, int cmp, TYPE *cmp_values)";
defvar Shmem_SomeArguments =
    "(TYPE *ivars, size_t nelems, size_t *indices, const int *status, int cmp, TYPE cmp_value)";
defvar Shmem_SomeVectorArguments =
    "(TYPE *ivars, size_t nelems, size_t *indices, const int *status, int cmp, TYPE *cmp_values)";

def Shmem_WaitUntilOp : Shmem_OneElement<"wait_until", "wait until an element compares true",
    "void shmem_TYPENAME_wait_until(TYPE *ivar, int cmp, TYPE cmp_value)", "9.10.1"> {
  let effect = Shmem_Await;
  let rocshmem = "void rocshmem_$type_wait_until($type *, int, $type)" # rocshmemTypes;
  let results = (outs I64:$result);
  let returns = Shmem_Token;
  let wait = 1;
  let example = "token = dl.wait_until(flags, dl.CMP_EQ, 1)";
}
def Shmem_WaitUntilAllOp : Shmem_ManyElements<"wait_until_all", "wait until all elements compare true",
    !strconcat("void shmem_TYPENAME_wait_until_all", Shmem_AllArguments), "9.10.2"> {
  let effect = Shmem_Await;
  let rocshmem = "void rocshmem_$type_wait_until_all($type *, size_t, const int *, int, $type)" # rocshmemTypes;
  let results = (outs I64:$result);
  let returns = Shmem_Token;
  let wait = 1;
  let example = "token = dl.wait_until_all(flags, dl.n_pes(), None, dl.CMP_EQ, 1)";
}
def Shmem_WaitUntilAnyOp : Shmem_ManyElements<"wait_until_any", "wait until any element compares true; which",
    !strconcat("size_t shmem_TYPENAME_wait_until_any", Shmem_AllArguments), "9.10.3"> {
  let rocshmem = "size_t rocshmem_$type_wait_until_any($type *, size_t, const int *, int, $type)" # rocshmemTypes;
  let results = (outs I64:$result);
  let wait = 1;
  let example = "which = dl.wait_until_any(flags, dl.n_pes(), None, dl.CMP_EQ, 1)";
}
def Shmem_WaitUntilSomeOp : Shmem_SomeElements<"wait_until_some", "wait until some elements compare true; how many",
    !strconcat("size_t shmem_TYPENAME_wait_until_some", Shmem_SomeArguments), "9.10.4"> {
  let rocshmem =
      "size_t rocshmem_$type_wait_until_some($type *, size_t, size_t *, const int *, int, $type)" # rocshmemTypes;
  let results = (outs I64:$result);
  let wait = 1;
  let example = "count = dl.wait_until_some(flags, dl.n_pes(), indices, None, dl.CMP_EQ, 1)";
}
def Shmem_WaitUntilAllVectorOp : Shmem_ManyElementsVector<"wait_until_all_vector",
    "wait until all elements compare true with theirs",
    !strconcat("void shmem_TYPENAME_wait_until_all_vector", Shmem_AllVectorArguments), "9.10.5"> {
  let effect = Shmem_Await;
  let rocshmem =
      "void rocshmem_$type_wait_until_all_vector($type *, size_t, const int *, int, $type *)" # rocshmemTypes;
  let results = (outs I64:$result);
  let returns = Shmem_Token;
  let wait = 1;
  let example = "token = dl.wait_until_all_vector(counters, n, None, dl.CMP_GE, counters + n)";
}
def Shmem_WaitUntilAnyVectorOp : Shmem_ManyElementsVector<"wait_until_any_vector",
    "wait until any element compares true with its own; which",
    !strconcat("size_t shmem_TYPENAME_wait_until_any_vector", Shmem_AllVectorArguments), "9.10.6"> {
  let rocshmem =
      "size_t rocshmem_$type_wait_until_any_vector($type *, size_t, const int *, int, $type *)" # rocshmemTypes;
  let results = (outs I64:$result);
  let wait = 1;
  let example = "which = dl.wait_until_any_vector(counters, n, None, dl.CMP_GE, counters + n)";
}
def Shmem_WaitUntilSomeVectorOp : Shmem_SomeElementsVector<"wait_until_some_vector",
    "wait until some elements compare true with theirs; how many",
    !strconcat("size_t shmem_TYPENAME_wait_until_some_vector", Shmem_SomeVectorArguments), "9.10.7"> {
  let rocshmem =
      "size_t rocshmem_$type_wait_until_some_vector($type *, size_t, size_t *, const int *, int, $type *)" # rocshmemTypes;
  let results = (outs I64:$result);
  let wait = 1;
  let example = "count = dl.wait_until_some_vector(counters, n, indices, None, dl.CMP_GE, counters + n)";
}
def Shmem_TestOp : Shmem_OneElement<"test", "whether an element compares true",
    "int shmem_TYPENAME_test(TYPE *ivar, int cmp, TYPE cmp_value)", "9.10.8"> {
  let rocshmem = "int rocshmem_$type_test($type *, int, $type)" # rocshmemTypes;
  let results = (outs I32:$result);
  let example = "ready = dl.test(flags, dl.CMP_EQ, 1)";
}
def Shmem_TestAllOp : Shmem_ManyElements<"test_all", "whether all elements compare true",
    !strconcat("int shmem_TYPENAME_test_all", Shmem_AllArguments), "9.10.9"> {
  let results = (outs I32:$result);
  let example = "ready = dl.test_all(flags, n, None, dl.CMP_EQ, 1)";
}
def Shmem_TestAnyOp : Shmem_ManyElements<"test_any", "which element compares true, -1 if none",
    !strconcat("size_t shmem_TYPENAME_test_any", Shmem_AllArguments), "9.10.10"> {
  let results = (outs I64:$result);
  let example = "which = dl.test_any(flags, n, None, dl.CMP_EQ, 1)";
}
def Shmem_TestSomeOp : Shmem_SomeElements<"test_some", "how many elements compare true, and which",
    !strconcat("size_t shmem_TYPENAME_test_some", Shmem_SomeArguments), "9.10.11"> {
  let results = (outs I64:$result);
  let example = "count = dl.test_some(flags, n, indices, None, dl.CMP_EQ, 1)";
}
def Shmem_TestAllVectorOp : Shmem_ManyElementsVector<"test_all_vector", "whether all elements compare true with theirs",
    !strconcat("int shmem_TYPENAME_test_all_vector", Shmem_AllVectorArguments), "9.10.12"> {
  let results = (outs I32:$result);
  let example = "ready = dl.test_all_vector(counters, n, None, dl.CMP_GE, counters + n)";
}
def Shmem_TestAnyVectorOp : Shmem_ManyElementsVector<"test_any_vector",
    "which element compares true with its own, -1 if none",
    !strconcat("size_t shmem_TYPENAME_test_any_vector", Shmem_AllVectorArguments), "9.10.13"> {
  let results = (outs I64:$result);
  let example = "which = dl.test_any_vector(counters, n, None, dl.CMP_GE, counters + n)";
}
def Shmem_TestSomeVectorOp : Shmem_SomeElementsVector<"test_some_vector",
    "how many elements compare true with theirs, and which",
    !strconcat("size_t shmem_TYPENAME_test_some_vector", Shmem_SomeVectorArguments), "9.10.14"> {
  let results = (outs I64:$result);
  let example = "count = dl.test_some_vector(counters, n, indices, None, dl.CMP_GE, counters + n)";
}

def Shmem_PollOp : Shmem_WarpsOp<"poll"> {
  let summary = "note that a loop's wait goes on";
  let description = [{
    For loops in kernels that wait by looking at memory themselves; users have no such
    function. `polls` is 0 before the first look, and then what this returned. When the
    wait lasts longer than the host wants, one thread of each warp looks for a word that
    is not as expected, and reports it. Until then it costs an addition.

    The loop waits for `rows` × `columns` int32 words: row i begins `row_step` words
    behind the one before. The lower 16 bits of `writer` are the PE that writes row 0,
    and the upper ones the distance to the PE of the next row, less 1; -1: unknown.
    `expected` is compared as a number that wraps around.

    ```mlir
    %more = shmem.poll %polls, %words, ge %expected, %writer, %rows, %columns, %row_step, %column_step : !tt.ptr<i32>
    ```
  }];
  let arguments = (ins I32:$polls, Shmem_Ptr:$words, Shmem_Cmp:$cmp, I32:$expected, I32:$writer, I32:$rows, I32:$columns,
                       I32:$row_step, I32:$column_step);
  let results = (outs I32:$result);
  let assemblyFormat = [{
    $polls `,` $words `,` $cmp $expected `,` $writer `,` $rows `,` $columns `,` $row_step `,` $column_step attr-dict `:`
    type($words)
  }];
  let nvshmem = p2p;
  let rocshmem = p2p;
  let takesSite = 1;
  let comparedWord = "i32";
}

} // section

let section = "Ordering" in {

def Shmem_FenceOp : Shmem_ElectedOp<"fence"> {
  let summary = "order the program's earlier puts before its later ones";
  let description = "C: `void shmem_fence(void)` (OpenSHMEM 1.5, 9.11.1), for each PE.";
  let assemblyFormat = "attr-dict";
  let effect = Shmem_Fence;
  let nvshmem = "nvshmem_fence";
  let rocshmem = "void rocshmem_fence()";
  let release = 1;
  let p2pFences = 1;
  let example = "dl.fence()";
}

def Shmem_QuietOp : Shmem_ElectedOp<"quiet"> {
  let summary = "complete the program's outstanding operations";
  let description = [{
    C: `void shmem_quiet(void)` (OpenSHMEM 1.5, 9.11.2). Puts have arrived, gets
    have returned, and `src` of non-blocking puts may be written again.
  }];
  let assemblyFormat = "attr-dict";
  let effect = Shmem_Quiet;
  let nvshmem = "nvshmem_quiet";
  let rocshmem = "void rocshmem_quiet()";
  let release = 1;
  let acquire = 1;
  let p2pFences = 1;
  let example = "dl.quiet()";
}

// For one PE. OpenSHMEM 1.5 has no such routines, and NVSHMEM up to 3.4 and our
// own library neither: where there is none the routine for all PEs stands in,
// which promises more.

def Shmem_PeFenceOp : Shmem_ElectedOp<"pe_fence"> {
  let summary = "order the program's earlier puts to a PE before its later ones to it";
  let description = [{
    `fence` for one PE. C: `void rocshmem_fence(int pe)`. The other libraries order
    the puts to every PE. (NVSHMEM's `nvshmemx_qp_fence`, which came after 3.4.5, is
    not used.)

    ```mlir
    shmem.pe_fence %pe
    ```
  }];
  let arguments = (ins I32:$pe);
  let assemblyFormat = "$pe attr-dict";
  let effect = Shmem_Fence;
  let forAllPes = 1;
  let nvshmem = "nvshmem_fence";
  let rocshmem = "void rocshmem_fence(int)";
  let p2p = "triton_dist_fence";
  let release = 1;
  let p2pFences = 1;
  let example = "dl.pe_fence(pe)";
}

def Shmem_PeQuietOp : Shmem_ElectedOp<"pe_quiet"> {
  let summary = "complete the program's outstanding operations on a PE";
  let description = [{
    `quiet` for one PE. The libraries complete those on every PE: more than is asked
    for. (NVSHMEM's `nvshmemx_qp_quiet`, which came after 3.4.5, is not used.)

    ```mlir
    shmem.pe_quiet %pe
    ```
  }];
  let arguments = (ins I32:$pe);
  let assemblyFormat = "$pe attr-dict";
  let effect = Shmem_Quiet;
  let forAllPes = 1;
  let nvshmem = "nvshmem_quiet";
  let rocshmem = "void rocshmem_quiet()";
  let p2p = "triton_dist_quiet";
  let release = 1;
  let acquire = 1;
  let p2pFences = 1;
  let example = "dl.pe_quiet(pe)";
}

} // section

let section = "Collectives" in {

class Shmem_Collective<string mnemonic> : Shmem_BlockOp<mnemonic> {
  let collective = 1;
  let release = 1;
  let acquire = 1;
  let p2pFences = 1;
}

class Shmem_WorldCollective<string mnemonic, Shmem_Effect effect_> : Shmem_Collective<mnemonic> {
  let effect = effect_;
  let arguments = (ins Shmem_ThreadScope:$scope);
  let assemblyFormat = "$scope attr-dict";
  let nvshmem = "nvshmem_" # mnemonic # "$scope";
  let rocshmem = "void rocshmem_" # mnemonic # "$scope()";
  let rocshmem6 = "void rocshmem_wg_" # mnemonic # "()"; // of a work-group, and named the other way round
}

def Shmem_BarrierAllOp : Shmem_WorldCollective<"barrier_all", Shmem_Barrier> {
  let summary = "complete outstanding operations and wait for every PE";
  let description = [{
    C: `void shmem_barrier_all(void)` (OpenSHMEM 1.5, 9.9.1). Called by one
    program of each PE at a time; all PEs' grids must be resident.
  }];
  let example = "dl.barrier_all()";
}

def Shmem_SyncAllOp : Shmem_WorldCollective<"sync_all", Shmem_Sync> {
  let summary = "wait for every PE";
  let description = [{
    C: `void shmem_sync_all(void)` (OpenSHMEM 1.5, 9.9.4). As `barrier_all`, but
    remote updates are not completed: only memory that a PE itself wrote is visible.
  }];
  let example = "dl.sync_all()";
}

class Shmem_TeamSync<string mnemonic, Shmem_Effect effect_, string routine> : Shmem_Collective<mnemonic> {
  let effect = effect_;
  let arguments = (ins I32:$team, Shmem_ThreadScope:$scope);
  let assemblyFormat = "$scope $team attr-dict";
  let returns = Shmem_Status;
  let nvshmem = "nvshmem_" # routine # "$scope";
  let rocshmem = "void rocshmem_ctx_" # mnemonic # "$scope(rocshmem_ctx_t, rocshmem_team_t)";
}

def Shmem_BarrierOp : Shmem_TeamSync<"barrier", Shmem_Barrier, "barrier"> {
  let summary = "complete outstanding operations and wait for a team";
  let description = "C: `int nvshmem_barrier(nvshmem_team_t team)`: `quiet`, then `sync`.";
  let example = "dl.barrier(dl.TEAM_WORLD)";
}

def Shmem_SyncOp : Shmem_TeamSync<"sync", Shmem_Sync, "team_sync"> {
  let summary = "wait for every PE of a team";
  let description = "C: `int shmem_team_sync(shmem_team_t team)` (OpenSHMEM 1.5, 9.9.3).";
  let example = "dl.sync(dl.TEAM_WORLD)";
}

class Shmem_DataCollective<string mnemonic> : Shmem_Collective<mnemonic> {
  let effect = Shmem_Exchange;
  let returns = Shmem_Status;
  // Whether `src` and `dst` have `nbytes`, or `nelems` elements, for each PE of the team, or only once.
  bit srcForEachPe = 0;
  bit dstForEachPe = 0;
}

def Shmem_BroadcastOp : Shmem_DataCollective<"broadcast"> {
  let summary = "copy bytes from one PE of a team to all";
  let description = [{
    C: `int shmem_broadcastmem(shmem_team_t team, void *dst, const void *src,
    size_t nbytes, int root)` (OpenSHMEM 1.5, 9.9.7); `root` counts in the team.
  }];
  let arguments = (ins I32:$team, Shmem_SymmetricPtr:$dst, Shmem_SymmetricPtr:$src, I64:$nbytes, I32:$root, Shmem_ThreadScope:$scope);
  let assemblyFormat =
      "$scope $team `,` $dst `,` $src `,` $nbytes `,` $root attr-dict `:` type($dst) `,` type($src)";
  let nvshmem = "nvshmem_broadcastmem$scope";
  let rocshmem = "void rocshmem_ctx_char_broadcast_wg(rocshmem_ctx_t, rocshmem_team_t, char *, const char *, int, int)";
  let example = "dl.broadcast(dl.TEAM_WORLD, x, y, n, 0)";
}

class Shmem_Exchange<string mnemonic> : Shmem_DataCollective<mnemonic> {
  let arguments = (ins I32:$team, Shmem_SymmetricPtr:$dst, Shmem_SymmetricPtr:$src, I64:$nbytes, Shmem_ThreadScope:$scope);
  let assemblyFormat = "$scope $team `,` $dst `,` $src `,` $nbytes attr-dict `:` type($dst) `,` type($src)";
  let nvshmem = "nvshmem_" # mnemonic # "mem$scope";
  let rocshmem =
      "void rocshmem_ctx_char_" # mnemonic # "_wg(rocshmem_ctx_t, rocshmem_team_t, char *, const char *, int)";
}

def Shmem_FcollectOp : Shmem_Exchange<"fcollect"> {
  let summary = "concatenate what every PE of a team contributes, on all of them";
  let description = [{
    C: `int shmem_fcollectmem(shmem_team_t team, void *dst, const void *src,
    size_t nbytes)` (OpenSHMEM 1.5, 9.9.8); `nbytes` is one PE's contribution.
  }];
  let dstForEachPe = 1;
  let example = "dl.fcollect(dl.TEAM_WORLD, x, y, n)";
}

def Shmem_AlltoallOp : Shmem_Exchange<"alltoall"> {
  let summary = "send a block to each PE of a team and get one from each";
  let description = [{
    C: `int shmem_alltoallmem(shmem_team_t team, void *dst, const void *src,
    size_t nbytes)` (OpenSHMEM 1.5, 9.9.5); `nbytes` is one block.
  }];
  let srcForEachPe = 1;
  let dstForEachPe = 1;
  let example = "dl.alltoall(dl.TEAM_WORLD, x, y, n)";
}

class Shmem_Reduce<string mnemonic> : Shmem_DataCollective<mnemonic> {
  let arguments = (ins I32:$team, Shmem_SymmetricPtr:$dst, Shmem_SymmetricPtr:$src, I64:$nelems, Shmem_Reduction:$op,
                       Shmem_ElementType:$type, Shmem_ThreadScope:$scope);
  let assemblyFormat =
      "$scope $op $type $team `,` $dst `,` $src `,` $nelems attr-dict `:` type($dst) `,` type($src)";
  let nvshmem = "nvshmem_$type_$op_" # mnemonic # "$scope";
  let nameSuffix = "_$op_$type$scope";
}

def Shmem_ReduceOp : Shmem_Reduce<"reduce"> {
  let summary = "combine the elements of every PE of a team, on all of them";
  let description = [{
    C: `int shmem_TYPENAME_OP_reduce(shmem_team_t team, TYPE *dst, const TYPE *src,
    size_t nelems)` (OpenSHMEM 1.5, 9.9.9). `dst` may be `src`.
  }];
  let rocshmem = "int rocshmem_ctx_$type_$op_reduce_wg(rocshmem_ctx_t, rocshmem_team_t, $type *, const $type *, int)" #
                 " for short int long float double";
  let example = "dl.sum_reduce(dl.TEAM_WORLD, x, y, n)";
}

def Shmem_ReducescatterOp : Shmem_Reduce<"reducescatter"> {
  let summary = "combine the elements of every PE of a team, each keeping its part";
  let description = [{
    C: `int nvshmem_TYPENAME_OP_reducescatter(nvshmem_team_t team, TYPE *dst,
    const TYPE *src, size_t nelems)`; `src` has `nelems` elements for each PE.
    NVSHMEM takes up to half of `NVSHMEM_REDUCE_SCRATCH_SIZE` bytes from all PEs
    together ([more](world.md#gpu-world)).
  }];
  let srcForEachPe = 1;
  let nvshmemScratch = 1;
  let example = "dl.max_reducescatter(dl.TEAM_WORLD, x, y, n)";
}

} // section

let section = "Tokens: keep loads behind waits through Triton's software pipeliner" in {

/// A number that LLVM may know, and no pass before the lowering.
class Shmem_OpaqueOp<string mnemonic, int value> : Shmem_Op<mnemonic, [Pure, Shmem_OpaqueNumber]> {
  let extraClassDeclaration = declarePageMultiple #
      "static int64_t getNumber() { return " # value # "; }\n";
}

def Shmem_TokenZeroOp : Shmem_OpaqueOp<"token_zero", 0> {
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
  let pageMultiple = 1;
  let example = "tile = tl.load(dl.consume_token(x, dl.wait_until(flags, dl.CMP_EQ, 1)))";
}

def Shmem_AlwaysOp : Shmem_OpaqueOp<"always", 1> {
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

} // section

#endif // SHMEM_OPS_TD
