// Ctrl-C as a question that the training loop asks, not as an end in mid-air.
#pragma once

namespace mri {

/// From here on SIGINT and SIGTERM only set a flag. A second one ends the process as usual.
void catch_interrupts();

/// Whether a signal came.
bool interrupted();

}  // namespace mri
