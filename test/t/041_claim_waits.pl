# Claims that wait for the same key: many of them (cases 12, 13), ended from outside (15, E10),
# in load that would deadlock if keys were taken in the order of the array (16, E09), and that
# of different keys (19).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = fence_node('waits', conf => q{
deadlock_timeout = 100ms
max_connections = 120
log_line_prefix = '%e '
});
my $watch = session($node);
my @levels = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');

# Longer than anything here should take that does not wait
my $at_once = $FenceTest::at_once;

sql($node, q{CREATE TABLE effect (key text, who text)});

# Claims the key, and if that is new, does the work and stores the response: all in one statement.
sub operate
{
	my ($key, $who) = @_;

	return qq{
		WITH c AS MATERIALIZED (SELECT * FROM fence.claim('$key')),
			 e AS (INSERT INTO effect SELECT '$key', '$who' FROM c WHERE fresh RETURNING who),
			 d AS MATERIALIZED (SELECT fence.complete('$key', to_jsonb(who)) AS response FROM e)
		SELECT c.fresh, coalesce((SELECT response FROM d), c.response) FROM c};
}

sub one_effect
{
	my ($key, $who, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return gives($watch, qq{
		SELECT who, (SELECT response FROM fence.lookup(key, '')) FROM effect WHERE key = '$key'},
		qq{$who|"$who"}, $test_name);
}

# How many wait for a lock, of all sessions but the watching one
my $waiting = q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'};

# ... and how many work
my $working = q{
	SELECT count(*) FROM pg_stat_activity
	WHERE backend_type = 'client backend' AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Lock' AND pid <> pg_backend_pid()};

# 12: the first one goes away while a second one waits; then the second one is first.
my %endings = (
	'its backend is terminated' => sub { $watch->does('SELECT pg_terminate_backend(' . $_[0]->backend . ')'); },
	'its client is killed' => sub { $_[0]->kill('KILL'); },
	'an error strikes' => sub { $_[0]->ask('SELECT 1/0'); },
	'it rolls back' => sub { $_[0]->does('ROLLBACK'); });
foreach my $level (@levels)
{
	foreach my $ending (sort keys %endings)
	{
		my $key = "12 $level $ending";
		my ($first, $second) = map { session($node) } 1 .. 2;

		$first->backend;
		$first->does("BEGIN ISOLATION LEVEL $level; " . operate($key, 'first'));
		$second->does("BEGIN ISOLATION LEVEL $level");
		$second->send(operate($key, 'second'));
		waits_for_lock($watch, $second);
		$endings{$ending}->($first);
		is($second->wait->output, 't|"second"', "$key: the second is first");
		$second->does('COMMIT');
		one_effect($key, 'second', '... and alone');
		$_->quit foreach $first, $second;
	}
}

# 12: the second one's client goes away; nothing is left of its wait.
{
	my ($first, $second) = (session($node), session($node, options => '-c client_connection_check_interval=100ms'));
	my $backend = $second->backend;

	$first->does('BEGIN; ' . operate('12 gone', 'first'));
	$second->send(operate('12 gone', 'second'));
	waits_for_lock($watch, $second);
	$second->kill('KILL');
	$second->quit;
	wait_for($watch, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $backend");
	is(sqlstate($first, 'COMMIT'), '', '12: who waits goes away: the first commits');
	one_effect('12 gone', 'first', '... alone');
	$first->quit;
}

# 12: the server crashes, with one that works and one that waits.
{
	my ($first, $second) = map { session($node) } 1 .. 2;

	$first->does('BEGIN; ' . operate('12 crash', 'first'));
	$second->send(operate('12 crash', 'second'));
	waits_for_lock($watch, $second);
	sql($node, operate('12 committed', 'before'));
	$node->stop('immediate');
	$_->quit foreach $first, $second, $watch;
	$node->start;
	$watch = session($node);
	gives($node, operate('12 crash', 'third'), 't|"third"', '12: after a crash an open claim is gone');
	gives($node, operate('12 committed', 'after'), 'f|"before"', '... and a committed one is there');
	one_effect('12 crash', 'third', '... one effect');
	one_effect('12 committed', 'before', '... one effect');
}

# 13: many wait.
my $many = 50;
foreach my $level (@levels)
{
	my $key = "13 $level";
	my $first = session($node);
	my @waiters = map { session($node) } 1 .. $many;

	$first->does("BEGIN ISOLATION LEVEL $level; " . operate($key, 'first'));
	foreach my $i (0 .. $#waiters)
	{
		$waiters[$i]->does("BEGIN ISOLATION LEVEL $level");
		$waiters[$i]->send(operate($key, "waiter $i"));
	}
	wait_for($watch, "SELECT ($waiting) = $many");

	# rolled back: one of them goes on, the others wait for that one
	$first->does('ROLLBACK');
	wait_for($watch, "SELECT ($waiting) = $many - 1 AND ($working) = 0");
	my @done = grep { $waiters[$_]->finished } 0 .. $#waiters;
	is(scalar @done, 1, "$key: of $many that wait, one goes on when the first rolls back");
	my $winner = $done[0];
	is($waiters[$winner]->output, qq{t|"waiter $winner"}, '... and does the work');
	ok(!(grep { $_ != $winner && $waiters[$_]->finished } 0 .. $#waiters), '... the others go on waiting');

	# committed: all the others are told
	$waiters[$winner]->does('COMMIT');
	my %outcomes;
	foreach my $i (grep { $_ != $winner } 0 .. $#waiters)
	{
		$waiters[$i]->wait;
		$outcomes{ $waiters[$i]->sqlstate || $waiters[$i]->output }++;
	}
	my $expected = $level eq 'READ COMMITTED' ? qq{f|"waiter $winner"} : '40001';
	is_deeply(\%outcomes, { $expected => $many - 1 }, '... until it commits; then all are told');
	foreach my $i (grep { $_ != $winner } 0 .. $#waiters)
	{
		$waiters[$i]->does('ROLLBACK');
		$waiters[$i]->send("BEGIN ISOLATION LEVEL $level; " . operate($key, 'again') . '; COMMIT');
	}
	my %again;
	$again{ $waiters[$_]->wait->output }++ foreach grep { $_ != $winner } 0 .. $#waiters;
	is_deeply(\%again, { qq{f|"waiter $winner"} => $many - 1 }, '... and the repetition of each is a replay');
	one_effect($key, "waiter $winner", '... one effect');
	$_->quit foreach $first, @waiters;
}

# 15, E10: whoever waits can be stopped, by everything, at once; and its session goes on.
my $key = '15';
my %calls = (
	'claim' => q{SELECT fence.claim('15')},
	'claim in a later statement' => operate('15', 'second'),
	'claim_many' => q{SELECT fence.claim_many(ARRAY['15 a', '15', '15 b'], '', NULL)},
	'once' => q{SELECT fence.once('15')},
	'admit' => q{SELECT fence.admit('15 r', 1, '15')});
acquire($node, '15 r', 'holder', '1 hour');
my $first = session($node);
$first->does(q{BEGIN; SELECT fresh FROM fence.claim('15'); SELECT fresh FROM fence.claim('15', '15 r')});

sub begin_waiting
{
	my ($call, $session) = @_;

	$session->send($calls{$call});
	waits_for_lock($watch, $session);
	return time;
}

sub usable
{
	my ($session, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	my $backend = $session->backend;
	gives($watch, qq{SELECT count(*) FROM pg_locks WHERE pid = $backend AND locktype <> 'virtualxid'}, 0, "$test_name: no lock is left");
	gives($session, q{SELECT fence.once('15 usable')}, 't', '... the session claims other keys');
	$session->does(q{DELETE FROM fence.idempotency_key WHERE key = '15 usable'});
	return;
}

foreach my $level (@levels)
{
	foreach my $call (sort keys %calls)
	{
		my $session = session($node);
		my $backend = $session->backend;
		my $name = "15: $call, $level";
		my $start;

		$session->does("SET default_transaction_isolation = '" . lc($level) . "'");

		$start = begin_waiting($call, $session);
		$watch->does("SELECT pg_cancel_backend($backend)");
		is($session->wait->sqlstate, '57014', "$name: cancel");
		under(time - $start, $at_once, '... at once');
		usable($session, $name);

		# the same in a transaction, with a savepoint: it can go on
		$session->does(q{BEGIN; SELECT fence.once('15 before'); SAVEPOINT s});
		begin_waiting($call, $session);
		$watch->does("SELECT pg_cancel_backend($backend)");
		is($session->wait->sqlstate, '57014', "$name: cancel in a transaction");
		$session->does(q{ROLLBACK TO s});
		gives($session, q{SELECT fence.once('15 before'), fence.once('15 after')}, 'f|t', '... which goes on');
		$session->does('COMMIT');
		$session->does(q{DELETE FROM fence.idempotency_key WHERE key IN ('15 before', '15 after')});

		$session->ask("SET statement_timeout = '200ms'; $calls{$call}");
		is($session->sqlstate, '57014', "$name: statement_timeout");
		cmp_ok($session->seconds, '>=', 0.2, '... not before its time');
		under($session->seconds, 0.2 + $at_once, '... and not long after');
		$session->does('RESET statement_timeout');
		usable($session, $name);

		$session->ask("SET lock_timeout = '200ms'; $calls{$call}");
		is($session->sqlstate, '55P03', "$name: lock_timeout");
		cmp_ok($session->seconds, '>=', 0.2, '... not before its time');
		under($session->seconds, 0.2 + $at_once, '... and not long after');
		$session->does('RESET lock_timeout');
		usable($session, $name);

		$start = begin_waiting($call, $session);
		$watch->does("SELECT pg_terminate_backend($backend)");
		is($session->wait->sqlstate, '57P01', "$name: terminate");
		under(time - $start, $at_once, '... at once');
		$session->quit;
	}
}
$first->does(q{
	SELECT fence.complete('15', '"first"'), fence.complete('15', '"first"', '15 r');
	INSERT INTO effect VALUES ('15', 'first')});
is(sqlstate($first, 'COMMIT'), '', '15: the first never noticed');
one_effect('15', 'first', '... one effect');
gives($node, $calls{$_}, { 'once' => 'f', 'claim in a later statement' => 'f|"first"' }->{$_}, "... and $_ has its answer")
  foreach 'once', 'claim in a later statement';
gives($node, q{SELECT fresh, response FROM fence.admit('15 r', 1, '15')}, 'f|"first"', '... and admit, too');
gives($node, q{SELECT count(*) FROM fence.idempotency_key WHERE key LIKE '15 %'}, 0, '... and nothing is left of the calls that were stopped');

# 14: where nobody is to wait: lock_timeout as short as it can be
$first->does(q{BEGIN; SELECT fresh FROM fence.claim('14')});
my $second = session($node);
$second->does(q{SET lock_timeout = '1ms'});
refuses($second, q{SELECT fence.claim('14')}, '55P03', '14: the shortest lock_timeout');
under($second->seconds, $at_once, '... waits for next to nothing');
gives($second, q{SELECT fence.once('14 other')}, 't', '... and lets a key through that nobody has');
$_->quit foreach $first, $second;

# 16, E09: arrays in random order, half of them rolled back: no deadlock.
my $offset = -s $node->logfile;
my $seconds = $FenceTest::long ? 60 : 5;
my $clients = 8;
my ($count, $trouble) = pgbench($node, [ '-c', $clients, '-T', $seconds, '-M', 'prepared' ], q{
	BEGIN;
	WITH c AS MATERIALIZED (SELECT * FROM fence.claim_many(
			(SELECT array_agg('16 ' || (random() * 20)::int) FROM generate_series(1, 8)), '', NULL)),
		 e AS (INSERT INTO effect SELECT key, pg_backend_pid() FROM c WHERE fresh RETURNING key, who),
		 d AS MATERIALIZED (SELECT fence.complete(key, to_jsonb(who)) FROM e)
	SELECT count(*) FROM d;
	ROLLBACK;},
	q{
	\set round random(1, 1000000)
	WITH c AS MATERIALIZED (SELECT * FROM fence.claim_many(
			(SELECT array_agg('16 ' || (random() * 20)::int) || array_agg(format('16 %s %s', (random() * 20)::int, :round / 10000)) FROM generate_series(1, 4)), '', NULL)),
		 e AS (INSERT INTO effect SELECT key, pg_backend_pid() FROM c WHERE fresh RETURNING key, who),
		 d AS MATERIALIZED (SELECT fence.complete(key, to_jsonb(who)) FROM e)
	SELECT count(*) FROM d;});
is($trouble, '', '16: claim_many in opposite orders: no client failed');
cmp_ok($count, '>', 100, "... in $count transactions");
unlike(server_log($node, $offset), qr/ERROR/, '... nor was there any error');
gives($watch, q{
	SELECT count(*) FROM (SELECT key FROM effect WHERE key LIKE '16 %' GROUP BY key HAVING count(*) > 1) d},
	0, '... no key has two effects');
gives($watch, q{
	SELECT count(*) FROM effect WHERE key LIKE '16 %' AND to_jsonb(who) IS DISTINCT FROM (SELECT response FROM fence.lookup(key, ''))},
	0, '... each has its response');
gives($watch, q{SELECT (SELECT count(*) FROM effect WHERE key LIKE '16 %') = (SELECT count(*) FROM fence.idempotency_key WHERE key LIKE '16 %')},
	't', '... and no key is without effect');

# 19: different keys, side by side in the index, under SERIALIZABLE: no serialization failures.
sql($node, q{
	CREATE FUNCTION uuid_v7() RETURNS text LANGUAGE sql VOLATILE AS $$
		SELECT encode(set_byte(overlay(uuid_send(gen_random_uuid())
			PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 6, 112), 'hex')::uuid::text
	$$;
	ALTER DATABASE postgres SET default_transaction_isolation = 'serializable'});
$offset = -s $node->logfile;
($count, $trouble) = pgbench($node, [ '-c', $clients, '-T', $seconds, '-M', 'prepared' ], q{
	SELECT uuid_v7() AS key \gset
	BEGIN;
	SELECT fresh FROM fence.claim(:key);
	SELECT fence.complete(:key);
	COMMIT;});
is($trouble, '', '19: claims under SERIALIZABLE: no client failed');
cmp_ok($count, '>', 100, "... in $count transactions");
my $failures = () = server_log($node, $offset) =~ /^40001 ERROR/mg;
cmp_ok($failures, '<=', $count / 1000, "... with $failures serialization failures");
sql($node, 'ALTER DATABASE postgres RESET default_transaction_isolation');

$watch->quit;
finish($node);
