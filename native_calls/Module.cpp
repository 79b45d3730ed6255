//===- Module.cpp - triton_dist._C.native_calls ---------------------------===//
//
// Registers Launch, Owner and Table; triton_dist/native_calls.py documents
// them.
//
//===----------------------------------------------------------------------===//

#include "Table.h"

#include <algorithm>
#include <cstring>
#include <memory>

using namespace triton_dist;

namespace {

/// An object of Python that owns a T.
template <typename T> struct Wrapper {
  PyObject_HEAD T *value;

  static inline PyObject *type = nullptr;

  static T *of(PyObject *object) { return reinterpret_cast<Wrapper *>(object)->value; }

  static PyObject *made(PyTypeObject *type, std::unique_ptr<T> value) {
    auto allocate = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
    PyObject *object = allocate(type, 0);
    if (object)
      reinterpret_cast<Wrapper *>(object)->value = value.release();
    return object;
  }

  static void dealloc(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    delete of(object);
    reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
  }
};

using OwnerPointer = Shared<Owner>;
using LaunchObject = Wrapper<Launch>;
using OwnerObject = Wrapper<OwnerPointer>;
using TableObject = Wrapper<Table>;

/// The value that is none: an absent object.
Object given(PyObject *object) { return object == Py_None ? Object() : Object::of(object); }

/// Numbers of a tuple. False with an exception set.
template <typename Number> bool numbers(PyObject *tuple, std::vector<Number> &into) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); ++i) {
    into.push_back(static_cast<Number>(PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i))));
    if (PyErr_Occurred())
      return false;
  }
  return true;
}

