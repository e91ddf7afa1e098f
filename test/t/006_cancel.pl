# Waiting can be ended: cancel, terminate, statement_timeout, lock_timeout and a fast
# shutdown act at once on a session that waits in acquire() or at the gate of a resource.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = fence_node('cancel');
my $watch = session($node);

my $at_once = $FenceTest::at_once;

acquire($node, 'held', 'a', '1 hour');

# 'prepared' has expired, but a prepared transaction of its holder is still there.
acquire($node, 'prepared', 'a', '1 hour');
sql($node, q{
	BEGIN;
	SELECT fence.check('prepared', 1);
	CREATE TABLE of_prepared ();
	PREPARE TRANSACTION 'p';
	SELECT fence.release('prepared', 1)});

# 'external' has a newer token that is not committed yet, and so has 'acquired'.
sql($node, q{SELECT fence.check('external', 10)});
my $newer = session($node);
$newer->does(q{BEGIN; SELECT fence.check('external', 20)});
$newer->does(q{SELECT token FROM fence.acquire('acquired', 'a', '1 hour')});

# Each of these waits: for a lease (not in a queue of the lock manager), or for a lock.
my %waits = (
	'acquire a held lease' => [ 'Extension', q{SELECT fence.acquire('held', 'b', wait => '5 minutes')} ],
	'acquire what is being acquired' => [ 'Extension', q{SELECT fence.acquire('acquired', 'b', wait => '5 minutes')} ],
	'acquire from a prepared holder' => [ 'Lock', q{SELECT fence.acquire('prepared', 'b', wait => '5 minutes')} ],
	'check a newer token' => [ 'Lock', q{SELECT fence.check('external', 21)} ],
	'check the token that is being presented' => [ 'Lock', q{SELECT fence.check('external', 20)} ],
	'raise a mark' => [ 'Lock', q{SELECT fence.raise_mark('external', 30)} ]);

sub begin_waiting
{
	my ($kind, $session) = @_;
	my ($event, $statement) = @{ $waits{$kind} };

	$session->send($statement);
	wait_for($watch, "SELECT wait_event_type = '$event' FROM pg_stat_activity WHERE pid = " . $session->backend);
	return time;
}

