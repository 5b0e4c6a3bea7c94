#include "eval/detoxify/scored_file.h"

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "data/line_reader.h"

namespace espalier::eval {

void for_each_scored(
    const std::filesystem::path& file, const std::string& attribute,
    const std::function<void(std::string_view line, const Fields& fields, std::optional<double> score)>& take) {
  data::LineReader lines({file.string()});
  int64_t number = 0;
  for (std::string_view line; lines.next(line);) {
    const std::string place = concat(file.string(), ":", ++number);
    const Json json = parse_json<Json>(line, place);
    const Fields fields(json, place);
    const auto score = json.is_object() ? json.find("score") : json.end();
    if (score == json.end()) fields.refuse("no member score; 'espalier detoxify score' adds it");
    const std::optional<double> value =
        score->is_null() ? std::nullopt : std::optional(fields.number("score." + attribute));
    if (value && !std::isfinite(*value)) fields.refuse(concat("score.", attribute, " is ", *value));
    take(line, fields, value);
  }
  if (number == 0) throw UserError(concat(file.string(), " has no lines"), ExitCode::kBadData);
}

}  // namespace espalier::eval
