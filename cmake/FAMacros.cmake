# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Two ways to link LLVM: against Debian's shared libMLIR and libLLVM (fast to
# link, the default), or against the archives (FA_STATIC_LLVM), which gives
# programs and libraries that run where no LLVM is installed.

set(MLIR_LINK_MLIR_DYLIB ON)

# fa_add_library(NAME sources... [DEPENDS targets...] [LINK_LIBS targets...])
# A component of the compiler: an object-like static library. LINK_LIBS names
# fa's own libraries only; MLIR itself is linked once, by fa_link_mlir.
function(fa_add_library name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK_LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  if(ARG_DEPENDS)
    add_dependencies(${name} ${ARG_DEPENDS})
  endif()
  add_dependencies(${name} fa-headers)
  target_link_libraries(${name} PUBLIC ${ARG_LINK_LIBS})
  target_compile_options(${name} PRIVATE -fno-exceptions)
  if(FA_PCH AND NOT name STREQUAL "FAPch")
    target_precompile_headers(${name} REUSE_FROM FAPch)
  endif()
endfunction()

# fa_link_mlir(target): links what fa uses of MLIR and LLVM into a program or
# a shared library.
function(fa_link_mlir target)
  if(FA_STATIC_LLVM)
    file(GLOB _mlir ${LLVM_LIBRARY_DIR}/libMLIR*.a)
    list(FILTER _mlir EXCLUDE REGEX "Test|CAPI|LspServer|MlirOptMain|RegisterAll|Reduce|PDLL|Query|Tblgen|ToLLVMIRTranslationRegistration|FromLLVMIR")
    execute_process(COMMAND ${LLVM_TOOLS_BINARY_DIR}/llvm-config --link-static
      --libs nvptx x86 orcjit perfjitevents passes native asmparser irreader
      OUTPUT_VARIABLE _llvm OUTPUT_STRIP_TRAILING_WHITESPACE
      COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(_llvm)
    target_link_libraries(${target} PRIVATE -L${LLVM_LIBRARY_DIR}
      -Wl,--start-group ${_mlir} -Wl,--end-group ${_llvm}
      -Wl,--gc-sections -Wl,--as-needed z zstd xml2 z3 rt dl m pthread)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
    if(LLVM_USE_LINKER STREQUAL "lld")
      target_link_options(${target} PRIVATE -Wl,--icf=all)
    endif()
  else()
    target_link_libraries(${target} PRIVATE MLIR LLVM pthread)
  endif()
endfunction()
