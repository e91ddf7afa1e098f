# Waiting for Redis can be ended, costs no more than it has to, and leaves nothing behind:
# cancel, terminate, statement_timeout, fast shutdown, signals, the breaker.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use RedisTest;
use Test::More;
use Time::HiRes qw(time);

my $node = fence_node('waits', conf => 'max_connections = 60');
my $redis = redis('waits');
my $watch = session($node);

# Waited for is half a minute; all of these act at once.
my $at_once = $FenceTest::at_once;
my $full = full_listener();
redis_server($watch, 's', $redis, timeout_ms => 30000, breaker_ms => 0);
redis_server($watch, 'late', $redis, timeout_ms => 30000, breaker_ms => 0, validate => 'commit');
redis_server($watch, 'connecting', $full, timeout_ms => 30000, breaker_ms => 0);
$watch->does(q{
	CREATE TABLE hot (id int PRIMARY KEY, qty int);
	INSERT INTO hot VALUES (1, 0)});
$redis->does('SET', $_, 'a', 'PX', 600000) foreach qw(mine new);
$redis->does('SET', 'others', 'b', 'PX', 600000);
$watch->does(q{SELECT fence.acquire('held', 'a', '1 day', lease => 's')});

# D03: each of these waits for Redis, in a transaction that has locked a row.
my %waits = (
	check => q{SELECT fence.check('mine', 1, 'a', 's')},
	commit => q{SELECT fence.check('mine', 1, 'a', 'late'); COMMIT},
	connect => q{SELECT fence.check('mine', 1, 'a', 'connecting')},
	acquire => q{SELECT fence.acquire('free', 'a', lease => 's')},
	extend => q{SELECT fence.extend('held', 1, '1 day')},
	release => q{SELECT fence.release('held', 1)},
	hand_over => q{SELECT fence.hand_over('held', 1, 'b')},
	break_lease => q{SELECT fence.break_lease('held')});

