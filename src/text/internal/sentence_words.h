// What the splitter of sentences knows of English words.
#pragma once

#include <string_view>

namespace espalier::text::internal {

// What a period after a word says.
enum class Abbreviation {
  kNone,      // not an abbreviation: it ends the sentence
  kNever,     // "Dr.", "e.g.": something always follows
  kNumbered,  // "Fig. 3": an abbreviation before a number, else as kEnds
  kMayEnd,    // "Inc.", "U.S.": ends a sentence only before a word that often begins one
  kEnds,      // "etc.", "max.": ends a sentence before any capital letter, but not before a small one or a number
};

// `word` in lower case, without its last period: "dr", "e.g", "u.s".
Abbreviation abbreviation_of(std::string_view word);

// Whether a word (in lower case) often begins a sentence, and seldom a name: "the", "however".
bool often_begins_sentence(std::string_view word);

// What follows "5 p.m." inside a sentence: "est", "monday", "january".
bool belongs_to_time(std::string_view word);

}  // namespace espalier::text::internal
