// What cuDNN's attention lacks of a GPT's (--attention-backend cudnn): the run is refused, and computes nothing by
// other kernels unasked.
#include "config/resolving.h"
#include "families/gpt/internal/gpt.h"

namespace espalier::families::internal {

void check_attention_backend(const config::Resolving& resolving, const GptSettings& settings) {
  if (resolving.run.training.attention_backend != spec::AttentionBackend::kCudnn) return;
  const GptConfig& model = settings.shape;
  const config::DataConfig& data = resolving.run.data;
  const auto refuse_if = [&](bool has, const char* option, const char* why) {
    if (has)
      resolving.problems.add("--attention-backend cudnn and ", resolving.origin(option), " exclude each other: ", why,
                             ". Use --attention-backend flash, or do without the other");
  };
  refuse_if(model.position_embedding == PositionEmbedding::kAlibi, "--position-embedding-type",
            "cuDNN's slopes of ALiBi are those of the heads of one rank, not of the model");
  refuse_if(model.attention_dropout > 0, "--attention-dropout", "cuDNN draws dropout masks of its own; 0 draws none");
  refuse_if(model.window_size > 0, "--window-size", "by cuDNN a token sees all that are before it");
  refuse_if(model.attn_logit_soft_cap > 0, "--attn-logit-soft-cap", "cuDNN's scores have no cap here");
  refuse_if(settings.objective.kind != data::Objective::Kind::kCausal, "--objective",
            "by cuDNN a token sees exactly those before it");
  refuse_if(data.reset_attention_mask, "--reset-attention-mask", "by cuDNN a token sees all documents before it");
  refuse_if(data.packing != data::Packing::kNone, "--packing", "by cuDNN a token sees all documents before it");
  refuse_if(!data.seq_length_stages.empty() && data.seq_length_stages_by == config::LengthBy::kDividing,
            "--seq-length-stages-by", "by cuDNN a token sees the whole row before it; truncating cuts rows instead");
  if (model.kv_channels % spec::kCudnnChannelMultiple != 0 || model.kv_channels > spec::kMostCudnnChannels)
    resolving.problems.add("--attention-backend cudnn takes heads of a multiple of ", spec::kCudnnChannelMultiple,
                           " channels, at most ", spec::kMostCudnnChannels, ", and this model's have ",
                           model.kv_channels,
                           ". Use --attention-backend flash, or another --kv-channels or --num-attention-heads");
}

}  // namespace espalier::families::internal
