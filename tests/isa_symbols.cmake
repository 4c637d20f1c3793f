# cmake -DNM=nm -DISA=v4 -DOBJECTS="a.o;b.o" -P isa_symbols.cmake
#
# Note [Instruction sets]: an object of ops/cpu/simd may hold no function or variable that the linker could merge
# with another object's (weak or unique), unless its name belongs to this instruction set.
if(NOT OBJECTS)
  message(FATAL_ERROR "isa_symbols: no objects were given")
endif()
execute_process(COMMAND ${NM} -C --defined-only ${OBJECTS} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "simd::${ISA}::" own "${text}")
list(LENGTH own own)
if(own EQUAL 0)
  message(FATAL_ERROR "isa_symbols: none of the symbols of namespace ${ISA} is there: is this the right object?")
endif()
string(REPLACE ";" "," text "${text}")
string(REPLACE "[" "(" text "${text}")  # CMake's lists take brackets for quotes
string(REPLACE "]" ")" text "${text}")
string(REGEX MATCHALL "[^\n]+ [WVu] [^\n]*" weak "${text}")
foreach(line IN LISTS weak)
  if(NOT line MATCHES "simd::${ISA}::")
    list(APPEND foreign "${line}")
  endif()
endforeach()
if(foreign)
  list(JOIN foreign "\n  " foreign)
  message(FATAL_ERROR "isa_symbols: built for ${ISA}, could be merged into the whole program:\n  ${foreign}")
endif()
message(STATUS "isa_symbols: ${ISA}: ${own} own symbols, none foreign")
