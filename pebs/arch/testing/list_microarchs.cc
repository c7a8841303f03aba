// Prints the table of microarchs in its order: date of introduction, name. For rows that are compiled outside the tree.
#include <cstdio>

#include "pebs/arch/microarch.h"

int main() {
  using namespace skidproof::arch;
  for (const Microarch* row : microarchs()) {
    std::printf("%04u-%02u %.*s\n", unsigned{row->introduced.year}, unsigned{row->introduced.month},
                static_cast<int>(row->name.size()), row->name.data());
  }
  return 0;
}
