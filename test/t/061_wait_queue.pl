# Waiters of a lease in shared memory: served in the order of arrival, woken at once when the
# lease is given back, and not held up by one that is stuck or gone.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $rounds = $FenceTest::long ? 500 : 60;
my $node = fence_node('wait_queue', conf => fence_shared());

sub waiters
{
	return q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query LIKE '%fence.acquire%' AND pid <> pg_backend_pid()};
}

sub wait_for_waiters
{
	my ($count) = @_;

	return wait_for($node, 'SELECT (' . waiters() . ") = $count");
}

sub request
{
	my ($resource, $holder) = @_;

	return qq{SELECT acquired, token, clock_timestamp() AS "at" FROM fence.acquire('$resource', '$holder', '1 min', '1 min')};
}

# In the order of arrival: each waiter gives the lease back, so it goes through the queue.
my $holder = session($node);
my $token = acquire($holder, 'queue', 'holder');
my @queue = map { session($node) } 1 .. 5;
my $arrived = 0;
foreach my $waiter (@queue)
{
	$waiter->send(qq{SELECT fence.release('queue', token) AND acquired FROM fence.acquire('queue', '$waiter->{name}', '1 min', '1 min')});
	wait_for_waiters(++$arrived);
}
if ($node->pg_version >= 17)
{
	gives($node, q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'FenceAcquire'}, 5, 'what they wait for has a name');
}
# Somebody who comes now does not get it before them, even if it looks free to him.  In one
# transaction: whoever is called and gets no processor for a tenth of a second has lost his turn.
gives($holder, qq{BEGIN; SELECT fence.release('queue', $token); SELECT acquired FROM fence.acquire('queue', 'latecomer'); COMMIT}, "t\nf", 'a latecomer stands back');
$_->wait foreach @queue;
is(join(' ', map { $_->output } @queue), 't t t t t', 'all waiters get the lease');
gives($node, q{SELECT acquisitions, takeovers FROM fence.leases WHERE resource = 'queue'}, '6|0', '... once each');
$token = acquire($holder, 'queue', 'holder');
gives($holder, q{SELECT array_agg(acquired) FROM fence.acquire_many('{queue,other}', 'x')}, '{f,f}', '... and the queue is empty again');
sql($holder, qq{SELECT fence.release('queue', $token)});

# Whose turn it was, from the record: the tokens rise with the arrival.
my @served;
$token = acquire($holder, 'order', 'holder');
foreach my $i (0 .. 4)
{
	$queue[$i]->send(request('order', "waiter $i"));
	wait_for_waiters($i + 1);
}
sql($holder, qq{SELECT fence.release('order', $token)});
foreach my $i (0 .. 4)
{
	$queue[$i]->wait;
	push @served, (split /\|/, $queue[$i]->output)[1];
	sql($holder, qq{SELECT fence.release('order', $served[-1])}) if $served[-1];
}
is("@served", '2 3 4 5 6', 'first come, first served');

# How soon: from the release of one to the grant of the next.
my ($ping, $pong) = @queue;
my @delays;
my $own = acquire($ping, 'ping', 'ping');
foreach my $round (1 .. $rounds)
{
	$pong->send(qq{SELECT token, extract(epoch FROM clock_timestamp()) FROM fence.acquire('ping', 'pong', '1 min', '1 min')});
	wait_for_waiters(1);
	# the lease is free for others when the release has committed
	my $released = sql($ping, qq{BEGIN; SELECT fence.release('ping', $own); SELECT extract(epoch FROM clock_timestamp()); COMMIT});
	$released =~ s/.*\n//s;
	$pong->wait;
	($own, my $granted) = split /\|/, $pong->output;
	push @delays, ($granted - $released) * 1000;
	($ping, $pong) = ($pong, $ping);
}
@delays = sort { $a <=> $b } @delays;
note sprintf 'ms from release to grant: median %.2f, 95 %% %.2f, max %.2f', $delays[ @delays / 2 ], $delays[ @delays * 0.95 ], $delays[-1];
# who is not woken looks four times a second
cmp_ok($delays[ @delays / 2 ], '<', 50, sprintf('woken, at the median within %.2f ms', $delays[ @delays / 2 ]));
sql($ping, qq{SELECT fence.release('ping', $own)});

