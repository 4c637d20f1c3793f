#pragma once

#include <cxxabi.h>

#include <cstdlib>
#include <string>
#include <typeinfo>

namespace vox::detail {

/// "SiluNode", "FunctionNode<Cube>": the type's name without the namespaces in front.
inline std::string type_name(const std::type_info& type) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? demangled : type.name();
  std::free(demangled);
  const size_t space = name.substr(0, name.find('<')).rfind("::");
  return space == std::string::npos ? name : name.substr(space + 2);
}

}  // namespace vox::detail