sub usable
{
	my ($session, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return gives($session, q{SELECT fence.mark('held')}, 1, "$test_name: the session goes on");
}

foreach my $kind (sort keys %waits)
{
	my $session = session($node);
	my $backend = $session->backend;
	my ($event, $statement) = @{ $waits{$kind} };
	my $start;

	# pg_cancel_backend
	$start = begin_waiting($kind, $session);
	$watch->does("SELECT pg_cancel_backend($backend)");
	is($session->wait->sqlstate, '57014', "$kind: cancel");
	under(time - $start, $at_once, '... at once');
	usable($session, $kind);

	# the same in a transaction, with a savepoint: it can go on
	$session->does('BEGIN; SAVEPOINT s');
	$start = begin_waiting($kind, $session);
	$watch->does("SELECT pg_cancel_backend($backend)");
	is($session->wait->sqlstate, '57014', "$kind: cancel in a transaction");
	$session->does(q{ROLLBACK TO s; SELECT fence.check('held', 1); COMMIT});
	gives($watch, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = $backend", 0, '... which leaves no locks');

	# statement_timeout, lock_timeout: counted from the start of the statement
	$session->ask("SET statement_timeout = '200ms'; $statement");
	is($session->sqlstate, '57014', "$kind: statement_timeout");
	cmp_ok($session->seconds, '>=', 0.2, '... not before its time');
	under($session->seconds, 0.2 + $at_once, '... and not long after');
	usable($session, $kind);
	$session->does('RESET statement_timeout');

	$session->ask("SET lock_timeout = '200ms'; $statement");
	is($session->sqlstate, '55P03', "$kind: lock_timeout");
	cmp_ok($session->seconds, '>=', 0.2, '... not before its time');
	under($session->seconds, 0.2 + $at_once, '... and not long after');
	usable($session, $kind);
	$session->does('RESET lock_timeout');

	# pg_terminate_backend
	$start = begin_waiting($kind, $session);
	$watch->does("SELECT pg_terminate_backend($backend)");
	is($session->wait->sqlstate, '57P01', "$kind: terminate");
	under(time - $start, $at_once, '... at once');
	$session->quit;
}

# Nobody else was disturbed.
is(sqlstate($node, q{BEGIN; SELECT fence.check('held', 1, 'a', 'postgres'); COMMIT}), '', 'the holder never noticed');
is(sqlstate($newer, 'COMMIT'), '', 'nor did the newer holder');
gives($watch, q{SELECT fence.mark('external'), fence.mark('acquired')}, '20|1', '... whose tokens are in force');
sql($node, q{COMMIT PREPARED 'p'});
$newer->quit;

# A11: a bounded wait ends with an answer, and the lease that was waited for lives as long
# as it would have.
my $expires = $watch->does(q{SELECT expires_at FROM fence.leases WHERE resource = 'held'});
my $waiter = session($node);
$waiter->backend;
$waiter->ask(q{SELECT acquired, token IS NULL, held_by, reason FROM fence.acquire('held', 'b', '1 minute', '1 second')});
is($waiter->output, 'f|t|a|held', 'a bounded wait ends with a refusal');
cmp_ok($waiter->seconds, '>=', 1, '... not before its time');
under($waiter->seconds, 1 + $at_once, '... and not long after');
gives($watch, q{SELECT expires_at FROM fence.leases WHERE resource = 'held'}, $expires, '... and has changed nothing');

# A wait that is longer than lock_timeout or statement_timeout, but does not get there
sql($node, q{SELECT fence.acquire('short', 'a', '300 ms')});
is($waiter->does(q{
		SET lock_timeout = '20s'; SET statement_timeout = '20s';
		SELECT acquired, token FROM fence.acquire('short', 'b', '1 minute', '1 minute')}),
	't|2', 'an expired lease is taken over by who waits');
under($waiter->seconds, 10, '... without waiting for more');
$waiter->does('RESET ALL');

# The wait ends when the holder releases.
$waiter->send(q{SELECT acquired, token, held_by FROM fence.acquire('held', 'b', '1 minute', '5 minutes')});
wait_for($watch, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $waiter->backend);
my $start = time;
$watch->does(q{SELECT fence.release('held', 1)});
is($waiter->wait->output, 't|2|b', 'a waiter gets what is released');
under(time - $start, $at_once, '... at once');

# The client goes away while it waits.
my $lost = session($node, options => '-c client_connection_check_interval=100ms');
my $backend = $lost->backend;
$lost->send(q{SELECT fence.acquire('held', 'c', wait => '5 minutes')});
wait_for($watch, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $backend");
$lost->kill('KILL');
$lost->quit;
$start = time;
wait_for($watch, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $backend");
under(time - $start, 30, 'a client that has gone is noticed, where the server looks for it');

# A fast shutdown, with waiters of each kind
$newer = session($node);
$newer->does(q{BEGIN; SELECT fence.check('external', 40)});
my @waiters;
foreach my $statement (q{SELECT fence.acquire('held', 'c', wait => '5 minutes')}, q{SELECT fence.check('external', 41)})
{
	my $session = session($node);
	my $pid = $session->backend;
	$session->send($statement);
	wait_for($watch, "SELECT wait_event_type IN ('Extension', 'Lock') FROM pg_stat_activity WHERE pid = $pid");
	push @waiters, $session;
}
$start = time;
$node->stop('fast');
under(time - $start, 60, 'a fast shutdown waits for none of them');
is($_->wait->sqlstate, '57P01', 'they are told so') foreach @waiters;
$_->quit foreach $watch, $waiter, $newer, @waiters;

finish($node);
