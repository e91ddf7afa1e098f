-- A realistic inventory: 50 warehouses with 10 000 SKUs each, the same on every run.
--   psql -f test/inventory.sql [-v warehouses=3] [-v skus=100]
-- No random(): each quantity is computed from its warehouse and SKU, so that one row is
-- the same whatever the size of the table and the version of PostgreSQL.
\if :{?warehouses}
\else
	\set warehouses 50
\endif
\if :{?skus}
\else
	\set skus 10000
\endif

CREATE TABLE inventory (
	warehouse_id text NOT NULL,
	sku text NOT NULL,
	qty integer NOT NULL CHECK (qty >= 0),
	PRIMARY KEY (warehouse_id, sku)
);

INSERT INTO inventory (warehouse_id, sku, qty)
SELECT 'warehouse-' || w,
	   'SKU-' || lpad(s::text, 5, '0'),
	   CASE
		   WHEN hash % 100 < 4 THEN 0						-- sold out
		   WHEN s % 20 = 0 THEN 400 + hash % 4600			-- sold every day
		   WHEN s % 7 = 0 THEN 1 + hash % 12				-- slow and bulky
		   ELSE 10 + hash % 190
	   END
FROM generate_series(1, :warehouses) AS w,
	 generate_series(1, :skus) AS s,
	 -- multiply, fold the well mixed upper bits onto the lower ones, multiply again
	 LATERAL (SELECT (w * 100003 + s)::bigint * 2654435761 % 4294967296 AS half) AS h1,
	 LATERAL (SELECT ((half # (half >> 15)) * 1103515245 % 4294967296 >> 8)::integer AS hash) AS h2;

ANALYZE inventory;
