//===- Table.cpp - Calls that are repeated --------------------------------===//

#include "Table.h"

#include <algorithm>

using namespace triton_dist;

namespace {

/// The names of attributes of Python's objects.
struct Names {
  Object made = interned("_made"), depth = interned("_depth"), handle = interned("_handle");
  Object changes = interned("changes"), ownChanges = interned("_changes"), launched = interned("launched");
  Object file = interned("co_filename"), back = interned("f_back"), instruction = interned("f_lasti");

  static Object interned(const char *text) { return Object::taken(PyUnicode_InternFromString(text)); }
};

/// Holds a communicator's lock, if there is one and no other thread is in a call.
class Held {
public:
  explicit Held(const Owner &owner) : release(owner.release) {
    Object acquired = owner.communicator
                          ? Object::taken(PyObject_CallFunctionObjArgs(owner.acquire.get(), Py_False, nullptr))
                          : Object::of(Py_True);
    holds = acquired.get() == Py_True;
  }
  Held(const Held &) = delete;
  ~Held() {
    if (!holds || !release)
      return;
    SetAside error;
    if (!Object::taken(PyObject_CallNoArgs(release.get())))
      PyErr_WriteUnraisable(release.get());
  }

  bool holds;

private:
  const Object &release;
};

} // namespace

static const Names &names() {
  static const Names *const found = new Names; // never destroyed: Python may have ended by then
  return *found;
}

static Object attribute(const Object &object, const Object &name) {
  return Object::taken(PyObject_GetAttr(object.get(), name.get()));
}

/// An attribute that is a small number; -1 with an exception set, as numbers that are counted never are.
static long numberOf(const Object &object, const Object &name) {
  Object found = attribute(object, name);
  return found ? PyLong_AsLong(found.get()) : -1;
}

/// Whether what is known of addresses holds: nothing was allocated or freed since.
static bool addressesAreKnown(const Owner &owner) {
  long changes = 0;
  for (const Object &allocation : owner.allocations) {
    long found = numberOf(allocation, names().changes);
    if (found < 0)
      return false;
    changes += found;
  }
  return changes == numberOf(owner.plans, names().ownChanges);
}

/// Whether one of a key's tensors is symmetric. Null with an exception set.
static Object isSymmetric(const Owner &owner, const Key &key, size_t tensor) {
  Object address = Object::taken(PyLong_FromUnsignedLongLong(key.addresses[tensor]));
  PyObject *known = address ? PyDict_GetItemWithError(owner.symmetric.get(), address.get()) : nullptr;
  if (known || PyErr_Occurred())
    return Object::of(known);
  return Object::taken(PyObject_CallFunctionObjArgs(owner.isSymmetric.get(), key.tensorObjects[tensor], nullptr));
}

/// Whether the tensors are symmetric where the entry's are, and lie where they must.
static bool liesAlike(const Entry &entry, const Key &key) {
  for (size_t i = 0; i < key.tensors; ++i) {
    if (entry.fixed[i] && key.addresses[i] != entry.key.addresses[i])
      return false;
    if (!entry.owner->communicator || !entry.decides[i])
      continue;
    if (isSymmetric(*entry.owner, key, i).get() != (entry.symmetric[i] ? Py_True : Py_False))
      return false;
  }
  return true;
}

PyObject *Table::call(PyObject *name, PyObject *args, PyObject *kwargs) {
  knew = false;
  if (count == 0)
    Py_RETURN_NONE;
  Key key;
  if (!key.read(torch, name, args, kwargs, groupName.get()))
    Py_RETURN_NONE;
  // What follows may call Python, which may change the table: so each entry is looked up, and kept alive.
  for (size_t i = 0;; ++i) {
    auto found = entries.find(key.hash());
    if (found == entries.end() || i >= found->second.size())
      Py_RETURN_NONE;
    Shared<Entry> entry = found->second[i];
    if (!(entry->key == key))
      continue;
    Held held(*entry->owner);
    if (!held.holds) { // another thread is in a call, which is an error that the ordinary call finds
      PyErr_Clear();
      knew = true;
      Py_RETURN_NONE;
    }
    if ((entry->owner->communicator && !addressesAreKnown(*entry->owner)) || !liesAlike(*entry, key) ||
        !hold(entry->owner->guards) || !hold(entry->guards)) {
      PyErr_Clear();
      continue;
    }
    PyObject *result = make(*entry, key);
    knew = result == Py_None;
    return result;
  }
}

