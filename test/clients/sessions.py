"""Sessions of an application: role worker, directly or through pgbouncer."""

import os

import psycopg

POOL = {'host': os.environ['POOL_HOST'], 'port': os.environ['POOL_PORT']}


# libpq takes host, port and database of the server itself from the environment.
def direct(**options):
    return psycopg.connect(user='worker', **options)


def pooled(**options):
    """Through pgbouncer.  Before its 1.21, a statement that one client has prepared can run
    on a connection that does not know it, so psycopg must not prepare by itself."""
    return psycopg.connect(user='worker', prepare_threshold=None, **POOL, **options)
