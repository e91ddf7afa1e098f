# D07: ten thousand checks in one session, answered, refused, failed and cancelled, and a
# thousand leases: descriptors and memory stay what they were.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use RedisTest;
use Test::More;

my $node = fence_node('flat');
my $redis = redis('flat');
my $fake = fake_redis(behind => $redis);
my $watch = session($node);

$redis->does('SET', 'mine', 'a', 'PX', 600000);
$redis->does('SET', 'others', 'b', 'PX', 600000);
redis_server($watch, 'f', $fake, timeout_ms => 2, breaker_ms => 0);
redis_server($watch, 'mute', $fake, timeout_ms => 30000, breaker_ms => 0);
redis_server($watch, 'refused', { socket => '/nowhere/redis.sock' }, breaker_ms => 0);
redis_server($watch, 'own', $redis, timeout_ms => 5000, breaker_ms => 0);
$redis->does(qw(HSET wrongtype a b));
$fake->behave(mute => 1);
my $session = session($node);
my $backend = $session->backend;
my $round = join "\n",
  (q{SELECT fence.check('mine', 1, 'a', 'own');}) x 50,
  (q{SELECT fence.check('others', 1, 'a', 'own');}) x 15,
  (q{SELECT fence.check('wrongtype', 1, 'a', 'own');}) x 10,
  (q{SELECT fence.check('mine', 1, 'a', 'refused');}) x 10,
  (q{SELECT fence.check('mine', 1, 'a', 'f');}) x 3,
  q{BEGIN; SAVEPOINT s; SELECT fence.check('others', 1, 'a', 'own'); ROLLBACK TO s; SELECT fence.check('mine', 1, 'a', 'own'); COMMIT;},
  (q{BEGIN; SET LOCAL statement_timeout = '2ms'; SELECT fence.check('mine', 1, 'a', 'mute'); ROLLBACK;}) x 10;
my (@memory, @sockets);
foreach my $i (0 .. 100)
{
	$session->ask($round);
	my %seen;
	$seen{$_}++ foreach $session->errors =~ /ERROR: +(\w{5})/g;
	is_deeply(\%seen, { PF005 => 16, PF007 => 10, PF006 => 13, 57014 => 10 }, 'a hundred checks, of each kind')
	  if $i % 25 == 0;
	push @memory, memory_of($backend);
	push @sockets, sockets_of($backend);
}
note "memory: @memory";
cmp_ok($memory[-1] - $memory[10], '<', 1024, 'memory is flat');
is($sockets[-1], $sockets[1], '... and so are descriptors');
my $cycle = q{
	SELECT fence.acquire('cycle', 'a', lease => 'own');
	SELECT fence.release('cycle', (SELECT token FROM fence.leases WHERE resource = 'cycle'));};
$session->ask($cycle x 200);
my $before = memory_of($backend);
$session->ask($cycle x 1000);
gives($session, q{SELECT token, state FROM fence.leases WHERE resource = 'cycle'}, '1200|free', 'a thousand leases taken and given back');
cmp_ok(memory_of($backend) - $before, '<', 1024, '... memory is flat');
is(sockets_of($backend), $sockets[-1], '... and so are descriptors');
is($redis->does('EXISTS', 'cycle'), 0, '... and no key is left');
$session->quit;
wait_until('all have gone', sub { $fake->counts->{open} == 0 });
pass('no connection outlives its session');

$watch->quit;
finish($node);
