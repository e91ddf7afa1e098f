# Statistics: they equal what a driver has counted itself, whatever becomes of its sessions;
# rows that give way, reset, restart; what is durable in fence.resource.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $total = $FenceTest::long ? 100_000 : 10_000;
my $node = fence_node('stats', conf => fence_shared() . 'restart_after_crash = on');
my $watcher = session($node);

sub stat_of
{
	my ($resource, $columns) = @_;

	return sql($watcher, "SELECT $columns FROM fence.stat_resources WHERE resource = '$resource'");
}

sub bucket
{
	my ($column, $from, $to) = @_;

	return "(SELECT sum(n) FROM unnest($column) WITH ORDINALITY u (n, i) WHERE coalesce((fence.histogram_bounds())[i - 1], '0') >= '$from' AND (fence.histogram_bounds())[i] <= '$to')";
}

# Each counter by itself
my $counters = 'attempts, acquired, contended, releases, expirations, takeovers, hand_overs, breaks';
my $session = session($node);
my $token = acquire($session, 'one', 'a');
is(stat_of('one', $counters), '1|1|0|0|0|0|0|0', 'acquired');
sql($session, q{SELECT fence.acquire('one', 'b') FROM generate_series(1, 3)});
is(stat_of('one', $counters), '4|1|3|0|0|0|0|0', 'refused three times');
sql($session, qq{SELECT fence.extend('one', $token)});
is(stat_of('one', $counters), '4|1|3|0|0|0|0|0', 'extended: nothing that is counted');
sql($session, qq{SELECT fence.hand_over('one', $token, 'c')});
is(stat_of('one', $counters), '4|2|3|0|0|0|1|0', 'handed over: granted once more');
sql($session, q{SELECT fence.release('one', 2)});
is(stat_of('one', $counters), '4|2|3|1|0|0|1|0', 'released');
sql($session, q{SELECT fence.acquire('one', 'd'); SELECT fence.break_lease('one')});
is(stat_of('one', $counters), '5|3|3|1|0|0|1|1', 'broken');
sql($session, q{SELECT fence.acquire('one', 'e', '1 ms'); SELECT pg_sleep(0.002); SELECT fence.acquire('one', 'e', '1 ms'); SELECT pg_sleep(0.002)});
is(stat_of('one', $counters), '7|5|3|1|1|0|1|1', 'run out, and acquired again by the same holder');
sql($session, q{SELECT fence.acquire('one', 'f')});
is(stat_of('one', $counters), '8|6|3|1|2|1|1|1', 'run out, and taken over by another one');
gives($watcher, q{SELECT acquisitions, takeovers, hold_max < '1 min', hold_total >= hold_max FROM fence.leases WHERE resource = 'one'}, '6|1|t|t',
	'... as in the row of the resource');
is(stat_of('one', q{(SELECT sum(n) FROM unnest(hold_histogram) n), (SELECT sum(n) FROM unnest(wait_histogram) n)}), '5|0', 'five leases have ended, nobody has waited');
gives($watcher, q{SELECT s.hold_time = l.hold_total FROM fence.stat_resources s JOIN fence.leases l USING (resource) WHERE resource = 'one'}, 't', 'hold times agree');
sql($session, q{SELECT fence.acquire_many('{two,one,two}', 'g')});
is(stat_of('one', 'attempts, acquired, contended'), '9|6|4', 'acquire_many is refused for one');
is(stat_of('two', 'attempts, acquired, contended'), '1|0|0', '... and not for the other');
sql($session, q{SELECT fence.acquire_many('{two,three}', 'g')});
is(stat_of('two', 'attempts, acquired, contended'), '2|1|0', '... or granted both');

