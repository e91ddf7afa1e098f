"""psycopg and the fence: what reaches a Python program, directly and through pgbouncer."""

import itertools
import threading

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from checks import admin, finish, ok, refused, same, until, value
from sessions import POOL, direct, pooled

CHECK = 'SELECT fence.check(%s, %s)'


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


def check(conn, item, token=None):
    conn.execute(CHECK, [item.resource, token or item.token])


def fenced(conn, item, token=None):
    """Present and write in one statement.  Returns how many rows it wrote."""
    return conn.execute(item.update + ' AND fence.check(%s, %s)',
                        [item.resource, token or item.token]).rowcount


def sqlstates(connect, via):
    """Each refusal has its SQLSTATE, is a plain database error, and leaves the session usable."""
    item = Item()
    conn = connect(autocommit=True)
    same(fenced(conn, item), 1, f'{via}: a fenced write')
    old, item.token = item.token, item.taken_over()

    error = refused('PF001', f'{via}: a stale token', fenced, conn, item, old)
    ok(not isinstance(error, (psycopg.OperationalError, psycopg.IntegrityError)),
       f'{via}: of no class that is retried, or taken for a duplicate', type(error))
    ok(str(item.token) in error.diag.message_detail and error.diag.message_hint,
       f'{via}: with detail and hint', error.diag.message_detail)
    ok(not conn.closed and not conn.broken, f'{via}: the connection is kept')

    error = refused('PF002', f'{via}: no token', conn.execute, item.update)
    same((error.diag.schema_name, error.diag.table_name), ('public', Item.table),
         f'{via}: which names the table')
    refused('PF003', f'{via}: the token of another holder', conn.execute,
            'SELECT fence.check(%s, %s, holder => %s)', [item.resource, item.token, 'third'])
    refused('PF004', f'{via}: a token that was never issued', fenced, conn, item, item.token + 1)
    admin.execute('SELECT fence.release(%s, %s)', [item.resource, item.token])
    refused('PF005', f'{via}: a lease that has ended', conn.execute,
            "SELECT fence.check(%s, %s, lease => 'postgres')", [item.resource, item.token])
    refused('22023', f'{via}: a token below 1', fenced, conn, item, -1)
    same(fenced(conn, item), 1, f'{via}: the same connection still writes')
    same(item.qty(), 2, f'{via}: what was refused wrote nothing')


def at_commit(connect, via):
    """The older holder's transaction was open when the newer one came."""
    item = Item()
    conn = connect()
    check(conn, item)
    conn.execute(item.update)
    item.taken_over()
    refused('PF001', f'{via}: stale at commit', conn.commit)
    same(item.qty(), 0, f'{via}: nothing of it is committed')
    refused('PF001', f'{via}: the block of conn.transaction() ends with the error',
            late_block, conn, Item())
    conn.rollback()
    same(conn.execute('SELECT 1').fetchone(), (1,), f'{via}: the next transaction works')
    conn.close()


def late_block(conn, item):
    with conn.transaction():
        check(conn, item)
        conn.execute(item.update)
        item.taken_over()


def after_rows(connect, via):
    """In autocommit mode the check at commit comes after the rows: a driver that takes the
    first row for success would miss it.  The row is large, so that it is sent at once."""
    sql = (f'WITH w AS (UPDATE {Item.table} SET qty = qty + 1'
           ' WHERE id = %s AND fence.check(%s, %s) RETURNING qty) '
           "SELECT repeat('x', 20000) FROM w UNION ALL SELECT pg_advisory_xact_lock(%s)::text")
    item = Item()
    with connect(autocommit=True) as conn:
        hold_back(item, lambda: refused('PF001', f'{via}: stale after the rows were sent', conn.execute,
                                        sql, [item.id, item.resource, item.token, item.id]))
    same(item.qty(), 0, f'{via}: nothing of it is committed')


def streamed(connect, via):
    """cursor.stream() drops an error that comes after its last row, so it has to be inside a
    transaction, whose COMMIT is a statement of its own."""
    item = Item()
    conn = connect()
    check(conn, item)
    rows = list(conn.cursor().stream(item.update + ' RETURNING qty'))
    item.taken_over()
    refused('PF001', f'{via}: stale at commit, after a stream', conn.commit)
    same((rows, item.qty()), ([(1,)], 0), f'{via}: nothing of it is committed')
    conn.close()


def hold_back(item, statement):
    """Run a statement that ends by taking an advisory lock; let it have the lock only after
    another holder has taken over."""
    admin.execute('SELECT pg_advisory_lock(%s)', [item.id])
    thread = threading.Thread(target=statement)
    thread.start()
    until(lambda: value("SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory'"
                        ' AND NOT granted AND objid = %s AND objsubid = 1', [item.id]),
          'the statement waits for its lock')
    item.taken_over()
    admin.execute('SELECT pg_advisory_unlock(%s)', [item.id])
    thread.join()


