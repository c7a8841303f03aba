// Finding Python and running programs.
#include "harness/cli/python.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

extern char** environ;

namespace skidproof::cli {

Expected<std::string> find_python(const std::string& module) {
  bool any = false;
  for (const std::string interpreter : {"/usr/bin/python3", "python3"}) {
    const auto answer = run_program({interpreter, "-c", "pass"}, -1);
    if (!answer || *answer != 0) continue;
    any = true;
    const auto imported = run_program({interpreter, "-c", "import " + module}, -1);
    if (imported && *imported == 0) return interpreter;
  }
  if (!any) {
    return fail(ErrorCode::kNotAvailable, "there is no Python 3",
                fmt::format("apt-get install python3 python3-{}", module));
  }
  return fail(ErrorCode::kNotAvailable, fmt::format("Python 3 has no module {}", module),
              fmt::format("apt-get install python3-{}", module));
}

Expected<int> run_program(const std::vector<std::string>& command, int output) {
  std::vector<char*> argv;
  argv.reserve(command.size() + 1);
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (output < 0) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  } else if (output != STDOUT_FILENO) {
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  }
  pid_t child = 0;
  const int error =
      ::posix_spawnp(&child, command.front().c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return fail(ErrorCode::kIo,
                fmt::format("cannot run {}: {}", command.front(), std::strerror(error)));
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  return fail(ErrorCode::kExecution, fmt::format("{} was ended by signal {} ({})", command.front(),
                                                 WTERMSIG(status), strsignal(WTERMSIG(status))));
}

}  // namespace skidproof::cli
