#include "curate/input/warc.h"

#include <charconv>
#include <map>

#include "base/error.h"
#include "base/format.h"
#include "curate/input/html_text.h"
#include "data/record_reader.h"
#include "text/python_text.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

constexpr std::string_view kHeadersEnd = "\r\n\r\n";

std::string lower_name(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return lower;
}

// Names in lower case; of a repeated one the first counts. The first line is no header.
std::map<std::string, std::string> headers_of(std::string_view head) {
  std::map<std::string, std::string> headers;
  const std::vector<std::string> lines = split(std::string(head), '\n');
  for (size_t index = 1; index < lines.size(); ++index) {
    const size_t colon = lines[index].find(':');
    if (colon != std::string::npos)
      headers.try_emplace(lower_name(lines[index].substr(0, colon)), strip(lines[index].substr(colon + 1)));
  }
  return headers;
}

std::string charset_of(const std::string& content_type) {
  const std::string lower = lower_name(content_type);
  const size_t at = lower.find("charset=");
  if (at == std::string::npos) return "";
  std::string charset = lower.substr(at + std::string_view("charset=").size());
  std::erase(charset, '"');
  return charset.substr(0, charset.find_first_of("; "));
}

bool read_response(std::string_view content, Document& document, std::string& reason) {
  const size_t end = content.find(kHeadersEnd);
  if (end == std::string_view::npos || !content.starts_with("HTTP/")) {
    reason = "The response is not HTTP";
    return false;
  }
  std::map<std::string, std::string> headers = headers_of(content.substr(0, end));
  const std::string type = lower_name(headers["content-type"]);
  if (!type.starts_with("text/html") && !type.starts_with("application/xhtml+xml")) {
    reason = "The response is not an HTML page";
    return false;
  }
  for (const char* name : {"transfer-encoding", "content-encoding"})
    if (!headers[name].empty() && lower_name(headers[name]) != "identity") {
      reason = concat("The response is encoded as ", headers[name], ", which is not supported");
      return false;
    }
  HtmlPage page;
  if (!read_html(content.substr(end + kHeadersEnd.size()), charset_of(type), page, reason)) return false;
  document.text = std::move(page.text);
  if (!page.title.empty()) document.metadata.set("title", page.title);
  return true;
}

}  // namespace

WarcReader::WarcReader(const std::string& file) : file_(file), stream_(data::open_input(file)) {}

void WarcReader::fail(const std::string& what) const {
  throw UserError(concat("'", file_, "', record ", format_count(num_records_ + 1), ": ", what), ExitCode::kBadData);
}

bool WarcReader::next(std::string& bytes) {
  // Blank lines separate records.
  for (;;) {
    const size_t begin = buffer_.find_first_not_of("\r\n");
    buffer_.erase(0, std::min(begin, buffer_.size()));
    if (!buffer_.empty()) break;
    if (!fill()) return false;
  }
  constexpr size_t kMostHeaderBytes = size_t{1} << 20;
  size_t end;
  while ((end = buffer_.find(kHeadersEnd)) == std::string::npos) {
    if (buffer_.size() > kMostHeaderBytes) fail("no WARC: its headers do not end");
    if (!fill()) fail("no WARC, or one that is cut off: its headers do not end");
  }
  if (!buffer_.starts_with("WARC/")) fail("expected WARC/ and a version");
  const std::string length = headers_of(std::string_view(buffer_).substr(0, end))["content-length"];
  int64_t size = -1;
  const auto [after, error] = std::from_chars(length.data(), length.data() + length.size(), size);
  if (error != std::errc() || after != length.data() + length.size() || size < 0 || size > data::kMaxRecordBytes)
    fail(concat("Content-Length is '", length, "'; expected bytes, at most ", format_count(data::kMaxRecordBytes)));
  const size_t total = end + kHeadersEnd.size() + static_cast<size_t>(size);
  while (buffer_.size() < total)
    if (!fill()) fail("the file is cut off");
  bytes.append(buffer_, 0, total);
  buffer_.erase(0, total);
  ++num_records_;
  return true;
}

bool read_warc_record(std::string_view record, Document& document, std::string& reason, int64_t& num_replaced) {
  const size_t end = record.find(kHeadersEnd);
  std::map<std::string, std::string> headers = headers_of(record.substr(0, end));
  const std::string_view content = record.substr(end + kHeadersEnd.size());
  const std::string type = lower_name(headers["warc-type"]);
  const auto set = [&](const char* key, const char* header) {
    std::string storage, value = headers[header];
    if (!value.empty()) document.metadata.set(key, std::string(text::repair_utf8(value, storage, num_replaced)));
  };
  set("url", "warc-target-uri");
  set("date", "warc-date");
  if (type == "response") return read_response(content, document, reason);
  if (type == "conversion") {
    std::string storage;
    document.text = text::python::strip(text::repair_utf8(content, storage, num_replaced));
    return true;
  }
  reason = concat("The record is of type ", type.empty() ? "none" : type);
  return false;
}

}  // namespace espalier::curate
