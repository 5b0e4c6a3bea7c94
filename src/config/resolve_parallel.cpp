// Cross-checks of the grid: what each axis divides, the pipeline's schedule and partition, the stage of ZeRO.
#include <algorithm>
#include <numeric>

#include "base/thread_pool.h"
#include "config/family.h"
#include "config/internal/resolver.h"
#include "plan/partition.h"

namespace espalier::config {
namespace internal {

void Resolver::resolve_grid() {
  spec::GridShape& grid = config_.grid;
  const int64_t one_copy = grid.tensor * grid.context * grid.pipeline;
  const int64_t ranks = config_.num_ranks.value_or(one_copy);
  if (ranks % one_copy != 0)
    problems_.add(ranks, " processes cannot be divided into copies of the model of ", one_copy, " (tensor ",
                  grid.tensor, " * context ", grid.context, " * pipeline ", grid.pipeline, "); use ",
                  multiples_near(ranks, one_copy));
  grid.data = std::max<int64_t>(1, ranks / one_copy);
  check_sequence_division();
}

void Resolver::check_sequence_division() {
  const spec::GridShape& grid = config_.grid;
  const int64_t length = config_.data.sequence_length;
  if (length % grid.context != 0)
    problems_.add(origin("--context-parallel-size"), " does not divide the sequence length ", length, "; use ",
                  divisors_near(grid.context, length));
  else if (config_.parallel.sequence_parallel && length / grid.context % grid.tensor != 0)
    problems_.add("--sequence-parallel: ", origin("--tensor-model-parallel-size"), " does not divide the ",
                  length / grid.context, " tokens of a context rank; use a tensor-parallel size of ",
                  divisors_near(grid.tensor, length / grid.context), ", a sequence length of ",
                  multiples_near(length, grid.tensor * grid.context), ", or leave --sequence-parallel out");
}

void Resolver::resolve_pipeline() {
  ParallelConfig& parallel = config_.parallel;
  const int64_t layers = num_layers(), stages = config_.grid.pipeline;
  parallel.num_chunks = 1;
  parallel.pipeline_schedule = ScheduleKind::k1F1B;
  if (layers == 0) return;  // --num-layers is missing
  const bool by_family = config_.family->partition_method != nullptr;
  if (layers < stages) {
    if (by_family) return;
    problems_.add(origin("--pipeline-model-parallel-size"), " is more than ", origin("--num-layers"), "; use at most ",
                  layers);
    return;
  }
  if (parallel.no_pipeline_parallel && stages > 1)
    problems_.add("--no-pipeline-parallel and ", origin("--pipeline-model-parallel-size"),
                  " are mutually exclusive; leave one out");
  if (parallel.num_layers_per_virtual_pipeline_stage && !by_family) check_chunks();
  if (parallel.enable_zbh1_pipeline) {
    if (parallel.num_chunks > 1)
      problems_.add("--enable-zbh1-pipeline has one chunk per stage and cannot be combined with ",
                    origin("--num-layers-per-virtual-pipeline-stage"), "; give one of the two");
    else
      parallel.pipeline_schedule = ScheduleKind::kZeroBubble;
  }
  check_partition();
}

void Resolver::check_chunks() {
  const char* name = "--num-layers-per-virtual-pipeline-stage";
  const int64_t chunk = *config_.parallel.num_layers_per_virtual_pipeline_stage;
  const int64_t layers = num_layers(), stages = config_.grid.pipeline;
  if (stages == 1) {
    problems_.add(origin(name), " needs a --pipeline-model-parallel-size of 2 or more; leave it out");
  } else if (layers % stages != 0) {
    problems_.add(origin(name), ": ", origin("--num-layers"), " is not a multiple of the ", stages,
                  " pipeline stages, and the parts of an interleaved pipeline are equal; use ",
                  multiples_near(layers, stages), " layers, or ", divisors_near(stages, layers),
                  " stages, or leave it out");
  } else if (layers / stages % chunk != 0) {
    problems_.add(origin(name), " does not divide the ", layers / stages, " layers of a stage; use ",
                  divisors_near(chunk, layers / stages));
  } else {
    config_.parallel.num_chunks = layers / stages / chunk;
    if (config_.parallel.num_chunks > 1) config_.parallel.pipeline_schedule = ScheduleKind::kInterleaved;
  }
}

void Resolver::check_partition() {
  plan::PartitionRequest request{.method = partition_method(config_),
                                 .num_layers = num_layers(),
                                 .num_stages = config_.grid.pipeline,
                                 .num_chunks = config_.parallel.num_chunks,
                                 .weights = {},
                                 .method_origin = origin("--pp-partition-method")};
  if (request.method == "parameters") {
    // Without the tokenizer's size make_partition(config) checks it when the model is created.
    if (!config_.tokenizer.pad_vocab_size_to || !has_model()) return;
    RunConfig run = config_;
    set_vocabulary(run, *config_.tokenizer.pad_vocab_size_to);
    request.weights = plan::part_weights(model_spec(run));
  }
  plan::make_partition(request, problems_);
}

void Resolver::resolve_zero() {
  ParallelConfig& parallel = config_.parallel;
  const std::optional<int64_t> given_stage = parallel.zero_stage_option;
  if (parallel.use_distributed_optimizer && given_stage == 0 && !parallel.deepspeed)
    problems_.add("--use-distributed-optimizer means --zero-stage 1, not ", origin("--zero-stage"), "; give one");
  const bool one_by_default = parallel.use_distributed_optimizer || parallel.deepspeed;
  parallel.zero_stage = given_stage.value_or(one_by_default ? 1 : 0);
  parallel.zero_reason.clear();
  if (parallel.zero_stage_is_chosen)
    parallel.zero_reason =
        concat("the ", config_.grid.data * config_.grid.context,
               " replicas on this machine divide the optimizer's state and its work (--zero-stage 0: "
               "each holds and updates all of it)");
  if (parallel.deepspeed && given_stage == 0 && config_.training.bf16) {
    parallel.zero_stage = 1;
    parallel.zero_reason =
        "--zero-stage 0 under --deepspeed with --bf16 is read as 1: DeepSpeed's bf16 optimizer divides its state over "
        "data-parallel ranks, but not its fp32 gradients";
  }
  if (parallel.zero_stage >= 2 && config_.grid.pipeline > 1)
    problems_.add(origin("--zero-stage"), " needs one pipeline stage, and ", origin("--pipeline-model-parallel-size"),
                  "; use --zero-stage 1, or --pipeline-model-parallel-size 1");
  if (parallel.grad_reduce_in_bf16) {
    if (given("--grad-reduce-type") && parallel.grad_reduce_type != GradReduceType::kBf16)
      problems_.add("--grad-reduce-in-bf16 and ", origin("--grad-reduce-type"), " are mutually exclusive; give one");
    parallel.grad_reduce_type = GradReduceType::kBf16;
    parallel.grad_reduce_in_bf16 = false;
  }
  // NVIDIA's flag takes the other one back by itself.
  if (given("--grad-reduce-type") && parallel.grad_reduce_type == GradReduceType::kBf16 &&
      given("--accumulate-allreduce-grads-in-fp32"))
    problems_.add("--accumulate-allreduce-grads-in-fp32 and ", origin("--grad-reduce-type"),
                  " are mutually exclusive; give one");
}

// What adds the gradients of several micro-batches before anybody can tell them apart, or rounds sums of some of them.
void Resolver::check_canonical() {
  const ParallelConfig& parallel = config_.parallel;
  if (!parallel.canonical_reduction) return;
  if (parallel.num_chunks > 1)
    problems_.add("--canonical-reduction needs stages of one part, and ",
                  origin("--num-layers-per-virtual-pipeline-stage"), " divides them; leave one out");
  if (parallel.pipeline_schedule == ScheduleKind::kZeroBubble)
    problems_.add(
        "--canonical-reduction needs the gradients of one micro-batch after another, and "
        "--enable-zbh1-pipeline puts some of them off; leave one out");
  if (parallel.grad_reduce_type == GradReduceType::kBf16)
    problems_.add(
        "--canonical-reduction needs sums that are not rounded on their way: --grad-reduce-type fp32 instead "
        "of bf16");
  if (parallel.device == Device::kCuda)
    problems_.add("--canonical-reduction is of runs on the CPU, and ", origin("--device"), " is not; leave one out");
}

}  // namespace internal

void check_runnable(const RunConfig& config, const OptionTable& table, Problems& problems) {
  if (const std::string why = why_too_many_threads(config.training.num_threads.value_or(1)); !why.empty())
    problems.add(table.origin("--num-threads"), why);
  const spec::GridShape& grid = config.grid;
  const int64_t one_copy = grid.tensor * grid.context * grid.pipeline;
  if (config.num_ranks || one_copy == 1) return;
  problems.add("one process was started, but one copy of the model needs ", one_copy, " (tensor ", grid.tensor,
               " * context ", grid.context, " * pipeline ", grid.pipeline, "): start them with `espalier launch ",
               "--nproc-per-node ", one_copy, " train ", config.family->name,
               " ...`, or with torchrun, srun or mpirun");
}

}  // namespace espalier::config
