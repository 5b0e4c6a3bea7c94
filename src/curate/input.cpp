#include "curate/input.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "curate/input/html_text.h"
#include "curate/input/mediawiki.h"
#include "curate/input/warc.h"
#include "curate/input_files.h"
#include "data/input_check.h"
#include "data/input_stream.h"
#include "data/record_reader.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {
constexpr int64_t kInputBlockBytes = int64_t{1} << 20;

// What begins as another format of a source does, which would be read as lines without sense.
void refuse_misnamed_format(std::string_view head, const std::string& file) {
  head.remove_prefix(std::min(head.find_first_not_of(" \t\r\n"), head.size()));
  const auto begins = [&](std::string_view with) {
    return head.size() >= with.size() && std::equal(with.begin(), with.end(), head.begin(), [](char a, char b) {
             return a == (b >= 'A' && b <= 'Z' ? b + ('a' - 'A') : b);
           });
  };
  const char* const format = begins("warc/")                               ? "warc"
                             : begins("<mediawiki")                        ? "mediawiki"
                             : begins("<!doctype html") || begins("<html") ? "html"
                                                                           : nullptr;
  if (format == nullptr) return;
  throw UserError(concat("'", data::shown_name(file), "' is not JSONL: it begins as files of the format ", format,
                         " do. Read it with --format ", format, ", in a recipe with format = \"", format,
                         "\" in a source of its own."),
                  ExitCode::kBadData);
}

// Lines of files.
class LineSource : public SourceReader {
 public:
  explicit LineSource(const InputSource& source)
      : source_(source), records_(source.files, data::slices_of_shard(source.files, data::Shard{}), kInputBlockBytes) {}

  bool next(RawBlock& block) override {
    data::RecordBlock read;
    const size_t file = file_;
    if (!records_.next(read)) return false;
    file_ = read.file;
    if (read.first_byte == 0) {
      const std::string& name = source_.files[read.file];
      data::refuse_byte_order_mark(read.bytes, name);
      if (source_.format == InputFormat::kJsonl) {
        data::refuse_other_formats(read, name);
        refuse_misnamed_format(read.bytes, name);
      }
    }
    if (read.file != file || read.first_byte == 0) next_line_ = 1;
    block.bytes = std::move(read.bytes);
    block.records.clear();
    data::RecordCursor cursor(block.bytes);
    for (std::string_view record; cursor.next(record);)
      block.records.push_back({static_cast<size_t>(record.data() - block.bytes.data()), record.size()});
    if (read.skipped_bytes > 0) block.records = {{0, 0}};
    block.file = source_.files[read.file];
    block.first_line = next_line_;
    block.input_bytes = read.input_bytes;
    block.skipped_bytes = read.skipped_bytes;
    next_line_ += static_cast<int64_t>(block.records.size());
    return true;
  }

 private:
  const InputSource& source_;
  data::RecordReader records_;
  size_t file_ = 0;
  int64_t next_line_ = 1;
};

// Whole files.
class FileSource : public SourceReader {
 public:
  explicit FileSource(const InputSource& source) : source_(source) {}

  bool next(RawBlock& block) override {
    if (next_file_ == source_.files.size()) return false;
    block.file = source_.files[next_file_++];
    block.first_line = 1;
    block.bytes.clear();
    block.skipped_bytes = 0;
    const std::unique_ptr<data::InputStream> stream = data::open_input(block.file);
    std::string part(size_t{1} << 18, '\0');
    while (const size_t got = stream->read(part.data(), part.size())) {
      const auto size = static_cast<int64_t>(block.bytes.size() + got);
      if (size > data::kMaxRecordBytes) {
        block.bytes.clear();
        block.skipped_bytes = size;
        break;
      }
      block.bytes.append(part, 0, got);
    }
    block.input_bytes = stream->consumed_bytes();
    block.records = {{0, block.bytes.size()}};
    return true;
  }

 private:
  const InputSource& source_;
  size_t next_file_ = 0;
};

// Records that `Reader` finds in files: those of WARC, pages of dumps.
template <typename Reader>
class FoundRecordSource : public SourceReader {
 public:
  explicit FoundRecordSource(const InputSource& source) : source_(source) {}

  bool next(RawBlock& block) override {
    block.bytes.clear();
    block.records.clear();
    block.skipped_bytes = 0;
    while (block.records.empty()) {
      if (reader_ == nullptr) {
        if (next_file_ == source_.files.size()) return false;
        reader_ = std::make_unique<Reader>(source_.files[next_file_++]);
        next_record_ = 1;
        consumed_ = 0;
      }
      block.file = source_.files[next_file_ - 1];
      block.first_line = next_record_;
      bool ended = false;
      while (!ended && static_cast<int64_t>(block.bytes.size()) < kInputBlockBytes) {
        const size_t begin = block.bytes.size();
        if (reader_->next(block.bytes))
          block.records.push_back({begin, block.bytes.size() - begin});
        else
          ended = true;
      }
      block.input_bytes = reader_->consumed_bytes() - consumed_;
      consumed_ += block.input_bytes;
      next_record_ += static_cast<int64_t>(block.records.size());
      if (ended) reader_.reset();
    }
    return true;
  }

