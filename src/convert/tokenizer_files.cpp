#include "convert/tokenizer_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "convert/hf/input_files.h"
#include "text/utf8.h"

namespace espalier::convert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "tokenizer.model",
                                           "chat_template.jinja",
                                           "generation_config.json"};

text::TokenizerOptions options_for(const fs::path& folder) {
  text::TokenizerOptions options;
  const auto has = [&](const char* name) { return fs::exists(folder / name); };
  if (has("tokenizer.json"))
    options.type = "PretrainedFromHF", options.name_or_path = folder;
  else if (has("vocab.json") && has("merges.txt"))
    options.type = "GPT2BPETokenizer", options.vocab_file = folder / "vocab.json",
    options.merge_file = folder / "merges.txt";
  else if (has("tokenizer.model"))
    options.type = "Llama2Tokenizer", options.model_file = folder / "tokenizer.model";
  return options;
}

// What goes into the checkpoint is what its name says.
void check_content(const fs::path& file, const std::string& content) {
  const std::string extension = file.extension();
  if (extension == ".json" && !nlohmann::json::accept(content))
    throw UserError(
        concat("'", file.string(), "': expected JSON, but these ", format_count(static_cast<int64_t>(content.size())),
               " bytes are not; use the model's own file"),
        ExitCode::kBadData);
  if ((extension == ".txt" || extension == ".jinja") && text::valid_utf8_prefix(content) != content.size())
    throw UserError(concat("'", file.string(), "': expected UTF-8, but at byte ", text::valid_utf8_prefix(content),
                           " there is something else; use the model's own file"),
                    ExitCode::kBadData);
}

text::TokenizerOptions null_tokenizer(int64_t rows) {
  text::TokenizerOptions options;
  options.type = "NullTokenizer";
  options.vocab_size = rows - 1;  // it has one id more
  return options;
}

}  // namespace

FoundTokenizer find_tokenizer(const fs::path& folder, int64_t rows, const fs::path& kept_in,
                              const RunTokenizerOf& of_family) {
  FoundTokenizer found;
  found.vocab_size = found.num_rows = rows;
  for (const char* name : kTokenizerFiles)
    if (const auto file = file_of_folder(folder, name)) {
      const std::string content = read_file(*file);
      check_content(*file, content);
      found.files.push_back({std::string("tokenizer/") + name, content});
    }
  const std::optional<RunTokenizer> own = of_family ? of_family(folder) : std::nullopt;
  found.options = own ? own->options : options_for(folder);
  if (found.options.type.empty()) {
    found.options = null_tokenizer(rows);
    found.notes.push_back(concat("no tokenizer found: texts are ids, as in \"17 4 9\". For words put the model's ",
                                 "tokenizer.json, vocab.json with merges.txt, or tokenizer.model into '",
                                 folder.string(), "' and import it again"));
    return found;
  }
  try {
    const bool is_made = own && !own->made_files.empty();
    const int64_t ids = is_made ? own->num_ids : text::load_tokenizer(found.options)->vocab_size();
    if (own) found.files.insert(found.files.end(), own->made_files.begin(), own->made_files.end());
    if (own && ids > rows)
      found.num_rows = ids;
    else if (ids > rows)
      found.notes.push_back(
          concat("the tokenizer has ", format_count(ids), " ids, the model only ", format_count(rows)));
    found.vocab_size = std::min(ids, rows);
  } catch (const UserError& error) {
    found.notes.push_back(concat("the tokenizer is kept, but cannot be read here: ", error.what()));
  }
  found.options = text::moved_to(found.options, kept_in);
  return found;
}

}  // namespace espalier::convert
