#include "kernels/cuda/sdpa_plan.h"

#include <cudnn_frontend.h>

#include <unordered_map>

#include "base/error.h"

namespace espalier::cuda {
namespace {

namespace graph = cudnn_frontend::graph;

// Names of the tensors, by which a run gives their addresses.
enum Id : int64_t { kQuery = 1, kKey, kValue, kResult, kLogSumExp, kGradResult, kGradQuery, kGradKey, kGradValue };

using Tensor = std::shared_ptr<graph::Tensor_attributes>;

struct Dims {
  int64_t batch, heads, positions, head_size;
};

graph::Tensor_attributes& describe(graph::Tensor_attributes& tensor, Id id, const Dims& dims,
                                   const SdpaOperand& operand) {
  return tensor.set_uid(id)
      .set_dim({dims.batch, dims.heads, dims.positions, dims.head_size})
      .set_stride({operand.batch_stride, operand.head_stride, operand.position_stride, 1});
}

Tensor input(graph::Graph& of, Id id, const Dims& dims, const SdpaOperand& operand) {
  graph::Tensor_attributes tensor;
  return of.tensor(describe(tensor, id, dims, operand));
}

void describe_output(const Tensor& output, Id id, const Dims& dims, const SdpaOperand& operand) {
  describe(output->set_output(true), id, dims, operand);
}

graph::Tensor_attributes& describe_log_sum_exp(graph::Tensor_attributes& tensor, const Sdpa& sdpa) {
  return tensor.set_uid(kLogSumExp)
      .set_data_type(cudnn_frontend::DataType_t::FLOAT)
      .set_dim({sdpa.batch, sdpa.query_heads, sdpa.num_queries, 1})
      .set_stride({sdpa.query_heads * sdpa.num_queries, sdpa.num_queries, 1, 1});
}

template <class Attributes>
Attributes attributes_of(const Sdpa& sdpa) {
  Attributes attributes;
  attributes.set_name("attention").set_attn_scale(sdpa.scale);
  if (sdpa.causal)
    attributes.set_diagonal_alignment(cudnn_frontend::DiagonalAlignment_t::TOP_LEFT).set_diagonal_band_right_bound(0);
  return attributes;
}

std::string description(const Sdpa& sdpa, bool backward) {
  return concat(backward ? "the backward" : "the forward", " pass of ", sdpa.causal ? "causal" : "full",
                " attention in ", sdpa.type == kernels::AttentionType::kBFloat16 ? "bf16" : "fp16", ", ",
                sdpa.num_queries, " queries and ", sdpa.num_keys, " keys, heads of ", sdpa.head_size, " channels, ",
                sdpa.query_heads / sdpa.key_heads, " of queries to one of keys");
}

// What cuDNN says of all of its engines is many lines.
std::string reason_of(cudnn_frontend::error_object error) {
  constexpr size_t kMost = 500;
  if (error.get_message().find("PREREQUISITE_MISSING") != std::string::npos)
    return "it compiles its kernels with libnvrtc.so.13, which was not found; 'scripts/setup --cuda' installs it";
  return error.get_message().substr(0, kMost);
}

}  // namespace

struct SdpaPlan::Graph : graph::Graph {};

namespace {

void add_forward(graph::Graph& to, const Sdpa& sdpa, const Tensor& query, const Tensor& key, const Tensor& value) {
  auto attributes = attributes_of<graph::SDPA_attributes>(sdpa);
  attributes.set_generate_stats(sdpa.log_sum_exp != nullptr);
  const auto [result, log_sum_exp] = to.sdpa(query, key, value, attributes);
  describe_output(result, kResult, {sdpa.batch, sdpa.query_heads, sdpa.num_queries, sdpa.head_size}, sdpa.result);
  if (sdpa.log_sum_exp != nullptr) describe_log_sum_exp(log_sum_exp->set_output(true), sdpa);
}

void add_backward(graph::Graph& to, const Sdpa& sdpa, const SdpaGradients& gradients, const Tensor& query,
                  const Tensor& key, const Tensor& value) {
  const Dims queries{sdpa.batch, sdpa.query_heads, sdpa.num_queries, sdpa.head_size};
  const Dims keys{sdpa.batch, sdpa.key_heads, sdpa.num_keys, sdpa.head_size};
  const Tensor result = input(to, kResult, queries, sdpa.result);
  const Tensor d_result = input(to, kGradResult, queries, gradients.result);
  graph::Tensor_attributes log_sum_exp_attributes;
  const Tensor log_sum_exp = to.tensor(describe_log_sum_exp(log_sum_exp_attributes, sdpa));
  auto attributes = attributes_of<graph::SDPA_backward_attributes>(sdpa);
  attributes.set_deterministic_algorithm(true);
  const auto [d_query, d_key, d_value] = to.sdpa_backward(query, key, value, result, d_result, log_sum_exp, attributes);
  describe_output(d_query, kGradQuery, queries, gradients.query);
  describe_output(d_key, kGradKey, keys, gradients.key);
  describe_output(d_value, kGradValue, keys, gradients.value);
}

}  // namespace

SdpaPlan::SdpaPlan(const Sdpa& like, const SdpaGradients* gradients, const SdpaDevice& device)
    : graph_(std::make_unique<Graph>()) {
  const auto check = [&](const cudnn_frontend::error_object& error) {
    if (error.is_good()) return;
    throw UserError(concat("cuDNN ", cudnn_frontend::detail::get_backend_version_string(), " does not compute ",
                           description(like, gradients != nullptr), ": ", reason_of(error),
                           ". --attention-backend flash does."));
  };
  graph_
      ->set_io_data_type(like.type == kernels::AttentionType::kBFloat16 ? cudnn_frontend::DataType_t::BFLOAT16
                                                                        : cudnn_frontend::DataType_t::HALF)
      .set_intermediate_data_type(cudnn_frontend::DataType_t::FLOAT)
      .set_compute_data_type(cudnn_frontend::DataType_t::FLOAT)
      .set_sm_version(static_cast<int32_t>(device.capability));
  if (device.handle == nullptr) {
    const auto properties = std::make_shared<cudnn_frontend::DeviceProperties>();
    std::vector<uint8_t> text(device.properties.begin(), device.properties.end());
    text.push_back(0);
    check(properties->deserialize(text));
    graph_->set_device_properties(properties);
  }
  const Dims queries{like.batch, like.query_heads, like.num_queries, like.head_size};
  const Dims keys{like.batch, like.key_heads, like.num_keys, like.head_size};
  const Tensor query = input(*graph_, kQuery, queries, like.query);
  const Tensor key = input(*graph_, kKey, keys, like.key);
  const Tensor value = input(*graph_, kValue, keys, like.value);
  if (gradients == nullptr)
    add_forward(*graph_, like, query, key, value);
  else
    add_backward(*graph_, like, *gradients, query, key, value);
  check(graph_->validate());
  check(device.handle != nullptr ? graph_->build_operation_graph(device.handle) : graph_->build_operation_graph());
  check(graph_->create_execution_plans({cudnn_frontend::HeurMode_t::A}));
  check(graph_->check_support());
  check(graph_->build_plans());
}

SdpaPlan::~SdpaPlan() = default;

int64_t SdpaPlan::workspace_bytes() const { return graph_->get_workspace_size(); }

void SdpaPlan::run(cudnnContext* handle, const Sdpa& sdpa, const SdpaGradients* gradients, void* workspace) const {
  std::unordered_map<int64_t, void*> addresses = {
      {kQuery, sdpa.query.data}, {kKey, sdpa.key.data}, {kValue, sdpa.value.data}, {kResult, sdpa.result.data}};
  if (sdpa.log_sum_exp != nullptr) addresses[kLogSumExp] = sdpa.log_sum_exp;
  if (gradients != nullptr) {
    addresses[kGradResult] = gradients->result.data;
    addresses[kGradQuery] = gradients->query.data;
    addresses[kGradKey] = gradients->key.data;
    addresses[kGradValue] = gradients->value.data;
  }
  cudnn_frontend::error_object error = graph_->execute(handle, addresses, workspace);
  ESPALIER_CHECK(error.is_good(), "cuDNN: ", description(sdpa, gradients != nullptr), ": ", error.get_message());
}

}  // namespace espalier::cuda
