# fence.acquire_many() under load: all or nothing, no deadlock, one holder of each resource.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('many', conf => 'deadlock_timeout = 100ms');
my $offset = -s $node->logfile;

# Sets of 2 to 5 out of 8 resources, in random order.  A session that has got its set enters
# itself for each of them, in a table that allows one entry only, and leaves before it
# releases.  Whoever was told no leaves nothing behind.
sql($node, q{
	CREATE TABLE inside (resource text PRIMARY KEY, client int);
	CREATE TABLE outcome (client int, rows int, granted int, reasons text[], holders int, wait interval, took interval);
	CREATE SEQUENCE grant_order;
	CREATE TABLE granted (resource text, token bigint, ordinal bigint);
	CREATE FUNCTION some_resources() RETURNS text[] LANGUAGE sql VOLATILE AS $$
		SELECT array_agg('r' || n) FROM (
			SELECT n FROM generate_series(1, 8) n ORDER BY random() LIMIT 2 + floor(random() * 4)) s
	$$;
	-- One round.  The lease is much longer than the round.
	CREATE PROCEDURE round(client int, wait interval) LANGUAGE plpgsql AS $$
	DECLARE
		wanted text[] := some_resources();
		taken jsonb;
		start timestamptz := clock_timestamp();
		took interval;
		tokens bigint[];
	BEGIN
		SELECT jsonb_agg(a) INTO taken FROM fence.acquire_many(wanted, 'client ' || client, '1 hour', wait) a;
		took := clock_timestamp() - start;
		INSERT INTO outcome
		SELECT client, count(*), count(*) FILTER (WHERE (a ->> 'acquired')::bool),
			array_agg(DISTINCT a ->> 'reason' ORDER BY a ->> 'reason'),
			count(*) FILTER (WHERE a ->> 'token' IS NOT NULL), wait, took
		FROM jsonb_array_elements(taken) a;
		IF NOT (taken -> 0 ->> 'acquired')::bool THEN
			COMMIT;
			RETURN;
		END IF;
		INSERT INTO granted SELECT a ->> 'resource', (a ->> 'token')::bigint, nextval('grant_order')
			FROM jsonb_array_elements(taken) a;
		COMMIT;

		INSERT INTO inside SELECT a ->> 'resource', client FROM jsonb_array_elements(taken) a;
		PERFORM fence.check(a ->> 'resource', (a ->> 'token')::bigint) FROM jsonb_array_elements(taken) a;
		COMMIT;
		PERFORM pg_sleep(random() * 0.002);
		DELETE FROM inside WHERE inside.client = round.client;
		COMMIT;
		PERFORM fence.release(a ->> 'resource', (a ->> 'token')::bigint) FROM jsonb_array_elements(taken) a;
		COMMIT;
	END
	$$});

my $seconds = $FenceTest::long ? 60 : 6;
my ($done, $complaint) = pgbench($node, [ '-c', 8, '-j', 2, '-T', $seconds ],
	q{CALL round(:client_id, '0')}, q{CALL round(:client_id, '100 ms')});
is($complaint, '', '8 sessions with overlapping sets, in any order');
gives($node, 'SELECT count(*) FROM outcome', $done, '... each round has an outcome');
cmp_ok($done, '>', 100, "... $done rounds");
gives($node, 'SELECT count(*) FROM outcome WHERE granted NOT IN (0, rows) OR granted <> holders', 0, '... all or nothing');
gives($node, q{SELECT count(*) > 0 FROM outcome WHERE granted > 0}, 't', '... some get all');
gives($node, q{SELECT count(*) > 0 FROM outcome WHERE granted = 0}, 't', '... some get nothing');
gives($node, q{SELECT string_agg(reasons::text, ' ' ORDER BY reasons::text) FROM (SELECT DISTINCT reasons FROM outcome WHERE granted > 0) r},
	'{NULL}', '... who gets all is given no reason');
gives($node, q{SELECT count(*) FROM outcome WHERE granted = 0 AND
		NOT (reasons = '{held,"not all"}' OR reasons = '{busy,"not all"}')}, 0, '... who does not is told which one was the first, and that it is for the others');
gives($node, q{SELECT count(*) FROM (
		SELECT token, lag(token, 1, 0::bigint) OVER (PARTITION BY resource ORDER BY token) AS previous,
			ordinal, lag(ordinal, 1, 0::bigint) OVER (PARTITION BY resource ORDER BY token) AS earlier FROM granted) g
	WHERE token <> previous + 1 OR ordinal < earlier}, 0, '... tokens rise by one in the order of the grants: attempts that failed use none');
gives($node, q{SELECT count(*) FROM inside}, 0, '... no two holders of one resource were in at the same time');
gives($node, q{SELECT bool_and(state = 'free') FROM fence.leases}, 't', '... nothing is held in the end');
gives($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, '... nor locked');
# a wait may end late, but not by much, on a busy machine
gives($node, q{SELECT count(*) FROM outcome WHERE granted = 0 AND (took < wait OR took > wait + '2 s')}, 0, '... a wait is bounded');
gives($node, q{SELECT (SELECT avg((granted > 0)::int) FROM outcome WHERE wait > '0') >
		(SELECT avg((granted > 0)::int) FROM outcome WHERE wait = '0')}, 't', '... and worth it');
unlike(server_log($node, $offset), qr/ERROR|FATAL|deadlock/, '... without an error or a deadlock in the log');

