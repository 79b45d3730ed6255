# The clang that compiles our device library to bitcode, once for all versions of Triton: it is the clang of the oldest LLVM
# that supported_triton.json names, since an LLVM reads older bitcode and no newer. The tools of LLVM beside it must have its
# version.
#
#   CLANG_FOR_DEVICES    the compiler; default: that clang, in the LLVM of LLVM_DIR or on PATH
# gives also
#   LLVM_FOR_DEVICES     the folder of its tools (llvm-link, llvm-as)
find_program(CLANG_FOR_DEVICES NAMES clang-${Triton_OLDEST_LLVM} clang
             HINTS ${LLVM_TOOLS_BINARY_DIR} /usr/lib/llvm-${Triton_OLDEST_LLVM}/bin DOC "clang for the device library")
if(CLANG_FOR_DEVICES)
  execute_process(COMMAND ${CLANG_FOR_DEVICES} --version OUTPUT_VARIABLE clang_version ERROR_QUIET)
  string(REGEX MATCH "version ([0-9]+)" clang_version "${clang_version}")
  set(clang_major "${CMAKE_MATCH_1}")
endif()
if(NOT clang_major STREQUAL Triton_OLDEST_LLVM)
  set(found "was not found")
  if(clang_major)
    set(found "is needed, and ${CLANG_FOR_DEVICES} is clang ${clang_major}")
  endif()
  unset(CLANG_FOR_DEVICES CACHE) # so that it is looked for again
  message(FATAL_ERROR "clang ${Triton_OLDEST_LLVM}, which compiles the device library, ${found}. "
                      "Debian/Ubuntu: apt-get install clang-${Triton_OLDEST_LLVM}\nor name it with -DCLANG_FOR_DEVICES=.")
endif()
message(STATUS "clang ${clang_major} for the device library: ${CLANG_FOR_DEVICES}")

get_filename_component(LLVM_FOR_DEVICES ${CLANG_FOR_DEVICES} REALPATH)
get_filename_component(LLVM_FOR_DEVICES ${LLVM_FOR_DEVICES} DIRECTORY)
foreach(tool llvm-link llvm-as)
  if(NOT EXISTS ${LLVM_FOR_DEVICES}/${tool})
    message(FATAL_ERROR "There is no ${LLVM_FOR_DEVICES}/${tool}. Debian/Ubuntu: apt-get install llvm-${Triton_OLDEST_LLVM}")
  endif()
endforeach()