PyObject *refuse(const char *what) {
  PyErr_SetString(PyExc_ValueError, what);
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Launch
//===----------------------------------------------------------------------===//

PyObject *newLaunch(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *functions, *attributes, *offsets, *patches;
  unsigned long long function;
  unsigned int x, y, z, threads, shared;
  const char *bytes;
  Py_ssize_t size;
  if (!PyArg_ParseTuple(args, "O!K(III)IIO!y#O!O!", &PyTuple_Type, &functions, &function, &x, &y, &z, &threads, &shared,
                        &PyTuple_Type, &attributes, &bytes, &size, &PyTuple_Type, &offsets, &PyTuple_Type, &patches))
    return nullptr;
  auto launch = std::make_unique<Launch>();
  std::vector<uint64_t> found;
  if (!numbers(functions, found) || !numbers(offsets, launch->offsets))
    return nullptr;
  if (found.size() * sizeof(uint64_t) != sizeof(Driver))
    return refuse("the driver has other functions");
  std::memcpy(&launch->driver, found.data(), sizeof(Driver));
  launch->function = reinterpret_cast<void *>(function);
  for (Py_ssize_t i = 0; i < PyTuple_Size(attributes); ++i) {
    LaunchAttribute attribute{};
    if (!PyArg_ParseTuple(PyTuple_GetItem(attributes, i), "i(III)", &attribute.id, &attribute.value[0],
                          &attribute.value[1], &attribute.value[2]))
      return nullptr;
    launch->attributes.push_back(attribute);
  }
  launch->config = {{x, y, z}, {threads, 1, 1}, shared, nullptr, nullptr, uint32_t(launch->attributes.size())};
  launch->bytes.assign(bytes, bytes + size);
  if (launch->bytes.size() > Launch::MostBytes || launch->offsets.size() > Launch::MostParameters)
    return refuse("the kernel has too many arguments");
  for (uint32_t offset : launch->offsets)
    if (offset >= launch->bytes.size())
      return refuse("an argument lies behind all arguments");
  launch->tensors = 0;
  for (Py_ssize_t i = 0; i < PyTuple_Size(patches); ++i) {
    Launch::Patch patch{};
    int isMap;
    if (!PyArg_ParseTuple(PyTuple_GetItem(patches, i), "nnp", &patch.offset, &patch.tensor, &isMap))
      return nullptr;
    patch.isMap = isMap != 0;
    size_t width = patch.isMap ? Launch::MapBytes : sizeof(Address);
    if (patch.tensor >= Launch::MostTensors || patch.offset + width > launch->bytes.size())
      return refuse("a tensor's argument lies behind all arguments, or there are too many tensors");
    launch->tensors = std::max(launch->tensors, patch.tensor + 1);
    launch->patches.push_back(std::move(patch));
  }
  return LaunchObject::made(type, std::move(launch));
}

//===----------------------------------------------------------------------===//
// Owner
//===----------------------------------------------------------------------===//

/// Owner(current_stream, guards, shared); shared: None, or a tuple of what a communicator's calls need
PyObject *newOwner(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *currentStream, *guards, *shared;
  if (!PyArg_ParseTuple(args, "OOO", &currentStream, &guards, &shared))
    return nullptr;
  OwnerPointer owner(new Owner);
  owner->currentStream = Object::of(currentStream);
  if (!parseGuards(guards, owner->guards))
    return nullptr;
  if (shared != Py_None) {
    PyObject *communicator, *acquire, *release, *equal, *last, *symmetric, *isSymmetric, *plans, *first, *second;
    int compares;
    if (!PyArg_ParseTuple(shared, "OOOpO!O!O!OO(OO)", &communicator, &acquire, &release, &compares, &PyDict_Type,
                          &equal, &PyList_Type, &last, &PyDict_Type, &symmetric, &isSymmetric, &plans, &first, &second))
      return nullptr;
    if (PyList_Size(last) == 0)
      return refuse("last has no places");
    owner->communicator = Object::of(communicator);
    owner->acquire = Object::of(acquire);
    owner->release = Object::of(release);
    owner->compares = compares != 0;
    owner->equal = Object::of(equal);
    owner->last = Object::of(last);
    owner->symmetric = Object::of(symmetric);
    owner->isSymmetric = Object::of(isSymmetric);
    owner->plans = Object::of(plans);
    owner->allocations[0] = Object::of(first);
    owner->allocations[1] = Object::of(second);
  }
  return OwnerObject::made(type, std::make_unique<OwnerPointer>(std::move(owner)));
}

//===----------------------------------------------------------------------===//
// Table
//===----------------------------------------------------------------------===//

PyObject *newTable(PyTypeObject *type, PyObject *args, PyObject *) {
  PyObject *capsule, *tensorTypes, *dtypeType, *isGradEnabled, *isConj, *isNeg, *isInside;
  Py_ssize_t most;
  if (!PyArg_ParseTuple(args, "OO!OOOOOn", &capsule, &PyTuple_Type, &tensorTypes, &dtypeType, &isGradEnabled, &isConj,
                        &isNeg, &isInside, &most))
    return nullptr;
  auto *exchange = static_cast<const dlpack::ExchangeTable *>(PyCapsule_GetPointer(capsule, dlpack::CapsuleName));
  if (!exchange)
    return nullptr;
  while (exchange && exchange->major > dlpack::Major)
    exchange = exchange->previous;
  if (!exchange || exchange->major != dlpack::Major || !exchange->read)
    return refuse("PyTorch's table of DLPack is of another version, or reads no tensors");
  auto table = std::make_unique<Table>();
  for (Py_ssize_t i = 0; i < PyTuple_Size(tensorTypes); ++i)
    table->torch.tensorTypes.push_back(Object::of(PyTuple_GetItem(tensorTypes, i)));
  table->torch.exchange = exchange;
  table->torch.dtypeType = Object::of(dtypeType);
  table->torch.isGradEnabled = Object::of(isGradEnabled);
  table->torch.isConj = Object::of(isConj);
  table->torch.isNeg = Object::of(isNeg);
  table->isInside = Object::of(isInside);
  table->files = Object::taken(PyDict_New());
  table->groupName = Object::taken(PyUnicode_InternFromString("group"));
  table->most = most;
  if (!table->files || !table->groupName)
    return nullptr;
  return TableObject::made(type, std::move(table));
}

/// call(name, args, kwargs)
PyObject *tableCall(PyObject *self, PyObject *const *args, Py_ssize_t n) {
  if (n != 3 || !PyTuple_Check(args[1]) || !PyDict_Check(args[2])) {
    PyErr_SetString(PyExc_TypeError, "call takes a name, a tuple and a dict");
    return nullptr;
  }
  return TableObject::of(self)->call(args[0], args[1], args[2]);
}

/// What an entry returns, of a tuple of numbers of new tensors, of None, and of numbers of given tensors in tuples.
/// False with an exception set.
bool parseResults(PyObject *tuple, Entry &entry) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(tuple); ++i) {
    PyObject *item = PyTuple_GetItem(tuple, i);
    Py_ssize_t number = 0;
    bool isGiven = PyTuple_Check(item);
    if (item == Py_None) {
      entry.results.push_back(Entry::None);
      continue;
    }
    if (isGiven ? !PyArg_ParseTuple(item, "n", &number)
                : (number = PyLong_AsSsize_t(item), PyErr_Occurred() != nullptr))
      return false;
    if (number < 0 || size_t(number) >= (isGiven ? Launch::MostTensors : entry.makers.size()))
      return refuse("there are not so many new tensors") != nullptr;
    entry.results.push_back(isGiven ? Entry::New + number : number);
  }
  return true;
}

