#include "convert/megatron/files.h"

#include <algorithm>
#include <regex>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "store/run_folder.h"

namespace espalier::convert {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

constexpr size_t kLongestList = 12;  // of names in a message

Names names_in(const fs::path& folder) {
  Names names;
  if (fs::is_directory(folder))
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string some_of(Names names) {
  if (names.empty()) return "nothing";
  const size_t left_out = names.size() > kLongestList ? names.size() - kLongestList : 0;
  names.resize(names.size() - left_out);
  return join(names, ", ") + (left_out > 0 ? concat(" and ", left_out, " more") : "");
}

std::optional<std::string> first_word_of(const fs::path& file) {
  if (!fs::is_regular_file(file)) return std::nullopt;
  return strip(read_file(file));
}

bool is_iteration_number(const std::string& text) {
  return !text.empty() && text.size() < 18 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

const std::regex& rank_folder() {
  static const std::regex pattern(R"(mp_rank_(\d{2,6})(_(\d{3,6}))?)");
  return pattern;
}

std::optional<MegatronFormat> format_of(const fs::path& folder) {
  if (fs::is_directory(folder / "zero")) return MegatronFormat::kUniversal;
  for (const std::string& name : names_in(folder)) {
    if (name.starts_with("layer_") || (name.starts_with("mp_rank_") && name.ends_with("_model_states.pt")))
      return MegatronFormat::kDeepSpeed;
    if (std::regex_match(name, rank_folder()) && fs::is_directory(folder / name)) return MegatronFormat::kMegatron;
  }
  return std::nullopt;
}

// What the run's own notes name as its newest checkpoint.
std::optional<fs::path> newest_of(const fs::path& input) {
  for (const char* note : {"latest_universal", "latest"})
    if (const auto tag = first_word_of(input / note)) return input / *tag;
  if (const auto iteration = first_word_of(input / "latest_checkpointed_iteration.txt")) {
    if (*iteration == "release") return input / "release";
    if (!is_iteration_number(*iteration))
      throw UserError(concat((input / "latest_checkpointed_iteration.txt").string(),
                             ": expected a number or 'release', found '", *iteration, "'"),
                      ExitCode::kBadData);
    return input / format_printf("iter_%07lld", std::stoll(*iteration));
  }
  return std::nullopt;
}

fs::path checkpoint_folder(const fs::path& input, std::optional<int64_t> step) {
  if (!fs::is_directory(input))
    throw UserError(concat("--input '", input.string(), "' is not a folder"), ExitCode::kMissingInput);
  if (!step && format_of(input)) return input;
  Names candidates;
  if (step) {
    candidates = {format_printf("iter_%07lld", static_cast<long long>(*step)), concat("global_step", *step)};
    for (const std::string& name : candidates)
      if (fs::is_directory(input / name)) return input / name;
  } else if (const auto newest = newest_of(input)) {
    if (fs::is_directory(*newest)) return *newest;
    candidates = {newest->filename()};
  }
  if (!store::list_steps(input).complete.empty())
    throw UserError(
        concat("'", input.string(), "' is a run of Espalier: it needs no import. Give it to --load; `espalier ",
               "checkpoint export-megatron` makes a Megatron checkpoint of it."),
        ExitCode::kUsage);
  throw UserError(
      concat("'", input.string(), "' holds no Megatron or DeepSpeed checkpoint: expected ",
             candidates.empty() ? "latest_checkpointed_iteration.txt, latest, latest_universal, or the files of one "
                                  "checkpoint (mp_rank_*, layer_*)"
                                : join(candidates, " or "),
             ", found ", some_of(names_in(input))),
      ExitCode::kMissingInput);
}

void raise_missing(const fs::path& folder, const Names& missing, const std::string& expected) {
  if (missing.empty()) return;
  throw UserError(concat("checkpoint '", folder.string(), "' is incomplete: expected ", expected, "; missing ",
                         missing.size() == 1 ? "file" : "files", ": ", some_of(missing),
                         ". Copy all of it, from every node that wrote a part."),
                  ExitCode::kMissingInput);
}

// A single odd name must not make millions of ranks of which all files are missing.
void check_size(const MegatronFiles& files, int64_t tensor, int64_t pipeline) {
  constexpr int64_t kMostRanks = 100'000;
  if (tensor > kMostRanks || pipeline > kMostRanks || tensor * pipeline > kMostRanks)
    throw UserError(concat("checkpoint '", files.folder.string(), "': expected at most ", format_count(kMostRanks),
                           " model ranks, found names of ", format_count(tensor), " tensor and ",
                           format_count(pipeline), " pipeline ranks"),
                    ExitCode::kBadData);
}

// ---- Megatron

void find_rank_folders(MegatronFiles& files) {
  std::set<std::pair<int64_t, int64_t>> found;  // pipeline, tensor
  bool has_pipeline = false;
  for (const std::string& name : names_in(files.folder)) {
    std::smatch match;
    if (!std::regex_match(name, match, rank_folder())) continue;
    has_pipeline = has_pipeline || match[3].matched;
    const int64_t tensor = std::stoll(match[1]), pipeline = match[3].matched ? std::stoll(match[3]) : 0;
    found.insert({pipeline, tensor});
    files.tensor = std::max(files.tensor, tensor + 1);
    files.pipeline = std::max(files.pipeline, pipeline + 1);
  }
  check_size(files, files.tensor, files.pipeline);
  Names missing;
  for (int64_t pipeline = 0; pipeline < files.pipeline; ++pipeline)
    for (int64_t tensor = 0; tensor < files.tensor; ++tensor) {
      const std::string name = has_pipeline ? format_printf("mp_rank_%02d_%03d", int(tensor), int(pipeline))
                                            : format_printf("mp_rank_%02d", int(tensor));
      fs::path path = files.folder / name / "model_optim_rng.pt";
      if (!fs::is_regular_file(path)) {
        // Checkpoints of Megatron's distributed optimizer keep the weights under the same name in newer releases, and
        // under model_rng.pt in one of them.
        if (fs::is_regular_file(files.folder / name / "model_rng.pt"))
          path = files.folder / name / "model_rng.pt";
        else
          missing.push_back(name + "/model_optim_rng.pt");
      }
      files.ranks.push_back(path);
    }
  raise_missing(files.folder, missing,
                concat("tensor ranks 0 to ", files.tensor - 1, " of pipeline ranks 0 to ", files.pipeline - 1));
}

// ---- DeepSpeed

struct OptimizerName {
  int64_t data, model;
  bool operator<(const OptimizerName& other) const { return std::tie(model, data) < std::tie(other.model, other.data); }
};

void find_deepspeed_files(MegatronFiles& files) {
  static const std::regex layer_name(R"(layer_(\d{2,6})-model_(\d{2,6})-model_states\.pt)");
  static const std::regex rank_name(R"(mp_rank_(\d{2,6})_model_states\.pt)");
  static const std::regex optimizer_name(R"((bf16_|fp16_)?zero_pp_rank_(\d{1,6})_mp_rank_(\d{2,6})_optim_states\.pt)");
  std::map<std::pair<int64_t, int64_t>, fs::path> layers;
  std::map<OptimizerName, fs::path> optimizer;
  std::map<int64_t, fs::path> ranks;
  int64_t model_ranks = 1, data = 0;
  for (const std::string& name : names_in(files.folder)) {
    std::smatch match;
    const fs::path path = files.folder / name;
    if (std::regex_match(name, match, layer_name)) {
      layers[{std::stoll(match[1]), std::stoll(match[2])}] = path;
      files.tensor = std::max<int64_t>(files.tensor, std::stoll(match[2]) + 1);
    } else if (std::regex_match(name, match, rank_name)) {
      ranks[std::stoll(match[1])] = path;
      model_ranks = std::max<int64_t>(model_ranks, std::stoll(match[1]) + 1);
    } else if (std::regex_match(name, match, optimizer_name)) {
      optimizer[{std::stoll(match[2]), std::stoll(match[3])}] = path;
      model_ranks = std::max<int64_t>(model_ranks, std::stoll(match[3]) + 1);
      data = std::max<int64_t>(data, std::stoll(match[2]) + 1);
    }
  }
  if (layers.empty())
    throw UserError(concat("checkpoint '", files.folder.string(),
                           "': expected layer_*-model_*-model_states.pt (a model "
                           "that DeepSpeed's pipeline engine saved), found ",
                           some_of(names_in(files.folder))),
                    ExitCode::kBadData);
  Names missing;
  for (const auto& [key, path] : layers) {
    auto& of_layer = files.layers[key.first];
    of_layer.resize(static_cast<size_t>(files.tensor));
    of_layer[static_cast<size_t>(key.second)] = path;
  }
  for (const auto& [number, of_layer] : files.layers)
    for (size_t tensor = 0; tensor < of_layer.size(); ++tensor)
      if (of_layer[tensor].empty())
        missing.push_back(format_printf("layer_%02d-model_%02d-model_states.pt", int(number), int(tensor)));
  files.pipeline = (model_ranks + files.tensor - 1) / files.tensor;
  check_size(files, files.tensor, files.pipeline);
  check_size(files, data, 1);
  model_ranks = files.pipeline * files.tensor;
  files.data = std::max<int64_t>(data, 1);
  for (int64_t rank = 0; rank < model_ranks; ++rank) {
    if (!ranks.contains(rank)) missing.push_back(format_printf("mp_rank_%02d_model_states.pt", int(rank)));
    files.ranks.push_back(ranks[rank]);
    if (optimizer.empty()) continue;
    files.optimizer.emplace_back();
    const std::string prefix = optimizer.begin()->second.filename().string().starts_with("bf16_") ? "bf16_" : "";
    for (int64_t at = 0; at < data; ++at) {
      const auto found = optimizer.find({at, rank});
      if (found == optimizer.end())
        missing.push_back(
            format_printf("%szero_pp_rank_%d_mp_rank_%02d_optim_states.pt", prefix.c_str(), int(at), int(rank)));
      files.optimizer.back().push_back(found == optimizer.end() ? fs::path() : found->second);
    }
  }
  raise_missing(files.folder, missing,
                concat("tensor-parallel size ", files.tensor, ", pipeline-parallel size ", files.pipeline,
                       optimizer.empty() ? "" : concat(", data-parallel size ", data)));
}

// ---- universal

void find_universal_files(MegatronFiles& files) {
  static const std::regex rank_name(R"(mp_rank_(\d{2,6})_model_states\.pt)");
  for (const std::string& name : names_in(files.folder)) {
    if (std::regex_match(name, rank_name)) files.ranks.push_back(files.folder / name);
  }
  Names missing;
  for (const std::string& name : names_in(files.folder / "zero")) {
    const fs::path folder = files.folder / "zero" / name;
    if (!fs::is_directory(folder)) continue;
    auto& kinds = files.parameters[name];
    for (const char* kind : {"fp32", "exp_avg", "exp_avg_sq"}) {
      kinds[kind] = folder / (std::string(kind) + ".pt");
      if (!fs::is_regular_file(kinds[kind])) missing.push_back("zero/" + name + "/" + kind + ".pt");
    }
    if (fs::is_regular_file(folder / "step.pt")) kinds["step"] = folder / "step.pt";
  }
  if (files.ranks.empty()) missing.push_back("mp_rank_00_model_states.pt");
  raise_missing(files.folder, missing, "fp32.pt, exp_avg.pt and exp_avg_sq.pt of every parameter");
}

}  // namespace

MegatronFiles find_megatron_files(const fs::path& input, std::optional<int64_t> step) {
  MegatronFiles files;
  files.folder = checkpoint_folder(input, step);
  const auto format = format_of(files.folder);
  if (!format)
    throw UserError(concat("'", files.folder.string(),
                           "' holds no Megatron or DeepSpeed checkpoint: expected mp_rank_*, "
                           "layer_* or zero/, found ",
                           some_of(names_in(files.folder))),
                    ExitCode::kMissingInput);
  files.format = *format;
  switch (files.format) {
    case MegatronFormat::kMegatron: find_rank_folders(files); break;
    case MegatronFormat::kDeepSpeed: find_deepspeed_files(files); break;
    case MegatronFormat::kUniversal: find_universal_files(files); break;
  }
  return files;
}

}  // namespace espalier::convert