# break_lease() wakes, and so does the end of a transaction that has released.
$token = acquire($holder, 'end', 'holder');
$ping->send(request('end', 'ping'));
wait_for_waiters(1);
sql($node, q{SELECT fence.break_lease('end')});
like($ping->wait->output, qr/^t\|3\|/, 'woken by break_lease');
$pong->send(request('end', 'pong'));
wait_for_waiters(1);
$ping->does(q{BEGIN; SELECT fence.release('end', 3)});
ok(!$pong->finished(0.3), 'a release that is not committed wakes nobody');
$ping->does('ROLLBACK');
ok(!$pong->finished(0.3), '... nor one that is rolled back');
$ping->does(q{SELECT fence.release('end', 3)});
like($pong->wait->output, qr/^t\|4\|/, '... a committed one does');
sql($pong, q{SELECT fence.release('end', 4)});

# A lease that runs out is noticed without being told.
sql($holder, q{SELECT fence.acquire('short', 'holder', '300 ms')});
my $start = time;
like($ping->ask(request('short', 'ping')), qr/^t\|2\|/, 'a lease that runs out');
under(time - $start, $FenceTest::at_once, '... is noticed soon');

# Gone from the queue: cancelled, terminated, timed out, rolled back to a savepoint.  Each that
# was still in there would cost a turn of 100 ms.
$token = acquire($holder, 'gone', 'holder');
my @gone;
foreach my $round (1 .. 10)
{
	@gone = map { session($node) } 1 .. 4;
	my @pids = map { $_->backend } @gone;
	$gone[0]->send(request('gone', 'cancelled'));
	$gone[1]->send(request('gone', 'terminated'));
	wait_for_waiters(2);
	$gone[2]->does(q{SET lock_timeout = '20 ms'});
	$gone[2]->send(request('gone', 'timed out'));
	$gone[3]->does(q{BEGIN; SAVEPOINT s; SET LOCAL statement_timeout = '20 ms'});
	$gone[3]->send(request('gone', 'rolled back'));
	is($gone[2]->wait->sqlstate, '55P03', 'lock_timeout ends the wait');
	is($gone[3]->wait->sqlstate, '57014', 'statement_timeout ends the wait');
	$gone[3]->does('ROLLBACK TO s');
	sql($node, "SELECT pg_cancel_backend($pids[0]), pg_terminate_backend($pids[1])");
	is($gone[0]->wait->sqlstate, '57014', 'cancelled');
	like($gone[1]->wait->sqlstate, qr/^(57P01|08006)$/, 'terminated');
	last if $round == 10;
	$_->quit foreach @gone;
}
$ping->send(request('gone', 'last'));
wait_for_waiters(1);
$start = time;
sql($holder, qq{SELECT fence.release('gone', $token)});
like($ping->wait->output, qr/^t\|2\|/, 'the last one has not to wait for those who have gone');
under(time - $start, 0.8, '... not for ten turns');
$gone[3]->does('COMMIT');
is(acquire($gone[3], 'gone 2', 'x'), 1, 'and their sessions go on');

# Eight wait; those who go, in whatever way, do not change the order of the others.
my @eight = map { session($node) } 1 .. 8;
my @eight_pids = map { $_->backend } @eight;
$token = acquire($holder, 'eight', 'holder');
$eight[3]->does(q{SET lock_timeout = '1 s'});
$eight[5]->does(q{SET statement_timeout = '1 s'});
foreach my $i (0 .. 7)
{
	$eight[$i]->send(request('eight', "waiter $i"));
	# two of them may have gone by now
	wait_for($node, "SELECT query LIKE '%waiter $i%' AND (wait_event_type = 'Extension' OR state = 'idle') FROM pg_stat_activity WHERE pid = $eight_pids[$i]");
}
sql($node, "SELECT pg_cancel_backend($eight_pids[0]), pg_terminate_backend($eight_pids[2])");
is(join(' ', map { $eight[$_]->wait->sqlstate } 0, 3, 5), '57014 55P03 57014', 'four of eight waiters go: cancelled, lock_timeout, statement_timeout');
like($eight[2]->wait->sqlstate, qr/^(57P01|08006)$/, '... terminated');
sql($holder, qq{SELECT fence.release('eight', $token)});
my @order;
foreach my $i (1, 4, 6, 7)
{
	$eight[$i]->wait;
	my ($acquired, $own_token) = split /\|/, $eight[$i]->output;
	push @order, $own_token;
	sql($holder, qq{SELECT fence.release('eight', $own_token)});
}
is("@order", '2 3 4 5', '... and the others are served in their order');

