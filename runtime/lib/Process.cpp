//===- Process.cpp - Which process, and does it still run -----------------===//

#include "TritonDist/Runtime/Process.h"

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unistd.h>

using namespace triton_dist;

namespace {
struct Stat {
  char state;
  uint64_t startTime;
};

/// Fields 3 and 22 of /proc/<pid>/stat. Field 2 is the program's name, which
/// may hold blanks and parentheses, so counting starts behind the last one.
std::optional<Stat> readStat(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  size_t nameEnd = text.rfind(')');
  if (nameEnd == std::string::npos)
    return std::nullopt;
  std::istringstream fields(text.substr(nameEnd + 1));
  Stat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field)
    fields >> skipped;
  fields >> stat.startTime;
  if (!fields)
    return std::nullopt;
  return stat;
}
} // namespace

Process Process::self() {
  int64_t pid = getpid();
  std::optional<Stat> stat = readStat(pid);
  if (!stat)
    throw std::runtime_error("cannot read /proc/self/stat: is /proc mounted?");
  return {pid, stat->startTime};
}

bool Process::isRunning() const {
  std::optional<Stat> stat = readStat(pid);
  return stat && stat->startTime == startTime && stat->state != 'Z' && stat->state != 'X';
}
