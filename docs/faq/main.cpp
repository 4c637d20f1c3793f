#include <cstdlib>

#include "docs/faq/answers.h"

int main(int argc, char** argv) {
  const auto answer = faq::answers.find(argc == 2 ? std::atoi(argv[1]) : 0);
  if (answer == faq::answers.end()) {
    std::cerr << "usage: faq <question of docs/faq.md, 1 to " << faq::answers.rbegin()->first << ">\n";
    return 2;
  }
  answer->second();
}
