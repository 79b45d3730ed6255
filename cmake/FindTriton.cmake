# Finds the Triton that the plugin is built for.
#
#   TRITON_DIR           an installed package (…/site-packages/triton), a source tree that was built, or a build tree;
#                        default: the package of Python_EXECUTABLE
# gives
#   Triton_VERSION       what triton.__version__ says
#   Triton_LIBRARY       libtriton.so, the plugin's only MLIR and LLVM; also the imported target Triton::triton
#   Triton_PLUGIN_API    the version of Triton's plugin interface, from supported_triton.json, the one list of versions
#   Triton_LLVM          the major version of the LLVM whose headers match that libtriton, from the same list
#   Triton_EARLIER_LAYOUTS   JSON: where that libtriton still differs from those headers (see EarlierLayouts.cmake), from the same list
#   Triton_SUPPORTED     all versions of that list
#   Triton_OLDEST, Triton_OLDEST_LLVM   the oldest version of that list, and its oldest LLVM
set(TRITON_DIR "" CACHE PATH "Triton: an installed package, a source tree or a build tree; empty: the package of Python")

file(READ ${CMAKE_CURRENT_LIST_DIR}/supported_triton.json supported)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/supported_triton.json)
string(JSON number_supported LENGTH "${supported}")
set(Triton_SUPPORTED "")
set(llvms "")
foreach(index RANGE 1 ${number_supported})
  math(EXPR index "${index} - 1")
  string(JSON one MEMBER "${supported}" ${index})
  list(APPEND Triton_SUPPORTED ${one})
  string(JSON llvm GET "${supported}" ${one} llvm)
  list(APPEND llvms ${llvm})
endforeach()
list(SORT llvms COMPARE NATURAL)
list(GET llvms 0 Triton_OLDEST_LLVM)
list(GET Triton_SUPPORTED 0 Triton_OLDEST)
list(JOIN Triton_SUPPORTED ", " supported_versions_text)
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../pyproject.toml required REGEX "^requires = ") # the version that is tested most
string(REGEX MATCH "triton==[0-9.]+" required "${required}")
set(how_to_get "${Python_EXECUTABLE} -m pip install ${required}")

if(TRITON_DIR)
  set(roots ${TRITON_DIR})
  if(EXISTS ${TRITON_DIR}/CMakeCache.txt) # a build tree: its sources know the version
    load_cache(${TRITON_DIR} READ_WITH_PREFIX triton_build_ CMAKE_HOME_DIRECTORY)
    list(APPEND roots ${triton_build_CMAKE_HOME_DIRECTORY})
  endif()
else()
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "from importlib.util import find_spec; print(*find_spec('triton').submodule_search_locations)"
    OUTPUT_VARIABLE roots OUTPUT_STRIP_TRAILING_WHITESPACE
    ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no Triton. Install it with: ${how_to_get}\n"
                        "or name a Triton with -DTRITON_DIR= (an installed package, a source tree or a build tree).")
  endif()
endif()

find_file(Triton_INIT __init__.py PATHS ${roots} PATH_SUFFIXES python/triton triton NO_DEFAULT_PATH NO_CACHE)
find_file(Triton_LIBRARY libtriton.so PATHS ${roots} PATH_SUFFIXES _C python/triton/_C triton/_C NO_DEFAULT_PATH NO_CACHE)
if(NOT Triton_INIT OR NOT Triton_LIBRARY)
  list(JOIN roots " or " roots_text)
  message(FATAL_ERROR "No built Triton (triton/__init__.py and _C/libtriton.so) in ${roots_text}.\n"
                      "-DTRITON_DIR= takes an installed package, a source tree that was built, or a build tree. "
                      "Triton's wheel: ${how_to_get}")
endif()

set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${Triton_INIT}) # another version may be installed there
file(STRINGS ${Triton_INIT} version_line REGEX "^__version__ = " LIMIT_COUNT 1)
string(REGEX REPLACE "^__version__ = ['\"]([^'\"]*)['\"].*" "\\1" Triton_VERSION "${version_line}")
string(REGEX REPLACE "\\+.*" "" release "${Triton_VERSION}") # 3.7.1+git1234 is a build of the release 3.7.1
if(NOT release IN_LIST Triton_SUPPORTED)
  message(FATAL_ERROR "Triton ${Triton_VERSION} (${Triton_INIT}) is not one that the plugin supports: ${supported_versions_text}.\n"
                      "Install one with: ${how_to_get}")
endif()
string(JSON Triton_PLUGIN_API GET "${supported}" ${release} plugin_api)
string(JSON Triton_LLVM GET "${supported}" ${release} llvm)
string(JSON Triton_EARLIER_LAYOUTS ERROR_VARIABLE has_none GET "${supported}" ${release} earlier_layouts)
if(has_none)
  set(Triton_EARLIER_LAYOUTS "{}")
endif()
message(STATUS "Triton ${Triton_VERSION}: ${Triton_LIBRARY}")
set(Triton_FOUND TRUE)

add_library(Triton::triton SHARED IMPORTED)
set_target_properties(Triton::triton PROPERTIES IMPORTED_LOCATION ${Triton_LIBRARY} IMPORTED_SONAME libtriton.so)
