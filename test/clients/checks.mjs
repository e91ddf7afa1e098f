// Checks that print one line each, and what they look at, as superuser.

import { isDeepStrictEqual } from 'node:util';
import { setTimeout as sleep } from 'node:timers/promises';
import { connected } from './sessions.mjs';

export const admin = await connected({ user: 'postgres' });

let failures = 0;

// One check.  test/all counts these lines.
export function ok(good, name, detail = '') {
  console.log(good ? `ok - ${name}` : `not ok - ${name}\n  ${detail}`.slice(0, 500));
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

// The only value of the only row, asked as superuser.
export async function value(sql, parameters = []) {
  const result = await admin.query({ text: sql, values: parameters, rowMode: 'array' });
  return result.rows[0][0];
}
