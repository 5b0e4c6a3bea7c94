// What a file of torch.save holds: a tree of plain Python values and tensors.
//
// Values are immutable handles: copying shares what is below. A tree that was read has no cycles, at most
// kMaxTorchDepth levels, and ints of 64 bits.
//
//   const TorchValue root = read_torch_file(path);
//   const int64_t layers = root.at("args").at("num_layers").as_int("args.num_layers");
//   for (const auto& [name, value] : root.at("module").pairs())
//     if (value.is_tensor()) use(name.as_string("a name"), value.view());
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "store/tensor_view.h"

namespace espalier::store {

class TorchValue;
using TorchItems = std::vector<TorchValue>;
using TorchPairs = std::vector<std::pair<TorchValue, TorchValue>>;  // in the order of insertion, no key twice

constexpr int kMaxTorchDepth = 100;

// A numpy array: type as numpy writes it ("<u4", "<f8", "|b1"), the elements packed row-major.
struct NumpyArray {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};

class TorchValue {
 public:
  enum class Kind {
    kNone,
    kBool,
    kInt,
    kFloat,
    kString,
    kBytes,
    kList,    // items()
    kTuple,   // items(); class_name() "torch.Size" for one
    kSet,     // items()
    kDict,    // pairs(); class_name() "collections.OrderedDict" for one
    kTensor,  // view() of one that was read, source() of any; a Parameter is its tensor
    kArray,   // numpy
    kGlobal,  // a class or constant that stands for itself, by class_name(): "torch.bfloat16", "builtins.list",
              // "megatron.enums.PositionEmbeddingType.alibi" (saved by Python 3.11; by others a record of its value)
    kRecord,  // an object of class_name() that is not built: arguments in items(), attributes in state()
  };

  // To build a tree for the writer. class_name: as at Kind.
  TorchValue() = default;  // None
  static TorchValue boolean(bool value);
  static TorchValue integer(int64_t value);
  static TorchValue real(double value);
  static TorchValue string(std::string utf8);
  static TorchValue bytes(std::string value);
  static TorchValue list(TorchItems items);
  static TorchValue tuple(TorchItems items, std::string class_name = "");
  static TorchValue set(TorchItems items);
  static TorchValue dict(TorchPairs pairs, std::string class_name = "");
  static TorchValue ordered_dict(TorchPairs pairs) { return dict(std::move(pairs), "collections.OrderedDict"); }
  static TorchValue size(const std::vector<int64_t>& shape);  // torch.Size
  static TorchValue tensor(TensorView view);
  static TorchValue tensor(TensorSource source);
  static TorchValue array(NumpyArray array);
  static TorchValue global(std::string class_name);
  static TorchValue record(std::string class_name, TorchItems arguments, TorchValue state);

  Kind kind() const;
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_tensor() const { return kind() == Kind::kTensor; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_sequence() const { return kind() == Kind::kList || kind() == Kind::kTuple; }
  std::string describe() const;  // for messages: "int 3", "str 'gelu'", "dict of 12", "tensor F32 [7, 33]"

  // Throw UserError (kBadData) "<what>: expected a ..., found <describe()>". `what` names the value for the user.
  bool as_bool(const std::string& what) const;
  int64_t as_int(const std::string& what) const;   // a bool is not an int
  double as_float(const std::string& what) const;  // an int is a float
  const std::string& as_string(const std::string& what) const;
  const TensorView& as_view(const std::string& what) const;
  std::vector<int64_t> as_ints(const std::string& what) const;  // of a list, tuple or torch.Size

  // For the kinds that Kind names; a CHECK otherwise.
  const TorchItems& items() const;
  const TorchPairs& pairs() const;
  const TensorView& view() const;
  TensorSource source() const;
  const NumpyArray& array() const;
  const std::string& bytes() const;
  const std::string& class_name() const;  // empty for what has none
  const TorchValue& state() const;        // of a record

  // The value of a key: of a dict, or of a record's state when that is a dict (its attributes). Nothing: nullptr, and
  // at() throws UserError that lists the nearest names.
  const TorchValue* find(const std::string& key) const;
  const TorchValue* find(int64_t key) const;
  const TorchValue& at(const std::string& key) const;

  // The same object in the tree (a tensor that two names share), not an equal one.
  bool is(const TorchValue& other) const;

 private:
  struct Node;
  friend class TorchNodes;
  explicit TorchValue(std::shared_ptr<Node> node) : value_(std::move(node)) {}

  std::variant<std::monostate, bool, int64_t, double, std::shared_ptr<Node>> value_;
};

}  // namespace espalier::store
