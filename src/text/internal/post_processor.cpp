#include "text/internal/post_processor.h"

#include "base/error.h"

namespace espalier::text::internal {

namespace {

int32_t read_id(const nlohmann::json& id, const JsonPart& part) {
  if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
    part.fail("'" + id.dump() + "' is not an id");
  }
  return id.get<int32_t>();
}

PostProcessor::Item special_token(const JsonPart& part, const std::string& name) {
  const JsonPart tokens = part.part("special_tokens");
  if (!tokens.has(name.c_str())) part.fail("'special_tokens' has no '" + name + "', which the template uses");
  const JsonPart token = tokens.part(name.c_str());
  PostProcessor::Item item{false, {}};
  for (const auto& id : token.list("ids")) item.ids.push_back(read_id(id, token));
  return item;
}

PostProcessor make_template(const JsonPart& part) {
  PostProcessor made;
  made.items.clear();
  for (size_t i = 0; i < part.list("single").size(); ++i) {
    const JsonPart piece = part.element("single", i);
    if (piece.has("SpecialToken")) {
      made.items.push_back(special_token(part, piece.part("SpecialToken").text("id")));
    } else if (piece.part("Sequence").text("id") == "A") {
      made.items.push_back({true, {}});
    } else {
      piece.fail("a template for one text uses only the sequence A");
    }
  }
  return made;
}

// ["<s>", 0]
PostProcessor::Item named_id(const JsonPart& part, const char* key) {
  const nlohmann::json& pair = part.list(key);
  if (pair.size() != 2) part.fail(concat("'", key, "' must be [token, id]"));
  return {false, {read_id(pair[1], part)}};
}

bool adds_nothing(const PostProcessor& processor) { return processor.items.size() == 1 && processor.items[0].is_text; }

}  // namespace

PostProcessor make_post_processor(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return make_template(part);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    PostProcessor made;
    made.items = {named_id(part, "cls"), {true, {}}, named_id(part, "sep")};
    return made;
  }
  if (type != "Sequence") {
    part.refuse_type("TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence");
  }
  PostProcessor made;
  for (size_t i = 0; i < part.list("processors").size(); ++i) {
    const PostProcessor next = make_post_processor(part.element("processors", i));
    if (adds_nothing(next)) continue;
    if (!adds_nothing(made)) part.fail("two processors that add tokens are not supported");
    made = next;
  }
  return made;
}

}  // namespace espalier::text::internal
