// The rows of all shards of a run, made into the rows of one run.
#ifndef SKIDPROOF_HARNESS_CLI_MERGING_H_
#define SKIDPROOF_HARNESS_CLI_MERGING_H_

#include <optional>
#include <string>
#include <vector>

#include "base/expected.h"
#include "results/row.h"

namespace skidproof::cli {

// What one shard left.
struct ShardRows {
  std::string path;
  results::RunRow run;
  std::vector<results::MachineRow> machines;
  std::vector<results::Row> rows;      // between those and the end
  std::optional<results::EndRow> end;  // nullopt: it was cut short
  bool torn = false;                   // its last line breaks off
};

struct Merged {
  std::string file;  // how the verb calls its rows: "results.jsonl"
  std::vector<results::Row>
      rows;  // from `run` to `end`, in the order in which one program writes them
  std::optional<results::Json> matrix;  // of a qualification
  std::vector<std::string> lacking;     // what is not there: "shard 2 of 4 is missing"
  int exit = 0;  // what one program would have ended with; 2 where something is lacking
  std::string reason;
};

// Of a rows file, or of the folder of a run. kInvalidArgument where it is none, where its rows are not those of a
// shard, or were damaged otherwise than by the end of the machine; kIo, kPermission.
Expected<ShardRows> read_shard(const std::string& path);

// Shards may stand in any order. What cannot be equal to what one program would have written: ids, times and durations
// (the earliest start, the latest end, the sum of what the shards took) and the host, which is the first shard's. A test
// on ground that another shard found broken becomes `ground-broken`, as if it had not run; what a test took its margins
// from is measured by each shard, and the rows are of the one that came first in the order of the plan. Errors
// (kInvalidArgument): the shards are not of one run, or one is there twice; without `partial` also where one is missing
// or was cut short.
Expected<Merged> merge_shards(const std::vector<ShardRows>& shards, const std::string& run_id,
                              bool partial);

// What all shards have in common of their commands: without --shard, and without what says where rows go and how many
// processes there are.
std::vector<std::string> common_command(const std::vector<std::string>& command);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_MERGING_H_
