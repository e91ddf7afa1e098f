"""Locks that other clients hold in Redis, with a fencing token from PostgreSQL.

Each client is played by two processes, A and B (worker.py, worker.mjs).  A takes its lock,
writes, and is stopped, as a long garbage collection would stop it.  Its lock runs out, B
takes over, and A goes on."""

import atexit
import json
import os
import signal
import subprocess
import sys

import redis

from checks import admin, finish, is_stopped, ok, same, until, value

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = {'py': '/usr/bin/python3', 'mjs': 'node'}
CLIENTS = {
    'redis-py': 'py', 'Redisson': 'py', 'Symfony': 'py',
    'redlock/ioredis': 'mjs', 'redlock/node-redis': 'mjs', 'node-redis': 'mjs',
}
LONG = 600_000          # ms
SHORT = 6_000           # a lease that is meant to run out; the time to write under it

store = redis.Redis(unix_socket_path=os.environ['REDIS_SOCKET'])


class Worker:
    """One process."""

    def __init__(self, client):
        suffix = CLIENTS[client]
        self.process = subprocess.Popen([PROGRAM[suffix], f'{HERE}/worker.{suffix}', client], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1)
        atexit.register(self.process.kill)

    def post(self, do, **arguments):
        """Hand a command to it, without waiting."""
        self.process.stdin.write(json.dumps({'do': do, **arguments}) + '\n')

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f'{self.process.args} has died')
        return json.loads(line)

    def ask(self, do, **arguments):
        self.post(do, **arguments)
        return self.answer()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: is_stopped(self.process), 'the worker stops')

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)


class Story:
    """Two workers of one client and what they lock."""

    def __init__(self, client):
        self.client = client
        self.resource = f'job:{client}'
        self.a = Worker(client)
        self.b = Worker(client)
        admin.execute('INSERT INTO work VALUES (%s, 1, 0), (%s, 2, 0)', [self.resource] * 2)

    def check(self, answer, expected, name):
        """The answer to a command is that SQLSTATE, or none."""
        same(answer.get('sqlstate'), expected, f'{self.client}: {name}')
        return answer.get('message', '')

    def lock(self, worker, ttl, expected, name):
        answer = worker.ask('lock', resource=self.resource, ttl=ttl)
        same(answer, {'held': expected}, f'{self.client}: {name}')

    def work_and_freeze(self):
        self.lock(self.a, SHORT, True, 'A takes the lock')
        self.a.ask('acquire', ttl=SHORT)
        self.check(self.a.ask('write', line=1, qty=1), None, 'A writes')
        self.check(self.a.ask('open', line=2, qty=1), None, 'A writes and does not commit')
        self.lock(self.b, LONG, False, 'B is turned away')
        self.a.freeze()
        self.a.post('write', line=1, qty=11)

    def has_run_out(self):
        until(lambda: not store.exists(self.resource), f'the lock of {self.client} runs out')
        self.a.thaw()
        self.check(self.a.answer(), 'PF005', 'its lock has run out')

    def take_over(self):
        self.lock(self.b, LONG, True, 'B takes the lock')
        self.check(self.a.ask('write', line=1, qty=12), 'PF005', 'A: the lock is that of another')
        self.a.freeze()
        self.a.post('write', line=1, qty=13)
        self.a.post('commit')
        self.b.ask('acquire', ttl=LONG)
        self.check(self.b.ask('write', line=1, qty=2), None, 'B writes')

    def too_late(self):
        self.a.thaw()
        message = self.check(self.a.answer(), 'PF001', 'A is too late')
        ok('stale' in message, f'{self.client}: and told why', message)
        self.check(self.a.answer(), 'PF001', 'so is what it had not committed')
        same(self.a.ask('unlock'), {'released': False}, f'{self.client}: A cannot give the lock back')
        self.check(self.b.ask('write', line=2, qty=2), None, 'B is not disturbed')
        same(self.b.ask('unlock'), {'released': True}, f'{self.client}: B gives the lock back')
        self.check(self.b.ask('write', line=1, qty=22), 'PF005', 'and cannot write any more')
        lines = value('SELECT array_agg(qty ORDER BY line) FROM work WHERE resource = %s', [self.resource])
        same(lines, [2, 2], f"{self.client}: what the table holds is B's")


def set_up():
    for layout in 'string', 'hash', 'zset':
        admin.execute(f'''
            CREATE SERVER redis_{layout} FOREIGN DATA WRAPPER fence_redis
                OPTIONS (socket '{os.environ["REDIS_SOCKET"]}', layout '{layout}', timeout_ms '10000');
            GRANT USAGE ON FOREIGN SERVER redis_{layout} TO worker''')
    admin.execute('''
        CREATE TABLE work (
            resource text,
            line integer,
            qty integer,
            PRIMARY KEY (resource, line))''')


def guard():
    admin.execute("SELECT fence.protect('work', '{resource}')")
    admin.execute('GRANT SELECT, UPDATE ON work TO worker')


def both_ways():
    """What fence.acquire takes in Redis excludes the clients of layout string, and they it."""
    for client in 'redis-py', 'redlock/ioredis', 'redlock/node-redis', 'node-redis':
        resource = f'shared:{client}'
        worker = Worker(client)

        def acquire():
            return admin.execute("SELECT acquired, reason FROM fence.acquire("
                                 "%s, 'database', '1 hour', lease => 'redis_string')", [resource]).fetchone()

        def lock():
            return worker.ask('lock', resource=resource, ttl=LONG)['held']

        same(acquire(), (True, None), f'{client}: fence.acquire takes the lock')
        same(lock(), False, f'{client}: is turned away')
        admin.execute('SELECT fence.release(%s, fence.mark(%s))', [resource, resource])
        same(lock(), True, f'{client}: gets it after fence.release')
        same(acquire(), (False, 'held'), f'{client}: keeps fence.acquire out')


set_up()
stories = [Story(client) for client in CLIENTS]
guard()
for step in Story.work_and_freeze, Story.has_run_out, Story.take_over, Story.too_late:
    for story in stories:
        step(story)
both_ways()
finish()
