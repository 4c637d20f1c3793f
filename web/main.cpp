// The module of the page, or a program that reads the page's program from its input.
#include "language.h"

#ifdef __EMSCRIPTEN__

extern "C" __attribute__((used)) const char* run(const char* program) {
  static std::string result;
  result = vox::web::run(program);
  return result.c_str();
}

#else

#include <iostream>
#include <iterator>

int main() {
  const std::string program(std::istreambuf_iterator<char>(std::cin), {});
  std::cout << vox::web::run(program);
}

#endif