# Times go where they belong
sql($session, q{BEGIN; SELECT fence.acquire('timed', 'a', '1 min'); COMMIT; SELECT pg_sleep(0.15); SELECT fence.release('timed', 1)});
is(stat_of('timed', bucket('hold_histogram', '100 ms', '20 s')), 1, 'a lease held for 150 ms');
is(stat_of('timed', q{hold_time BETWEEN '150 ms' AND '30 s'}), 't', '... in the sum');
$token = acquire($session, 'timed', 'a', '1 s');
sql($session, q{SELECT acquired FROM fence.acquire('timed', 'b', '1 min', '1 min')});
is(stat_of('timed', bucket('wait_histogram', '50 ms', '20 s')), 1, 'a wait of about a second');
is(stat_of('timed', q{wait_time BETWEEN '60 ms' AND '30 s', attempts, acquired, contended, takeovers}), 't|3|3|1|1', '... in the sum');
sql($session, q{SELECT acquired FROM fence.acquire('timed', 'c', '1 min', '300 ms')});
is(stat_of('timed', q{attempts, acquired, contended, (SELECT sum(n) FROM unnest(wait_histogram) n)}), '4|3|2|2', 'a wait in vain counts, too');
foreach my $case ([ '55P03', 'lock_timeout', 3 ], [ '57014', 'statement_timeout', 4 ])
{
	my ($state, $timeout, $waits) = @$case;

	refuses($session, qq{SET $timeout = '300 ms'; SELECT acquired FROM fence.acquire('timed', 'c', '1 min', '1 min')}, $state, "$timeout ends a wait");
	sql($session, "RESET $timeout");
	is(stat_of('timed', q{attempts - acquired, (SELECT sum(n) FROM unnest(wait_histogram) n)}), ($waits - 1) . "|$waits", '... which counts');
}
my $waiter = session($node);
my $waiter_pid = $waiter->backend;
$waiter->send(q{SELECT acquired FROM fence.acquire_many('{a,timed}', 'c', '1 min', '1 min')});
wait_for($watcher, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = $waiter_pid");
sql($watcher, "SELECT pg_terminate_backend($waiter_pid)");
$waiter->wait;
wait_for($watcher, q{SELECT sum(n) = 5 FROM fence.stat_resources, unnest(wait_histogram) n WHERE resource = 'timed'});
pass('... one that is terminated, too');
gives($watcher, q{SELECT hold_max BETWEEN '150 ms' AND '30 s', hold_max < hold_total FROM fence.leases WHERE resource = 'timed'}, 't|t', 'the longest time that it was held');
# run out long ago: it was held until then
sql($session, q{SELECT fence.acquire('old', 'a', '1 ms'); SELECT pg_sleep(0.2); SELECT fence.acquire('old', 'b')});
is(stat_of('old', bucket('hold_histogram', '0', '1 ms')), 1, 'a lease that has run out was held until then');
is(stat_of('timed', 'resource'), 'timed', 'a resource that is there');
gives($watcher, q{SELECT fence.histogram_text(hold_histogram) LIKE '%200 ms  #%' OR fence.histogram_text(hold_histogram) LIKE '%s  #%' FROM fence.stat_resources WHERE resource = 'timed'}, 't', 'drawn');

# Under REPEATABLE READ, and in transactions that fail
sql($session, q{BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT fence.check('two', 1); COMMIT});
sqlstate($session, q{BEGIN; SELECT fence.check('two', 1); SELECT fence.acquire('four', 'x'); SELECT 1/0; ROLLBACK});
sql($session, 'ROLLBACK');
is(stat_of('two', 'checks'), 2, 'checks in transactions that commit and that fail');
is(stat_of('four', 'attempts, acquired'), '1|1', 'what is rolled back was counted');
sql($session, q{SELECT fence.check('two', 1) FROM generate_series(1, 1000)});
is(stat_of('two', 'checks'), 3, 'a token counts once in a transaction');

# The driver: it counts for itself what the server answers, each operation once it has the
# answer.  Its sessions are terminated all the time, between two operations.
sql($session, 'SELECT fence.stat_reset()');
my %truth;
my @names = map { "r$_" } 1 .. 20;
my %token = map { $_ => 0 } @names;
my @drivers = map { session($node) } 1 .. 4;
my $killed = 0;
my $done = 0;
my $seed = 4711;

# the same numbers in every run
sub random
{
	my ($below) = @_;

	$seed = ($seed * 1103515245 + 12345) % 2147483648;
	return int($seed / 65536) % $below;
}

# a batch of operations in one round trip, each in a transaction of its own
sub batch
{
	my ($driver, $size) = @_;
	my (@sql, @expect);

	foreach (1 .. $size)
	{
		my $name = $names[ random(scalar @names) ];
		my $kind = random(100);

		$truth{$name}{$_} //= 0 foreach qw(attempts acquired contended releases checks pf001);
		if (!$token{$name} || $kind < 5)
		{
			push @sql, "SELECT acquired FROM fence.acquire('$name', 'driver', '1 hour');";
			$truth{$name}{attempts}++;
			if ($token{$name} && $truth{$name}{held}) { $truth{$name}{contended}++; }
			else
			{
				$truth{$name}{acquired}++;
				$token{$name}++;
				$truth{$name}{held} = 1;
			}
		}
		elsif ($kind < 15 && $truth{$name}{held})
		{
			push @sql, "SELECT fence.release('$name', $token{$name});";
			$truth{$name}{releases}++;
			$truth{$name}{held} = 0;
		}
		elsif ($kind < 20 && $token{$name} > 1)
		{
			push @sql, "SELECT fence.check('$name', $token{$name} - 1);";
			$truth{$name}{checks}++;
			$truth{$name}{pf001}++;
		}
		else
		{
			push @sql, "SELECT fence.check('$name', $token{$name});";
			$truth{$name}{checks}++;
		}
	}
	$driver->ask(join "\n", @sql);
	return;
}

while ($done < $total)
{
	my $i = random(scalar @drivers);

	batch($drivers[$i], 100);
	$done += 100;
	next if random(100) >= 10;
	sql($watcher, 'SELECT pg_terminate_backend(' . $drivers[$i]->backend . ')');
	$drivers[$i]->quit;
	$drivers[$i] = session($node);
	$killed++;
}
note "$done operations, $killed sessions terminated";
my $columns = 'attempts, acquired, contended, releases, checks, pf001, rejections';
foreach my $name (@names)
{
	is(stat_of($name, $columns), join('|', @{ $truth{$name} }{qw(attempts acquired contended releases checks pf001 pf001)}), "$name: as the driver has counted");
	gives($watcher, "SELECT acquisitions FROM fence.leases WHERE resource = '$name'", $truth{$name}{acquired}, '... in its row, too');
}
my ($all) = sql($watcher, 'SELECT sum(attempts + releases + checks) FROM fence.stat_resources');
is($all, $done, 'nothing is lost, and nothing counted twice');
$_->quit foreach @drivers;

# Several at the same time, with pgbench
sql($watcher, 'SELECT fence.stat_reset()');
my ($transactions, $failed) = pgbench($node, [ '-c', 8, '-j', 2, '-t', $total / 20 ], <<'END');
\set n random(1, 10)
SELECT fence.check('bench ' || :n, 1);
END
is($failed, '', 'pgbench');
gives($watcher, q{SELECT sum(checks), count(*) FROM fence.stat_resources}, "$transactions|10", '8 clients at the same time');

# Rows that give way: the sums stay, and nobody is refused for that
sub restart_with
{
	my ($conf) = @_;

	$watcher->quit;
	$session->quit;
	$node->append_conf('postgresql.conf', $conf);
	$node->restart;
	$watcher = session($node);
	$session = session($node);
	return;
}

restart_with('pg_fence.max_resources = 10');
gives($watcher, 'SELECT count(*) FROM fence.stat_resources', 0, 'after a restart all is zero');
gives($watcher, q{SELECT acquisitions > 0 FROM fence.leases WHERE resource = 'r1'}, 't', '... but not what is in the table');
foreach my $i (1 .. 100)
{
	$session->does(qq{SELECT fence.check('often', 1)});
	$session->does(qq{SELECT fence.check('seldom $i', 1)});
}
gives($watcher, 'SELECT count(*), sum(checks), count(*) FILTER (WHERE resource IS NULL) FROM fence.stat_resources', '10|200|1', 'ten rows are kept, nothing is lost');
is(stat_of('often', 'checks'), 100, 'what is used often stays');
sql($watcher, 'CREATE DATABASE other');
my $other = session($node, dbname => 'other');
$other->does('CREATE EXTENSION pg_fence');
$other->does(qq{SELECT fence.check('other $_', 1)}) foreach 1 .. 50;
gives($other, 'SELECT sum(checks), count(*) <= 10 FROM fence.stat_resources', '50|t', 'another database takes its share');
gives($watcher, 'SELECT sum(checks) FROM fence.stat_resources', 200, '... and the sum here stays');
($transactions, $failed) = pgbench($node, [ '-c', 8, '-j', 2, '-t', $total / 40 ], <<'END');
\set n random(1, 1000)
SELECT fence.check('many ' || :n, 1);
END
is($failed, '', 'with rows that give way all the time nobody fails');
gives($watcher, 'SELECT sum(checks) FROM fence.stat_resources', $transactions + 200, '... and the sum is right');
# a look in between never finds less than the one before
my $load = start_pgbench($node, [ '-c', 3, '-T', $FenceTest::long ? 60 : 5 ], <<'END');
\set n random(1, 300)
SELECT fence.check('many ' || :n, 1);
END
is(sqlstate($watcher, q{
	DO $$
	DECLARE
		checked numeric;
		before numeric := 0;
	BEGIN
		FOR i IN 1 .. 20000 LOOP
			SELECT sum(checks) INTO checked FROM fence.stat_resources;
			ASSERT checked >= before;
			before := checked;
		END LOOP;
	END $$}), '', '... and never falls');
(undef, $failed) = finish_pgbench($load);
is($failed, '', '... whoever looks');
sql($watcher, 'SELECT fence.stat_reset()');
gives($watcher, 'SELECT count(*) FROM fence.stat_resources', 0, 'reset');
gives($other, 'SELECT sum(checks) FROM fence.stat_resources', 50, '... for this database only');
$other->quit;
# no room at all: one row only, and more databases than rows
restart_with('pg_fence.max_resources = 1');
foreach my $i (1 .. 3)
{
	is(sqlstate($session, "SELECT fence.check('tight $i', 1)"), '', "one row only, resource $i");
}
gives($watcher, 'SELECT count(*), count(resource), sum(checks) FROM fence.stat_resources', '1|0|3', '... counts them all together');
$other = session($node, dbname => 'other');
sql($other, q{SELECT fence.check('here', 1)});
gives($other, 'SELECT resource, checks FROM fence.stat_resources', 'here|1', '... and gives way to another database');
sql($other, q{SELECT fence.check('there', 1)});
gives($other, 'SELECT count(*), count(resource), sum(checks) FROM fence.stat_resources', '1|0|2', '... which counts on in it');
gives($watcher, 'SELECT count(*) FROM fence.stat_resources', 0, '... alone');
sql($session, q{SELECT fence.check('tight 1', 1)});
gives($watcher, 'SELECT resource, checks FROM fence.stat_resources', 'tight 1|1', '... until it has to give way itself');
$other->quit;
# one row and the rest, with everybody after it
restart_with('pg_fence.max_resources = 2');
($transactions, $failed) = pgbench($node, [ '-c', 8, '-j', 2, '-t', $total / 40 ], <<'END');
\set n random(1, 3)
SELECT fence.check('row ' || :n, 1);
END
is($failed, '', 'two rows, 8 clients');
gives($watcher, 'SELECT sum(checks), count(*) FROM fence.stat_resources', "$transactions|2", '... nothing is lost');

# A backend that is killed takes the memory of all with it, but no verdict and no lease
restart_with('pg_fence.max_resources = 100');
$token = acquire($session, 'crash', 'a', '1 hour');
my $pid = $session->backend;
kill 'KILL', $pid;
$session->quit;
$watcher->quit;
$node->poll_query_until('postgres', 'SELECT true');
$watcher = session($node);
gives($watcher, 'SELECT count(*) FROM fence.stat_resources', 0, 'after a crash all is zero');
gives($watcher, q{SELECT state, acquisitions FROM fence.leases WHERE resource = 'crash'}, 'held|1', '... but not what is in the table');
is(sqlstate($watcher, qq{SELECT fence.check('crash', $token)}), '', '... and it goes on');
is(stat_of('crash', 'checks'), 1, '... counting');
$watcher->quit;

done_testing();
