# What Redis can answer, and fail to: "could not ask" is PF006, what is wrong and stays so is
# PF007, neither is ever taken for yes or no, and the same session goes on.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use RedisTest;
use Test::More;
use Time::HiRes qw(time);

my $node = fence_node('failures');
my $redis = redis('behind');
my $fake = fake_redis(behind => $redis);
my $session = session($node);
my $backend = $session->backend;

# Long enough for a busy machine, where a test does not wait for it
my $timeout = 2000;
redis_server($session, 'f', $fake, timeout_ms => $timeout, breaker_ms => 0);
redis_server($session, 'late', $fake, timeout_ms => $timeout, breaker_ms => 0, validate => 'commit');

sub behave
{
	my (%rule) = @_;
	my $limit = delete $rule{timeout_ms} // $timeout;

	alter_server($session, $_, timeout_ms => $limit) foreach $limit == $timeout ? () : qw(f late);
	$fake->behave(%rule);
	return;
}

sub behave_well
{
	$fake->behave;
	alter_server($session, $_, timeout_ms => $timeout) foreach qw(f late);
	return;
}

# ---------------------------------------------------------------- calls

# Each asks Redis one question about a resource; its answer, if all is well; what happens if
# Redis could not be asked, or is none.
my %calls = (
	check => {
		sql => q{SELECT fence.check('%s', 1, 'a', 'f')}, good => 't',
		prepare => sub { $redis->does('SET', $_[0], 'a', 'PX', 600000) } },
	commit => {
		sql => q{BEGIN; SELECT fence.check('%s', 1, 'a', 'late'); COMMIT}, good => 't',
		prepare => sub { $redis->does('SET', $_[0], 'a', 'PX', 600000) } },
	acquire => {
		sql => q{SELECT acquired FROM fence.acquire('%s', 'a', lease => 'f')}, good => 't',
		prepare => sub { } },
	extend => {
		sql => q{SELECT extended FROM fence.extend('%s', 1, '1 hour')}, good => 't',
		prepare => sub { $session->does("SELECT fence.acquire('$_[0]', 'a', lease => 'f')") } },
	release => {
		sql => q{SELECT fence.release('%s', 1)}, good => 't', warns => 1,
		prepare => sub { $session->does("SELECT fence.acquire('$_[0]', 'a', lease => 'f')") } });
my $number = 0;

