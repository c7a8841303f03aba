#include "harness/cli/machine_options.h"

#include <CLI/CLI.hpp>

namespace skidproof::cli {

void add_model_and_cpu(CLI::App& verb, MachineOptions& machine) {
  verb.add_option("--defect", machine.defects,
                  "break the model on purpose, ID@0.01 in a share of the overflows; may be given "
                  "again (skidproof list defects)")
      ->type_name("ID")
      ->take_all();
  verb.add_option("--rough", machine.rough,
                  "make the model as untidy as silicon: a seed that draws everything which nothing "
                  "promises, or FIELD=VALUE,… (skidproof list rough)")
      ->type_name("SEED|FIELDS");
  verb.add_option("--cpu", machine.cpu.cpu,
                  "which CPU of this computer `direct` claims (default: the highest, on a hybrid "
                  "part of the P-cores)")
      ->type_name("N");
  verb.add_option("--core", machine.cpu.core, "the same by the type of the core")
      ->check(CLI::IsMember({"P", "E"}))
      ->type_name("P|E");
  verb.add_option("--part", machine.part,
                  "which processor of its row the model is: FAMILY_MODEL_STEPPING in hexadecimal, "
                  "such as 06_2D_7 (skidproof explain <microarch>)")
      ->type_name("PART");
  verb.add_option("--microcode", machine.microcode,
                  "the model's microcode revision, such as 0x28; 0: it cannot be read")
      ->type_name("HEX");
  verb.add_flag("--sibling,!--no-sibling", machine.sibling_thread,
                "whether a second thread shares the model's core (default: yes)");
}

}  // namespace skidproof::cli
