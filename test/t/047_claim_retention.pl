# Keys that expire make room for those that come: over more than ten times of retention the
# table has never room for more than a few of them, and nobody calls prune().  Nor does it need
# sessions that last, or that commit all they claim.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use List::Util qw(max);
use Test::More;
use Time::HiRes qw(time);

my $node = fence_node('retention', conf => "autovacuum = off\n");
my $watch = session($node);

# A key is known for this long, and its row for a quarter more.
my $retain = $FenceTest::long ? 5 : 0.8;
my $period = 1.25 * $retain;
my $periods = 14;

my $pgbench = start_pgbench($node, [ '-c', 2, '-j', 1, '-M', 'prepared', '-T', int($periods * $period) ], <<"END");
\\set key random(1, 1000000000000000)
SELECT fence.claim(:key::text, retain => '$retain seconds'), fence.complete(:key::text, '{"done": true}');
END

# What VACUUM leaves, as often as it can
my @sizes;
my $start = time();
while ((my $passed = (time() - $start) / $period) < $periods - 1)
{
	$watch->does('VACUUM fence.idempotency_key');
	push @{ $sizes[$passed] }, $watch->does(q{SELECT pg_relation_size('fence.idempotency_key')});
}
my ($count, $failed) = finish_pgbench($pgbench);
is($failed, '', 'no claim failed');

my @largest = map { max(@{ $_ // [0] }) } @sizes;
note "$count claims; largest size in each period: @largest";
cmp_ok(max(@largest[2 .. 4]), '>', 0, 'there are keys');

# A row has more than a hundred bytes.  How many come in a period depends on the machine.
cmp_ok(max(@largest), '<', 40 * $count, 'the table never has room for all the keys there were');

my ($rows, $expired) = split /\|/, $watch->does(q{
	SELECT count(*), count(*) FILTER (WHERE expires_at < clock_timestamp() - interval '2 seconds')
	FROM fence.idempotency_key});
cmp_ok($rows, '<', 4 * $count / $periods, 'most keys are gone');
note "$rows rows, $expired of them long expired";

# Each claim in a session of its own.  These take their share of the looks, and they look
# everywhere: all of one page would be less than a hundred rows.
$watch->does('TRUNCATE fence.idempotency_key');
$watch->does(q{SELECT count(fence.once('old ' || i)) FROM generate_series(1, 2000) i});
$watch->does(q{UPDATE fence.idempotency_key SET claimed_at = claimed_at - interval '1 year', expires_at = expires_at - interval '1 year'});
($count, $failed) = pgbench($node, [ '-C', '-c', 2, '-j', 1, '-t', 200 ], <<"END");
\\set key random(1, 1000000000000000)
SELECT fence.once(:key::text);
END
is($failed, '', 'no claim of a short session failed');
my ($old) = $watch->does(q{SELECT count(*) FROM fence.idempotency_key WHERE key LIKE 'old %'});
note "$old of 2000 old keys are left";
cmp_ok($old, '<', 1700, 'short sessions prune, too');

# A look that a rollback takes is made up for, even where every other claim is rolled back.
my @pruned = map {
	my $pairs = session($node);

	$watch->does('TRUNCATE fence.idempotency_key');
	$watch->does(q{SELECT count(fence.once('old ' || i)) FROM generate_series(1, 10) i});
	$watch->does(q{UPDATE fence.idempotency_key SET claimed_at = claimed_at - interval '1 year', expires_at = expires_at - interval '1 year'});
	foreach my $i (1 .. 8)
	{
		$pairs->does('BEGIN');
		$pairs->does("SELECT fence.once('undone $i')");
		$pairs->does('ROLLBACK');
		$pairs->does("SELECT fence.once('new $i')");
	}
	$pairs->quit;
	$watch->does(q{SELECT count(*) FROM fence.idempotency_key WHERE key LIKE 'old %'});
} 1 .. 8;
is("@pruned", "@{[ (0) x 8 ]}", 'sessions that roll back every other claim prune, too');

$watch->quit;
finish($node);
