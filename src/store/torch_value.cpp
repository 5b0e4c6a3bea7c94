#include "store/torch_value.h"

#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "base/format.h"
#include "store/internal/torch_nodes.h"

namespace espalier::store {
namespace {

using Kind = TorchValue::Kind;

[[noreturn]] void refuse(const std::string& what, const char* expected, const TorchValue& found) {
  throw UserError(concat(what, ": expected ", expected, ", found ", found.describe()), ExitCode::kBadData);
}

std::string tensor_text(DType dtype, const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (const int64_t size : shape) sizes.push_back(std::to_string(size));
  return "tensor " + to_string(dtype) + " [" + join(sizes, ", ") + "]";
}

constexpr size_t kShownText = 40;

}  // namespace

TorchNodes::Node* TorchNodes::node_of(const TorchValue& value) {
  const auto* node = std::get_if<std::shared_ptr<Node>>(&value.value_);
  return node == nullptr ? nullptr : node->get();
}

// NOLINTNEXTLINE(bugprone-exception-escape): a variant throws where it holds nothing, and none does
TorchNodes::~TorchNodes() {
  // All contents are taken out first, so that no node holds another while they go.
  for (const auto& node : all_) {
    auto content = std::move(node->content);
    node->content = std::string();
    // The values in `content` are nodes of all_, which still holds them.
  }
}

void TorchNodes::release(const std::vector<const Node*>& kept) {
  const std::unordered_set<const Node*> keep(kept.begin(), kept.end());
  std::erase_if(all_, [&](const std::shared_ptr<Node>& node) { return keep.contains(node.get()); });
}

TorchValue TorchValue::boolean(bool value) {
  TorchValue made;
  made.value_ = value;
  return made;
}
TorchValue TorchValue::integer(int64_t value) {
  TorchValue made;
  made.value_ = value;
  return made;
}
TorchValue TorchValue::real(double value) {
  TorchValue made;
  made.value_ = value;
  return made;
}
TorchValue TorchValue::string(std::string utf8) { return TorchNodes::wrap({Kind::kString, "", std::move(utf8)}); }
TorchValue TorchValue::bytes(std::string value) { return TorchNodes::wrap({Kind::kBytes, "", std::move(value)}); }
TorchValue TorchValue::list(TorchItems items) { return TorchNodes::wrap({Kind::kList, "", std::move(items)}); }
TorchValue TorchValue::tuple(TorchItems items, std::string class_name) {
  return TorchNodes::wrap({Kind::kTuple, std::move(class_name), std::move(items)});
}
TorchValue TorchValue::set(TorchItems items) { return TorchNodes::wrap({Kind::kSet, "", std::move(items)}); }
TorchValue TorchValue::dict(TorchPairs pairs, std::string class_name) {
  return TorchNodes::wrap({Kind::kDict, std::move(class_name), std::move(pairs)});
}
TorchValue TorchValue::size(const std::vector<int64_t>& shape) {
  TorchItems items;
  for (const int64_t size : shape) items.push_back(integer(size));
  return tuple(std::move(items), "torch.Size");
}
TorchValue TorchValue::tensor(TensorView view) {
  return TorchNodes::wrap(
      {Kind::kTensor, "", std::make_unique<PickledTensor>(PickledTensor{std::move(view), "", false})});
}
TorchValue TorchValue::tensor(TensorSource source) {
  return TorchNodes::wrap({Kind::kTensor, "", std::make_unique<TensorSource>(std::move(source))});
}
TorchValue TorchValue::array(NumpyArray array) {
  return TorchNodes::wrap({Kind::kArray, "", std::make_unique<NumpyArray>(std::move(array))});
}
TorchValue TorchValue::global(std::string class_name) {
  return TorchNodes::wrap({Kind::kGlobal, std::move(class_name), std::string()});
}
TorchValue TorchValue::record(std::string class_name, TorchItems arguments, TorchValue state) {
  return TorchNodes::wrap({Kind::kRecord, std::move(class_name), Node::Object{std::move(arguments), std::move(state)}});
}

Kind TorchValue::kind() const {
  switch (value_.index()) {
    case 0: return Kind::kNone;
    case 1: return Kind::kBool;
    case 2: return Kind::kInt;
    case 3: return Kind::kFloat;
    default: return std::get<std::shared_ptr<Node>>(value_)->kind;
  }
}

std::string TorchValue::describe() const {
  const Node* node = TorchNodes::node_of(*this);
  switch (kind()) {
    case Kind::kNone: return "None";
    case Kind::kBool: return std::get<bool>(value_) ? "True" : "False";
    case Kind::kInt: return concat("int ", std::get<int64_t>(value_));
    case Kind::kFloat: return "float " + format_shortest(std::get<double>(value_));
    case Kind::kString: {
      const auto& text = std::get<std::string>(node->content);
      return "str '" + text.substr(0, kShownText) + (text.size() > kShownText ? "...'" : "'");
    }
    case Kind::kBytes: return concat("bytes of ", bytes().size());
    case Kind::kList: return concat("list of ", items().size());
    case Kind::kTuple: return concat(node->class_name.empty() ? "tuple" : node->class_name, " of ", items().size());
    case Kind::kSet: return concat("set of ", items().size());
    case Kind::kDict: return concat(node->class_name.empty() ? "dict" : node->class_name, " of ", pairs().size());
    case Kind::kTensor: {
      if (const auto* source = std::get_if<std::unique_ptr<TensorSource>>(&node->content))
        return tensor_text((*source)->dtype, (*source)->shape);
      return tensor_text(view().dtype, view().shape);
    }
    case Kind::kArray: return "numpy array of " + array().dtype;
    case Kind::kGlobal: return node->class_name;
    case Kind::kRecord: return "object of " + node->class_name;
  }
  ESPALIER_CHECK(false, "kind ", static_cast<int>(kind()));
}

bool TorchValue::as_bool(const std::string& what) const {
  if (const bool* value = std::get_if<bool>(&value_)) return *value;
  refuse(what, "a bool", *this);
}
int64_t TorchValue::as_int(const std::string& what) const {
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return *value;
  refuse(what, "an int", *this);
}
double TorchValue::as_float(const std::string& what) const {
  if (const double* value = std::get_if<double>(&value_)) return *value;
  if (const int64_t* value = std::get_if<int64_t>(&value_)) return static_cast<double>(*value);
  refuse(what, "a number", *this);
}
const std::string& TorchValue::as_string(const std::string& what) const {
  if (kind() != Kind::kString) refuse(what, "a str", *this);
  return std::get<std::string>(TorchNodes::node_of(*this)->content);
}
const TensorView& TorchValue::as_view(const std::string& what) const {
  if (kind() != Kind::kTensor) refuse(what, "a tensor", *this);
  return view();
}
std::vector<int64_t> TorchValue::as_ints(const std::string& what) const {
  if (!is_sequence()) refuse(what, "a sequence of ints", *this);
  std::vector<int64_t> values;
  for (const TorchValue& item : items()) values.push_back(item.as_int(what));
  return values;
}

const TorchItems& TorchValue::items() const {
  const Node* node = TorchNodes::node_of(*this);
  ESPALIER_CHECK(node != nullptr, describe());
  if (const auto* object = std::get_if<Node::Object>(&node->content)) return object->arguments;
  const auto* items = std::get_if<TorchItems>(&node->content);
  ESPALIER_CHECK(items != nullptr, describe());
  return *items;
}
const TorchPairs& TorchValue::pairs() const {
  ESPALIER_CHECK(kind() == Kind::kDict, describe());
  return std::get<TorchPairs>(TorchNodes::node_of(*this)->content);
}
const TensorView& TorchValue::view() const {
  ESPALIER_CHECK(kind() == Kind::kTensor, describe());
  const auto* stored = std::get_if<std::unique_ptr<PickledTensor>>(&TorchNodes::node_of(*this)->content);
  ESPALIER_CHECK(stored != nullptr, describe(), " is not of a file");
  return (*stored)->view;
}
TensorSource TorchValue::source() const {
  ESPALIER_CHECK(kind() == Kind::kTensor, describe());
  const auto* source = std::get_if<std::unique_ptr<TensorSource>>(&TorchNodes::node_of(*this)->content);
  return source != nullptr ? **source : source_of(view());
}
const NumpyArray& TorchValue::array() const {
  ESPALIER_CHECK(kind() == Kind::kArray, describe());
  return *std::get<std::unique_ptr<NumpyArray>>(TorchNodes::node_of(*this)->content);
}
const std::string& TorchValue::bytes() const {
  ESPALIER_CHECK(kind() == Kind::kBytes, describe());
  return std::get<std::string>(TorchNodes::node_of(*this)->content);
}
const std::string& TorchValue::class_name() const {
  static const std::string none;
  const Node* node = TorchNodes::node_of(*this);
  return node == nullptr ? none : node->class_name;
}
const TorchValue& TorchValue::state() const {
  ESPALIER_CHECK(kind() == Kind::kRecord, describe());
  return std::get<Node::Object>(TorchNodes::node_of(*this)->content).state;
}

const TorchValue* TorchValue::find(const std::string& key) const {
  const TorchValue& dict = kind() == Kind::kRecord ? state() : *this;
  if (!dict.is_dict()) return nullptr;
  for (const auto& [name, value] : dict.pairs())
    if (name.is_string() && std::get<std::string>(TorchNodes::node_of(name)->content) == key) return &value;
  return nullptr;
}
const TorchValue* TorchValue::find(int64_t key) const {
  if (!is_dict()) return nullptr;
  for (const auto& [name, value] : pairs())
    if (const int64_t* number = std::get_if<int64_t>(&name.value_); number != nullptr && *number == key) return &value;
  return nullptr;
}
const TorchValue& TorchValue::at(const std::string& key) const {
  if (const TorchValue* value = find(key)) return *value;
  const TorchValue& dict = kind() == Kind::kRecord ? state() : *this;
  std::vector<std::string> names;
  if (dict.is_dict())
    for (const auto& pair : dict.pairs())
      if (pair.first.is_string()) names.push_back(pair.first.as_string("key"));
  const std::vector<std::string> nearest = nearest_names(key, names);
  throw UserError(concat(describe(), " has no '", key, "'", nearest.empty() ? "" : "; nearest is '",
                         join(nearest, "', '"), nearest.empty() ? "" : "'"),
                  ExitCode::kBadData);
}

bool TorchValue::is(const TorchValue& other) const {
  const Node* node = TorchNodes::node_of(*this);
  return node != nullptr && node == TorchNodes::node_of(other);
}

}  // namespace espalier::store
