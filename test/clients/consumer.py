"""A consumer of messages that may be delivered more than once.  It reads deliveries from
standard input, one JSON object a line, and answers each with the result of its message.

Both recipes of README take turns: a transaction of several statements, and one statement."""

import json
import sys
import time

import psycopg
from psycopg.types.json import Jsonb

from sessions import pooled

CLAIM = 'SELECT fresh, response FROM fence.claim(%(key)s, %(scope)s, %(request)s)'
UPDATE = 'UPDATE account SET balance = balance + %(amount)s WHERE id = %(account)s RETURNING balance'
INSERT = 'INSERT INTO effect (message, balance) VALUES (%s, %s) RETURNING id'
COMPLETE = 'SELECT fence.complete(%s, %s, %s)'

ONE_STATEMENT = '''
    WITH c AS MATERIALIZED (SELECT * FROM fence.claim(%(key)s, %(scope)s, %(request)s)),
         a AS (UPDATE account SET balance = balance + %(amount)s
                 FROM c WHERE c.fresh AND account.id = %(account)s RETURNING balance),
         e AS (INSERT INTO effect (message, balance)
               SELECT %(message)s, balance FROM a RETURNING id, balance),
         d AS MATERIALIZED (
               SELECT fence.complete(%(key)s, jsonb_build_object('effect', id, 'balance', balance),
                                     %(scope)s) AS response
                 FROM e)
    SELECT c.fresh, coalesce((SELECT response FROM d), c.response) FROM c'''


def in_a_transaction(conn, message):
    with conn.transaction():
        fresh, response = conn.execute(CLAIM, message).fetchone()
        if fresh:
            result = do(conn, message)
            done = conn.execute(COMPLETE, [message['key'], Jsonb(result), message['scope']])
            response = done.fetchone()[0]
    return fresh, response


def do(conn, message):
    """What the message asks for.  Returns the result that each delivery is to be given."""
    balance = conn.execute(UPDATE, message).fetchone()[0]
    effect = conn.execute(INSERT, [message['message'], balance]).fetchone()[0]
    return {'effect': effect, 'balance': balance}


def in_one_statement(conn, message):
    return conn.execute(ONE_STATEMENT, message).fetchone()


def lost(error):
    """The connection or the server is gone: what was sent may or may not be committed."""
    return error.sqlstate is None or error.sqlstate[:2] in ('08', '57')


def handle(conn, delivery):
    """Until there is an answer.  Returns it, and the connection to go on with."""
    message = {
        'key': f"message-{delivery['message']}", 'scope': 'messages',
        'request': Jsonb({'account': delivery['account'], 'amount': delivery['amount']}), **delivery,
    }
    way = in_one_statement if delivery['id'] % 2 else in_a_transaction
    while True:
        try:
            if conn is None:
                conn = pooled(autocommit=True)
            fresh, response = way(conn, message)
            return {'id': delivery['id'], 'fresh': fresh, 'response': response}, conn
        except psycopg.Error as error:
            if not lost(error):
                return {'id': delivery['id'], 'sqlstate': error.sqlstate, 'message': str(error)}, conn
            if conn is not None:
                conn.close()
            conn = None
            time.sleep(0.05)


connection = None
for line in sys.stdin:
    answer, connection = handle(connection, json.loads(line))
    print(json.dumps(answer), flush=True)
