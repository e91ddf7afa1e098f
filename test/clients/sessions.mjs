// Sessions of an application: role worker, directly or through pgbouncer.

import pg from 'pg';

const pool = { host: process.env.POOL_HOST, port: process.env.POOL_PORT };

// node-postgres takes host, port and database of the server itself from the environment.
export async function connected(options) {
  const client = new pg.Client(options);
  await client.connect();
  return client;
}

export const direct = () => connected({ user: 'worker' });
export const pooled = (database) => connected({ user: 'worker', ...pool, database });
