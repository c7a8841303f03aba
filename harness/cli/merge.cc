// `merge`: the shards of a run become one run.
#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/merging.h"
#include "harness/cli/result_files.h"
#include "harness/cli/text.h"
#include "harness/cli/verb.h"

namespace skidproof::cli {
namespace {

struct MergeOptions {
  Destination destination;
  std::vector<std::string> shards;
  bool partial = false;
};

constexpr char kMergeExamples[] =
    "Examples:\n"
    "  skidproof merge night/1 night/2 night/3 night/4 --out night/whole\n"
    "  skidproof merge --partial night/? --out night/whole     what there is, and what is lacking\n"
    "\n"
    "Exit codes: what the whole run would have ended with; 2 where a shard is missing, there "
    "twice or cut short.";

// A file that is read is not to be written.
bool overwrites(const Destination& to, const std::string& file,
                const std::vector<ShardRows>& from) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const ShardRows& shard : from) {
    if (!to.out.empty() && fs::equivalent(fs::path(to.out) / file, shard.path, ignored))
      return true;
    if (!to.json.empty() && to.json != "-" && fs::equivalent(to.json, shard.path, ignored))
      return true;
  }
  return false;
}

Expected<void> write_all(ResultFiles& files, const Merged& merged) {
  for (const results::Row& row : merged.rows) SKIDPROOF_CHECK(files.write(row));
  if (!merged.matrix || files.folder().empty()) return {};
  return write_document(files.folder() + "/matrix.json", *merged.matrix);
}

void print(const Text& text, const Merged& merged, const ResultFiles& files, size_t shards) {
  std::vector<std::string> words;
  const results::StatusCounts counts = files.counts();
  for (results::Status status : results::kStatuses) {
    if (counts[status] > 0) words.push_back(fmt::format("{} {}", counts[status], name_of(status)));
  }
  text.line(fmt::format("{} merged: {}{}", count_of(shards, "shard"), merged.reason,
                        words.empty() ? "" : fmt::format("; {}", joined(words))));
  for (const results::Row& row : merged.rows) {
    if (const auto* sum = std::get_if<results::QualificationRow>(&row)) {
      text.line(fmt::format("{} of {} caught; {} of {}", sum->caught,
                            count_of(sum->defects, "broken model"),
                            count_of(sum->conforming_failures, "accusation"),
                            count_of(sum->conforming_runs, "conforming run")));
      if (!sum->missed.empty()) text.line("missed: " + wrap(joined(sum->missed), 8));
    } else if (const auto* fuzzed = std::get_if<results::FuzzRow>(&row)) {
      text.line(fmt::format("{}, {}", count_of(fuzzed->cases, "case"),
                            count_of(fuzzed->violations, "violation")));
    }
  }
  for (const std::string& path : files.paths()) text.line("rows are in " + path);
}

int merge(const MergeOptions& options) {
  std::vector<ShardRows> shards;
  for (const std::string& path : options.shards) {
    auto shard = read_shard(path);
    std::error_code ignored;
    const bool there = std::filesystem::exists(path, ignored);
    if (!shard) return complain(there ? kExitHarnessFailed : kExitUsage, shard.error());
    shards.push_back(std::move(*shard));
  }
  const std::string run_id = new_run_id();
  const auto merged = merge_shards(shards, run_id, options.partial);
  if (!merged) return complain(kExitHarnessFailed, merged.error());
  if (overwrites(options.destination, merged->file, shards)) {
    return complain(kExitUsage, "the merged rows would overwrite those of a shard",
                    "name another folder with --out");
  }
  auto files = ResultFiles::open(options.destination, run_id, merged->file);
  if (!files) return complain(kExitHarnessFailed, files.error());
  if (auto written = write_all(**files, *merged); !written) {
    return complain(kExitHarnessFailed, written.error());
  }
  print(Text(options.destination.json == "-" ? stderr : stdout), *merged, **files, shards.size());
  for (const std::string& lacking : merged->lacking) complain(merged->exit, lacking);
  return merged->exit;
}

}  // namespace

void add_merge(Command program, Invocation& invocation) {
  auto options = std::make_shared<MergeOptions>();
  Command verb = program.verb("merge", "make one run of the parts that --shard split it into");
  verb.epilogue(kMergeExamples);
  verb.option("shards", options->shards, "folders of the shards, or the files of their rows")
      .named("SHARD")
      .required();
  verb.flag("--partial", options->partial,
            "merge what there is; the end row says what is lacking, and the exit code is 2");
  verb.option("--out", options->destination.out,
              "folder for the merged rows (default: skidproof-out/<run id>, unless --json FILE)")
      .named("DIR");
  add_json(verb, options->destination.json);
  verb.when_named(
      [options, &invocation] { invocation.action = [options] { return merge(*options); }; });
}

}  // namespace skidproof::cli