# A wait that ends well, in the order of the resources whatever the order of the array
my ($a, $b, $watch) = map { session($node) } 1 .. 3;
my $token = acquire($a, 'z', 'a', '1 hour');
$b->send(q{SELECT resource, acquired, token, held_by, reason FROM fence.acquire_many('{z,y,x,y}', 'b', '1 hour', '1 minute')});
ok(!$b->finished(0.2), 'a wait for one of three');
gives($watch, q{SELECT count(*) FROM fence.leases WHERE resource IN ('x', 'y')}, 0, '... takes none of the others meanwhile');
gives($watch, q{SELECT acquired FROM fence.acquire('y', 'quick', '20 ms')}, 't', '... they can be had by others');
$a->does("SELECT fence.release('z', $token)");
is($b->wait->output, "x|t|1|b|\ny|t|2|b|\nz|t|2|b|", '... until all are free');

# cancel, statement_timeout, lock_timeout, termination: nothing is left
my $before = sql($node, q{SELECT string_agg(r::text, ',' ORDER BY name) FROM fence.resource r});
my $call = q{SELECT * FROM fence.acquire_many('{p,q,x}', 'a', '1 hour', '1 minute')};
$a->backend;
$a->send($call);
ok(!$a->finished(0.1), 'a wait that is canceled');
$watch->does('SELECT pg_cancel_backend(' . $a->backend . ')');
is($a->wait->sqlstate, '57014', '... ends with it');
is(sqlstate($a, "SET statement_timeout = '100 ms'; $call"), '57014', '... statement_timeout, too');
$a->does('RESET statement_timeout');
is(sqlstate($a, "SET lock_timeout = '100 ms'; $call"), '55P03', '... lock_timeout, too');
$a->does('RESET lock_timeout');
$a->does('BEGIN; SAVEPOINT s');
is(sqlstate($a, "SET LOCAL lock_timeout = '50 ms'; $call"), '55P03', '... in a savepoint');
$a->does('ROLLBACK TO s');
gives($a, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, '... the transaction keeps no lock');
$a->does('COMMIT');
$a->send($call);
ok(!$a->finished(0.1), 'a wait whose session is terminated');
$watch->does('SELECT pg_terminate_backend(' . $a->backend . ')');
like($a->wait->sqlstate, qr/^(57P01|08006)$/, '... ends');
gives($node, q{SELECT string_agg(r::text, ',' ORDER BY name) FROM fence.resource r}, $before, 'nothing has changed by any of them');
gives($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, '... no lock is left');
gives($node, q{SELECT acquired, token FROM fence.acquire_many('{p,q}', 'c')}, "t|1\nt|1", '... and the others are free');
$a->quit;

# An attempt that is refused or waits writes nothing, and makes nobody's commit fail: x is
# held all the time; the lease on "late" has run out, but its last holder goes on under its
# token, which nobody has replaced.
$token = acquire($node, 'late', 'late holder', '1 ms');
is(sqlstate($b, 'BEGIN; ' . q{SELECT * FROM fence.acquire_many('{late,x}', 'd')}), '', 'a refused attempt');
gives($b, 'SELECT pg_current_xact_id_if_assigned() IS NULL', 't', '... has written nothing');
gives($b, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()}, 0, '... and holds no lock');
$b->does('COMMIT');
$b->send(q{SELECT count(*) FILTER (WHERE acquired) FROM fence.acquire_many('{late,x}', 'd', '1 hour', '3 s')});
($done, $complaint) = pgbench($node, [ '-c', 2, '-j', 2, '-T', 2 ], "SELECT fence.check('late', $token)");
is($complaint, '', 'commits of a late holder during a wait that comes to nothing');
cmp_ok($done, '>', 50, "... $done of them");
is($b->wait->output, 0, '... which it did');

# Within one transaction: a second call adds to the first, a rollback takes back both.
$b->does('BEGIN');
gives($b, q{SELECT count(*) FILTER (WHERE acquired) FROM fence.acquire_many('{t2,t1}', 'e', '1 hour')}, 2, 'two calls in one transaction');
gives($b, q{SELECT count(*) FILTER (WHERE acquired) FROM fence.acquire_many('{t0,t3}', 'e', '1 hour')}, 2, '... in any order');
gives($b, q{SELECT resource, acquired, reason FROM fence.acquire_many('{t1,t4}', 'e', '1 hour')}, "t1|f|held\nt4|f|not all", '... each resource once');
gives($watch, q{SELECT resource, acquired, reason FROM fence.acquire_many('{t0,t4}', 'f')}, "t0|f|busy\nt4|f|not all", '... others see that they are busy');
$b->does('ROLLBACK');
gives($watch, q{SELECT count(*) FILTER (WHERE acquired) FROM fence.acquire_many('{t0,t1,t2,t3,t4}', 'f')}, 5, '... and free again after the rollback');

# Two who take their sets one after the other, against each other: told that it is busy,
# no deadlock.
my $c = session($node);
$b->does(q{BEGIN; SELECT * FROM fence.acquire_many('{u1,u2}', 'b', '1 hour')});
$c->does(q{BEGIN; SELECT * FROM fence.acquire_many('{u3,u4}', 'c', '1 hour')});
$b->send(q{SELECT bool_or(acquired), max(reason) FILTER (WHERE reason <> 'not all') FROM fence.acquire_many('{u3}', 'b', '1 hour', '1 s')});
$c->send(q{SELECT bool_or(acquired), max(reason) FILTER (WHERE reason <> 'not all') FROM fence.acquire_many('{u1}', 'c', '1 hour', '1 s')});
is($b->wait->output, 'f|busy', 'two transactions that each want what the other has');
is($c->wait->output, 'f|busy', '... are both told so');
is(sqlstate($_, 'COMMIT'), '', '... and keep what they have') foreach $b, $c;
gives($watch, q{SELECT resource, holder FROM fence.leases WHERE resource ~ '^u' ORDER BY 1}, "u1|b\nu2|b\nu3|c\nu4|c", '... both');

$_->quit foreach $b, $c, $watch;
finish($node);