def prepared():
    """Prepared on the server: the token is a parameter, judged on each execution, also by a
    generic plan and after the plan was thrown away."""
    item = Item()
    conn = direct(autocommit=True)
    sql = item.update + ' AND fence.check(%s, %s)'

    def run(token):
        return conn.execute(sql, [item.resource, token], prepare=True).rowcount

    same(sum(run(item.token) for _ in range(8)), 8, 'prepared: eight times')
    same(conn.execute('SELECT count(*) FROM pg_prepared_statements').fetchone(), (1,),
         'prepared: as one statement')
    refused('PF001', 'prepared: a stale token', run, stale(item))
    admin.execute(f'ALTER TABLE {Item.table} ADD COLUMN note text')
    same(run(item.token), 1, 'prepared: after ALTER TABLE')
    admin.execute('SELECT fence.protect(%s::text::regclass, %s)', [Item.table, Item.table + ':{id}'])
    same(run(item.token), 1, 'prepared: after the guard was made again')
    refused('PF001', 'prepared: stale again', run, stale(item))
    same(item.qty(), 10, 'prepared: what was refused wrote nothing')


def stale(item):
    """Another holder takes over; the token that was good so far."""
    old, item.token = item.token, item.taken_over()
    return old


def pipeline(connect, via):
    """Statements are sent without waiting for their results; the refusal comes at the sync,
    and nothing that was sent behind it has run."""
    item = Item()
    conn = connect()
    with conn.pipeline():
        check(conn, item)
        for _ in range(3):
            conn.execute(item.update)
        conn.commit()
    same(item.qty(), 3, f'{via}: a pipeline')
    conn.close()

    conn = connect(autocommit=True)
    with conn.pipeline():
        check(conn, item)
        conn.execute(item.update)
    same(item.qty(), 4, f'{via}: without BEGIN, up to the sync is one transaction')
    refused('PF001', f'{via}: a pipeline with a stale token', piped, conn, item, stale(item))
    same(item.qty(), 4, f'{via}: nothing behind it has run')
    same(fenced(conn, item), 1, f'{via}: the next statement works')

    refused('PF001', f'{via}: a pipeline that is too late at commit', late_pipeline, conn, item)
    same(item.qty(), 5, f'{via}: nothing of it is committed')
    same(fenced(conn, item), 1, f'{via}: the next statement works after that, too')
    conn.close()


def late_pipeline(conn, item):
    """With a COMMIT: an error at the sync, of whatever cause, is more than psycopg can read."""
    with conn.pipeline() as pipeline, conn.transaction():
        check(conn, item)
        conn.execute(item.update)
        pipeline.sync()
        stale(item)


def piped(conn, item, token):
    with conn.pipeline():
        check(conn, item, token)
        conn.execute(item.update)


def many_rows(connect, via):
    """executemany, COPY and binary parameters."""
    item = Item()
    conn = connect()
    check(conn, item)
    with conn.cursor() as cursor:
        cursor.executemany(f'UPDATE {Item.table} SET qty = qty + %s WHERE id = %s',
                           [(n, item.id) for n in (1, 10, 100)])
    conn.commit()
    same(item.qty(), 111, f'{via}: executemany')

    refused('PF001', f'{via}: executemany with a stale token', executemany, conn, item, stale(item))
    conn.rollback()

    other = 1000 + item.id
    conn.execute(CHECK, [f'{Item.table}:{other}', 7])
    copy(conn, other)
    conn.commit()
    same(value(f'SELECT qty FROM {Item.table} WHERE id = %s', [other]), 5, f'{via}: COPY')
    refused('PF002', f'{via}: COPY without a token', copy, conn, other + 1)
    conn.rollback()

    conn.execute('SELECT fence.check(%b, %b::bigint)', [item.resource, item.token])
    conn.execute(item.update)
    conn.commit()
    same(item.qty(), 112, f'{via}: binary parameters')
    conn.close()


def executemany(conn, item, token):
    conn.cursor().executemany(item.update + ' AND fence.check(%s, %s)',
                              [(item.resource, token)] * 3)


def copy(conn, row):
    with conn.cursor().copy(f'COPY {Item.table} (id, qty) FROM STDIN') as writer:
        writer.write_row((row, 5))


def savepoints(connect, via):
    """conn.transaction() inside a transaction is a savepoint."""
    item = Item()
    conn = connect()
    with conn.transaction():
        with conn.transaction(force_rollback=True):
            check(conn, item)
            conn.execute(item.update)
        refused('PF002', f'{via}: ROLLBACK TO takes the token back', inner_write, conn, item)
        with conn.transaction():
            check(conn, item)
        conn.execute(item.update)
    same(item.qty(), 1, f'{via}: RELEASE keeps it')
    conn.close()


def inner_write(conn, item):
    with conn.transaction():
        conn.execute(item.update)


