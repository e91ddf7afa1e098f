"""20 000 messages, each delivered one to four times, to eight consumers that are killed at
random, with a crash of the database in the middle: every message has exactly one effect, and
every delivery is answered with the result of the first.

The broker of this play hands out deliveries and takes a message for done when it is
answered.  What a consumer had in hand when it was killed is delivered again."""

import collections
import json
import os
import random
import selectors
import subprocess
import sys

import checks
from checks import finish, ok, same

HERE = os.path.dirname(os.path.abspath(__file__))
CONSUMERS = [['/usr/bin/python3', f'{HERE}/consumer.py'], ['node', f'{HERE}/consumer.mjs']] * 4
MESSAGES = 20_000
ACCOUNTS = 1000
IN_HAND = 4             # deliveries that a consumer has at a time
KILLS = 16

random.seed(20261130)


class Consumer:
    """A process with the deliveries that it has not answered yet."""

    def __init__(self, command):
        self.command = command
        self.in_hand = {}
        self.rest = b''
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        os.set_blocking(self.process.stdout.fileno(), False)

    def give(self, delivery):
        self.in_hand[delivery['id']] = delivery
        try:
            self.process.stdin.write(json.dumps(delivery).encode() + b'\n')
            self.process.stdin.flush()
        except BrokenPipeError:
            pass        # it was killed; the end of its output will tell

    def answers(self):
        """Those that have come.  None at the end of its output."""
        data = self.process.stdout.read()
        if data == b'':
            return None
        *lines, self.rest = (self.rest + (data or b'')).split(b'\n')
        return [json.loads(line) for line in lines]


class Broker:
    def __init__(self, deliveries):
        self.queue = collections.deque(deliveries)
        self.selector = selectors.DefaultSelector()
        self.consumers = []
        self.answered = []          # (delivery, answer)
        self.killed = 0

    def start(self, command):
        consumer = Consumer(command)
        self.consumers.append(consumer)
        self.selector.register(consumer.process.stdout, selectors.EVENT_READ, consumer)

    def hand_out(self, consumer):
        while self.queue and len(consumer.in_hand) < IN_HAND:
            consumer.give(self.queue.popleft())

    def receive(self, consumer):
        answers = consumer.answers()
        if answers is None:
            self.replace(consumer)
            return
        for answer in answers:
            self.answered.append((consumer.in_hand.pop(answer['id']), answer))

    def replace(self, consumer):
        """It is dead: deliver again what it had in hand, and start another one."""
        if consumer.process.wait() != -9:
            sys.exit(f'{consumer.command} has ended with status {consumer.process.returncode}')
        self.selector.unregister(consumer.process.stdout)
        self.consumers.remove(consumer)
        self.queue.extendleft(consumer.in_hand.values())
        self.start(consumer.command)

    def run(self, events):
        """events: what else is to happen, after how many answers."""
        while self.queue or any(consumer.in_hand for consumer in self.consumers):
            for consumer in self.consumers:
                self.hand_out(consumer)
            for key, _ in self.selector.select():
                self.receive(key.data)
            while events and len(self.answered) >= events[0][0]:
                events.pop(0)[1](self)

    def kill_one(self):
        random.choice(self.consumers).process.kill()
        self.killed += 1

    def stop(self):
        for consumer in self.consumers:
            consumer.process.kill()


def deliveries():
    """Some copies of a message come close together, so that two consumers have it at once;
    others come much later."""
    places = []
    for message in range(MESSAGES):
        for _ in range(random.randint(1, 4)):
            behind = random.choice((random.random() * 4, random.random() * MESSAGES))
            places.append((message + behind, message))
    places.sort()
    return [delivery(number, message) for number, (_, message) in enumerate(places)]


def delivery(number, message):
    return {'id': number, 'message': message, 'account': message % ACCOUNTS, 'amount': message % 7 + 1}


def pg_ctl(*arguments):
    subprocess.run(['pg_ctl', '-w', *arguments], check=True, stdout=subprocess.DEVNULL)


def crash(_):
    """The database loses what is not in its write-ahead log, and every connection."""
    pg_ctl('stop', '-m', 'immediate')
    pg_ctl('start', '-l', os.path.dirname(os.environ['PGDATA']) + '/log')
    checks.connect()


def judge(broker, total):
    effects = {message: {'effect': number, 'balance': balance} for message, number, balance in
               checks.admin.execute('SELECT message, id, balance FROM effect').fetchall()}
    same(checks.value('SELECT count(*) FROM effect'), MESSAGES, f'{MESSAGES} messages, as many effects')
    same(len(effects), MESSAGES, 'each has one')
    same(checks.value('SELECT sum(balance) FROM account'), sum(m % 7 + 1 for m in range(MESSAGES)),
         'the accounts hold the sum')

    errors = collections.Counter(answer.get('sqlstate') for _, answer in broker.answered)
    same(list(errors), [None], 'no delivery is refused')
    answered = {delivery['id'] for delivery, _ in broker.answered}
    same(len(answered), total, f'all {total} deliveries are answered')
    wrong = [(delivery, answer) for delivery, answer in broker.answered
             if answer.get('response') != effects.get(delivery['message'])]
    ok(not wrong, 'every answer is the result of the first', f'{len(wrong)} are not: {wrong[:3]}')

    fresh = collections.Counter(delivery['message'] for delivery, answer in broker.answered
                                if answer.get('fresh'))
    same(max(fresh.values(), default=0), 1, 'no message was fresh twice')
    # An answer is lost where a consumer was killed, or the database crashed, after the commit.
    ok(len(fresh) >= MESSAGES - KILLS - len(CONSUMERS), 'and nearly all first results arrived', len(fresh))
    same(broker.killed, KILLS, f'{KILLS} consumers were killed on the way')


def other_requests():
    """The same keys with another request: a message that was changed on the way."""
    wrong = [{**delivery(number, message), 'amount': 99} for number, message in
             enumerate(random.sample(range(MESSAGES), 200))]
    broker = Broker(wrong)
    for command in CONSUMERS[:2]:
        broker.start(command)
    broker.run([])
    broker.stop()
    same(collections.Counter(answer.get('sqlstate') for _, answer in broker.answered), {'PF101': 200},
         'a key with another request is refused')
    same(checks.value('SELECT count(*) FROM effect'), MESSAGES, 'and has no effect')


def main():
    checks.admin.execute(f'''
        CREATE TABLE account (id integer PRIMARY KEY, balance integer NOT NULL);
        INSERT INTO account SELECT i, 0 FROM generate_series(0, {ACCOUNTS - 1}) AS i;
        -- no unique constraint on message: a second effect must show
        CREATE TABLE effect (id serial PRIMARY KEY, message integer NOT NULL, balance integer NOT NULL);
        GRANT SELECT, UPDATE ON account TO worker;
        GRANT SELECT, INSERT ON effect TO worker;
        GRANT USAGE ON SEQUENCE effect_id_seq TO worker''')

    to_do = deliveries()
    broker = Broker(to_do)
    for command in CONSUMERS:
        broker.start(command)
    step = len(to_do) // (KILLS + 1)
    events = [(step * (i + 1), Broker.kill_one) for i in range(KILLS)]
    events.insert(KILLS // 2, (len(to_do) // 2, crash))
    broker.run(events)
    broker.stop()
    judge(broker, len(to_do))
    other_requests()


main()
finish()
