// The templates of task files (text/jinja/template.h) under the name of the tasks.
#pragma once

#include "text/jinja/template.h"

namespace espalier::eval {

using text::Template;

}  // namespace espalier::eval
