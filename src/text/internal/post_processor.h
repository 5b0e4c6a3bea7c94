// The post_processor of a tokenizer.json, for one text with add_special_tokens: which ids go before and after.
//
// TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel (adds nothing), Sequence of these.
#pragma once

#include <cstdint>
#include <vector>

#include "text/internal/json_file.h"

namespace espalier::text::internal {

struct PostProcessor {
  struct Item {
    bool is_text;              // the ids of the text are here
    std::vector<int32_t> ids;  // otherwise these
  };
  std::vector<Item> items = {{true, {}}};
};

PostProcessor make_post_processor(const JsonPart& part);

}  // namespace espalier::text::internal
