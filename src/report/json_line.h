// One line of a .jsonl file, read without building a tree: a run of a million steps has a gigabyte of them.
#pragma once

#include <functional>
#include <string_view>

namespace espalier::report {

// Calls visit(key, value) for every member of the object in `line`; `value` is its text (a number, a quoted string, a
// nested object with its brackets). Keys are given as they are between the quotes. False, after some calls perhaps,
// where the line is not a whole object, as when it was cut off.
bool for_each_member(std::string_view line,
                     const std::function<void(std::string_view key, std::string_view value)>& visit);

// A number, or NaN: what JSON has for it (null), and for everything that is not a number.
double number_of(std::string_view value);

// The text of a quoted string; "" for anything else.
std::string text_of(std::string_view value);

}  // namespace espalier::report
