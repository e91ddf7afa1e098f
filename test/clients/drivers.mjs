// node-postgres and the fence: what reaches a JavaScript program, directly and through
// pgbouncer.

import pg from 'pg';
import { admin, finish, ok, refused, same, until, value } from './checks.mjs';
import { direct, pooled } from './sessions.mjs';

// A row of a protected table, with a lease on its resource.
class Item {
  static table;
  static last = 0;

  static async createTable(table) {
    Item.table = table;
    await admin.query(`
      CREATE TABLE ${table} (id integer PRIMARY KEY, qty integer NOT NULL);
      INSERT INTO ${table} SELECT i, 0 FROM generate_series(1, 200) AS i;
      SELECT fence.protect('${table}', '${table}:{id}');
      GRANT SELECT, INSERT, UPDATE ON ${table} TO worker`);
  }

  static async create() {
    const item = new Item();
    item.id = ++Item.last;
    item.resource = `${Item.table}:${item.id}`;
    item.update = `UPDATE ${Item.table} SET qty = qty + 1 WHERE id = ${item.id}`;
    item.token = await item.acquire('first');
    return item;
  }

  acquire(holder) {
    return value("SELECT token FROM fence.acquire($1, $2, '1 hour')", [this.resource, holder]);
  }

  // Somebody else gets a newer token, as after an expiry.
  async takenOver() {
    await admin.query('SELECT fence.break_lease($1)', [this.resource]);
    return this.acquire('second');
  }

  // The same; returns the token that was good so far.
  async stale() {
    const old = this.token;
    this.token = await this.takenOver();
    return old;
  }

  qty() {
    return value(`SELECT qty FROM ${Item.table} WHERE id = $1`, [this.id]);
  }
}

const check = (client, item, token = item.token) =>
  client.query('SELECT fence.check($1, $2)', [item.resource, token]);

// Present and write in one statement.  Returns how many rows it wrote.
async function fenced(client, item, token = item.token) {
  const result = await client.query(`${item.update} AND fence.check($1, $2)`, [item.resource, token]);
  return result.rowCount;
}

// Each refusal has its SQLSTATE and leaves the session usable.
async function sqlstates(connect, via) {
  const item = await Item.create();
  const client = await connect();
  const ask = (sql, ...parameters) => client.query(sql, [item.resource, item.token, ...parameters]);

  same(await fenced(client, item), 1, `${via}: a fenced write`);
  const error = await refused('PF001', `${via}: a stale token`, fenced(client, item, await item.stale()));
  ok(error.detail?.includes(item.token) && error.hint, `${via}: with detail and hint`, error.detail);

  const { schema, table } = await refused('PF002', `${via}: no token`, client.query(item.update));
  same([schema, table], ['public', Item.table], `${via}: which names the table`);
  await refused('PF003', `${via}: the token of another holder`,
    ask('SELECT fence.check($1, $2, holder => $3)', 'third'));
  await refused('PF004', `${via}: a token that was never issued`, fenced(client, item, `${item.token}0`));
  await admin.query('SELECT fence.release($1, $2)', [item.resource, item.token]);
  await refused('PF005', `${via}: a lease that has ended`,
    ask("SELECT fence.check($1, $2, lease => 'postgres')"));
  await refused('22023', `${via}: a token below 1`, fenced(client, item, -1));
  same(await fenced(client, item), 1, `${via}: the same connection still writes`);
  same(await item.qty(), 2, `${via}: what was refused wrote nothing`);
  await client.end();
}

// The older holder's transaction was open when the newer one came.
async function atCommit(connect, via) {
  const item = await Item.create();
  const client = await connect();

  await client.query('BEGIN');
  await check(client, item);
  await client.query(item.update);
  await item.takenOver();
  await refused('PF001', `${via}: stale at commit`, client.query('COMMIT'));
  same(await item.qty(), 0, `${via}: nothing of it is committed`);
  same((await client.query('SELECT 1 AS one')).rows, [{ one: 1 }], `${via}: the next transaction works`);
  await client.end();
}

