// The Python interpreter that draws reports, verbs that Python carries out, and running programs.
#ifndef SKIDPROOF_HARNESS_CLI_PYTHON_H_
#define SKIDPROOF_HARNESS_CLI_PYTHON_H_

#include <string>
#include <vector>

#include "base/expected.h"

namespace skidproof::cli {

// The interpreter that can import this module: /usr/bin/python3, where the distribution puts modules, or
// else the first in PATH. Errors: kNotAvailable, with what to install.
Expected<std::string> find_python(const std::string& module);

// Runs a program to its end with its standard output going to our descriptor `output` (-1: nowhere, nor
// its standard error). The value is its exit code. Errors: kIo when it cannot start, kExecution when a
// signal ended it.
Expected<int> run_program(const std::vector<std::string>& command, int output);

// Becomes the Python package that reads results, with this verb of it and these arguments. Comes back only when it cannot
// begin, with the exit code.
int become_python(const std::string& verb, const std::vector<std::string>& arguments);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_PYTHON_H_
