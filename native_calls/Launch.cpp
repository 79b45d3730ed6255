//===- Launch.cpp - A launch whose arguments are packed -------------------===//

#include "Launch.h"

#include <cstring>

using namespace triton_dist;

constexpr int Success = 0, InvalidValue = 1; // CUDA_ERROR_INVALID_VALUE
constexpr int DevicePointer = 3;             // CU_POINTER_ATTRIBUTE_DEVICE_POINTER

const char *Launch::mapOf(size_t patch, Address address, const Object &encode) {
  auto &maps = patches[patch].maps;
  if (auto known = maps.find(address); known != maps.end())
    return known->second.data();
  Object number = Object::taken(PyLong_FromSize_t(patch)), place = Object::taken(PyLong_FromUnsignedLongLong(address));
  if (!number || !place)
    return nullptr;
  Object made = Object::taken(PyObject_CallFunctionObjArgs(encode.get(), number.get(), place.get(), nullptr));
  char *bytes;
  Py_ssize_t size;
  if (!made || PyBytes_AsStringAndSize(made.get(), &bytes, &size) != 0)
    return nullptr;
  if (size_t(size) != MapBytes) {
    PyErr_SetString(PyExc_ValueError, "a descriptor has another size");
    return nullptr;
  }
  if (maps.size() >= MostMaps)
    maps.clear();
  std::memcpy(maps[address].data(), bytes, MapBytes);
  return maps[address].data();
}

bool Launch::encode(const Address *addresses, const Object &encode) {
  for (size_t i = 0; i < patches.size(); ++i)
    if (patches[i].isMap && !mapOf(i, addresses[patches[i].tensor], encode))
      return false;
  return true;
}

bool Launch::run(void *stream, const Address *addresses, const Object &encode) {
  if (config.grid[0] == 0 || config.grid[1] == 0 || config.grid[2] == 0)
    return true;
  // Other threads may launch the same: the bytes are this call's own. A CUtensorMap lies at a multiple of 64 or 128.
  alignas(128) char packed[MostBytes];
  void *parameters[MostParameters];
  std::memcpy(packed, bytes.data(), bytes.size());
  for (size_t i = 0; i < offsets.size(); ++i)
    parameters[i] = packed + offsets[i];
  for (size_t i = 0; i < patches.size(); ++i) {
    if (!patches[i].isMap)
      continue;
    // What was encoded before the call may have made room for descriptors of other calls meanwhile.
    const char *map = mapOf(i, addresses[patches[i].tensor], encode);
    if (!map)
      return false;
    std::memcpy(packed + patches[i].offset, map, MapBytes);
  }
  LaunchConfig used = config;
  used.stream = stream;
  used.attributes = attributes.data();
  int status = Success;
  bool isPointer = false;
  Py_BEGIN_ALLOW_THREADS;
  for (const Patch &patch : patches) {
    if (patch.isMap)
      continue;
    Address address = addresses[patch.tensor];
    if (address != 0)
      status = driver.pointerAttribute(&address, DevicePointer, address);
    if ((isPointer = status != Success))
      break;
    std::memcpy(packed + patch.offset, &address, sizeof address);
  }
  if (status == Success)
    status = driver.launch(&used, function, parameters, nullptr);
  Py_END_ALLOW_THREADS;
  if (status == Success)
    return true;
  // In the words of Triton's launcher.
  if (isPointer && status == InvalidValue) {
    PyErr_SetString(PyExc_ValueError, "Pointer argument cannot be accessed from Triton (cpu tensor?)");
    return false;
  }
  const char *text = nullptr;
  driver.errorText(status, &text);
  PyErr_Format(PyExc_RuntimeError, "Triton Error [CUDA]: %s", text ? text : "an unknown error");
  return false;
}
