# Part of the fa project, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
execute_process(COMMAND ${NM} -D --defined-only ${LIBRARY}
  OUTPUT_VARIABLE _symbols RESULT_VARIABLE _result)
if(NOT _result EQUAL 0)
  message(FATAL_ERROR "${NM} failed on ${LIBRARY}")
endif()
string(REPLACE "\n" ";" _lines "${_symbols}")
set(_count 0)
foreach(_line IN LISTS _lines)
  if(_line MATCHES " T fa_rt_[a-z_]+$")
    math(EXPR _count "${_count} + 1")
  elseif(NOT _line STREQUAL "")
    message(FATAL_ERROR "exported, but not the C API: ${_line}")
  endif()
endforeach()
if(_count LESS 20)
  message(FATAL_ERROR "expected at least 20 functions of the C API, got ${_count}")
endif()
