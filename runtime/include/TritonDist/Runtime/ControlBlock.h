//===- ControlBlock.h - What the PEs of a world tell each other -*- C++ -*-===//

#ifndef TRITON_DIST_RUNTIME_CONTROL_BLOCK_H
#define TRITON_DIST_RUNTIME_CONTROL_BLOCK_H

#include "TritonDist/Runtime/Barrier.h"
#include "TritonDist/Runtime/Process.h"
#include "TritonDist/Runtime/SharedMemory.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace triton_dist {

/// Memory that all PEs of a world map beside the symmetric heaps: who they are
/// and whether they still run, the barriers, the word that the world is broken,
/// and what each PE is about to do collectively.
class ControlBlock {
public:
  enum class State {
    Absent, ///< has not entered yet
    Running,
    Left, ///< said good-bye
    Lost, ///< ended without: killed, crashed, _exit
  };

  /// Why a world is broken: the PE at whose fault, and its words.
  struct Abort {
    int pe;
    std::string reason;
  };

  /// Whose collectives: a PE's host and its kernels each have theirs.
  enum class Caller { Host, Kernel };

  /// Made by one PE; the others open it by a descriptor of its memory, which
  /// is the block's own from then on.
  static ControlBlock create(int nPes);
  static ControlBlock open(int fd, int nPes);

  int fd() const { return memory.fd(); }
  int nPes() const { return count; }

  /// The calling process is `pe` from now on, or no longer is.
  void enter(int pe);
  void leave(int pe);
  State state(int pe) const;
  int64_t pid(int pe) const;

  /// Breaks the world; the first PE to do so is the one that all name.
  /// A long reason is cut.
  void abort(int pe, std::string_view reason);
  std::optional<Abort> aborted() const;

  /// Two barriers, since the host may wait in one while a kernel, elsewhere,
  /// waits in the other: that must not let both pass.
  Barrier &hostBarrier() const;
  Barrier &kernelBarrier() const;

  /// What `pe` is about to do as the caller's collective number `round`. Kept
  /// until two collectives later: with a barrier in each, no PE still reads it
  /// then.
  void announce(Caller caller, int pe, uint64_t round, std::string_view text);
  std::string announced(Caller caller, int pe, uint64_t round) const;

private:
  struct Header;
  struct Record;

  ControlBlock(SharedMemory memory, int nPes);
  Header &header() const;
  Record &record(int pe) const;

  SharedMemory memory;
  std::unique_ptr<AddressRange> addresses;
  int count;
};

} // namespace triton_dist

#endif // TRITON_DIST_RUNTIME_CONTROL_BLOCK_H