# Cancelled at the very moment when it is woken: before, when or after the release commits.
# Stopped in between, it has been woken and is cancelled.  The next one is woken instead, and
# does not find out by itself, some time within the next 250 ms.
my ($first, $second) = @eight[ 0, 1 ];
my $cancel = "pg_cancel_backend($eight_pids[0])";
my ($granted, $cancelled) = (0, 0);
my %late = map { $_ => [] } qw(before after stopped);
foreach my $round (1 .. $rounds)
{
	my $resource = "moment $round";
	my $when = (sort keys %late)[ $round % 3 ];

	$token = acquire($holder, $resource, 'holder');
	$first->send(request($resource, 'first'));
	wait_for_waiters(1);
	$second->send(request($resource, 'second'));
	wait_for_waiters(2);
	kill 'STOP', $eight_pids[0] if $when eq 'stopped';
	sql($holder, $when eq 'before' ? "BEGIN; SELECT fence.release('$resource', $token), $cancel; COMMIT"
		: "SELECT fence.release('$resource', $token); SELECT $cancel");
	kill 'CONT', $eight_pids[0] if $when eq 'stopped';
	$first->wait;
	my $left = time;
	$granted += $first->output =~ /^t/;
	$cancelled += $first->sqlstate eq '57014';
	sql($holder, "SELECT fence.release('$resource', 2)") if $first->output =~ /^t/;
	$second->wait;
	push @{ $late{$when} }, time - $left;
	die 'not granted: ' . $second->output unless $second->output =~ /^t/;
}
is($granted + $cancelled, $rounds, 'cancelled at the moment when it is woken: granted or cancelled');
foreach my $when (sort keys %late)
{
	my @sorted = sort { $a <=> $b } @{ $late{$when} };

	under($sorted[ @sorted / 2 ], 0.05, "... $when: the next one is woken");
	under($sorted[-1], 2, '... each time');
}

# Nobody overtakes the one who has been called, not even a session that has done nothing so far.
# Where that takes more than a tenth of a second, the turn has passed.
my $stood_back = 0;
my $called_pid = $ping->backend;
foreach my $try (1 .. 5)
{
	my $resource = "fresh $try";
	my $fresh = session($node);

	$fresh->does('SELECT 1');
	$token = acquire($holder, $resource, 'holder');
	$ping->send(request($resource, 'called'));
	wait_for_waiters(1);
	kill 'STOP', $called_pid;
	sql($holder, qq{SELECT fence.release('$resource', $token)});
	$stood_back = $fresh->ask("SELECT acquired FROM fence.acquire('$resource', 'fresh')") eq 'f';
	kill 'CONT', $called_pid;
	sql($fresh, qq{SELECT fence.break_lease('$resource')}) unless $stood_back;
	like($ping->wait->output, qr/^t/, 'who was called gets the lease');
	$fresh->quit;
	last if $stood_back;
}
ok($stood_back, '... before a session that has just come');

# Stuck: a waiter that is stopped lets its turn pass.
$token = acquire($holder, 'stuck', 'holder');
my $stuck = session($node);
my $pid = $stuck->backend;
$stuck->send(request('stuck', 'stuck'));
wait_for_waiters(1);
$ping->send(request('stuck', 'next'));
wait_for_waiters(2);
kill 'STOP', $pid;
$start = time;
sql($holder, qq{SELECT fence.release('stuck', $token)});
like($ping->wait->output, qr/^t\|2\|/, 'a stopped waiter does not hold up the next one');
under(time - $start, $FenceTest::at_once, '... for long');
kill 'CONT', $pid;
sql($ping, q{SELECT fence.release('stuck', 2)});
like($stuck->wait->output, qr/^t\|3\|/, '... and gets the lease in the end');

