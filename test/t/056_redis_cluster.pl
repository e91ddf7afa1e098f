# Redis Cluster: wherever the key is, the question gets there, also while it moves.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use RedisTest;
use Test::More;
use Time::HiRes qw(time);

my $node = fence_node('cluster');
my @masters = redis_cluster(3);
my $session = session($node);

redis_server($session, 's', $masters[0], timeout_ms => 2000, breaker_ms => 0);
redis_server($session, $_, $masters[0], timeout_ms => 2000, breaker_ms => 0, layout => $_) foreach qw(prefix hash zset);

sub slot_of { return $masters[0]->does('CLUSTER', 'KEYSLOT', $_[0]); }
sub owner_of { return $masters[ int(slot_of($_[0]) * 3 / 16384) ]; }

sub check
{
	my ($resource, $server) = @_;

	return sprintf q{SELECT fence.check('%s', 1, 'a', '%s')}, $resource, $server // 's';
}

# A resource of each master
my @resources;
foreach my $i (0 .. 2)
{
	my $n = 0;
	$n++ while owner_of("r$n") != $masters[$i];
	push @resources, "r$n";
}

# ---------------------------------------------------------------- where the keys are

owner_of("key$_")->does('SET', "key$_", 'a', 'PX', 600000) foreach 1 .. 30;
is(sqlstate($session, check("key$_")), '', "key$_") foreach 1 .. 30;
owner_of("{tag}$_")->does('SET', "{tag}$_", 'a', 'PX', 600000) foreach 1 .. 3;
is(sqlstate($session, check("{tag}$_")), '', "a key with a tag, $_") foreach 1 .. 3;
refuses($session, check("nokey$_"), 'PF005', "no key$_") foreach 1 .. 5;
is(sqlstate($session, q{SELECT fence.check('key' || i, 1, 'a', 's') FROM generate_series(1, 30) i}), '', 'all of them in one transaction');
foreach my $resource (@resources)
{
	my $owner = owner_of($resource);

	$owner->does('SET', "$resource", 'a, and more', 'PX', 600000);
	is(sqlstate($session, check($resource, 'prefix')), '', "$resource: prefix");
	$owner->does('DEL', $resource);
	$owner->does('HSET', $resource, 'a', 1);
	$owner->does('PEXPIRE', $resource, 600000);
	is(sqlstate($session, check($resource, 'hash')), '', "$resource: hash");
	$owner->does('DEL', $resource);
	$owner->does('ZADD', $resource, 2000000000000, 'a', 2000000000000, '__write__');
	is(sqlstate($session, check($resource, 'zset')), '', "$resource: zset");
	$owner->does('DEL', $resource);
}

# A connection stays where the last key was.
my @watches = map { $_->watch } @masters;
$masters[1]->does('SET', $resources[1], 'a', 'PX', 600000);
$session->does(check($resources[1])) foreach 1, 2;
$_->commands foreach @watches;
$session->does(check($resources[1]));
is(join(',', map { join ' ', $_->commands } @watches), ',EVALSHA,', 'one question, once it is known where to ask');

# ---------------------------------------------------------------- leases of our own

foreach my $i (1 .. 10)
{
	my $resource = "own$i";
	my $owner = owner_of($resource);

	gives($session, "SELECT acquired, token FROM fence.acquire('$resource', 'a', lease => 's')", 't|1', "$resource: acquired");
	is($owner->does('EXISTS', $resource), 1, '... where it belongs');
	gives($session, "SELECT extended FROM fence.extend('$resource', 1, '1 hour')", 't', '... extended');
	cmp_ok($owner->does('PTTL', $resource), '>', 1800000, '... there');
	gives($session, "SELECT fence.check('$resource', 1, NULL, 's')", 't', '... verified');
	gives($session, "SELECT fence.release('$resource', 1)", 't', '... released');
	is($owner->does('EXISTS', $resource), 0, '... there');
}

# ---------------------------------------------------------------- keys that move

