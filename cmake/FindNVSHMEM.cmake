# Finds NVSHMEM's headers, from which the lowering takes the library's numbers (include/Shmem/Nvshmem.h). Nothing is linked.
#
#   NVSHMEM_DIR          an NVSHMEM installation (the folder that holds include/); default: the wheel of Python_EXECUTABLE
# gives
#   NVSHMEM_VERSION      and the imported target NVSHMEM::headers
set(NVSHMEM_DIR "" CACHE PATH "NVSHMEM: the folder that holds include/; empty: the wheel of Python")

set(root ${NVSHMEM_DIR})
if(NOT root)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "from importlib.util import find_spec; print(*find_spec('nvidia.nvshmem').submodule_search_locations)"
    OUTPUT_VARIABLE root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(version_header ${root}/include/non_abi/nvshmem_version.h)
if(NOT root OR NOT EXISTS ${version_header})
  message(FATAL_ERROR "NVSHMEM's headers were not found in '${root}'. Only headers are needed, no GPU. Install them with: "
                      "${Python_EXECUTABLE} -m pip install nvidia-nvshmem-cu13==3.4.5\n"
                      "or name an NVSHMEM installation with -DNVSHMEM_DIR= (the folder that holds include/).")
endif()

set(numbers "")
foreach(part MAJOR MINOR PATCH)
  file(STRINGS ${version_header} line REGEX "define NVSHMEM_VENDOR_${part}_VERSION" LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+$" number "${line}")
  list(APPEND numbers ${number})
endforeach()
list(JOIN numbers "." NVSHMEM_VERSION)
message(STATUS "NVSHMEM ${NVSHMEM_VERSION}: ${root}")
set(NVSHMEM_FOUND TRUE)

add_library(NVSHMEM::headers INTERFACE IMPORTED)
target_include_directories(NVSHMEM::headers SYSTEM INTERFACE ${root}/include)
