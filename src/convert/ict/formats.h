// Retrievers, of the inverse cloze task and finetuned ones, in other programs' formats.
#pragma once

#include "convert/formats.h"

namespace espalier::convert {

const FamilyFormats& ict_formats();
const FamilyFormats& ict_task_formats();

}  // namespace espalier::convert
