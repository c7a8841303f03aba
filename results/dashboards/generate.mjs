// usage: node generate.mjs DIR: writes the dashboards as Grafana imports them, and beside each its types' check.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

import { fleet } from "./fleet.mjs";
import { machine } from "./machine.mjs";
import { prometheus } from "./prometheus.mjs";

const OUT = process.argv[2];
const DASHBOARDS = { fleet, machine, prometheus };
// Panels whose options and fields the schema package types.
const TYPED = { stat: "StatPanelCfg", table: "TablePanelCfg", timeseries: "TimeSeriesPanelCfg", "state-timeline": "StateTimelinePanelCfg" };

// An enumeration's values stand in JSON as they are; TypeScript takes those of strings for another type.
const HEAD = `import type { Dashboard } from "@grafana/schema";
type Plain<T> = T extends string ? \`\${T}\` : T extends number | boolean | null | undefined ? T :
  T extends object ? { [K in keyof T]: Plain<T[K]> } : T;
`;

const checkOf = (name, dashboard) => {
  const types = [...new Set(dashboard.panels.map((panel) => panel.type))];
  for (const type of types) if (!(type in TYPED)) throw new Error(`${name}: panels of type ${type} are not checked: add it to TYPED`);
  const imports = types.map((type) => `import type * as ${TYPED[type]} from "@grafana/schema/dist/esm/raw/composable/` +
    `${type.replace("-", "")}/panelcfg/x/${TYPED[type]}_types.gen";`);
  const panels = dashboard.panels.map((panel, index) => {
    const options = `export const options${index}: Plain<Partial<${TYPED[panel.type]}.Options>> = ${JSON.stringify(panel.options ?? {})};`;
    const custom = panel.fieldConfig?.defaults?.custom;
    return custom ? `${options}\nexport const custom${index}: Plain<Partial<${TYPED[panel.type]}.FieldConfig>> = ${JSON.stringify(custom)};` : options;
  });
  return `${HEAD}${imports.join("\n")}\nexport const dashboard: Plain<Dashboard> = ${JSON.stringify(withoutQueries(dashboard), null, 1)};\n${panels.join("\n")}\n`;
};

// What the SDK writes although Grafana's schema has no such field any more, or not there.
const trim = (dashboard) => {
  for (const variable of dashboard.templating?.list ?? []) for (const field of ["auto", "auto_min", "auto_count"]) delete variable[field];
  for (const panel of dashboard.panels) if (panel.type === "table") delete panel.options.footer;
  dashboard.panels.forEach((panel, index) => { panel.id = index + 1; });
  return dashboard;
};

// A query's fields are its data source's; the schema names only those of an annotation that all sources share.
const withoutQueries = (dashboard) => JSON.parse(JSON.stringify(dashboard, (key, value) => (key === "target" || key === "targets" ? undefined : value)));

mkdirSync(OUT, { recursive: true });
for (const [name, make] of Object.entries(DASHBOARDS)) {
  const dashboard = trim(JSON.parse(JSON.stringify(make().build())));
  writeFileSync(join(OUT, `${name}.json`), `${JSON.stringify(dashboard, null, 1)}\n`);
  writeFileSync(join(OUT, `${name}.check.ts`), checkOf(name, dashboard));
}
