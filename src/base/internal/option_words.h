// What the messages of an option table have in common.
#pragma once

#include <string>
#include <vector>

namespace espalier::internal {

std::string quoted_word(const std::string& word);                     // as it is, or in quotes where a blank is in it
std::string did_you_mean(const std::vector<std::string>& names);      // "; did you mean --a or --b?", "" for none
bool names_place(const std::string& name, const std::string& value);  // an option, of a folder or file to work on
void check_is_recipe_file(const std::string& path);                   // UserError where it is missing or no file

}  // namespace espalier::internal
