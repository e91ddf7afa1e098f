"""What the Python programs here share: checks that print one line each, and sessions."""

import itertools
import os
import sys
import time

import psycopg

POOL = {'host': os.environ['POOL_HOST'], 'port': os.environ['POOL_PORT']}

# libpq takes host, port and database from the environment.
admin = psycopg.connect(user='postgres', autocommit=True)

failures = 0


def ok(good, name, detail=''):
    """One check.  test/all counts these lines."""
    global failures
    if good:
        print(f'ok - {name}', flush=True)
    else:
        failures += 1
        print(f'not ok - {name}', flush=True)
        if detail:
            print(f'  {detail}', flush=True)
    return good


def same(found, expected, name):
    return ok(found == expected, name, f'found {found!r}, expected {expected!r}')


def refused(sqlstate, name, action, *arguments, **named):
    """action must fail with that SQLSTATE.  Returns the error."""
    try:
        action(*arguments, **named)
    except psycopg.Error as error:
        ok(error.sqlstate == sqlstate, name, f'{error.sqlstate}: {error}')
        return error
    ok(False, name, f'no error where {sqlstate} was expected')
    return None


def finish():
    sys.exit(1 if failures else 0)


def value(sql, parameters=()):
    """The only value of the only row, asked as superuser."""
    return admin.execute(sql, parameters).fetchone()[0]


def until(condition, what, limit=60):
    """Polls.  A test whose precondition never comes must not go on."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            sys.exit(f'{limit} s are over: {what}')
        time.sleep(0.01)


def direct(**options):
    return psycopg.connect(user='worker', **options)


def pooled(**options):
    """Through pgbouncer.  Before its 1.21, a statement that one client has prepared can run
    on a connection that does not know it, so psycopg must not prepare by itself."""
    return psycopg.connect(user='worker', prepare_threshold=None, **POOL, **options)


class Item:
    """A row of a protected table, with a lease on its resource."""

    ids = itertools.count(1)
    table = None

    @classmethod
    def create_table(cls, table):
        cls.table = table
        admin.execute(f'CREATE TABLE {table} (id integer PRIMARY KEY, qty integer NOT NULL)')
        admin.execute(f'INSERT INTO {table} SELECT i, 0 FROM generate_series(1, 200) AS i')
        admin.execute('SELECT fence.protect(%s::text::regclass, %s)', [table, table + ':{id}'])
        admin.execute(f'GRANT SELECT, INSERT, UPDATE ON {table} TO worker')

    def __init__(self):
        self.id = next(self.ids)
        self.resource = f'{self.table}:{self.id}'
        self.update = f'UPDATE {self.table} SET qty = qty + 1 WHERE id = {self.id}'
        self.token = self.acquire('first')

    def acquire(self, holder):
        return value("SELECT token FROM fence.acquire(%s, %s, '1 hour')", [self.resource, holder])

    def taken_over(self):
        """Somebody else gets a newer token, as after an expiry."""
        admin.execute('SELECT fence.break_lease(%s)', [self.resource])
        return self.acquire('second')

    def qty(self):
        return value(f'SELECT qty FROM {self.table} WHERE id = %s', [self.id])
