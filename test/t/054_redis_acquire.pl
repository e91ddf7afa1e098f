# Leases of fence.acquire() that Redis keeps, too: taken, extended, released, handed over, broken;
# lost by Redis, lost on the way, taken by others.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use RedisTest;
use Test::More;
use Time::HiRes qw(time);

my $node = fence_node('acquire', conf => "max_prepared_transactions = 10");
my $redis = redis('acquire');
my $fake = fake_redis(behind => $redis);
my $session = session($node);
my $number = 0;

redis_server($session, 's', $redis, timeout_ms => 2000, breaker_ms => 0);
redis_server($session, 'p', $redis, timeout_ms => 2000, breaker_ms => 0, layout => 'prefix', key_prefix => 'lock:');
redis_server($session, $_, $redis, layout => $_) foreach qw(hash zset);
redis_server($session, 'f', $fake, timeout_ms => 2000, breaker_ms => 0);

sub resource { return 'r' . ++$number; }

# acquired, token, held_by, reason
sub take
{
	my ($where, $resource, $holder, $server, %more) = @_;
	my $options = join '', map { ", $_ => '$more{$_}'" } sort keys %more;

	return sql($where, "SELECT acquired, token, held_by, reason FROM fence.acquire('$resource', '$holder', lease => '$server'$options)");
}

sub taken
{
	my ($where, $resource, $holder, $server, %more) = @_;
	my ($acquired, $token) = split /\|/, take($where, $resource, $holder, $server, %more);

	die "\"$resource\" was not acquired" if $acquired ne 't';
	return $token;
}

sub extend
{
	my ($resource, $token, $ttl) = @_;

	return sql($session, "SELECT extended, reason FROM fence.extend('$resource', $token, '$ttl')");
}

sub expires
{
	my ($resource) = @_;

	wait_for($session, "SELECT state <> 'held' FROM fence.leases WHERE resource = '$resource'");
	return;
}

# ---------------------------------------------------------------- acquire

my $r = resource;
is(take($session, $r, 'a', 's', ttl => '1 minute'), "t|1|a|", 'acquired');
my $value = $redis->does('GET', $r);
like($value, qr/^[0-9a-f]{32}$/, '... under a random value');
my $life = $redis->does('PTTL', $r);
cmp_ok($life, '>', 50000, '... for as long as was asked');
cmp_ok($life, '<=', 60000, '... and no longer');
$life = $redis->does('PTTL', $r);
my $remaining = sql($session, "SELECT extract(epoch FROM remaining) * 1000 FROM fence.leases WHERE resource = '$r'");
cmp_ok($remaining, '<=', $life + 1, 'PostgreSQL does not think that it lasts longer than Redis does');
gives($session, "SELECT holder, token, state, lease FROM fence.leases WHERE resource = '$r'", 'a|1|held|s', 'the view names the server');
unlike($session->does("SELECT * FROM fence.leases"), qr/$value/, '... but not the value');
is(take($session, $r, 'b', 's'), "f||a|held", 'another holder has to wait');
is(take($session, $r, 'a', 's'), "f||a|held", '... and so has the same one');
is(take($session, $r, 'b', 'postgres'), "f||a|held", '... whoever is to keep it');
is($redis->does('GET', $r), $value, '... nothing has happened to it');
taken($session, resource, 'a', 's');
isnt($redis->does('GET', "r$number"), $value, 'each time another value');
is(take($session, resource, 'a', 'p'), "t|1|a|", 'layout prefix, with a prefix of keys');
like($redis->does('GET', "lock:r$number"), qr/^[0-9a-f]{32}$/, '... under its key');
gives($session, "SELECT fence.check('r$number', 1, NULL, 'p')", 't', '... can be verified');
refuses($session, "SELECT fence.acquire('new', 'a', lease => '$_')", '0A000', "layout $_ can be verified only") foreach qw(hash zset);
alter_server($session, 's', margin_ms => 500);
refuses($session, q{SELECT fence.acquire('new', 'a', '500 ms', lease => 's')}, '22023', 'a life within the margin');
is(take($session, resource, 'a', 's', ttl => '10 s'), "t|1|a|", '... and a longer one');
alter_server($session, 's', margin_ms => undef);

