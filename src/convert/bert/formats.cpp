#include "convert/bert/formats.h"

#include "convert/bert/internal/bert_codecs.h"
#include "families/bert/config.h"

namespace espalier::convert {

const FamilyFormats& bert_formats() {
  static const FamilyFormats formats{.family = &families::bert_family(),
                                     .is_same_model =
                                         [](const config::FamilyConfig& a, const config::FamilyConfig& b) {
                                           return families::bert_config(a, {}) == families::bert_config(b, {});
                                         },
                                     .hugging_face = {megatron_bert_codec(), bert_codec()},
                                     .megatron = megatron_bert()};
  return formats;
}

}  // namespace espalier::convert
