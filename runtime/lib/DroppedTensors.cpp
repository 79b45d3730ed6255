//===- DroppedTensors.cpp - What torch does not use any more --------------===//
//
// torch calls the deleter of a DLPack structure from any thread, with or
// without Python's lock, while an exception is set, and after the interpreter
// has ended. Nothing of Python can be called there. So the deleter only pushes
// the structure on a list, which Python takes when it is safe to. Called
// through ctypes; linked into the plugin, so that GPU worlds need no other
// compiled code.
//
//===----------------------------------------------------------------------===//

#include <atomic>

namespace {

/// DLManagedTensor of DLPack 0.x, as far as it is looked at here, and the link that triton_dist adds behind it.
/// triton_dist/world/raw_tensor.py declares the same structure.
struct ManagedTensor {
  unsigned char tensor[48]; // DLTensor
  void *context;
  void (*deleter)(ManagedTensor *);
  ManagedTensor *next;
};
static_assert(sizeof(void *) == 8 && sizeof(ManagedTensor) == 72, "DLPack 0.x on a 64-bit system");

std::atomic<ManagedTensor *> dropped{nullptr};

} // namespace

/// The deleter: lock-free, allocates nothing, calls nothing.
extern "C" __attribute__((visibility("default"))) void tritonDistDropTensor(ManagedTensor *tensor) {
  tensor->next = dropped.load(std::memory_order_relaxed);
  while (!dropped.compare_exchange_weak(tensor->next, tensor, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

/// Takes the latest of them off the list and returns it; null if there are none. One caller at a time (Python's lock is
/// held): what is on top then stays on the list until this call takes it, however many are pushed above it.
extern "C" __attribute__((visibility("default"))) ManagedTensor *tritonDistTakeDroppedTensor() {
  ManagedTensor *top = dropped.load(std::memory_order_acquire);
  while (top && !dropped.compare_exchange_weak(top, top->next, std::memory_order_acquire, std::memory_order_acquire)) {
  }
  return top;
}
