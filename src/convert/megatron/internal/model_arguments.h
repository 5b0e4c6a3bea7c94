// Arguments of a checkpoint that make its model.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/run_options.h"
#include "store/torch_value.h"

namespace espalier::convert {

// Not None, False or an empty list.
bool is_set(const store::TorchValue* value);
// A flag that exists and is not set.
bool is_false(const store::TorchValue& args, const char* name);

// UserError (kBadData) that names every argument that makes a model which no family here makes.
void refuse_other_models(const store::TorchValue& args, const std::string& origin);

// What megatron.enums.PositionEmbeddingType and argparse's words are called here.
std::string position_type(const store::TorchValue& value, const std::string& origin);

// TOML of options of a family, each once.
class ArgumentLines {
 public:
  ArgumentLines(const config::Family& family, std::string origin) : origin_(std::move(origin)), options_(family) {}

  const std::string& origin() const { return origin_; }
  // Rows that exist decide the names: older and newer programs know different ones.
  bool knows(const std::string& name) const { return options_.table.find("--" + name) != nullptr; }
  // `value` in TOML. Another one for the same option is a UserError (kBadData).
  void add(const std::string& name, const std::string& value);
  void add_flag(const std::string& name) { add(name, "true"); }
  // Nothing where the argument is not set, or is not an option of the family.
  void add_argument(const store::TorchValue& args, const std::string& name);
  const std::string& text() const { return text_; }

 private:
  std::string origin_, text_;
  config::RunOptions options_;
  std::map<const Option*, std::pair<std::string, std::string>> said_;
};

// A text as TOML has it.
std::string toml_text(const std::string& text);

}  // namespace espalier::convert
