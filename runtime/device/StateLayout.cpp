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
  std::printf("  \"offsets\": {\"pe\": %zu, \"n_pes\": %zu, \"sync\": %zu, \"distance\": %zu, \"teams\": %zu,\n",
              offsetof(State, pe), offsetof(State, nPes), offsetof(State, sync), offsetof(State, distance),
              offsetof(State, teams));
  std::printf("    \"unreachable\": %zu},\n", offsetof(State, unreachable));
  std::printf("  \"team_bytes\": %zu,\n", sizeof(Team));
  std::printf("  \"team_offsets\": {\"start\": %zu, \"stride\": %zu, \"size\": %zu},\n", offsetof(Team, start),
              offsetof(Team, stride), offsetof(Team, size));
  std::printf("  \"wait_symbol\": \"triton_dist_wait_state\",\n");
  std::printf("  \"wait_state_bytes\": %zu,\n", sizeof(WaitState));
  std::printf("  \"wait_state_offsets\": {\"timeout\": %zu, \"records\": %zu, \"count\": %zu, \"kernel\": %zu},\n",
              offsetof(WaitState, timeout), offsetof(WaitState, records), offsetof(WaitState, count),
              offsetof(WaitState, kernel));
  std::printf("  \"polls\": %u,\n", kPolls);
  std::printf("  \"wait_tick_shift\": %u,\n", kTickShift);
  std::printf("  \"wait_tick_bits\": %u,\n", kTickBits);
  std::printf("  \"wait_records\": %u,\n", kWaitRecords);
  std::printf("  \"wait_record_bytes\": %zu,\n", sizeof(WaitRecord));
  std::printf("  \"wait_record_offsets\": {\"number\": %zu, \"address\": %zu, \"expected\": %zu, \"seen\": %zu,\n",
              offsetof(WaitRecord, number), offsetof(WaitRecord, address), offsetof(WaitRecord, expected),
              offsetof(WaitRecord, seen));
  std::printf("    \"program\": %zu, \"kernel\": %zu, \"site\": %zu, \"pe\": %zu, \"cmp\": %zu, \"ticks\": %zu,\n",
              offsetof(WaitRecord, program), offsetof(WaitRecord, kernel), offsetof(WaitRecord, site),
              offsetof(WaitRecord, pe), offsetof(WaitRecord, cmp), offsetof(WaitRecord, ticks));
  std::printf("    \"programs\": %zu},\n", offsetof(WaitRecord, programs));
  std::printf("  \"sync_area_bytes\": %zu,\n", sizeof(SyncArea));
  std::printf("  \"sync_area_offsets\": {\"arrived\": %zu, \"epoch\": %zu}\n", offsetof(SyncArea, arrived),
              offsetof(SyncArea, epoch));
  std::printf("}\n");
}
