# fence.stat_redis: calls to Redis with what became of them, and how long they took; and the
# metrics that are made of it.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use RedisTest;
use Test::More;

my $node = fence_node('stat_redis', conf => fence_shared());
my $redis = redis('behind');
my $fake = fake_redis(behind => $redis);
my $session = session($node);
my $watcher = session($node);

redis_server($session, 'f', $fake, timeout_ms => 2000, breaker_ms => 0);
redis_server($session, 'g', $redis);
$redis->does('SET', 'r', 'a', 'PX', 600000);

sub counted
{
	my ($server) = @_;

	return sql($watcher, qq{
		SELECT calls, unreachable, timed_out, unable, misconfigured, (SELECT sum(n) FROM unnest(histogram) n)
		FROM fence.stat_redis WHERE server = '$server'});
}

gives($watcher, 'SELECT count(*) FROM fence.stat_redis', 0, 'nothing is known of a server that was not asked');
gives($session, q{SELECT fence.check('r', 1, 'a', 'f')}, 't', 'a check');
# the first call of a session may bring others with it: a look at what answers, the script
my ($first) = split /\|/, counted('f');
like(counted('f'), qr/^[1-9]\d*\|0\|0\|0\|0\|$first$/, '... is counted');
gives($session, q{SELECT fence.check('r', 1, 'a', 'f')}, 't', 'another one');
is(counted('f'), join('|', $first + 1, 0, 0, 0, 0, $first + 1), '... is one call');
$redis->does('SET', 'r', 'b', 'PX', 600000);
refuses($session, q{SELECT fence.check('r', 1, 'a', 'f')}, 'PF005', 'one that Redis says no to');
$redis->does('SET', 'r', 'a', 'PX', 600000);
is(counted('f'), join('|', $first + 2, 0, 0, 0, 0, $first + 2), '... was answered');
my $last = q{SELECT resource, presented, mark, sqlstate, observed FROM fence.rejections LIMIT 1};
gives($watcher, $last, 'r|1||PF005|f', '... and is on record, with the token');

# Failures by kind: rolled back, and counted
my @failed = (0, 0, 0, 0);
foreach my $case (
	[ 'an answer that comes too late', { mute => 1 }, 1, 'PF006', 100 ],
	[ 'no answer', { refuse => 1, lose => 1 }, 0, 'PF006' ],
	[ 'not at the moment', { reply => "-LOADING Redis is loading the dataset in memory\r\n" }, 2, 'PF006' ],
	[ 'wrong password', { reply => "-NOPERM this user has no permissions\r\n" }, 3, 'PF007' ])
{
	my ($what, $rule, $kind, $state, $timeout) = @$case;

	alter_server($session, 'f', timeout_ms => $timeout // 2000);
	$fake->behave(%$rule);
	my @before = split /\|/, counted('f');
	refuses($session, q{SELECT fence.check('r', 1, 'a', 'f')}, $state, $what);
	my @after = split /\|/, counted('f');
	cmp_ok($after[ 1 + $kind ], '>', $before[ 1 + $kind ], '... is counted as what it is');
	gives($watcher, $last, "r|1||$state|f", '... and on record');
	is($after[5], $after[0], '... with the time that it took');
	$fake->behave;
	alter_server($session, 'f', timeout_ms => 2000);
	sql($session, q{SELECT fence.check('r', 1, 'a', 'f')});
}
gives($watcher, q{SELECT time_spent >= '90 ms', fence.histogram_percentile(histogram, 1) >= '90 ms' FROM fence.stat_redis WHERE server = 'f'}, 't|t',
	'a timeout takes its time');

# At commit, and where Redis only has to be asked
alter_server($session, 'f', validate => 'commit');
$redis->does('DEL', 'r');
sql($session, q{BEGIN; SELECT fence.check('r', 2, 'a', 'f')});
refuses($session, 'COMMIT', 'PF005', 'refused at commit');
gives($watcher, $last, 'r|2||PF005|f', '... is on record, too');
alter_server($session, 'f', validate => undef, on_unreachable => 'allow');
$fake->behave(refuse => 1, lose => 1);
sql($session, q{SELECT fence.check('r', 3, 'a', 'f')});
gives($watcher, $last, 'r|3||PF006|t', 'let through: on record as observed');
$fake->behave;
$redis->does('SET', 'r', 'a', 'PX', 600000);
alter_server($session, 'f', on_unreachable => undef);
gives($session, q{SELECT acquired FROM fence.acquire('mine', 'a', '1 min', lease => 'f')}, 't', 'a lease of ours');
$fake->behave(refuse => 1, lose => 1);
gives($session, q{SELECT fence.release('mine', 1)}, 't', '... that Redis does not hear the end of');
gives($watcher, $last, 'r|3||PF006|t', '... is nothing that was refused');
$fake->behave;

# Each server for itself; reset
gives($session, q{SELECT fence.check('r', 3, 'a', 'g')}, 't', 'another server');
like(counted('g'), qr/^[1-9]\d*\|0\|0\|0\|0\|/, '... has its own counters');
sql($session, 'SELECT fence.stat_reset()');
gives($watcher, 'SELECT count(*) FROM fence.stat_redis', 0, 'reset');
gives($session, q{SELECT fence.check('r', 3, 'a', 'g')}, 't', 'and it goes on');
is(counted('g'), '1|0|0|0|0|1', '... from zero');
sql($session, 'DROP SERVER g');
gives($watcher, 'SELECT count(*), count(server) FROM fence.stat_redis', '1|0', 'a server that was dropped has no name any more');

# The query for the exporter
my ($query) = slurp_file("$FindBin::RealBin/../../monitoring/postgres_exporter.yml") =~ /^pg_fence_redis:\n  query: \|\n(.*?)^  metrics:/ms;
sql($session, q{SELECT fence.check('r', 3, 'a', 'f')});
gives($watcher, qq{
	SELECT redis_server, calls_total, seconds_count, seconds_sum > 0, cardinality(seconds) = cardinality(seconds_bucket), seconds_bucket[30]
	FROM ($query) q}, 'f|1|1|t|t|1', 'as metrics');

$session->quit;
$watcher->quit;
finish($node);
