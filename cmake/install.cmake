# `cmake --install build --prefix P`, and the packages of scripts/package.
#
# Programs, plugin and libtorch are in P/lib/espalier as they are in the wheel, and find each other by relative paths, so
# that P can be moved. P/bin holds a link: the programs look for their parts next to the file that the link names.

set(private lib/espalier)
install(TARGETS espalier espalier-engine RUNTIME DESTINATION ${private}/bin)
install(TARGETS espalier_search_plugin LIBRARY DESTINATION ${private}/bin)
set_target_properties(espalier_search_plugin PROPERTIES INSTALL_RPATH "$ORIGIN/../lib:$ORIGIN/../torch/lib")
if(ESPALIER_NVCC)
  install(TARGETS espalier_cuda_plugin LIBRARY DESTINATION ${private}/bin OPTIONAL)
endif()
set_target_properties(espalier PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
set_target_properties(espalier-engine PROPERTIES
  INSTALL_RPATH "$ORIGIN/../torch/lib:$ORIGIN/../nvidia/cu13/lib:$ORIGIN/../lib")
install(FILES ${ESPALIER_TORCH_CPU} ${ESPALIER_C10} ${ESPALIER_LIBTORCH}/torch/lib/libgomp.so.1
  PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE
  DESTINATION ${private}/torch/lib)
install(FILES ${ESPALIER_LIBTORCH}/nvidia/cu13/lib/libcudart.so.13 ${ESPALIER_LIBTORCH}/nvidia/cu13/lib/libcupti.so.13
  DESTINATION ${private}/nvidia/cu13/lib)
install(CODE "
  file(MAKE_DIRECTORY \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin\")
  file(CREATE_LINK ../${private}/bin/espalier \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/espalier\" SYMBOLIC)")

install(DIRECTORY recipes DESTINATION share/espalier)
install(DIRECTORY docs DESTINATION share/doc/espalier)
install(FILES README.md CHANGELOG.md NOTICE DESTINATION share/doc/espalier)
install(FILES LICENSE DESTINATION share/doc/espalier RENAME copyright)
file(GLOB torch_licences ${ESPALIER_LIBTORCH}/*.dist-info)
foreach(folder ${torch_licences})
  get_filename_component(name ${folder} NAME)
  string(REGEX REPLACE "-[0-9].*" "" name ${name})
  install(DIRECTORY ${folder}/licenses/ DESTINATION share/doc/espalier/licenses/${name})
endforeach()
