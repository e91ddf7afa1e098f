# How long claims are kept: pruning and whoever needs the row (case 54), two that prune (58),
# dump and restore (60), DROP and CREATE EXTENSION under open sessions (68).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('keep', conf => "autovacuum = off\n");
my ($session, $pruner, $locker, $watch) = map { session($node) } 1 .. 4;
my @levels = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');

# A key that was completed, a while ago if an age is given
sub completed
{
	my ($key, $age) = @_;

	$watch->does(qq{SELECT fresh, fence.complete('$key', '"first"') FROM fence.claim('$key')});
	$watch->does(qq{
		UPDATE fence.idempotency_key SET claimed_at = claimed_at - interval '$age', expires_at = expires_at - interval '$age'
		WHERE key = '$key'}) if $age;
	return;
}

my $claim = q{SELECT fresh, response FROM fence.claim('k')};
my $replay = 'f|"first"';

foreach my $level (@levels)
{
	# Young: nobody prunes it.
	completed('k');
	gives($pruner, 'SELECT fence.prune()', 0, "54: $level, before its time nothing is pruned");
	gives($session, "BEGIN ISOLATION LEVEL $level; $claim; COMMIT", $replay, '... and it is a replay');

	# Expired a moment ago: still there.
	$watch->does(q{UPDATE fence.idempotency_key SET claimed_at = claimed_at - interval '24 hours', expires_at = clock_timestamp()});
	gives($pruner, 'SELECT fence.prune()', 0, '... nor is it pruned just when it expires');
	gives($session, "BEGIN ISOLATION LEVEL $level; $claim; COMMIT", $replay, '... and it is a replay');
	$watch->does('TRUNCATE fence.idempotency_key');

	# Pruned while somebody who has had a replay is still at work: that one is not disturbed.
	completed('k', '1 year');
	gives($session, "BEGIN ISOLATION LEVEL $level; $claim", $replay, "54: $level, a replay");
	gives($pruner, 'SELECT fence.prune()', 1, '... does not keep the row from being pruned');
	is(sqlstate($session, 'COMMIT'), '', '... nor is it disturbed by that');
	gives($session, "BEGIN ISOLATION LEVEL $level; $claim; ROLLBACK", 't|', '... afterwards the key is new');

	# Being pruned: the claim waits, and is first if the row has gone, else a replay.
	foreach my $decision ('COMMIT', 'ROLLBACK')
	{
		completed('k', '1 year');
		$pruner->does('BEGIN; SELECT fence.prune()');
		$session->does("BEGIN ISOLATION LEVEL $level");
		$session->send($claim);
		waits_for_lock($watch, $session);
		$pruner->does($decision);
		is($session->wait->output, $decision eq 'COMMIT' ? 't|' : $replay, "54: $level, a claim waits for a pruning that ends in $decision");
		$session->does('ROLLBACK');
		$watch->does('TRUNCATE fence.idempotency_key');
	}

	# An old snapshot that still shows the row
	completed('k', '1 year');
	$session->does("BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM fence.idempotency_key");
	gives($pruner, 'SELECT fence.prune()', 1, "54: $level, pruned under an old snapshot");
	$session->ask($claim);
	like($session->sqlstate || $session->output, $level eq 'READ COMMITTED' ? qr/^t\|$/ : qr/^(40001|t\|)$/, '... a claim is first, or has to be repeated');
	note "at $level: ", $session->sqlstate || $session->output;
	$session->does('ROLLBACK');

	# An open claim is not pruned and holds nobody up; nor does a row that is locked.  Rows are
	# made old last: any fresh claim may prune a little.
	$session->does("BEGIN ISOLATION LEVEL $level; $claim");
	completed($_) foreach qw(old locked);
	$watch->does(q{UPDATE fence.idempotency_key SET claimed_at = claimed_at - interval '1 year', expires_at = expires_at - interval '1 year'});
	$locker->does(q{BEGIN; SELECT FROM fence.idempotency_key WHERE key = 'locked' FOR SHARE});
	gives($pruner, q{SET lock_timeout = '1s'; SELECT fence.prune()}, 1, "54: $level, pruning passes by what is locked");
	gives($watch, 'SELECT key FROM fence.idempotency_key', 'locked', '... and leaves it');
	$locker->does('COMMIT');
	gives($pruner, q{SELECT fence.prune()}, 1, '... what was locked goes the next time');
	gives($session, q{SELECT fence.complete('k', '"first"'); COMMIT}, '"first"', '... the open claim goes on');
	gives($watch, $claim, $replay, '... and is there');
	$pruner->does('RESET lock_timeout');
	$watch->does('TRUNCATE fence.idempotency_key');
}

