// One machine out of the store: its figures night by night with what changed, its verdicts, its errata.
import { AnnotationQueryBuilder, DashboardBuilder } from "@grafana/grafana-foundation-sdk/dashboard";
import { PanelBuilder as StateTimeline } from "@grafana/grafana-foundation-sdk/statetimeline";
import { PanelBuilder as Table } from "@grafana/grafana-foundation-sdk/table";
import { PanelBuilder as TimeSeries } from "@grafana/grafana-foundation-sdk/timeseries";
import { VisibilityMode } from "@grafana/grafana-foundation-sdk/common";

import { POSTGRES, series, sqlVariable, storeVariable, table } from "./sources.mjs";

// Numbers that Grafana puts between the parentheses, so that no name of a machine's can become SQL.
const THIS = "subject = $subject";

const FACTS_THAT_CHANGED = `
  SELECT time, concat_ws(', ', CASE WHEN microcode IS DISTINCT FROM lag(microcode) OVER nights THEN concat('microcode ', microcode) END,
         CASE WHEN os IS DISTINCT FROM lag(os) OVER nights THEN os END, CASE WHEN bios IS DISTINCT FROM lag(bios) OVER nights THEN concat('BIOS ', bios) END,
         CASE WHEN version IS DISTINCT FROM lag(version) OVER nights THEN concat('skidproof ', version) END) AS text
  FROM (SELECT r.started AS time, rs.microcode, rs.os, rs.bios, r.version FROM run_subjects rs JOIN runs r ON r.run = rs.run
        WHERE rs.${THIS} AND $__timeFilter(r.started)) facts WINDOW nights AS (ORDER BY time)`;

export const machine = () => new DashboardBuilder("Skidproof: one machine")
  .uid("skidproof-machine")
  .description("A machine's history out of Skidproof's store. A model's figures are another machine than silicon's.")
  .tags(["skidproof"]).readonly().refresh("15m").time({ from: "now-90d", to: "now" })
  .withVariable(storeVariable())
  .withVariable(sqlVariable("subject", "Machine", `
    SELECT concat_ws(' ', s.host, s.machine, nullif(s.core_type, '')) AS __text, s.subject AS __value FROM subjects s`))
  .withVariable(sqlVariable("figure", "Figure", "SELECT DISTINCT name FROM figures").multi(true).includeAll(true))
  .annotation(new AnnotationQueryBuilder().name("What changed").datasource(POSTGRES).enable(true).iconColor("orange").target(table(`
    SELECT time, text FROM (${FACTS_THAT_CHANGED}) changed WHERE text <> '' ORDER BY time LIMIT 500`)))
  .annotation(new AnnotationQueryBuilder().name("Change points").datasource(POSTGRES).enable(true).iconColor("red").target(table(`
    SELECT r.started AS time, concat(f.name, ' ', f.parameters, ': ', c.before, ' to ', c.after, ' ', f.unit) AS text
    FROM change_points c JOIN runs r ON r.run = c.after_run JOIN figures f ON f.figure = c.figure
    WHERE c.${THIS} AND f.name IN ($figure) AND $__timeFilter(r.started) ORDER BY time LIMIT 500`)))
  .withPanel(new Table().title("The machine").description("As its last night found it.").datasource(POSTGRES).height(4).span(24).withTarget(table(`
    SELECT rs.provenance, rs.brand, rs.microarch, rs.family, rs.model, rs.stepping, rs.microcode, rs.os, rs.bios, rs.hypervisor, r.version, r.started
    FROM run_subjects rs JOIN runs r ON r.run = rs.run WHERE rs.${THIS} AND $__timeFilter(r.started) ORDER BY r.started DESC LIMIT 1`)))
  .withPanel(new TimeSeries().title("Figures").description("Each night's value, in the unit that the name ends with.").datasource(POSTGRES).height(14).span(24)
    .showPoints(VisibilityMode.Always).pointSize(4).withTarget(series(`
      SELECT r.started AS time, concat(f.name, ' ', f.parameters, ' in ', f.unit) AS metric, m.value
      FROM measurements m JOIN figures f ON f.figure = m.figure JOIN runs r ON r.run = m.run
      WHERE m.${THIS} AND f.name IN ($figure) AND $__timeFilter(r.started) ORDER BY r.started`)))
  .withPanel(new StateTimeline().title("Tests that did not always hold").description("Verdict by night.").datasource(POSTGRES).height(10).span(24)
    .withTarget(series(`
      SELECT r.started AS time, t.id AS metric, v.status AS value FROM verdicts v JOIN tests t ON t.test = v.test JOIN runs r ON r.run = v.run
      WHERE v.${THIS} AND $__timeFilter(r.started) AND v.repetition = 0 AND v.test IN (
        SELECT test FROM verdicts WHERE ${THIS} AND status IN ('fail', 'error', 'xfail', 'disturbed')) ORDER BY r.started`)))
  .withPanel(new Table().title("Changes").datasource(POSTGRES).height(8).span(24).filterable(true).withTarget(table(`
    SELECT r.started AS "first night", f.name AS figure, f.parameters, f.unit, c.before, c.after, c.low, c.high, c.p, c.attributed
    FROM change_points c JOIN runs r ON r.run = c.after_run JOIN figures f ON f.figure = c.figure
    WHERE c.${THIS} AND $__timeFilter(r.started) ORDER BY r.started DESC LIMIT 500`)))
  .withPanel(new Table().title("Errata").description("Of the last night that asked.").datasource(POSTGRES).height(8).span(24).filterable(true)
    .withTarget(table(`
      SELECT e.id AS erratum, e.core_type, e.listed, e.observed, e.exposure, e.title FROM errata e
      WHERE e.${THIS} AND e.run = (SELECT max(run) FROM errata WHERE ${THIS}) AND (e.observed <> 'not-run' OR e.listed = 'affected')
      ORDER BY e.observed = 'reproduced' DESC, e.id LIMIT 500`)));
