#include "config/deepspeed_config.h"

#include <cmath>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/format.h"
#include "base/json.h"
#include "base/literal.h"
#include "base/log.h"
#include "config/internal/deepspeed_keys.h"
#include "spec/optimizer.h"

namespace espalier::config {
namespace {

using internal::KeyEffect;
using Json = nlohmann::ordered_json;

constexpr int64_t kDefaultScalePower = 16, kMostScalePower = 127;

// Rows where an unset option means 0: a dynamic loss scale.
bool unset_is_zero(const std::string& option) { return option == "--loss-scale"; }

bool is_off(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_string()) return value.get<std::string>() == "none";
  if (!value.is_object()) return false;
  if (value.contains("enabled")) return is_off(value["enabled"]);
  return value.contains("device") && is_off(value["device"]);
}

class Reader {
 public:
  Reader(RunConfig& config, OptionTable& table, Problems& problems)
      : config_(config), table_(table), problems_(problems) {}

  void read() {
    if (!parse_file()) return;
    check_keys(content_, "");
    say_what_has_no_effect();
    read_batch();
    read_precision();
    read_zero();
    read_optimizer();
    read_exchange();
    const Json* partition = at("activation_checkpointing.partition_activations");
    if (partition != nullptr && check_boolean(*partition, "activation_checkpointing.partition_activations") &&
        partition->get<bool>())
      use_word("activation_checkpointing.partition_activations", "--partition-activations", "true");
  }

 private:
  bool parse_file();
  void check_keys(const Json& object, const std::string& prefix);
  void check_key(const std::string& path, const Json& value);
  void say_what_has_no_effect() const;
  void read_batch();
  void read_precision();
  void check_same_type(const char* path, const char* option, bool flag);
  void read_loss_scale();
  void read_zero();
  void read_optimizer();
  void read_exchange();

  // What is at "a.b"; nullptr where it says nothing.
  const Json* at(const std::string& path) const;
  std::string source(const std::string& path) const { return file_ + ": " + path; }
  bool given(const char* option) const { return table_.find(option)->given(); }
  // "auto" is there: the option says it.
  bool is_auto(const std::string& path) const;
  bool check_boolean(const Json& value, const char* path);
  std::optional<std::string> number_at(const char* path);
  std::optional<std::string> text_at(const char* path);
  // The key says that `option` is `word`.
  void use_word(const std::string& path, const char* option, const std::string& word);
  void use_number(const char* path, const char* option);
  // The same where DeepSpeed reads its file alone, or has a default of its own: the option has no say.
  void use_word_of_file(const std::string& path, const char* option, const std::string& word);
  void use_number_of_file(const char* path, const char* option, const char* absent);

