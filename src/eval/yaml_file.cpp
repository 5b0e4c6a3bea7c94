#include "eval/yaml_file.h"

#include <yaml.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "text/utf8.h"

namespace espalier::eval {
namespace {

// Aliases may make much out of little.
constexpr int64_t kMostNodes = 1'000'000;
constexpr int kDeepestYaml = 50;

bool is_one_of(const std::string& text, const std::set<std::string>& words) { return words.contains(text); }

bool begins_with_digit(const std::string& text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }

void erase_underscores(std::string& text) { text.erase(std::remove(text.begin(), text.end(), '_'), text.end()); }

std::optional<Json> whole_number(std::string text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative || text.starts_with('+')) text.erase(0, 1);
  if (!begins_with_digit(text)) return std::nullopt;
  erase_underscores(text);
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.erase(0, 2);
  } else if (text.starts_with("0b")) {
    base = 2;
    text.erase(0, 2);
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8;
  }
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value, base);
  if (text.empty() || text[0] == '-' || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return is_negative ? -value : value;
}

// PyYAML's: with a point, and a sign in the exponent.
std::optional<Json> decimal_number(std::string text) {
  erase_underscores(text);
  if (text.find('.') == std::string::npos) return std::nullopt;
  const size_t exponent = text.find_first_of("eE");
  if (exponent != std::string::npos &&
      (exponent + 1 >= text.size() || (text[exponent + 1] != '+' && text[exponent + 1] != '-')))
    return std::nullopt;
  if (text.starts_with('+')) text.erase(0, 1);
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != std::string::npos) return std::nullopt;
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

