//===- DroppedTensors.cpp - DLPack structures that torch has released -----===//
//
// torch calls the deleter of a DLPack structure from any thread, with or
// without the GIL, while an exception is set, and after the interpreter has
// ended. It cannot call Python. So the deleter only pushes the structure on a
// list, which Python takes when it is safe to. Python calls these functions
// through ctypes. They are linked into the plugin, so GPU worlds need no other
// compiled code.
//
//===----------------------------------------------------------------------===//

#include <atomic>

namespace {

/// DLManagedTensor of DLPack 0.x, with an opaque DLTensor, and a link that triton_dist adds after it.
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

/// Pops the structure that was pushed last; null if the list is empty. The caller holds the GIL, so there is one popper
/// at a time: the top stays on the list until this call pops it, and concurrent pushes cannot cause an ABA problem.
extern "C" __attribute__((visibility("default"))) ManagedTensor *tritonDistTakeDroppedTensor() {
  ManagedTensor *top = dropped.load(std::memory_order_acquire);
  while (top && !dropped.compare_exchange_weak(top, top->next, std::memory_order_acquire, std::memory_order_acquire)) {
  }
  return top;
}
