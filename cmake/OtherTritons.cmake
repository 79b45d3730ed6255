# Plugins for other versions of Triton than the one that was found. A plugin fits one libtriton.so, and one CMake project can
# use one MLIR, so each is built by a project of its own: the same sources, configured for the unpacked wheel of that version.
#
#   ALSO_FOR_TRITON      versions whose plugins are part of every build, and of a wheel; `all` for all that are supported;
#                        `none`, the default but for pip; or `environment`, pip's default: that of the environment which
#                        pip installs into, and all where that has no Triton yet
# gives
#   OTHER_PLUGIN_FILES   those plugins
# and the targets plugin-VERSION, one for each supported version, and `plugins` for all of them
if(SKBUILD_STATE MATCHES "wheel|editable")
  set(default environment)
else()
  set(default none)
endif()
set(ALSO_FOR_TRITON ${default} CACHE STRING "Versions of Triton to build plugins for besides the one found, or all, none, environment")

if(ALSO_FOR_TRITON STREQUAL "environment")
  # pip builds with packages of its own, which it shows Python by PYTHONPATH; -I looks past them.
  execute_process(
    COMMAND ${Python_EXECUTABLE} -I -c "import importlib.metadata as m; print(m.version('triton').partition('+')[0])"
    OUTPUT_VARIABLE wanted OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE absent)
  if(absent)
    set(wanted ${Triton_SUPPORTED})
  elseif(NOT wanted IN_LIST Triton_SUPPORTED)
    message(WARNING "This environment has Triton ${wanted}, and the plugin supports ${supported_versions_text}: "
                    "triton_dist will not work in it before one of those is installed")
    set(wanted "")
  endif()
elseif(ALSO_FOR_TRITON STREQUAL "all")
  set(wanted ${Triton_SUPPORTED})
elseif(ALSO_FOR_TRITON STREQUAL "none")
  set(wanted "")
else()
  set(wanted ${ALSO_FOR_TRITON})
endif()
foreach(version ${wanted})
  if(NOT version IN_LIST Triton_SUPPORTED)
    message(FATAL_ERROR "ALSO_FOR_TRITON names Triton ${version}; the plugin supports ${supported_versions_text}; or say all, none, or environment.")
  endif()
endforeach()

set(OTHER_PLUGIN_FILES "")
add_custom_target(plugins)
add_dependencies(plugins publish_plugin)
foreach(version ${Triton_SUPPORTED})
  if(version STREQUAL Triton_VERSION)
    add_custom_target(plugin-${version})
    add_dependencies(plugin-${version} publish_plugin)
    continue()
  endif()
  set(build ${PROJECT_BINARY_DIR}/triton-${version})
  set(in_build "")
  if(version IN_LIST wanted)
    set(in_build ALL)
    set(published ${TRITON_DIST_OUTPUT_DIR}/libtriton_dist_plugin-${version})
    list(APPEND OTHER_PLUGIN_FILES ${published}.so ${published}.json)
  endif()
  # One at a time, since each uses all cores.
  add_custom_target(plugin-${version} ${in_build}
    COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/cmake/fetch_triton.py ${version} ${DOWNLOADS}/triton-${version}
    COMMAND ${CMAKE_COMMAND} -G ${CMAKE_GENERATOR} -S ${PROJECT_SOURCE_DIR} -B ${build}
            -DTRITON_DIR=${DOWNLOADS}/triton-${version}/triton -DDOWNLOADS=${DOWNLOADS}
            -DTRITON_DIST_OUTPUT_DIR=${TRITON_DIST_OUTPUT_DIR} -DPython_EXECUTABLE=${Python_EXECUTABLE}
            -DNVSHMEM_DIR=${NVSHMEM_DIR} -DROCSHMEM_DIR=${ROCSHMEM_DIR} -DCLANG_FOR_DEVICES=${CLANG_FOR_DEVICES}
            -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE}
    COMMAND ${CMAKE_COMMAND} --build ${build} --target publish_plugin
    USES_TERMINAL VERBATIM)
  add_dependencies(plugins plugin-${version})
endforeach()
