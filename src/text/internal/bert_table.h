// What BERT's two tokenizers see in a code point: Megatron's under Python 3.11 (Unicode 14) and Hugging Face's
// tokenizers 0.23. bert_table.cpp is written by generate_bert_table.py.
#pragma once

#include "text/unicode_table.h"

namespace espalier::text::internal {

extern const CodeRange kPythonDropped[], kPythonBlank[], kPythonMark[], kPythonPunctuation[], kPythonCased[],
    kPythonCaseIgnorable[], kNewerThanPython[], kRustDropped[], kRustBlank[], kRustMark[], kRustPunctuation[],
    kRustChinese[];
extern const size_t kPythonDroppedSize, kPythonBlankSize, kPythonMarkSize, kPythonPunctuationSize, kPythonCasedSize,
    kPythonCaseIgnorableSize, kNewerThanPythonSize, kRustDroppedSize, kRustBlankSize, kRustMarkSize,
    kRustPunctuationSize, kRustChineseSize;

}  // namespace espalier::text::internal
