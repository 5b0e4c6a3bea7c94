// Python's str (text/python_text.h) under the names of the tasks.
#pragma once

#include "text/python_text.h"

namespace espalier::eval {

using text::python::capitalize;
using text::python::count_fields;
using text::python::lowercase;
using text::python::num_characters;
using text::python::replace_all;
using text::python::replace_in_order;
using text::python::Replacement;
using text::python::repr;
using text::python::slice;
using text::python::split_words;
using text::python::strip;
using text::python::strip_left;
using text::python::strip_right;

}  // namespace espalier::eval
