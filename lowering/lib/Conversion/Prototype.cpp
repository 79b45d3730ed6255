//===- Prototype.cpp - A C++ function as its header declares it -------------===//

#include "Prototype.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace triton_dist::shmem;

std::optional<CType> CType::parse(StringRef name) {
  auto integer = [](unsigned bits, bool isSigned, StringRef mangled, std::optional<ElementType> element) {
    return CType{Kind::Integer, bits, isSigned, mangled, element};
  };
  auto real = [](unsigned bits, StringRef mangled, ElementType element) {
    return CType{Kind::Float, bits, true, mangled, element};
  };
  return llvm::StringSwitch<std::optional<CType>>(name)
      .Case("void", CType{Kind::Void, 0, false, "v", std::nullopt})
      .Case("char", integer(8, true, "c", std::nullopt))
      .Case("schar", integer(8, true, "a", ElementType::I8))
      .Case("uchar", integer(8, false, "h", ElementType::U8))
      .Case("short", integer(16, true, "s", ElementType::I16))
      .Case("ushort", integer(16, false, "t", ElementType::U16))
      .Cases({"int", "int32"}, integer(32, true, "i", ElementType::I32))
      .Cases({"uint", "uint32"}, integer(32, false, "j", ElementType::U32))
      .Cases({"long", "int64"}, integer(64, true, "l", ElementType::I64))
      .Cases({"ulong", "uint64", "uint64_t", "size_t"}, integer(64, false, "m", ElementType::U64))
      .Case("float", real(32, "f", ElementType::F32))
      .Case("double", real(64, "d", ElementType::F64))
      .Case("rocshmem_ctx_t", CType{Kind::Context, 0, false, "N8rocshmem12rocshmem_ctxE", std::nullopt})
      .Case("rocshmem_team_t", CType{Kind::Team, 0, false, "Pm", std::nullopt}) // a uint64_t *
      .Default(std::nullopt);
}

/// "const char *" and the like.
static CType parseType(StringRef text) {
  text = text.trim();
  bool isConst = text.consume_front("const ");
  bool isPointer = text.consume_back("*");
  std::optional<CType> type = CType::parse(text.trim());
  assert(type && "a type that ROCSHMEM's declarations do not use");
  type->isConst = isConst;
  type->isPointer = isPointer;
  return *type;
}

Prototype Prototype::parse(StringRef declaration) {
  auto [head, tail] = declaration.split('(');
  size_t nameAt = head.find_last_of(" *") + 1;
  Prototype prototype{head.substr(nameAt).str(), parseType(head.take_front(nameAt)), {}};
  SmallVector<StringRef> parameters;
  tail.split(')').first.split(parameters, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef parameter : parameters)
    prototype.parameters.push_back(parseType(parameter));
  return prototype;
}

namespace {

/// The ABI writes what it has already spelled as a number: S_, S0_, S1_…
class Mangler {
public:
  void add(const CType &type) {
    if (!type.isPointer)
      return type.kind == CType::Kind::Team ? pointer("m", /*isConst=*/false) : plain(type);
    pointer(type.mangled, type.isConst);
  }

  std::string text;

private:
  void plain(const CType &type) {
    if (type.kind != CType::Kind::Context)
      text += type.mangled;
    else if (!reuse(type.mangled)) {
      text += "NS_12rocshmem_ctxE"; // its namespace is S_
      spelled.push_back(type.mangled.str());
    }
  }

  void pointer(StringRef pointee, bool isConst) {
    std::string target = (isConst ? "K" : "") + pointee.str();
    if (reuse("P" + target))
      return;
    text += "P";
    if (!isConst)
      text += target;
    else if (!reuse(target)) {
      text += target;
      spelled.push_back(target);
    }
    spelled.push_back("P" + target);
  }

  bool reuse(StringRef component) {
    auto *found = llvm::find(spelled, component);
    if (found == spelled.end())
      return false;
    size_t index = found - spelled.begin();
    text += index == 0 ? "S_" : "S" + std::to_string(index - 1) + "_";
    return true;
  }

  SmallVector<std::string> spelled = {"8rocshmem"};
};

} // namespace

std::string Prototype::symbol() const {
  Mangler mangler;
  mangler.text = "_ZN8rocshmem" + std::to_string(name.size()) + name + "E";
  for (const CType &parameter : parameters)
    mangler.add(parameter);
  if (parameters.empty())
    mangler.text += "v";
  return mangler.text;
}
