# cmake -DSOURCE_DIR=... -DFILES=... -DPAGE=... -DOUTPUT=... -P node_sources.cmake
# Writes a C++ file that holds, as text, watch/page.html and the code of every node of the tape: its struct, its
# backward if that is defined outside, what linear() records, and the gradients of elementwise ops. The pages of vox::write_html show this code, so it is the code that was compiled.

# A raw string literal holds no more than 64 KiB with some compilers, so none of them is a whole file of ops.
# skip(<count>): drops characters of `rest` and counts their lines.
macro(skip count)
  string(SUBSTRING "${rest}" 0 ${count} skipped)
  string(REGEX REPLACE "[^\n]" "" newlines "${skipped}")
  string(LENGTH "${newlines}" lines)
  math(EXPR line "${line} + ${lines}")
  string(SUBSTRING "${rest}" ${count} -1 rest)
endmacro()

set(template_line "template <[^\n]*>\n")
set(struct_line "struct ([A-Za-z0-9]+Node) [^\n]*{[^\n]*\n")
set(backward_line "[a-z:]*Gradients ([A-Za-z0-9]+)::backward\\([^\n]*{[^\n]*\n")
set(formula_line "VOX_FORMULA T (gradient_formula)\\([^\n]*{[^\n]*\n")
set(linear_line " +return (autograd::)?linear(_keeping)?\\([^\"]*\"([a-z0-9_]+)\"")
set(entries "")
foreach(file IN LISTS FILES)
  file(READ "${SOURCE_DIR}/${file}" rest)
  set(line 1)
  while(rest MATCHES "\n((${template_line})?${struct_line}|${backward_line}|${formula_line}|${linear_line})")
    set(type "${CMAKE_MATCH_3}${CMAKE_MATCH_4}${CMAKE_MATCH_5}${CMAKE_MATCH_8}")
    set(closing "\n}\n")
    if(CMAKE_MATCH_3)
      set(closing "\n};\n")
    endif()
    string(FIND "${rest}" "${CMAKE_MATCH_0}" begin)
    math(EXPR begin "${begin} + 1")
    skip(${begin})
    set(where "${file}:${line}")
    string(FIND "${rest}" "${closing}" length)
    string(LENGTH "${closing}" closing_length)
    math(EXPR length "${length} + ${closing_length} - 1")
    string(SUBSTRING "${rest}" 0 ${length} code)
    skip(${length})
    string(APPEND entries "    {\"${type}\", \"${where}\", R\"voxgrad(${code})voxgrad\"},\n")
  endwhile()
endforeach()

file(READ "${PAGE}" page)
file(WRITE "${OUTPUT}" "// Written by watch/node_sources.cmake.
#include <voxgrad/watch/node_sources.h>

namespace vox::detail {

const std::vector<NodeSource>& node_sources() {
  static const std::vector<NodeSource> sources = {
${entries}  };
  return sources;
}

const char* const watch_page = R\"voxgrad(${page})voxgrad\";

}  // namespace vox::detail
")
