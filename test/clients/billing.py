"""Nightly billing: three instances wake at midnight, and the one that wins does not live to
see the end.  Every customer is billed exactly once all the same.

The first night it is killed half way.  The second it is frozen past its lease in the middle
of a transaction, and wakes up when another one has taken over; the third, when that one has
gone on."""

import atexit
import concurrent.futures
import os
import signal
import subprocess

from checks import admin, finish, is_stopped, ok, same, until, value

JOB = ['/usr/bin/python3', os.path.join(os.path.dirname(os.path.abspath(__file__)), 'billing_job.py')]
CUSTOMERS = 20_000


def midnight(day, accident):
    instances = [subprocess.Popen([*JOB, day, accident]) for _ in range(3)]
    for instance in instances:
        atexit.register(instance.kill)
    return instances


def newest_token(day):
    return value('SELECT max(token) FROM fence.leases WHERE resource = %s', [f'billing:{day}'])


def billed(day, token=None):
    return value('SELECT count(*) FROM invoice WHERE day = %s AND coalesce(token = %s, true)',
                 [day, token])


def judge(day, instances, first_status):
    same(sorted(instance.wait() for instance in instances), sorted([first_status, 0, 0]),
         f'{day}: the others end well')
    same(billed(day), CUSTOMERS, f'{day}: all {CUSTOMERS} customers are billed')
    same(value('SELECT count(DISTINCT customer) FROM invoice WHERE day = %s', [day]), CUSTOMERS,
         f'{day}: each once')
    same(value('SELECT sum(amount) FROM invoice WHERE day = %s', [day]),
         value('SELECT sum(price) FROM customer'), f'{day}: with the right amount')
    same(billed(day, 1), CUSTOMERS / 2, f'{day}: half of them by the first instance')
    ok(newest_token(day) > 1, f'{day}: and the rest under a newer token')


def killed(day):
    judge(day, midnight(day, 'KILL'), -signal.SIGKILL)


def frozen(day, until_then):
    """until_then: what the frozen instance sleeps through."""
    instances = midnight(day, 'STOP')
    until(lambda: any(is_stopped(instance) for instance in instances), 'the first instance stops')
    first = next(instance for instance in instances if is_stopped(instance))
    until(lambda: until_then(day), 'another instance takes over')
    first.send_signal(signal.SIGCONT)
    same(first.wait(), 3, f'{day}: the first instance wakes up and is refused')
    judge(day, instances, 3)


admin.execute(f'''
    CREATE TABLE customer (id integer PRIMARY KEY, price integer NOT NULL);
    INSERT INTO customer SELECT i, 1 + i % 97 FROM generate_series(1, {CUSTOMERS}) AS i;
    -- no unique constraint on day and customer: a second invoice must show
    CREATE TABLE invoice (
        id serial PRIMARY KEY,
        day date NOT NULL,
        customer integer NOT NULL,
        amount integer NOT NULL,
        token bigint NOT NULL
    );
    SELECT fence.protect('invoice', 'billing:{{day}}');
    GRANT SELECT ON customer TO worker;
    GRANT SELECT, INSERT ON invoice TO worker;
    GRANT USAGE ON SEQUENCE invoice_id_seq TO worker''')
with concurrent.futures.ThreadPoolExecutor() as pool:  # all nights at once
    nights = [
        pool.submit(killed, '2026-11-30'),
        pool.submit(frozen, '2026-12-01', lambda day: newest_token(day) > 1),
        pool.submit(frozen, '2026-12-02', lambda day: billed(day) > CUSTOMERS / 2),
    ]
for night in nights:
    night.result()
finish()
