#include "convert/megatron/import.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/format.h"
#include "base/progress.h"
#include "convert/megatron/arguments.h"
#include "convert/megatron/internal/read.h"
#include "convert/model_config.h"
#include "store/run_folder.h"
#include "store/step_writer.h"
#include "text/tokenizer.h"

namespace espalier::convert {
namespace {

namespace fs = std::filesystem;
using store::DType;

constexpr int64_t kPieceElements = int64_t{1} << 20;

DType type_of(plan::Precision precision) {
  switch (precision) {
    case plan::Precision::kBf16: return DType::kBFloat16;
    case plan::Precision::kFp16: return DType::kFloat16;
    case plan::Precision::kFp32: break;
  }
  return DType::kFloat32;
}

int64_t padded_rows(const MegatronCheckpoint& checkpoint) {
  if (!checkpoint.args.is_none())
    if (const store::TorchValue* rows = checkpoint.args.find("padded_vocab_size"); rows != nullptr && !rows->is_none())
      return rows->as_int(checkpoint.files.ranks[0].string() + ": args.padded_vocab_size");
  for (const MegatronShard& shard : checkpoint.shards)
    if (is_word_embedding(shard.param) && shard.has_shape && shard.view.shape.size() == 2)
      return shard.view.shape[0] * shard.place.size;
  throw UserError(concat(checkpoint.files.folder.string(), ": no word embedding among its tensors"),
                  ExitCode::kBadData);
}

// In fp32 the weights are the master weights.
std::vector<TensorKind> kinds_of(const MegatronCheckpoint& checkpoint, DType dtype) {
  if (!checkpoint.has_optimizer) return {TensorKind::kWeight};
  if (dtype == DType::kFloat32) return {TensorKind::kWeight, TensorKind::kExpAvg, TensorKind::kExpAvgSq};
  return {TensorKind::kWeight, TensorKind::kMaster, TensorKind::kExpAvg, TensorKind::kExpAvgSq};
}

// The files of the tokenizer, where the machine has them.
std::vector<store::ExtraFile> tokenizer_files(const config::RunConfig& config, MegatronImportReport& report) {
  const text::TokenizerOptions options = config.tokenizer;
  for (const std::string& file : text::files_of(options))
    if (!fs::exists(file)) {
      report.remarks.push_back(concat("the tokenizer's ", file,
                                      " is not here: the checkpoint has no tokenizer, which "
                                      "generate needs. Give its files after --, as in -- --vocab-file FILE"));
      return {};
    }
  std::vector<store::ExtraFile> files;
  try {
    for (const auto& [name, path] : text::load_tokenizer(options)->files())
      files.push_back({"tokenizer/" + name, read_file(path)});
  } catch (const UserError& error) {
    report.remarks.push_back(concat("the checkpoint has no tokenizer: ", error.what()));
    return {};
  }
  return files;
}

// The mean of the copies, which were compared before; in the order of their ranks, in double.
void fill_mean(const MegatronMerge& merge, const MergedTensor& tensor, int64_t begin, int64_t end, DType dtype,
               void* destination) {
  std::vector<double> sum(static_cast<size_t>(end - begin), 0);
  std::vector<float> one(sum.size());
  for (const size_t copy : tensor.copies) {
    merge.fill(copy, begin, end, DType::kFloat32, one.data());
    for (size_t at = 0; at < sum.size(); ++at) sum[at] += one[at];
  }
  for (size_t at = 0; at < sum.size(); ++at)
    one[at] = static_cast<float>(sum[at] / static_cast<double>(tensor.copies.size()));
  copy_elements(DType::kFloat32, one.data(), 1, dtype, destination, 1, end - begin);
}

// Where the optimizer's tensors were assigned to parameters by their order, the weights must be the rounded masters.
void check_assignment(const MegatronMerge& merge, const MegatronCheckpoint& checkpoint, DType dtype) {
  if (!checkpoint.order_is_inferred || dtype == DType::kFloat32) return;
  const std::vector<MergedTensor>& tensors = merge.tensors();
  for (size_t number = 0; number + 1 < tensors.size(); ++number) {
    if (tensors[number].kind != TensorKind::kWeight || tensors[number + 1].kind != TensorKind::kMaster) continue;
    const int64_t count = tensors[number].spec->num_elements();
    int64_t different = 0;
    for (int64_t begin = 0; begin < count; begin += kPieceElements) {
      const int64_t end = std::min(count, begin + kPieceElements);
      std::vector<uint16_t> weight(static_cast<size_t>(end - begin)), master(weight.size());
      merge.fill(tensors[number].copies[0], begin, end, dtype, weight.data());
      merge.fill(tensors[number + 1].copies[0], begin, end, dtype, master.data());
      for (size_t at = 0; at < weight.size(); ++at) different += weight[at] != master[at] ? 1 : 0;
    }
    if (different > 0)
      throw UserError(concat(checkpoint.files.folder.string(), ": ", tensors[number].spec->name,
                             ": expected the optimizer's fp32 copy to round to the ", to_string(dtype),
                             " weight, found ", format_count(different), " of ", format_count(count),
                             " elements that do not: the optimizer's tensors belong to other parameters, or to another "
                             "step. Import the weights alone with --no-load-optim."),
                      ExitCode::kBadData);
  }
}

}  // namespace

MegatronImportReport import_megatron(const MegatronImport& request) {
  MegatronImportReport report;
  report.files = find_megatron_files(request.input, request.step);
  MegatronCheckpoint checkpoint = read_megatron_checkpoint(report.files, request.with_optimizer);
  report.remarks = checkpoint.remarks;
  if (request.with_optimizer && !checkpoint.has_optimizer)
    report.remarks.push_back(
        "the checkpoint has no optimizer state: training can start from its weights (--finetune), but not continue");
  const std::string origin = report.files.ranks[0].string();
  MegatronOptions options = megatron_options(checkpoint.args, origin, request.train_options, *checkpoint.formats);
  const int64_t rows = padded_rows(checkpoint);
  options.config.vocabulary = {.size = checkpoint.original_vocab_size > 0 ? checkpoint.original_vocab_size : rows,
                               .padded_size = rows};
  const spec::ModelSpec model = spec_of(model_of(options.config));
  const std::vector<store::ExtraFile> extra_files = tokenizer_files(options.config, report);
  const DType dtype = type_of(options.config.training.precision);
  const MegatronMerge merge(checkpoint, model.params, kinds_of(checkpoint, dtype),
                            {.version = checkpoint.version,
                             .head_size = checkpoint.formats->megatron.shape(options.config).head_size,
                             .activated_half_last = options.activated_half_last});
  check_assignment(merge, checkpoint, dtype);
  if (checkpoint.order_is_inferred && dtype == DType::kFloat32)
    report.remarks.push_back(
        "the optimizer's moments have no names and were assigned to parameters by their order, each of its parameter's "
        "shape; in fp32 there are no master weights, so nothing else in the files can confirm it");

  store::Manifest manifest;
  manifest.model = {.family = model.family,
                    .compute_type = plan::to_string(options.config.training.precision),
                    .vocab_size = model.vocabulary.size,
                    .padded_vocab_size = model.vocabulary.padded_size,
                    .num_parameters = model.num_parameters()};
  manifest.state = checkpoint.state;
  manifest.state.layout = concat("tp", report.files.tensor, "pp", report.files.pipeline, "dp", report.files.data);
  manifest.config = options.toml;

  std::vector<store::TensorFacts> facts;
  int64_t bytes = 0;
  for (const MergedTensor& tensor : merge.tensors()) {
    for (CopyDifference& difference : merge.differences(tensor)) report.differences.push_back(difference);
    report.num_compared_copies += static_cast<int64_t>(tensor.copies.size()) - 1;
    const bool is_weight = tensor.kind == TensorKind::kWeight;
    const std::string group = model.depths[static_cast<size_t>(tensor.spec->depth)].name;
    facts.push_back({tensor.spec->name + suffix_of(tensor.kind),
                     is_weight ? store::weights_file(group) : store::optimizer_file(group),
                     is_weight ? dtype : DType::kFloat32, tensor.spec->shape});
    bytes += facts.back().num_bytes();
  }
  std::stable_sort(report.differences.begin(), report.differences.end(),
                   [](const CopyDifference& a, const CopyDifference& b) {
                     const bool a_is_nan = std::isnan(a.largest_difference);
                     if (a_is_nan || std::isnan(b.largest_difference))
                       return a_is_nan && !std::isnan(b.largest_difference);
                     return a.largest_difference > b.largest_difference;
                   });

  const store::RunLock lock(request.save);
  store::check_step_is_new(request.save, manifest.state.step);
  store::check_free_space(request.save, bytes, manifest.state.step);
  Progress progress("import", bytes, Progress::Unit::kBytes);
  const auto make = [&](size_t number, int64_t offset, int64_t num_bytes, void* destination) {
    const MergedTensor& tensor = merge.tensors()[number];
    const DType type = facts[number].dtype;
    const int64_t begin = offset / store::size_bytes(type), end = (offset + num_bytes) / store::size_bytes(type);
    if (request.average_copies && tensor.copies.size() > 1)
      fill_mean(merge, tensor, begin, end, type, destination);
    else
      merge.fill(tensor.copies[0], begin, end, type, destination);
    progress.advance(num_bytes);
  };
  store::write_step(request.save, manifest, facts, make, extra_files);
  progress.finish();

  report.family = model.family;
  report.step = manifest.state.step;
  report.step_folder = request.save / store::step_folder_name(report.step);
  report.num_tensors = static_cast<int64_t>(facts.size());
  report.num_parameters = manifest.model.num_parameters;
  report.num_bytes = bytes;
  report.has_optimizer = checkpoint.has_optimizer;
  return report;
}

}  // namespace espalier::convert
