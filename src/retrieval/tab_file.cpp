#include "retrieval/tab_file.h"

#include "base/error.h"

namespace espalier::retrieval {

TabFile::TabFile(const std::string& path) : path_(path), stream_(data::open_input(path)) {}

bool TabFile::take(char& byte) {
  if (at_ == buffer_.size()) {
    buffer_.clear();
    at_ = 0;
    if (!data::read_on(*stream_, buffer_)) return false;
  }
  byte = buffer_[at_++];
  return true;
}

void TabFile::refuse(const std::string& what) const {
  throw UserError(concat("'", data::shown_name(path_), "', line ", first_line_, ": ", what), ExitCode::kBadData);
}

bool TabFile::next(std::vector<std::string>& fields) {
  enum class In { kFieldBegin, kField, kQuotes, kAfterQuote };
  fields.assign(1, "");
  first_line_ = line_;
  In in = In::kFieldBegin;
  bool any = false;
  for (char byte; take(byte);) {
    if (byte == '\n') ++line_;
    if (in == In::kQuotes) {
      if (byte == '"')
        in = In::kAfterQuote;
      else
        fields.back() += byte;
      continue;
    }
    if (byte == '\n') {
      if (!fields.back().empty() && fields.back().back() == '\r' && in != In::kAfterQuote) fields.back().pop_back();
      if (any && !(fields.size() == 1 && fields[0].empty())) return true;
      fields.assign(1, "");
      first_line_ = line_;
      in = In::kFieldBegin;
      any = false;
      continue;
    }
    any = true;
    if (byte == '\t') {
      fields.emplace_back();
      in = In::kFieldBegin;
    } else if (byte == '"' && in == In::kFieldBegin) {
      in = In::kQuotes;
    } else if (byte == '"' && in == In::kAfterQuote) {
      fields.back() += byte;
      in = In::kQuotes;
    } else if (byte != '\r' || in != In::kAfterQuote) {
      fields.back() += byte;
      in = In::kField;
    }
  }
  if (in == In::kQuotes) refuse("a field begins with a quotation mark that is never closed");
  return any;
}

}  // namespace espalier::retrieval
