// A consumer of messages that may be delivered more than once.  It reads deliveries from
// standard input, one JSON object a line, and answers each with the result of its message.
//
// Both recipes of README take turns: a transaction of several statements, and one statement.

import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { pooled } from './sessions.mjs';

const scope = 'messages';

const oneStatement = `
  WITH c AS MATERIALIZED (SELECT * FROM fence.claim($1, $2, $3)),
       a AS (UPDATE account SET balance = balance + $4::integer
               FROM c WHERE c.fresh AND account.id = $5 RETURNING balance),
       e AS (INSERT INTO effect (message, balance)
             SELECT $6::integer, balance FROM a RETURNING id, balance),
       d AS MATERIALIZED (
             SELECT fence.complete($1, jsonb_build_object('effect', id, 'balance', balance), $2) AS response
               FROM e)
  SELECT c.fresh, coalesce((SELECT response FROM d), c.response) AS response FROM c`;

async function inOneStatement(client, { key, request, message, amount, account }) {
  const result = await client.query(oneStatement, [key, scope, request, amount, account, message]);
  return result.rows[0];
}

async function inATransaction(client, message) {
  await client.query('BEGIN');
  try {
    const answer = await claimAndDo(client, message);
    await client.query('COMMIT');
    return answer;
  } catch (error) {
    if (!lost(error)) {
      await client.query('ROLLBACK');
    }
    throw error;
  }
}

async function claimAndDo(client, { key, request, ...message }) {
  const claim = await client.query('SELECT fresh, response FROM fence.claim($1, $2, $3)',
    [key, scope, request]);
  if (!claim.rows[0].fresh) {
    return claim.rows[0];
  }
  const done = await client.query('SELECT fence.complete($1, $2, $3) AS response',
    [key, await perform(client, message), scope]);
  return { fresh: true, response: done.rows[0].response };
}

// What the message asks for.  Returns the result that each delivery is to be given.
async function perform(client, { message, amount, account }) {
  const { rows: [{ balance }] } = await client.query(
    'UPDATE account SET balance = balance + $1 WHERE id = $2 RETURNING balance', [amount, account]);
  const { rows: [{ id }] } = await client.query(
    'INSERT INTO effect (message, balance) VALUES ($1, $2) RETURNING id', [message, balance]);
  return { effect: id, balance };
}

// The connection or the server is gone: what was sent may or may not be committed.
// node-postgres has an SQLSTATE only where the server has sent one.
function lost(error) {
  return !/^[0-9A-Z]{5}$/.test(error.code ?? '') || /^(08|57)/.test(error.code);
}

async function connect() {
  const client = await pooled();
  client.on('error', () => {}); // told again by the next query
  return client;
}

let client = null;

// Until there is an answer.
async function handle(delivery) {
  const { id, message, account, amount } = delivery;
  const way = id % 2 ? inOneStatement : inATransaction;
  const request = { account, amount };

  for (;;) {
    try {
      client ??= await connect();
      const { fresh, response } = await way(client, { key: `message-${message}`, request, ...delivery });
      return { id, fresh, response };
    } catch (error) {
      if (!lost(error)) {
        return { id, sqlstate: error.code, message: error.message };
      }
      client?.end().catch(() => {});
      client = null;
      await sleep(50);
    }
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await handle(JSON.parse(line))));
}
process.exit();
