# The test `python`: pytest on python/voxgrad, where there is a Python with PyTorch and pytest; skipped elsewhere.

# It runs alone, because one of its tests takes all memory of a GPU. As for opinfo: a sanitizer's runtime must be the
# first library of the process.
if(Python3_FOUND AND TARGET voxgrad_python AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  add_test(NAME python COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}
    --library $<TARGET_FILE:voxgrad_python>)
  set_tests_properties(python PROPERTIES LABELS cpu TIMEOUT 900 SKIP_RETURN_CODE 77 RUN_SERIAL ON)
endif()
