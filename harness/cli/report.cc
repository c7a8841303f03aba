// `report`: hands result files to the Python package that draws the page.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/cli/python.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> inputs;
  std::string out;
  std::string json;
};

constexpr char kOutputs[] = "skidproof-out";

std::vector<std::string> rows_in(const fs::path& folder) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".jsonl") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

// The newest file of each name (results, measurements, qualification) below skidproof-out.
std::vector<std::string> newest() {
  std::error_code ignored;
  std::vector<fs::path> folders;
  for (const auto& entry : fs::directory_iterator(kOutputs, ignored)) {
    if (entry.is_directory(ignored)) folders.push_back(entry.path());
  }
  std::sort(folders.begin(), folders.end());  // run ids begin with the time
  std::map<std::string, std::string> by_name;
  for (const fs::path& folder : folders) {
    for (const std::string& file : rows_in(folder))
      by_name[fs::path(file).filename().string()] = file;
  }
  std::vector<std::string> files;
  files.reserve(by_name.size());
  for (const auto& [name, file] : by_name) files.push_back(file);
  return files;
}

Expected<std::vector<std::string>> files_of(const Options& options) {
  std::vector<std::string> files;
  for (const std::string& input : options.inputs) {
    std::error_code ignored;
    if (!fs::is_directory(input, ignored)) {
      if (input != "-" && !fs::exists(input, ignored)) {
        return fail(ErrorCode::kInvalidArgument, fmt::format("there is no file '{}'", input),
                    "name results files (*.jsonl) or the folders that hold them");
      }
      files.push_back(input);
      continue;
    }
    const std::vector<std::string> found = rows_in(input);
    if (found.empty()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("no *.jsonl file in '{}'", input),
                  "name the folder of a run: skidproof-out/<run id>");
    }
    files.insert(files.end(), found.begin(), found.end());
  }
  if (options.inputs.empty()) files = newest();
  if (!files.empty()) return files;
  return fail(ErrorCode::kInvalidArgument, fmt::format("there are no results below {}", kOutputs),
              "run `skidproof run` or `skidproof characterize` here first, or name results files");
}

int report(const Options& options) {
  const auto files = files_of(options);
  if (!files) return complain(files.error());
  const std::string program = shipped("results/report");
  if (program.empty()) {
    return complain(kExitHarnessFailed, "the report's Python package is missing",
                    "install skidproof whole (cmake --install), or keep its source tree");
  }
  const auto python = find_python("matplotlib");
  if (!python) return complain(kExitHarnessFailed, python.error());

  const std::string out = options.out.empty() ? fmt::format("{}/report", kOutputs) : options.out;
  std::vector<std::string> command = {*python, program, "--out", out};
  command.insert(command.end(), files->begin(), files->end());
  const auto exit = run_program(command, options.json == "-" ? STDERR_FILENO : STDOUT_FILENO);
  if (!exit) return complain(kExitHarnessFailed, exit.error());
  if (*exit != kExitHeld || options.json.empty()) return *exit;
  const results::Json document = {{"report", (fs::path(out) / "report.html").string()},
                                  {"files", *files}};
  const auto written = write_document(options.json, document);
  return written ? kExitHeld : complain(kExitHarnessFailed, written.error());
}

}  // namespace

void add_report(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("report", "one HTML page with plots from result files");
  verb->footer(
      "Examples:\n"
      "  skidproof report                                 the newest results below skidproof-out\n"
      "  skidproof report skidproof-out/* --out pages     these folders, as pages/report.html");
  verb->add_option("files", options->inputs,
                   "results files (*.jsonl) or folders of them (default: the newest of each kind)")
      ->type_name("FILE");
  verb->add_option("--out", options->out, "folder for report.html (default: skidproof-out/report)")
      ->type_name("DIR");
  add_json(*verb, options->json);
  verb->callback(
      [options, &invocation] { invocation.action = [options] { return report(*options); }; });
}

}  // namespace skidproof::cli
