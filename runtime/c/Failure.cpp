//===- Failure.cpp - What went wrong last ---------------------------------===//

#include "Failure.h"

#include <cstdio>

// No std::string: noting a failure cannot fail.
static thread_local char lastFailure[1024];

void triton_dist::noteFailure(const char *what) { std::snprintf(lastFailure, sizeof lastFailure, "%s", what); }

/// What the last function of this thread that returned a Failure has said.
TRITON_DIST_C const char *triton_dist_failure() { return lastFailure; }
