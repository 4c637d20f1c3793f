#include <cstdlib>
#include <iterator>

#include "docs/faq/answers.h"

int main(int argc, char** argv) {
  void (*const answers[])() = {
      faq::second_backward,
      faq::undefined_gradient,
      faq::zero_gradient,
      faq::nan_gradient,
      faq::twice_too_large,
      faq::in_place,
      faq::what_ops_keep,
      faq::detach_or_no_grad,
      faq::parameter_does_not_train,
      faq::create_graph,
      faq::transposed_is_not_inverse,
      faq::output_padding,
      faq::shared_sizes,
      faq::groups,
      faq::checkerboard,
      faq::sums,
      faq::tf32,
      faq::dtypes,
      faq::seeds,
      faq::item_waits,
      faq::memory,
      faq::train_and_eval,
      faq::save_and_load,
      faq::threads,
  };
  const int number = argc == 2 ? std::atoi(argv[1]) : 0;
  if (number < 1 || number > static_cast<int>(std::size(answers))) {
    std::cerr << "usage: faq <question of docs/faq.md, 1 to " << std::size(answers) << ">\n";
    return 2;
  }
  answers[number - 1]();
}
