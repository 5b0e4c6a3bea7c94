# libespalier_parquet.so: Arrow's and Parquet's libraries out of the pyarrow wheel, which `scripts/setup --parquet` unpacks.
# Loaded by src/data/parquet.cpp when a Parquet file is read or written, so that nothing else needs Arrow.
set(ESPALIER_ARROW "$ENV{HOME}/.cache/espalier/arrow-26.0.1" CACHE PATH "folder with pyarrow/ of the pyarrow wheel; may be missing")

if(EXISTS ${ESPALIER_ARROW}/complete)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/data/plugin/*.cpp)
  add_library(espalier_parquet_plugin SHARED ${sources})
  set_target_properties(espalier_parquet_plugin PROPERTIES OUTPUT_NAME espalier_parquet LIBRARY_OUTPUT_DIRECTORY
    ${CMAKE_BINARY_DIR}/bin CXX_VISIBILITY_PRESET hidden BUILD_RPATH ${ESPALIER_ARROW}/pyarrow)
  target_include_directories(espalier_parquet_plugin PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(espalier_parquet_plugin SYSTEM PRIVATE ${ESPALIER_ARROW}/pyarrow/include)
  target_link_libraries(espalier_parquet_plugin PRIVATE
    ${ESPALIER_ARROW}/pyarrow/libparquet.so.2600 ${ESPALIER_ARROW}/pyarrow/libarrow.so.2600)
  target_link_options(espalier_parquet_plugin PRIVATE -Wl,--no-undefined)
endif()