# A10: in one step with its expiry
my $monitor = $redis->client;
$monitor->does('MONITOR');
taken($session, resource, 'a', 's', ttl => '1500 ms');
my $line = '';
$line = $monitor->receive until $line =~ /"SET"/i;
like($line, qr/"SET" "r$number" "[0-9a-f]{32}" "NX" "PX" "1500"/i, 'A10: SET NX PX');

# Others have it, in Redis only
$redis->does('SET', 'foreign', 'somebody', 'PX', 60000);
is(take($session, 'foreign', 'a', 's'), 'f|||held', 'A09: held by another client, who is not known here');
gives($session, q{SELECT remaining > '50 s', remaining <= '60 s', expires_at IS NOT NULL FROM fence.acquire('foreign', 'a', lease => 's')},
	't|t|t', '... but for how long is');
gives($session, q{SELECT count(*) FROM fence.resource WHERE name = 'foreign'}, 0, '... which writes nothing');
is($redis->does('GET', 'foreign'), 'somebody', '... over there, either');
$redis->does('SET', 'foreign', 'somebody', 'PX', '9000000000000000000');
gives($session, q{SELECT acquired, remaining IS NULL OR remaining > '1 day' FROM fence.acquire('foreign', 'a', lease => 's')}, 'f|t', '... for very long');
$redis->does('SET', 'foreign', 'somebody');
gives($session, q{SELECT acquired, reason, remaining IS NULL FROM fence.acquire('foreign', 'a', lease => 's')}, 'f|held|t', '... for ever');
$redis->does('DEL', 'foreign');
$redis->does('HSET', 'foreign', 'a', 1);
is(sqlstate($session, q{SELECT fence.acquire('foreign', 'a', lease => 's')}), 'PF007', '... as something else');
gives($session, q{SELECT count(*) FROM fence.resource WHERE name = 'foreign'}, 0, '... no token for any of these');

# From one keeper to another
$r = resource;
my $token = sql($session, "SELECT token FROM fence.acquire('$r', 'a', lease => 'postgres')");
is(take($session, $r, 'b', 's'), 'f||a|held', 'held in PostgreSQL');
is($redis->does('EXISTS', $r), 0, '... Redis is not even asked');
$session->does("SELECT fence.release('$r', $token)");
is(take($session, $r, 'b', 's'), 't|2|b|', '... then taken in Redis');
$session->does("SELECT fence.release('$r', 2)");
is(sql($session, "SELECT token, (SELECT lease FROM fence.leases WHERE resource = '$r') FROM fence.acquire('$r', 'c')"), '3|s', '... and in PostgreSQL again');
gives($session, "SELECT token, lease FROM fence.leases WHERE resource = '$r'", '3|postgres', '... which the view says');
refuses($session, "SELECT fence.check('$r', 3, NULL, 's')", 'PF002', '... and Redis does not know');

# The same request is answered as before.
$r = resource;
is(taken($session, $r, 'a', 's', request_id => 'q'), 1, 'a request');
$value = $redis->does('GET', $r);
is(taken($session, $r, 'a', 's', request_id => 'q'), 1, '... again: the same token');
is($redis->does('GET', $r), $value, '... and the same value');
is(take($session, $r, 'a', 's', request_id => 'other'), 'f||a|held', '... but not another one');

# What happens in Redis is not rolled back; it expires.
$r = resource;
$session->does("BEGIN; SELECT fence.acquire('$r', 'a', '2 s', lease => 's'); ROLLBACK");
is($redis->does('EXISTS', $r), 1, 'a rollback does not reach Redis');
is(take($session, $r, 'b', 's'), 'f|||held', '... so nobody gets it');
is(take($session, $r, 'b', 's', wait => '10 s'), 't|1|b|', '... until it expires');
$r = resource;
gives($session, qq{
		BEGIN;
		SAVEPOINT before;
		SELECT acquired FROM fence.acquire('$r', 'a', '1 s', lease => 's');
		ROLLBACK TO before;
		SELECT acquired, held_by, reason FROM fence.acquire('$r', 'a', lease => 's');
		SELECT acquired, token FROM fence.acquire('$r', 'a', '1 minute', '10 s', lease => 's');
		COMMIT},
	"t\nf||held\nt|1", '... nor does ROLLBACK TO, not even for who had it');

# The same goes for a call that is ended after Redis has done its part and before it has said so.
my %endings = (
	cancel => [ '57014', sub { sql($node, "SELECT pg_cancel_backend($_[0])") } ],
	terminate => [ '57P01', sub { sql($node, "SELECT pg_terminate_backend($_[0])") } ],
	statement_timeout => [ '57014', sub { } ]);
