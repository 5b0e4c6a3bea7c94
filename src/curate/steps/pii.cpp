#include "curate/steps/pii.h"

#include <algorithm>
#include <map>

#include "curate/regex.h"
#include "curate/steps/pii_keys.h"
#include "curate/steps/steps.h"
#include "text/python_text.h"

namespace espalier::curate {
namespace {

// Classes that several expressions share; \b in a class is a backspace. sc: the script alone, not its extensions.
const std::string kMarksBefore = R"(@?,!;:'")(.)";
const std::string kBefore = R"((?:^|[\b\s)" + kMarksBefore + R"(\p{sc:Han}]))";

std::string email_expression() {
  // Letters (circled ones too), marks and numbers, as \w of the module `regex` has them.
  const std::string word = R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200c}\x{200d}\x{24b6}-\x{24e9})"
                           R"(\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}])";
  return R"((?<=^|[\b\s@,?!;:)('".\p{sc:Han}<]))"
         R"(([^\b\s@?!;,:)('"<]+@[^\b\s@!?;,/]*[^\b\s@?!;,/:)('">.]\.\p{L})" +
         word +
         R"(+))"
         R"((?=$|[\b\s@,?!;:)('".\p{sc:Han}>]))";
}

std::string user_expression() { return R"re((?<=^|[)(\s@,?!;:'"\p{sc:Han}])(@[^)(\s@,?!;:'"]{3,}))re"; }

std::string ip_expression() {
  const std::string byte = "(?:25[0-5]|2[0-4][0-9]|[01]?[0-9][0-9]?)";
  const std::string tight_byte = "(?:25[0-5]|(?:2[0-4]|1?[0-9])?[0-9])";
  const std::string ipv4 = byte + "(?:\\." + byte + "){3}";
  const std::string tight_ipv4 = "(?:" + tight_byte + "\\.){3}" + tight_byte;
  const std::string word = "[0-9a-fA-F]{1,4}", head = "(?:" + word + ":)", tail = "(?::" + word + ")";
  std::string ipv6 = head + "{7}" + word + "|" + head + "{1,7}:";
  // Fewer words before the gap, more after it.
  ipv6 += "|" + head + "{1,6}:" + word;
  for (int before = 5; before >= 2; --before)
    ipv6 += "|" + head + "{1," + std::to_string(before) + "}" + tail + "{1," + std::to_string(7 - before) + "}";
  ipv6 += "|" + word + ":" + tail + "{1,6}|:(?:" + tail + "{1,7}|:)";
  ipv6 += "|fe80:(?::[0-9a-fA-F]{0,4}){0,4}%[0-9a-zA-Z]+";
  ipv6 += "|::(?:ffff(?::0{1,4})?:)?" + tight_ipv4 + "|" + head + "{1,4}:" + tight_ipv4;
  return kBefore + "(" + ipv4 + "|" + ipv6 + R"()(?:$|[\s@,?!;:'"(.\p{sc:Han}]))";
}

// What begins like a date is not an address.
class DateTest {
 public:
  DateTest() {
    const std::string year = "[1-2][0-9]{3}", two = "[0-3][0-9]", dash = R"([\p{Pd}/])", dot = R"([\p{Pd}/.])";
    const std::string after = R"((?:$|[\s@,?!;:'"(.\p{sc:Han}]))";
    const std::string short_year = "(?:[0-9]{2}|" + year + ")";
    for (const std::string& date : {year + dash + year, year + dot + two + dot + two,
                                    two + dot + two + dot + short_year, two + dash + short_year, year + "-" + two})
      dates_.emplace_back(kBefore + "(" + date + ")" + after, /*multiline=*/false, Regex::Anchor::kStart);
  }
  bool operator()(std::string_view text) const {
    return std::any_of(dates_.begin(), dates_.end(), [&](const Regex& date) { return date.matches(text); });
  }

 private:
  std::vector<Regex> dates_;
};

bool has_digit(std::string_view text) { return text.find_first_of("0123456789") != std::string_view::npos; }

