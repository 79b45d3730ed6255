# Headers for a Triton whose LLVM lies between two releases. Triton takes LLVM from its main branch, so a class may still have
# the layout of the release before the one whose headers match in everything else. For such a Triton, supported_triton.json
# has `earlier_layouts`:
#   llvm      the release before
#   headers   headers that are taken from it
#   members   by header, a member that the release has added: made static, it takes no place in an object
# gives
#   shadow    the folder of these headers, which is searched before all others
#
# The folder is named after what is in it. ccache, to which paths in the build folder are relative, does not notice a header
# that hides the one of the cached compilation: with one name for all it takes the objects of another Triton.
set(shadow ${PROJECT_BINARY_DIR}/llvm-with-assertions)
string(JSON before ERROR_VARIABLE has_none GET "${Triton_EARLIER_LAYOUTS}" llvm)
if(has_none)
  return()
endif()
string(SHA256 layouts "${Triton_EARLIER_LAYOUTS}")
string(SUBSTRING ${layouts} 0 12 layouts)
string(APPEND shadow -${layouts})

find_debians_llvm(${before} before_prefix)
string(JSON headers GET "${Triton_EARLIER_LAYOUTS}" headers)
string(JSON count LENGTH "${headers}")
foreach(index RANGE ${count})
  if(index EQUAL count)
    break()
  endif()
  string(JSON header GET "${headers}" ${index})
  if(NOT EXISTS ${before_prefix}/include/${header})
    message(FATAL_ERROR "There is no ${before_prefix}/include/${header}, which the plugin for Triton ${Triton_VERSION} needs. "
                        "Debian/Ubuntu: apt-get install llvm-${before}-dev\n${why_not_fetched}")
  endif()
  configure_file(${before_prefix}/include/${header} ${shadow}/${header} COPYONLY)
endforeach()

string(JSON members GET "${Triton_EARLIER_LAYOUTS}" members)
string(JSON count LENGTH "${members}")
foreach(index RANGE ${count})
  if(index EQUAL count)
    break()
  endif()
  string(JSON header MEMBER "${members}" ${index})
  string(JSON member GET "${members}" ${header})
  find_file(path ${header} PATHS ${MLIR_INCLUDE_DIRS} NO_DEFAULT_PATH NO_CACHE REQUIRED)
  file(READ ${path} text)
  unset(path)
  string(FIND "${text}" "${member}" position)
  if(position EQUAL -1)
    message(FATAL_ERROR "${header} in ${MLIR_INCLUDE_DIRS} has no member `${member}`: these are not the headers of LLVM ${Triton_LLVM}")
  endif()
  string(REPLACE "${member}" "static inline ${member}" text "${text}")
  file(GENERATE OUTPUT ${shadow}/${header} CONTENT "${text}")
endforeach()
