#include "docs/exercises/ladder/layer.h"
#include "docs/exercises/steps.h"

STEP("every output of two volumes, of whole numbers") { exercise::expect_layer(2, exercise::run_kernel); }

static const bool is_listed = exercise::list_afterwards(exercise::print_kernel_bars);
