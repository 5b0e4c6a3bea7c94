// Megatron's NullTokenizer: texts are ids already, whole numbers with one blank between them. For runs on made-up data.
#pragma once

#include <cstdint>
#include <memory>

#include "text/tokenizer.h"

namespace espalier::text {

// Ids 0 to `size` - 1, and `size` itself, which ends a document. Encoding anything else throws a UserError.
std::unique_ptr<Tokenizer> make_null_tokenizer(int64_t size);

}  // namespace espalier::text
