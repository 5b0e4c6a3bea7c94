#include "convert/hf/export.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/hash.h"
#include "base/progress.h"
#include "convert/copy_pieces.h"
#include "convert/formats.h"
#include "convert/hf/config.h"
#include "convert/hf/import.h"
#include "convert/hf/tokenizer.h"
#include "convert/mapped_tensors.h"
#include "families/gpt/config.h"
#include "families/registry.h"
#include "store/step_reader.h"
#include "store/weight_folder.h"

namespace espalier::convert {
namespace {

namespace fs = std::filesystem;
using store::DType;

// Tensors are made in pieces that stay in the cache until they are written.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

const HfCodec& codec_for(const ExportOptions& options, const ModelConfig& config, const HfCodec* origin) {
  const HfCodec* asked = options.codec;
  if (asked == nullptr) return choose_hf_codec(config, origin);
  std::string why = concat(": it is a ", config.family->display, ", and that a ", asked->family->display);
  if (asked->family == config.family) {
    const std::vector<std::string> obstacles = asked->obstacles(config);
    if (obstacles.empty()) return *asked;
    why = ", where " + join(obstacles, ", and ");
  }
  throw UserError(
      concat("this model is not a ", asked->model_type, why, ". Leave --model-type out to write what it is."),
      ExitCode::kUsage);
}

// Rows of the embedding that are written: the tokenizer's ids, or as many as the model had where it came from.
int64_t rows_to_write(const ExportOptions& options, const spec::Vocabulary& vocabulary, int64_t original_rows) {
  if (options.keep_vocab_padding) return vocabulary.padded_size;
  return std::clamp(original_rows, vocabulary.size, vocabulary.padded_size);
}

DType type_of(const std::string& compute_type) {
  if (compute_type == "bf16") return DType::kBFloat16;
  return compute_type == "fp16" ? DType::kFloat16 : DType::kFloat32;
}

// Where the tensors of our side are in the files of a checkpoint.
struct StoredTensors {
  std::vector<const store::StoredTensor*> tensors;  // by number in the map
  std::vector<store::TensorView> views;
};

// Where the values of a weight are stored: in the moving average, or, for a folder in fp32, in the master.
const store::StoredTensor* stored_values(const store::Manifest& manifest, const std::string& weight, bool ema,
                                         bool prefer_master) {
  if (ema) return manifest.find(store::ema_of(weight));
  const store::StoredTensor* master = prefer_master ? manifest.find(weight + ".master") : nullptr;
  return master != nullptr ? master : manifest.find(weight);
}

StoredTensors find_tensors(store::StepReader& reader, const TensorMap& map, bool ema, bool prefer_master) {
  StoredTensors found;
  std::vector<std::string> files;
  for (const TensorShape& ours : map.ours) {
    const store::StoredTensor* tensor = stored_values(reader.manifest(), ours.name, ema, prefer_master);
    if (tensor == nullptr || tensor->shape != ours.shape)
      throw UserError(concat(reader.folder().string(), ": expected a tensor '", ours.name, "' ",
                             store::describe(DType::kFloat32, ours.shape), ", found ",
                             tensor == nullptr ? "none" : store::describe(*tensor)),
                      ExitCode::kBadData);
    found.tensors.push_back(tensor);
    if (std::find(files.begin(), files.end(), tensor->file) == files.end()) files.push_back(tensor->file);
  }
  reader.check_files(files);
  std::map<std::string, store::SafetensorsFile> opened;
  for (const std::string& file : files) opened.emplace(file, reader.folder() / file);
  for (const store::StoredTensor* tensor : found.tensors) {
    const store::SafetensorsFile& file = opened.at(tensor->file);
    const store::TensorEntry* entry = file.find(tensor->name);
    ESPALIER_CHECK(entry != nullptr, tensor->name);  // check_files has compared the headers
    found.views.push_back({.dtype = tensor->dtype,
                           .shape = tensor->shape,
                           .strides = store::contiguous_strides(tensor->shape),
                           .file = reader.folder() / tensor->file,
                           .offset = file.data_offset() + entry->begin});
  }
  return found;
}

void check_blocks(const store::StoredTensor& tensor, const void* data, const fs::path& folder) {
  for (const store::Block& block : tensor.blocks) {
    const auto* begin = static_cast<const char*>(data) + block.offset;
    const uint64_t found = hash64(begin, static_cast<size_t>(block.bytes));
    if (found != block.checksum)
      throw UserError(concat(folder.string(), ": tensor '", tensor.name, "' in ", tensor.file, ", bytes ", block.offset,
                             " to ", block.offset + block.bytes, ": expected checksum ", hex64(block.checksum),
                             ", found ", hex64(found), "; the file is damaged"),
                      ExitCode::kBadData);
  }
}

// For each source the last tensor that is made of it.
std::map<size_t, size_t> last_uses(const TensorMap& map, const PieceCopier& copier) {
  std::map<size_t, size_t> last;
  for (size_t number = 0; number < map.theirs.size(); ++number)
    for (const size_t source : copier.sources_of(number)) last[source] = number;
  return last;
}

std::vector<std::string> write_tensors(const TensorMap& map, MappedTensors& sources, FoldedTensors& folded, DType dtype,
                                       const fs::path& folder, int64_t max_shard_bytes, int64_t total) {
  const PieceCopier copier(map, Direction::kExport,
                           [&](size_t tensor) { return folded.at(tensor, sources.at(tensor)); });
  const std::map<size_t, size_t> last = last_uses(map, copier);
  Progress progress("export", total, Progress::Unit::kBytes);
  std::vector<std::pair<std::string, store::TensorSource>> tensors;
  for (size_t number = 0; number < map.theirs.size(); ++number) {
    const auto produce = [&, number](const store::ByteSink& sink) {
      const int64_t count = map.theirs[number].num_elements(), step = kPieceBytes / size_bytes(dtype);
      const std::unique_ptr<char[]> piece(new char[kPieceBytes]);
      for (int64_t begin = 0; begin < count; begin += step) {
        const int64_t end = std::min(count, begin + step), bytes = (end - begin) * size_bytes(dtype);
        copier.fill(number, begin, end, dtype, piece.get());
        sink(piece.get(), static_cast<size_t>(bytes));
        progress.advance(bytes);
      }
      for (const size_t source : copier.sources_of(number))
        if (last.at(source) == number) folded.release(source), sources.release(source);
    };
    tensors.emplace_back(map.theirs[number].name, store::TensorSource{dtype, map.theirs[number].shape, produce});
  }
  std::vector<std::string> files = store::write_weights(folder, tensors, max_shard_bytes);
  progress.finish();
  return files;
}

void write_generation_config(const fs::path& folder, const std::string& config_json, const text::NamedIds& ids) {
  const fs::path file = folder / "generation_config.json";
  if (fs::exists(file)) return write_file_atomically(file, with_named_ids(read_file(file), ids));
  const auto config = nlohmann::ordered_json::parse(config_json);
  nlohmann::ordered_json json = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"})
    if (config.contains(key)) json[key] = config[key];
  write_file_atomically(file, json.dump(2) + "\n");
}

// NullTokenizer stands for "none" in what was imported without one; what was trained with it has an end of its own.
text::NamedIds ids_to_name(const text::NamedIds& ids, const text::TokenizerOptions& options, const HfCodec& codec,
                           const std::string& kept) {
  if (!codec.generates) return {.bos = std::nullopt, .eos = std::nullopt, .pad = ids.pad};
  return options.type == "NullTokenizer" && !kept.empty() ? text::NamedIds() : ids;
}

// The families of transformers that models are written as are causal.
void refuse_whole_prompts(const config::RunConfig& run) {
  if (run.family != &families::gpt_family() || !families::gpt_config(run).whole_prompt) return;
  const bool is_prefix = families::row_rules(run).objective.kind == data::Objective::Kind::kPrefix;
  throw UserError(
      concat("the model is trained with ", is_prefix ? "--objective prefix" : "--objective multitask --prefixlm",
             ": the tokens of what it is given see each other. No family of transformers that can be written expresses "
             "that; as a causal one it would compute something else. `espalier generate` handles it; to export it, "
             "continue training causally first (--finetune without these options)."),
      ExitCode::kUsage);
}

}  // namespace

void check_hf_export(const config::RunConfig& run) {
  refuse_whole_prompts(run);
  choose_hf_codec(folded(model_of(run)).model, nullptr);
}

ExportReport export_hf(const ExportOptions& options, const fs::path& folder) {
  store::StepReader reader(options.step_folder);
  const store::Manifest& manifest = reader.manifest();
  const config::RunConfig run = families::read_saved_run(manifest, options.step_folder, options.model_options);
  refuse_whole_prompts(run);
  if (options.ema) store::check_has_ema(manifest, "--ema");
  const Folding folding = folded(model_of(run));
  const ModelConfig& config = folding.model;
  const std::string kept = manifest.find_file(kKeptConfig) != nullptr ? reader.read_extra_file(kKeptConfig) : "";
  const HfOrigin origin = kept.empty() ? HfOrigin() : origin_of(kept, kKeptConfig);
  const DType dtype = options.dtype.value_or(type_of(manifest.model.compute_type));

  ExportReport report;
  const HfCodec& codec = codec_for(options, config, origin.codec);
  report.model = {.codec = &codec, .config = config, .dtype = dtype, .notes = {}};
  const int64_t rows = rows_to_write(options, config.vocabulary, origin.vocab_rows);
  const TensorMap map = codec.map(config, {.vocab_rows = rows});
  report.model.config.vocabulary.padded_size = rows;
  if (!folding.rows.empty()) report.notes.push_back(folding.note);
  if (rows < config.vocabulary.padded_size)
    report.notes.push_back(concat(format_count(config.vocabulary.padded_size - rows),
                                  " rows that pad the vocabulary are left out (--keep-vocab-padding keeps them)"));
  for (const TensorShape& tensor : map.theirs) report.bytes += tensor.num_elements() * size_bytes(dtype);
  report.num_tensors = static_cast<int64_t>(map.theirs.size());

  const StoredTensors stored = find_tensors(reader, map, options.ema, dtype == DType::kFloat32);
  MappedTensors sources(stored.views, [&](size_t tensor, const void* data) {
    check_blocks(*stored.tensors[tensor], data, options.step_folder);
  });
  FoldedTensors with_factors(map, folding);
  report.files = write_tensors(map, sources, with_factors, dtype, folder, options.max_shard_bytes, report.bytes);
  const text::TokenizerOptions tokenizer_options = run.tokenizer;
  const ExportedTokenizer tokenizer = export_tokenizer(reader, tokenizer_options, report.model, folder);
  report.notes.insert(report.notes.end(), tokenizer.notes.begin(), tokenizer.notes.end());
  const text::NamedIds ids = ids_to_name(tokenizer.ids, tokenizer_options, codec, kept);
  const std::string config_json = with_named_ids(hf_config_json(report.model, kept), ids);
  write_file_atomically(folder / "config.json", config_json);
  if (codec.generates) write_generation_config(folder, config_json, ids);
  return report;
}

}  // namespace espalier::convert
