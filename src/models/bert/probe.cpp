#include "models/bert/probe.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/error.h"
#include "models/bert/batch.h"
#include "models/bert/model.h"

namespace espalier::models {
namespace {

NamedTensors bert_inputs(const config::RunConfig& run) {
  const families::BertConfig config = families::bert_config(run);
  const at::Tensor ids = probe_ids(config.max_position_embeddings, config.vocab_size);
  const int64_t length = ids.size(1);
  at::Tensor used = at::ones_like(ids), types = at::zeros_like(ids);
  used.select(0, 1).narrow(0, length - length / 4, length / 4).zero_();
  types.narrow(1, length / 2, length - length / 2).fill_(std::min<int64_t>(config.num_tokentypes - 1, 1));
  NamedTensors inputs = {{"ids", ids}, {"used", used}};
  if (config.num_tokentypes > 0) inputs["types"] = types;
  return inputs;
}

tensor::Batch batch_of_inputs(const NamedTensors& inputs) {
  const at::Tensor &ids = inputs.at("ids"), &used = inputs.at("used");
  const auto types = inputs.find("types");
  tensor::Batch batch;
  batch.ids = ids;
  batch.positions = at::arange(ids.size(1), at::kLong).expand_as(ids).contiguous();
  for (int64_t row = 0; row < ids.size(0); ++row) batch.sample_numbers.push_back(row);
  const at::Tensor last = used.sum(1, /*keepdim=*/true) - 1;
  batch.extra = {{kLastKeys, at::where(used == 1, last, at::full_like(used, -1)).to(at::kInt)},
                 {kTokenTypes, types == inputs.end() ? at::zeros_like(ids) : types->second}};
  return batch;
}

BertModel::Logits logits_of(const nn::LayerBuilder& builder, const families::BertConfig& config,
                            const NamedTensors& inputs) {
  return BertModel(builder, config, {0, config.num_layers + 2}, {}).logits(batch_of_inputs(inputs));
}

NamedTensors bert_outputs(const nn::LayerBuilder& builder, const config::RunConfig& run, const NamedTensors& inputs) {
  const BertModel::Logits logits = logits_of(builder, families::bert_config(run), inputs);
  NamedTensors outputs = {{"logits", logits.words * inputs.at("used").unsqueeze(-1)}};
  if (logits.order.defined()) outputs["order"] = logits.order;
  return outputs;
}

}  // namespace

at::Tensor bert_masked_logits(const nn::LayerBuilder& builder, const config::RunConfig& run, const at::Tensor& ids) {
  const families::BertConfig config = families::bert_config(run);
  if (ids.numel() > config.max_position_embeddings)
    throw UserError(concat("a prompt has ", ids.numel(), " tokens, but the model has learned ",
                           config.max_position_embeddings, " positions; shorten it"),
                    ExitCode::kUsage);
  const at::Tensor row = ids.unsqueeze(0);
  return logits_of(builder, config, {{"ids", row}, {"used", at::ones_like(row)}}).words.squeeze(0);
}

const Probe kBertProbe{.inputs = bert_inputs,
                       .outputs = bert_outputs,
                       .not_reached = [](const config::RunConfig&, int64_t) { return std::vector<std::string>(); }};

}  // namespace espalier::models