alter_server($session, 'f', timeout_ms => 60000);
foreach my $ending (sort keys %endings)
{
	my ($state, $end) = @{ $endings{$ending} };
	my $ended = session($node);
	my $backend = $ended->backend;

	$r = resource;
	$ended->does(q{SET statement_timeout = '500 ms'}) if $ending eq 'statement_timeout';
	$fake->behave(delay => 60, times => 1);
	$ended->send("SELECT fence.acquire('$r', 'a', '3 s', lease => 'f')");
	wait_until('Redis has it', sub { $redis->does('EXISTS', $r) });
	$end->($backend);
	is($ended->wait->sqlstate, $state, "$ending, while Redis is answering");
	under($ended->seconds, 2, '... at once');
	is($redis->does('EXISTS', $r), 1, '... it stays in Redis');
	gives($session, "SELECT count(*) FROM fence.resource WHERE name = '$r'", 0, '... but not here');
	is(take($session, $r, 'b', 's'), 'f|||held', '... so nobody gets it');
	is(take($session, $r, 'b', 's', wait => '10 s'), 't|1|b|', '... until it expires');
	is(taken($ended, resource, 'a', 'f'), 1, '... the session goes on') unless $ending eq 'terminate';
	$ended->quit;
}
$fake->behave;
alter_server($session, 'f', timeout_ms => 2000);

