// The tokenizer of an exported model: files that transformers' AutoTokenizer reads, and the ids that config.json names.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "convert/hf/codec.h"
#include "store/step_reader.h"
#include "text/tokenizer.h"

namespace espalier::convert {

struct ExportedTokenizer {
  text::NamedIds ids;
  std::vector<std::string> notes;  // why transformers cannot have it, or where it may give other ids
};

// Writes the checkpoint's tokenizer/ into `folder`, and tokenizer.json and tokenizer_config.json where it has none.
// `options` are the run's; the model is one of the codec's.
ExportedTokenizer export_tokenizer(const store::StepReader& reader, const text::TokenizerOptions& options,
                                   const HfModel& model, const std::filesystem::path& folder);

// The same config.json or generation_config.json with the ids that it does not say.
std::string with_named_ids(const std::string& config_json, const text::NamedIds& ids);

}  // namespace espalier::convert
