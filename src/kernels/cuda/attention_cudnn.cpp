#include "kernels/cuda/attention_cudnn.h"

#include "base/error.h"
#include "kernels/cuda/sdpa.h"
#include "spec/attention_backend.h"

namespace espalier::cuda {
namespace {

using kernels::AttentionGradients;
using kernels::AttentionOperand;
using kernels::AttentionProblem;
using kernels::AttentionType;

// A head of keys of its own for each head of queries: heads are heads. Else groups of heads lie at a distance of their
// own, which no stride of heads describes; but rows of the batch follow each other group by group, so that every group
// is a row.
bool groups_are_rows(const AttentionProblem& problem) { return problem.members > 1; }

SdpaOperand operand_of(const AttentionProblem& problem, const AttentionOperand& operand) {
  if (!groups_are_rows(problem))
    return {operand.data, operand.row_stride, operand.group_stride, operand.position_stride};
  ESPALIER_CHECK(problem.batch == 1 || operand.row_stride == problem.groups * operand.group_stride, "rows at ",
                 operand.row_stride, " of ", problem.groups, " groups at ", operand.group_stride);
  // A single head may have any distance to the next; cuDNN wants one that is not 0.
  const int64_t head_stride = operand.member_stride != 0 ? operand.member_stride : problem.head_size;
  return {operand.data, operand.group_stride, head_stride, operand.position_stride};
}

// Config has refused such runs (config/resolve.cpp and the family's own): another one that comes here is a bug.
void check(const AttentionProblem& problem) {
  ESPALIER_CHECK(problem.type != AttentionType::kFloat, "cuDNN's attention in fp32");
  ESPALIER_CHECK(problem.head_size % spec::kCudnnChannelMultiple == 0 && problem.head_size <= spec::kMostCudnnChannels,
                 "cuDNN's attention with heads of ", problem.head_size);
  ESPALIER_CHECK(problem.first_key == nullptr && problem.last_key == nullptr && problem.cache_lengths == nullptr &&
                     problem.window == 0,
                 "cuDNN's attention with other masks than causal and full");
  ESPALIER_CHECK(problem.slopes == nullptr && problem.relative_bias == nullptr && problem.soft_cap == 0,
                 "cuDNN's attention with a bias or a cap of scores");
  ESPALIER_CHECK(!problem.dropout && problem.max_logits == nullptr, "cuDNN's attention with dropout or maxima");
}

Sdpa sdpa_of(const AttentionProblem& problem) {
  check(problem);
  const bool are_rows = groups_are_rows(problem);
  return {.type = problem.type,
          .batch = are_rows ? problem.batch * problem.groups : problem.batch,
          .query_heads = are_rows ? problem.members : problem.groups,
          .key_heads = are_rows ? 1 : problem.groups,
          .num_queries = problem.num_queries,
          .num_keys = problem.num_keys,
          .head_size = problem.head_size,
          .causal = problem.causal,
          .scale = problem.scale,
          .query = operand_of(problem, problem.query),
          .key = operand_of(problem, problem.key),
          .value = operand_of(problem, problem.value),
          .result = operand_of(problem, problem.result),
          .log_sum_exp = problem.log_sum_exp};
}

}  // namespace

void attention_forward_cudnn(const AttentionProblem& problem) { sdpa_forward(sdpa_of(problem)); }

void attention_backward_cudnn(const AttentionProblem& problem, const AttentionGradients& gradients) {
  ESPALIER_CHECK(gradients.relative_bias == nullptr, "the gradient of a bias by cuDNN");
  sdpa_backward(sdpa_of(problem), {.result = operand_of(problem, gradients.result),
                                   .query = operand_of(problem, gradients.query),
                                   .key = operand_of(problem, gradients.key),
                                   .value = operand_of(problem, gradients.value)});
}

}  // namespace espalier::cuda
