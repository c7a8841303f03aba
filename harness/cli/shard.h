// One run in several parts, on several machines or one after the other: who does what.
#ifndef SKIDPROOF_HARNESS_CLI_SHARD_H_
#define SKIDPROOF_HARNESS_CLI_SHARD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/expected.h"
#include "results/row.h"

namespace skidproof::cli {

class Command;

// "2/4", the second of four.
struct Shard {
  uint64_t index = 1;  // from 1
  uint64_t of = 1;

  // Whether the unit at this position of the plan is its own.
  bool has(uint64_t position) const;
};

// More parts than any plan has use for.
inline constexpr uint64_t kMostShards = 10'000;

// Which shard, from 1, has the unit at this position. A unit of the plan is a test with its number of --repeat, a
// model or a batch of cases, in the order in which one program would run them.
//
// Units are dealt out in turn: each shard gets as many as any other, or one more or fewer, and neighbours, which are
// the parameters of one test and last alike, go to different shards, so that shards last alike too. Whoever is first
// moves on by one with each round: otherwise four shards of a test over four counters would each have one counter. The
// plan and N alone decide: how fast a machine is, and who else runs, does not come into it, and from the rows of all
// shards the order of the plan is known again.
uint64_t shard_of(uint64_t position, uint64_t of);

// kInvalidArgument, with the form that it must have.
Expected<Shard> parse_shard(std::string_view text);

// The option --shard I/N.
void add_shard(Command verb, std::optional<Shard>& shard);

// A hash of the names of all units, in their order: shards of one run have the same. "0x1234abcd…".
std::string plan_hash(std::span<const std::string> units);

// As it stands in the `run` row.
std::optional<results::RunShard> shard_field(const std::optional<Shard>& shard,
                                             std::span<const std::string> units, bool all);

// How a shard without any unit ends: "nothing to do: 3 tests for 4 shards".
std::string nothing_to_do(const Shard& shard, std::string_view planned);
// "shard 2 of 4: 353 of 1,411 tests".
std::string in_words(const Shard& shard, uint64_t own, uint64_t planned, std::string_view unit);

}  // namespace skidproof::cli

#endif  // SKIDPROOF_HARNESS_CLI_SHARD_H_
