#include "curate/output.h"

#include <algorithm>

#include "base/pending_file.h"
#include "curate/byte_sink.h"
#include "data/line_reader.h"
#include "data/parquet.h"

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
    write_line(line_);
  }
  void write_line(std::string_view line) override {
    sink_->write(line);
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

class ParquetOutput : public Output {
 public:
  ParquetOutput(const std::filesystem::path& path, std::string text_key, const std::string& compression)
      : file_(path),
        waiting_(path.string() + ".lines"),
        sink_(byte_sink(waiting_.temporary().string(), "lines.zst")),
        text_key_(std::move(text_key)),
        compression_(compression == "gz"    ? "gzip"
                     : compression == "zst" ? "zstd"
                                            : compression) {}

  void write(const Document& document) override {
    line_.clear();
    append_json(document, text_key_, line_);
    line_ += '\n';
    note_columns(document);
    sink_->write(line_);
    ++num_documents_;
  }
  void write_line(std::string_view line) override { write(parsed(line)); }

  void prepare() override {
    sink_->finish();
    if (columns_.empty()) columns_.add(text_key_, kSomeText);
    data::ParquetFileWriter writer(file_.temporary().string(), file_.path().string(), columns_, compression_);
    data::LineReader lines({waiting_.temporary().string()});
    std::string group;
    for (std::string_view line; lines.next(line);) {
      append_row(line, group);
      if (group.size() >= kRowGroupBytes) {
        writer.write_row_group(group);
        group.clear();
      }
    }
    if (!group.empty()) writer.write_row_group(group);
    writer.finish();
  }
  void move_into_place() override { espalier::move_into_place({&file_}); }
  int64_t num_documents() const override { return num_documents_; }

 private:
  static constexpr size_t kRowGroupBytes = size_t{64} << 20;
  static constexpr const char* kSomeText = "\"\"";

  Document parsed(std::string_view line) const {
    Document document;
    std::string reason;
    int64_t num_replaced = 0;
    while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
    ESPALIER_CHECK(parse_document(line, text_key_, document, reason, num_replaced), reason);
    return document;
  }

  // In the order in which the line has them: a member without a value is the place of the text, which else comes first.
  void note_columns(const Document& document) {
    const std::vector<Metadata::Member>& members = document.metadata.members();
    const auto is_place = [](const Metadata::Member& member) { return member.json.empty(); };
    if (std::none_of(members.begin(), members.end(), is_place)) columns_.add(text_key_, kSomeText);
    for (const Metadata::Member& member : members)
      if (is_place(member))
        columns_.add(text_key_, kSomeText);
      else
        columns_.add(member.key, member.json);
  }

  // The line, where values without a common type are written as text.
  void append_row(std::string_view line, std::string& rows) const {
    if (!columns_.has_json_text()) {
      rows += line;
      return;
    }
    Document document = parsed(line);
    const std::vector<Metadata::Member> members = document.metadata.members();
    for (const Metadata::Member& member : members)
      if (!member.json.empty() && member.json != "null" && columns_.is_json_text(member.key))
        document.metadata.set(member.key, member.json);
    append_json(document, text_key_, rows);
    rows += '\n';
  }

  PendingFile file_, waiting_;
  std::unique_ptr<ByteSink> sink_;
  std::string text_key_, compression_, line_;
  data::ParquetColumns columns_;
  int64_t num_documents_ = 0;
};

bool is_parquet(const std::filesystem::path& path) { return path.extension() == ".parquet"; }

}  // namespace

std::unique_ptr<Output> jsonl_output(const std::filesystem::path& path, std::string text_key) {
  return std::make_unique<JsonlOutput>(path, std::move(text_key));
}

std::unique_ptr<Output> parquet_output(const std::filesystem::path& path, std::string text_key,
                                       const std::string& compression) {
  return std::make_unique<ParquetOutput>(path, std::move(text_key), compression);
}

std::unique_ptr<Output> document_output(const std::filesystem::path& path, std::string text_key) {
  return is_parquet(path) ? parquet_output(path, std::move(text_key)) : jsonl_output(path, std::move(text_key));
}

void check_output(const std::filesystem::path& path, Problems& problems) {
  if (is_parquet(path) && !data::has_parquet())
    problems.add("'", path.string(), "' is to be Parquet, but libespalier_parquet.so is missing next to the ",
                 "program: 'scripts/setup --parquet' builds it");
}

}  // namespace espalier::curate
