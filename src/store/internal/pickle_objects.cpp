#include "store/internal/pickle_objects.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "store/internal/pickle_globals.h"
#include "store/internal/pickle_input.h"
#include "store/internal/pickle_numpy.h"

namespace espalier::store {
namespace {

using Kind = TorchValue::Kind;
using Node = TorchNodes::Node;

// An expanded tensor (stride 0) may have more elements than its storage, but not so many that reading it is an attack.
constexpr int64_t kMostExpandedElements = 1 << 24;
constexpr size_t kMostDimensions = 64;
constexpr size_t kLongestKey = 100;  // of a storage: torch numbers them

int64_t count_of(const TorchValue& value, const char* what) {
  const int64_t count = value.kind() == Kind::kInt ? value.as_int(what) : -1;
  if (count < 0) refuse_file("expected ", what, ", found ", value.describe());
  return count;
}

std::vector<int64_t> counts_of(const TorchValue& value, const char* what) {
  if (!value.is_sequence() || value.items().size() > kMostDimensions)
    refuse_file("expected ", what, " of a tensor, found ", value.describe());
  std::vector<int64_t> counts;
  for (const TorchValue& item : value.items()) counts.push_back(count_of(item, what));
  return counts;
}

PickledTensor* stored_of(const TorchValue& value) {
  if (!value.is_tensor()) return nullptr;
  return std::get<std::unique_ptr<PickledTensor>>(TorchNodes::node_of(value)->content).get();
}

// Throws unless all elements are within `numel` elements of a storage.
void check_within(const TensorView& view, int64_t first, int64_t numel) {
  int64_t elements = 1, last = first;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(elements, std::max<int64_t>(view.shape[i], 1), &elements) ||
        __builtin_mul_overflow(std::max<int64_t>(view.shape[i] - 1, 0), view.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      refuse_file("expected sizes and strides of a tensor, found ones that overflow 64 bits");
  }
  if (elements > std::max(numel, kMostExpandedElements))
    refuse_file("expected at most ", std::max(numel, kMostExpandedElements), " elements of a tensor whose storage has ",
                numel, ", found ", elements);
  const bool empty = std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end();
  if (first > numel || (!empty && last >= numel))
    refuse_file("expected a tensor within its storage of ", numel, " elements, found elements ", first, " to ", last);
}

// UTF-8 to one byte per character, as Python's latin1.
std::string to_latin1(const std::string& utf8) {
  std::string bytes;
  for (size_t i = 0; i < utf8.size(); ++i) {
    const auto lead = static_cast<uint8_t>(utf8[i]);
    if (lead < 0x80) {
      bytes.push_back(utf8[i]);
    } else if ((lead == 0xc2 || lead == 0xc3) && i + 1 < utf8.size() && (utf8[i + 1] & 0xc0) == 0x80) {
      bytes.push_back(static_cast<char>((lead & 3) << 6 | (utf8[++i] & 0x3f)));
    } else {
      refuse_file("expected text of latin1 characters, found another at its byte ", i);
    }
  }
  return bytes;
}

}  // namespace

void PickleObjects::charge(size_t copied) {
  copied_ += copied;
  if (copied_ > (1 << 20) + 4 * static_cast<uint64_t>(input_.consumed()))
    refuse_file("expected calls with arguments of their own, found ", copied_, " copied bytes or items after ",
                input_.consumed(), " bytes of pickle");
}

TorchValue PickleObjects::global(const std::string& module, const std::string& name) {
  const std::optional<Global> global = find_global(module, name);
  if (!global)
    refuse_file("expected a class that checkpoints hold, found the global '", module, ".", name,
                "', which is not accepted (and nothing of it is run). If the file is trusted, remove that object with "
                "Python, or keep only the tensors");
  return nodes_.make(Kind::kGlobal, std::string(), global->name);
}

TorchValue PickleObjects::storage(const TorchValue& id) {
  // ("storage", type, key, location, numel[, view]), view: None or (key, offset, numel) in the old format.
  if (id.kind() != Kind::kTuple || id.items().size() < 5 || id.items().size() > 6 || !id.items()[0].is_string() ||
      id.items()[0].as_string("") != "storage")
    refuse_file("expected the persistent id of a storage, found ", id.describe());
  const TorchItems& parts = id.items();
  const std::optional<DType> dtype =
      parts[1].kind() == Kind::kGlobal ? storage_dtype(parts[1].class_name()) : std::nullopt;
  if (!dtype) refuse_file("expected the type of a storage, found ", parts[1].describe());
  if (!parts[2].is_string() || parts[2].as_string("").size() > kLongestKey)
    refuse_file("expected the key of a storage, found ", parts[2].describe());
  const std::string& key = parts[2].as_string("");
  const StorageUse use = {*dtype, count_of(parts[4], "the number of elements of a storage")};
  if (use.numel > std::numeric_limits<int64_t>::max() / size_bytes(use.dtype))
    refuse_file("expected the number of elements of a storage, found ", use.numel);
  const auto [known, fresh] = storages_.emplace(key, use);
  if (!fresh && (known->second.dtype != use.dtype || known->second.numel != use.numel))
    refuse_file("storage ", key, ": expected ", known->second.numel, " of ", to_string(known->second.dtype), ", found ",
                use.numel, " of ", to_string(use.dtype));
  int64_t first = 0, numel = use.numel;
  if (parts.size() == 6 && !parts[5].is_none()) {
    if (parts[5].kind() != Kind::kTuple || parts[5].items().size() != 3)
      refuse_file("expected a part of storage ", key, ", found ", parts[5].describe());
    first = count_of(parts[5].items()[1], "the offset of a part of a storage");
    numel = count_of(parts[5].items()[2], "the size of a part of a storage");
    if (first > use.numel || numel > use.numel - first)
      refuse_file("storage ", key, ": expected a part within ", use.numel, " elements, found ", numel, " from ", first);
  }
  PickledTensor whole;
  whole.view = {.dtype = *dtype, .shape = {numel}, .strides = {1}, .file = {}, .offset = first * size_bytes(*dtype)};
  whole.storage = key;
  whole.is_storage = true;
  return nodes_.make(Kind::kTensor, std::make_unique<PickledTensor>(std::move(whole)));
}

TorchValue PickleObjects::rebuild_tensor(const TorchItems& arguments) {
  const PickledTensor* storage = arguments.size() < 4 ? nullptr : stored_of(arguments[0]);
  if (storage == nullptr || !storage->is_storage)
    refuse_file("expected storage, offset, size and stride of a tensor, found ",
                arguments.empty() ? "nothing" : arguments[0].describe());
  PickledTensor tensor;
  tensor.view = {.dtype = storage->view.dtype,
                 .shape = counts_of(arguments[2], "the sizes"),
                 .strides = counts_of(arguments[3], "the strides"),
                 .file = {},
                 .offset = storage->view.offset};
  if (tensor.view.shape.size() != tensor.view.strides.size())
    refuse_file("expected as many strides as sizes of a tensor, found ", tensor.view.strides.size(), " and ",
                tensor.view.shape.size());
  charge(tensor.view.shape.size());
  const int64_t first = count_of(arguments[1], "the offset of a tensor");
  check_within(tensor.view, first, storage->view.shape[0]);
  tensor.view.offset += first * size_bytes(tensor.view.dtype);
  tensor.storage = storage->storage;
  return nodes_.make(Kind::kTensor, std::make_unique<PickledTensor>(std::move(tensor)));
}

TorchValue PickleObjects::rebuild_from_type(const TorchItems& arguments) {
  // (function, type, its arguments, attributes): a tensor that somebody gave attributes, which are left out.
  if (arguments.size() != 4 || arguments[0].kind() != Kind::kGlobal || arguments[2].kind() != Kind::kTuple)
    refuse_file("expected function, type, arguments and state of a tensor, found ", arguments.size(), " arguments");
  const std::optional<GlobalRole> role = role_of_global(arguments[0].class_name());
  if (role != GlobalRole::kRebuildTensor && role != GlobalRole::kRebuildParameter)
    refuse_file("expected a function that rebuilds a tensor, found ", arguments[0].describe());
  return call(arguments[0], arguments[2]);
}

TorchValue PickleObjects::member(const TorchItems& arguments) {
  // Nothing is looked up: the member is the name of its class with its own. Only classes that are records have members.
  const bool known = arguments.size() == 2 && arguments[0].kind() == Kind::kGlobal &&
                     is_record_class(arguments[0].class_name()) && arguments[1].is_string();
  const std::string name = known ? arguments[1].as_string("") : "";
  const bool word =
      !name.empty() && name.size() <= kLongestKey && std::all_of(name.begin(), name.end(), [](char letter) {
        return letter == '_' || ('0' <= letter && letter <= '9') || ('a' <= (letter | 32) && (letter | 32) <= 'z');
      });
  if (!word)
    refuse_file("expected a member of an enum of checkpoints, found ",
                arguments.empty() ? "nothing" : arguments.back().describe(), " of ",
                arguments.empty() ? "nothing" : arguments[0].describe());
  return nodes_.make(Kind::kGlobal, std::string(), arguments[0].class_name() + "." + name);
}

TorchValue PickleObjects::ordered_dict(const TorchItems& arguments) {
  TorchPairs pairs;
  if (arguments.size() == 1 && arguments[0].is_sequence()) {
    charge(arguments[0].items().size());
    for (const TorchValue& item : arguments[0].items()) {
      if (!item.is_sequence() || item.items().size() != 2)
        refuse_file("expected a pair of an OrderedDict, found ", item.describe());
      pairs.emplace_back(item.items()[0], item.items()[1]);
    }
  } else if (!arguments.empty()) {
    refuse_file("expected a list of pairs of an OrderedDict, found ", arguments[0].describe());
  }
  return nodes_.make(Kind::kDict, std::move(pairs), "collections.OrderedDict");
}

TorchValue PickleObjects::encode(const TorchItems& arguments) {
  const bool latin1 = arguments.size() == 2 && arguments[0].is_string() && arguments[1].is_string() &&
                      (arguments[1].as_string("") == "latin1" || arguments[1].as_string("") == "latin-1");
  if (!latin1)
    refuse_file("expected text and 'latin1', found ", arguments.size(), " other arguments of _codecs.encode");
  charge(arguments[0].as_string("").size());
  return nodes_.make(Kind::kBytes, to_latin1(arguments[0].as_string("")));
}

TorchValue PickleObjects::to_bytes(const TorchItems& arguments) {
  if (arguments.empty()) return nodes_.make(Kind::kBytes, std::string());
  if (arguments.size() == 1 && arguments[0].kind() == Kind::kBytes) {
    charge(arguments[0].bytes().size());
    return nodes_.make(Kind::kBytes, arguments[0].bytes());
  }
  return encode(arguments);
}

TorchValue PickleObjects::call(const TorchValue& callable, const TorchValue& tuple) {
  if (callable.kind() != Kind::kGlobal)
    refuse_file("expected a class or function to call, found ", callable.describe());
  if (tuple.kind() != Kind::kTuple) refuse_file("expected a tuple of arguments, found ", tuple.describe());
  const std::string& name = callable.class_name();
  const TorchItems& arguments = tuple.items();
  charge(arguments.size());
  // The items of the one argument, if there is one.
  const auto items_of_argument = [&]() -> TorchItems {
    if (arguments.empty()) return {};
    const Kind kind = arguments[0].kind();
    if (kind != Kind::kList && kind != Kind::kTuple && kind != Kind::kSet)
      refuse_file("expected the items of a ", name, ", found ", arguments[0].describe());
    charge(arguments[0].items().size());
    return arguments[0].items();
  };
  // A member of an enum has no role.
  switch (role_of_global(name).value_or(GlobalRole::kConstant)) {
    case GlobalRole::kRecord: return nodes_.make(Kind::kRecord, Node::Object{arguments, TorchValue()}, name);
    case GlobalRole::kRebuildTensor: return rebuild_tensor(arguments);
    case GlobalRole::kRebuildParameter:
      if (arguments.empty() || !arguments[0].is_tensor())
        refuse_file("expected the tensor of a Parameter, found ",
                    arguments.empty() ? "nothing" : arguments[0].describe());
      return arguments[0];
    case GlobalRole::kRebuildFromType: return rebuild_from_type(arguments);
    case GlobalRole::kSize: return nodes_.make(Kind::kTuple, items_of_argument(), "torch.Size");
    case GlobalRole::kOrderedDict: return ordered_dict(arguments);
    case GlobalRole::kDict:
      return nodes_.make(Kind::kDict, std::get<TorchPairs>(TorchNodes::node_of(ordered_dict(arguments))->content));
    case GlobalRole::kDefaultDict: return nodes_.make(Kind::kDict, TorchPairs());  // the factory is left out
    case GlobalRole::kList: return nodes_.make(Kind::kList, items_of_argument());
    case GlobalRole::kTuple: return nodes_.make(Kind::kTuple, items_of_argument());
    case GlobalRole::kSet: return nodes_.make(Kind::kSet, items_of_argument());
    case GlobalRole::kBytes: return to_bytes(arguments);
    case GlobalRole::kEncode: return encode(arguments);
    case GlobalRole::kMember: return member(arguments);
    case GlobalRole::kReconstructObject:
      if (arguments.size() != 3 || arguments[1].class_name() != "builtins.object" || !arguments[2].is_none())
        refuse_file("expected a class, object and None, found ", arguments.size(), " other arguments of ", name);
      return new_object(arguments[0], nodes_.make(Kind::kTuple, TorchItems()));
    case GlobalRole::kReconstructArray: return nodes_.make(Kind::kArray, std::make_unique<NumpyArray>());
    case GlobalRole::kFromBuffer:
      if (!arguments.empty() && arguments[0].kind() == Kind::kBytes) charge(arguments[0].bytes().size());
      return nodes_.make(Kind::kArray, std::make_unique<NumpyArray>(numpy_array_of_buffer(arguments)));
    case GlobalRole::kScalar: return numpy_scalar(arguments);
    case GlobalRole::kConstant:
    case GlobalRole::kStorageType: break;
  }
  refuse_file("expected a class or function that may be called, found ", name);
}

TorchValue PickleObjects::new_object(const TorchValue& type, const TorchValue& arguments) {
  if (type.kind() != Kind::kGlobal) refuse_file("expected a class, found ", type.describe());
  return call(type, arguments);
}

void PickleObjects::set_state(const TorchValue& object, const TorchValue& state) {
  Node* node = TorchNodes::node_of(object);
  switch (object.kind()) {
    case Kind::kRecord: std::get<Node::Object>(node->content).state = state; return;
    case Kind::kArray: {
      *std::get<std::unique_ptr<NumpyArray>>(node->content) = numpy_array_of_state(state);
      charge(object.array().data.size());
      return;
    }
    case Kind::kDict: return;  // attributes of an OrderedDict: the _metadata of a state_dict, which is left out
    default: refuse_file("expected an object that takes a state, found ", object.describe());
  }
}

}  // namespace espalier::store