bool find_all(const Regex& regex, const char* tag, std::string_view text, std::vector<PiiMatch>& matches) {
  return regex.for_each(text, [&](const Regex::Match& match) {
    matches.push_back({tag, std::string(text.substr(match.group_begin, match.group_end - match.group_begin))});
  });
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex_digit(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// What every address has: two dots with nothing but digits around and between them; or two colons side by side, seven
// with a word each, or the scope of a link-local one.
bool may_have_address(std::string_view text) {
  bool after_dot = false;  // and digits alone since
  int words = 0;
  for (size_t at = 1; at + 1 < text.size(); ++at) {
    const char c = text[at];
    if (c == '.') {
      const bool between_digits = is_digit(text[at - 1]) && is_digit(text[at + 1]);
      if (after_dot && between_digits) return true;
      after_dot = between_digits;
    } else if (!is_digit(c)) {
      after_dot = false;
    }
    words += c == ':' && is_hex_digit(text[at + 1]);
  }
  return words >= 7 || text.find("::") != std::string_view::npos || text.find("fe80:") != std::string_view::npos;
}

bool find_addresses(std::string_view text, std::vector<PiiMatch>& matches) {
  // Each has two of these.
  if (std::count(text.begin(), text.end(), '.') < 3 && std::count(text.begin(), text.end(), ':') < 2) return true;
  if (!may_have_address(text)) return true;
  static const Regex address(ip_expression(), /*multiline=*/true);
  static const DateTest begins_like_date;
  std::vector<PiiMatch> found;
  if (!find_all(address, "IP_ADDRESS", text, found)) return false;
  for (PiiMatch& match : found)
    if (has_digit(match.text) && !begins_like_date(match.text)) matches.push_back(std::move(match));
  return true;
}

class PiiStep : public Step {
 public:
  PiiStep(std::vector<std::string> tags, std::string counts_key)
      : tags_(std::move(tags)), counts_key_(std::move(counts_key)) {}

  Fate apply(Document& document) const override {
    std::vector<PiiMatch> matches;
    if (!find_pii(document.text, matches)) return Fate::dropped("too_complex");
    std::erase_if(matches, [&](const PiiMatch& match) {
      return std::find(tags_.begin(), tags_.end(), match.tag) == tags_.end();
    });
    if (matches.empty()) return Fate::kept();
    document.text = redacted(document.text, matches);
    if (!counts_key_.empty()) {
      nlohmann::ordered_json counts = nlohmann::ordered_json::object();
      for (const PiiMatch& match : matches) counts[match.tag] = counts.value(match.tag, 0) + 1;
      document.metadata.set(counts_key_, counts);
    }
    return Fate::kept();
  }

 private:
  std::vector<std::string> tags_;
  std::string counts_key_;
};

class PiiMaker : public StepMaker {
 public:
  void add_rows(OptionTable& table) override {
    table.add("--tags", tags_, "what is masked").choices({"EMAIL", "IP_ADDRESS", "KEY", "USER"}).value_name("TAG");
    table.add("--counts-key", counts_key_, "write under this key how much of each was masked").value_name("KEY");
  }
  std::unique_ptr<Step> make_step() const override { return std::make_unique<PiiStep>(tags_, counts_key_); }

 private:
  std::vector<std::string> tags_ = {"EMAIL", "IP_ADDRESS", "KEY", "USER"};
  std::string counts_key_;
};

}  // namespace

bool find_pii(std::string_view text, std::vector<PiiMatch>& matches) {
  const bool has_at = text.find('@') != std::string_view::npos;
  static const Regex email(email_expression(), /*multiline=*/true), user(user_expression(), /*multiline=*/true);
  if (has_at && !find_all(email, "EMAIL", text, matches)) return false;
  if (!find_addresses(text, matches)) return false;
  std::vector<std::string> keys;
  if (!find_keys(text, keys)) return false;
  for (std::string& key : keys) matches.push_back({"KEY", std::move(key)});
  return !has_at || find_all(user, "USER", text, matches);
}

std::string redacted(std::string_view text, const std::vector<PiiMatch>& matches) {
  std::string result(text);
  for (const PiiMatch& match : matches) result = text::python::replace_all(result, match.text, "PI:" + match.tag);
  return result;
}

std::unique_ptr<StepMaker> pii_maker() { return std::make_unique<PiiMaker>(); }

}  // namespace espalier::curate
