// Python's literals (text/python_literal.h) under the names of the tasks.
#pragma once

#include "text/python_literal.h"

namespace espalier::eval {

using text::python::parse_literal;
using text::python::python_repr;
using text::python::python_str;

}  // namespace espalier::eval