sub begin_waiting
{
	my ($session, $sql) = @_;
	my $backend = $session->backend;

	$session->send("BEGIN; UPDATE hot SET qty = qty + 1 WHERE id = 1; $sql");
	wait_for($watch, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $backend");
	return time;
}

sub frees
{
	my ($backend, $sockets, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	gives($watch, "SELECT count(*) FROM pg_locks WHERE pid = $backend AND (mode = 'RowExclusiveLock' OR locktype = 'advisory')",
		0, "$test_name: no locks are left");
	return is(sockets_of($backend), $sockets, '... and no socket');
}

foreach my $kind (sort keys %waits)
{
	my $sql = $waits{$kind};
	my $session = session($node);
	my $backend = $session->backend;
	my $sockets = sockets_of($backend);
	my $start;

	# with a connection kept from before, and with none
	foreach my $kept (1, 0)
	{
		my $how = $kept ? 'on a kept connection' : 'on a new one';
		next if $kept && $kind eq 'connect';
		$session->does(sprintf q{SELECT fence.check('mine', 1, 'a', '%s')}, $kind eq 'commit' ? 'late' : 's') if $kept;
		$redis->freeze;

		$start = begin_waiting($session, $sql);
		$watch->does("SELECT pg_cancel_backend($backend)");
		is($session->wait->sqlstate, '57014', "$kind: cancel, $how");
		under(time - $start, $at_once, '... at once');
		frees($backend, $sockets, '... cancelled');
		$session->does('ROLLBACK');
		$redis->thaw;
	}
	# which PostgreSQL switches off before a commit
	if ($kind ne 'commit')
	{
		$redis->freeze;
		$session->ask("SET statement_timeout = '200ms'; BEGIN; UPDATE hot SET qty = 0; $sql");
		is($session->sqlstate, '57014', "$kind: statement_timeout");
		under($session->seconds, 0.2 + $at_once, '... at once');
		$session->does('ROLLBACK; RESET statement_timeout');
		frees($backend, $sockets, '... timed out');
	}

	# D04: what is answered after all, is not for the next one
	$redis->thaw;
	refuses($session, q{SELECT fence.check('others', 1, 'a', 's')}, 'PF005', '... the next question has its own answer');
	gives($session, q{SELECT fence.check('mine', 1, 'a', 's')}, 't', '... and so has the one after that');

	$redis->freeze;
	$start = begin_waiting($session, $sql);
	$watch->does("SELECT pg_terminate_backend($backend)");
	is($session->wait->sqlstate, '57P01', "$kind: terminate");
	under(time - $start, $at_once, '... at once');
	wait_for($watch, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $backend");
	$session->quit;
	$redis->thaw;
	wait_until('Redis has seen them go', sub { $redis->info('connected_clients') <= 2 });
}
gives($watch, q{SELECT state FROM fence.leases WHERE resource = 'held'}, 'held', 'nothing of it has happened');
gives($watch, 'SELECT qty FROM hot', 0, '... at all');
is(sqlstate($watch, q{BEGIN; SELECT fence.check('held', 1, 'a', 'postgres'); COMMIT}), '', 'the holder never noticed');

# D04: interrupted within a savepoint, the transaction goes on and asks again.
my $session = session($node);
my $backend = $session->backend;
$session->does(q{SELECT fence.check('mine', 1, 'a', 's'); BEGIN; SAVEPOINT a});
$redis->freeze;
$session->send(q{SELECT fence.check('mine', 1, 'a', 's')});
wait_for($watch, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $backend");
$watch->does("SELECT pg_cancel_backend($backend)");
is($session->wait->sqlstate, '57014', 'cancel in a savepoint');
$session->does('ROLLBACK TO a');
$redis->thaw;
refuses($session, q{SELECT fence.check('others', 1, 'a', 's')}, 'PF005', '... another question');
$session->does('ROLLBACK TO a');
gives($session, q{SELECT fence.check('mine', 1, 'a', 's')}, 't', '... and the same one again');
is(sqlstate($session, 'UPDATE hot SET qty = 1; COMMIT'), '', '... commits');
$session->quit;

# ---------------------------------------------------------------- signals (D02)

redis_server($watch, 'second', $redis, timeout_ms => 2000, breaker_ms => 0);
redis_server($watch, 'second_connecting', $full, timeout_ms => 2000, breaker_ms => 0);
foreach my $server (qw(second second_connecting))
{
	my $disturbed = session($node);
	$backend = $disturbed->backend;
	$redis->freeze;
	foreach my $signals ([], [ [qw(USR1)] ], [ [qw(USR1 URG)], [qw(HUP USR1)] ])
	{
		my $name = join ', ', map { @$_ } @$signals;
		my $sent = 0;

		$disturbed->send("SELECT fence.check('mine', 1, 'a', '$server')");
		until ($disturbed->finished($sent == 0 ? 0.05 : 0.3))
		{
			$sent++;
			kill $_, $backend foreach map { @$_ } @$signals;
			$watch->does(q{COMMENT ON TABLE hot IS 'catalog traffic'});
		}
		is($disturbed->sqlstate, 'PF006', "D02: $server: " . ($name || 'undisturbed'));
		cmp_ok($disturbed->seconds, '>=', 2, '... not before its time');
		under($disturbed->seconds, 2 + $at_once, '... and not stretched');
		cmp_ok($sent, '>=', 2, '... by signals') if $name;
	}
	$redis->thaw;
	$disturbed->quit;
}

# D05: what answered once, and is mute after a restart
my $fake = fake_redis(behind => $redis);
redis_server($watch, 'f', $fake, timeout_ms => 300, breaker_ms => 0);
$session = session($node);
gives($session, q{SELECT fence.check('mine', 1, 'a', 'f')}, 't', 'D05: connected');
$fake->stop->start;
$fake->behave(mute => 1);
$session->ask(q{SELECT fence.check('mine', 1, 'a', 'f')});
is($session->sqlstate, 'PF006', 'D05: mute after a restart');
under($session->seconds, $at_once, '... the time limit is still there');

# ---------------------------------------------------------------- breaker (D12)

my $check = q{SELECT fence.check('mine', 1, 'a', 'f')};

# Redis is mute: how long does each of these statements take?
sub breaker
{
	my ($other_state, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my @sessions = map { session($node) } 1, 2;
	my $start;

	$_->does($check) foreach @sessions;
	$fake->behave(mute => 1);
	$start = time;
	$sessions[0]->ask(q{UPDATE many SET qty = 1 WHERE fence.check('mine', 1, 'a', 'f')});
	is($sessions[0]->sqlstate, 'PF006', "$test_name: a thousand rows without an answer");
	under($sessions[0]->seconds, $at_once, '... wait once');
	foreach my $round (1 .. 5)
	{
		$sessions[0]->ask($check);
		is($sessions[0]->sqlstate, 'PF006', '... then, no question');
		under($sessions[0]->seconds, 0.9, '... and no waiting');
	}
	like(says($sessions[0], $check), qr/not tried again/, '... and it says so');
	is($fake->counts->{commands}, 1, '... has been asked once');
	$fake->behave;
	is(sqlstate($sessions[0], $check), 'PF006', '... is not asked, although it would answer');
	is($fake->counts->{commands}, 0, '... really not');
	is(sqlstate($sessions[1], $check), $other_state, '... another session');
	wait_until('the breaker closes', sub { sqlstate($sessions[0], $check) eq '' });
	cmp_ok(time - $start, '>=', 1 + 5, '... not before its time');
	$_->quit foreach @sessions;
	return;
}

$watch->does('CREATE TABLE many (id int, qty int); INSERT INTO many SELECT i, 0 FROM generate_series(1, 1000) i');
$fake->behave;
alter_server($watch, 'f', timeout_ms => 1000, breaker_ms => 5000);
# From 17 on, there is shared memory without preloading.
breaker($node->pg_version < 17 ? '' : 'PF006', 'breaker');

# Changed options are tried at once.
sub repaired
{
	my ($test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	alter_server($watch, 'f', breaker_ms => 600000, socket => '/nowhere/redis.sock');
	refuses($session, $check, 'PF006', "$test_name: a wrong address") foreach 1, 2;
	alter_server($watch, 'f', $fake->address);
	gives($session, $check, 't', '... is put right');
	alter_server($watch, 'f', breaker_ms => 5000);
	return;
}
repaired('breaker');

# What is no failure of the server, does not open it.
foreach my $harmless ([ wrongtype => 'PF007' ], [ others => 'PF005' ], [ absent => 'PF005' ])
{
	my ($resource, $state) = @$harmless;

	$redis->does(qw(HSET wrongtype a b));
	refuses($session, "SELECT fence.check('$resource', 1, 'a', 'f')", $state, "breaker: $resource");
	gives($session, $check, 't', '... is about one key only');
}
$session->quit;

# D12: many sessions, one hot row, a slow Redis: they ask before they lock the row.
$fake->behave(delay => 0.5);
alter_server($watch, 'f', timeout_ms => 10000);
my $start = time;
my ($count, $failed) = pgbench($node, [qw(-c 20 -j 2 -t 1)],
	"UPDATE hot SET qty = qty + 1 WHERE id = 1 AND fence.check('mine', 1, 'a', 'f');");
is($failed, '', 'D12: twenty sessions and one row');
is($count, 20, '... all are done');
under(time - $start, 20 * 0.5 / 2, '... and have not queued up');
$fake->behave;

wait_until('all have gone', sub { $fake->counts->{open} == 0 });
pass('no connection outlives its session');

# ---------------------------------------------------------------- with shared memory

$node->append_conf('postgresql.conf', sprintf(q{shared_preload_libraries = '%s'}, fence_library()));
$watch->quit;
$node->restart;
$watch = session($node);
$session = session($node);
$fake->behave;
alter_server($watch, 'f', timeout_ms => 1000, breaker_ms => 5000);
breaker('PF006', 'shared breaker');
repaired('shared breaker');
gives($watch, $check, 't', '... for other sessions, too');
$session->quit;

# ---------------------------------------------------------------- too many connections

# Half of what a backend may have open is for itself.
$node->append_conf('postgresql.conf', 'max_files_per_process = 100');
$watch->quit;
$node->restart;
$watch = session($node);
redis_server($watch, "many$_", $redis, timeout_ms => 5000) foreach 1 .. 60;
$session = session($node);
my @states = map { sqlstate($session, "SELECT fence.check('mine', 1, 'a', 'many$_')") } 1 .. 60;
is($states[0], '', 'a connection');
is($states[-1], '53000', '... more than there may be');
gives($session, q{SELECT fence.check('mine', 1, 'a', 'many1')}, 't', '... those that are there go on');
$session->quit;

# ---------------------------------------------------------------- fast shutdown

my @sessions;
$redis->freeze;
foreach my $kind (sort keys %waits)
{
	my $waiting = session($node);
	my $pid = $waiting->backend;

	$waiting->send("BEGIN; $waits{$kind}");
	wait_for($watch, "SELECT wait_event_type IN ('Extension', 'Lock') FROM pg_stat_activity WHERE pid = $pid");
	push @sessions, $waiting;
}
my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /\A(\d+)/;
$start = time;
kill 'INT', $postmaster;
is($_->wait->sqlstate, '57P01', 'fast shutdown') foreach @sessions;
under(time - $start, $at_once, '... at once');
$_->quit foreach $watch, @sessions;
$node->stop('fast', fail_ok => 1);
$redis->thaw;

finish($node);
