//===- ControlBlock.cpp - What the PEs of a world tell each other ---------===//

#include "TritonDist/Runtime/ControlBlock.h"

#include <algorithm>
#include <cassert>
#include <cstring>

using namespace triton_dist;

namespace {
/// Text in shared memory, cut to what fits, at a whole UTF-8 character.
template <size_t N> class Text {
public:
  void set(std::string_view text) {
    size_t length = std::min(text.size(), N - 1);
    while (length < text.size() && length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80)
      --length;
    std::memcpy(chars, text.data(), length);
    chars[length] = '\0';
  }
  std::string get() const { return std::string(chars, strnlen(chars, N)); }

private:
  char chars[N];
};

constexpr uint32_t kWhole = 0, kBreaking = 1, kBroken = 2;
constexpr uint32_t kAbsent = 0, kEntered = 1, kLeft = 2;
constexpr size_t kLine = 64; // barriers do not share a cache line
} // namespace

struct ControlBlock::Header {
  alignas(kLine) Barrier host;
  alignas(kLine) Barrier kernel;
  alignas(kLine) uint32_t condition;
  int32_t brokenBy;
  Text<8192> reason;
};

struct ControlBlock::Record {
  alignas(kLine) uint32_t presence;
  Process process;
  Text<512> announcements[2][2]; // by caller, by round
};

static size_t roundUp(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

ControlBlock::ControlBlock(SharedMemory owned, int nPes)
    : memory(std::move(owned)), addresses(std::make_unique<AddressRange>(memory.size())), count(nPes) {
  addresses->map(0, memory);
}

static size_t blockSize(size_t header, size_t record, int nPes) { return roundUp(header + record * nPes, pageSize()); }

ControlBlock ControlBlock::create(int nPes) {
  // Fresh shared memory is zero, which is how everything here starts.
  return {SharedMemory::create("triton_dist_control", blockSize(sizeof(Header), sizeof(Record), nPes)), nPes};
}

ControlBlock ControlBlock::open(int fd, int nPes) {
  return {SharedMemory::adopt(fd, blockSize(sizeof(Header), sizeof(Record), nPes)), nPes};
}

ControlBlock::Header &ControlBlock::header() const { return *reinterpret_cast<Header *>(addresses->begin()); }

ControlBlock::Record &ControlBlock::record(int pe) const {
  assert(0 <= pe && pe < count);
  return reinterpret_cast<Record *>(addresses->begin() + sizeof(Header))[pe];
}

void ControlBlock::enter(int pe) {
  record(pe).process = Process::self();
  atomicStore(&record(pe).presence, kEntered, Order::Release);
}

void ControlBlock::leave(int pe) { atomicStore(&record(pe).presence, kLeft, Order::Release); }

ControlBlock::State ControlBlock::state(int pe) const {
  switch (atomicLoad(&record(pe).presence, Order::Acquire)) {
  case kAbsent:
    return State::Absent;
  case kLeft:
    return State::Left;
  }
  if (record(pe).process.isRunning())
    return State::Running;
  // It may have left between the two looks.
  return atomicLoad(&record(pe).presence, Order::Acquire) == kLeft ? State::Left : State::Lost;
}

int64_t ControlBlock::pid(int pe) const { return record(pe).process.pid; }

void ControlBlock::abort(int pe, std::string_view reason) {
  Header &shared = header();
  if (atomicCompareSwap(&shared.condition, kWhole, kBreaking, Order::AcquireRelease) != kWhole)
    return;
  shared.brokenBy = pe;
  shared.reason.set(reason);
  atomicStore(&shared.condition, kBroken, Order::Release);
}

std::optional<ControlBlock::Abort> ControlBlock::aborted() const {
  const Header &shared = header();
  // While it is being written nothing is said yet; a PE that dies over it is
  // found to be lost.
  if (atomicLoad(&shared.condition, Order::Acquire) != kBroken)
    return std::nullopt;
  return Abort{shared.brokenBy, shared.reason.get()};
}

Barrier &ControlBlock::hostBarrier() const { return header().host; }
Barrier &ControlBlock::kernelBarrier() const { return header().kernel; }

void ControlBlock::announce(Caller caller, int pe, uint64_t round, std::string_view text) {
  record(pe).announcements[static_cast<int>(caller)][round % 2].set(text);
}

std::string ControlBlock::announced(Caller caller, int pe, uint64_t round) const {
  return record(pe).announcements[static_cast<int>(caller)][round % 2].get();
}
