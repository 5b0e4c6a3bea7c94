# Shared by man_page.awk and reference.awk: documents as lines of JSON. Bytes in, bytes out: run with LC_ALL=C.

function json_string(text) {
  gsub(/[\001-\010\013-\037\177]/, "", text)
  gsub(/\\/, "&&", text)
  gsub(/"/, "\\\"", text)
  gsub(/\t/, "\\t", text)
  gsub(/\n/, "\\n", text)
  return "\"" text "\""
}

# {"source": ..., "bytes": ..., "text": ...}. Texts under 200 bytes are stubs and headings, and are left out.
function print_document(source, text) {
  gsub(/[\001-\010\013-\037\177]/, "", text)
  gsub(/\n\n\n+/, "\n\n", text)
  sub(/^\n+/, "", text)
  sub(/\n+$/, "\n", text)
  if (length(text) >= 200)
    printf "{\"source\": %s, \"bytes\": %d, \"text\": %s}\n", json_string(source), length(text), json_string(text)
}

# `text` and `more` in one line: with a blank, except between two characters of three bytes (Chinese, Japanese).
function join(text, more) {
  if (text == "" || more == "") return text more
  if (substr(text, length(text) - 2, 1) >= "\343" && substr(more, 1, 1) >= "\343") return text more
  return text " " more
}
