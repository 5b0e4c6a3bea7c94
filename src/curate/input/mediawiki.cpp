#include "curate/input/mediawiki.h"

#include <charconv>

#include "base/error.h"
#include "base/format.h"
#include "curate/input/wikitext.h"
#include "data/record_reader.h"
#include "text/python_text.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

constexpr std::string_view kPageBegin = "<page>", kPageEnd = "</page>";

// Appends the character that a reference such as "&amp;" means, given without & and ;. False if it is not one of XML's.
bool append_xml_reference(std::string_view name, std::string& text) {
  constexpr std::pair<std::string_view, char> kNames[] = {
      {"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
  for (const auto& [known, character] : kNames)
    if (name == known) {
      text += character;
      return true;
    }
  if (!name.starts_with('#')) return false;
  const bool is_hex = name.starts_with("#x");
  uint32_t code = 0;
  const char* const end = name.data() + name.size();
  const auto [after, error] = std::from_chars(name.data() + (is_hex ? 2 : 1), end, code, is_hex ? 16 : 10);
  if (error != std::errc() || after != end || code == 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
    return false;
  text::append_utf8(code, text);
  return true;
}

std::string unescape_xml(std::string_view xml) {
  std::string text;
  for (size_t at = 0; at < xml.size();) {
    const size_t mark = std::min(xml.find('&', at), xml.size());
    text += xml.substr(at, mark - at);
    at = mark;
    if (at == xml.size()) break;
    constexpr size_t kLongest = 10;  // &#1114111;
    const size_t length = xml.substr(at, kLongest).find(';');
    if (length != std::string_view::npos && append_xml_reference(xml.substr(at + 1, length - 1), text))
      at += length + 1;
    else
      text += xml[at++];
  }
  return text;
}

// The content of the first element of that name; empty where there is none.
std::string_view content_of(std::string_view xml, const std::string& name) {
  size_t begin = 0;
  const std::string tag = concat("<", name);
  while ((begin = xml.find(tag, begin)) != std::string_view::npos) {
    begin += tag.size();
    if (begin < xml.size() && (xml[begin] == '>' || xml[begin] == ' ' || xml[begin] == '/')) break;
  }
  if (begin == std::string_view::npos) return {};
  begin = xml.find('>', begin);
  if (begin == std::string_view::npos || xml[begin - 1] == '/') return {};
  const std::string_view rest = xml.substr(begin + 1);
  return rest.substr(0, rest.find(concat("</", name, ">")));
}

}  // namespace

MediaWikiReader::MediaWikiReader(const std::string& file) : file_(file), stream_(data::open_input(file)) {}

void MediaWikiReader::fail(const std::string& what) const {
  throw UserError(concat("'", file_, "', page ", format_count(num_pages_ + 1), ": ", what), ExitCode::kBadData);
}

size_t MediaWikiReader::find(std::string_view mark) {
  for (size_t from = 0;;) {
    const size_t found = buffer_.find(mark, from);
    if (found != std::string::npos) return found;
    // The mark may begin in what was read and end in what was not.
    from = buffer_.size() - std::min(buffer_.size(), mark.size() - 1);
    if (static_cast<int64_t>(buffer_.size()) > data::kMaxRecordBytes)
      fail(concat("no ", mark, " within ", format_count(data::kMaxRecordBytes), " bytes"));
    if (!fill()) return std::string::npos;
  }
}

bool MediaWikiReader::next(std::string& bytes) {
  if (!started_) {
    while (buffer_.size() < 4096 && fill()) {
    }
    if (std::string_view(buffer_).substr(0, 4096).find("<mediawiki") == std::string_view::npos)
      fail("not a MediaWiki dump: expected <mediawiki");
    started_ = true;
  }
  const size_t begin = find(kPageBegin);
  if (begin == std::string::npos) {
    if (buffer_.find("</mediawiki>") == std::string::npos) fail("the file is cut off: it does not end in </mediawiki>");
    return false;
  }
  buffer_.erase(0, begin);
  const size_t end = find(kPageEnd);
  if (end == std::string::npos) fail("the file is cut off: the page does not end");
  bytes.append(buffer_, 0, end + kPageEnd.size());
  buffer_.erase(0, end + kPageEnd.size());
  ++num_pages_;
  return true;
}

bool read_mediawiki_page(std::string_view page, Document& document, std::string& reason, int64_t& num_replaced) {
  // A dump of all revisions has the newest last.
  const size_t first = page.find("<revision>"), last = page.rfind("<revision>");
  const std::string_view head = page.substr(0, first);
  if (first == std::string_view::npos) {
    reason = "The page has no revision";
    return false;
  }
  const std::string_view revision = page.substr(last), space = content_of(head, "ns");
  std::string storage;
  const auto value = [&](std::string_view xml, const char* name) {
    storage.clear();
    return unescape_xml(text::repair_utf8(content_of(xml, name), storage, num_replaced));
  };
  if (space != "0") {
    reason = space.empty() ? "The page names no namespace" : "The page is in another namespace than articles";
    return false;
  }
  if (head.find("<redirect ") != std::string_view::npos) {
    reason = "The page redirects to another";
    return false;
  }
  const std::string_view model = content_of(revision, "model");
  if (!model.empty() && model != "wikitext") {
    reason = "The page is not wikitext";
    return false;
  }
  if (!strip_wikitext(value(revision, "text"), document.text, reason)) return false;
  if (document.text.empty()) {
    reason = "The page has no text";
    return false;
  }
  document.metadata.set("id", value(head, "id"));
  document.metadata.set("title", value(head, "title"));
  return true;
}

}  // namespace espalier::curate
