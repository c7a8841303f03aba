// What the dashboards ask: a data source that is chosen on the dashboard, and queries of its kind.
import { DataqueryBuilder } from "@grafana/grafana-foundation-sdk/prometheus";
import { DatasourceVariableBuilder, QueryVariableBuilder, VariableRefresh, VariableSort } from "@grafana/grafana-foundation-sdk/dashboard";

export const POSTGRES = { type: "grafana-postgresql-datasource", uid: "${store}" };
export const PROMETHEUS = { type: "prometheus", uid: "${prometheus}" };

// The SDK has no query of the PostgreSQL data source; its fields are those that Grafana's query editor writes.
class SqlQueryBuilder {
  constructor(sql, format) {
    this.query = {
      datasource: POSTGRES, editorMode: "code", format, rawQuery: true, rawSql: sql, refId: "A",
      _implementsDataqueryVariant() {},
    };
  }
  build() {
    return this.query;
  }
}

// One line, so that the generated file's differences can be read.
const tidy = (sql) => sql.replace(/\s+/g, " ").trim();
export const table = (sql) => new SqlQueryBuilder(tidy(sql), "table");
export const series = (sql) => new SqlQueryBuilder(tidy(sql), "time_series");

export const storeVariable = () => new DatasourceVariableBuilder("store").label("Store").type(POSTGRES.type);
export const prometheusVariable = () => new DatasourceVariableBuilder("prometheus").label("Prometheus").type(PROMETHEUS.type);

export const sqlVariable = (name, label, sql) => new QueryVariableBuilder(name).label(label).datasource(POSTGRES).query(tidy(sql))
  .refresh(VariableRefresh.OnTimeRangeChanged).sort(VariableSort.AlphabeticalAsc);
export const labelVariable = (name, label, query) => new QueryVariableBuilder(name).label(label).datasource(PROMETHEUS).query(query)
  .refresh(VariableRefresh.OnTimeRangeChanged).sort(VariableSort.AlphabeticalAsc);

export const instant = (expression, legend = "__auto") => new DataqueryBuilder().expr(expression).instant().format("table").legendFormat(legend);
export const range = (expression, legend) => new DataqueryBuilder().expr(expression).range().legendFormat(legend);
