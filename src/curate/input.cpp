#include "curate/input.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "data/input_check.h"
#include "data/record_reader.h"

namespace espalier::curate {
namespace {
constexpr int64_t kInputBlockBytes = int64_t{1} << 20;
}

// The records of one source's files.
class InputReader::FileReader {
 public:
  FileReader(const InputSource& source, size_t index)
      : source_(source),
        index_(index),
        records_(source.files, data::slices_of_shard(source.files, data::Shard{}), kInputBlockBytes) {}

  bool next(RawBlock& block) {
    data::RecordBlock read;
    const size_t file = file_;
    if (!records_.next(read)) return false;
    file_ = read.file;
    if (read.first_byte == 0) data::refuse_other_formats(read, source_.files[read.file]);
    if (read.file != file || read.first_byte == 0) next_line_ = 1;
    block.bytes = std::move(read.bytes);
    block.records.clear();
    data::RecordCursor cursor(block.bytes);
    for (std::string_view record; cursor.next(record);)
      block.records.push_back({static_cast<size_t>(record.data() - block.bytes.data()), record.size()});
    if (read.skipped_bytes > 0) block.records = {{0, 0}};
    block.source = index_;
    block.file = source_.files[read.file];
    block.first_line = next_line_;
    block.input_bytes = read.input_bytes;
    block.skipped_bytes = read.skipped_bytes;
    next_line_ += static_cast<int64_t>(block.records.size());
    return true;
  }

 private:
  const InputSource& source_;
  size_t index_;
  data::RecordReader records_;
  size_t file_ = 0;
  int64_t next_line_ = 1;
};

InputReader::InputReader(const std::vector<InputSource>& sources) : sources_(sources) {}
InputReader::~InputReader() = default;

bool InputReader::next(RawBlock& block) {
  for (;;) {
    if (reader_ == nullptr) {
      if (next_source_ == sources_.size()) return false;
      reader_ = std::make_unique<FileReader>(sources_[next_source_], next_source_);
      ++next_source_;
    }
    if (reader_->next(block)) break;
    reader_.reset();
  }
  block.first_number = next_number_;
  next_number_ += static_cast<int64_t>(block.records.size());
  return true;
}

bool read_record(const InputSource& source, std::string_view record, Document& document, std::string& reason,
                 int64_t& num_replaced) {
  if (record.find_first_not_of(" \t") == std::string_view::npos) {
    reason = "The line is blank";
    return false;
  }
  if (!parse_document(record, source.text_key, document, reason, num_replaced)) return false;
  for (const Metadata::Member& member : source.metadata) document.metadata.set_json(member.key, member.json);
  return true;
}

void check(const InputSource& source, const std::string& option, Problems& problems) {
  for (const std::string& file : source.files) {
    std::error_code error;
    if (file == "-") continue;
    if (!std::filesystem::exists(file, error))
      problems.add(option, " ", file, ": no such file");
    else if (std::filesystem::is_directory(file, error))
      problems.add(option, " ", file, " is a folder; name the files in it, for example ", file, "/*.jsonl");
    else if (::access(file.c_str(), R_OK) != 0)
      problems.add(option, " ", file, ": no permission to read it");
  }
  if (std::count(source.files.begin(), source.files.end(), "-") > 1)
    problems.add(option, " names standard input (-) more than once");
}

Option& add_format_row(OptionTable& table, InputSource& source) {
  return table.add_choice("--format", source.format, {{"jsonl", InputFormat::kJsonl}}, "what the files hold");
}

int64_t total_input_bytes(const std::vector<InputSource>& sources) {
  int64_t total = 0;
  for (const InputSource& source : sources) {
    const int64_t bytes = data::total_bytes(source.files, data::slices_of_shard(source.files, data::Shard{}));
    if (bytes == 0 && !source.files.empty()) {
      std::error_code error;
      for (const std::string& file : source.files)
        if (!std::filesystem::is_regular_file(file, error)) return 0;
    }
    total += bytes;
  }
  return total;
}

}  // namespace espalier::curate