# A slot on its way from one master to another: the key has gone already, the slot has not.
my $moving = $resources[1];
my ($from, $to) = @masters[ 1, 2 ];
my $slot = slot_of($moving);
my %id = map { $_ => $_->does('CLUSTER', 'MYID') } @masters;
$from->does('SET', $moving, 'a', 'PX', 600000);
$_->does('SCRIPT', 'FLUSH') foreach @masters;
$to->does('CLUSTER', 'SETSLOT', $slot, 'IMPORTING', $id{$from});
$from->does('CLUSTER', 'SETSLOT', $slot, 'MIGRATING', $id{$to});
gives($session, check($moving), 't', 'a slot that is being moved, the key is still there');
$from->does('MIGRATE', '127.0.0.1', $to->{port}, $moving, 0, 5000);
is($to->does('CLUSTER', 'COUNTKEYSINSLOT', $slot), 1, 'the key has been moved');
$_->commands foreach @watches;
gives($session, check($moving), 't', 'ASK, where the script is not known yet');
my @asked = map { join ' ', $_->commands } @watches;
is($asked[2], 'ASKING EVALSHA ASKING EVAL', '... each command is announced');
gives($session, check($moving), 't', 'ASK');
@asked = map { join ' ', $_->commands } @watches;
is($asked[2], 'ASKING EVALSHA', '... and known then');
gives($session, q{SELECT acquired FROM fence.acquire('{' || '} none', 'a', lease => 's')}, 't', 'another key meanwhile');
$_->does('CLUSTER', 'SETSLOT', $slot, 'NODE', $id{$to}) foreach $to, $from, $masters[0];
gives($session, check($moving), 't', 'MOVED, the slot has arrived');
$to->does('SET', $moving, 'b', 'PX', 600000);
refuses($session, check($moving), 'PF005', '... and it is the new master that is asked');
my $fresh = session($node);
refuses($fresh, check($moving), 'PF005', '... by others, too');
$fresh->quit;

# ---------------------------------------------------------------- a master dies

$masters[2]->does('SET', $resources[2], 'a', 'PX', 600000);
$masters[0]->does('SET', $resources[0], 'a', 'PX', 600000);
gives($session, check($resources[2]), 't', 'asked on the third master');
$masters[2]->kill;
is(sqlstate($session, check($resources[2])), 'PF006', 'it is dead');
gives($session, check($resources[0]), 't', '... others are not');
wait_until('the cluster notices', sub { $masters[0]->does('CLUSTER', 'INFO') =~ /cluster_state:fail/ });
is(sqlstate($session, check($_)), 'PF006', 'CLUSTERDOWN') foreach @resources[ 0, 2 ];
like(says($session, check($resources[0])), qr/CLUSTERDOWN/, '... says so');
$masters[2]->start;
foreach my $master (@masters)
{
	wait_until('the cluster works again', sub { $master->does('CLUSTER', 'INFO') =~ /cluster_state:ok/ });
}
gives($session, check($resources[0]), 't', 'it is back');
refuses($session, check($resources[2]), 'PF005', '... without its data');
$masters[2]->does('SET', $resources[2], 'a', 'PX', 600000);
gives($session, check($resources[2]), 't', '... the same session goes on');

# Databases other than 0 there are none.
alter_server($session, 's', db => 1);
refuses($session, check($resources[0]), 'PF007', 'a cluster has one database');
alter_server($session, 's', db => undef);

# Credentials go along.
foreach my $master (@masters)
{
	$master->does(qw(ACL SETUSER u on >pw ~* +@all));
	$master->does(qw(ACL SETUSER default on >other));
}
refuses($session, check($_), 'PF007', 'no password') foreach @resources;
$session->does(q{CREATE USER MAPPING FOR PUBLIC SERVER s OPTIONS (username 'u', password 'pw')});
gives($session, check($_), 't', 'a password for all of them') foreach @resources[ 0, 2 ];

$session->quit;
finish($node);