/// Fills what an entry makes, of a tuple (makers, results, returned). False with an exception set.
bool parseNew(PyObject *tuple, Entry &entry) {
  PyObject *makers, *results, *returned;
  if (!PyArg_ParseTuple(tuple, "O!O!O", &PyTuple_Type, &makers, &PyTuple_Type, &results, &returned))
    return false;
  for (Py_ssize_t i = 0; i < PyTuple_Size(makers); ++i)
    entry.makers.push_back(Object::of(PyTuple_GetItem(makers, i)));
  if (entry.makers.size() > Launch::MostTensors)
    return refuse("there are too many new tensors") != nullptr;
  if (!parseResults(results, entry))
    return false;
  entry.returned = given(returned);
  if (!entry.returned && (entry.results.size() != 1 || entry.results[0] >= Entry::New))
    return refuse("a result without a function that makes it is one tensor") != nullptr;
  entry.result = Entry::New;
  return true;
}

/// Fills what is known of an entry's tensors. False, perhaps with an exception set: the call cannot be learnt.
bool placeTensors(Entry &entry, PyObject *tensors, PyObject *fixed) {
  const Key &key = entry.key;
  std::vector<bool> decides(key.tensors, false); // whether the plan takes it, or it lies where it lay
  entry.fixed.assign(key.tensors, false);
  for (Py_ssize_t i = 0; i < PyTuple_Size(fixed); ++i) {
    int found = key.tensorOf(PyTuple_GetItem(fixed, i));
    if (found < 0)
      return false;
    entry.fixed[found] = decides[found] = true;
  }
  std::vector<bool> there; // of the tensors that are given
  for (Py_ssize_t i = 0; i < PyTuple_Size(tensors); ++i) {
    PyObject *tensor = PyTuple_GetItem(tensors, i);
    int found = key.tensorOf(tensor);
    there.push_back(tensor != Py_None);
    if (found >= 0) {
      decides[found] = true;
      entry.sources.push_back(found);
    } else if (tensor == Py_None) {
      entry.sources.push_back(Entry::None);
    } else if (PyLong_Check(tensor)) {
      size_t which = PyLong_AsSize_t(tensor);
      if (which >= entry.makers.size())
        return false;
      entry.sources.push_back(Entry::New + which);
    } else {
      return false;
    }
  }
  if (there.size() > Launch::MostTensors || !std::all_of(entry.actions.begin(), entry.actions.end(),
                                                         [&](const Action &action) { return action.fits(there); }))
    return false;
  for (size_t result : entry.results)
    if (result >= Entry::New && result != Entry::None &&
        (result - Entry::New >= there.size() || !there[result - Entry::New]))
      return false;
  entry.decides = decides;
  for (size_t i = 0; i < key.tensors; ++i) {
    if (!decides[i] && !key.isItem[i]) // the plan knows nothing of this tensor
      return false;
    entry.symmetric.push_back(false);
    if (!entry.owner->communicator || !decides[i])
      continue;
    Object address = Object::taken(PyLong_FromUnsignedLongLong(key.addresses[i]));
    PyObject *symmetric = address ? PyDict_GetItemWithError(entry.owner->symmetric.get(), address.get()) : nullptr;
    if (symmetric != Py_True && symmetric != Py_False)
      return false;
    entry.symmetric.back() = symmetric == Py_True;
  }
  return true;
}

/// Of a tuple (put, order, the driver's functions, failed, side stream, event), or None. False with an exception set.
bool parseStreams(PyObject *tuple, StreamFunctions &into) {
  if (tuple == Py_None)
    return true;
  unsigned long long put, order, cuda, side, event;
  PyObject *failed;
  if (!PyArg_ParseTuple(tuple, "KKKOKK", &put, &order, &cuda, &failed, &side, &event))
    return false;
  into.put = reinterpret_cast<decltype(into.put)>(put);
  into.order = reinterpret_cast<decltype(into.order)>(order);
  into.cuda = reinterpret_cast<const void *>(cuda);
  into.failed = Object::of(failed);
  into.side = reinterpret_cast<Stream>(side);
  into.event = reinterpret_cast<void *>(event);
  return true;
}

Launch *launchOf(PyObject *object) {
  if (reinterpret_cast<PyObject *>(Py_TYPE(object)) == LaunchObject::type)
    return LaunchObject::of(object);
  PyErr_SetString(PyExc_TypeError, "an action launches what is no Launch");
  return nullptr;
}

/// Fills what an entry does, of a tuple (actions, streams, memory), which keeps alive what they use. False with an
/// exception set.
bool parsePlan(PyObject *plan, Entry &entry) {
  PyObject *actions, *streams, *memory;
  if (!PyArg_ParseTuple(plan, "O!OO", &PyTuple_Type, &actions, &streams, &memory) ||
      !parseStreams(streams, entry.streams) || !parseActions(actions, launchOf, entry.actions))
    return false;
  for (const Action &action : entry.actions) {
    bool isOfStreams = action.onSide || action.does == Action::Does::Put || action.does == Action::Does::Fork ||
                       action.does == Action::Does::Join;
    if (isOfStreams && !entry.streams.order)
      return refuse("actions use streams of which nothing is known") != nullptr;
    if (action.does == Action::Does::Compare && !entry.owner->communicator)
      return refuse("a local operation is compared with none") != nullptr;
  }
  entry.plan = Object::of(plan);
  return true;
}

