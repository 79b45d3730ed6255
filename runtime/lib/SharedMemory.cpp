//===- SharedMemory.cpp - Anonymous memory that processes share -----------===//

#include "TritonDist/Runtime/SharedMemory.h"

#include <cerrno>
#include <fcntl.h>
#include <sstream>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

using namespace triton_dist;

namespace {
[[noreturn]] void fail(const std::string &what) { throw std::system_error(errno, std::generic_category(), what); }

[[noreturn]] void failAt(const char *what, const void *address) {
  // A stream without arguments would ask for a newer libstdc++ than anything else here.
  std::ostringstream message(what + std::string(" address "), std::ios_base::ate);
  message << address;
  fail(message.str());
}
} // namespace

size_t triton_dist::pageSize() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

SharedMemory SharedMemory::create(const std::string &label, size_t size) {
  int fd = memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0)
    fail("memfd_create");
  SharedMemory memory(fd, size);
  if (fchmod(fd, S_IRUSR | S_IWUSR) != 0 || ftruncate(fd, static_cast<off_t>(size)) != 0)
    fail("cannot make shared memory of " + std::to_string(size) + " bytes");
  // No process can truncate memory that others have mapped: their accesses would raise SIGBUS.
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    fail("cannot seal shared memory");
  return memory;
}

SharedMemory SharedMemory::adopt(int fd, size_t size) {
  SharedMemory memory(fd, size);
  struct statx status; // fstat would ask for a newer glibc than anything else here
  if (statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &status) != 0)
    fail("cannot open shared memory");
  if (static_cast<size_t>(status.stx_size) != size)
    throw std::runtime_error("the shared memory holds " + std::to_string(status.stx_size) + " bytes where " +
                             std::to_string(size) + " are expected");
  return memory;
}

SharedMemory::SharedMemory(SharedMemory &&other) noexcept
    : descriptor(std::exchange(other.descriptor, -1)), bytes(std::exchange(other.bytes, 0)) {}

SharedMemory &SharedMemory::operator=(SharedMemory &&other) noexcept {
  std::swap(descriptor, other.descriptor);
  std::swap(bytes, other.bytes);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (descriptor >= 0)
    close(descriptor);
}

void SharedMemory::write(uint64_t offset, const void *source, size_t count) const {
  auto *from = static_cast<const std::byte *>(source);
  while (count > 0) {
    ssize_t done = pwrite(descriptor, from, count, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      failAt("cannot copy from", from);
    from += done;
    offset += static_cast<uint64_t>(done);
    count -= static_cast<size_t>(done);
  }
}

void SharedMemory::read(uint64_t offset, void *destination, size_t count) const {
  auto *to = static_cast<std::byte *>(destination);
  while (count > 0) {
    ssize_t done = pread(descriptor, to, count, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR)
      continue;
    if (done <= 0)
      failAt("cannot copy to", to);
    to += done;
    offset += static_cast<uint64_t>(done);
    count -= static_cast<size_t>(done);
  }
}

AddressRange::AddressRange(size_t size) : bytes(size) {
  void *address = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    fail("cannot reserve " + std::to_string(size) + " bytes of address space");
  first = static_cast<std::byte *>(address);
}

AddressRange::~AddressRange() { munmap(first, bytes); }

void AddressRange::map(size_t offset, const SharedMemory &memory) {
  void *address = mmap(first + offset, memory.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
                       memory.fd(), 0);
  if (address == MAP_FAILED)
    fail("cannot map " + std::to_string(memory.size()) + " bytes of shared memory");
}
