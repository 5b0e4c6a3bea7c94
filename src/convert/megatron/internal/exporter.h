// export_megatron, taken apart: what the formats share (megatron_export.cpp), and a file for each format.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/progress.h"
#include "convert/internal/step_tensors.h"
#include "convert/megatron/arguments.h"
#include "convert/megatron/export.h"
#include "convert/megatron/merge.h"
#include "spec/model_spec.h"
#include "store/run_folder.h"
#include "store/torch_value.h"

namespace espalier::convert {

// A parameter of one model rank.
struct RankParam {
  const spec::ParamSpec* spec;
  std::string name;  // in the files of the format
};

inline store::TorchValue text(const std::string& value) { return store::TorchValue::string(value); }
inline store::TorchValue number(int64_t value) { return store::TorchValue::integer(value); }
inline void put(store::TorchPairs& pairs, const std::string& key, store::TorchValue value) {
  pairs.emplace_back(text(key), std::move(value));
}

class MegatronExporter {
 public:
  explicit MegatronExporter(const MegatronExport& request);
  MegatronExportReport run();

 private:
  using RankParams = std::vector<RankParam>;

  const store::Manifest& manifest() const { return tensors_.manifest(); }
  bool is_fp32() const { return config_.training.precision == plan::Precision::kFp32; }
  void check_layout() const;

  // What a tensor rank has of a tensor.
  store::TorchValue tensor_of(const spec::ParamSpec& spec, TensorKind kind, int64_t tensor_rank);
  store::TorchValue step_tensor();  // torch's own Adam keeps its count with every parameter
  store::TorchValue scheduler() const;
  std::optional<plan::LrSchedule> schedule_now() const;  // at the step after this checkpoint
  store::TorchValue param_group(const store::TorchItems& numbers, bool decays) const;
  // A torch optimizer with tensors for each parameter.
  store::TorchValue adam_state(const std::vector<RankParams>& groups, int64_t tensor_rank);
  void put_run(store::TorchPairs& root) const;  // what both formats keep of the run

  int64_t layers_per_stage() const { return model_.num_layers() / request_.pipeline; }
  bool is_of_stage(const spec::ParamSpec& spec, int64_t stage) const;
  bool has_embedding_copy(int64_t stage) const;
  // In the order of the optimizer: the decaying ones as two halves (Megatron-DeepSpeed), then biases and norms.
  static std::vector<RankParams> groups_of(const RankParams& params);
  void write(const std::filesystem::path& path, const store::TorchValue& root);

  void write_megatron();
  // Its parameters in the order of the module.
  store::TorchValue megatron_module(int64_t stage, int64_t rank, RankParams& params);
  const spec::ParamSpec& word_embedding() const;
  store::TorchValue megatron_optimizer(const RankParams& params, int64_t rank);

  void write_deepspeed();
  int64_t layer_number(const spec::ParamSpec& spec) const;
  std::string name_in_layer(const spec::ParamSpec& spec) const;
  std::string pipeline_name(const spec::ParamSpec& spec) const;
  RankParams pipeline_params(int64_t stage) const;
  void write_model_rank(int64_t stage, int64_t rank);
  // What a data rank has of the flat groups, each padded to a multiple of twice the number of data ranks.
  store::TorchValue partition(const std::vector<RankParams>& groups, int64_t rank, int64_t data);

  MegatronExport request_;
  store::StepEntry entry_;
  StepTensors tensors_;
  config::RunConfig config_;
  OptionTable table_;
  const MegatronCodec* codec_ = nullptr;
  MegatronShape shape_;
  spec::ModelSpec model_;
  RowOrder order_;
  bool has_optimizer_ = false;
  float step_ = 0, loss_scale_ = 1;  // what small tensors point to
  std::unique_ptr<Progress> progress_;
  MegatronExportReport report_;
};

}  // namespace espalier::convert