 private:
  const InputSource& source_;
  size_t next_file_ = 0;
  std::unique_ptr<Reader> reader_;
  int64_t next_record_ = 1, consumed_ = 0;
};

std::unique_ptr<SourceReader> open_source(const InputSource& source) {
  switch (source.format) {
    case InputFormat::kJsonl:
    case InputFormat::kLines: return std::make_unique<LineSource>(source);
    case InputFormat::kText:
    case InputFormat::kHtml: return std::make_unique<FileSource>(source);
    case InputFormat::kWarc: return std::make_unique<FoundRecordSource<WarcReader>>(source);
    case InputFormat::kMediaWiki: break;
  }
  return std::make_unique<FoundRecordSource<MediaWikiReader>>(source);
}

// Files of text and pages. UTF-16 would become text with a zero in every second place.
bool is_utf16(std::string_view bytes, std::string& reason) {
  if (!bytes.starts_with("\xff\xfe") && !bytes.starts_with("\xfe\xff")) return false;
  reason = "The file is UTF-16: it begins with a byte-order mark; iconv -f UTF-16 -t UTF-8 converts it";
  return true;
}
std::string_view without_mark(std::string_view bytes) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return bytes.starts_with(kMark) ? bytes.substr(kMark.size()) : bytes;
}

// By the kind of the source.
bool read_text(const InputSource& source, std::string_view record, Document& document, std::string& reason,
               int64_t& num_replaced) {
  std::string storage;
  HtmlPage page;
  switch (source.format) {
    case InputFormat::kJsonl: return parse_document(record, source.text_key, document, reason, num_replaced);
    case InputFormat::kWarc: return read_warc_record(record, document, reason, num_replaced);
    case InputFormat::kMediaWiki: return read_mediawiki_page(record, document, reason, num_replaced);
    case InputFormat::kHtml:
      if (is_utf16(record, reason) || !read_html(without_mark(record), "", page, reason)) return false;
      document.text = std::move(page.text);
      if (!page.title.empty()) document.metadata.set("title", page.title);
      return true;
    case InputFormat::kLines:
    case InputFormat::kText: break;
  }
  if (source.format == InputFormat::kText) {
    if (is_utf16(record, reason)) return false;
    record = without_mark(record);
  }
  document.text = text::repair_utf8(record, storage, num_replaced);
  return true;
}
}  // namespace

InputReader::InputReader(const std::vector<InputSource>& sources) : sources_(sources) {}
InputReader::~InputReader() = default;

bool InputReader::next(RawBlock& block) {
  for (;;) {
    if (reader_ == nullptr) {
      if (next_source_ == sources_.size()) return false;
      reader_ = open_source(sources_[next_source_]);
      ++next_source_;
    }
    if (reader_->next(block)) break;
    reader_.reset();
  }
  block.source = next_source_ - 1;
  block.first_number = next_number_;
  next_number_ += static_cast<int64_t>(block.records.size());
  return true;
}

bool read_record(const InputSource& source, const RawBlock& block, size_t index, Document& document,
                 std::string& reason, int64_t& num_replaced) {
  const std::string_view record = block.record(index);
  if (record.find_first_not_of(" \t") == std::string_view::npos) {
    const bool is_file = source.format == InputFormat::kText || source.format == InputFormat::kHtml;
    reason = is_file ? "The file is empty" : "The line is blank";
    return false;
  }
  if (!read_text(source, record, document, reason, num_replaced)) return false;
  if (source.format == InputFormat::kText || source.format == InputFormat::kHtml)
    document.metadata.set("file", block.file);
  for (Metadata::Member& member : partition_keys(block.file))
    if (member.key != source.text_key) document.metadata.set_json(member.key, std::move(member.json));
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
  return table.add_choice("--format", source.format,
                          {{"jsonl", InputFormat::kJsonl},
                           {"lines", InputFormat::kLines},
                           {"text", InputFormat::kText},
                           {"html", InputFormat::kHtml},
                           {"warc", InputFormat::kWarc},
                           {"mediawiki", InputFormat::kMediaWiki}},
                          "what the files hold: JSON lines; a document a line; one a file, as text or as a web page; "
                          "WARC and WET; or an XML dump of MediaWiki");
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
