//===- Wait.cpp - Point-to-point synchronisation ----------------------------===//
//
// OpenSHMEM 1.5, section 9.10. Words are polled by relaxed loads; the lowering
// places the acquiring fence behind the call. A wait for elements of which none
// is selected returns at once.
//
//===----------------------------------------------------------------------===//

#include "Compare.h"

#include <stddef.h>

using namespace triton_dist::device;

/// The elements that a call is about, and what each is compared with. `Values` is a function of an element's index.
template <typename T, typename Values> struct Elements {
  Global<T> *ivars;
  size_t nelems;
  const Global<int32_t> *status; // null, or nonzero where an element is left out
  int32_t cmp;
  Values values;
  int32_t site; // of a wait

  bool selects(size_t i) const { return !status || status[i] == 0; }
  bool compares(size_t i) const { return triton_dist::device::compares(loadRelaxed(ivars + i), cmp, values(i)); }

  bool testAll() const {
    for (size_t i = 0; i < nelems; ++i)
      if (selects(i) && !compares(i))
        return false;
    return true;
  }

  void waitAll() const {
    for (size_t i = 0; i < nelems; ++i)
      if (selects(i))
        waitUntil(ivars + i, cmp, values(i), site);
  }

  /// SIZE_MAX where there is none.
  size_t testAny() const {
    for (size_t i = 0; i < nelems; ++i)
      if (selects(i) && compares(i))
        return i;
    return SIZE_MAX;
  }

  size_t waitAny() const {
    size_t found = SIZE_MAX;
    pollUntil([&] { return !selectsAny() || (found = testAny()) != SIZE_MAX; },
              [&](uint32_t state) { return look(state); });
    return found;
  }

  size_t testSome(Global<size_t> *indices) const {
    size_t count = 0;
    for (size_t i = 0; i < nelems; ++i)
      if (selects(i) && compares(i))
        indices[count++] = i;
    return count;
  }

  size_t waitSome(Global<size_t> *indices) const {
    size_t count = 0;
    pollUntil([&] { return !selectsAny() || (count = testSome(indices)) != 0; },
              [&](uint32_t state) { return look(state); });
    return count;
  }

private:
  bool selectsAny() const {
    for (size_t i = 0; i < nelems; ++i)
      if (selects(i))
        return true;
    return false;
  }

  /// A report names the first selected element.
  uint32_t look(uint32_t state) const {
    size_t i = 0;
    while (i + 1 < nelems && !selects(i))
      ++i;
    return lookAtClock(state, ivars + i, cmp, values(i), site, -1);
  }
};

/// All elements are compared with one value.
template <typename T>
static auto elements(T *ivars, size_t nelems, const int32_t *status, int32_t cmp, T value, int32_t site = 0) {
  auto values = [=](size_t) { return value; };
  return Elements<T, decltype(values)>{global(ivars), nelems, global(status), cmp, values, site};
}

/// Each element is compared with its own.
template <typename T>
static auto elements(T *ivars, size_t nelems, const int32_t *status, int32_t cmp, T *cmpValues, int32_t site = 0) {
  auto values = [from = global(cmpValues)](size_t i) -> T { return from[i]; };
  return Elements<T, decltype(values)>{global(ivars), nelems, global(status), cmp, values, site};
}

#define DEFINE_ONE(TYPE, NAME)                                                                                         \
  void triton_dist_wait_until_##NAME(TYPE *ivar, int32_t cmp, TYPE value, int32_t site) {                              \
    waitUntil(global(ivar), cmp, value, site);                                                                         \
  }                                                                                                                    \
  int32_t triton_dist_test_##NAME(TYPE *ivar, int32_t cmp, TYPE value) {                                               \
    return compares(loadRelaxed(global(ivar)), cmp, value);                                                            \
  }

#define DEFINE_MANY(TYPE, NAME, VECTOR, VALUE)                                                                         \
  void triton_dist_wait_until_all##VECTOR##_##NAME(TYPE *ivars, size_t nelems, const int32_t *status, int32_t cmp,     \
                                                   TYPE VALUE, int32_t site) {                                         \
    elements(ivars, nelems, status, cmp, value, site).waitAll();                                                       \
  }                                                                                                                    \
  size_t triton_dist_wait_until_any##VECTOR##_##NAME(TYPE *ivars, size_t nelems, const int32_t *status, int32_t cmp,   \
                                                     TYPE VALUE, int32_t site) {                                       \
    return elements(ivars, nelems, status, cmp, value, site).waitAny();                                                \
  }                                                                                                                    \
  size_t triton_dist_wait_until_some##VECTOR##_##NAME(TYPE *ivars, size_t nelems, size_t *indices,                     \
                                                      const int32_t *status, int32_t cmp, TYPE VALUE, int32_t site) {  \
    return elements(ivars, nelems, status, cmp, value, site).waitSome(global(indices));                                \
  }                                                                                                                    \
  int32_t triton_dist_test_all##VECTOR##_##NAME(TYPE *ivars, size_t nelems, const int32_t *status, int32_t cmp,        \
                                                TYPE VALUE) {                                                          \
    return elements(ivars, nelems, status, cmp, value).testAll();                                                      \
  }                                                                                                                    \
  size_t triton_dist_test_any##VECTOR##_##NAME(TYPE *ivars, size_t nelems, const int32_t *status, int32_t cmp,         \
                                               TYPE VALUE) {                                                           \
    return elements(ivars, nelems, status, cmp, value).testAny();                                                      \
  }                                                                                                                    \
  size_t triton_dist_test_some##VECTOR##_##NAME(TYPE *ivars, size_t nelems, size_t *indices, const int32_t *status,    \
                                                int32_t cmp, TYPE VALUE) {                                             \
    return elements(ivars, nelems, status, cmp, value).testSome(global(indices));                                      \
  }

extern "C" {
TRITON_DIST_FOR_WORDS(DEFINE_ONE)
TRITON_DIST_FOR_WORDS(DEFINE_MANY, , value)
TRITON_DIST_FOR_WORDS(DEFINE_MANY, _vector, *value)
} // extern "C"