/// Makes the entry's new tensors. False, perhaps with an exception set: one is not as it must be.
bool Table::makeNew(const Entry &entry, Object *made, Address *addresses) const {
  for (size_t i = 0; i < entry.makers.size(); ++i) {
    dlpack::Tensor read;
    made[i] = Object::taken(PyObject_CallNoArgs(entry.makers[i].get()));
    if (!made[i] || !torch.isTensor(made[i].get()) || !torch.read(made[i].get(), read))
      return false;
    addresses[i] = addressOf(read);
    if (addresses[i] % 16 != 0) // launches are compiled for such
      return false;
  }
  return true;
}

/// What a call returns. Null with an exception set.
Object Table::resultOf(const Entry &entry, const Key &key, const Object *made, const Given &given) {
  if (entry.result != Entry::New)
    return Object::of(key.tensorObjects[entry.result]);
  if (!entry.returned)
    return made[entry.results[0]];
  Object parts = Object::taken(PyTuple_New(entry.results.size()));
  for (size_t i = 0; parts && i < entry.results.size(); ++i) {
    size_t which = entry.results[i];
    PyObject *part = which == Entry::None  ? Py_None
                     : which >= Entry::New ? given.tensors[which - Entry::New]
                                           : made[which].get();
    if (PyTuple_SetItem(parts.get(), i, Py_NewRef(part)) != 0)
      return {};
  }
  return parts ? Object::taken(PyObject_CallFunctionObjArgs(entry.returned.get(), parts.get(), nullptr)) : Object();
}

/// Does what the entry says, with this key's tensors, within the communicator's lock; None if the communicator is not
/// ready for that.
PyObject *Table::make(const Entry &entry, const Key &key) {
  Object made[Launch::MostTensors]; // which live as long as the call uses them
  Address addresses[Launch::MostTensors];
  bool ready = makeNew(entry, made, addresses);
  Given given;
  given.count = entry.sources.size();
  for (size_t i = 0; ready && i < given.count; ++i) {
    size_t source = entry.sources[i];
    if (source == Entry::None)
      continue;
    bool isNew = source >= Entry::New;
    given.tensors[i] = isNew ? made[source - Entry::New].get() : key.tensorObjects[source];
    given.addresses[i] = isNew ? addresses[source - Entry::New] : key.addresses[source];
  }
  Object result = ready ? resultOf(entry, key, made, given) : Object();
  ready = result && std::all_of(entry.actions.begin(), entry.actions.end(),
                                [&](const Action &action) { return action.prepare(given); });
  Object stream = ready ? Object::taken(PyObject_CallNoArgs(entry.owner->currentStream.get())) : Object();
  ready = stream && isReady(entry, stream);
  unsigned long long handle = ready ? PyLong_AsUnsignedLongLong(stream.get()) : 0;
  if (!ready || PyErr_Occurred()) {
    PyErr_Clear();
    Py_RETURN_NONE;
  }
  // From here on the call is made: an error is the call's.
  return run(entry, reinterpret_cast<Stream>(handle), given) ? result.release() : nullptr;
}

/// Whether the communicator is in no call, its last one was on this stream, and the members have compared such calls
/// before. False, perhaps with an exception set.
bool Table::isReady(const Entry &entry, const Object &stream) {
  const Owner &owner = *entry.owner;
  if (!owner.communicator)
    return true;
  Object handle = attribute(owner.communicator, names().handle);
  if (!handle || numberOf(owner.communicator, names().depth) != 0 ||
      PyObject_RichCompareBool(stream.get(), handle.get(), Py_EQ) != 1)
    return false;
  return !owner.compares || std::all_of(entry.actions.begin(), entry.actions.end(), [&](const Action &action) {
    return action.does != Action::Does::Compare || PyDict_GetItemWithError(owner.equal.get(), action.object.get());
  });
}

/// Counts a call, and notes it as the last one. False with an exception set.
bool Table::compare(const Owner &owner, const Object &call) {
  long calls = numberOf(owner.communicator, names().made);
  Object next = calls < 0 ? Object() : Object::taken(PyLong_FromLong(++calls));
  if (!next || PyObject_SetAttr(owner.communicator.get(), names().made.get(), next.get()) != 0)
    return false;
  return !owner.compares ||
         PyList_SetItem(owner.last.get(), calls % PyList_Size(owner.last.get()), Py_NewRef(call.get())) == 0;
}

