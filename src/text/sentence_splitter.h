// Cuts English text into sentences, for BERT and T5, by rules and lists of its own; docs/data-path.md lists them.
//
// A sentence ends at '.', '!', '?' or an ellipsis, with the quotes and brackets that close right after it, where a
// blank follows and what is before and after does not speak against it: abbreviations and initials, numbers, a
// small letter that follows. It ends at an empty line and before the next item of a list, too. The stops of Chinese and
// Japanese need no blank after them. Bytes that are not UTF-8 are like letters; a character is never cut.
//
//   std::vector<std::string_view> sentences;
//   split_sentences("Dr. Who? Yes.", SentenceBlanks::kDropped, sentences);   // "Dr. Who?", "Yes."
#pragma once

#include <string_view>
#include <vector>

namespace espalier::text {

enum class SentenceBlanks {
  kDropped,  // sentences begin and end with something else; a text of blanks has none
  kKept,     // a sentence has the blanks and line ends after it: all of them joined are the text
};

// Replaces `sentences` by those of `text`, which they point into. Linear in the length of the text.
void split_sentences(std::string_view text, SentenceBlanks blanks, std::vector<std::string_view>& sentences);

}  // namespace espalier::text
