// The lines of a file of scored texts.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "eval/fields.h"

namespace espalier::eval {

// `take` gets each line with its end, its fields, and score.ATTRIBUTE, which is nothing where "score" is null. A
// UserError names file and line where there is no such score.
void for_each_scored(
    const std::filesystem::path& file, const std::string& attribute,
    const std::function<void(std::string_view line, const Fields& fields, std::optional<double> score)>& take);

}  // namespace espalier::eval
