// What the JavaScript programs here share: checks that print one line each, and sessions.

import { isDeepStrictEqual } from 'node:util';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

const pool = { host: process.env.POOL_HOST, port: process.env.POOL_PORT };

let failures = 0;

// One check.  test/all counts these lines.
export function ok(good, name, detail = '') {
  console.log(good ? `ok - ${name}` : `not ok - ${name}\n  ${detail}`);
  failures += good ? 0 : 1;
}

export function same(found, expected, name) {
  const show = (value) => (typeof value === 'object' ? JSON.stringify(value) : `${typeof value} ${value}`);
  ok(isDeepStrictEqual(found, expected), name, `found ${show(found)}, expected ${show(expected)}`);
}

// The promise must be rejected with that SQLSTATE.  Returns the error.
export async function refused(sqlstate, name, promise) {
  try {
    await promise;
  } catch (error) {
    ok(error.code === sqlstate, name, `${error.code}: ${error.message}`);
    return error;
  }
  ok(false, name, `no error where ${sqlstate} was expected`);
  return {};
}

export function finish() {
  process.exit(failures > 0 ? 1 : 0);
}

// Polls.  A test whose precondition never comes must not go on.
export async function until(condition, what, limit = 60) {
  const end = performance.now() + limit * 1000;
  while (!(await condition())) {
    if (performance.now() > end) {
      throw new Error(`${limit} s are over: ${what}`);
    }
    await sleep(10);
  }
}

async function connected(options) {
  const client = new pg.Client(options);
  await client.connect();
  return client;
}

// node-postgres takes host, port and database from the environment.
export const admin = await connected({ user: 'postgres' });
export const direct = () => connected({ user: 'worker' });
export const pooled = (database) => connected({ user: 'worker', ...pool, database });

// The only value of the only row, asked as superuser.
export async function value(sql, parameters = []) {
  const result = await admin.query({ text: sql, values: parameters, rowMode: 'array' });
  return result.rows[0][0];
}

// A row of a protected table, with a lease on its resource.
export class Item {
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
