// A worker that takes its lock in Redis, with the client named on the command line, and
// writes to PostgreSQL.  It reads commands from standard input, one JSON object a line, and
// answers each with a line; locks.py gives them.

import { randomUUID } from 'node:crypto';
import { createInterface } from 'node:readline';
import IORedis from 'ioredis';
import Redlock, { ExecutionError } from 'redlock';
import { createClient } from 'redis';
import { direct, pooled } from './sessions.mjs';

const socket = process.env.REDIS_SOCKET;

const nodeRedis = () => createClient({ socket: { path: socket } }).connect();

// Redlock calls its clients as ioredis wants to be called.
const likeIORedis = (client) => {
  const split = (count, values) => ({
    keys: values.slice(0, count),
    arguments: values.slice(count).map(String),
  });
  return {
    evalsha: (hash, count, values) => client.evalSha(hash, split(count, values)),
    eval: (script, count, values) => client.eval(script, split(count, values)),
  };
};

class ByRedlock {
  constructor(client) {
    this.redlock = new Redlock([client], { retryCount: 0 });
    this.redlock.on('error', () => {}); // each failed attempt, also those that it throws
  }

  async lock(name, ttl) {
    this.mine = await unlessRefused(this.redlock.acquire([name], ttl));
    return this.mine !== undefined;
  }

  holder() {
    return this.mine.value;
  }

  async unlock() {
    return (await unlessRefused(this.mine.release())) !== undefined;
  }
}

async function unlessRefused(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error instanceof ExecutionError) {
      return undefined;
    }
    throw error;
  }
}

// SET NX PX and a script that compares and deletes, as the documentation of Redis has it.
class ByHand {
  constructor(client) {
    this.redis = client;
  }

  async lock(name, ttl) {
    this.name = name;
    this.value = randomUUID();
    return (await this.redis.set(name, this.value, { NX: true, PX: ttl })) === 'OK';
  }

  holder() {
    return this.value;
  }

  async unlock() {
    const script = `
      if redis.call('get', KEYS[1]) ~= ARGV[1] then
        return 0
      end
      return redis.call('del', KEYS[1])`;
    return (await this.redis.eval(script, { keys: [this.name], arguments: [this.value] })) === 1;
  }
}

// What a program does with such a lock.  See "Leases in Redis" in README.
class Worker {
  constructor(client, writer, opened) {
    this.client = client;
    this.writer = writer; // for one transaction at a time
    this.opened = opened; // for the one that stays open
  }

  async lock({ resource, ttl }) {
    this.resource = resource;
    return { held: await this.client.lock(resource, ttl) };
  }

  async acquire({ ttl }) {
    const result = await this.writer.query(
      "SELECT token FROM fence.acquire($1, $2, $3 * interval '1 ms', wait => '30 seconds')",
      [this.resource, this.client.holder(), ttl]);
    this.token = result.rows[0].token; // text, as it has to be
    return { token: this.token };
  }

  async begin(connection, { line, qty }) {
    await connection.query('BEGIN');
    await connection.query('SELECT fence.check($1, $2, holder => $3, lease => $4)',
      [this.resource, this.token, this.client.holder(), 'redis_string']);
    await connection.query('UPDATE work SET qty = $1 WHERE resource = $2 AND line = $3',
      [qty, this.resource, line]);
  }

  async write(command) {
    try {
      await this.begin(this.writer, command);
    } catch (error) {
      await this.writer.query('ROLLBACK');
      throw error;
    }
    await this.writer.query('COMMIT');
  }

  async open(command) {
    await this.begin(this.opened, command);
  }

  async commit() {
    await this.opened.query('COMMIT');
  }

  async unlock() {
    return { released: await this.client.unlock() };
  }

  async answer(command) {
    try {
      return (await this[command.do](command)) ?? {};
    } catch (error) {
      return { sqlstate: error.code, message: `${error.message} ${error.detail}` };
    }
  }
}

const clients = {
  'redlock/ioredis': async () => new ByRedlock(new IORedis({ path: socket })),
  'redlock/node-redis': async () => new ByRedlock(likeIORedis(await nodeRedis())),
  'node-redis': async () => new ByHand(await nodeRedis()),
};
const worker = new Worker(await clients[process.argv[2]](), await pooled(), await direct());
for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await worker.answer(JSON.parse(line))));
}
process.exit();
