# Many sessions fight over the same new keys, at all isolation levels, in every way there is to
# claim, some of them terminated in the middle of it: each key has at most one effect, and its
# response (12 to 16 and 21 to 26 under load; E02, E04, E05, E09).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = fence_node('claim_race', conf => q{
deadlock_timeout = 20ms
log_line_prefix = '%e '
});
my $watch = session($node);

# Effects are counted outside of what is judged: nothing is unique here.
$watch->does(q{
	CREATE TABLE effect (key text, who text);
	CREATE FUNCTION hot(n int) RETURNS text LANGUAGE sql AS $$
		SELECT floor(extract(epoch FROM clock_timestamp()) * 20) || '-' || n
	$$});

my $recipe = q{
	WITH c AS MATERIALIZED (SELECT * FROM fence.claim(:key)),
		 e AS (INSERT INTO effect SELECT :key, pg_backend_pid() || ' ' || random() FROM c WHERE fresh RETURNING who),
		 d AS MATERIALIZED (SELECT fence.complete(:key, to_jsonb(who)) AS response FROM e)
	SELECT c.fresh, coalesce((SELECT response FROM d), c.response) IS NULL AS lost FROM c \gset
};
my $key = q{
	\set n random(1, 3)
	SELECT hot(:n) AS key \gset
};
# A client that is told neither that it is first nor a response divides by zero, and fails.
my $told = q{
	SELECT 1 / (CASE WHEN :lost THEN 0 ELSE 1 END);
};

my @scripts = (
	$key . $recipe . $told,
	"$key BEGIN ISOLATION LEVEL REPEATABLE READ; $recipe $told COMMIT;",
	"$key BEGIN ISOLATION LEVEL SERIALIZABLE; $recipe $told COMMIT;",
	"$key BEGIN; $recipe ROLLBACK;",
	"$key BEGIN; SAVEPOINT s; $recipe ROLLBACK TO s; $recipe $told COMMIT;",
	"$key BEGIN; SAVEPOINT s; $recipe RELEASE s; SAVEPOINT s; $recipe ROLLBACK TO s; $told COMMIT;",
	q{
	\set n random(1, 3)
	\set m random(1, 3)
	SELECT hot(:n) AS key, hot(:m) AS other \gset
	WITH c AS MATERIALIZED (SELECT * FROM fence.claim_many(ARRAY[:key, :other, :key])),
		 e AS (INSERT INTO effect SELECT key, pg_backend_pid() || ' ' || random() FROM c WHERE fresh RETURNING key, who),
		 d AS MATERIALIZED (SELECT fence.complete(key, to_jsonb(who)) FROM e)
	SELECT count(*) FROM d;},
	qq{$key INSERT INTO effect SELECT 'once ' || :key, 'once' WHERE fence.once('once ' || :key);});

my $seconds = $FenceTest::long ? 120 : 8;
my $end = time + $seconds;
my ($total, $killed) = (0, 0);
my $offset = -s $node->logfile;

# Repeats of transactions that could not be serialized are pgbench's.
my @options = ('-c', 12, '-T', 2, '-M', 'prepared', '--max-tries=100');
while (time < $end)
{
	my $run = start_pgbench($node, \@options, @scripts);
	my $started = time;

	while (time < $started + 1.8)
	{
		sleep 0.1;
		# not the last ones, which go on
		my $victims = $watch->does(q{
			SELECT count(pg_terminate_backend(pid)) FROM (
				SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench' AND state <> 'idle'
					AND (SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench') > 6
				ORDER BY random() LIMIT 1) v});
		$killed += $victims;
	}
	my ($count) = finish_pgbench($run);
	$total += $count;
}
note "$total transactions, $killed backends terminated";
cmp_ok($total, '>', 20 * $seconds, 'there was a race');
cmp_ok($killed, '>', 0, '... in which sessions were terminated');

my %states;
my $log = server_log($node, $offset);
$states{$1}++ while $log =~ /^(\w{5}) (?:ERROR|FATAL)/mg;
note join ', ', map { "$_: $states{$_}" } sort keys %states;
delete @states{qw(40001 40P01 57P01)};
is_deeply(\%states, {}, '... and no error but serialization failures, deadlocks, and the end of those sessions');

gives($watch, q{SELECT count(*) FROM (SELECT FROM effect GROUP BY key HAVING count(*) > 1) d}, 0, 'no key has two effects');
gives($watch, q{
	SELECT count(*) FROM effect WHERE who <> 'once' AND to_jsonb(who) IS DISTINCT FROM (SELECT response FROM fence.lookup(key, ''))},
	0, 'each effect has its response');
gives($watch, q{SELECT count(*) FROM fence.idempotency_key k WHERE NOT EXISTS (SELECT FROM effect e WHERE e.key = k.key)}, 0, 'no key is without effect');
gives($watch, q{SELECT count(DISTINCT key) > 100 FROM effect}, 't', '... of many');
wait_for($watch, q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'transactionid' AND pid <> pg_backend_pid()});
pass('nobody holds anything any more');

$watch->quit;
finish($node);
