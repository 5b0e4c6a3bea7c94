#include "convert/t5/formats.h"

#include "convert/t5/internal/t5.h"

namespace espalier::convert {
namespace {

bool is_same_t5(const config::FamilyConfig& a, const config::FamilyConfig& b) {
  return families::t5_config(a, {}) == families::t5_config(b, {});
}

}  // namespace

const FamilyFormats& t5_formats() {
  static const FamilyFormats formats{.family = &families::t5_family(),
                                     .is_same_model = is_same_t5,
                                     .hugging_face = t5_codecs(),
                                     .megatron = megatron_t5()};
  return formats;
}

}  // namespace espalier::convert
