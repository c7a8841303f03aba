// JSON whose objects keep the order of their fields, so that a line reads with its type first.
#ifndef SKIDPROOF_RESULTS_JSON_H_
#define SKIDPROOF_RESULTS_JSON_H_

// The library's literal `""_json` makes every source that includes it instantiate the parser, for another
// kind of object at that: a quarter of the time that a suite takes to compile. Nothing here uses the literal;
// it stays declared, and its body becomes that of a template without instances.
// NOLINTNEXTLINE(bugprone-reserved-identifier)
#define _json(...)    \
  _json(__VA_ARGS__); \
  template <class>    \
  nlohmann::json without_instances(__VA_ARGS__)
#include <nlohmann/json.hpp>
#undef _json

namespace skidproof::results {

using Json = nlohmann::ordered_json;

}  // namespace skidproof::results

#endif  // SKIDPROOF_RESULTS_JSON_H_
