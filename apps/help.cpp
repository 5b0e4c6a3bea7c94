// espalier help: the list of commands, the help of one, man pages.
#include <cstdio>

#include "apps/commands.h"
#include "base/console.h"
#include "base/error.h"
#include "base/format.h"
#include "base/version.h"

namespace espalier {
namespace {

using Words = std::vector<std::string>;

std::string usage() {
  return styled(Stream::kOutput, Style::kBold, "usage: espalier COMMAND [arguments]") + "\n\n" + describe(commands()) +
         "\nespalier COMMAND --help explains a command, espalier help --man COMMAND prints its man page.\n";
}

std::string roff(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
  return escaped;
}

// espalier(1), which names the pages of the commands.
std::string main_page() {
  std::string text = concat(".TH ESPALIER 1 \"\" \"espalier ", kVersion, "\" \"Espalier\"\n.SH NAME\n",
                            "espalier \\- trains large language models\n.SH SYNOPSIS\n.B espalier\n",
                            "COMMAND [arguments]\n.SH DESCRIPTION\nFrom text through tokens, training and checkpoints ",
                            "to generated text. Each command has a page of its own.\n.SH COMMANDS\n");
  std::string pages;
  for (const Command& command : commands()) text += concat(".TP\n.B ", command.name, "\n", roff(command.summary), "\n");
  for (const Words& words : all_command_words()) {
    if (words[0] == "help") continue;
    pages += concat(pages.empty() ? "" : ",\n", ".BR ", roff("espalier-" + join(words, "-")), " (1)");
  }
  return text +
         ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nno colours\n.TP\n.B CLICOLOR_FORCE\ncolours even without a terminal\n"
         ".TP\n.B ESPALIER_CPU_ISA\nthe instruction set of the CPU kernels: generic, avx2, avx512, avx512bf16, amx\n"
         ".SH SEE ALSO\n" +
         pages + "\n";
}

}  // namespace

int help_main(const Words& arguments) {
  Words words;
  bool man = false;
  for (const std::string& word : arguments) {
    if (word == "--man") {
      man = true;
    } else if (word == "--commands") {  // for scripts/man-pages
      for (const Words& command : all_command_words())
        if (command[0] != "help") std::printf("%s\n", join(command, " ").c_str());
      return 0;
    } else if (word == "--help" || word == "-h" || word == "--complete-words") {
      continue;
    } else {
      words.push_back(word);
    }
  }
  if (words.empty()) {
    std::fputs(man ? main_page().c_str() : usage().c_str(), stdout);
    return 0;
  }
  words = canonical_words(words);
  words.push_back(man ? "--help-man" : "--help");
  return run_subcommand("espalier", commands(), words);
}

}  // namespace espalier
