#include "curate/document.h"

#include <algorithm>

#include "base/error.h"
#include "data/json_record.h"
#include "text/utf8.h"

namespace espalier::curate {
namespace {

// Walks the members of a JSON object that is known to be valid.
class MemberScanner {
 public:
  explicit MemberScanner(std::string_view object) : text_(object), at_(object.find('{') + 1) {}

  // The key between its quotes and the value, both unparsed. False after the last.
  bool next(std::string_view& raw_key, std::string_view& value) {
    skip_blanks();
    if (text_[at_] == ',') ++at_;
    skip_blanks();
    if (text_[at_] == '}') return false;
    const size_t key = at_ + 1;
    skip_string();
    raw_key = text_.substr(key, at_ - key - 1);
    skip_blanks();
    ++at_;  // the colon
    skip_blanks();
    const size_t begin = at_;
    skip_value();
    value = text_.substr(begin, at_ - begin);
    return true;
  }

 private:
  void skip_blanks() {
    while (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r') ++at_;
  }
  void skip_string() {
    for (++at_; text_[at_] != '"'; ++at_)
      if (text_[at_] == '\\') ++at_;
    ++at_;
  }
  void skip_value() {
    for (int depth = 0;;) {
      const char first = text_[at_];
      if (first == '"') {
        skip_string();
      } else {
        if (first == '{' || first == '[') ++depth;
        if (first == '}' || first == ']') --depth;
        ++at_;
      }
      if (depth > 0) continue;
      // A number or a word goes on to what ends it.
      if (first == '"' || first == '}' || first == ']') return;
      while (std::string_view(",} \t\n\r").find(text_[at_]) == std::string_view::npos) ++at_;
      return;
    }
  }

  std::string_view text_;
  size_t at_;
};

// As nlohmann's dump() writes valid UTF-8.
void append_json_string(std::string_view text, std::string& out) {
  constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char *at = text.data(), *const end = at + text.size(); at < end;) {
    const char* const special = data::find_json_special(at, end);
    out.append(at, special);
    if (special == end) break;
    switch (*special) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: out.append("\\u00").append({kHex[*special >> 4], kHex[*special & 15]});
    }
    at = special + 1;
  }
  out += '"';
}

std::string decoded(std::string_view raw) {
  if (raw.find('\\') == std::string_view::npos) return std::string(raw);
  data::JsonRecord record({"k"}, /*replace_lone_surrogates=*/true);
  const std::string object = concat("{\"k\":\"", raw, "\"}");
  return record.parse(object) ? std::string(record.text(0)) : std::string(raw);
}

// One reader for each thread: it keeps its buffers.
data::JsonRecord& reader_for(std::string_view text_key) {
  thread_local std::string key;
  thread_local std::unique_ptr<data::JsonRecord> reader;
  if (reader == nullptr || key != text_key) {
    key = text_key;
    reader = std::make_unique<data::JsonRecord>(std::vector<std::string>{key}, /*replace_lone_surrogates=*/true);
  }
  return *reader;
}

}  // namespace

std::string_view Metadata::json(std::string_view key) const {
  for (const Member& member : members_)
    if (member.key == key) return member.json;
  return {};
}

std::optional<std::string> Metadata::text(std::string_view key) const {
  const std::string_view value = json(key);
  if (value.size() < 2 || value.front() != '"') return std::nullopt;
  return decoded(value.substr(1, value.size() - 2));
}

void Metadata::set(std::string_view key, const nlohmann::ordered_json& value) {
  set_json(key, value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void Metadata::set_json(std::string_view key, std::string json) {
  for (Member& member : members_)
    if (member.key == key) {
      member.json = std::move(json);
      return;
    }
  members_.push_back({std::string(key), std::move(json)});
}

void Metadata::erase(std::string_view key) {
  std::erase_if(members_, [key](const Member& member) { return member.key == key; });
}

bool parse_document(std::string_view line, std::string_view text_key, Document& document, std::string& reason,
                    int64_t& num_replaced) {
  std::string storage;
  line = text::repair_utf8(line, storage, num_replaced);
  data::JsonRecord& record = reader_for(text_key);
  const int64_t surrogates_before = record.num_replaced();
  if (!record.parse(line)) {
    reason = record.problem().reason;
    return false;
  }
  num_replaced += record.num_replaced() - surrogates_before;
  document.text = record.text(0);
  document.metadata = {};
  MemberScanner members(line);
  for (std::string_view key, value; members.next(key, value);) {
    const std::string name = decoded(key);
    // JSON is never empty: an empty value marks the place of the text, which is kept apart.
    document.metadata.set_json(name, name == text_key ? std::string() : std::string(value));
  }
  return true;
}

void append_json(const Document& document, std::string_view text_key, std::string& line) {
  const std::vector<Metadata::Member>& members = document.metadata.members();
  const char* before = "{";
  const auto append_key = [&](std::string_view key) {
    line += before;
    append_json_string(key, line);
    line += ": ";
    before = ", ";
  };
  const auto append_text = [&] {
    append_key(text_key);
    append_json_string(document.text, line);
  };
  if (std::none_of(members.begin(), members.end(), [](const auto& member) { return member.json.empty(); }))
    append_text();
  for (const Metadata::Member& member : members) {
    if (member.json.empty()) {
      append_text();
    } else {
      append_key(member.key);
      line += member.json;
    }
  }
  line += '}';
}

}  // namespace espalier::curate
