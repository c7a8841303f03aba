#include "harness/cli/shard.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <charconv>

#include "harness/cli/command.h"
#include "harness/cli/text.h"

namespace skidproof::cli {
namespace {

// A number without a sign or anything else around it.
std::optional<uint64_t> number_in(std::string_view text) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

uint64_t shard_of(uint64_t position, uint64_t of) {
  const uint64_t round = position / of;
  return (position % of + round % of) % of + 1;
}

bool Shard::has(uint64_t position) const { return shard_of(position, of) == index; }

Expected<Shard> parse_shard(std::string_view text) {
  const size_t slash = text.find('/');
  const auto index = number_in(text.substr(0, slash));
  const auto of =
      slash == std::string_view::npos ? std::nullopt : number_in(text.substr(slash + 1));
  if (!index || !of) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' names no shard", text),
                "write I/N, for example 2/4 for the second of four");
  }
  if (*of < 1 || *of > kMostShards) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' would split a run into {} shards", text, *of),
                fmt::format("1 to {} are possible", kMostShards));
  }
  if (*index < 1 || *index > *of) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("there is no shard '{}'", text),
                fmt::format("the {} shards are 1/{} to {}/{}", *of, *of, *of, *of));
  }
  return Shard{.index = *index, .of = *of};
}

void add_shard(Command verb, std::optional<Shard>& shard) {
  verb.option(
          "--shard",
          [&shard](const std::string& text) -> Expected<void> {
            shard = SKIDPROOF_TRY(parse_shard(text));
            return {};
          },
          "only the I-th of N parts of the run, for an array job; `skidproof merge` makes one run "
          "of the parts")
      .named("I/N");
}

std::string plan_hash(std::span<const std::string> units) {
  std::string all;
  for (const std::string& unit : units) all.append(unit).push_back('\n');
  return results::hex(XXH64(all.data(), all.size(), 0));
}

std::optional<results::RunShard> shard_field(const std::optional<Shard>& shard,
                                             std::span<const std::string> units, bool all) {
  if (!shard) return std::nullopt;
  return results::RunShard{.index = shard->index,
                           .of = shard->of,
                           .planned = units.size(),
                           .plan = plan_hash(units),
                           .all = all};
}

std::string nothing_to_do(const Shard& shard, std::string_view planned) {
  return fmt::format("nothing to do: {} for {}", planned, count_of(shard.of, "shard"));
}

std::string in_words(const Shard& shard, uint64_t own, uint64_t planned, std::string_view unit) {
  return fmt::format("shard {} of {}: {} of {}", shard.index, shard.of, own,
                     count_of(planned, unit));
}

}  // namespace skidproof::cli
