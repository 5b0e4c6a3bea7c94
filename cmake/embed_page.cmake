# cmake -D FOLDER=... -D OUTPUT=... -D HEADER=web/page_files.h -D NAMESPACE=espalier::web -D FUNCTION=page_files
#   -P embed_page.cmake: the files of a folder as the table that FUNCTION, declared in HEADER, gives.
file(GLOB names RELATIVE ${FOLDER} ${FOLDER}/*)
list(SORT names)
set(rows "")
foreach(name IN LISTS names)
  file(READ ${FOLDER}/${name} text)
  string(APPEND rows "      {\"${name}\", R\"page(${text})page\"},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n
const std::map<std::string, std::string>& ${FUNCTION}() {
  static const std::map<std::string, std::string> files = {\n${rows}  };
  return files;
}\n
}  // namespace ${NAMESPACE}\n")
