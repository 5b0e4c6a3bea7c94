// Names of other programs' options: answered with what they are here.
#include "config/internal/rows.h"

namespace espalier::config::internal {

void add_names_elsewhere(OptionTable& table) {
  const auto is = [&](const char* here, const std::vector<std::string>& names) { table.known_elsewhere(names, here); };
  // Length and batch.
  is("--train-iters", {"--max-steps", "--max-iters", "--num-steps", "--steps", "--total-steps", "--num-iterations"});
  is("runs are counted in steps or samples, not in epochs: --train-iters or --train-samples",
     {"--num-train-epochs", "--epochs", "--num-epochs", "--max-epochs", "--n-epochs"});
  is("--micro-batch-size", {"--per-device-train-batch-size", "--per-device-batch-size", "--train-micro-batch-size",
                            "--train-micro-batch-size-per-gpu", "--device-batch-size", "--mbs"});
  is("--global-batch-size", {"--train-batch-size", "--total-batch-size", "--gbs"});
  is("it follows from --global-batch-size / ( --micro-batch-size * data-parallel size)",
     {"--gradient-accumulation-steps", "--accumulate-grad-batches", "--grad-accum-steps", "--grad-accum"});
  is("--seq-length", {"--block-size", "--max-seq-length", "--max-seq-len", "--seq-len", "--sequence-length",
                      "--context-length", "--model-max-length", "--max-length", "--n-ctx", "--cutoff-len"});
  // Model.
  is("--num-layers", {"--num-hidden-layers", "--n-layer", "--n-layers", "--depth"});
  is("--hidden-size", {"--n-embd", "--d-model", "--embed-dim", "--dim", "--model-dim"});
  is("--num-attention-heads", {"--n-head", "--n-heads", "--num-heads"});
  is("--num-key-value-heads", {"--num-kv-heads", "--n-kv-heads", "--n-kv-head"});
  is("--max-position-embeddings", {"--max-absolute-position-embeddings"});
  is("--ffn-hidden-size", {"--intermediate-size", "--d-ff", "--n-inner"});
  is("--hidden-dropout, and --attention-dropout", {"--dropout", "--resid-dropout"});
  is("import a model of Hugging Face with `espalier checkpoint import-hf`; then --load with --finetune",
     {"--model-name-or-path", "--model", "--pretrained-model", "--init-from"});
  // Optimizer and learning rate.
  is("--lr", {"--learning-rate", "--max-lr", "--peak-lr"});
  is("--lr-warmup-iters", {"--warmup-steps", "--warmup-iters", "--num-warmup-steps", "--lr-warmup-steps"});
  is("--lr-warmup-fraction", {"--warmup-ratio", "--warmup-fraction"});
  is("--lr-decay-style", {"--lr-scheduler-type", "--lr-scheduler", "--scheduler"});
  is("--clip-grad",
     {"--max-grad-norm", "--grad-clip", "--gradient-clip-val", "--gradient-clipping", "--clip-grad-norm"});
  is("--optimizer", {"--optim"});
  is("--adam-beta1", {"--beta1"});
  is("--adam-beta2", {"--beta2"});
  is("--adam-eps", {"--adam-epsilon"});
  is("--bf16 or --fp16; neither is fp32", {"--dtype", "--precision", "--mixed-precision", "--torch-dtype"});
  is("numbers are fp32 unless --bf16 or --fp16 is given", {"--fp32", "--float32", "--full-precision"});
  is("all parameters are trained, and LoRA is not supported",
     {"--lora-rank", "--lora-r", "--lora-alpha", "--lora", "--use-lora", "--peft", "--qlora"});
  is("the output layer has the embedding's weights unless --untie-embeddings-and-output-weights is given",
     {"--tie-word-embeddings", "--tie-embeddings", "--tied-embeddings"});
  is("the kernels are compiled already", {"--compile", "--torch-compile", "--compile-model"});
  is("--checkpoint-activations",
     {"--gradient-checkpointing", "--activation-checkpointing", "--activation-checkpoint", "--recompute"});
  // Files.
  is("--save", {"--output-dir", "--out-dir", "--save-dir", "--checkpoint-dir", "--default-root-dir"});
  is("--load, with the folder of --save", {"--resume-from-checkpoint", "--resume", "--resume-from", "--ckpt-path"});
  is("--save, and --load to continue", {"--checkpoint-path", "--ckpt-dir"});
  is("the folder of --save names the run", {"--run-name", "--experiment-name", "--exp-name"});
  is("--data-path", {"--dataset", "--dataset-name", "--train-file", "--train-data", "--data-dir", "--data", "--input"});
  is("--tokenizer-name-or-path, with --tokenizer-type", {"--tokenizer", "--tokenizer-path", "--tokenizer-name"});
  is("--recipe", {"--config", "--config-file", "--yaml"});
  // Intervals.
  is("--save-interval", {"--save-steps", "--checkpoint-interval", "--save-every", "--save-freq"});
  is("--eval-interval", {"--eval-steps", "--val-check-interval", "--eval-every", "--val-loss-every"});
  is("--log-interval", {"--logging-steps", "--log-every", "--print-interval", "--log-freq"});
  // Processes.
  is("--tensor-model-parallel-size", {"--tp", "--tp-size", "--tensor-parallel", "--tensor-parallel-size"});
  is("--pipeline-model-parallel-size", {"--pp", "--pp-size", "--pipeline-parallel", "--pipeline-parallel-size"});
  is("--context-parallel-size", {"--cp", "--cp-size"});
  is("it is the number of processes divided by the other sizes",
     {"--dp", "--dp-size", "--data-parallel-size", "--data-parallel"});
  is("--distributed-backend", {"--dist-backend", "--ddp-backend", "--backend"});
  is("--num-threads", {"--threads", "--n-threads", "--cpu-threads"});
  is("--zero-stage, which divides what each process holds; nothing is moved to another memory",
     {"--cpu-offload", "--offload-optimizer", "--offload", "--fsdp-offload"});
  // torchtitan's.
  is("--recipe", {"--job.config-file", "--job.config_file"});
  is("--train-iters", {"--training.steps"});
  is("--micro-batch-size", {"--training.local-batch-size", "--training.local_batch_size", "--training.batch-size"});
  is("--global-batch-size", {"--training.global-batch-size", "--training.global_batch_size"});
  is("--seq-length", {"--training.seq-len", "--training.seq_len"});
  is("--lr", {"--optimizer.lr"});
  is("--lr-warmup-iters", {"--lr-scheduler.warmup-steps", "--training.warmup-steps"});
  is("--num-layers", {"--model.n-layers", "--model.n_layers"});
  is("a size is given by --num-layers, --hidden-size and --num-attention-heads", {"--model.flavor", "--model.name"});
  is("--tensor-model-parallel-size", {"--parallelism.tensor-parallel-degree", "--training.tensor-parallel-degree"});
  is("--pipeline-model-parallel-size", {"--parallelism.pipeline-parallel-degree"});
  is("--save-interval", {"--checkpoint.interval"});
  is("--save", {"--checkpoint.folder", "--job.dump-folder"});
  is("--log-interval", {"--metrics.log-freq"});
  // llm.c's, by its one or two letters.
  is("--data-path, with token files of `espalier preprocess`", {"-i"});
  is("--valid-data-path, or --split", {"-j"});
  is("a size is given by --num-layers, --hidden-size and --num-attention-heads; GPT-2's weights are imported by "
     "`espalier checkpoint import-hf`",
     {"-e"});
  is("--save", {"-o"});
  is("--load, with the folder of --save", {"-y"});
  is("--save-interval", {"-n"});
  is("old checkpoints are removed by `espalier checkpoint prune`", {"-nk", "-nm"});
  is("--micro-batch-size", {"-b"});
  is("--seq-length", {"-t"});
  is("--global-batch-size, which counts samples: tokens / --seq-length", {"-d"});
  is("--train-iters", {"-x"});
  is("--lr", {"-l"});
  is("--lr-decay-style", {"-k"});
  is("--lr-warmup-iters", {"-u"});
  is("--min-lr, which is a rate, not a fraction of --lr", {"-q"});
  is("--weight-decay", {"-c"});
  is("--eval-interval", {"-v"});
  is("--eval-iters", {"-m"});
  is("--zero-stage", {"-z"});
  is("--checkpoint-activations", {"-r"});
  is("texts are generated by `espalier generate`", {"-s", "-g"});
  is("it belongs to `espalier launch`: --nproc-per-node", {"-pn"});
  is("the launcher sets it: `espalier launch`, srun or mpirun", {"-pr", "-pg", "-pi", "-ps"});
  is("it belongs to `espalier launch`, before train gpt",
     {"--nproc-per-node", "--nnodes", "--nproc", "--num-gpus", "--standalone", "--master-addr", "--master-port"});
}

}  // namespace espalier::config::internal
