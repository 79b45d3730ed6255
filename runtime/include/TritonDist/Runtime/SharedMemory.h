//===- SharedMemory.h - Anonymous memory that processes share ---*- C++ -*-===//

#ifndef TRITON_DIST_RUNTIME_SHARED_MEMORY_H
#define TRITON_DIST_RUNTIME_SHARED_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <string>

namespace triton_dist {

/// Memory that other processes can open, owned through a file descriptor.
///
/// It is a memfd: it has no name in any file system, so the kernel frees it
/// when the last process that holds it ends, however that process ends. Its
/// pages are committed when they are first touched, and its size is sealed.
/// Another process of the same user opens it below /proc while the creator
/// lives, and keeps it from then on.
class SharedMemory {
public:
  static SharedMemory create(const std::string &label, size_t size);

  /// Owns `fd` from now on, also if it throws because the size differs. The
  /// caller has checked that it is a sealed memfd of this user.
  static SharedMemory adopt(int fd, size_t size);

  SharedMemory() = default;
  SharedMemory(SharedMemory &&other) noexcept;
  SharedMemory &operator=(SharedMemory &&other) noexcept;
  SharedMemory(const SharedMemory &) = delete;
  ~SharedMemory();

  explicit operator bool() const { return descriptor >= 0; }
  int fd() const { return descriptor; }
  size_t size() const { return bytes; }

  /// Copies through the kernel rather than with memcpy: a `source` or a
  /// `destination` that is not mapped then is an error and not a SIGSEGV, and
  /// so is memory running out, which a store to a fresh page reports as SIGBUS.
  /// The caller has checked the range against size().
  void write(uint64_t offset, const void *source, size_t count) const;
  void read(uint64_t offset, void *destination, size_t count) const;

private:
  SharedMemory(int descriptor, size_t bytes) : descriptor(descriptor), bytes(bytes) {}

  int descriptor = -1;
  size_t bytes = 0;
};

/// A range of this process's addresses, unmapped when its owner ends. Starts
/// out inaccessible; shared memory is mapped into parts of it.
class AddressRange {
public:
  explicit AddressRange(size_t size);
  AddressRange(const AddressRange &) = delete;
  AddressRange &operator=(const AddressRange &) = delete;
  ~AddressRange();

  std::byte *begin() const { return first; }
  size_t size() const { return bytes; }
  void map(size_t offset, const SharedMemory &memory);

private:
  std::byte *first;
  size_t bytes;
};

size_t pageSize();

} // namespace triton_dist

#endif // TRITON_DIST_RUNTIME_SHARED_MEMORY_H
