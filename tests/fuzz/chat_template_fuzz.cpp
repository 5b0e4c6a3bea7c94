// A chat template: read, then a conversation rendered with it, within bounds of time and memory.
#include "tests/fuzz/reader_fuzz.h"
#include "text/chat_template.h"

namespace {

// Names two special tokens; nothing else is asked of it.
class TwoTokens final : public espalier::text::Tokenizer {
 public:
  std::unique_ptr<espalier::text::Encoder> new_encoder() const override { return nullptr; }
  std::string decode(std::span<const int32_t>, bool) const override { return ""; }
  int64_t vocab_size() const override { return 2; }
  std::optional<int32_t> eod() const override { return 1; }
  std::string id_to_piece(int32_t id) const override { return id == 0 ? "<s>" : "</s>"; }
  std::optional<int32_t> piece_to_id(std::string_view) const override { return std::nullopt; }
  espalier::text::NamedIds named_ids() const override { return {.bos = 0, .eos = 1, .pad = std::nullopt}; }
  espalier::text::TokenizerJson tokenizer_json() const override { return {}; }
  std::string description() const override { return ""; }
  std::vector<std::pair<std::string, std::string>> files() const override { return {}; }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const espalier::text::python::Json messages = {
      {{"role", "system"}, {"content", "\u00e9  be brief "}},
      {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "a,b,,c"}}}}},
      {{"role", "assistant"}, {"content", "<think>x</think> y\n"}, {"count", 3}, {"ratio", -0.5}, {"done", true}}};
  return espalier::fuzz::try_reader([&] {
    const espalier::text::ChatTemplate chat({reinterpret_cast<const char*>(data), size}, "fuzzed.jinja", TwoTokens(),
                                            {.steps = 20'000, .memory = size_t{4} << 20});
    chat.render(messages, true, 1'700'000'000);
  });
}