# One call while Redis misbehaves, and the same again when it does not any more.
sub fails
{
	my ($call, $rule, $state, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $kind = $calls{$call};
	my $resource = 'r' . ++$number;
	my $sql = sprintf $kind->{sql}, $resource;

	$kind->{prepare}->($resource);
	behave(%$rule);
	my $said = says($session, $sql);
	my $counts = $fake->counts;
	my $level = $kind->{warns} ? 'WARNING' : 'ERROR';
	like($said, qr/$level:  $state: /, "$call: $test_name");
	$session->ask('ROLLBACK') if $call eq 'commit';
	behave_well();
	# a lease that could be taken, but not be given back either, has to expire
	return if $call eq 'release' || ($call eq 'acquire' && grep { defined } @$rule{qw(cut hang slow)});
	is(sql($session, $sql), $kind->{good}, '... and then it works');
	return { said => $said, counts => $counts };
}

# ---------------------------------------------------------------- error words (D08, D09, D10)

my %words = (
	PF006 => [
		'LOADING Redis is loading the dataset in memory',
		'MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist to disk.',
		q{OOM command not allowed when used memory > 'maxmemory'.},
		'BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.',
		'CLUSTERDOWN The cluster is down',
		q{MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.},
		q{READONLY You can't write against a read only replica.},
		'TRYAGAIN Multiple keys request during rehashing of slot',
		'NOREPLICAS Not enough good replicas to write.',
		'ERR max number of clients reached',
		'LOADING', 'BUSY' ],
	PF007 => [
		'NOAUTH Authentication required.',
		'WRONGPASS invalid username-password pair or user is disabled.',
		q{NOPERM this user has no permissions to run the 'evalsha' command},
		'WRONGTYPE Operation against a key holding the wrong kind of value',
		'NOSCRIPT No matching script. Please use EVAL.',
		q{ERR unknown command 'EVALSHA', with args beginning with: 'x' '1'},
		q{ERR Error running script (call to f_x): @user_script:1: oops},
		'ERR', 'EXECABORT', '', ' ', 'LOADINGX', 'loading', ' LOADING', 'BUSYGROUP x', "\xff\xfe\t%s%n", 'x' x 60000,
		# redirects that name nothing
		'MOVED', 'MOVED 1', 'MOVED 1 ', 'MOVED 1 here', 'MOVED 1 127.0.0.1:', 'MOVED 1 127.0.0.1:0',
		'MOVED 1 127.0.0.1:65536', 'MOVED 1 127.0.0.1:-1', 'MOVED 1 127.0.0.1:99999999999',
		'MOVED 1 ' . 'h' x 300 . ':1', 'ASK', 'ASK 1 127.0.0.1:x' ]);
foreach my $state (sort keys %words)
{
	foreach my $error (@{ $words{$state} })
	{
		my ($word) = $error =~ /^([A-Z]{3,})/;
		my $shown = substr($error, 0, 40) =~ s/[^ -~]/?/gr;
		my $result = fails('check', { reply => "-$error\r\n" }, $state, "-$shown");

		like($result->{said}, qr/DETAIL: .*\b$word\b/, '... and the detail has that word') if $word && $word !~ /^(ERR|NOSCRIPT)$/;
		cmp_ok($result->{counts}->{commands}, '<=', 2, '... and it was not asked over and over again');
		unlike($result->{said}, qr/beginning/, '... without what we had said') if $error =~ /beginning/;
		like($result->{said}, qr/\A[\n -~]*\z/, '... and all of it can be read') if $error =~ /\xff/;
	}
}

# ---------------------------------------------------------------- other replies

my @alien = (
	":1\r\n", ":0\r\n", "+OK\r\n", "+QUEUED\r\n", "+\r\n", "\$1\r\n1\r\n", "\$-1\r\n", "*-1\r\n", "*0\r\n", "*1\r\n:1\r\n",
	"*3\r\n:1\r\n:60000\r\n:1\r\n", "*2\r\n\$1\r\n1\r\n:60000\r\n", "*2\r\n:1\r\n\$5\r\n60000\r\n", "*2\r\n:1\r\n\$-1\r\n",
	"*2\r\n*1\r\n:1\r\n:60000\r\n", "*2\r\n:1\r\n-LOADING x\r\n", "*2\r\n+OK\r\n+OK\r\n", "*1\r\n*2\r\n:1\r\n:60000\r\n",
	# no answer of ours
	"*2\r\n:7\r\n:60000\r\n", "*2\r\n:-1\r\n:60000\r\n", "*2\r\n:9223372036854775807\r\n:60000\r\n",
	# more than was asked for
	"*2\r\n:1\r\n:60000\r\n*2\r\n:1\r\n:60000\r\n", "*2\r\n:1\r\n:60000\r\n+", ":1\r\n:60000\r\n",
	# not the protocol, or not of this version
	"garbage\r\n", "\0\0\0\0\r\n", "\r\n", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
	"SSH-2.0-OpenSSH_9.2\r\n", "\x15\x03\x01\x00\x02\x02\x0a", ":abc\r\n", ":\r\n", ":1.5\r\n",
	":99999999999999999999\r\n", "*abc\r\n", "\$abc\r\n", "\$-5\r\n", "*-5\r\n", "\$99999999999999999999\r\n",
	"*99999999999999999999\r\n", "*1000000000\r\n", "*2147483648\r\n", "*9\r\n", "*1\r\n" x 100 . ":1\r\n", "*1\r\n" x 16000 . ":1\r\n", "\$3\r\nabcXY",
	"_\r\n", "#t\r\n", ",1.5\r\n", "%1\r\n:1\r\n:60000\r\n", "~2\r\n:1\r\n:60000\r\n", ">2\r\n:1\r\n:60000\r\n", "(1\r\n",
	"=5\r\ntxt:1\r\n", "!5\r\nERR x\r\n");
foreach my $bytes (@alien)
{
	my $shown = substr($bytes, 0, 40) =~ s/\r\n/ /gr =~ s/[^ -~]/?/gr;

	fails('check', { reply => $bytes }, 'PF007', "alien reply: $shown");
}

# Lengths that somebody made up, and answers without end, cost no memory.
my $before = memory_of($backend);
fails('check', { reply => "\$536870912\r\n", timeout_ms => 300 }, 'PF006', 'half a gigabyte is promised, and never comes');
fails('check', { reply => "\$536870912\r\n", flood => 'x' x 65536 }, 'PF007', '... or does come');
fails('check', { flood => 'x' x 65536 }, 'PF007', 'garbage without end');
fails('check', { flood => "+OK\r\n" x 8192 }, 'PF007', 'replies without end');
fails('check', { reply => '+', flood => 'x' x 65536 }, 'PF007', 'a line without end');
fails('check', { reply => "*2\r\n:1\r\n:", flood => '1' x 65536 }, 'PF007', 'a number without end');
cmp_ok(memory_of($backend) - $before, '<', 2048, '... and take no memory');

# ---------------------------------------------------------------- every call, every way

my @ways = (
	[ 'LOADING' => { reply => "-LOADING x\r\n" }, 'PF006' ],
	[ 'READONLY' => { reply => "-READONLY x\r\n" }, 'PF006' ],
	[ 'NOPERM' => { reply => "-NOPERM x\r\n" }, 'PF007' ],
	[ 'NOSCRIPT' => { reply => "-NOSCRIPT x\r\n" }, 'PF007' ],
	[ 'wrong type' => { reply => ":1\r\n" }, 'PF007' ],
	[ 'no answer of ours' => { reply => "*2\r\n:0\r\n:60000\r\n", on => [qw(EVAL EVALSHA)] }, 'PF007' ],
	[ 'HTTP' => { reply => "HTTP/1.1 400 Bad Request\r\n\r\n" }, 'PF007' ],
	[ 'mute' => { mute => 1, timeout_ms => 200 }, 'PF006' ],
	[ 'half a reply' => { hang => 3, timeout_ms => 200 }, 'PF006' ],
	[ 'hangs up' => { cut => 0 }, 'PF006' ],
	[ 'hangs up on half a reply' => { cut => 3 }, 'PF006' ],
	[ 'byte by byte, too slowly' => { slow => 0.05, timeout_ms => 200 }, 'PF006' ]);
foreach my $call (sort keys %calls)
{
	foreach my $way (@ways)
	{
		my ($name, $rule, $state) = @$way;

		# to verify, "nothing there" is an answer
		next if $name eq 'no answer of ours' && $call =~ /^(check|commit)$/;
		fails($call, $rule, $state, $name);
	}
}
ok(sql($session, q{SELECT count(*) FROM fence.resource WHERE name LIKE 'r%' AND token > 1}) eq '0', 'no failure has issued a token');

# ---------------------------------------------------------------- every byte

$redis->does('SET', 'bytes', 'a', 'PX', 600000);
my $check = q{SELECT fence.check('bytes', 1, 'a', 'f')};
my $length = length "*2\r\n:1\r\n:599000\r\n";
behave_well();
foreach my $i (0 .. $length - 1)
{
	foreach my $kept (1, 0)
	{
		# one more connection is made in the first case, because the other one can have died
		$kept ? $session->does($check) : $session->ask("ALTER SERVER f OPTIONS (SET breaker_ms '0')");
		behave(cut => $i);
		is(sqlstate($session, $check), 'PF006', 'hangs up after byte ' . $i . ($kept ? ', on a kept connection' : ''));
		is($fake->counts->{commands}, 1 + $kept, '... and is asked ' . ($kept ? 'again, once' : 'once'));
	}
	behave(cut => $i, times => 1);
	behave_well();
	gives($session, $check, 't', '... and then it works');
	behave(cut => $i, times => 1);
	gives($session, $check, 't', '... at once, if it was only the connection') if $i == 0;
}
behave(hang => $_, timeout_ms => 30), is(sqlstate($session, $check), 'PF006', "nothing comes after byte $_") foreach 0 .. $length - 1;
behave_well();
gives($session, $check, 't', '... and then it works');
behave(slow => 0.002);
gives($session, $check, 't', 'byte by byte is fine, in time');

# One deadline for all of it, however often something arrives
behave(slow => 0.5, timeout_ms => 400);
$session->ask($check);
is($session->sqlstate, 'PF006', 'byte by byte');
cmp_ok($session->seconds, '>=', 0.4, '... not before its time');
under($session->seconds, $FenceTest::at_once, '... but no byte stretches it');
behave(delay => 0.25, timeout_ms => 400, on => ['*']);
alter_server($session, 'f', db => 1);
$session->ask($check);
is($session->sqlstate, 'PF006', 'SELECT and the command, each late');
under($session->seconds, $FenceTest::at_once, '... share one time limit');
alter_server($session, 'f', db => undef);
behave_well();

# ---------------------------------------------------------------- connecting

behave(refuse => 1);
is(sqlstate($session, $check), 'PF006', 'hangs up on whoever connects');
behave(greet => "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n", mute => 1);
is(sqlstate($session, $check), 'PF007', 'speaks first, and not as Redis does');
behave(greet => "+OK\r\n", mute => 1);
is(sqlstate($session, $check), 'PF007', 'speaks first');
alter_server($session, 'f', timeout_ms => $timeout + 1);
behave(greet => "-ERR max number of clients reached\r\n", mute => 1);
is(sqlstate($session, $check), 'PF006', 'too many clients');
behave_well();
$session->ask("ALTER SERVER f OPTIONS (SET breaker_ms '0')");
$fake->stop;
is(sqlstate($session, $check), 'PF006', 'no socket there');
$fake->start;
gives($session, $check, 't', '... and then there is');
$fake->stop;
is(sqlstate($session, $check), 'PF006', 'it has gone away');
$fake->start;
gives($session, $check, 't', '... and is back');

my $tcp = fake_redis(behind => $redis, port => 1);
redis_server($session, 't', $tcp, timeout_ms => $timeout, breaker_ms => 0);
my $by_tcp = q{SELECT fence.check('bytes', 1, 'a', 't')};
gives($session, $by_tcp, 't', 'TCP');
my $port = sprintf '%04X', $tcp->{port};
like(slurp_file('/proc/net/tcp'), qr/^ *\d+: \S+ \w+:$port 01 \S+ 02:/m, '... to a host that is watched by the kernel');
$tcp->stop;
is(sqlstate($session, $by_tcp), 'PF006', '... refused');
$tcp->start;
gives($session, $by_tcp, 't', '... and then not');
alter_server($session, 't', host => 'localhost');
gives($session, $by_tcp, 't', '... by name');
foreach my $host ('no..such..host', '0.0.0.0.0', '-', "h\x7fst", '127.0.0.1/8', '::1')
{
	alter_server($session, 't', host => $host);
	is(sqlstate($session, $by_tcp), 'PF006', "D06: no such host: $host");
}
my $full = full_listener();
redis_server($session, 'nobody', $full, timeout_ms => 300, breaker_ms => 0);
$session->ask(q{SELECT fence.check('bytes', 1, 'a', 'nobody')});
is($session->sqlstate, 'PF006', 'a host that does not answer');
cmp_ok($session->seconds, '>=', 0.3, '... not before its time');
under($session->seconds, 0.3 + $FenceTest::at_once, '... and not long after');

# AUTH and SELECT can fail in the same ways.
$session->does(q{CREATE USER MAPPING FOR PUBLIC SERVER f OPTIONS (username 'u', password 'hidden')});
$redis->does(qw(ACL SETUSER u on >hidden ~* +@all));
$redis->does('SELECT', 2);
$redis->does('SET', 'bytes', 'a', 'PX', 600000);
alter_server($session, 'f', db => 2);
gives($session, $check, 't', 'AUTH and SELECT');
foreach my $command (qw(AUTH SELECT))
{
	foreach my $way ([ { reply => "-LOADING x\r\n" }, 'PF006' ], [ { reply => "-WRONGPASS x\r\n" }, 'PF007' ],
		[ { reply => "-ERR x\r\n" }, 'PF007' ], [ { reply => ":1\r\n" }, 'PF007' ], [ { reply => "+NO\r\n" }, 'PF007' ],
		[ { reply => "+OK\r\n+OK\r\n" }, 'PF007' ], [ { reply => "HTTP/1.1 400\r\n" }, 'PF007' ],
		[ { reply => "-MOVED 1 127.0.0.1:1\r\n" }, 'PF00[67]' ], [ { reply => "-NOSCRIPT x\r\n" }, 'PF007' ],
		[ { reply => "-READONLY x\r\n" }, 'PF006' ],
		[ { cut => 0 }, 'PF006' ], [ { cut => 3 }, 'PF006' ], [ { mute => 1, timeout_ms => 200 }, 'PF006' ],
		[ { hang => 3, timeout_ms => 200 }, 'PF006' ])
	{
		my ($rule, $state) = @$way;
		my ($kind) = %$rule;

		alter_server($session, 'f', breaker_ms => 0, timeout_ms => 1999);
		behave(%$rule, on => [$command]);
		my $said = says($session, $check);
		like($said, qr/ERROR:  $state:/, "$command: " . join ' ', map { s/\r\n/ /gr } %$rule);
		unlike($said, qr/hidden/, '... without the password');
		behave_well();
		gives($session, $check, 't', '... and then it works');
	}
}
$session->does('DROP USER MAPPING FOR PUBLIC SERVER f');
alter_server($session, 'f', db => undef);

# ---------------------------------------------------------------- redirects

my $here = fake_redis(behind => $redis, port => 1);
my $there = fake_redis(behind => $redis, port => 1);
my $moved_here = "-MOVED 1 127.0.0.1:$here->{port}\r\n";
my $moved_there = "-MOVED 1 127.0.0.1:$there->{port}\r\n";
redis_server($session, 'cluster', $here, timeout_ms => $timeout, breaker_ms => 0);
my $redirected = q{SELECT fence.check('bytes', 1, 'a', 'cluster')};
$redis->does('SELECT', 0);

sub redirects
{
	my ($at_here, $at_there, $state, $commands, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	alter_server($session, 'cluster', $here->address);
	$here->behave(%$at_here);
	$there->behave(%$at_there);
	is(sqlstate($session, $redirected), $state, $test_name);
	return cmp_ok($here->counts->{commands} + $there->counts->{commands}, '<=', $commands, '... after no more than so many commands');
}

redirects({ reply => $moved_there }, {}, '', 2, 'MOVED');
redirects({ reply => $moved_there }, { reply => $moved_here }, 'PF006', 3, 'MOVED to and fro');
redirects({ reply => $moved_here }, {}, 'PF006', 3, 'MOVED to the same place');
redirects({ reply => $moved_there }, { mute => 1 }, 'PF006', 2, 'MOVED to where nobody answers') if alter_server($session, 'cluster', timeout_ms => 300) || 1;
alter_server($session, 'cluster', timeout_ms => $timeout);
redirects({ reply => $moved_there }, { reply => "-CLUSTERDOWN x\r\n" }, 'PF006', 2, 'MOVED to a cluster that is down');
redirects({ reply => $moved_there }, { reply => ":1\r\n" }, 'PF007', 2, 'MOVED to something else');
redirects({ reply => "-MOVED 1 127.0.0.1:1\r\n" }, {}, 'PF006', 1, 'MOVED to where nobody listens');
redirects({ reply => "-MOVED 1 :$there->{port}\r\n" }, {}, '', 2, 'MOVED on the same host');
redirects({ reply => "-MOVED 1 no..such..host:1\r\n" }, {}, 'PF006', 1, 'MOVED to a host that does not exist');
redirects({ reply => $moved_there =~ s/MOVED/ASK/r }, { on => ['ASKING'], reply => "+OK\r\n" }, '', 3, 'ASK');
is(join(' ', @{ $there->counts->{names} }), 'ASKING EVALSHA', '... is preceded by ASKING');
redirects({ reply => $moved_there =~ s/MOVED/ASK/r }, { on => ['ASKING'], reply => "-ERR x\r\n" }, 'PF007', 2, 'ASK, but ASKING fails');
redirects({ reply => $moved_there =~ s/MOVED/ASK/r }, { script => { ASKING => "+OK\r\n", EVALSHA => $moved_here =~ s/MOVED/ASK/r } },
	'PF006', 5, 'ASK to and fro');
# the script is not known over there, and each of both commands needs its ASKING
redirects({ reply => $moved_there =~ s/MOVED/ASK/r }, { script => { ASKING => "+OK\r\n", EVALSHA => "-NOSCRIPT x\r\n" } }, '', 6, 'ASK and NOSCRIPT');
is(join(' ', @{ $there->counts->{names} }), 'ASKING EVALSHA ASKING EVAL', '... is preceded by ASKING, too');
$here->behave;
gives($session, $redirected, 't', 'what was asked elsewhere is not kept');
is($here->counts->{commands}, 1, '... but asked here again');

# A unix socket can be a door to a cluster, too.
$fake->behave(reply => $moved_there);
$there->behave;
gives($session, $check, 't', 'MOVED, from a unix socket');
$there->behave(reply => "-MOVED 1 :1\r\n");
is(sqlstate($session, $check), 'PF006', '... and from there');
$fake->behave(reply => "-MOVED 1 :1\r\n");
alter_server($session, 'f', timeout_ms => $timeout + 1);
like(sqlstate($session, $check), qr/^PF00[67]$/, 'a unix socket is no host that another port could be of');
behave_well();

# ---------------------------------------------------------------- order of replies (D04)

# What comes late is never taken for the answer to the next question.
$redis->does('SET', 'mine', 'a', 'PX', 600000);
$redis->does('SET', 'others', 'b', 'PX', 600000);
my $mine = q{SELECT fence.check('mine', 1, 'a', 'f')};
my $others = q{SELECT fence.check('others', 1, 'a', 'f')};
foreach my $way ([ 'a timeout' => '' ], [ 'statement_timeout' => q{SET LOCAL statement_timeout = '50ms';} ])
{
	my ($name, $setting) = @$way;

	foreach my $savepoint ('', 'SAVEPOINT s;')
	{
		behave(delay => 0.3, times => 1, timeout_ms => $setting ? $timeout : 100);
		$session->ask("BEGIN; $savepoint $setting $mine");
		is($session->sqlstate, $setting ? '57014' : 'PF006', "D04: $name" . ($savepoint ? ' in a savepoint' : ''));
		$session->ask($savepoint ? 'ROLLBACK TO s; RESET statement_timeout' : 'ROLLBACK');
		alter_server($session, 'f', timeout_ms => $timeout) unless $savepoint;
		refuses($session, $others, $savepoint && !$setting ? 'PF006' : 'PF005', '... the next answer is its own') unless $savepoint && !$setting;
		$session->ask('ROLLBACK');
		behave_well();
		refuses($session, $others, 'PF005', '... and the one after that');
		gives($session, $mine, 't', '... and so on');
	}
}
behave(extra => [ 0.5, "*2\r\n:1\r\n:60000\r\n" ], times => 1);
gives($session, $mine, 't', 'a server that says more than it was asked, later');
wait_until('it has said so', sub { $fake->counts->{unsaid} == 0 });
refuses($session, $others, 'PF005', '... is not believed');
behave_well();
foreach my $greeting ("+OK\r\n", ":1\r\n", "-LOADING x\r\n", "-NOSCRIPT x\r\n")
{
	alter_server($session, 'f', timeout_ms => $timeout + 1);
	behave(greet => $greeting);
	# a "not known" that comes too early only makes us send the script itself
	like(sqlstate($session, $mine), $greeting =~ /NOSCRIPT/ ? qr/^(PF00[67])?$/ : qr/^PF00[67]$/,
		'a server that speaks first: ' . $greeting =~ s/\r\n//r);
	wait_until('it has answered', sub { $fake->counts->{commands} > 0 });
	like(sqlstate($session, $others), qr/^PF00[567]$/, '... whose answer is not that of the next question');
	behave_well();
	refuses($session, $others, 'PF005', '... nor later');
}

# ---------------------------------------------------------------- on_unreachable

alter_server($session, $_, on_unreachable => 'allow') foreach qw(f late);
sql($session, q{CREATE TABLE t (a int); SELECT fence.protect('t', 'mine', lease => 'f')});
foreach my $word (@{ $words{PF006} })
{
	behave(reply => "-$word\r\n");
	my $said = says($session, "INSERT INTO t SELECT 1 WHERE fence.check('mine', 1, 'a', 'f')");
	like($said, qr/WARNING:  PF006:/, "allow: $word warns");
	unlike($said, qr/ERROR/, '... and lets through');
}
behave(mute => 1, timeout_ms => 100);
$session->ask('INSERT INTO t SELECT i FROM generate_series(1, 1000) i WHERE fence.check(\'mine\', 1, \'a\', \'f\')');
is($session->sqlstate, '', 'allow: no answer');
under($session->seconds, $FenceTest::at_once, '... is waited for once, not for every row');
is(() = $session->errors =~ /WARNING: +PF006/g, 1, '... and told once');
behave(reply => "-LOADING x\r\n");
like(says($session, q{BEGIN; SELECT fence.check('mine', 1, 'a', 'late'); COMMIT}), qr/\A.*WARNING:  PF006:(?!.*ERROR)/s, 'allow: at commit');
foreach my $word ('WRONGPASS x', 'NOPERM x', 'WRONGTYPE x', 'ERR x')
{
	behave(reply => "-$word\r\n");
	is(sqlstate($session, $mine), 'PF007', "allow is not about what is misconfigured: $word");
}
behave(reply => "-LOADING x\r\n");
is(sqlstate($session, q{SELECT * FROM fence.acquire('new', 'a', lease => 'f')}), 'PF006', '... nor about taking leases');
behave_well();
refuses($session, $others, 'PF005', '... nor about leases that are not held');
gives($session, $mine, 't', '... and Redis is asked again');

$session->quit;
finish($node);