# acquire_many() waits for one after the other, and blocks nobody while it does.
my $one = acquire($holder, 'many 1', 'holder');
my $two = acquire($holder, 'many 2', 'holder');
$ping->send(q{SELECT bool_and(acquired) FROM fence.acquire_many('{many 1,many 2}', 'many', '1 min', '1 min')});
wait_for_waiters(1);
sql($holder, qq{SELECT fence.release('many 1', $one)});
wait_for($node, q{SELECT count(*) = 1 FROM fence.leases WHERE resource = 'many 1' AND state = 'free'});
sleep 0.3;
is(acquire($pong, 'many 1', 'pong', '100 ms'), 2, 'what acquire_many() does not wait for now is free for others');
sql($holder, qq{SELECT fence.release('many 2', $two)});
is($ping->wait->output, 't', '... and it gets both in the end');
gives($node, q{SELECT resource, wait_time > '0', (SELECT sum(n) > 0 FROM unnest(wait_histogram) n) FROM fence.stat_resources WHERE resource LIKE 'many _' ORDER BY 1},
	"many 1|t|t\nmany 2|t|t", '... having waited for both');

# When it moves on to another one, the next in the queue learns it.
my @moved;
foreach my $round (1 .. 8)
{
	my ($from, $to) = ("from $round", "to $round");

	acquire($holder, $_, 'holder') foreach $from, $to;
	$ping->send(qq{SELECT bool_and(acquired) FROM fence.acquire_many('{$from,$to}', 'many', '1 min', '1 min')});
	wait_for_waiters(1);
	$pong->send(qq{SELECT acquired, extract(epoch FROM clock_timestamp()) FROM fence.acquire('$from', 'next', '1 min', '1 min')});
	wait_for_waiters(2);
	my $released = sql($holder, qq{BEGIN; SELECT fence.release('$from', 1); SELECT extract(epoch FROM clock_timestamp()); COMMIT});
	$released =~ s/.*\n//s;
	$pong->wait;
	push @moved, (split /\|/, $pong->output)[1] - $released;
	sql($holder, qq{SELECT fence.release('$from', 2), fence.release('$to', 1)});
	is($ping->wait->output, 't', 'acquire_many() that has moved on');
}
@moved = sort { $a <=> $b } @moved;
under($moved[ @moved / 2 ], 0.05, '... the next one is woken');

# No counter of waiters was left behind: a lease that is free is to be had at once.
foreach my $resource ('queue', 'order', 'gone 3', 'stuck 2')
{
	like(sql($node, request($resource, 'x')), qr/^t\|/, "nobody is left waiting for $resource");
}

# Under load, with sessions that are terminated all the time, everybody gets it in turn.
my $load = start_pgbench($node, [ '-c', 8, '-j', 2, '-T', $FenceTest::long ? 60 : 5 ], <<'END');
\set n random(1, 3)
SELECT fence.release('load ' || :n, token) FROM fence.acquire('load ' || :n, 'c', '5 s', '20 s') WHERE acquired;
END
foreach (1 .. 10)
{
	sleep 0.3;
	my $extra = session($node);
	my $extra_pid = $extra->backend;
	$extra->send(request('load 1', 'extra'));
	sleep 0.02;
	sql($node, "SELECT pg_terminate_backend($extra_pid)");
	$extra->wait;
	$extra->quit;
	# it may have got the lease
	sql($node, q{SELECT fence.break_lease('load 1')}) if sql($node, q{SELECT holder = 'extra' AND state = 'held' FROM fence.leases WHERE resource = 'load 1'}) eq 't';
}
my ($count, $failed) = finish_pgbench($load);
is($failed, '', 'under load nobody fails');
cmp_ok($count, '>', 100, "... $count times it went round");
is(acquire($node, 'load 1', 'end'), sql($node, q{SELECT token FROM fence.leases WHERE resource = 'load 1'}), '... and in the end it is free');

$_->quit foreach $holder, @queue, @gone, @eight, $stuck;
finish($node);