// In autocommit mode the check at commit comes after the rows: a driver that takes the first
// row for success would miss it.  The row is large, so that it is sent at once.
async function afterRows(connect, via) {
  const item = await Item.create();
  const client = await connect();
  const sql = `
    WITH w AS (UPDATE ${Item.table} SET qty = qty + 1
                WHERE id = $1 AND fence.check($2, $3) RETURNING qty)
    SELECT repeat('x', 20000) FROM w UNION ALL SELECT pg_advisory_xact_lock($4)::text`;

  await admin.query('SELECT pg_advisory_lock($1)', [item.id]);
  let rows = 0;
  const query = new pg.Query(sql, [item.id, item.resource, item.token, item.id]);
  query.on('row', () => rows++);
  const end = new Promise((resolve, reject) => query.on('end', resolve).on('error', reject));
  const verdict = refused('PF001', `${via}: stale after the rows were sent`, end);
  client.query(query);
  await until(() => value(`
    SELECT count(*) = 1 FROM pg_locks
     WHERE locktype = 'advisory' AND NOT granted AND objid = $1 AND objsubid = 1`, [item.id]),
    'the statement waits for its lock');
  await item.takenOver();
  await admin.query('SELECT pg_advisory_unlock($1)', [item.id]);
  await verdict;
  same(rows, 2, `${via}: all rows had come before`);
  same(await item.qty(), 0, `${via}: nothing of it is committed`);
  await client.end();
}

// A named query is prepared on the server: the token is a parameter, judged on each
// execution, also by a generic plan and after the plan was thrown away.
async function prepared() {
  const item = await Item.create();
  const client = await direct();
  const text = `${item.update} AND fence.check($1, $2)`;
  const run = async (token) =>
    (await client.query({ name: 'fenced', text, values: [item.resource, token] })).rowCount;

  for (let i = 0; i < 8; i++) {
    await run(item.token);
  }
  same(await item.qty(), 8, 'prepared: eight times');
  await refused('PF001', 'prepared: a stale token', run(await item.stale()));
  await admin.query(`ALTER TABLE ${Item.table} ADD COLUMN note text`);
  same(await run(item.token), 1, 'prepared: after ALTER TABLE');
  await admin.query(`SELECT fence.protect('${Item.table}', '${Item.table}:{id}')`);
  same(await run(item.token), 1, 'prepared: after the guard was made again');
  await refused('PF001', 'prepared: stale again', run(await item.stale()));
  same(await item.qty(), 10, 'prepared: what was refused wrote nothing');
  await client.end();
}

// Queries that are queued without waiting for each other, and several in one string.
async function queued(connect, via) {
  const item = await Item.create();
  const client = await connect();
  const transaction = (token) => Promise.allSettled([
    client.query('BEGIN'), check(client, item, token), client.query(item.update), client.query('COMMIT')]);
  const text = (token) =>
    client.query(`SELECT fence.check('${item.resource}', ${token}); ${item.update}`);

  const good = await transaction(item.token);
  same(good.map((result) => result.status), Array(4).fill('fulfilled'), `${via}: queued without waiting`);
  const bad = await transaction(await item.stale());
  same(bad.map((result) => result.reason?.code ?? result.value.command),
    ['BEGIN', 'PF001', '25P02', 'ROLLBACK'], `${via}: queued with a stale token`);
  await text(item.token);
  same(await item.qty(), 2, `${via}: several statements in one string are one transaction`);
  await refused('PF001', `${via}: ... with a stale token`, text(await item.stale()));
  same(await item.qty(), 2, `${via}: what was refused wrote nothing`);
  await client.end();
}

