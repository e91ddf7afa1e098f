# Heartbeats: 20 leases, extended 100 times a second.  Nothing grows: the updates are HOT,
# and vacuum recovers what an open snapshot has held back (F09).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seconds = $FenceTest::long ? 60 : 5;
my $rate = 100;
my $node = fence_node('hot', conf => 'autovacuum = off');

sql($node, q{SELECT count(fence.acquire('lease ' || i, 'holder', '1 hour')) FROM generate_series(1, 20) i});
sql($node, 'VACUUM ANALYZE fence.resource');

my $sizes = q{SELECT pg_relation_size('fence.resource'), pg_relation_size('fence.resource_pkey')};
my $counts = q{SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_all_tables WHERE relid = 'fence.resource'::regclass};

# Extends at that rate; returns how many, the share of HOT updates in percent, and the 95th
# percentile of the latency in milliseconds.
sub heartbeats
{
	my ($number, $hot) = split /\|/, sql($node, $counts);
	my $log = PostgreSQL::Test::Utils::tempdir . '/log';
	my ($done, $complaint) = pgbench($node,
		[ '-c', 4, '-j', 1, '-T', $seconds, '-R', $rate, '-l', "--log-prefix=$log" ],
		"\\set i random(1, 20)\nSELECT fence.extend('lease ' || :i, 1, '1 hour');\n");

	is($complaint, '', 'heartbeats');
	wait_for($node, "SELECT n_tup_upd >= $number + $done FROM ($counts) c");
	my ($number_now, $hot_now) = split /\|/, sql($node, $counts);
	my @latency;
	foreach my $file (glob "$log.*")
	{
		# client, transaction, latency in us, script, time, time, schedule lag in us
		push @latency, map { my @f = split; ($f[2] - ($f[6] // 0)) / 1000 } split /\n/, slurp_file($file);
	}
	@latency = sort { $a <=> $b } @latency;
	my $p95 = $latency[ $#latency * 0.95 ];
	my $share = 100 * ($hot_now - $hot) / ($number_now - $number);

	note sprintf('%d extends, %.1f %% HOT, 95th percentile %.2f ms, sizes %s', $done, $share, $p95, sql($node, $sizes));
	return ($done, $share, $p95);
}

# Nothing grows: a page for the versions of a moment in which the machine was busy with other
# things, but not a second one.
sub is_flat
{
	my ($heap, $index, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($heap_now, $index_now) = split /\|/, sql($node, $sizes);

	ok($heap_now <= $heap + 8192 && $index_now == $index, "$test_name ($heap_now, $index_now bytes)");
	return;
}

# The first few versions find their place ...
heartbeats();
my ($heap, $index) = split /\|/, sql($node, $sizes);

# ... and from then on, nothing grows.
my ($done, $share, $usual) = heartbeats();
cmp_ok($done, '>', $seconds * $rate * 0.5, "$done extends in $seconds s");
cmp_ok($share, '>=', 95, sprintf('%.1f %% of the updates are HOT', $share));
is_flat($heap, $index, 'table and index have not grown');
gives($node, q{SELECT count(*), sum(renewals) > 0, bool_and(token = 1) FROM fence.leases}, '20|t|t', '... of 20 leases, tokens as before');
cmp_ok($heap, '<=', 5 * 8192, "they take $heap bytes");

# An open snapshot: every version has to be kept.  The heap grows by no more than the
# versions, and the work goes on at much the same speed.
my $old = session($node);
$old->does('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM fence.resource');
my $p95;
($done, $share, $p95) = heartbeats();
my ($heap_now, $index_now) = split /\|/, sql($node, $sizes);
my $version = 200;
cmp_ok($heap_now, '<=', $heap + 2 * $done * $version, "under an open snapshot the table grows with the versions ($heap_now bytes)");
cmp_ok($index_now, '<=', $index + $done * 64, "... the index by less ($index_now bytes)");
my $limit = 5 * $usual > 100 ? 5 * $usual : 100;
cmp_ok($p95, '<=', $limit, sprintf('... the 95th percentile stays within five times the usual one (%.2f and %.2f ms)', $p95, $usual));
gives($old, 'SELECT sum(renewals) >= 0 FROM fence.leases', 't', 'the snapshot still reads');
$old->does('COMMIT');
$old->quit;

# Afterwards vacuum makes room, and nothing grows any more.
sql($node, 'VACUUM fence.resource');
($heap, $index) = split /\|/, sql($node, $sizes);
cmp_ok($heap, '<=', $heap_now, 'vacuum after the snapshot has ended');
($done, $share) = heartbeats();
is_flat($heap, $index, '... and nothing grows again');
cmp_ok($share, '>=', 95, sprintf('%.1f %% HOT', $share));

finish($node);
