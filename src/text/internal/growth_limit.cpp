#include "text/internal/growth_limit.h"

#include "base/error.h"
#include "base/format.h"

namespace espalier::text::internal {

void GrowthLimit::refuse() const {
  throw UserError(concat(where_, ": its rules make a text of ", format_count(static_cast<int64_t>(num_bytes_)),
                         " bytes longer than ", format_count(static_cast<int64_t>(limit_)),
                         " bytes, the most that is accepted. Use the tokenizer's file as its makers published it."),
                  ExitCode::kBadData);
}

}  // namespace espalier::text::internal
