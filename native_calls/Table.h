//===- Table.h - Calls that are repeated ------------------------*- C++ -*-===//
//
// By its key, what a call does, and what must hold for that.
//
//===----------------------------------------------------------------------===//

#ifndef TRITON_DIST_NATIVE_CALLS_TABLE_H
#define TRITON_DIST_NATIVE_CALLS_TABLE_H

#include "Action.h"
#include "Guard.h"
#include "Key.h"
#include "Shared.h"
#include "Streams.h"

#include <map>

namespace triton_dist {

/// Whose calls they are: a communicator of Python, whose calls run one after the other and are compared with those of
/// the other members; or none, as those of local operations. The state stays in Python's objects, where the
/// ordinary calls have it.
struct Owner : Counted {
  Object currentStream;
  Guards guards;
  Object communicator;     // null: the operation is local, and what follows is empty
  Object acquire, release; // of the lock that a call holds, without a wait
  bool compares;           // whether there are other members
  Object equal;            // a dict: calls that need no comparison
  Object last;             // a list of the last calls
  Object symmetric;        // a dict: whether what lies at an address is symmetric
  Object isSymmetric;      // a function that finds that out of a tensor, and notes it there
  Object plans;            // has the number of changes for which that dict holds
  Object allocations[2];   // each counts its changes
};

/// What a call with a key does.
struct Entry : Counted {
  Key key;
  std::vector<Object> objects; // what the key points to
  Shared<Owner> owner;
  Object plan; // what the actions were read from, which keeps alive what they use
  Actions actions;
  StreamFunctions streams;
  std::vector<size_t> sources; // of each tensor that is given, the key's, or New and which new one, or None
  std::vector<bool> decides;   // whether the plan takes each of the key's tensors, or it lies where it lay
  std::vector<bool> symmetric; // whether each of these is
  std::vector<bool> fixed;     // whether each of the key's tensors lies where it lay
  size_t result;               // the key's tensor that is returned, or New: what is made of new ones
  std::vector<Object> makers;  // each is called for a new tensor
  std::vector<size_t> results; // what is returned: new tensors; New and which given one; or None for Python's None
  Object returned;             // makes the result of a tuple of these; null: it is the one
  Guards guards;

  static constexpr size_t New = Launch::MostTensors, None = 2 * Launch::MostTensors;
};

class Table {
public:
  Torch torch;
  Object isInside; // whether a file is of this package, whose lines are not the user's
  Object files;    // a dict of what that said
  size_t most;     // entries
  Object groupName;
  bool knew = false; // whether the last call was known, and left to Python for a reason of the moment

  /// The result of a call; None if it must be made in the ordinary way; null with an exception set.
  PyObject *call(PyObject *name, PyObject *args, PyObject *kwargs);
  /// The entry of a key that lies alike, by this owner; null if there is none.
  Shared<Entry> find(const Entry &like) const;
  void learn(Shared<Entry> entry);
  void forget(const Owner *owner);
  void clear();
  size_t size() const { return count; }

private:
  PyObject *make(const Entry &entry, const Key &key);
  bool run(const Entry &entry, Stream stream, const Given &given);
  static bool isReady(const Entry &entry, const Object &stream);
  static bool compare(const Owner &owner, const Object &call);
  bool makeNew(const Entry &entry, Object *made, Address *addresses) const;
  static Object resultOf(const Entry &entry, const Key &key, const Object *made, const Given &given);
  Object userPlace();

  std::map<size_t, std::vector<Shared<Entry>>> entries; // by the keys' hashes
  size_t count = 0;
};

} // namespace triton_dist

#endif // TRITON_DIST_NATIVE_CALLS_TABLE_H
