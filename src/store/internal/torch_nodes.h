// The inside of TorchValue, and values in the making.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "store/torch_value.h"

namespace espalier::store {

// A tensor of a file that is being read. Until the storage is placed, view.offset counts from its start.
struct PickledTensor {
  TensorView view;
  std::string storage;      // its key
  bool is_storage = false;  // the whole storage, which the pickle makes a tensor of next
};

struct TorchValue::Node {
  struct Object {
    TorchItems arguments;
    TorchValue state;
  };

  Kind kind;
  std::string class_name;
  std::variant<std::string, TorchItems, TorchPairs, std::unique_ptr<PickledTensor>, std::unique_ptr<TensorSource>,
               std::unique_ptr<NumpyArray>, Object>
      content;
};

// Makes values whose nodes can still change, as a pickle does, and keeps hold of all of them. What a pickle builds may
// be nested without end or contain itself: it is taken apart node by node here, where destructors would recurse or
// never run.
class TorchNodes {
 public:
  using Node = TorchValue::Node;
  using Kind = TorchValue::Kind;

  TorchNodes() = default;
  ~TorchNodes();  // NOLINT(bugprone-exception-escape): torch_value.cpp says why
  TorchNodes(const TorchNodes&) = delete;
  TorchNodes& operator=(const TorchNodes&) = delete;

  template <class Content>
  TorchValue make(Kind kind, Content content, std::string class_name = "") {
    all_.push_back(std::make_shared<Node>(Node{kind, std::move(class_name), std::move(content)}));
    return TorchValue(all_.back());
  }

  size_t count() const { return all_.size(); }
  const std::vector<std::shared_ptr<Node>>& all() const { return all_; }

  // Lets go of the nodes that are listed: their values live on.
  void release(const std::vector<const Node*>& kept);

  static Node* node_of(const TorchValue& value);  // nullptr for none, bools and numbers
  static TorchValue wrap(Node node) { return TorchValue(std::make_shared<Node>(std::move(node))); }

 private:
  std::vector<std::shared_ptr<Node>> all_;
};

}  // namespace espalier::store
