# The plain text of Debian Reference to JSONL, one document a section. Variable: source, the name of the package.
#
# A section begins after an empty line with "1.2.3." at the left margin and a blank or a no-break space; the list of
# tables in front has such lines one below the other. Prose is indented by 4 and becomes one line a paragraph, unless
# it shows commands or columns. Tables (|, +---) are left out: their cells are broken over several lines.

function end_paragraph() {
  if (paragraph != "") text = text paragraph "\n"
  paragraph = ""
}

function end_section() {
  end_paragraph()
  if (number != "") print_document(source "/" number, text)
  text = number = ""
}

{ gsub(/\302\240/, " ") }
/^[0-9A-Z]+\.[0-9]+(\.[0-9]+)*\. / && (behind_empty || behind_heading) {
  if (!behind_heading) end_section()
  number = behind_heading ? "" : substr($1, 1, length($1) - 1)
  text = substr($0, length($1) + 2) "\n"
  behind_heading = 1
  behind_empty = 0
  next
}
{ behind_heading = 0; behind_empty = /^ *$/ }
behind_empty { end_paragraph(); text = text "\n"; literal = 0; next }
/^ *[|+][-|]/ || /^ *\|/ || /^-+$/ { end_paragraph(); next }
/^    / {
  if ($0 ~ /^ +[*+] /) end_paragraph()
  if ($0 ~ /^ +[$#] / || $0 ~ /[^ ]   /) { end_paragraph(); literal = 1 }
  if (literal) { text = text substr($0, 5) "\n"; next }
  sub(/^ +/, "")
  gsub(/\^\[[0-9]+\]/, "")  # marks of footnotes
  paragraph = join(paragraph, $0)
  next
}
{ end_paragraph(); text = text $0 "\n" }
END { end_section() }
