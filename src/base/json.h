// JSON that comes from outside: bounded in depth, and refused in our own words.
//
// nlohmann's parser takes any depth, but what it makes is then copied and printed by recursion: a small file of
// brackets would end the process. Everything that reads a file of somebody else's goes through here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace espalier {

inline constexpr int kDeepestJson = 64;

// UserError (kBadData) with place and bound where lists and objects nest deeper than `deepest`. `origin` names the
// file.
void check_json_depth(std::string_view text, const std::string& origin, int deepest = kDeepestJson);

// "line 3, column 9" of the byte at `offset`: columns count characters.
std::string text_place(std::string_view text, size_t offset);

// "line 3, column 17: expected JSON, found '}'"; `byte` counts from 1, as reported by a parser that stopped there.
std::string json_complaint(std::string_view text, size_t byte);

// Throws UserError (kBadData) that begins with `origin`. `watch` is nlohmann's parser callback.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& origin,
                const typename Json::parser_callback_t& watch = nullptr) {
  check_json_depth(text, origin);
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const typename Json::parse_error& error) {
    throw UserError(concat(origin, ": ", json_complaint(text, error.byte)), ExitCode::kBadData);
  } catch (const typename Json::exception&) {
    throw UserError(concat(origin, ": holds a number that is too large to be one"), ExitCode::kBadData);
  }
}

}  // namespace espalier
