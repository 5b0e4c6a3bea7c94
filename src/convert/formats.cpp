#include "convert/formats.h"

#include "base/error.h"
#include "base/format.h"
#include "convert/bert/formats.h"
#include "convert/gpt/formats.h"
#include "convert/ict/formats.h"
#include "convert/t5/formats.h"

namespace espalier::convert {

const std::vector<const FamilyFormats*>& all_formats() {
  static const std::vector<const FamilyFormats*> all = {
      // Of two that recognize a checkpoint the first is taken: towers of a biencoder are BERTs.
      &gpt_formats(), &ict_formats(), &ict_task_formats(), &bert_formats(), &t5_formats(),
  };
  return all;
}

const FamilyFormats& formats_of(const config::Family& family) {
  std::vector<std::string> names;
  for (const FamilyFormats* formats : all_formats()) {
    if (formats->family == &family) return *formats;
    names.push_back(formats->family->display);
  }
  throw UserError(concat("a ", family.display, " has no foreign formats; there are some of ", join(names, ", ")),
                  ExitCode::kUsage);
}

Folding folded(const ModelConfig& model) {
  const FamilyFormats& formats = formats_of(*model.family);
  return formats.fold == nullptr ? Folding{model, {}, {}} : formats.fold(model);
}

const HfCodec* find_hf_codec(const std::string& model_type) {
  for (const FamilyFormats* formats : all_formats())
    for (const HfCodec& codec : formats->hugging_face)
      if (model_type == codec.model_type) return &codec;
  return nullptr;
}

std::vector<std::string> hf_model_types() {
  std::vector<std::string> types;
  for (const FamilyFormats* formats : all_formats())
    for (const HfCodec& codec : formats->hugging_face) types.push_back(codec.model_type);
  return types;
}

}  // namespace espalier::convert