CLAIM = 'SELECT fresh, response FROM fence.claim(%s, %s, %s)'
COMPLETE = 'SELECT fence.complete(%s, %s, %s)'
ONE_STATEMENT = """
    WITH c AS MATERIALIZED (SELECT * FROM fence.claim(%(key)s, %(scope)s)),
         d AS MATERIALIZED (SELECT fence.complete(%(key)s, %(response)s, %(scope)s) AS response
                              FROM c WHERE c.fresh)
    SELECT c.fresh, coalesce((SELECT response FROM d), c.response) FROM c"""


def claims(connect, via):
    """Idempotency keys (I64).  That a claim is not completed shows at commit, after its row was
    sent."""
    conn = connect(autocommit=True)
    request = Jsonb({'n': 1.0})
    refused('PF103', f'{via}: a claim that is not completed', conn.execute, CLAIM, ['k', via, request])
    refused('PF103', f'{via}: the same in a pipeline', piped_claim, conn, via)
    conn.autocommit = False
    same(conn.execute(CLAIM, ['k', via, request]).fetchone(), (True, None), f'{via}: the key is free')
    conn.execute(COMPLETE, ['k', Jsonb({'id': 7}), via])
    conn.commit()
    same(conn.execute(CLAIM, ['k', via, Jsonb({'n': 1})]).fetchone(), (False, {'id': 7}), f'{via}: a replay')
    refused('PF101', f'{via}: with another request', conn.execute, CLAIM, ['k', via, Jsonb({'n': 2})])
    conn.rollback()
    conn.close()


def piped_claim(conn, via):
    with conn.pipeline(), conn.transaction():
        conn.execute(CLAIM, ['piped', via, None])


def large_tokens():
    """B07: Python's integers are exact."""
    item = Item()
    admin.execute('SELECT fence.raise_mark(%s, %s)', [item.resource, 2**53])
    item.token = item.taken_over()
    ok(item.token > 2**53, 'a token above 2^53 arrives as it is', item.token)
    with direct(autocommit=True) as conn:
        same(fenced(conn, item), 1, '... and is presented as it is')
        refused('PF001', '... and is not its neighbour', fenced, conn, item, item.token - 1)
        refused('42883', 'a float is not taken for a token', conn.execute, CHECK,
                [item.resource, float(item.token)])


def pooler():
    """C21, I63: in transaction mode the next client of a server connection inherits nothing; with
    statement pooling, what works is one statement."""
    item = Item()
    clients = [pooled() for _ in range(24)]  # on four server connections
    for conn in clients:
        check(conn, item)
        conn.execute(item.update)
        conn.commit()
    same(item.qty(), 24, 'pgbouncer: a write by each of 24 clients')
    inherited = 0
    for conn in clients:
        try:
            conn.execute(item.update)
            inherited += 1
        except psycopg.Error as error:
            inherited += error.sqlstate != 'PF002'
        conn.close()
    same(inherited, 0, 'pgbouncer: none inherits the token of another')
    same(value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"), 0,
         'pgbouncer: no lock is left behind')

    conn = psycopg.connect(user='worker', dbname='shop_statements', autocommit=True,
                           prepare_threshold=None, **POOL)
    same(fenced(conn, item), 1, 'pgbouncer, statement mode: check within the statement')
    refused('PF002', 'pgbouncer, statement mode: check in the statement before', two_statements, conn, item)
    refused('PF001', 'pgbouncer, statement mode: a stale token', fenced, conn, item, stale(item))

    answers = [conn.execute(ONE_STATEMENT, {'key': 'k', 'scope': 'statement', 'response': Jsonb(n)}).fetchone()
               for n in (1, 2)]
    same(answers, [(True, 1), (False, 1)], 'pgbouncer, statement mode: claim and complete in one statement')


def two_statements(conn, item):
    check(conn, item)
    conn.execute(item.update)


def pool_keeps():
    """A pool in the program does not drop a connection for a refusal."""
    item = Item()
    pids = set()
    with ConnectionPool('user=worker', min_size=1, max_size=1, open=True) as pool:
        for token in item.token, item.token + 1, item.token:
            try:
                with pool.connection() as conn:
                    pids.add(conn.execute('SELECT pg_backend_pid()').fetchone()[0])
                    fenced(conn, item, token)
            except psycopg.Error as error:
                same(error.sqlstate, 'PF004', 'pool: a refusal')
    same((len(pids), item.qty()), (1, 2), 'pool: the connection stays')


Item.create_table('stock_python')
for connect, via in (direct, 'direct'), (pooled, 'pgbouncer'):
    sqlstates(connect, via)
    at_commit(connect, via)
    after_rows(connect, via)
    streamed(connect, via)
    pipeline(connect, via)
    many_rows(connect, via)
    savepoints(connect, via)
    claims(connect, via)
prepared()
large_tokens()
pooler()
pool_keeps()
finish()
