// Numbers as Python's int() and float() read them, because Megatron's command lines and data files are written for
// those: "220_000_000", "+5" and " 5 " are integers, "1e3" and "5.0" are not; numbers also take "1e-8", "inf", "1_0.5".
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace espalier {

// Nothing when the text is not an integer, or none of 64 bits.
std::optional<int64_t> parse_python_int(const std::string& text);

// Nothing when the text is not a number. Too large gives infinity, too small zero, as in Python.
std::optional<double> parse_python_float(const std::string& text);

// The shortest text that reads back to the same number and that is not an integer: "1.0", "1e-05", "inf".
std::string format_python_float(double value);

}  // namespace espalier
