# cmake -D FOLDER=... -D OUTPUT=... -P embed_page.cmake: the files of a folder as the table of web/page_files.h.
file(GLOB names RELATIVE ${FOLDER} ${FOLDER}/*)
list(SORT names)
set(rows "")
foreach(name IN LISTS names)
  file(READ ${FOLDER}/${name} text)
  string(APPEND rows "      {\"${name}\", R\"page(${text})page\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"web/page_files.h\"\n\nnamespace espalier::web {\n
const std::map<std::string, std::string>& page_files() {
  static const std::map<std::string, std::string> files = {\n${rows}  };
  return files;
}\n
}  // namespace espalier::web\n")
