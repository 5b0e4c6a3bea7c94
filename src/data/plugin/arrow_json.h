// Values of Arrow's arrays as JSON text.
//
// Numbers, truths, texts, lists, structures and maps with text as keys become what JSON has for them; bytes are taken
// for UTF-8; dates, times and decimal numbers become text as Arrow writes it, NaN and infinities null.
#pragma once

#include <arrow/type_fwd.h>

#include <cstdint>
#include <string>

namespace espalier::data {

// The name of the first column, with those inside it, that has no JSON ("a.b: interval"); empty if all have one.
std::string column_without_json(const arrow::Schema& schema);

void append_json(const arrow::Array& array, int64_t row, std::string& out);
void append_json_string(std::string_view text, std::string& out);

}  // namespace espalier::data
