// XML dumps of MediaWiki: their pages one after another, and the document of one.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "curate/document.h"
#include "data/input_stream.h"

namespace espalier::curate {

class MediaWikiReader {
 public:
  explicit MediaWikiReader(const std::string& file);
  // Appends the next <page>...</page> to `bytes`. False at the end. A file that is not a dump, or is cut off, is a
  // UserError that names it.
  bool next(std::string& bytes);
  int64_t consumed_bytes() const { return stream_->consumed_bytes(); }

 private:
  bool fill() { return data::read_on(*stream_, buffer_); }
  [[noreturn]] void fail(const std::string& what) const;
  // Where `mark` is in the buffer, reading on until it is; npos at the end of the file.
  size_t find(std::string_view mark);

  std::string file_;
  std::unique_ptr<data::InputStream> stream_;
  std::string buffer_;
  int64_t num_pages_ = 0;
  bool started_ = false;  // <mediawiki was read
};

// The last revision of an article; title and id become metadata. False, with the reason, for redirects, other
// namespaces and other kinds of content.
bool read_mediawiki_page(std::string_view page, Document& document, std::string& reason, int64_t& num_replaced);

}  // namespace espalier::curate
