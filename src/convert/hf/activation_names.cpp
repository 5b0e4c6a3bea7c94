#include "convert/hf/internal/activation_names.h"

#include <vector>

#include "base/format.h"

namespace espalier::convert {
namespace {

struct ActivationName {
  const char* name;
  bool gated;
  spec::Activation activation;
};

// The first name of an activation is the one that is written.
const std::vector<ActivationName>& table() {
  using A = spec::Activation;
  static const std::vector<ActivationName> rows = {
      {"gelu_new", false, A::kGeluTanh},  {"gelu_pytorch_tanh", false, A::kGeluTanh},
      {"gelu_fast", false, A::kGeluTanh}, {"gelu", false, A::kGeluErf},
      {"relu", false, A::kRelu},          {"relu2", false, A::kSquaredRelu},
      {"silu", false, A::kSilu},          {"swish", false, A::kSilu},
      {"silu", true, A::kSwiglu},         {"swish", true, A::kSwiglu},
      {"gelu", true, A::kGeglu},          {"gelu_pytorch_tanh", true, A::kGegluTanh},
      {"gelu_new", true, A::kGegluTanh},  {"gelu_fast", true, A::kGegluTanh},
      {"relu", true, A::kReglu},          {"linear", true, A::kLiglu},
  };
  return rows;
}

}  // namespace

spec::Activation read_activation(ConfigReader& reader, const std::string& key, const std::string& otherwise,
                                 bool gated) {
  return activation_of(reader, key, reader.text(key, otherwise), gated);
}

spec::Activation activation_of(ConfigReader& reader, const std::string& key, const std::string& found, bool gated) {
  std::vector<std::string> known;
  for (const ActivationName& row : table()) {
    if (row.gated != gated) continue;
    if (found == row.name) return row.activation;
    known.push_back(row.name);
  }
  reader.problem(key, "'", found, "' is not supported; ", join(known, ", "), " are");
  return table().front().activation;
}

std::optional<std::string> name_of(spec::Activation activation) {
  for (const ActivationName& row : table())
    if (row.activation == activation) return row.name;
  return std::nullopt;
}

}  // namespace espalier::convert
