"""A worker that takes its lock in Redis, as the client named on the command line does, and
writes to PostgreSQL.  It reads commands from standard input, one JSON object a line, and
answers each with a line; locks.py gives them."""

import base64
import json
import os
import sys
import uuid

import psycopg
import redis

from sessions import direct, pooled


class RedisPy:
    """The Lock of redis-py itself."""

    server = 'redis_string'

    def __init__(self, connection):
        self.redis = connection
        self.mine = None

    def lock(self, name, ttl):
        self.mine = self.redis.lock(name, timeout=ttl / 1000)
        return self.mine.acquire(blocking=False)

    def holder(self):
        return self.mine.local.token.decode()

    def unlock(self):
        try:
            self.mine.release()
        except redis.exceptions.LockError:
            return False
        return True


class Redisson:
    """RFencedLock of Redisson, which is Java: a hash with a field for the thread that counts
    how often it has entered, and a counter beside it that gives a fencing token."""

    server = 'redis_hash'
    take = '''
        if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
            return false
        end
        redis.call('hincrby', KEYS[1], ARGV[1], 1)
        redis.call('pexpire', KEYS[1], ARGV[2])
        return redis.call('incr', KEYS[2])'''
    give_back = '''
        if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
            return 0
        end
        if redis.call('hincrby', KEYS[1], ARGV[1], -1) == 0 then
            redis.call('del', KEYS[1])
        end
        return 1'''

    def __init__(self, connection):
        self.redis = connection
        self.field = f'{uuid.uuid4()}:{os.getpid()}'
        self.name = None
        self.token = None

    def lock(self, name, ttl):
        self.name = name
        counter = f'redisson_lock_token:{{{name}}}'
        self.token = self.redis.eval(self.take, 2, name, counter, self.field, ttl)
        return self.token is not None

    def holder(self):
        return self.field

    def unlock(self):
        return self.redis.eval(self.give_back, 1, self.name, self.field) == 1


class Symfony:
    """RedisStore of Symfony's Lock, which is PHP: a sorted set of holders, with the instant of
    expiry in milliseconds as score; an exclusive lock has the member __write__ besides."""

    server = 'redis_zset'
    take = '''
        local time = redis.call('time')
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        redis.call('zremrangebyscore', KEYS[1], '-inf', now)
        if redis.call('zcard', KEYS[1]) > 0 then
            return 0
        end
        redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1], now + ARGV[2], '__write__')
        redis.call('pexpireat', KEYS[1], now + ARGV[2])
        return 1'''
    give_back = '''
        if redis.call('zrem', KEYS[1], ARGV[1]) == 0 then
            return 0
        end
        redis.call('zrem', KEYS[1], '__write__')
        return 1'''

    def __init__(self, connection):
        self.redis = connection
        self.member = base64.b64encode(os.urandom(32)).decode()
        self.name = None

    def lock(self, name, ttl):
        self.name = name
        return self.redis.eval(self.take, 1, name, self.member, ttl) == 1

    def holder(self):
        return self.member

    def unlock(self):
        return self.redis.eval(self.give_back, 1, self.name, self.member) == 1


class Worker:
    """What a program does with such a lock.  See "Leases in Redis" in README."""

    def __init__(self, client):
        self.client = client
        self.writer = pooled()      # for one transaction at a time
        self.opened = direct()      # for the one that stays open
        self.resource = self.holder = self.token = None

    def lock(self, resource, ttl):
        self.resource = resource
        held = self.client.lock(resource, ttl)
        if held:
            self.holder = self.client.holder()
        return {'held': held}

    def acquire(self, ttl):
        """The fencing token.  Where the client has none, PostgreSQL gives one."""
        self.token = getattr(self.client, 'token', None)
        if self.token is None:
            with self.writer.transaction():
                self.token = self.writer.execute(
                    "SELECT token FROM fence.acquire(%s, %s, %s * interval '1 ms', wait => '30 seconds')",
                    [self.resource, self.holder, ttl]).fetchone()[0]
        return {'token': str(self.token)}

    def present_and_write(self, conn, line, qty):
        conn.execute('SELECT fence.check(%s, %s, holder => %s, lease => %s)',
                     [self.resource, self.token, self.holder, self.client.server])
        conn.execute('UPDATE work SET qty = %s WHERE resource = %s AND line = %s',
                     [qty, self.resource, line])

    def write(self, line, qty):
        with self.writer.transaction():
            self.present_and_write(self.writer, line, qty)

    def open(self, line, qty):
        self.present_and_write(self.opened, line, qty)

    def commit(self):
        self.opened.commit()

    def unlock(self):
        return {'released': self.client.unlock()}

    def answer(self, command):
        try:
            return getattr(self, command.pop('do'))(**command) or {}
        except psycopg.Error as error:
            return {'sqlstate': error.sqlstate, 'message': f'{error} {error.diag.message_detail}'}


clients = {'redis-py': RedisPy, 'Redisson': Redisson, 'Symfony': Symfony}
worker = Worker(clients[sys.argv[1]](redis.Redis(unix_socket_path=os.environ['REDIS_SOCKET'])))
for text in sys.stdin:
    print(json.dumps(worker.answer(json.loads(text))), flush=True)
