"""Checks that print one line each, and what they look at, as superuser."""

import sys
import time

import psycopg

admin = None
failures = 0


def connect():
    """Again after a crash of the server; then take admin from this module, not by name."""
    global admin
    admin = psycopg.connect(user='postgres', autocommit=True)


def ok(good, name, detail=''):
    """One check.  test/all counts these lines."""
    global failures
    if good:
        print(f'ok - {name}', flush=True)
    else:
        failures += 1
        print(f'not ok - {name}', flush=True)
        if detail:
            print(f'  {detail}'[:500], flush=True)
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


def is_stopped(process):
    with open(f'/proc/{process.pid}/stat') as file:
        return file.read().rpartition(')')[2].split()[0] == 'T'


def until(condition, what, limit=60):
    """Polls.  A test whose precondition never comes must not go on."""
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() > end:
            sys.exit(f'{limit} s are over: {what}')
        time.sleep(0.01)


connect()
