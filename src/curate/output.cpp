#include "curate/output.h"

#include "base/pending_file.h"
#include "curate/byte_sink.h"

namespace espalier::curate {
namespace {

class JsonlOutput : public Output {
 public:
  JsonlOutput(const std::filesystem::path& path, std::string text_key)
      : file_(path), sink_(byte_sink(file_.temporary().string(), path.string())), text_key_(std::move(text_key)) {}

  void write(const Document& document) override {
    line_.clear();
    append_json(document, text_key_, line_);
    line_ += '\n';
    sink_->write(line_);
    ++num_documents_;
  }
  void prepare() override { sink_->finish(); }
  void move_into_place() override { espalier::move_into_place({&file_}); }
  int64_t num_documents() const override { return num_documents_; }

 private:
  PendingFile file_;
  std::unique_ptr<ByteSink> sink_;
  std::string text_key_, line_;
  int64_t num_documents_ = 0;
};

}  // namespace

std::unique_ptr<Output> jsonl_output(const std::filesystem::path& path, std::string text_key) {
  return std::make_unique<JsonlOutput>(path, std::move(text_key));
}

}  // namespace espalier::curate
