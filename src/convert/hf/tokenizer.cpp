#include "convert/hf/tokenizer.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "text/hf_tokenizer.h"

namespace espalier::convert {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kJson = "tokenizer.json";
constexpr const char* kConfig = "tokenizer_config.json";

// Texts that the written file is tried with: blanks, line ends, digits, accents apart, other scripts, emoji.
constexpr const char* kTrials[] = {"",
                                   "a",
                                   "Hello, world!",
                                   " two  blanks and a tab\tat the end ",
                                   "one\ntwo\r\n\r\nthree\n",
                                   "It's 1,234.5% of x_1+y[2]; don't (ever) \"quote\" <tags/>",
                                   "Stra\u00dfe na\u00efve e\u0301 \u00c5ngstr\u00f6m",
                                   "\u041f\u0440\u0438\u0432\u0435\u0442 \u4e16\u754c \u3053\u3093\u306b\u3061\u306f",
                                   "\u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947",
                                   "\U0001f600\U0001f44d\U0001f3fd end",
                                   "def f(x):\n    return x ** 2  # square\n"};

// The first text that two tokenizers cut differently, or null.
const char* first_difference(const text::Tokenizer& a, const text::Tokenizer& b) {
  for (const char* trial : kTrials)
    if (a.encode(trial) != b.encode(trial)) return trial;
  return nullptr;
}

// Which class transformers makes, and its named tokens. Without it, the class is that of the model's family, which may
// be another tokenizer.
Json config_json(const text::Tokenizer& tokenizer) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  const text::NamedIds ids = tokenizer.named_ids();
  for (const auto& [name, id] : {std::pair{"bos_token", ids.bos},
                                 {"eos_token", ids.eos},
                                 {"pad_token", ids.pad},
                                 {"cls_token", ids.cls},
                                 {"sep_token", ids.sep},
                                 {"mask_token", ids.mask}})
    if (id) config[name] = tokenizer.id_to_piece(*id);
  return config;
}

void write_json(const text::Tokenizer& tokenizer, const fs::path& folder, std::vector<std::string>& notes) {
  const text::TokenizerJson made = tokenizer.tokenizer_json();
  const std::string lacking = concat("no tokenizer.json is written, so transformers' AutoTokenizer has none: ");
  if (made.text.empty()) {
    notes.push_back(lacking + made.why_not);
    return;
  }
  write_file_atomically(folder / kJson, made.text);
  const char* different = first_difference(tokenizer, *text::load_hf_tokenizer(folder));
  if (different == nullptr) {
    notes.insert(notes.end(), made.notes.begin(), made.notes.end());
    return;
  }
  fs::remove(folder / kJson);
  notes.push_back(concat(lacking, "it would give other ids to '", different, "'"));
}

// Whether a tokenizer.json leaves a text without special tokens around it: ByteLevel moves offsets only.
bool puts_nothing_around(const Json& json) {
  const auto found = json.find("post_processor");
  return found == json.end() || found->is_null() || (found->is_object() && found->value("type", Json()) == "ByteLevel");
}

// transformers ends with a KeyError where a tokenizer.json has no list of added tokens, which tokenizers does without.
// All other bytes stay as they are.
void name_added_tokens(const fs::path& file) {
  std::string text = read_file(file);
  if (Json::parse(text).contains("added_tokens")) return;
  write_file_atomically(file, text.insert(text.find('{') + 1, "\n  \"added_tokens\": [],"));
}

void make_readable(const text::Tokenizer& tokenizer, const text::TokenizerOptions& options, const HfModel& model,
                   const fs::path& folder, std::vector<std::string>& notes) {
  // What --vocab-extra-ids adds is in no file.
  const bool is_made = !fs::exists(folder / kJson) || options.extra_ids > 0;
  if (is_made) write_json(tokenizer, folder, notes);
  if (!fs::exists(folder / kJson)) return;
  name_added_tokens(folder / kJson);
  Json config = config_json(tokenizer);
  if (model.codec->complete_tokenizer) {
    Json json = Json::parse(read_file(folder / kJson));
    if (is_made || puts_nothing_around(json)) {
      model.codec->complete_tokenizer(tokenizer, model.config, json, config);
      write_file_atomically(folder / kJson, json.dump(2) + "\n");
      if (!is_made)
        notes.push_back(
            concat(kJson, " puts the special tokens of a sample around a text, which the run's own does not"));
    }
  }
  if (!fs::exists(folder / kConfig)) write_file_atomically(folder / kConfig, config.dump(2) + "\n");
}

}  // namespace

ExportedTokenizer export_tokenizer(const store::StepReader& reader, const text::TokenizerOptions& options,
                                   const HfModel& model, const fs::path& folder) {
  const std::string prefix = "tokenizer/";
  for (const store::StoredFile& file : reader.manifest().files)
    if (file.path.starts_with(prefix))
      write_file_atomically(folder / file.path.substr(prefix.size()), reader.read_extra_file(file.path));
  ExportedTokenizer exported;
  try {
    const auto tokenizer = text::load_tokenizer(text::moved_to(options, folder));
    exported.ids = tokenizer->named_ids();
    make_readable(*tokenizer, options, model, folder, exported.notes);
  } catch (const UserError& error) {
    exported.notes.push_back(
        concat("the tokenizer's files are written as they are, but cannot be read: ", error.what()));
  }
  return exported;
}

std::string with_named_ids(const std::string& config_json, const text::NamedIds& ids) {
  Json json = Json::parse(config_json);
  const auto add = [&](const char* key, const std::optional<int32_t>& id) {
    if (id && (!json.contains(key) || json[key].is_null())) json[key] = *id;
  };
  const bool has_encoder = json.value("is_encoder_decoder", false);
  add("bos_token_id", ids.bos);
  add("eos_token_id", has_encoder && ids.text_end ? ids.text_end : ids.eos);
  add("pad_token_id", ids.pad);
  // As data::SentenceVocabulary has it.
  if (has_encoder) add("decoder_start_token_id", ids.bos ? ids.bos : ids.pad);
  return json.dump(2) + "\n";
}

}  // namespace espalier::convert
