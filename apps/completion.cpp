// espalier completion bash: a script for bash that asks the commands themselves for their options.
#include <cstdio>

#include "base/error.h"
#include "commands.h"

namespace espalier {

int completion_main(const std::vector<std::string>& arguments) {
  if (!arguments.empty() && (arguments.back() == "--help" || arguments.back() == "-h")) {
    std::printf(
        "usage: source <(espalier completion bash)\n\nPrints a script that completes commands and options in bash.\n");
    return 0;
  }
  if (arguments != std::vector<std::string>{"bash"})
    throw UserError("usage: source <(espalier completion bash)", ExitCode::kUsage);
  std::string names;
  for (const Command& command : commands()) names += std::string(names.empty() ? "" : " ") + command.name;
  // The words before the first option (data inspect, train gpt) name the table; --help-names lists its options.
  std::printf(R"script(_espalier() {
  local word=${COMP_WORDS[COMP_CWORD]} command=() at
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "%s help" -- "$word"))
    return
  fi
  case $word in -*) ;; *) COMPREPLY=($(compgen -f -- "$word")); return ;; esac
  for ((at = 1; at < COMP_CWORD && at < 3; ++at)); do
    case ${COMP_WORDS[at]} in -*) break ;; *) command+=("${COMP_WORDS[at]}") ;; esac
  done
  COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" "${command[@]}" --help-names 2>/dev/null)" -- "$word"))
}
complete -o filenames -F _espalier espalier
)script",
              names.c_str());
  return 0;
}

}  // namespace espalier
