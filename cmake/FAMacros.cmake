# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Two ways to link LLVM: against Debian's shared libMLIR and libLLVM (fast to
# link, the default), or against the archives (FA_STATIC_LLVM), which gives
# programs and libraries that run where no LLVM is installed.

set(MLIR_LINK_MLIR_DYLIB ON)

# The components that `cmake --install` offers to C++ as fa::compiler.
set(FA_INSTALLED_LIBRARIES FAScalar FAIR FAUtils FAAnalysis FATransforms FASchedule FAHopperIR FAHopperTransforms FANVIDIAIR FATarget
  FATilesToThreads
  FANVIDIA FACPU FAPipelines FACompile)

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
  if(name IN_LIST FA_INSTALLED_LIBRARIES)
    install(TARGETS ${name} EXPORT fa-compiler-targets
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
  if(FA_PCH AND NOT name STREQUAL "FAPch")
    target_precompile_headers(${name} REUSE_FROM FAPch)
  endif()
endfunction()

# LLVM's compression from archives where the system has them: other machines may
# lack libzstd, and a wheel may not ask for it (manylinux). Their licences are in
# licenses/.
foreach(_name z zstd)
  find_library(FA_${_name}_ARCHIVE lib${_name}.a)
  mark_as_advanced(FA_${_name}_ARCHIVE)
  if(FA_STATIC_LLVM AND NOT FA_${_name}_ARCHIVE)
    message(WARNING "no lib${_name}.a: what is built needs lib${_name}.so where "
      "it runs; install lib${_name}'s development package")
  endif()
endforeach()

# fa_install_tool(target): into bin, with the others.
function(fa_install_tool target)
  install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endfunction()

# fa_link_mlir(target [STATIC] [LSP]): links what fa uses of MLIR and LLVM into a
# program or a shared library. STATIC: from archives, whatever FA_STATIC_LLVM
# says. LSP: the language server, too.
function(fa_link_mlir target)
  cmake_parse_arguments(ARG "STATIC;LSP" "" "" ${ARGN})
  if(FA_STATIC_LLVM OR ARG_STATIC)
    file(GLOB _mlir ${LLVM_LIBRARY_DIR}/libMLIR*.a)
    list(FILTER _mlir EXCLUDE REGEX "Test|CAPI|MlirOptMain|RegisterAll|Reduce|PDLL|Query|Tblgen|ToLLVMIRTranslationRegistration|FromLLVMIR")
    set(_lsp)
    if(ARG_LSP)
      set(_lsp ${LLVM_LIBRARY_DIR}/libLLVMSupportLSP.a)
    else()
      list(FILTER _mlir EXCLUDE REGEX "LspServer")
    endif()
    set(_compression)
    foreach(_name z zstd)
      if(FA_${_name}_ARCHIVE)
        list(APPEND _compression ${FA_${_name}_ARCHIVE})
      else()
        list(APPEND _compression ${_name})
      endif()
    endforeach()
    target_sources(${target} PRIVATE
      ${PROJECT_SOURCE_DIR}/lib/Support/GlibcCompat.cpp)
    execute_process(COMMAND ${LLVM_TOOLS_BINARY_DIR}/llvm-config --link-static
      --libs nvptx x86 orcjit perfjitevents passes native asmparser irreader
      OUTPUT_VARIABLE _llvm OUTPUT_STRIP_TRAILING_WHITESPACE
      COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(_llvm)
    target_link_libraries(${target} PRIVATE -L${LLVM_LIBRARY_DIR}
      -Wl,--start-group ${_mlir} -Wl,--end-group ${_lsp} ${_llvm}
      -Wl,--gc-sections ${_compression} -Wl,--as-needed xml2 z3 rt dl m pthread)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
    if(LLVM_USE_LINKER STREQUAL "lld")
      target_link_options(${target} PRIVATE -Wl,--icf=all)
    endif()
  else()
    target_link_libraries(${target} PRIVATE MLIR LLVM pthread)
  endif()
endfunction()
