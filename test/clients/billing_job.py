"""The nightly billing job: billing_job.py DAY [KILL | STOP].

Several instances wake at midnight.  One wins the lease billing:DAY and bills every customer in
batches; the others wait, and take over if it dies.  To try that, whoever gets the first token
of the day sends itself that signal half way, in the middle of a transaction.

Ends with status 0 when the day is billed, by whomever; with 3 when somebody else has taken
over."""

import os
import signal
import sys
import threading
import time

import psycopg

from sessions import pooled

LEASE = 4               # seconds
BATCH = 500
STALE = 3               # exit status

# One statement: claim the customers, bill those that nobody has billed yet, complete.
BILL = '''
    WITH c AS MATERIALIZED (
             SELECT key::integer AS customer
               FROM fence.claim_many(%(customers)s::text[], %(resource)s) WHERE fresh),
         i AS (
             INSERT INTO invoice (day, customer, amount, token)
             SELECT %(day)s, customer, price, %(token)s FROM c JOIN customer ON id = customer
             RETURNING id, customer)
    SELECT count(fence.complete(customer::text, to_jsonb(id), %(resource)s)) FROM i'''


class Job:
    def __init__(self, day, accident):
        self.day = day
        self.accident = accident
        self.resource = f'billing:{day}'
        self.token = None
        self.ended = threading.Event()

    def ask(self, sql, *parameters):
        """On a connection of its own: a heartbeat must not depend on the work."""
        with pooled(autocommit=True) as conn:
            return conn.execute(sql, parameters).fetchone()

    def acquire(self):
        """Waits while another instance is at work: here and not in the database, where each
        waiter would occupy a connection of the pool, until none is left for the holder."""
        while self.token is None:
            self.token, remaining = self.ask(
                "SELECT token, extract(epoch FROM remaining)::float8"
                "  FROM fence.acquire(%s, %s, %s * interval '1 s')",
                self.resource, f'billing job {os.getpid()}', LEASE)
            if self.token is None:
                time.sleep(min(remaining or 0.1, 1))

    def heartbeat(self):
        while not self.ended.wait(LEASE / 4):
            self.ask("SELECT extended FROM fence.extend(%s, %s, %s * interval '1 s')",
                     self.resource, self.token, LEASE)

    def bill(self):
        """Each batch is a transaction that presents the token first.  A frozen instance is not
        to keep its successor waiting for the customers in its open transaction for ever."""
        with pooled() as conn:
            customers = [str(row[0]) for row in conn.execute('SELECT id FROM customer ORDER BY id')]
            conn.commit()
            for start in range(0, len(customers), BATCH):
                conn.execute("SET LOCAL idle_in_transaction_session_timeout = '7s'")
                conn.execute('SELECT fence.check(%s, %s)', [self.resource, self.token])
                conn.execute(BILL, {'customers': customers[start:start + BATCH], 'day': self.day,
                                    'resource': self.resource, 'token': self.token})
                if start == len(customers) // 2:
                    self.happen()
                conn.commit()

    def happen(self):
        if self.accident is not None and self.token == 1:
            os.kill(os.getpid(), self.accident)

    def run(self):
        self.acquire()
        threading.Thread(target=self.heartbeat, daemon=True).start()
        self.bill_to_the_end()
        self.ended.set()
        self.ask('SELECT fence.release(%s, %s)', self.resource, self.token)

    def bill_to_the_end(self):
        """A lost connection is no reason to stop.  What is billed already is not fresh."""
        while True:
            try:
                return self.bill()
            except psycopg.OperationalError as error:
                print(f'once more after: {error}', file=sys.stderr)


day, *accident = sys.argv[1:]
try:
    Job(day, signal.Signals[f'SIG{accident[0]}'] if accident else None).run()
except psycopg.Error as error:
    if error.sqlstate != 'PF001':
        raise
    print(error, file=sys.stderr)
    sys.exit(STALE)
