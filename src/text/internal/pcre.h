// PCRE2's objects, released when they go out of scope. After a failed creation they are null.
#pragma once

#include <memory>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace espalier::text::internal {

template <auto release>
struct Releaser {
  template <class T>
  void operator()(T* pointer) const {
    release(pointer);
  }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Releaser<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Releaser<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Releaser<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Releaser<pcre2_jit_stack_free>>;

}  // namespace espalier::text::internal