Json plain_scalar(const std::string& text) {
  if (is_one_of(text, {"", "~", "null", "Null", "NULL"})) return nullptr;
  if (is_one_of(text, {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"})) return true;
  if (is_one_of(text, {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})) return false;
  if (const auto number = whole_number(text)) return *number;
  if (const auto number = decimal_number(text)) return *number;
  return text;
}

// One event of libyaml's parser.
class YamlEvent {
 public:
  YamlEvent() = default;
  ~YamlEvent() { yaml_event_delete(&event_); }
  YamlEvent(const YamlEvent&) = delete;
  YamlEvent& operator=(const YamlEvent&) = delete;

  yaml_event_t* get() { return &event_; }
  yaml_event_type_t type() const { return event_.type; }
  size_t line() const { return event_.start_mark.line + 1; }

  std::string anchor() const {
    return string_of(is_map()      ? event_.data.mapping_start.anchor
                     : is_list()   ? event_.data.sequence_start.anchor
                     : is_scalar() ? event_.data.scalar.anchor
                                   : event_.data.alias.anchor);
  }
  std::string tag() const {
    return string_of(is_map()    ? event_.data.mapping_start.tag
                     : is_list() ? event_.data.sequence_start.tag
                                 : event_.data.scalar.tag);
  }
  bool is_plain() const { return event_.data.scalar.style == YAML_PLAIN_SCALAR_STYLE; }
  std::string value() const {
    return {reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length};
  }
  bool is_scalar() const { return event_.type == YAML_SCALAR_EVENT; }
  bool is_list() const { return event_.type == YAML_SEQUENCE_START_EVENT; }
  bool is_map() const { return event_.type == YAML_MAPPING_START_EVENT; }

 private:
  static std::string string_of(const yaml_char_t* text) {
    return text == nullptr ? "" : reinterpret_cast<const char*>(text);
  }

  yaml_event_t event_{};
};

class YamlReader {
 public:
  YamlReader(const std::string& content, const std::string& name) : name_(name) {
    ESPALIER_CHECK(yaml_parser_initialize(&parser_) == 1);
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(content.data()), content.size());
  }
  ~YamlReader() { yaml_parser_delete(&parser_); }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;

  YamlFile read() {
    YamlFile file;
    skip(YAML_STREAM_START_EVENT);
    YamlEvent begin;
    next(begin);
    if (begin.type() == YAML_STREAM_END_EVENT) fail_at_end();
    YamlEvent root;
    next(root);
    if (!root.is_map()) fail_at_end();
    file.content = read_map(root, 0, &file.places);
    skip(YAML_DOCUMENT_END_EVENT);
    YamlEvent end;
    next(end);
    if (end.type() != YAML_STREAM_END_EVENT) fail(end.line(), "a second document");
    return file;
  }

 private:
  using Places = std::map<std::string, std::string>;
  struct Anchored {
    Json value;
    int64_t num_nodes = 0;
  };

  [[noreturn]] void fail(size_t line, const std::string& what) const {
    throw UserError(concat(name_, ":", line, ": ", what), ExitCode::kBadData);
  }
  [[noreturn]] void fail_at_end() const { throw UserError(name_ + ": expected keys with values", ExitCode::kBadData); }
  void next(YamlEvent& event) {
    if (yaml_parser_parse(&parser_, event.get()) == 0)
      fail(parser_.problem_mark.line + 1,
           concat("no YAML: ", parser_.problem == nullptr ? "out of memory" : parser_.problem));
  }
  void skip(yaml_event_type_t type) {
    YamlEvent event;
    next(event);
    ESPALIER_CHECK(event.type() == type, event.type());
  }

  Json read_node(const YamlEvent& event, int depth) {
    if (++num_nodes_ > kMostNodes || depth > kDeepestYaml) fail(event.line(), "nests or repeats too much");
    if (event.type() == YAML_ALIAS_EVENT) return aliased(event);
    const std::string anchor = event.anchor();
    const int64_t before = num_nodes_ - 1;
    Json value = event.is_scalar() ? scalar(event)
                 : event.is_list() ? read_list(event, depth)
                                   : read_map(event, depth, nullptr);
    if (!anchor.empty()) anchors_[anchor] = {value, num_nodes_ - before};
    return value;
  }
  Json aliased(const YamlEvent& event) {
    const auto found = anchors_.find(event.anchor());
    if (found == anchors_.end()) fail(event.line(), concat("nothing has the anchor &", event.anchor()));
    num_nodes_ += found->second.num_nodes;
    if (num_nodes_ > kMostNodes) fail(event.line(), "nests or repeats too much");
    return found->second.value;
  }
  Json scalar(const YamlEvent& event) const {
    const std::string tag = event.tag();
    if (tag == "!function") return "!function " + event.value();
    if (tag.empty() && event.is_plain()) return plain_scalar(event.value());
    if (!is_one_of(tag, {"", "!", "tag:yaml.org,2002:str"}))
      fail(event.line(), concat("the tag ", tag, " is not supported"));
    return event.value();
  }
  Json read_list(const YamlEvent& begin, int depth) {
    check_tag(begin, "tag:yaml.org,2002:seq");
    Json list = Json::array();
    for (;;) {
      YamlEvent event;
      next(event);
      if (event.type() == YAML_SEQUENCE_END_EVENT) return list;
      list.push_back(read_node(event, depth + 1));
    }
  }
  Json read_map(const YamlEvent& begin, int depth, Places* places) {
    check_tag(begin, "tag:yaml.org,2002:map");
    Json object = Json::object();
    for (;;) {
      YamlEvent key, value;
      next(key);
      if (key.type() == YAML_MAPPING_END_EVENT) return object;
      if (!key.is_scalar()) fail(key.line(), "a key is not a text");
      if (key.is_plain() && key.value() == "<<") fail(key.line(), "the key << is not supported");
      next(value);
      if (places != nullptr) (*places)[key.value()] = concat(name_, ":", key.line());
      object[key.value()] = read_node(value, depth + 1);
    }
  }
  void check_tag(const YamlEvent& event, const char* usual) const {
    if (!is_one_of(event.tag(), {"", "!", usual}))
      fail(event.line(), concat("the tag ", event.tag(), " is not supported"));
  }

  std::string name_;
  yaml_parser_t parser_{};
  std::map<std::string, Anchored> anchors_;
  int64_t num_nodes_ = 0;
};

}  // namespace

YamlFile parse_yaml(const std::string& content, const std::string& name) {
  if (const size_t valid = text::valid_utf8_prefix(content); valid != content.size())
    throw UserError(concat(name, ": byte ", valid + 1, " is not UTF-8"), ExitCode::kBadData);
  return YamlReader(content, name).read();
}

YamlFile read_yaml(const std::filesystem::path& path) { return parse_yaml(read_file(path), path); }

}  // namespace espalier::eval