// Idempotency keys (I64).  That a claim is not completed shows at commit, after its row was sent.
async function claims(connect, via) {
  const client = await connect();
  const claim = async (n) => (await client.query(
    'SELECT fresh, response FROM fence.claim($1, $2, $3)', ['k', `node ${via}`, { n }])).rows[0];

  await refused('PF103', `${via}: a claim that is not completed`, claim(1));
  await client.query('BEGIN');
  same(await claim(1), { fresh: true, response: null }, `${via}: the key is free`);
  await client.query('SELECT fence.complete($1, $2, $3)', ['k', { id: 7 }, `node ${via}`]);
  await client.query('COMMIT');
  same(await claim(1), { fresh: false, response: { id: 7 } }, `${via}: a replay`);
  await refused('PF101', `${via}: with another request`, claim(2));
  await client.end();
}

// B07: JavaScript's numbers are exact up to 2^53 only.  Text and BigInt are exact.
async function largeTokens() {
  const item = await Item.create();
  const client = await direct();
  const types = { getTypeParser: (oid) => (oid === pg.types.builtins.INT8 ? BigInt : String) };

  await admin.query('SELECT fence.release($1, $2)', [item.resource, item.token]);
  await admin.query('SELECT fence.raise_mark($1, $2)', [item.resource, 2n ** 53n]);
  item.token = await item.acquire('second');
  same(item.token, '9007199254740993', 'a token above 2^53 arrives as text');
  same(await fenced(client, item), 1, '... and is presented as text');
  await refused('PF001', '... rounded to a number, it is the token before',
    fenced(client, item, Number(item.token)));
  await refused('PF004', '... nor is it the token behind', fenced(client, item, '9007199254740994'));

  const mark = await client.query({ text: 'SELECT fence.mark($1)', values: [item.resource], types });
  same(mark.rows[0].mark, 9007199254740993n, 'a type parser may make it a BigInt');
  same(await fenced(client, item, mark.rows[0].mark), 1, '... and is presented as that');
  await refused('22P02', 'a number with a fraction is not taken for a token', fenced(client, item, 1.5));
  await client.end();
}

// C21: in transaction mode the next client of a server connection inherits nothing; with
// statement pooling, what works is one statement.
async function pooler() {
  const item = await Item.create();
  const clients = await Promise.all(Array.from({ length: 24 }, () => pooled())); // on four server connections

  await Promise.all(clients.map(async (client) => {
    await client.query('BEGIN');
    await check(client, item);
    await client.query(item.update);
    await client.query('COMMIT');
  }));
  same(await item.qty(), 24, 'pgbouncer: a write by each of 24 clients');
  const late = await Promise.allSettled(clients.map((client) => client.query(item.update)));
  same(late.map((result) => result.reason?.code), Array(24).fill('PF002'),
    'pgbouncer: none inherits the token of another');
  same(await value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), '0',
    'pgbouncer: no lock is left behind');
  await Promise.all(clients.map((client) => client.end()));

  const client = await pooled('shop_statements');
  same(await fenced(client, item), 1, 'pgbouncer, statement mode: check within the statement');
  await check(client, item);
  await refused('PF002', 'pgbouncer, statement mode: check in the statement before',
    client.query(item.update));
  await refused('PF001', 'pgbouncer, statement mode: a stale token',
    fenced(client, item, await item.stale()));
  await client.end();
}

// A pool in the program does not drop a connection for a refusal.  (pool.query() would: it
// does so after any error.)
async function poolKeeps() {
  const item = await Item.create();
  const pool = new pg.Pool({ user: 'worker', max: 1 });
  const pids = new Set();
  const write = async (token) => {
    const client = await pool.connect();
    try {
      pids.add(client.processID);
      return await fenced(client, item, token);
    } finally {
      client.release();
    }
  };

  await refused('PF004', 'pool: a refusal', write(`${item.token}0`));
  same(await write(item.token), 1, 'pool: the next write');
  same(pids.size, 1, 'pool: the connection stays');
  await pool.end();
}

await Item.createTable('stock_node');
for (const [connect, via] of [[direct, 'direct'], [() => pooled(), 'pgbouncer']]) {
  await sqlstates(connect, via);
  await atCommit(connect, via);
  await afterRows(connect, via);
  await queued(connect, via);
  await claims(connect, via);
}
await prepared();
await largeTokens();
await pooler();
await poolKeeps();
finish();
