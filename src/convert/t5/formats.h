// Foreign formats of T5.
#pragma once

#include "convert/formats.h"

namespace espalier::convert {

const FamilyFormats& t5_formats();

}  // namespace espalier::convert
