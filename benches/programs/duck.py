"""Answers a query about spans with DuckDB: FOLDER QUERY OUTPUT."""

import sys

import duckdb

folder, query, output = sys.argv[1:]
database = duckdb.connect()
database.execute(f"""
    create view spans as
    select *, split_part(filename, '/', -2) as session
    from read_parquet('{folder}/*/spans.parquet', filename = true)
""")
database.execute("create macro approx_percentile_cont(x, q) as approx_quantile(x, q)")
database.execute(f"copy ({query}) to '{output}' (format csv, header)")
