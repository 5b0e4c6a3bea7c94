#include "convert/hf/import.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/progress.h"
#include "convert/copy_pieces.h"
#include "convert/hf/config.h"
#include "convert/hf/input_files.h"
#include "convert/mapped_tensors.h"
#include "convert/model_config.h"
#include "convert/tokenizer_files.h"
#include "store/manifest.h"
#include "store/run_folder.h"
#include "store/step_writer.h"
#include "store/weight_folder.h"
#include "text/tokenizer.h"

namespace espalier::convert {
namespace {

namespace fs = std::filesystem;
using store::DType;
using Views = std::map<std::string, store::TensorView>;

constexpr size_t kMostProblems = 20;

bool is_float(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat64;
}

int64_t padded_rows(const ImportOptions& options, int64_t rows) {
  const int64_t divisor = options.make_vocab_size_divisible_by;
  const int64_t padded = options.pad_vocab_size_to.value_or((rows + divisor - 1) / divisor * divisor);
  if (padded < rows)
    throw UserError(concat("--pad-vocab-size-to ", padded, " is below the ", rows, " rows of the embedding; use ", rows,
                           " or more"),
                    ExitCode::kUsage);
  return padded;
}

// The folder's tensors in the order of the map, each of the shape that the model has.
std::vector<store::TensorView> match(const TensorMap& map, const Views& views, const fs::path& folder) {
  Problems problems;
  std::vector<store::TensorView> matched;
  for (const TensorShape& tensor : map.theirs) {
    const auto found = views.find(tensor.name);
    if (found == views.end()) {
      problems.add("'", tensor.name, "' is missing, which config.json makes part of the model");
    } else if (found->second.shape != tensor.shape) {
      problems.add("'", tensor.name, "': expected ", store::describe(found->second.dtype, tensor.shape),
                   " from config.json, found ", store::describe(found->second.dtype, found->second.shape));
    } else if (!is_float(found->second.dtype)) {
      problems.add("'", tensor.name, "': ", to_string(found->second.dtype), " is not a floating-point type");
    } else {
      matched.push_back(found->second);
    }
  }
  for (const auto& [name, view] : views)
    if (!map.theirs.has(name)) problems.add("'", name, "' is not part of the model that config.json describes");
  if (problems.empty()) return matched;
  std::vector<std::string> lines = problems.messages();
  const size_t count = lines.size();
  if (count > kMostProblems) lines.resize(kMostProblems);
  throw UserError(concat(folder.string(), ": weights and config.json do not fit:\n  ", join(lines, "\n  "),
                         count > kMostProblems ? concat("\n  and ", count - kMostProblems, " more") : ""),
                  ExitCode::kBadData);
}

// The type of most elements.
DType usual_type(const std::vector<store::TensorView>& views) {
  std::map<DType, int64_t> elements;
  for (const store::TensorView& view : views) elements[view.dtype] += view.num_elements();
  DType usual = DType::kFloat32;
  int64_t most = 0;
  for (const auto& [dtype, count] : elements)
    if (count > most) most = count, usual = dtype;
  return usual == DType::kFloat64 ? DType::kFloat32 : usual;
}

plan::Precision precision_of(DType dtype) {
  if (dtype == DType::kBFloat16) return plan::Precision::kBf16;
  return dtype == DType::kFloat16 ? plan::Precision::kFp16 : plan::Precision::kFp32;
}

// A tied output layer that is stored as well must be the embedding.
void check_copies(const TensorMap& map, const PieceCopier& copier, MappedTensors& sources, const fs::path& folder) {
  constexpr int64_t kElements = int64_t{1} << 20;
  std::vector<uint8_t> buffer;
  for (const Piece& piece : map.pieces) {
    if (!piece.is_copy) continue;
    ESPALIER_CHECK(piece.sizes.size() == 1 && piece.ours.strides[0] == 1 && piece.theirs.strides[0] == 1);
    const SourceTensor theirs = sources.at(piece.theirs.tensor);
    const int64_t bytes = size_bytes(theirs.dtype);
    for (int64_t begin = 0; begin < piece.sizes[0]; begin += kElements) {
      const int64_t count = std::min(kElements, piece.sizes[0] - begin);
      buffer.resize(static_cast<size_t>(count * bytes));
      copier.fill(piece.ours.tensor, piece.ours.offset + begin, piece.ours.offset + begin + count, theirs.dtype,
                  buffer.data());
      const auto* data = static_cast<const uint8_t*>(theirs.data) + (piece.theirs.offset + begin) * bytes;
      if (std::memcmp(data, buffer.data(), buffer.size()) == 0) continue;
      throw UserError(concat(folder.string(), ": '", map.theirs[piece.theirs.tensor].name, "' differs from '",
                             map.theirs[copier.sources_of(piece.ours.tensor)[0]].name,
                             "', and config.json says that they are one (tie_word_embeddings). If the output layer has "
                             "weights of its own, set tie_word_embeddings to false there."),
                      ExitCode::kBadData);
    }
    sources.release(piece.theirs.tensor);
  }
}

std::vector<store::TensorFacts> facts_of(const spec::ModelSpec& model, DType dtype) {
  std::vector<store::TensorFacts> facts;
  for (const spec::ParamSpec& spec : model.params)
    facts.push_back({.name = spec.name,
                     .file = store::weights_file(model.depths[static_cast<size_t>(spec.depth)].name),
                     .dtype = dtype,
                     .shape = spec.shape});
  return facts;
}

void write_step(const fs::path& run_folder, const store::Manifest& manifest,
                const std::vector<store::TensorFacts>& facts, const PieceCopier& copier, MappedTensors& sources,
                const std::vector<store::ExtraFile>& extra_files) {
  int64_t total = 0;
  for (const store::TensorFacts& tensor : facts) total += tensor.num_bytes();
  store::check_free_space(run_folder, total, manifest.state.step);
  Progress progress("import", total, Progress::Unit::kBytes);
  const auto make = [&](size_t tensor, int64_t offset, int64_t bytes, void* destination) {
    const DType dtype = facts[tensor].dtype;
    const int64_t size = size_bytes(dtype);
    copier.fill(tensor, offset / size, (offset + bytes) / size, dtype, destination);
    if (offset + bytes == facts[tensor].num_bytes())
      for (const size_t source : copier.sources_of(tensor)) sources.release(source);
    progress.advance(bytes);
  };
  store::write_step(run_folder, manifest, facts, make, extra_files);
  progress.finish();
}

// BOS, or PAD, as data::SentenceVocabulary has it; nothing where the tokenizer cannot be read (which is noted).
std::optional<int32_t> decoder_begin(const text::TokenizerOptions& options, const fs::path& folder) {
  try {
    const text::NamedIds named = text::load_tokenizer(text::moved_to(options, folder))->named_ids();
    return named.bos ? named.bos : named.pad;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// transformers reads from config.json what a decoder begins with; here it follows from the tokenizer.
void check_decoder_start(const std::string& config_text, const fs::path& folder,
                         const text::TokenizerOptions& tokenizer) {
  constexpr const char *kKey = "decoder_start_token_id", *kHasEncoder = "is_encoder_decoder";
  const nlohmann::json config = nlohmann::json::parse(config_text);
  if (!config.contains(kKey) || config.value(kHasEncoder, nlohmann::json()) != true) return;
  const std::optional<int32_t> begin = decoder_begin(tokenizer, folder);
  if (!begin || config[kKey].is_null() || config[kKey] == *begin) return;
  throw UserError(concat((folder / "config.json").string(), ": ", kKey, ": ", config[kKey].dump(),
                         " is not supported: a decoder begins with ", *begin,
                         " here, the BOS that its tokenizer names, or where it names none, PAD"),
                  ExitCode::kBadData);
}

}  // namespace

void check_is_model_folder(const fs::path& input) {
  const auto refuse = [&](const char* what, ExitCode code) {
    throw UserError(concat("--input '", input.string(), "' ", what), code);
  };
  if (!fs::exists(input)) refuse("does not exist", ExitCode::kMissingInput);
  if (!fs::is_directory(input))
    refuse("is a file; give the folder, with config.json and the weights", ExitCode::kUsage);
  if (fs::exists(input / "config.json")) return;
  if (!store::list_steps(input).complete.empty() || fs::exists(input / "manifest.json"))
    refuse("is a run of Espalier: it needs no import. Give it to --load", ExitCode::kUsage);
  refuse("holds no config.json: expected a Hugging Face folder", ExitCode::kMissingInput);
}

ImportReport import_hf(const ImportOptions& options, const fs::path& run_folder) {
  check_is_model_folder(options.input);
  check_files_of_folder(options.input);
  const fs::path config_file = options.input / "config.json";
  const std::string config_text = read_file(config_file);
  Views views = store::open_weights(options.input);
  std::set<std::string> names;
  for (const auto& [name, view] : views) names.insert(name);
  ImportReport report{
      .model = read_hf_config(config_text, config_file.string(), {.names = &names}), .step_folder = {}, .notes = {}};
  report.notes = report.model.notes;
  const HfCodec& codec = *report.model.codec;
  ModelConfig& config = report.model.config;
  const int64_t rows = config.vocabulary.size;
  const std::string step = store::step_folder_name(0);
  const FoundTokenizer tokenizer =
      find_tokenizer(options.input, rows, fs::absolute(options.save) / step / "tokenizer", codec.run_tokenizer);
  report.notes.insert(report.notes.end(), tokenizer.notes.begin(), tokenizer.notes.end());
  check_decoder_start(config_text, options.input, tokenizer.options);
  config.vocabulary = {.size = tokenizer.vocab_size, .padded_size = padded_rows(options, tokenizer.num_rows)};
  if (tokenizer.num_rows > rows)
    report.notes.push_back(concat(format_count(tokenizer.num_rows - rows), " rows are added for pieces that ",
                                  tokenizer.options.type, " adds to the vocabulary"));
  std::erase_if(views, [&](const auto& entry) { return codec.leaves_out(entry.first, config); });
  const TensorMap map = codec.map(config, {.vocab_rows = rows, .names = &names});
  const std::vector<store::TensorView> matched = match(map, views, options.input);
  const DType dtype = options.dtype.value_or(usual_type(matched));
  const auto converted =
      std::count_if(matched.begin(), matched.end(), [&](const store::TensorView& view) { return view.dtype != dtype; });
  if (converted > 0)
    report.notes.push_back(concat(converted, " of ", matched.size(), " tensors are converted to ", to_string(dtype)));

  const spec::ModelSpec spec = spec_of(config);
  const plan::Precision precision = precision_of(dtype);
  store::Manifest manifest;
  manifest.model = {.family = config.family->name,
                    .compute_type = plan::to_string(precision),
                    .vocab_size = config.vocabulary.size,
                    .padded_vocab_size = config.vocabulary.padded_size,
                    .num_parameters = spec.num_parameters()};
  const std::string recipe = model_recipe(config, precision, tokenizer.options);
  manifest.config = imported_config(config, recipe);
  std::vector<store::ExtraFile> extra_files = tokenizer.files;
  extra_files.push_back({kKeptConfig, config_text});

  MappedTensors sources(matched);
  const PieceCopier copier(map, Direction::kImport, [&](size_t tensor) { return sources.at(tensor); });
  check_copies(map, copier, sources, options.input);
  const std::vector<store::TensorFacts> facts = facts_of(spec, dtype);
  write_step(run_folder, manifest, facts, copier, sources, extra_files);
  write_file_atomically(run_folder / kModelRecipe, "# The model of " + fs::absolute(options.input).string() +
                                                       ", for espalier train " + config.family->name + " --recipe.\n" +
                                                       recipe);
  report.step_folder = run_folder / step;
  report.num_tensors = static_cast<int64_t>(facts.size());
  for (const store::TensorFacts& tensor : facts) report.bytes += tensor.num_bytes();
  return report;
}

}  // namespace espalier::convert