# What fresh claims prune, they prune when they commit: whoever needs one of these keys does not
# wait for a transaction that only has claimed others.  One in eight has a look, and there is
# one page.
completed($_) foreach qw(young k);
$watch->does(q{UPDATE fence.idempotency_key SET claimed_at = claimed_at - interval '1 year', expires_at = expires_at - interval '1 year' WHERE key = 'k'});
$session->does(q{BEGIN; SELECT count(fence.once('other ' || i)) FROM generate_series(1, 8) i});
gives($pruner, "SET lock_timeout = '1s'; BEGIN; SELECT fence.once('first'); $claim", "t\n$replay", '54: an open transaction that has claimed other keys holds no old one');
$pruner->does('COMMIT; RESET lock_timeout');
$session->does('COMMIT');
gives($watch, "BEGIN; $claim; ROLLBACK", 't|', '... when it commits it removes them');
gives($watch, q{SELECT fresh, response FROM fence.claim('young')}, $replay, '... and no others');
$session->does(q{
	UPDATE fence.idempotency_key SET claimed_at = claimed_at - interval '1 year', expires_at = expires_at - interval '1 year';
	BEGIN;
	SELECT count(fence.once('another ' || i)) FROM generate_series(1, 8) i;
	PREPARE TRANSACTION 'p'});
gives($pruner, q{SELECT fence.prune()}, 10, '... nor does it when it is prepared');
$session->does(q{ROLLBACK PREPARED 'p'});
$watch->does('TRUNCATE fence.idempotency_key');

# The number of rows is a limit.
$watch->does(q{
	SELECT count(fence.once('many ' || i)) FROM generate_series(1, 2500) i;
	UPDATE fence.idempotency_key SET claimed_at = claimed_at - interval '1 year', expires_at = expires_at - interval '1 year'});
gives($pruner, 'SELECT fence.prune(1000)', 1000, 'prune(max_rows) stops there');
gives($pruner, 'SELECT fence.prune(1000)', 1000, '... and goes on the next time');
gives($pruner, 'SELECT fence.prune(1000)', 500, '... to the end');
gives($pruner, 'SELECT fence.prune(1000)', 0, '... which is the end');

# 58: two that prune at once, while keys are claimed and replayed
$watch->does(q{
	SELECT count(fence.once('old ' || i)) FROM generate_series(1, 20000) i;
	UPDATE fence.idempotency_key SET claimed_at = claimed_at - interval '1 year', expires_at = expires_at - interval '1 year'});
my $offset = -s $node->logfile;
my $load = start_pgbench($node, [ '-c', 4, '-T', 5 ],
	q{SELECT fence.prune(50);},
	q{SELECT fence.once('new ' || (random() * 100)::int);});
my @pruners = map { session($node) } 1 .. 2;
$_->send('SELECT sum(fence.prune(100)) FROM generate_series(1, 50)') foreach @pruners;
is($_->wait->sqlstate, '', '58: two that prune at once') foreach @pruners;
my ($count, $trouble) = finish_pgbench($load);
is($trouble, '', '... and four more');
unlike(server_log($node, $offset), qr/ERROR/, '... no deadlock, no error');
$pruner->does('SELECT fence.prune(20000)');
gives($watch, q{SELECT count(*) FROM fence.idempotency_key WHERE key LIKE 'old %'}, 0, '... everything old has gone');
gives($watch, q{SELECT count(*) = count(DISTINCT key) AND count(*) > 90 FROM fence.idempotency_key WHERE key LIKE 'new %'}, 't', '... and nothing new');
$_->quit foreach @pruners;
$watch->does('TRUNCATE fence.idempotency_key');

# 60: dump and restore, twice
my $dir = PostgreSQL::Test::Utils::tempdir;
$watch->does(q{
	SELECT fresh, fence.complete('k', '"first"', 'a scope') FROM fence.claim('k', 'a scope', '{"a": 1.0, "b": ["x"]}', '1 hour');
	SELECT fresh, fence.complete('0188e5a6-5e57-7c4f-9d4b-7d8e2c9a1b3f', '{"b": null}') FROM fence.claim('0188e5a6-5e57-7c4f-9d4b-7d8e2c9a1b3f');
	SELECT fence.once('once');
	SELECT fence.claim_sequence('producer', i) FROM generate_series(1, 3) i});