/// What is left after an error is not done, but the streams are joined. Calls that a function of Python makes are made
/// as if by the user: the communicator's depth is that of no call, and this thread has its lock.
bool Table::run(const Entry &entry, Stream stream, const Given &given) {
  Streams streams(entry.streams, stream);
  Object place;
  for (const Action &action : entry.actions) {
    if (action.waiting) {
      if (!place && !(place = userPlace()))
        return false;
      if (PyObject_SetAttr(action.waiting.get(), names().launched.get(), place.get()) != 0)
        return false;
    }
    if (action.does == Action::Does::Compare ? !compare(*entry.owner, action.object) : !action.run(streams, given))
      return false;
  }
  return true;
}

/// The innermost line of Python that is the user's, by its code and instruction. Null with an exception set.
Object Table::userPlace() {
  Object frame = Object::of(reinterpret_cast<PyObject *>(PyEval_GetFrame()));
  while (frame) {
    Object code =
        Object::taken(reinterpret_cast<PyObject *>(PyFrame_GetCode(reinterpret_cast<PyFrameObject *>(frame.get()))));
    Object file = attribute(code, names().file);
    if (!file)
      return {};
    PyObject *inside = PyDict_GetItemWithError(files.get(), file.get());
    if (!inside) {
      Object said = Object::taken(PyObject_CallFunctionObjArgs(isInside.get(), file.get(), nullptr));
      if (!said || PyDict_SetItem(files.get(), file.get(), said.get()) != 0)
        return {};
      inside = said.get() == Py_True ? Py_True : Py_False;
    }
    Object back = inside == Py_True ? attribute(frame, names().back) : Object();
    if (back && back.get() != Py_None) {
      frame = back;
      continue;
    }
    Object instruction = attribute(frame, names().instruction);
    return instruction ? Object::taken(PyTuple_Pack(2, code.get(), instruction.get())) : Object();
  }
  PyErr_SetString(PyExc_RuntimeError, "a call has no line of Python");
  return {};
}

/// Whether calls of `one` are such as those of `other`.
static bool areAlike(const Entry &one, const Entry &other) {
  if (one.owner != other.owner || one.decides != other.decides || one.symmetric != other.symmetric ||
      one.fixed != other.fixed || !(one.key == other.key))
    return false;
  for (size_t i = 0; i < one.key.tensors; ++i)
    if (one.fixed[i] && one.key.addresses[i] != other.key.addresses[i])
      return false;
  return true;
}

Shared<Entry> Table::find(const Entry &like) const {
  auto found = entries.find(like.key.hash());
  if (found != entries.end())
    for (const auto &entry : found->second)
      if (areAlike(*entry, like))
        return entry;
  return {};
}

void Table::learn(Shared<Entry> entry) {
  std::vector<Shared<Entry>> replaced; // destroyed last: that may call Python
  auto &known = entries[entry->key.hash()];
  auto old = std::find_if(known.begin(), known.end(), [&](const auto &other) { return areAlike(*other, *entry); });
  if (old != known.end()) {
    std::swap(*old, entry);
    return;
  }
  if (count >= most) {
    for (auto &[hash, alike] : entries)
      replaced.insert(replaced.end(), alike.begin(), alike.end());
    entries.clear();
    count = 0;
  }
  size_t hash = entry->key.hash();
  entries[hash].push_back(std::move(entry));
  ++count;
}

void Table::forget(const Owner *owner) {
  std::vector<Shared<Entry>> gone;
  for (auto place = entries.begin(); place != entries.end();) {
    auto &alike = place->second;
    auto kept = std::stable_partition(alike.begin(), alike.end(),
                                      [&](const auto &entry) { return entry->owner.get() != owner; });
    gone.insert(gone.end(), kept, alike.end());
    alike.erase(kept, alike.end());
    place = alike.empty() ? entries.erase(place) : std::next(place);
  }
  count -= gone.size();
}

void Table::clear() {
  decltype(entries) gone;
  gone.swap(entries);
  count = 0;
}
