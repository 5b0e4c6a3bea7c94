// The rows of `espalier train` that say how processes share the work.
#include "config/internal/rows.h"

namespace espalier::config::internal {
namespace {

void add_pipeline(OptionTable& table, ParallelConfig& parallel) {
  table
      .add("--num-layers-per-virtual-pipeline-stage", parallel.num_layers_per_virtual_pipeline_stage,
           "layers of one chunk of an interleaved pipeline, in which each stage holds several chunks")
      .minimum(1)
      .maximum(1e4)
      .default_text("one chunk a stage")
      .on_resume(ResumeRule::kFree);
  table
      .add("--pp-partition-method", parallel.pp_partition_method,
           "how layers are divided over stages: uniform, parameters, type:PATTERN|PATTERN or list:N,N,...")
      .default_text("type:transformer")
      .on_resume(ResumeRule::kFree);
  table.add("--no-pipeline-parallel", parallel.no_pipeline_parallel, "require one stage (DeepSpeed)")
      .on_resume(ResumeRule::kFree);
  table
      .add("--enable-zbh1-pipeline", parallel.enable_zbh1_pipeline,
           "ZB-H1 schedule: weight gradients fill the pipeline's bubbles")
      .on_resume(ResumeRule::kFree);
}

void add_replicas(OptionTable& table, ParallelConfig& parallel) {
  table
      .add(
          "--check-replicas", parallel.check_replicas,
          "every N steps compare what must be equal on all ranks; always in the first three steps and before each save")
      .minimum(0)
      .maximum(1e9)
      .on_resume(ResumeRule::kFree);
  table
      .add_choice("--check-replicas-policy", parallel.check_replicas_policy,
                  {{"stop", ReplicaPolicy::kStop}, {"repair", ReplicaPolicy::kRepair}},
                  "after a difference: stop, or copy what most ranks hold to the others and continue")
      .on_resume(ResumeRule::kFree);
}

}  // namespace

void add_distributed(OptionTable& table, spec::GridShape& grid, ParallelConfig& parallel) {
  table.group("distributed");
  table.add("--tensor-model-parallel-size", grid.tensor, "processes that share each layer")
      .minimum(1)
      .maximum(1e6)
      .on_resume(ResumeRule::kFree);
  table.add("--pipeline-model-parallel-size", grid.pipeline, "stages the layers are divided into")
      .minimum(1)
      .maximum(1e6)
      .on_resume(ResumeRule::kFree);
  table
      .add("--context-parallel-size", grid.context,
           "processes that share each sequence; attention exchanges heads for positions")
      .alias("--ds-sequence-parallel-size")
      .minimum(1)
      .maximum(1e6)
      .on_resume(ResumeRule::kFree);
  table
      .add("--sequence-parallel", parallel.sequence_parallel,
           "tensor ranks also divide the sequence, where layers are not divided")
      .on_resume(ResumeRule::kFree);
  add_pipeline(table, parallel);
  table.add("--use-distributed-optimizer", parallel.use_distributed_optimizer, "the same as --zero-stage 1")
      .on_resume(ResumeRule::kFree);
  table.add_choice("--grad-reduce-type", parallel.grad_reduce_type,
                   {{"fp32", GradReduceType::kFp32}, {"bf16", GradReduceType::kBf16}},
                   "type in which data-parallel ranks exchange gradients");
  table.add("--grad-reduce-in-bf16", parallel.grad_reduce_in_bf16, "the same as --grad-reduce-type bf16");
  table.add("--canonical-reduction", parallel.canonical_reduction,
            "add what micro-batches give in one order, whatever the number of data-parallel ranks: any number of them "
            "trains the same weights to the bit");
  add_replicas(table, parallel);
  table
      .add_choice("--device", parallel.device,
                  {{"auto", Device::kAuto}, {"cpu", Device::kCpu}, {"cuda", Device::kCuda}},
                  "where to compute; auto: a GPU for each process where the driver shows any, else the CPU")
      .on_resume(ResumeRule::kFree);
  table
      .add_choice("--distributed-backend", parallel.distributed_backend,
                  {{"nccl", DistributedBackend::kNccl},
                   {"gloo", DistributedBackend::kGloo},
                   {"ccl", DistributedBackend::kNccl}},
                  "how ranks communicate; on the CPU nccl, and ccl, mean shared memory within one machine, else Gloo")
      .refuse_value("hccl", "HCCL is not built in; use gloo")
      .on_resume(ResumeRule::kFree);
  table
      .add("--distributed-timeout-minutes", parallel.distributed_timeout_minutes,
           "how long a rank waits for another before the run stops")
      .minimum(1)
      .maximum(1e6)
      .on_resume(ResumeRule::kFree);
  add_distributed_inert(table);
}

void add_zero(OptionTable& table, ParallelConfig& parallel) {
  table.group("ZeRO configurations");
  table
      .add("--zero-stage", parallel.zero_stage_option,
           "what data-parallel ranks divide: 1 the optimizer's state, 2 also gradients, 3 also weights")
      .minimum(0)
      .maximum(3)
      .default_text(
          "0; 1 with --use-distributed-optimizer or --deepspeed, and mostly for replicas on the CPUs of one machine")
      .on_resume(ResumeRule::kFree);
  add_zero_inert(table);
}

void add_deepspeed(OptionTable& table, ParallelConfig& parallel) {
  table.group("DeepSpeed");
  table
      .add("--deepspeed", parallel.deepspeed,
           "read --zero-stage as DeepSpeed does: with --bf16, stage 0 divides the optimizer's state too")
      .on_resume(ResumeRule::kFree);
  // Not in recipes: what the file says is in config.toml as the options that it stands for, and files of a job vanish.
  table
      .add("--deepspeed_config", parallel.deepspeed_config,
           "DeepSpeed's JSON: options that are not given, and a check of those that are")
      .value_name("FILE")
      .not_in_recipe();
  add_deepspeed_inert(table);
}

}  // namespace espalier::config::internal
