//===- StateLayout.cpp - Prints State.h for the host, as JSON ---------------===//
//
// Runs while the library is built, on the building machine: host and GPUs agree
// on the layout of plain structures of fixed-size members.
//
//===----------------------------------------------------------------------===//

#include "State.h"

#include <cstddef>
#include <cstdio>

using namespace triton_dist::device;

int main() {
  std::printf("{\n");
  std::printf("  \"symbol\": \"triton_dist_p2p_state\",\n");
  std::printf("  \"max_pes\": %d,\n", kMaxPes);
  std::printf("  \"max_teams\": %d,\n", kMaxTeams);
  std::printf("  \"sync_bytes\": %zu,\n", kMaxTeams * sizeof(SyncArea));
  std::printf("  \"state_bytes\": %zu,\n", sizeof(State));
  std::printf("  \"offsets\": {\"pe\": %zu, \"n_pes\": %zu, \"sync\": %zu, \"distance\": %zu, \"teams\": %zu},\n",
              offsetof(State, pe), offsetof(State, nPes), offsetof(State, sync), offsetof(State, distance),
              offsetof(State, teams));
  std::printf("  \"team_bytes\": %zu,\n", sizeof(Team));
  std::printf("  \"team_offsets\": {\"start\": %zu, \"stride\": %zu, \"size\": %zu}\n", offsetof(Team, start),
              offsetof(Team, stride), offsetof(Team, size));
  std::printf("}\n");
}