  RunConfig& config_;
  OptionTable& table_;
  Problems& problems_;
  std::string file_;
  Json content_;
  std::vector<std::string> without_effect_;  // "steps_per_print (use --log-interval)"
};

bool Reader::parse_file() {
  file_ = config_.parallel.deepspeed_config;
  std::string text;
  try {
    text = read_file(file_);
  } catch (const UserError& error) {
    problems_.add("--deepspeed_config: ", error.what());
    return false;
  }
  // DeepSpeed refuses a key that occurs twice in one object; the parser would keep the last.
  std::vector<std::set<std::string>> keys;
  std::string twice;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  try {
    content_ = parse_json<Json>(text, file_, watch);
  } catch (const UserError& error) {
    problems_.add(error.what());
    return false;
  }
  if (!twice.empty()) problems_.add(file_, ": the key ", twice, " occurs twice in one object; keep one");
  if (!content_.is_object()) problems_.add(file_, " is not a JSON object, as DeepSpeed's configuration is");
  if (!content_.is_object() || !twice.empty()) return false;
  if (content_.contains("bfloat16")) {
    if (content_.contains("bf16")) problems_.add(file_, ": bf16 and bfloat16 are the same key; keep one");
    content_["bf16"] = Json(content_["bfloat16"]);
    content_.erase("bfloat16");
  }
  return true;
}

void Reader::check_keys(const Json& object, const std::string& prefix) {
  for (const auto& [name, value] : object.items()) check_key(prefix + name, value);
}

void Reader::check_key(const std::string& path, const Json& value) {
  const internal::DeepSpeedKey* key = internal::find_deepspeed_key(path);
  if (key == nullptr) {
    const size_t dot = path.rfind('.');
    const std::string name = dot == std::string::npos ? path : path.substr(dot + 1);
    const std::vector<std::string> near = nearest_names(name, internal::deepspeed_keys_beside(path));
    problems_.add(file_, ": unknown key ", path,
                  near.empty() ? "; leave it out" : "; did you mean " + join(near, ", ") + "?");
    return;
  }
  const auto refuse = [&] {
    problems_.add(file_, ": ", path, value.is_primitive() ? " " + value.dump() : "", " is not supported: ", key->note);
  };
  switch (key->effect) {
    case KeyEffect::kUsed: break;
    case KeyEffect::kBlock:
      if (value.is_object()) {
        check_keys(value, path + ".");
      } else if (!value.is_null()) {
        problems_.add(file_, ": ", path, " ", value.dump(), " is not an object; write {...}");
      }
      break;
    case KeyEffect::kNoEffect: without_effect_.push_back(concat(path, " (", key->note, ")")); break;
    case KeyEffect::kRefused:
      if (!value.is_null()) refuse();
      break;
    case KeyEffect::kRefusedIfOn:
      if (!is_off(value)) refuse();
      break;
    case KeyEffect::kOnlyTrue:
      if (!value.is_null() && value != Json(true)) refuse();
      break;
  }
}

void Reader::say_what_has_no_effect() const {
  if (!without_effect_.empty() && table_.says_notes())
    warn_once(concat(file_, ": without effect: ", join(without_effect_, ", ")));
}

const Json* Reader::at(const std::string& path) const {
  const Json* value = &content_;
  for (const std::string& name : split(path, '.')) {
    if (!value->is_object() || !value->contains(name)) return nullptr;
    value = &(*value)[name];
  }
  return value->is_null() || *value == Json("auto") ? nullptr : value;
}

bool Reader::is_auto(const std::string& path) const {
  const Json* value = &content_;
  for (const std::string& name : split(path, '.')) {
    if (!value->is_object() || !value->contains(name)) return false;
    value = &(*value)[name];
  }
  return *value == Json("auto");
}

bool Reader::check_boolean(const Json& value, const char* path) {
  if (!value.is_boolean()) problems_.add(file_, ": ", path, " ", value.dump(), " is neither true nor false");
  return value.is_boolean();
}

std::optional<std::string> Reader::number_at(const char* path) {
  const Json* value = at(path);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->dump();
  problems_.add(file_, ": ", path, " ", value->dump(), " is not a number");
  return std::nullopt;
}

std::optional<std::string> Reader::text_at(const char* path) {
  const Json* value = at(path);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  problems_.add(file_, ": ", path, " ", value->dump(), " is not a text");
  return std::nullopt;
}

void Reader::use_word(const std::string& path, const char* option, const std::string& word) {
  const Option* row = table_.find(option);
  ESPALIER_CHECK(row != nullptr && !row->is_list(), option);
  if (!row->given()) return table_.set(option, word, source(path), problems_);
  if (row->unclear()) return;  // it was refused, and holds what nobody gave
  const std::vector<std::string> values = row->values();
  const std::string found = values.empty() ? (unset_is_zero(option) ? "0" : "") : values[0];
  const std::optional<double> flag = parse_python_float(found), key = parse_python_float(word);
  if (flag && key ? *flag == *key : found == word) return;
  problems_.add(table_.origin(option), " and ", path, " ", word, " (", file_, ") disagree; make them equal");
}

void Reader::use_number(const char* path, const char* option) {
  if (const auto number = number_at(path)) use_word(path, option, *number);
}

void Reader::read_batch() {
  use_number("train_micro_batch_size_per_gpu", "--micro-batch-size");
  use_number("train_batch_size", "--global-batch-size");
  if (const auto steps = number_at("gradient_accumulation_steps")) {
    config_.training.gradient_accumulation_steps = parse_python_int(*steps);
    if (config_.training.gradient_accumulation_steps.value_or(0) < 1) {
      problems_.add(file_, ": gradient_accumulation_steps ", *steps, " is not an integer of 1 or more");
      config_.training.gradient_accumulation_steps.reset();
    }
  }
  if (at("gradient_clipping") != nullptr) return use_number("gradient_clipping", "--clip-grad");
  if (config_.optimizer.clip_grad > 0 && table_.says_notes())
    warn_once(concat(file_, " has no gradient_clipping, and DeepSpeed would not clip: --clip-grad ",
                     format_shortest(config_.optimizer.clip_grad), " holds"));
}

void Reader::check_same_type(const char* path, const char* option, bool flag) {
  const Json* enabled = at(path);
  if (enabled != nullptr && !check_boolean(*enabled, path)) return;
  if (enabled == nullptr) {
    // "auto" follows the flag; without the key DeepSpeed computes in another type than Megatron was told.
    const std::string block = std::string(path).substr(0, std::string(path).find('.'));
    const bool follows = content_.contains(block) && content_[block].is_object() &&
                         content_[block].contains("enabled") && content_[block]["enabled"] == Json("auto");
    if (flag && !follows)
      problems_.add(option, " is given, and ", path, " is missing (", file_, "): they disagree; write true there");
  } else if (enabled->get<bool>() != flag) {
    problems_.add(option, flag ? " is given" : " is not given", ", and ", path, " is ", enabled->dump(), " (", file_,
                  "): they disagree; ", flag ? "make it true" : "add it, or make it false");
  }
}

void Reader::read_precision() {
  check_same_type("bf16.enabled", "--bf16", config_.training.bf16);
  check_same_type("fp16.enabled", "--fp16", config_.training.fp16);
  if (config_.training.fp16) read_loss_scale();
}

void Reader::use_word_of_file(const std::string& path, const char* option, const std::string& word) {
  const Option* row = table_.find(option);
  const std::vector<std::string> values = row->values();
  const std::string present = values.empty() && unset_is_zero(option) ? "0" : values.at(0);
  const bool is_same = parse_python_float(present) == parse_python_float(word);
  if (is_same && (row->given() || at(path) == nullptr)) return;
  if (row->given() && table_.says_notes())
    warn_once(concat(table_.origin(option), " has no effect: DeepSpeed scales the loss only by its file, where ", path,
                     " is ", word, " (", file_, ")"));
  table_.set(option, word, source(path), problems_);
}

void Reader::use_number_of_file(const char* path, const char* option, const char* absent) {
  if (is_auto(path)) return;
  if (at(path) == nullptr) return use_word_of_file(concat(path, ", DeepSpeed's default,"), option, absent);
  if (const auto number = number_at(path)) use_word_of_file(path, option, *number);
}

void Reader::read_loss_scale() {
  use_number_of_file("fp16.loss_scale", "--loss-scale", "0");
  use_number_of_file("fp16.loss_scale_window", "--loss-scale-window", "1000");
  use_number_of_file("fp16.hysteresis", "--hysteresis", "2");
  use_number_of_file("fp16.min_loss_scale", "--min-loss-scale", "1");
  const char* path = "fp16.initial_scale_power";
  if (is_auto(path) || (at(path) != nullptr && !number_at(path))) return;
  const std::string number = at(path) == nullptr ? concat(kDefaultScalePower) : at(path)->dump();
  const std::optional<int64_t> power = parse_python_int(number);
  if (!power || *power < 0 || *power > kMostScalePower) {
    problems_.add(file_, ": ", path, " ", number, " is not an integer from 0 to ", kMostScalePower);
  } else {
    use_word_of_file(at(path) == nullptr ? "fp16.initial_scale_power, DeepSpeed's default," : path,
                     "--initial-loss-scale", format_shortest(std::ldexp(1.0, static_cast<int>(*power))));
  }
}

void Reader::read_zero() {
  const char* path = "zero_optimization.stage";
  if (at(path) != nullptr) return use_number(path, "--zero-stage");
  const Json* block = at("zero_optimization");
  const bool is_auto = block != nullptr && block->is_object() && block->contains("stage");
  if (!given("--zero-stage") && !is_auto)
    table_.set("--zero-stage", "0", file_ + ": no zero_optimization.stage", problems_);
}

void Reader::read_optimizer() {
  if (const auto type = text_at("optimizer.type")) {
    if (*type != "Adam" && *type != "AdamW" && *type != "adam" && *type != "adamw")
      problems_.add(file_, ": optimizer.type ", *type,
                    " is not supported: use Adam or AdamW, or leave the block out and give --optimizer");
    else if (given("--optimizer") && config_.optimizer.optimizer != spec::OptimizerType::kAdam)
      problems_.add(file_, ": optimizer.type ", *type, " and ", table_.origin("--optimizer"),
                    " contradict each other; leave one out");
  }
  use_number("optimizer.params.lr", "--lr");
  use_number("optimizer.params.eps", "--adam-eps");
  use_number("optimizer.params.weight_decay", "--weight-decay");
  const Json* betas = at("optimizer.params.betas");
  if (betas == nullptr) return;
  if (!betas->is_array() || betas->size() != 2 || !(*betas)[0].is_number() || !(*betas)[1].is_number()) {
    problems_.add(file_, ": optimizer.params.betas ", betas->dump(), " are not two numbers, such as [0.9, 0.999]");
    return;
  }
  use_word("optimizer.params.betas[0]", "--adam-beta1", (*betas)[0].dump());
  use_word("optimizer.params.betas[1]", "--adam-beta2", (*betas)[1].dump());
}

void Reader::read_exchange() {
  if (const auto type = text_at("communication_data_type")) {
    const bool is_bf16 = *type == "bfp16" || *type == "bf16";
    if (is_bf16 || *type == "fp32") {
      use_word("communication_data_type", "--grad-reduce-type", is_bf16 ? "bf16" : "fp32");
    } else {
      problems_.add(file_, ": communication_data_type ", *type, " is not supported: use fp32 or bfp16");
    }
  }
  const auto sums = text_at("data_types.grad_accum_dtype");
  if (sums && *sums != "fp32")
    problems_.add(file_, ": data_types.grad_accum_dtype ", *sums,
                  " is not supported: gradients are always summed in fp32; write fp32, or leave it out");
}

}  // namespace

void read_deepspeed_config(RunConfig& config, OptionTable& table, Problems& problems) {
  if (config.parallel.deepspeed_config.empty()) return;
  if (!config.parallel.deepspeed) {
    problems.add(table.origin("--deepspeed_config"), " is read only with --deepspeed; add it, or leave the file out");
    return;
  }
  Reader(config, table, problems).read();
}

}  // namespace espalier::config
