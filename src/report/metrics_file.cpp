#include "report/metrics_file.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "report/log_line.h"

namespace espalier::report {
namespace {

using OrderedJson = nlohmann::ordered_json;

std::string key_of(std::string name) {  // "lm loss" -> "lm_loss"
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

template <class T>
void set_if(OrderedJson& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& run_folder) : file_(run_folder / "metrics.jsonl") {}

void MetricsFile::step(const StepReport& report) { file_.append(step_record(report) + "\n"); }

std::string step_record(const StepReport& report) {
  const double tokens = static_cast<double>(report.global_batch_size * report.sequence_length);
  OrderedJson json = {{"step", report.step},
                      {"consumed_samples", report.consumed_samples},
                      {"consumed_tokens", report.consumed_tokens}};
  for (const NamedLoss& loss : report.losses) {
    json[key_of(loss.name)] = loss.value;
    if (loss.by_source.size() < 2) continue;
    for (const NamedLoss::BySource& source : loss.by_source)
      json[key_of(loss.name) + "_by_data_set"][source.source] = source.value;
  }
  set_if(json, "grad_norm", report.grad_norm);
  set_if(json, "num_zeros", report.num_zeros);
  set_if(json, "params_norm", report.params_norm);
  set_if(json, "curriculum_seqlen", report.curriculum_length);
  set_if(json, "max_attention_logit", report.max_attention_logit);
  json["learning_rate"] = report.learning_rate;
  json["lr_phase"] = report.lr_phase;
  set_if(json, "weight_decay", report.weight_decay);
  json["global_batch_size"] = report.global_batch_size;
  set_if(json, "loss_scale", report.loss_scale);
  json["skipped"] = report.skipped;
  if (!report.objection.empty()) json["skipped_because"] = report.objection;
  json["nan"] = report.nan;
  json["step_seconds"] = report.step_seconds;
  json["tokens_per_second"] = tokens / report.step_seconds;
  json["tflops"] = report.model_flops / report.step_seconds / 1e12;
  json["hardware_tflops"] = report.hardware_flops / report.step_seconds / 1e12;
  if (report.gpu_memory) {
    json["gpu_memory_allocated"] = report.gpu_memory->allocated;
    json["gpu_memory_peak"] = report.gpu_memory->peak_allocated;
    json["gpu_memory_reserved"] = report.gpu_memory->reserved;
  }
  json["sample_hash"] = hex64(report.sample_hash);
  return json.dump();
}

void MetricsFile::evaluation(int64_t step, const std::string& kind, const std::vector<SetLosses>& sets, bool at_end) {
  OrderedJson json = {{"step", step}};
  if (at_end) json["end"] = true;
  for (const SetLosses& set : sets)
    for (const NamedLoss& loss : set.losses) {
      json[kind][set.name][key_of(loss.name)] = loss.value;
      if (&loss == set.losses.data() && !loss.is_measure) json[kind][set.name]["ppl"] = perplexity(loss.value);
      if (loss.bits_per_byte) json[kind][set.name]["bits_per_byte"] = *loss.bits_per_byte;
    }
  file_.append(json.dump() + "\n");
}

void MetricsFile::tasks(int64_t step, const std::vector<TaskFigure>& figures) {
  OrderedJson json = {{"step", step}};
  for (const TaskFigure& figure : figures) json["tasks"][figure.task][figure.metric] = figure.value;
  file_.append(json.dump() + "\n");
}

bool has_last_evaluation(const std::filesystem::path& run_folder, int64_t step, const std::string& kind) {
  std::ifstream file(run_folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    if (line.find("\"" + kind + "\"") == std::string::npos) continue;
    const OrderedJson json = OrderedJson::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains(kind)) continue;
    if (json.value("step", int64_t{-1}) == step && json.value("end", false)) return true;
  }
  return false;
}

}  // namespace espalier::report
