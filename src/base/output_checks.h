// What is in the way of writing an output file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

// Why a command that writes such files again and again may not replace this one: it exists, is not empty, and does not
// begin as they do. `kind`: "a picture in SVG". Empty where it may.
std::string describe_other_file(const std::filesystem::path& output, std::string_view start, const std::string& kind);

// Whether the two names mean one file, which then would be replaced while it is read.
bool is_same_file(const std::filesystem::path& input, const std::filesystem::path& output);

// The last part of a folder's path, also where it ends in a slash, or is ".".
std::string name_of_folder(const std::filesystem::path& folder);

// A UserError where `target`, the folder of --to, in which a folder of the name of `source` is made, is `source`, or
// inside it, or holds it under that name: a copy there is lost with what it is of, or is no copy.
void check_is_outside(const std::filesystem::path& target, const std::filesystem::path& source);

}  // namespace espalier
