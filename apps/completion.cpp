// espalier completion: scripts for shells that ask the program itself what can take the place of a word.
#include <algorithm>
#include <cstdio>

#include "apps/commands.h"
#include "base/format.h"
#include "base/options.h"
#include "launch/launch_options.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

constexpr const char* kBash = R"script(# bash: source <(espalier completion bash)
_espalier() {
  local at joins=0 prefix= current line
  local -a words=() found=()
  # bash cuts --name=value into three words.
  for ((at = 1; at <= COMP_CWORD; ++at)); do
    if [[ ${COMP_WORDS[at]} == "=" && ${#words[@]} -gt 0 ]]; then
      words[-1]+="="
      joins=1
    elif ((joins)); then
      words[-1]+=${COMP_WORDS[at]}
      joins=0
    else
      words+=("${COMP_WORDS[at]}")
    fi
  done
  current=${words[-1]}
  if [[ $current == -*=* ]]; then prefix=${current%%=*}=; fi
  COMPREPLY=()
  while IFS= read -r line; do
    case $line in
      :files) compopt -o filenames 2>/dev/null; mapfile -t found < <(compgen -f -- "${current#"$prefix"}") ;;
      :folders) compopt -o filenames 2>/dev/null; mapfile -t found < <(compgen -d -- "${current#"$prefix"}") ;;
      *) line=${line%%$'\t'*}; found=("${line#"$prefix"}") ;;
    esac
    COMPREPLY+=("${found[@]}")
  done < <("${COMP_WORDS[0]}" completion --words "${words[@]}" 2>/dev/null)
}
complete -F _espalier espalier
)script";

constexpr const char* kZsh = R"script(#compdef espalier
# zsh: source <(espalier completion zsh), after compinit; or as the file _espalier in a folder of $fpath
_espalier() {
  local line
  local -a lines names shown
  lines=("${(@f)$("${words[1]}" completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  case ${lines[1]} in
    (:files) compset -P '--*='; _files; return ;;
    (:folders) compset -P '--*='; _files -/; return ;;
  esac
  for line in "${lines[@]}"; do
    [[ -n $line ]] || continue
    names+=("${line%%$'\t'*}")
    shown+=("${line/$'\t'/  -- }")
  done
  compadd -l -d shown -a names
}
if [[ ${funcstack[1]-} == _espalier ]]; then _espalier "$@"; else compdef _espalier espalier; fi
)script";

constexpr const char* kFish = R"script(# fish: espalier completion fish | source
function __espalier_complete
  set -l words (commandline -opc)
  set -l program $words[1]
  set -e words[1]
  set -l current (commandline -ct)
  for line in ($program completion --words $words "$current" 2>/dev/null)
    switch $line
      case ':files' ':folders'
        set -l parts (string match -r '^(--[^=]*=)?(.*)$' -- "$current")
        if test $line = ':files'
          set found (__fish_complete_path $parts[-1])
        else
          set found (__fish_complete_directories $parts[-1])
        end
        if test (count $parts) -eq 3
          for path in $found
            echo $parts[2]$path
          end
        else
          printf '%s\n' $found
        end
      case '*'
        echo $line
    end
  end
end
complete -c espalier -f -a '(__espalier_complete)'
)script";

// The commands of a list that begin with what was typed.
void print_names(const std::vector<Command>& list, const std::string& typed) {
  for (const Command& command : list)
    if (std::string(command.name).starts_with(typed)) std::printf("%s\t%s\n", command.name, command.summary);
}

// After the options of launch and submit stands a command of its own: where it begins, 0 if it does not yet.
size_t nested_command(const Words& words) {
  if (words[0] != "launch" && words[0] != "submit") return 0;
  const Words after(words.begin() + 1, words.end());
  const size_t own = words[0] == "launch" ? launch::num_launch_option_words(after) : num_submit_option_words(after);
  return own < after.size() ? own + 1 : 0;
}

// `words` are those after "espalier"; the last one is being typed.
int print_candidates(Words words) {
  words = canonical_words(words);
  const std::vector<Command>* list = &commands();
  if (words.size() < 2) {
    print_names(*list, words.empty() ? "" : words[0]);
    return 0;
  }
  if (const size_t nested = nested_command(words); nested > 0)
    return print_candidates({words.begin() + static_cast<std::ptrdiff_t>(nested), words.end()});
  if (words[0] == "help") return print_candidates({words.begin() + 1, words.end()});
  const auto is_named = [&](const Command& command) { return words[0] == command.name; };
  const auto command = std::find_if(list->begin(), list->end(), is_named);
  if (command == list->end()) return 0;
  size_t num_names = 1;
  if (command->subcommands != nullptr) {
    if (words.size() == 2) {
      print_names(command->subcommands(), words[1]);
      return 0;
    }
    num_names = 2;
  }
  // The command's own table knows the rest.
  words.insert(words.begin() + static_cast<std::ptrdiff_t>(num_names), "--complete-words");
  return command->run({words.begin() + 1, words.end()});
}

}  // namespace

int completion_main(const Words& arguments) {
  if (!arguments.empty() && arguments[0] == "--words") {
    try {
      return print_candidates({arguments.begin() + 1, arguments.end()});
    } catch (const UserError&) {
      return 0;  // a command line that is not yet right: nothing to offer
    }
  }
  Words shells;
  OptionTable table(
      "espalier completion",
      "Prints completion of commands, options, values and files for a shell. bash: source <(espalier "
      "completion bash); zsh, after compinit: source <(espalier completion zsh); fish: espalier completion "
      "fish | source. Put the line into the start file of the shell to keep it.");
  table.positional("SHELL", shells, "bash, zsh or fish", 1, 1);
  if (!table.parse(arguments)) return 0;
  const std::pair<const char*, const char*> scripts[] = {{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
  for (const auto& [shell, script] : scripts)
    if (shells[0] == shell) {
      std::fputs(script, stdout);
      return 0;
    }
  throw UserError(concat("no completion for '", shells[0], "'; there is one for bash, zsh and fish"), ExitCode::kUsage);
}

}  // namespace espalier
