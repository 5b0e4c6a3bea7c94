#include "convert/gpt/formats.h"

#include "convert/gpt/internal/hf_gpt.h"
#include "convert/gpt/internal/megatron_gpt.h"

namespace espalier::convert {
namespace {

bool is_same_gpt(const config::FamilyConfig& a, const config::FamilyConfig& b) {
  families::GptConfig first = families::gpt_config(a, {}), second = families::gpt_config(b, {});
  // Nothing and as many as there are heads are two ways to say it.
  first.num_query_groups = first.num_groups(), second.num_query_groups = second.num_groups();
  return first == second;
}

std::vector<HfCodec> hf_codecs_of_gpt() {
  std::vector<HfCodec> codecs = {gpt2_codec(), bloom_codec()};
  for (HfCodec& codec : llama_like_codecs()) codecs.push_back(std::move(codec));
  return codecs;
}

}  // namespace

const FamilyFormats& gpt_formats() {
  static const FamilyFormats formats{.family = &families::gpt_family(),
                                     .is_same_model = is_same_gpt,
                                     .hugging_face = hf_codecs_of_gpt(),
                                     .megatron = megatron_gpt(),
                                     .fold = fold_mup};
  return formats;
}

}  // namespace espalier::convert