# Names are bytes.
sql($node, q{CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'});
my $bytes = session($node, dbname => 'bytes');
$bytes->does('CREATE EXTENSION pg_fence');
redis_server($bytes, 'p', $redis, timeout_ms => 2000, key_prefix => 'k %s:');
foreach my $odd ('a b', "x\r\nFLUSHALL\r\n", '%s%n', "\xff\xfe", '{a}b', 'x' x 512)
{
	my $literal = "E'" . join('', map { sprintf '\\x%02x', ord } split //, $odd) . "'";
	my $name = substr($odd =~ s/([^ -~])/sprintf '\\x%02x', ord $1/ger, 0, 30);

	gives($bytes, "SELECT acquired, token FROM fence.acquire($literal, $literal, lease => 'p')", 't|1', "odd name: $name");
	is($redis->does('EXISTS', "k %s:$odd"), 1, '... is the key');
	gives($bytes, "SELECT fence.check($literal, 1, $literal, 'p')", 't', '... checked');
	gives($bytes, "SELECT extended FROM fence.extend($literal, 1)", 't', '... extended');
	gives($bytes, "SELECT fence.release($literal, 1)", 't', '... released');
	is($redis->does('EXISTS', "k %s:$odd"), 0, '... and gone');
}
$bytes->quit;

# ---------------------------------------------------------------- wait

$r = resource;
$redis->does('SET', $r, 'somebody', 'PX', 60000);
my $waiter = session($node);
$waiter->backend;
is(take($waiter, $r, 'a', 's', wait => '600 ms'), 'f|||held', 'A11: waited in vain');
cmp_ok($waiter->seconds, '>=', 0.6, '... not before its time');
under($waiter->seconds, $FenceTest::at_once, '... and not long after');
cmp_ok($redis->does('PTTL', $r), '>', 50000, '... which has not shortened anything');
$waiter->send("SELECT acquired, token, remaining > '4 s', remaining <= '5 s' FROM fence.acquire('$r', 'a', '5 s', '1 minute', lease => 's')");
wait_for($session, "SELECT wait_event_type = 'Extension' FROM pg_stat_activity WHERE pid = " . $waiter->{backend});
my $start = time;
$redis->does('DEL', $r);
is($waiter->wait->output, 't|1|t|t', 'A05: its life begins when it is taken');
under(time - $start, $FenceTest::at_once, '... soon after it was free');
$waiter->quit;

# A05: what Redis has granted runs out while the old holder is waited for; it is given back.
$r = resource;
sql($session, "SELECT fence.acquire('$r', 'old', '1 day')");
sql($node, "BEGIN; SELECT fence.check('$r', 1); CREATE TABLE of_prepared (); PREPARE TRANSACTION 'p'");
$session->does("SELECT fence.release('$r', 1)");
is(take($session, $r, 'new', 's', ttl => '200 ms', wait => '700 ms'), 'f|||busy', 'A05: the old holder commits for longer than the lease lives');
is($redis->does('EXISTS', $r), 0, '... which has been given back');
my $late = session($node);
$late->send("SELECT acquired, token, remaining > '0' FROM fence.acquire('$r', 'new', '1 s', '1 minute', lease => 's')");
wait_until('it has been taken in Redis', sub { $redis->does('EXISTS', $r) });
wait_until('... and has expired there', sub { !$redis->does('EXISTS', $r) });
sql($node, q{COMMIT PREPARED 'p'});
is($late->wait->output, 't|2|t', '... and is taken anew by who comes too late');
is($late->errors, '', '... and has given back all locks in between');
$late->quit;

# ---------------------------------------------------------------- check

$session->does(q{
	CREATE TABLE t (a int);
	CREATE TABLE late (a int);
	SELECT fence.protect('t', 'guarded', lease => 's')});
$token = taken($session, 'guarded', 'a', 's');
$value = $redis->does('GET', 'guarded');
gives($session, "SELECT fence.check('guarded', $token, $_, 's')", 't', "verified, holder $_") foreach 'NULL', q{'a'};
refuses($session, "SELECT fence.check('guarded', $token, '$value', 's')", 'PF003', 'its value in Redis is no holder here');
refuses($session, "SELECT fence.check('guarded', $token, 'b', 's')", 'PF003', '... nor is anybody else');
is(sqlstate($session, "INSERT INTO t SELECT 1 WHERE fence.check('guarded', $token, NULL, 's')"), '', 'guard: verified');
is(sqlstate($session, "BEGIN; SELECT fence.check('guarded', $token); INSERT INTO t VALUES (2); COMMIT"), '', '... by the guard, which knows the value');
refuses($session, 'INSERT INTO t VALUES (3)', 'PF002', '... but not without a token');
$redis->does('SET', 'guarded', 'other', 'PX', 60000);
refuses($session, "SELECT fence.check('guarded', $token, 'a', 's')", 'PF005', 'taken by another client: refused');
is(sqlstate($session, "BEGIN; SELECT fence.check('guarded', $token); INSERT INTO t VALUES (4)"), 'PF005', '... by the guard, too');
$session->does('ROLLBACK');
$redis->does('DEL', 'guarded');
refuses($session, "SELECT fence.check('guarded', $token, 'a', 's')", 'PF005', 'gone: refused');
$redis->does('SET', 'guarded', $value);
refuses($session, "SELECT fence.check('guarded', $token, 'a', 's')", 'PF005', 'without expiry: refused');
$redis->does('SET', 'guarded', $value, 'PX', 60000);
gives($session, "SELECT fence.check('guarded', $token, 'a', 's')", 't', '... and there again');
gives($session, 'SELECT string_agg(a::text, \',\' ORDER BY a) FROM t', '1,2', 'only what was verified has been written');

# observe: a lost lease is told of, and written all the same
$session->does(q{SELECT fence.protect('t', 'guarded', lease => 's', mode => 'observe')});
$redis->does('DEL', 'guarded');
my $said = says($session, "BEGIN; SELECT fence.check('guarded', $token); INSERT INTO t SELECT 5 FROM generate_series(1, 100); COMMIT");
like($said, qr/WARNING:  PF005:/, 'observe: lost');
unlike($said, qr/ERROR/, '... written');
is(() = $said =~ /WARNING/g, 1, '... told once');
gives($session, 'SELECT count(*) FROM t WHERE a = 5', 100, '... written');

# at commit
redis_server($session, 'c', $redis, timeout_ms => 2000, validate => 'commit');
$token = taken($session, 'late', 'a', 'c');
$session->does("BEGIN; SELECT fence.check('late', $token, NULL, 'c'); INSERT INTO late VALUES (1)");
$redis->does('DEL', 'late');
refuses($session, 'COMMIT', 'PF005', 'lost before the commit');
gives($session, 'SELECT count(*) FROM late', 0, '... nothing is written');

# ---------------------------------------------------------------- extend

$r = resource;
$token = taken($session, $r, 'a', 's', ttl => '20 s');
is(extend($r, $token, '1 minute'), 't|', 'extended');
cmp_ok($redis->does('PTTL', $r), '>', 50000, '... in Redis');
is(extend($r, $token, '1 s'), 't|', 'never shortened');
cmp_ok($redis->does('PTTL', $r), '>', 50000, '... in Redis, either');
$remaining = sql($session, "SELECT extract(epoch FROM remaining) * 1000 FROM fence.leases WHERE resource = '$r'");
cmp_ok($remaining, '>', 40000, '... nor in PostgreSQL');
$redis->does('DEL', $r);
is(extend($r, $token, '1 minute'), 'f|expired', 'A06: lost in Redis');
is($redis->does('EXISTS', $r), 0, '... and never revived');
$redis->does('SET', $r, 'other', 'PX', 30000);
is(extend($r, $token, '1 hour'), 'f|expired', '... nor is the lock of somebody else');
cmp_ok($redis->does('PTTL', $r), '<=', 30000, '... prolonged');
is($redis->does('GET', $r), 'other', '... or taken over');
$session->does("SELECT fence.release('$r', $token)");
is($redis->does('GET', $r), 'other', 'A04: release does not delete it');
is(extend($r, $token, '1 hour'), 'f|released', '... and then it is over');

# ---------------------------------------------------------------- release

$r = resource;
$token = taken($session, $r, 'a', 's');
gives($session, "SELECT fence.release('$r', $token)", 't', 'released');
is($redis->does('EXISTS', $r), 0, '... in Redis');
gives($session, "SELECT fence.release('$r', $token)", 'f', '... once');
is(take($session, $r, 'b', 's'), 't|2|b|', '... and free');
$value = $redis->does('GET', $r);
gives($session, "SELECT fence.release('$r', $token)", 'f', 'A01: not by the old token');
is($redis->does('GET', $r), $value, '... whose successor keeps it');

# A04: expired, and taken by somebody else before the release arrives
$r = resource;
$token = taken($session, $r, 'a', 's', ttl => '100 ms');
expires($r);
wait_until('it has expired in Redis', sub { !$redis->does('EXISTS', $r) });
$redis->does('SET', $r, 'b', 'PX', 60000);
gives($session, "SELECT fence.release('$r', $token)", 'f', 'A04: a late release');
is($redis->does('GET', $r), 'b', '... deletes nothing');
is(extend($r, $token, '1 minute'), 'f|expired', 'A04: a late extend');
cmp_ok($redis->does('PTTL', $r), '<=', 60000, '... prolongs nothing');
$redis->does('DEL', $r);

# ---------------------------------------------------------------- hand over, break

$r = resource;
$token = taken($session, $r, 'a', 's', ttl => '5 s');
$value = $redis->does('GET', $r);
gives($session, "SELECT acquired, token, held_by FROM fence.hand_over('$r', $token, 'b', '1 minute')", 't|2|b', 'handed over');
cmp_ok($redis->does('PTTL', $r), '>', 50000, '... for as long in Redis');
gives($session, "SELECT fence.check('$r', 2, 'b', 's')", 't', '... which vouches for the new holder');
refuses($session, "SELECT fence.check('$r', 1, 'a', 's')", 'PF001', '... and not for the old one');
is(extend($r, 1, '1 minute'), 'f|superseded', '... who cannot extend it');
is(extend($r, 2, '2 minutes'), 't|', '... as the new one can');
$redis->does('DEL', $r);
gives($session, "SELECT acquired, reason FROM fence.hand_over('$r', 2, 'c')", 'f|expired', 'what is lost cannot be handed over');
$r = resource;
taken($session, $r, 'a', 's');
gives($session, "SELECT fence.break_lease('$r')", 't', 'broken');
is($redis->does('EXISTS', $r), 0, '... in Redis, too');
refuses($session, "SELECT fence.check('$r', 1, 'a', 's')", 'PF001', '... and the holder is out');
is(take($session, $r, 'b', 's'), 't|3|b|', '... the next one in');

# ---------------------------------------------------------------- what is lost

# A06: Redis loses everything; tokens do not.
my @resources = map { resource } 1 .. 3;
taken($session, $_, 'a', 's', ttl => '400 ms') foreach @resources;
$redis->does('FLUSHALL');
foreach my $lost (@resources)
{
	is(extend($lost, 1, '1 minute'), 'f|expired', 'A06: FLUSHALL, extend');
	refuses($session, "SELECT fence.check('$lost', 1, 'a', 's')", 'PF005', '... check');
	is(take($session, $lost, 'b', 's', wait => '10 s'), 't|2|b|', '... the next holder has a higher token');
	refuses($session, "SELECT fence.check('$lost', 1, 'a')", 'PF001', '... and the old one is refused without Redis, too');
	is(extend($lost, 1, '1 minute'), 'f|superseded', '... for good');
}

# D11: scripts are lost as well, and so is all with the process.
$r = resource;
taken($session, $r, 'a', 's');
$redis->does('SCRIPT', 'FLUSH');
is(extend($r, 1, '1 hour'), 't|', 'D11: extend after SCRIPT FLUSH');
$redis->does('SCRIPT', 'FLUSH');
gives($session, "SELECT fence.release('$r', 1)", 't', '... release');
is($redis->does('EXISTS', $r), 0, '... has done so');
$redis->does('SCRIPT', 'FLUSH');
is(take($session, $r, 'a', 's'), 't|2|a|', '... acquire');
$redis->restart;
is(extend($r, 2, '1 hour'), 'f|expired', 'D11: extend after a restart');
$said = says($session, "SELECT fence.release('$r', 2)");
is($said, '', '... release, of what is not there');
gives($session, "SELECT state FROM fence.leases WHERE resource = '$r'", 'free', '... is free');
is(take($session, $r, 'b', 's'), 't|3|b|', '... and taken again');
$redis->restart;
is(take($session, resource, 'b', 's'), 't|1|b|', '... acquire after a restart');

# A08: the reply of an acquisition is lost.  On a new connection that is a failure, and what may
# have been taken is given back; a kept one can have died, so it is tried again.
$r = resource;
alter_server($session, 'f', timeout_ms => 2001);
taken($session, resource, 'a', 'f');    # the scripts are known
$session->does("SELECT fence.release('r$number', 1)");
$r = resource;
alter_server($session, 'f', timeout_ms => 2000);
$fake->behave(lose => 1, times => 1);
is(sqlstate($session, "SELECT fence.acquire('$r', 'a', lease => 'f')"), 'PF006', 'A08: the reply is lost');
is($redis->does('EXISTS', $r), 0, '... given back');
is(take($session, $r, 'b', 'f'), 't|1|b|', '... and free for all');
$fake->behave(lose => 1, times => 1);
is(take($session, resource, 'a', 'f'), 't|1|a|', 'A08: lost with a connection that was kept');
is(extend("r$number", 1, '1 hour'), 't|', '... and it is ours');
alter_server($session, 'f', timeout_ms => 200);
$fake->behave(delay => 0.5, times => 1);
$r = resource;
is(sqlstate($session, "SELECT fence.acquire('$r', 'a', lease => 'f')"), 'PF006', 'A08: the reply comes too late');
is($redis->does('EXISTS', $r), 0, '... given back');
is(take($session, $r, 'b', 'f'), 't|1|b|', '... and free for all');
$fake->behave(delay => 0.5, times => 1);
is(sqlstate($session, "SELECT fence.extend('$r', 1, '1 hour')"), 'PF006', 'A08: extend');
cmp_ok($redis->does('PTTL', $r), '>', 1800000, '... may have been done');
is(extend($r, 1, '2 hours'), 't|', '... and can be done again');
$fake->behave(delay => 0.5, times => 1);
$said = says($session, "SELECT fence.release('$r', 1)");
like($said, qr/WARNING:  PF006/, 'A08: release warns');
gives($session, "SELECT state FROM fence.leases WHERE resource = '$r'", 'free', '... is done here');
$fake->behave;
alter_server($session, 'f', timeout_ms => 2000);
gives($session, q{SELECT count(*) FROM fence.resource WHERE token > 3}, 0, 'no token was wasted on any of this');

# A05: a slow answer is part of the lease's life, not an addition to it.
alter_server($session, 'f', timeout_ms => 5000);
$fake->behave(delay => 0.5);
gives($session, "SELECT acquired, remaining <= '9.5 s' FROM fence.acquire('slow', 'a', '10 s', lease => 'f')", 't|t', 'A05: a slow acquire');
gives($session, "SELECT extended, remaining <= '19.5 s' FROM fence.extend('slow', 1, '20 s')", 't|t', 'A05: a slow extend');
$fake->behave;
alter_server($session, 'f', timeout_ms => 2000);

# A09: who has it, and who could not be asked
$r = resource;
$redis->does('SET', $r, 'somebody', 'PX', 60000);
is(take($session, $r, 'a', 'f'), 'f|||held', 'A09: held');
$fake->stop;
is(sqlstate($session, "SELECT fence.acquire('$r', 'a', lease => 'f')"), 'PF006', '... nobody there');
$fake->start;
$fake->behave(reply => "-LOADING x\r\n");
is(sqlstate($session, "SELECT fence.acquire('$r', 'a', lease => 'f')"), 'PF006', '... not ready');
$fake->behave;
$session->does(q{CREATE USER MAPPING FOR PUBLIC SERVER f OPTIONS (password 'wrong')});
$redis->does(qw(CONFIG SET requirepass right));
is(sqlstate($session, "SELECT fence.acquire('$r', 'a', lease => 'f')"), 'PF007', '... wrong password');
$redis->does('CONFIG', 'SET', 'requirepass', '');
$session->does('DROP USER MAPPING FOR PUBLIC SERVER f');

# D10: a real one that is out of memory
$redis->does(qw(CONFIG SET maxmemory 1));
like(says($session, "SELECT fence.acquire('new', 'a', lease => 's')"), qr/ERROR:  PF006: (.*\n)+?.*DETAIL: .*OOM/, 'D10: OOM');
$redis->does(qw(CONFIG SET maxmemory 0));
is(take($session, 'new', 'a', 's'), 't|1|a|', '... passes');

# D09: a master that has become a replica
my $former = redis('former', port => 1);
redis_server($session, 'd', $former, timeout_ms => 2000, breaker_ms => 0);
taken($session, 'demoted', 'a', 'd');
$former->does('REPLICAOF', '127.0.0.1', 1);
refuses($session, $_, 'PF006', "D09: on a replica: $_") foreach "SELECT fence.check('demoted', 1, 'a', 'd')",
	"SELECT fence.extend('demoted', 1, '1 hour')", "SELECT fence.acquire('another', 'a', lease => 'd')";
like(says($session, q{SELECT fence.release('demoted', 1)}), qr/WARNING:  PF006/, '... release warns');
$former->stop;

# ---------------------------------------------------------------- who may

$session->does(q{
	CREATE ROLE writer;
	SELECT fence.grant_writer('writer');
	GRANT USAGE ON FOREIGN SERVER s TO writer});
$r = resource;
$session->does('SET ROLE writer');
taken($session, $r, 'a', 's');
$session->does('RESET ROLE; REVOKE USAGE ON FOREIGN SERVER s FROM writer; SET ROLE writer');
refuses($session, "SELECT fence.extend('$r', 1)", '42501', 'extend needs USAGE');
like(says($session, "SELECT fence.release('$r', 1)"), qr/WARNING:  42501/, '... release does its half, and warns');
$session->does('RESET ROLE');
$redis->does('DEL', $r);
taken($session, $r, 'a', 's');
alter_server($session, 's', layout => 'hash');
refuses($session, "SELECT fence.check('$r', 2, 'a', 's')", 'PF007', 'a layout that has been changed meanwhile');
alter_server($session, 's', layout => 'string');
$session->does('ALTER SERVER s RENAME TO renamed');
refuses($session, "SELECT fence.extend('$r', 2)", '42704', 'the server has another name now');
refuses($session, "SELECT fence.check('$r', 2, 'a', 's')", '42704', '... and is not found');
like(says($session, "SELECT fence.release('$r', 2)"), qr/WARNING:  42704/, '... release does its half, and warns');
$session->does('ALTER SERVER renamed RENAME TO s');

# ---------------------------------------------------------------- races

# Many take and release the same few: in Redis there is never more than one of each, and every
# token was a lease.
my $before = $redis->info('total_connections_received');
my ($count, $failed) = pgbench($node, [qw(-c 8 -j 2 -t 50)], <<'END');
\set r random(1, 2)
WITH taken AS MATERIALIZED (SELECT * FROM fence.acquire('race' || :r, 'me', wait => '1 minute', lease => 's'))
SELECT fence.release('race' || :r, token) FROM taken WHERE acquired;
END
is($failed, '', 'races');
is($count, 400, '... all have had their turn');
gives($session, q{SELECT sum(token), bool_and(state = 'free') FROM fence.leases WHERE resource LIKE 'race%'}, '400|t', '... each with a token of its own');
is($redis->does('EXISTS', 'race1', 'race2'), 0, '... and nothing is left');
cmp_ok($redis->info('total_connections_received') - $before, '<=', 10, '... with one connection each');

$session->quit;
finish($node);
