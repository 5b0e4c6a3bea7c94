#include "eval/generation_rules.h"

#include <set>

#include "base/format.h"

namespace espalier::eval {
namespace {

constexpr int64_t kUsualTokens = 256;
constexpr int64_t kMostTokens = 1'000'000;

// Names of one thing; where several are given, the first of these counts.
constexpr const char* kLengthKeys[] = {"max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"};

class GenerationReader {
 public:
  GenerationReader(const TaskFile& file, Problems& problems)
      : place_(file.place("generation_kwargs") + ": generation_kwargs: "), problems_(problems) {
    const Json given = file.config.value("generation_kwargs", Json());
    arguments_ =
        given.is_null() ? Json{{"temperature", 0.0}, {"do_sample", false}, {"max_gen_toks", kUsualTokens}} : given;
    if (!arguments_.is_object()) {
      refuse("expected keys with values");
      arguments_ = Json::object();
    }
    if (!arguments_.contains("until"))
      arguments_["until"] = Json::array({file.config.value("fewshot_delimiter", Json("\n\n"))});
  }

  std::optional<Generation> read(std::optional<int64_t> max_gen_toks) {
    const size_t before = problems_.messages().size();
    check_keys();
    if (max_gen_toks) {
      for (const char* const key : kLengthKeys) arguments_.erase(key);
      arguments_["max_gen_toks"] = *max_gen_toks;
    }
    Generation generation;
    generation.arguments = arguments_;
    generation.until = stops();
    generation.max_tokens = max_tokens();
    generation.temperature = temperature();
    generation.top_p = number("top_p", 0, 1);
    if (generation.top_p == 1) generation.top_p = 0;
    generation.top_k = static_cast<int64_t>(number("top_k", 0, 1e9));
    if (problems_.messages().size() != before) return std::nullopt;
    return generation;
  }

 private:
  template <class... Parts>
  void refuse(const Parts&... parts) {
    problems_.add(place_, parts...);
  }

  void check_keys() {
    static const std::set<std::string> kKeys = {"until", "do_sample", "temperature", "top_p", "top_k", "num_beams"};
    const std::set<std::string> lengths(std::begin(kLengthKeys), std::end(kLengthKeys));
    for (const auto& [key, value] : arguments_.items())
      if (!kKeys.contains(key) && !lengths.contains(key)) refuse("the key '", key, "' is not supported");
    if (const Json beams = arguments_.value("num_beams", Json(1)); beams != Json(1))
      refuse("num_beams ", beams.dump(), " is not supported; 1 is");
  }

  std::vector<std::string> stops() {
    const Json until = arguments_["until"];
    std::vector<std::string> texts;
    for (const Json& stop : until.is_array() ? until : Json::array({until}))
      if (!stop.is_string() || stop.get<std::string>().empty())
        refuse("until: ", stop.dump(), " is not a text that ends another");
      else
        texts.push_back(stop.get<std::string>());
    return texts;
  }

  int64_t max_tokens() {
    for (const char* const key : kLengthKeys) {
      const Json value = arguments_.value(key, Json());
      if (value.is_null()) continue;
      if (value.is_number_integer() && value >= 1 && value <= kMostTokens) return value.get<int64_t>();
      refuse(key, " ", value.dump(), " is not within 1 to ", format_count(kMostTokens));
    }
    return kUsualTokens;
  }

  double number(const char* key, double least, double most) {
    const Json value = arguments_.value(key, Json());
    if (value.is_null()) return 0;
    if (value.is_number() && value >= least && value <= most) return value.get<double>();
    refuse(key, " ", value.dump(), " is not a number within ", least, " to ", most);
    return 0;
  }

  // do_sample decides where it is given.
  double temperature() {
    const Json samples = arguments_.value("do_sample", Json());
    if (!samples.is_null() && !samples.is_boolean()) refuse("do_sample must be true or false");
    const double given = number("temperature", 0, 1000);
    if (samples == Json(false)) return 0;
    if (samples == Json(true) && given == 0) refuse("do_sample: true needs a temperature above 0");
    return given;
  }

  std::string place_;
  Problems& problems_;
  Json arguments_;
};

}  // namespace

std::optional<Generation> read_generation(const TaskFile& file, std::optional<int64_t> max_gen_toks,
                                          Problems& problems) {
  return GenerationReader(file, problems).read(max_gen_toks);
}

std::string before_stops(std::string text, const std::vector<std::string>& stops) {
  for (const std::string& stop : stops)
    if (const size_t found = text.find(stop); found != std::string::npos) text.resize(found);
  return text;
}

}  // namespace espalier::eval
