# Manual pages (man macros) to JSONL, one document a page. Every page begins with a line "\001 SOURCE".
#
# Not a typesetter: requests, comments and fonts go, filled text becomes one line a paragraph, literal text stays as it
# is. Pages in other macros (mdoc) and pages that only name another (.so) are left out.

BEGIN {
  split("aq ' cq ' oq ` dq \" bu * em -- en - mi - hy - co (C) rg (R) lq \" rq \" Fo << Fc >> ha ^ ti ~ rs \\ " \
        "sl / ba | bv | at @ sh # Do $ lB [ rB ] lC { rC } ga ` aa ' <= <= >= >= != != -> -> <- <- mu x +- +- *p pi",
        words, " ")
  for (i = 1; i in words; i += 2) special[words[i]] = words[i + 1]
}

# Takes the name after an escape from `rest`: x, (xx or [xxx], where x is a character of one or more bytes.
function take_name(    name) {
  if (!match(rest, /^\[[^]]*\]/) && !match(rest, /^\([^\200-\277][\200-\277]*[^\200-\277][\200-\277]*/))
    match(rest, /^[^\200-\277][\200-\277]*/)
  name = substr(rest, 1, RLENGTH)
  rest = substr(rest, RLENGTH + 1)
  gsub(/^[[(]|\]$/, "", name)
  return name
}

# The text that a line stands for, with escapes resolved.
function plain(line,    out, at, c) {
  out = ""
  rest = line
  while ((at = index(rest, "\\")) > 0) {
    out = out substr(rest, 1, at - 1)
    c = substr(rest, at + 1, 1)
    rest = substr(rest, at + 2)
    if (c == "e") out = out "\\"
    else if (c == " " || c == "~" || c == "0") out = out " "
    else if (c == "\"" || c == "#") rest = ""  # a comment
    else if (c == "(" || c == "[") { rest = c rest; out = out special[take_name()] }
    else if (c == "*") out = out special[take_name()]
    else if (index("fFmMngsk", c) > 0) { sub(/^[-+]/, "", rest); take_name() }
    else if (index("hvwlLDoNXZbA", c) > 0) { if (match(rest, /^'[^']*'/)) rest = substr(rest, RLENGTH + 1) }
    else if (index("&,/:|^%)!?{}acdprtu", c) == 0) out = out c  # those take no room; any other stands for itself
  }
  return out rest
}

# Splits the arguments of a macro, in which "a b" is one, into words[1..n]; returns n.
function arguments(line,    n, at, word) {
  n = 0
  sub(/^[ \t]+/, "", line)
  while (line != "") {
    word = ""
    if (substr(line, 1, 1) == "\"") {
      line = substr(line, 2)
      while ((at = index(line, "\"")) > 0 && substr(line, at + 1, 1) == "\"") {  # "" is a quotation mark
        word = word substr(line, 1, at)
        line = substr(line, at + 2)
      }
      if (at == 0) at = length(line) + 1
      word = word substr(line, 1, at - 1)
      line = substr(line, at + 1)
    } else {
      for (at = 1; at <= length(line) && substr(line, at, 1) !~ /[ \t]/; ++at)
        if (substr(line, at, 1) == "\\") ++at
      word = substr(line, 1, at - 1)
      line = substr(line, at)
    }
    words[++n] = word
    sub(/^[ \t]+/, "", line)
  }
  return n
}

# The arguments as text: with blanks between (.B, .SH), or without (.BR, .IR).
function argument_text(line, separator,    n, i, result) {
  n = arguments(line)
  result = ""
  for (i = 1; i <= n; ++i) result = result (i > 1 ? separator : "") words[i]
  return plain(result)
}

function end_paragraph() {
  if (paragraph != "") text = text paragraph "\n"
  paragraph = ""
}

function empty_line() { end_paragraph(); text = text "\n" }

# Adds a piece of running or literal text.
function add(piece) {
  if (piece == "") return
  if (literal) text = text piece "\n"
  else paragraph = join(paragraph, piece)
}

function end_page() {
  end_paragraph()
  if (source != "" && is_man && !other_macros) print_document(source, text)
  text = ""
}

function begin_page(name) {
  source = name
  is_man = other_macros = literal = in_definition = in_table = tag_follows = heading_follows = depth = 0
}

# Headings are on lines of their own; without arguments the next line of text is the heading.
function heading(line) {
  empty_line()
  literal = 0
  line = argument_text(line, " ")
  heading_follows = line == ""
  if (line != "") text = text line "\n"
}

# .IP "--all" 4: the tag on a line of its own, marks of lists in front of their text.
function indented_paragraph(line) {
  end_paragraph()
  if (arguments(line) == 0) return
  paragraph = plain(words[1])
  if (paragraph !~ /^[*-]?$/) end_paragraph()
}

function request(name, line) {
  if (name == "TH") is_man = 1
  else if (name == "Dd" || name == "Sh") other_macros = 1
  else if (name == "SH" || name == "SS") heading(line)
  else if (name ~ /^(B|I|R|SM|SB|UR|MT)$/) add(argument_text(line, " "))
  else if (name ~ /^(BR|RB|BI|IB|IR|RI)$/) add(argument_text(line, ""))
  else if (name == "IP") indented_paragraph(line)
  else if (name ~ /^(PP|P|LP|HP|sp)$/) empty_line()
  else if (name ~ /^(br|RS|RE|TP|TQ)$/) end_paragraph()
  else if (name ~ /^(nf|EX|fi|EE)$/) { end_paragraph(); literal = name ~ /^(nf|EX)$/ }
  else if (name == "TS") { end_paragraph(); in_table = 1 }
  else if (name == "TE") in_table = 0
  else if (name ~ /^(de|am|ig)$/) in_definition = 1
  else if (name ~ /^(if|ie|el)$/) depth = gsub(/\\\{/, "", line) - gsub(/\\\}/, "", line)
}

/^\001 / { end_page(); begin_page(substr($0, 3)); next }
in_definition { if ($1 == "..") in_definition = 0; next }
depth > 0 { depth += gsub(/\\\{/, "") - gsub(/\\\}/, ""); next }  # conditions: neither branch is taken
/^[.'][ \t]*(\\["#].*)?$/ || /^\\["#]/ { next }
{ sub(/[ \t]*\\".*$/, "") }
/^[.'][ \t]*[A-Za-z]/ {
  sub(/^[.'][ \t]*/, "")
  match($0, /^[A-Za-z0-9]+/)
  name = substr($0, 1, RLENGTH)
  request(name, substr($0, RLENGTH + 1))
  if (tag_follows && !literal) end_paragraph()
  tag_follows = name == "TP" || name == "TQ"
  next
}
in_table == 1 { if (/\.[ \t]*$/) in_table = 2; next }  # the format of a table ends with a full stop
in_table == 2 { if (!/^T[{}]$/) { gsub(/\t/, "  "); add(plain($0)); end_paragraph() } next }
/^[ \t]*$/ { empty_line(); next }
{
  if (!literal) sub(/^[ \t]+/, "")
  add(plain($0))
  if (tag_follows || heading_follows) end_paragraph()
  tag_follows = heading_follows = 0
}
END { end_page() }
