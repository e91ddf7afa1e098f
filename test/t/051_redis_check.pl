# Leases of other clients, verified in a real Redis: the four layouts, what counts as held, bytes,
# how often Redis is asked, and when.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use RedisTest;
use Test::More;
use Time::HiRes qw(time);

my $node = fence_node('check', conf => 'client_min_messages = notice');
my $redis = redis('check');
my $session = session($node);
my $without = sockets_of($session->backend);

# A resource of its own for each case: what has been presented once has its holder.
my $number = 0;

sub resource { return 'r' . ++$number; }

sub check
{
	my ($server, $resource, $holder, $token) = @_;

	$token //= 1;
	$holder =~ s/'/''/g;
	return "SELECT fence.check('$resource', $token, '$holder', '$server')";
}

sub vouches
{
	my ($server, $resource, $holder, $state, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is(sqlstate($session, check($server, $resource, $holder)), $state, $test_name);
}

# Waits by the clock of the server; looking at a key that has expired would remove it.
sub let_pass
{
	my ($ms) = @_;
	my $now = sub { my $t = $redis->does('TIME'); return $t->[0] * 1000 + $t->[1] / 1000; };
	my $end = $now->() + $ms;

	wait_until("$ms ms have passed", sub { $now->() > $end });
	return;
}

# ---------------------------------------------------------------- what clients write

# The scripts and commands are those of the clients' own sources.
my $redlock = <<'END';
for i, key in ipairs(KEYS) do
  if redis.call("exists", key) == 1 then return 0 end
end
for i, key in ipairs(KEYS) do
  redis.call("set", key, ARGV[1], "PX", ARGV[2])
end
return #KEYS
END
my $redisson = <<'END';
if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then
redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
return redis.call('pttl', KEYS[1]);
END
my $redisson_read = <<'END';
local mode = redis.call('hget', KEYS[1], 'mode');
if (mode == false) then
redis.call('hset', KEYS[1], 'mode', 'read'); redis.call('hset', KEYS[1], ARGV[2], 1);
redis.call('set', KEYS[2] .. ':1', 1); redis.call('pexpire', KEYS[2] .. ':1', ARGV[1]);
redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
return redis.call('pttl', KEYS[1]);
END
my $redisson_write = <<'END';
local mode = redis.call('hget', KEYS[1], 'mode');
if (mode == false) then
redis.call('hset', KEYS[1], 'mode', 'write'); redis.call('hset', KEYS[1], ARGV[2], 1);
redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end;
return redis.call('pttl', KEYS[1]);
END
my $symfony = <<'END';
local key = KEYS[1]
local uniqueToken = ARGV[2]
local ttl = tonumber(ARGV[3])
if redis.call("TYPE", key).ok == "string" then return false end
local now = redis.call("TIME")
now = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call("ZREMRANGEBYSCORE", key, "-inf", now)
if redis.call("ZSCORE", key, uniqueToken) then
  if not redis.call("ZSCORE", key, "__write__") and redis.call("ZCOUNT", key, "-inf", "+inf") > 1 then return false end
elseif redis.call("ZCOUNT", key, "-inf", "+inf") > 0 then
  return false
end
redis.call("ZADD", key, now + ttl, uniqueToken)
redis.call("ZADD", key, now + ttl, "__write__")
local maxExpiration = redis.call("ZREVRANGE", key, 0, 0, "WITHSCORES")[2]
redis.call("PEXPIREAT", key, maxExpiration)
return true
END
my $symfony_read = <<'END';
local now = redis.call("TIME")
now = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call("ZADD", KEYS[1], now + tonumber(ARGV[3]), ARGV[2])
local maxExpiration = redis.call("ZREVRANGE", KEYS[1], 0, 0, "WITHSCORES")[2]
redis.call("PEXPIREAT", KEYS[1], maxExpiration)
return true
END

my $uuid = 'f47ac10b-58cc-4372-a567-0e02b2c3d479';

# Client, server, prefix of its keys, holder, and how it takes the lock for so many ms.
my @clients = (
	[ 'redis-py', 'string', '', '8f14e45fceea11edb9a10242ac120002',
		sub { $redis->does('SET', $_[0], $_[1], 'PX', $_[2], 'NX') } ],
	[ 'python-redis-lock', 'string_lock', 'lock:', 'YWJjZGVmZ2hpamtsbW5vcHFy',
		sub { $redis->does('SET', $_[0], $_[1], 'NX', 'PX', $_[2]) } ],
	[ 'node-redlock', 'string', '', '5d41402abc4b2a76b9719d911017c592',
		sub { $redis->does('EVAL', $redlock, 1, @_) } ],
	[ 'redsync', 'string', '', 'q83vEjRWeJCrze8SNFZ4kA==',
		sub { $redis->does('SET', $_[0], $_[1], 'PX', $_[2], 'NX') } ],
	[ 'RedLock.net', 'string_redlock', 'redlock:', $uuid,
		sub { $redis->does('SET', $_[0], $_[1], 'PX', $_[2], 'NX') } ],
	[ 'bsm/redislock', 'prefix', '', 'Zm9vYmFyYmF6cXV1eDEyMw',
		sub { $redis->does('SET', $_[0], "$_[1]worker 7, job 12", 'PX', $_[2], 'NX') } ],
	[ 'Redisson RLock', 'hash', '', "$uuid:42",
		sub { $redis->does('EVAL', $redisson, 1, $_[0], $_[2], $_[1]) } ],
	[ 'Redisson RLock, taken twice', 'hash', '', "$uuid:43",
		sub { $redis->does('EVAL', $redisson, 1, $_[0], $_[2], $_[1]) foreach 1, 2 } ],
	[ 'Redisson RReadWriteLock, writing', 'hash', '', "$uuid:42:write",
		sub { $redis->does('EVAL', $redisson_write, 1, $_[0], $_[2], $_[1]) } ],
	[ 'Symfony', 'zset', '', 'dGhpcyBpcyAzMiBieXRlcyBvZiBhIHRva2VuIGhlcmU=',
		sub { $redis->does('EVAL', $symfony, 1, $_[0], 0, $_[1], $_[2]) } ]);

redis_server($session, $_, $redis, layout => $_, timeout_ms => 2000, breaker_ms => 0) foreach qw(string prefix hash zset);
redis_server($session, 'string_lock', $redis, key_prefix => 'lock:', timeout_ms => 2000);
redis_server($session, 'string_redlock', $redis, key_prefix => 'redlock:', timeout_ms => 2000);
# expired keys stay until somebody looks at them
$redis->does('DEBUG', 'SET-ACTIVE-EXPIRE', '0');

foreach my $client (@clients)
{
	my ($name, $server, $prefix, $holder, $take) = @$client;
	my $r = resource;

	$take->("$prefix$r", $holder, 60000);
	vouches($server, $r, $holder, '', "$name: held");
	$take->($prefix . resource, $holder, 60000);
	vouches($server, "r$number", "x$holder", 'PF005', '... by another holder');
	$take->($prefix . resource, "x$holder", 60000);
	vouches($server, "r$number", $holder, 'PF005', '... by another holder, the other way round');
	$take->($prefix . resource, $holder, 60000);
	vouches($server, "r$number", "${holder}x", 'PF005', '... a longer name');
	vouches($server, resource, $holder, 'PF005', '... not taken at all');
	$take->($prefix . resource, $holder, 1);
	let_pass(3);
	vouches($server, "r$number", $holder, 'PF005', '... no more');
	next if $server eq 'prefix';
	$take->($prefix . resource, $holder, 60000);
	vouches($server, "r$number", substr($holder, 0, -1), 'PF005', '... a shorter name');
}

# Locks that do not keep others out
my $r = resource;
$redis->does('EVAL', $redisson_read, 2, $r, "$r:timeout", 60000, "$uuid:1");
vouches('hash', $r, "$uuid:1", 'PF005', 'Redisson: a lock for reading is none for writing');
$redis->does('EVAL', $symfony_read, 1, resource, 0, 'reader', 60000);
vouches('zset', "r$number", 'reader', 'PF005', 'Symfony: a lock for reading is none for writing');

# What is stored beside the holders is none
$redis->does('EVAL', $redisson_write, 1, resource, 60000, "$uuid:1:write");
vouches('hash', "r$number", 'mode', 'PF005', 'Redisson: "mode" is no holder');
$redis->does('EVAL', $symfony, 1, resource, 0, 'writer', 60000);
vouches('zset', "r$number", '__write__', 'PF005', 'Symfony: "__write__" is no holder');

# One member has expired, another one keeps the key alive.
$r = resource;
$redis->does('ZADD', $r, 1000, 'late', 2000000000000, 'other', 2000000000000, '__write__');
vouches('zset', $r, 'late', 'PF005', 'Symfony: a member that has expired within a key that lives');

# A10: no expiry
$redis->does('SET', 'forever', 'a');
$redis->does('HSET', 'forever hash', 'a', 1);
$redis->does('ZADD', 'scores', 2000000000000, 'a', 2000000000000, '__write__');
vouches('string', 'forever', 'a', 'PF005', 'a string without expiry');
vouches('prefix', 'forever', 'a', 'PF005', '... with a prefix');
vouches('hash', 'forever hash', 'a', 'PF005', 'a hash without expiry');
vouches('zset', 'scores', 'a', '', 'a member has an end of its own');
like(says($session, check('string', 'forever', 'a')), qr/no expiry/, 'the detail says that there is none');
like(says($session, check('string', 'nothing', 'a')), qr/no lock/, '... and tells that from no lock');
$redis->does('SET', 'others', 'b', 'PX', 60000);
like(says($session, check('string', 'others', 'a')), qr/another holder/, '... and from another holder');
alter_server($session, 'string', allow_no_expiry => 'true', margin_ms => 1000);
vouches('string', 'forever', 'a', '', 'allow_no_expiry');
vouches('string', 'nothing', 'a', 'PF005', '... is not about keys that are not there');
alter_server($session, 'string', allow_no_expiry => undef, margin_ms => undef);

# Another type is a mistake in the options, and not an answer.
foreach my $wrong ([ string => 'HSET', 'w1', 'a', 1 ], [ prefix => 'RPUSH', 'w2', 'a' ],
	[ hash => 'SET', 'w3', 'a', 'PX', 60000 ], [ zset => 'SET', 'w4', 'a', 'PX', 60000 ],
	[ hash => 'ZADD', 'w5', 1, 'a' ], [ zset => 'HSET', 'w6', 'a', 1 ])
{
	my ($server, @command) = @$wrong;

	$redis->does(@command);
	vouches($server, $command[1], 'a', 'PF007', "layout $server and $command[0]");
}

# ---------------------------------------------------------------- remaining life (A10)

# The script's answer is a pair, its second number the life; a clock that stands still would
# be better.
my $fake = fake_redis(behind => $redis);
foreach my $layout (qw(string prefix hash zset))
{
	my ($client) = grep { $_->[1] eq $layout } @clients;
	my ($name, undef, undef, $holder, $take) = @$client;
	my $server = "margin_$layout";

	redis_server($session, $server, $fake, layout => $layout, timeout_ms => 2000);
	foreach my $case ([ undef, 1, '' ], [ undef, 0, 'PF005' ], [ 500, 500, '' ], [ 500, 499, 'PF005' ], [ 500, 501, '' ],
		[ 86400000, 86400000, '' ], [ 86400000, 86399999, 'PF005' ], [ 500, -1, $layout eq 'zset' ? 'PF005' : 'PF005' ], [ undef, -2, 'PF005' ])
	{
		my ($margin, $life, $state) = @$case;

		alter_server($session, $server, margin_ms => $margin);
		$take->(resource, $holder, 60000);
		$fake->behave(swap => [ ':-?\d+\r\n\z', ":$life\r\n" ]);
		vouches($server, "r$number", $holder, $state, sprintf('%s: margin %s, life %d', $layout, $margin // 'none', $life));
	}
}
$fake->behave;
redis_server($session, 'margin', $redis, margin_ms => 30000);
$redis->does('SET', resource, 'a', 'PX', 60000);
vouches('margin', "r$number", 'a', '', 'a real life above the margin');
$redis->does('SET', resource, 'a', 'PX', 29000);
vouches('margin', "r$number", 'a', 'PF005', '... and below it');
like(says($session, check('margin', "r$number", 'a')), qr/ 30000 /, '... with the numbers');
$redis->does('SET', resource, 'a', 'PX', '9000000000000000000');
vouches('margin', "r$number", 'a', '', 'the longest life there is');

# ---------------------------------------------------------------- bytes

sql($node, q{CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'});
my $bytes = session($node, dbname => 'bytes');
$bytes->does('CREATE EXTENSION pg_fence');
redis_server($bytes, $_, $redis, layout => $_, timeout_ms => 2000) foreach qw(string prefix hash zset);

sub literal
{
	my ($text) = @_;

	return "E'" . join('', map { sprintf '\\x%02x', ord } split //, $text) . "'";
}

sub check_bytes
{
	my ($server, $resource, $holder) = @_;

	return sprintf q{SELECT fence.check(%s, 1, %s, '%s')}, literal($resource), literal($holder), $server;
}

my @odd = (
	'a b', ' ', '  lead', 'trail  ', '%s%n%d%', "a\r\nFLUSHALL\r\n", "\r\n", "\n", "*1\r\n\$8\r\nFLUSHALL\r\n", "\xff\xfe",
	"\xc3", "\x01\x7f", "tab\t", '"quoted"', "'quoted'", '\\', '{tag}', "\$-1\r\n", "-ERR x\r\n", 'KEYS[1]', '?*[a-z]',
	'x' x 512, join('', map { chr } 1 .. 255));
$redis->does('SET', 'sentry', 'here');
foreach my $odd (@odd)
{
	(my $name = $odd) =~ s/([^ -~])/sprintf '\\x%02x', ord $1/ge;
	$name = substr($name, 0, 30);

	# as key and as holder, among neighbours that differ by a byte
	my $shorter = length $odd > 1 ? substr($odd, 0, -1) : 'x';
	my $longer = length $odd < 512 ? "$odd " : ' ' . substr($odd, 1);
	$redis->does('SET', "$_", 'neighbour', 'PX', 60000) foreach $shorter, $longer, "$odd\0";
	$redis->does('SET', $odd, $odd, 'PX', 60000);
	is(sqlstate($bytes, check_bytes('string', $odd, $odd)), '', "key and holder: $name");
	$redis->does('SET', $odd, $_, 'PX', 60000)
	  && is(sqlstate($bytes, check_bytes('string', $odd, $odd)), 'PF005', '... compared as a whole')
	  foreach $shorter, $longer, "$odd\0";
	$redis->does('SET', $odd, "$odd, and more", 'PX', 60000);
	is(sqlstate($bytes, check_bytes('prefix', $odd, $odd)), '', '... as prefix');
	$redis->does('DEL', $odd);
	$redis->does('HSET', $odd, $shorter, 1, $longer, 1, "$odd\0", 1);
	$redis->does('PEXPIRE', $odd, 60000);
	is(sqlstate($bytes, check_bytes('hash', $odd, $odd)), 'PF005', '... not a neighbour of the field');
	$redis->does('HSET', $odd, $odd, 1);
	is(sqlstate($bytes, check_bytes('hash', $odd, $odd)), '', '... but the field itself');
	$redis->does('DEL', $odd);
	$redis->does('ZADD', $odd, map { (2000000000000, $_) } $shorter, $longer, "$odd\0", '__write__');
	is(sqlstate($bytes, check_bytes('zset', $odd, $odd)), 'PF005', '... not a neighbour of the member');
	$redis->does('ZADD', $odd, 2000000000000, $odd);
	is(sqlstate($bytes, check_bytes('zset', $odd, $odd)), '', '... but the member itself');
	$redis->does('DEL', $odd);
	is(sqlstate($bytes, check_bytes('string', $odd, $odd)), 'PF005', '... neighbours are none of our business');
}
is($redis->does('GET', 'sentry'), 'here', 'no command has been slipped in');
$bytes->quit;

foreach my $length (513, 1048576)
{
	refuses($session, "SELECT fence.check('r', 1, repeat('x', $length), 'string')", '22023', "a holder of $length bytes");
	refuses($session, "SELECT fence.check(repeat('x', $length), 1, 'a', 'string')", '22023', "a resource of $length bytes");
}
refuses($session, check($_, 'r', ''), '22023', "no holder: an empty one, layout $_") foreach qw(string prefix hash zset);
refuses($session, q{SELECT fence.check('r', 1, NULL, 'string')}, 'PF002', 'NULL is no holder');
$redis->does('SET', resource, 'x' x 1048576, 'PX', 60000);
vouches('string', "r$number", 'x' x 512, 'PF005', 'another holder with a name of 1 MB');
vouches('prefix', "r$number", 'x' x 512, '', '... of which that is the beginning');

# ---------------------------------------------------------------- how often, and when

$session->does(q{
	CREATE TABLE inventory (id int PRIMARY KEY, qty int, at text DEFAULT 'w1');
	INSERT INTO inventory SELECT i, 0 FROM generate_series(1, 1000) i;
	CREATE TABLE guarded (id int PRIMARY KEY, qty int);
	INSERT INTO guarded SELECT i, 0 FROM generate_series(1, 1000) i;
	SELECT fence.protect('guarded', 'stock', lease => 'string');
	CREATE TABLE many (id int PRIMARY KEY, qty int);
	INSERT INTO many SELECT i, 0 FROM generate_series(1, 1000) i;
	SELECT fence.protect('many', 'many-{qty}', lease => 'string')});
redis_server($session, 'at_commit', $redis, validate => 'commit', timeout_ms => 2000);
redis_server($session, 'at_both', $redis, validate => 'both', timeout_ms => 2000);
$redis->does('SET', 'stock', 'a', 'PX', 600000);
$session->does(check($_, 'stock', 'a')) foreach qw(string at_commit at_both);

my $watch = $redis->watch;

# What Redis is asked by these statements; its answers change nothing in between.
sub asks
{
	my ($where, $sql, $commands, $test_name, $state) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	$watch->commands;
	is(sqlstate($where, $sql), $state // '', $test_name);
	return is(join(' ', $watch->commands), join(' ', ('EVALSHA') x $commands), "... by $commands questions");
}

my $c = check('string', 'stock', 'a');
asks($session, "UPDATE inventory SET qty = 1 WHERE fence.check('stock', 1, 'a', 'string')", 1, 'an UPDATE of 1000 rows');
gives($session, 'SELECT count(*) FROM inventory WHERE qty = 1', 1000, '... writes them all');
asks($session, "BEGIN; $c; UPDATE guarded SET qty = 2; UPDATE guarded SET qty = 3; COMMIT", 1, 'a transaction');
asks($session, "BEGIN; $c; SAVEPOINT s; $c; UPDATE guarded SET qty = 4; ROLLBACK TO s; $c; UPDATE guarded SET qty = 5; COMMIT",
	1, '... with savepoints');
asks($session, "BEGIN; SAVEPOINT s; $c; ROLLBACK TO s; $c; UPDATE guarded SET qty = 5; COMMIT", 1, '... presented again');
asks($session, "$c; $c", 2, 'two transactions');
asks($session, "UPDATE guarded SET qty = 6 WHERE fence.check('stock', 1, 'a', 'string')", 1, 'a guarded UPDATE that presents');
asks($session, "UPDATE guarded SET qty = 7", 0, 'a guarded UPDATE without a token', 'PF002');
$redis->does('SET', "many-$_", 'a', 'PX', 600000) foreach 0 .. 9;
asks($session, 'UPDATE inventory SET qty = 2 WHERE fence.check(format(\'many-%s\', id % 10), 1, \'a\', \'string\')', 10, 'ten resources');
my $same = check('string', 'many-0', 'a');
asks($session, "BEGIN; $same; UPDATE many SET qty = 0; COMMIT", 1, 'rows of one resource');
asks($session, check('string', 'stock', 'a', 0), 0, 'what is no token', '22023');
asks($session, "BEGIN; SELECT fence.check('other', 5, 'a'); COMMIT", 0, 'only the order');
asks($session, check('string', 'other', 'a', 4), 0, 'a stale token is refused without a question', 'PF001');
asks($session, check('string', 'stock', 'b'), 0, '... and so is another holder of the token', 'PF003');
asks($session, "BEGIN READ ONLY; $c", 0, '... and a read-only transaction', '25006');
$session->ask('ROLLBACK');

# validate => write, commit, both; the lock is lost between the write and the commit
foreach my $case ([ string => 1, 0, '' ], [ at_commit => 0, 1, 'PF005' ], [ at_both => 1, 1, 'PF005' ])
{
	my ($server, $at_write, $at_commit, $state) = @$case;
	my $present = check($server, 'stock', 'a');

	asks($session, "BEGIN; $present", $at_write, "$server: presents");
	asks($session, 'UPDATE inventory SET qty = 10', 0, '... writes');
	asks($session, 'COMMIT', $at_commit, '... commits');
	asks($session, "BEGIN; SAVEPOINT s; $present; ROLLBACK TO s; COMMIT", $at_write, "$server: what is rolled back is not asked for at commit");
	asks($session, "BEGIN; $present; SAVEPOINT s; $present; RELEASE s; COMMIT", $at_write + $at_commit, "$server: presented twice");
	asks($session, "BEGIN; $present; ROLLBACK", $at_write, "$server: no commit, no question");
	asks($session, "BEGIN; $present; PREPARE TRANSACTION 'p'", $at_write + $at_commit, "$server: PREPARE is the commit that counts");
	asks($session, "COMMIT PREPARED 'p'", 0, '... and then all is decided');

	$session->does("BEGIN; $present; UPDATE inventory SET qty = 11 WHERE id = 1");
	$redis->does('SET', 'stock', 'b', 'PX', 600000);
	is(sqlstate($session, 'COMMIT'), $state, "$server: another one has taken the lock before the commit");
	gives($session, 'SELECT qty FROM inventory WHERE id = 1', $state ? 10 : 11, '... ' . ($state ? 'nothing is written' : 'the tokens decide'));
	$session->does("BEGIN; SELECT fence.check('stock', 1)");
	$redis->does('SET', 'stock', 'a', 'PX', 600000);
	is(sqlstate($session, 'COMMIT'), '', '... the session goes on');
	$session->does('UPDATE inventory SET qty = 10');
}

# The answer holds for the transaction, the bad one, too.
$redis->does('SET', 'stock', 'b', 'PX', 600000);
$session->does('BEGIN; SAVEPOINT s');
asks($session, $c, 1, 'not held', 'PF005');
$redis->does('SET', 'stock', 'a', 'PX', 600000);
asks($session, "ROLLBACK TO s; $c", 0, '... is the answer for this transaction', 'PF005');
$session->does('ROLLBACK TO s; SELECT fence.check(\'stock\', 1); UPDATE inventory SET qty = 12; COMMIT');
asks($session, $c, 1, '... and not for the next one');

# The first question of a server: the script is sent once, whoever needs it.
$redis->does('SCRIPT', 'FLUSH');
$watch->commands;
is(sqlstate($session, $c), '', 'D11: after SCRIPT FLUSH');
is(join(' ', $watch->commands), 'EVALSHA EVAL', '... the script is sent');
my $another = session($node);
asks($another, $c, 1, '... and known to the next one');
$another->quit;

foreach my $level ('read committed', 'repeatable read', 'serializable')
{
	asks($session, "BEGIN ISOLATION LEVEL $level; $c; UPDATE guarded SET qty = 20; COMMIT", 1, $level);
}

# ---------------------------------------------------------------- the token decides

# A03: Redis says yes, somebody has presented a newer token.
$redis->does('SET', 'race', 'a', 'PX', 600000);
my $race = check('at_both', 'race', 'a', 7);
$session->does($race);
$session->does("BEGIN; $race; INSERT INTO inventory VALUES (2001, 7)");
sql($node, q{SELECT fence.check('race', 8, 'b')});
refuses($session, 'COMMIT', 'PF001', 'A03: a newer token, whatever Redis says');
refuses($session, $race, 'PF001', '... and for the next transaction');
refuses($session, check('string', 'race', 'a', 8), 'PF003', '... nor does its number help');

# Guards: the token alone is not enough, where the table wants the word of a server.
refuses($session, q{BEGIN; SELECT fence.check('stock', 1); UPDATE guarded SET qty = 30}, 'PF002', 'guard: a token without holder');
$session->ask('ROLLBACK');
refuses($session, q{BEGIN; SELECT fence.check('stock', 1); SAVEPOINT s; SELECT fence.check('stock', 1, 'a'); ROLLBACK TO s; UPDATE guarded SET qty = 30},
	'PF002', '... the holder was rolled back');
$session->ask('ROLLBACK');
asks($session, q{BEGIN; SELECT fence.check('stock', 1, 'a'); UPDATE guarded SET qty = 31; UPDATE guarded SET qty = 32; COMMIT},
	1, 'guard: asks about the holder that was named');
asks($session, q{BEGIN; SELECT fence.check('stock', 1); SELECT fence.check('stock', 1, 'a'); UPDATE guarded SET qty = 33; COMMIT}, 1, '... or named later');
$redis->does('SET', 'stock', 'b', 'PX', 600000);
refuses($session, "UPDATE guarded SET qty = 30 WHERE fence.check('stock', 1, 'a', 'string')", 'PF005', 'guard: the lock of another one');
refuses($session, "UPDATE guarded SET qty = 30 WHERE fence.check('stock', 1, 'a')", 'PF005', '... also if the guard has to ask');
gives($session, 'SELECT count(*) FROM guarded WHERE qty = 30', 0, '... nothing is written');
$redis->does('SET', 'stock', 'a', 'PX', 600000);

# mode => observe: warns, and lets through
$session->does(q{SELECT fence.protect('guarded', 'stock', lease => 'string', mode => 'observe')});
like(says($session, 'UPDATE guarded SET qty = 40 WHERE id = 1'), qr/WARNING:  PF002/, 'observe: no token');
my $said = says($session, q{BEGIN; SELECT fence.check('stock', 1); UPDATE guarded SET qty = 41; COMMIT});
like($said, qr/WARNING:  PF002/, 'observe: a token without holder');
gives($session, 'SELECT count(*) FROM guarded WHERE qty = 41', 1000, '... and written');
is(says($session, "BEGIN; $c; UPDATE guarded SET qty = 42; COMMIT"), '', 'observe: held');

# ---------------------------------------------------------------- options of the connection

my $tcp = redis('tcp', port => 1);
$tcp->does('SELECT', 3);
$tcp->does('SET', 'stock', 'a', 'PX', 600000);
redis_server($session, 't', $tcp, timeout_ms => 2000, breaker_ms => 0);
vouches('t', 'stock', 'a', 'PF005', 'another database');
alter_server($session, 't', db => 3);
vouches('t', 'stock', 'a', '', 'db');
$tcp->restart;
$tcp->does('SELECT', 3);
$tcp->does('SET', 'stock', 'a', 'PX', 600000);
vouches('t', 'stock', 'a', '', '... also after it has been connected again');
alter_server($session, 't', db => 99);
vouches('t', 'stock', 'a', 'PF007', 'no such database') foreach 1, 2;
alter_server($session, 't', db => undef, $redis->address, host => undef, port => undef);
vouches('t', 'stock', 'a', '', 'another address, within one session');
my $backend = $session->backend;
alter_server($session, 't', key_prefix => 'not there:');
vouches('t', 'stock', 'a', 'PF005', '... another prefix');
alter_server($session, 't', key_prefix => undef, layout => 'hash');
vouches('t', 'stock', 'a', 'PF007', '... another layout');
alter_server($session, 't', layout => 'string');
vouches('t', 'stock', 'a', '', '... and back');
foreach my $round (1 .. 20)
{
	alter_server($session, 't', timeout_ms => 1000 + $round);
	vouches('t', 'stock', 'a', '', "options change, round $round");
}
is(sockets_of($backend), $without + 1, '... and no connection is left behind');
$session->does($c);
is(sockets_of($backend), $without + 2, 'one connection for each server');
$session->does('DROP SERVER t');
$session->does($c);
is(sockets_of($backend), $without + 1, 'a server that is gone keeps none');
refuses($session, check('t', 'stock', 'a'), '42704', '... and cannot be asked');

# ---------------------------------------------------------------- a real one in trouble

# D01: connections that have gone away meanwhile
$redis->does(qw(CLIENT KILL TYPE normal SKIPME yes));
is(sqlstate($session, $c), '', 'D01: a connection that was closed over there');
$redis->restart;
$redis->does('SET', 'stock', 'a', 'PX', 600000);
is(sqlstate($session, $c), '', '... or died with the server');
$redis->stop;
is(sqlstate($session, $c), 'PF006', 'D04: no server');
$redis->start;
refuses($session, $c, 'PF005', 'A06: a server that has lost its data');
$redis->does('SET', 'stock', 'a', 'PX', 600000);
is(sqlstate($session, $c), '', '... the same session goes on');

# D10, where a real server can be brought to it
my $busy = $redis->client;
$redis->does(qw(CONFIG SET busy-reply-threshold 1));
$busy->send('EVAL', 'while true do end', 0);
wait_until('the script runs', sub { $redis->ask('PING') =~ /BUSY/ });
like(says($session, $c), qr/ERROR:  PF006: .*\n.*DETAIL: .*BUSY/, 'D10: BUSY');
$redis->does('SCRIPT', 'KILL');
wait_until('the script is over', sub { $redis->ask('PING') eq 'PONG' });
is(sqlstate($session, $c), '', '... passes');
$redis->does(qw(CONFIG SET min-replicas-to-write 1));
like(says($session, $c), qr/ERROR:  PF006: .*\n.*DETAIL: .*NOREPLICAS/, 'D10: NOREPLICAS');
$redis->does(qw(CONFIG SET min-replicas-to-write 0));
$redis->does(qw(CONFIG SET maxclients 1));
my @others = map { $redis->client } 1 .. 2;
$another = session($node);
my $state = sqlstate($another, $c);
is($state, 'PF006', 'too many clients');
@others = ();
$redis->does(qw(CONFIG SET maxclients 100));
wait_until('others can connect', sub { $redis->client->ask('PING') eq 'PONG' });
is(sqlstate($another, $c), '', '... passes');
$another->quit;

# D09: a replica is not asked, although it has the key
my $replica = redis('replica', port => 1);
$replica->does('SET', 'stock', 'a', 'PX', 600000);
redis_server($session, 'replica', $replica, breaker_ms => 0, timeout_ms => 2000);
vouches('replica', 'stock', 'a', '', 'a master');
$replica->does('REPLICAOF', '127.0.0.1', $tcp->{port});
$tcp->does('SELECT', 0);
$tcp->does('SET', 'stock', 'a', 'PX', 600000);
wait_until('the replica has it', sub { $replica->info('master_link_status') eq 'up' && ($replica->does('GET', 'stock') // '') eq 'a' });
vouches('replica', 'stock', 'a', 'PF006', 'D09: a master that has become a replica');
$replica->does(qw(CONFIG SET replica-serve-stale-data no));
$tcp->stop;
wait_until('the replica notices', sub { $replica->info('master_link_status') eq 'down' });
vouches('replica', 'stock', 'a', 'PF006', 'D10: MASTERDOWN, or READONLY');
$replica->does(qw(REPLICAOF NO ONE));
vouches('replica', 'stock', 'a', '', '... a master again');

$session->quit;
finish($node);
