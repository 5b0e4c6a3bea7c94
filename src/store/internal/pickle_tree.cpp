// finish_tree: a tree from what a pickle gave.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "store/internal/pickle_reader.h"

namespace espalier::store {
namespace {

using Kind = TorchValue::Kind;
using Node = TorchNodes::Node;

// A shared value counts wherever it occurs, since that is how often a user of the tree comes by.
constexpr int64_t kMostTreeValues = 1 << 24;
constexpr size_t kLongestTreeKey = 1 << 12;
constexpr size_t kMostKeyBytes = 1 << 28;  // of one dict

class TreeCheck {
 public:
  struct Extent {
    int64_t values = 1;
    int depth = 1;
  };

  Extent visit(const TorchValue& value) {
    Node* node = TorchNodes::node_of(value);
    if (node == nullptr) return {};
    const auto [known, fresh] = seen_.try_emplace(node, Extent{kOpen, 0});
    if (!fresh) {
      if (known->second.values == kOpen)
        refuse_file("expected a tree of values, found a ", value.describe(), " that contains itself");
      return known->second;
    }
    if (++level_ > kMaxTorchDepth) refuse_file("expected at most ", kMaxTorchDepth, " levels of values, found more");
    Extent extent;
    for_each_child(*node, [&](const TorchValue& child) {
      const Extent below = visit(child);
      extent.values += below.values;
      extent.depth = std::max(extent.depth, below.depth + 1);
      if (extent.values > kMostTreeValues) refuse_file("expected at most ", kMostTreeValues, " values, found more");
      if (extent.depth > kMaxTorchDepth)
        refuse_file("expected at most ", kMaxTorchDepth, " levels of values, found more");
    });
    --level_;
    if (node->kind == Kind::kDict) keep_each_key_once(std::get<TorchPairs>(node->content));
    if (node->kind == Kind::kArray && value.array().dtype.empty())
      refuse_file("expected the elements of a numpy array, found none");
    seen_[node] = extent;
    return extent;
  }

  std::vector<const Node*> nodes() const {
    std::vector<const Node*> all;
    for (const auto& [node, extent] : seen_) all.push_back(node);
    return all;
  }

 private:
  static constexpr int64_t kOpen = -1;

  template <class Visit>
  static void for_each_child(const Node& node, Visit visit) {
    if (const auto* items = std::get_if<TorchItems>(&node.content)) {
      for (const TorchValue& item : *items) visit(item);
    } else if (const auto* pairs = std::get_if<TorchPairs>(&node.content)) {
      for (const auto& [key, value] : *pairs) visit(key), visit(value);
    } else if (const auto* object = std::get_if<Node::Object>(&node.content)) {
      for (const TorchValue& item : object->arguments) visit(item);
      visit(object->state);
    }
  }

  // Equal keys have equal texts. 1, 1.0 and True are one key in Python.
  static void write_key(const TorchValue& key, std::string& text) {
    const auto field = [&](char type, const std::string& content) {
      text += type + std::to_string(content.size()) + ":" + content;
    };
    switch (key.kind()) {
      case Kind::kNone: text += 'n'; break;
      case Kind::kBool: field('i', key.as_bool("") ? "1" : "0"); break;
      case Kind::kInt: field('i', std::to_string(key.as_int(""))); break;
      case Kind::kFloat: {
        const double number = key.as_float("");
        if (number == std::floor(number) && std::fabs(number) < 9e15) {
          field('i', std::to_string(static_cast<int64_t>(number)));
        } else {
          std::string bits(sizeof number, '\0');
          std::memcpy(bits.data(), &number, sizeof number);
          field('f', bits);
        }
        break;
      }
      case Kind::kString: field('s', key.as_string("")); break;
      case Kind::kBytes: field('b', key.bytes()); break;
      case Kind::kGlobal: field('g', key.class_name()); break;
      case Kind::kTuple:
        text += "(";
        for (const TorchValue& item : key.items()) {
          write_key(item, text);
          if (text.size() > kLongestTreeKey) break;
        }
        text += ")";
        break;
      default: refuse_file("expected a key of plain values, found ", key.describe());
    }
    if (text.size() > kLongestTreeKey)
      refuse_file("expected keys of at most ", kLongestTreeKey, " bytes, found a longer one");
  }

  // The last value of a key, where the key occurred first.
  static void keep_each_key_once(TorchPairs& pairs) {
    std::unordered_map<std::string, size_t> places;
    size_t kept = 0, bytes = 0;
    for (auto& pair : pairs) {
      std::string text;
      write_key(pair.first, text);
      if ((bytes += text.size()) > kMostKeyBytes)
        refuse_file("expected a dict with keys of at most ", kMostKeyBytes, " bytes");
      const auto [place, fresh] = places.try_emplace(std::move(text), kept);
      if (!fresh) {
        pairs[place->second].second = pair.second;
      } else {
        if (&pairs[kept] != &pair) pairs[kept] = pair;
        ++kept;
      }
    }
    pairs.resize(kept);
  }

  std::unordered_map<const Node*, Extent> seen_;
  int level_ = 0;
};

}  // namespace

void finish_tree(const TorchValue& root, TorchNodes& nodes) {
  TreeCheck check;
  check.visit(root);
  nodes.release(check.nodes());
}

}  // namespace espalier::store
