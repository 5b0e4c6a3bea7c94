#include "text/internal/tiktoken_file.h"

#include <charconv>
#include <unordered_map>

#include "base/error.h"
#include "base/format.h"
#include "text/internal/base64.h"
#include "text/internal/json_file.h"
#include "text/internal/serde_json.h"
#include "text/internal/tokenizer_file.h"
#include "text/pretokenizer.h"

namespace espalier::text::internal {

namespace {

constexpr int64_t kMaxRank = int64_t{1} << 24;
constexpr size_t kMaxTokenBytes = 4096;

// Ranks in any order, each once; tokens, each once.
class Collector {
 public:
  explicit Collector(std::string path) : path_(std::move(path)) {}

  // `where`: "line 3".
  void add(std::string token, int64_t rank, const std::string& where) {
    if (token.empty() || token.size() > kMaxTokenBytes) {
      fail(where, concat("a token of ", token.size(), " bytes, expected 1 to ", kMaxTokenBytes));
    }
    if (rank < 0 || rank > kMaxRank) fail(where, concat("rank ", rank, ", expected 0 to ", kMaxRank));
    const auto index = static_cast<size_t>(rank);
    if (index >= ranks_.tokens.size()) ranks_.tokens.resize(index + 1);
    if (!ranks_.tokens[index].empty()) fail(where, concat("rank ", rank, " occurs twice"));
    const auto [known, is_new] = rank_of_.try_emplace(token, rank);
    if (!is_new) fail(where, concat("the token of rank ", rank, " is that of rank ", known->second));
    ranks_.tokens[index] = std::move(token);
  }

  TiktokenRanks take() {
    for (int byte = 0; byte < 256; ++byte) {
      if (rank_of_.count(std::string(1, static_cast<char>(byte))) == 0) {
        fail("", format_printf("no token is the byte 0x%02X; all 256 are needed", byte));
      }
    }
    return std::move(ranks_);
  }

  [[noreturn]] void fail(const std::string& where, const std::string& complaint) const {
    throw UserError(concat("'", path_, "'", where.empty() ? "" : " ", where, ": ", complaint), ExitCode::kBadData);
  }

 private:
  std::string path_;
  TiktokenRanks ranks_;
  std::unordered_map<std::string, int64_t> rank_of_;
};

void read_lines(const std::string& content, Collector& collector) {
  int64_t number = 0;
  for (size_t begin = 0; begin < content.size();) {
    const size_t end = std::min(content.find('\n', begin), content.size());
    std::string_view line = std::string_view(content).substr(begin, end - begin);
    begin = end + 1;
    const std::string where = concat("line ", ++number);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t blank = line.find(' ');
    int64_t rank = -1;
    const char* last = line.data() + line.size();
    const bool whole = blank != std::string_view::npos && std::from_chars(line.data() + blank + 1, last, rank) ==
                                                              std::from_chars_result{last, std::errc()};
    auto token = decode_base64(line.substr(0, blank));
    if (!whole || !token) {
      collector.fail(where, concat("expected \"BASE64 RANK\", found '", line.substr(0, 60), "'"));
    }
    collector.add(std::move(*token), rank, where);
  }
}

void read_json(const std::string& content, const std::filesystem::path& path, Collector& collector) {
  const nlohmann::json list = parse_serde_json(content, path.string());
  if (!list.is_array()) collector.fail("", "expected a list of tokens");
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonPart element(list[i], concat("'", path.string(), "'[", i, "]"));
    auto token = decode_base64(element.text("token_bytes"));
    const int64_t rank = element.whole_number("rank");
    if (!token) element.fail("'token_bytes' is not base64: '" + element.text("token_bytes").substr(0, 60) + "'");
    if (rank != static_cast<int64_t>(i)) element.fail(concat("rank ", rank, ", expected ", i));
    collector.add(std::move(*token), rank, concat("[", i, "]"));
  }
}

std::vector<std::pair<std::string, int32_t>> llama3_special_tokens() {
  std::vector<std::string> names = {"<|begin_of_text|>",
                                    "<|end_of_text|>",
                                    "<|reserved_special_token_0|>",
                                    "<|reserved_special_token_1|>",
                                    "<|reserved_special_token_2|>",
                                    "<|reserved_special_token_3|>",
                                    "<|start_header_id|>",
                                    "<|end_header_id|>",
                                    "<|reserved_special_token_4|>",
                                    "<|eot_id|>"};
  for (int i = 5; i < 251; ++i) names.push_back(concat("<|reserved_special_token_", i, "|>"));
  std::vector<std::pair<std::string, int32_t>> tokens;
  for (const std::string& name : names) tokens.emplace_back(name, 128000 + static_cast<int32_t>(tokens.size()));
  return tokens;
}

// Where a pattern's alternatives are those of another rule, only faster to match, that rule's expression is used.
const std::unordered_map<std::string, TiktokenEncoding>& encodings() {
  static const auto* const kEncodings = [] {
    const std::string gpt2(pattern_of_rule(PieceRule::kGpt2));
    const std::string blanks = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
    const std::string words = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)";
    const std::string capitals = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)";
    const std::string contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?", others = R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|)" + blanks;
    auto* made = new std::unordered_map<std::string, TiktokenEncoding>{
        {"gpt2", {gpt2, {{"<|endoftext|>", 50256}}}},
        {"r50k_base", {gpt2, {{"<|endoftext|>", 50256}}}},
        {"p50k_base", {gpt2, {{"<|endoftext|>", 50256}}}},
        {"cl100k_base",
         {std::string(pattern_of_rule(PieceRule::kCl100k)),
          {{"<|endoftext|>", 100257},
           {"<|fim_prefix|>", 100258},
           {"<|fim_middle|>", 100259},
           {"<|fim_suffix|>", 100260},
           {"<|endofprompt|>", 100276}}}},
        {"o200k_base",
         {words + contraction + "|" + capitals + contraction + R"(|\p{N}{1,3}|)" + others,
          {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}}},
        {"llama3", {std::string(pattern_of_rule(PieceRule::kLlama3)), llama3_special_tokens()}},
        {"v1", {R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)", {}}},
        {"v2", {words + "|" + capitals + R"(|\p{N}|)" + others, {}}},
    };
    return made;
  }();
  return *kEncodings;
}

}  // namespace

TiktokenRanks read_tiktoken_file(const std::filesystem::path& path) {
  const std::string content = read_tokenizer_file(path);
  const size_t first = content.find_first_not_of(" \t\r\n");
  const bool is_json = first != std::string::npos && (content[first] == '[' || content[first] == '{');
  Collector collector(path.string());
  if (is_json)
    read_json(content, path, collector);
  else
    read_lines(content, collector);
  TiktokenRanks ranks = collector.take();
  ranks.is_json = is_json;
  return ranks;
}

bool is_tiktoken_encoding(const std::string& name) { return encodings().count(name) > 0; }

TiktokenEncoding tiktoken_encoding(const std::string& name, const std::string& where) {
  const auto found = encodings().find(name);
  if (found != encodings().end()) return found->second;
  if (name.find_first_of("\\[( |") != std::string::npos) return {name, {}};
  throw UserError(
      concat("'", where, "': --tiktoken-pattern ", name.empty() ? "is missing" : "'" + name + "' is not known",
             "; use gpt2, r50k_base, p50k_base, cl100k_base, o200k_base, llama3, v1, v2 or a regular "
             "expression"),
      ExitCode::kUsage);
}

}  // namespace espalier::text::internal
