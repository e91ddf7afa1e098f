# Sentinel: the master is asked for by its name, before and after a failover.  One that loses
# the lock loses nothing here.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use RedisTest;
use Test::More;
use Time::HiRes qw(time sleep);

my $node = fence_node('sentinel');
my ($master, $replica, $sentinels) = redis_sentinel();
my $session = session($node);
my %address = (sentinel => join(',', map { "127.0.0.1:$_->{port}" } @$sentinels), master_name => 'fence');
my $check = q{SELECT fence.check('lock', 1, 'a', 's')};

redis_server($session, 's', \%address, timeout_ms => 2000, breaker_ms => 0);
$master->does('SET', 'lock', 'a', 'PX', 600000);
gives($session, $check, 't', 'the master is found');
cmp_ok($master->calls('getex'), '>=', 1, '... and asked');
gives($session, q{SELECT token FROM fence.acquire('own', 'a', lease => 's')}, 1, 'a lease of our own');
is($master->does('EXISTS', 'own'), 1, '... is there');
gives($session, $check, 't', 'a connection to keep');

# ---------------------------------------------------------------- sentinels in trouble

sub fresh
{
	my ($state, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $fresh = session($node);

	$fresh->ask($check);
	is($fresh->sqlstate, $state, $test_name);
	my $seconds = $fresh->seconds;
	$fresh->quit;
	return $seconds;
}

$sentinels->[0]->stop;
fresh('', 'a sentinel that is down');
$sentinels->[1]->freeze;
fresh('', '... and one that does not answer');
$sentinels->[2]->stop;
my $seconds = fresh('PF006', 'no sentinel');
under($seconds, 2 + $FenceTest::at_once, '... in time');
gives($session, $check, 't', '... which does not matter to who knows the master');
$sentinels->[1]->thaw;
fresh('', 'one is enough');
$_->start foreach @$sentinels[ 0, 2 ];

redis_server($session, 'unknown', { %address, master_name => 'other' }, timeout_ms => 2000, breaker_ms => 0);
refuses($session, q{SELECT fence.check('lock', 1, 'a', 'unknown')}, 'PF007', 'a master of another name');
redis_server($session, 'none', { %address, sentinel => "127.0.0.1:$master->{port}" }, timeout_ms => 2000, breaker_ms => 0);
refuses($session, q{SELECT fence.check('lock', 1, 'a', 'none')}, 'PF007', 'not a sentinel');

# Sentinels are asked without AUTH: one that has a password can let everybody ask this.
foreach my $case ([ PF007 => '>secret' ], [ '' => qw(nopass -@all +sentinel|get-master-addr-by-name) ])
{
	my ($state, @rule) = @$case;

	$_->does(qw(ACL SETUSER default resetpass on), @rule) foreach @$sentinels;
	fresh($state, "sentinels with a password: @rule");
}
$_->restart foreach @$sentinels;

# What a sentinel can say
my $fake = fake_redis(port => 1);
my ($host, $port) = ('$9' . "\r\n127.0.0.1\r\n", '$' . length($master->{port}) . "\r\n$master->{port}\r\n");
my $port_of_replica = '$' . length($replica->{port}) . "\r\n$replica->{port}\r\n";
redis_server($session, 'fake', { %address, sentinel => "127.0.0.1:$fake->{port}" }, timeout_ms => 500, breaker_ms => 0);
redis_server($session, 'both_of', { %address, sentinel => "127.0.0.1:$fake->{port}, $address{sentinel}" }, timeout_ms => 2000, breaker_ms => 0);
foreach my $case (
	[ "*2\r\n$host$port", '', 'the master' ],
	[ "*2\r\n$host$port_of_replica", 'PF006', 'the replica' ],
	[ "*2\r\n$host\$1\r\n1\r\n", 'PF006', 'where nobody is' ],
	[ "*2\r\n\$14\r\nno..such..host\r\n$port", 'PF006', 'a host that does not exist' ],
	[ "*-1\r\n", 'PF007', 'nothing' ],
	[ "\$-1\r\n", 'PF007', 'nothing, in another way' ],
	[ "*2\r\n$host\$1\r\n0\r\n", 'PF007', 'port 0' ],
	[ "*2\r\n$host\$5\r\n99999\r\n", 'PF007', 'port 99999' ],
	[ "*2\r\n$host:$master->{port}\r\n", 'PF007', 'a number' ],
	[ "*1\r\n$host", 'PF007', 'half of it' ],
	[ "*3\r\n$host$port$port", 'PF007', 'more than it' ],
	[ "*2\r\n\$300\r\n" . 'x' x 300 . "\r\n$port", 'PF007', 'a host of 300 bytes' ],
	[ "*2\r\n\$0\r\n\r\n$port", 'PF007', 'no host' ],
	[ "+OK\r\n", 'PF007', 'OK' ],
	[ "-IDONTKNOW x\r\n", 'PF007', 'that it does not know' ],
	[ "-NOAUTH Authentication required.\r\n", 'PF007', 'that it wants a password' ],
	[ "-LOADING x\r\n", 'PF006', 'that it is not ready' ],
	[ "-NOSCRIPT x\r\n", 'PF007', 'something else' ],
	[ "-MOVED 1 127.0.0.1:$master->{port}\r\n", 'PF00[67]', 'to ask elsewhere' ],
	[ "HTTP/1.1 400 Bad Request\r\n\r\n", 'PF007', 'that it is a web server' ],
	[ '', 'PF006', 'not a word' ])
{
	my ($reply, $state, $what) = @$case;

	$fake->behave($reply eq '' ? (mute => 1) : (reply => $reply));
	like(sqlstate($session, q{SELECT fence.check('lock', 1, 'a', 'fake')}), qr/^$state$/, "a sentinel says $what");
	alter_server($session, 'fake', timeout_ms => 500);    # a new connection
	next if $what =~ /replica|nobody|exist/;              # it is believed, as nobody knows better
	is(sqlstate($session, q{SELECT fence.check('lock', 1, 'a', 'both_of')}), '', '... there are others');
	alter_server($session, 'both_of', timeout_ms => 2000);
}

# D09: the master that is known has been demoted.  The sentinels are asked again, once.
my @fakes = map { fake_redis(port => 1, behind => $master) } 1, 2;
my @ports = map { '$' . length($_->{port}) . "\r\n$_->{port}\r\n" } @fakes;
$fake->behave(reply => "*2\r\n$host$ports[0]");
alter_server($session, 'fake', timeout_ms => 2000);
gives($session, q{SELECT fence.check('lock', 1, 'a', 'fake')}, 't', 'the first master');
gives($session, q{SELECT acquired FROM fence.acquire('demoted', 'a', lease => 'fake')}, 't', '... a lease');
$session->does(q{SELECT fence.check('lock', 1, 'a', 'fake')}) foreach 1, 2;
$fake->behave(reply => "*2\r\n$host$ports[1]");
foreach my $statement (q{SELECT fence.check('lock', 1, 'a', 'fake')}, q{SELECT extended FROM fence.extend('demoted', 1)})
{
	$session->does(q{SELECT fence.check('lock', 1, 'a', 'fake')});
	$fakes[0]->behave(reply => "-READONLY You can't write against a read only replica.\r\n");
	gives($session, $statement, 't', 'D09: demoted, and another one is master');
	$fake->behave(reply => "*2\r\n$host$ports[0]");
	$fakes[0]->behave;
	alter_server($session, 'fake', timeout_ms => 2000);
	$session->does(q{SELECT fence.check('lock', 1, 'a', 'fake')}) foreach 1, 2;
	$fake->behave(reply => "*2\r\n$host$ports[1]");
}
$_->behave(reply => "-READONLY You can't write against a read only replica.\r\n") foreach @fakes;
refuses($session, q{SELECT fence.check('lock', 1, 'a', 'fake')}, 'PF006', '... or nobody is');
is($_->counts->{commands}, 1, '... each is asked once') foreach @fakes;

# ---------------------------------------------------------------- failover

# The lock of another client and a lease of our own reach the master only: the replica is
# stopped in the meantime, and then becomes the master.
wait_until('all sentinels are there', sub {
		!grep { my %m = @{ $_->does('SENTINEL', 'MASTER', 'fence') }; $m{'num-other-sentinels'} != 2 || $m{flags} ne 'master' } @$sentinels;
	});
$master->does(qw(WAIT 1 5000));
my $other = session($node);
gives($other, $check, 't', 'another session, connected to the master');
$replica->freeze;
$master->does(qw(CLIENT KILL TYPE replica));
gives($session, q{SELECT token FROM fence.acquire('lost', 'a', '4 s', lease => 's')}, 1, 'a lease that the replica does not get to know');
$master->does('SET', 'lost lock', 'a', 'PX', 600000);
gives($session, q{SELECT fence.check('lost lock', 1, 'a', 's')}, 't', '... and a lock');
my $begun = session($node);
$begun->does(q{BEGIN; SELECT fence.check('lost', 1, NULL, 's'); CREATE TABLE by_a ()});
$master->kill;
$replica->thaw;

my %states;
my $start = time;
until (sqlstate($session, $check) eq '')
{
	$states{ $session->sqlstate }++;
	die 'no failover' if time > $start + $FenceTest::patience;
	sleep 0.05;
}
note sprintf 'failover took %.1f s', time - $start;
is(join(' ', sort keys %states), 'PF006', 'during the failover, Redis cannot be asked, and that is all');
is(sqlstate($other, $check), '', 'afterwards, other sessions find the new master, too');
is($replica->info('role'), 'master', '... which was the replica');
refuses($session, q{SELECT fence.check('lost lock', 1, 'a', 's')}, 'PF005', 'A06: the lock is lost');
refuses($session, q{SELECT fence.check('lost', 1, NULL, 's')}, 'PF005', '... and so is the lease');
gives($session, q{SELECT extended, reason FROM fence.extend('lost', 1)}, 'f|expired', '... which cannot be extended');
gives($other, q{SELECT acquired, token FROM fence.acquire('lost', 'b', wait => '20 s', lease => 's')}, 't|2', '... but taken by the next, with a higher token');
refuses($begun, 'COMMIT', 'PF001', 'the old holder, begun before the failover, cannot commit any more');
refuses($session, q{SELECT fence.check('lost', 1, 'a')}, 'PF001', '... nor begin');
gives($session, q{SELECT extended FROM fence.extend('own', 1)}, 't', 'what has reached the replica stands');
gives($other, q{SELECT fence.check('lost', 2, 'b', 's')}, 't', '... and so does the new lease');

# D09: the former master comes back, is a replica now, and keeps its clients.
$master->{conf} = [ '--replicaof', "127.0.0.1 $replica->{port}" ];
$master->start;
wait_until('it is a replica', sub { $master->info('role') eq 'slave' && $master->info('master_link_status') eq 'up' });
gives($session, $check, 't', 'D09: the former master is back');
$replica->does('SET', 'lock', 'b', 'PX', 600000);
wait_until('it is replicated', sub { $master->does('GET', 'lock') eq 'b' });
refuses($session, $check, 'PF005', '... and it is the new one that is asked');
gives($other, q{SELECT fence.release('own', 1)}, 't', 'what is ours is released');
is($replica->does('EXISTS', 'own'), 0, '... where it is now');

$_->quit foreach $session, $other, $begun;
finish($node);