/// learn(name, args, kwargs, owner, plan, tensors, result, fixed, new, guards)
///
/// plan: as parsePlan has it, the same object for the same plan. tensors: that the plan is given: of the call, or the
/// number of a new one, or None. result: a tensor of the call, if nothing is new.
PyObject *tableLearn(PyObject *self, PyObject *arguments) {
  PyObject *name, *args, *kwargs, *owner, *plan, *tensors, *result, *fixed, *makeNew, *guards;
  if (!PyArg_ParseTuple(arguments, "OO!O!OO!O!OO!OO", &name, &PyTuple_Type, &args, &PyDict_Type, &kwargs, &owner,
                        &PyTuple_Type, &plan, &PyTuple_Type, &tensors, &result, &PyTuple_Type, &fixed, &makeNew,
                        &guards))
    return nullptr;
  if (reinterpret_cast<PyObject *>(Py_TYPE(owner)) != OwnerObject::type) {
    PyErr_SetString(PyExc_TypeError, "learn takes an Owner");
    return nullptr;
  }
  Table &table = *TableObject::of(self);
  Shared<Entry> entry(new Entry);
  if (!entry->key.read(table.torch, name, args, kwargs, table.groupName.get()))
    Py_RETURN_FALSE;
  entry->owner = *OwnerObject::of(owner);
  if (!parsePlan(plan, *entry))
    return nullptr;
  if (makeNew != Py_None) {
    if (!parseNew(makeNew, *entry))
      return nullptr;
  } else {
    int found = entry->key.tensorOf(result);
    if (found < 0)
      Py_RETURN_FALSE;
    entry->result = found;
  }
  if (!placeTensors(*entry, tensors, fixed)) {
    if (PyErr_Occurred())
      return nullptr;
    Py_RETURN_FALSE;
  }
  // The call went through Python for another reason, as another stream.
  if (Shared<Entry> known = table.find(*entry); known && known->plan.get() == entry->plan.get() && hold(known->guards))
    Py_RETURN_TRUE;
  entry->objects = entry->key.objects();
  if (!parseGuards(guards, entry->guards))
    return nullptr;
  table.learn(std::move(entry));
  Py_RETURN_TRUE;
}

PyObject *tableKnew(PyObject *self, PyObject *) { return PyBool_FromLong(TableObject::of(self)->knew); }

PyObject *tableForget(PyObject *self, PyObject *owner) {
  if (reinterpret_cast<PyObject *>(Py_TYPE(owner)) != OwnerObject::type) {
    PyErr_SetString(PyExc_TypeError, "forget takes an Owner");
    return nullptr;
  }
  TableObject::of(self)->forget(OwnerObject::of(owner)->get());
  Py_RETURN_NONE;
}

Py_ssize_t tableLength(PyObject *self) { return TableObject::of(self)->size(); }

PyMethodDef tableMethods[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(tableCall)), METH_FASTCALL, nullptr},
    {"learn", tableLearn, METH_VARARGS, nullptr},
    {"knew", tableKnew, METH_NOARGS, nullptr},
    {"forget", tableForget, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr}};

//===----------------------------------------------------------------------===//

template <typename T>
bool addType(PyObject *module, const char *name, newfunc make, PyMethodDef *methods, lenfunc length = nullptr) {
  std::vector<PyType_Slot> slots = {{Py_tp_new, reinterpret_cast<void *>(make)},
                                    {Py_tp_dealloc, reinterpret_cast<void *>(&T::dealloc)}};
  if (methods)
    slots.push_back({Py_tp_methods, methods});
  if (length)
    slots.push_back({Py_sq_length, reinterpret_cast<void *>(length)});
  slots.push_back({0, nullptr});
  PyType_Spec spec{name, sizeof(T), 0, Py_TPFLAGS_DEFAULT, slots.data()};
  T::type = PyType_FromSpec(&spec);
  return T::type && PyModule_AddObjectRef(module, std::strrchr(name, '.') + 1, T::type) == 0;
}

PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "native_calls", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit_native_calls() {
  Object module = Object::taken(PyModule_Create(&definition));
  if (!module || !addType<LaunchObject>(module.get(), "triton_dist._C.native_calls.Launch", newLaunch, nullptr) ||
      !addType<OwnerObject>(module.get(), "triton_dist._C.native_calls.Owner", newOwner, nullptr) ||
      !addType<TableObject>(module.get(), "triton_dist._C.native_calls.Table", newTable, tableMethods, tableLength))
    return nullptr;
  return module.release();
}
