// The clause registry: all clauses in one list, and lookup by id.
#include "pebs/arch/clause.h"

#include <fmt/format.h>

#include <cctype>
#include <string>
#include <vector>

#include "pebs/arch/near_match.h"

namespace skidproof {

namespace {

constexpr const Clause* kClauses[] = {
#define SKIDPROOF_CLAUSE(name, agreement, excerpt, text, citation) &clause::name,
#include "pebs/arch/clause_rows.inc"
#undef SKIDPROOF_CLAUSE
};

bool same_id(std::string_view typed, std::string_view id) {
  return arch::edit_distance(typed, id) == 0;  // letter case ignored
}

}  // namespace

std::string_view name_of(Agreement agreement) {
  switch (agreement) {
    case Agreement::kAgreed:
      return "agreed";
    case Agreement::kDisputed:
      return "disputed";
    case Agreement::kInferred:
      return "inferred";
  }
  return "unknown agreement";
}

std::span<const Clause* const> clauses() { return kClauses; }

Expected<const Clause*> find_clause(std::string_view id) {
  std::vector<std::string_view> ids;
  for (const Clause* clause : kClauses) {
    if (same_id(id, clause->id)) return clause;
    ids.push_back(clause->id);
  }
  const std::vector<std::string> near = arch::near_matches(id, ids, 5);
  const std::string suggestion =
      near.empty() ? "Clauses are A…, B…, D…, E…, G…, L…, M…, N…, P…, R…, T… and V…, with a number."
                   : fmt::format("Did you mean {}?", fmt::join(near, ", "));
  return fail(ErrorCode::kInvalidArgument, fmt::format("unknown clause '{}'", id),
              suggestion + " 'skidproof list clauses' names all.");
}

}  // namespace skidproof