my $rows = $watch->does('SELECT * FROM fence.idempotency_key ORDER BY key');

sub check_copy
{
	my ($db) = @_;
	my $copy = session($node, dbname => $db);

	gives($copy, 'SELECT * FROM fence.idempotency_key ORDER BY key', $rows, "60: $db has the same keys");
	gives($copy, q{SELECT fresh, response FROM fence.claim('k', 'a scope', '{"b": ["x"], "a": 1}')}, 'f|"first"', '... a replay is one there');
	refuses($copy, q{SELECT fence.claim('k', 'a scope', '{"a": 1}')}, 'PF101', '... another request is refused');
	gives($copy, q{SELECT fresh, response FROM fence.claim('0188e5a6-5e57-7c4f-9d4b-7d8e2c9a1b3f')}, 'f|{"b": null}', '... so are keys that are UUIDs');
	gives($copy, q{SELECT fence.once('once')}, 'f', '... and such without a response');
	gives($copy, q{SELECT fence.claim_sequence('producer', 3), fence.claim_sequence('producer', 4)}, 'f|t', '... sequences go on');
	refuses($copy, q{SELECT fence.claim_sequence('producer', 6)}, 'PF104', '... without a gap');
	gives($copy, q{SELECT fence.once('another')}, 't', '... new keys are new');
	$copy->does(q{DELETE FROM fence.idempotency_key WHERE key = 'another'});
	$copy->quit;
	return;
}

sql($node, "CREATE DATABASE $_") foreach qw(custom plain twice);
command_ok([ 'pg_dump', '-Fc', '-f', "$dir/custom", '-d', $node->connstr('postgres') ], '60: pg_dump -Fc');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('custom'), "$dir/custom" ], '... restored');
check_copy('custom');
command_ok([ 'pg_dump', '-f', "$dir/plain", '-d', $node->connstr('postgres') ], '60: pg_dump');
command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/plain", '-d', $node->connstr('plain') ], '... restored by psql');
command_ok([ 'pg_dump', '-Fc', '-f', "$dir/twice", '-d', $node->connstr('plain') ], '60: pg_dump of the copy');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('twice'), "$dir/twice" ], '... restored');
check_copy($_) foreach qw(plain twice);
gives($watch, q{SELECT relpersistence FROM pg_class WHERE oid = 'fence.idempotency_key'::regclass}, 'p', '... and no crash empties the table');

# 68: the extension goes and comes back, under sessions that have used it
my $other = session($node);
$other->does(q{SELECT fence.once('of before')});
$session->does(q{BEGIN; SELECT fresh FROM fence.claim('open')});
refuses($other, q{SET lock_timeout = '50ms'; DROP EXTENSION pg_fence CASCADE}, '55P03', '68: DROP EXTENSION waits for an open claim');
$other->does('RESET lock_timeout');
$session->does(q{SELECT fence.complete('open'); COMMIT});
$watch->does('DROP EXTENSION pg_fence CASCADE');
refuses($other, q{SELECT fence.once('k')}, '42883', '68: without the extension there is no claim');
$watch->does('CREATE EXTENSION pg_fence');
gives($other, q{SELECT fence.once('of before'); SELECT fence.once('of before')}, "t\nf", '68: created again, it begins anew, in old sessions, too');
gives($session, q{SELECT fence.once('of before')}, 'f', '... and all of them see the same keys');

# within a transaction that has claimed, and would prune
$session->does(q{BEGIN; SELECT count(fence.complete('k' || i)) FROM generate_series(1, 100) i, fence.claim('k' || i)});
refuses($session, q{DROP EXTENSION pg_fence CASCADE}, '', '68: dropped by the transaction that has claimed');
is(sqlstate($session, 'COMMIT'), '', '... which commits');
$watch->does('CREATE EXTENSION pg_fence');
$session->does(q{BEGIN; SELECT fresh FROM fence.claim('k'); DROP EXTENSION pg_fence CASCADE});
refuses($session, 'COMMIT', 'PF103', '... but not without a response');
gives($other, q{SELECT fence.once('k')}, 't', '... then the extension is still there');
is(sqlstate($watch, 'ALTER EXTENSION pg_fence UPDATE'), '', '68: ALTER EXTENSION UPDATE');
gives($other, q{SELECT fence.once('k')}, 'f', '... keeps the keys');

$_->quit foreach $session, $pruner, $locker, $watch, $other;
finish($node);
