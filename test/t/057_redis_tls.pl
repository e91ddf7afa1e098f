# TLS, where hiredis has it; elsewhere, the option is refused.

use strict;
use warnings;

use File::Spec;
use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use IO::Select;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Utils;
use RedisTest;
use Socket qw(IPPROTO_TCP TCP_NODELAY);
use Test::More;
use Time::HiRes qw(sleep);

# Hands all bytes on, those of the server in two halves.
sub relay
{
	my ($listener, $port) = @_;
	my $select = IO::Select->new($listener);
	my %other;

	while (my @ready = $select->can_read)
	{
		foreach my $socket (@ready)
		{
			if ($socket == $listener)
			{
				my $client = $listener->accept;
				my $server = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or die "connect: $!";
				$client->setsockopt(IPPROTO_TCP, TCP_NODELAY, 1);
				@other{ $client, $server } = ($server, $client);
				$select->add($client, $server);
				next;
			}
			my $other = $other{$socket};
			if (!sysread $socket, my $bytes, 65536)
			{
				$select->remove($socket, $other);
				close $_ foreach $socket, $other;
				last;
			}
			elsif ($socket->peerport == $port)
			{
				syswrite $other, substr($bytes, 0, length($bytes) / 2, '');
				sleep 0.02;
				syswrite $other, $bytes;
			}
			else
			{
				syswrite $other, $bytes;
			}
		}
	}
	return;
}

my $node = fence_node('tls');
my $session = session($node);
my $certificates = certificates();
my $library = fence_library();
my ($version) = `ldd $library.so` =~ /libhiredis\.so\.(\S+)/;

ok($version, "the library uses hiredis, libhiredis.so.$version");
if ($version =~ /^0\./)
{
	foreach my $options ("host 'h', tls 'true', ca_file '$certificates->{ca}'", "host 'h', tls 'on'",
		"sentinel 'h:1', master_name 'm', tls 'true', ca_file '$certificates->{ca}'")
	{
		refuses($session, "CREATE SERVER s FOREIGN DATA WRAPPER fence_redis OPTIONS ($options)", '0A000', "no TLS: $options");
	}
	redis_server($session, 's', { host => 'h', tls => 'false' });
	refuses($session, q{ALTER SERVER s OPTIONS (SET tls 'true')}, '0A000', 'nor by ALTER SERVER');
	$session->quit;
	finish($node);
	exit;
}

my $redis = redis('tls', tls => $certificates);
my $plain = redis('plain', port => 1);
my %address = $redis->address;
my $check = q{SELECT fence.check('lock', 1, 'a', 's')};

# ---------------------------------------------------------------- options

my %bad = (
	"host 'h', tls 'true'" => '22023',
	"host 'h', ca_file '$certificates->{ca}'" => '22023',
	"socket '/s', tls 'true', ca_file '$certificates->{ca}'" => '22023',
	"host 'h', tls 'true', ca_file '/nowhere/ca.pem'" => '58P01');
refuses($session, "CREATE SERVER s FOREIGN DATA WRAPPER fence_redis OPTIONS ($_)", $bad{$_}, "no server: $_") foreach sort keys %bad;
my $secret = File::Spec->rel2abs(write_file('secret.pem', ''));
chmod 0, $secret;
refuses($session, "CREATE SERVER s FOREIGN DATA WRAPPER fence_redis OPTIONS (host 'h', tls 'true', ca_file '$secret')", '42501', 'no server: a file that cannot be read');
my $fifo = "$secret.fifo";
POSIX::mkfifo($fifo, 0600) or die "mkfifo: $!";
my $hangs = session($node);
$hangs->send("CREATE SERVER s FOREIGN DATA WRAPPER fence_redis OPTIONS (host 'h', tls 'true', ca_file '$fifo')");
ok($hangs->finished(5), 'no server: a file that nobody writes does not hang');
open(my $writer, '+<', $fifo);
$hangs->wait;
close $writer;
$hangs->quit;
$session->ask('DROP SERVER IF EXISTS s');

# ---------------------------------------------------------------- asking

redis_server($session, 's', \%address, timeout_ms => 2000, breaker_ms => 0);
$redis->does('SET', 'lock', 'a', 'PX', 600000);
gives($session, $check, 't', 'TLS') foreach 1, 2;
my $connections = $redis->info('total_connections_received');
gives($session, $check, 't', '... again') foreach 1 .. 5;
is($redis->info('total_connections_received'), $connections, '... on the same connection');
alter_server($session, 's', host => 'localhost');
gives($session, $check, 't', '... by name');
$redis->does('SET', 'lock', 'b', 'PX', 600000);
refuses($session, $check, 'PF005', '... is an answer');
$redis->does('SET', 'lock', 'a', 'PX', 600000);
my $long = 'x' x 500;
$redis->does('SET', $long, $long, 'PX', 600000);
gives($session, "SELECT fence.check('$long', 1, '$long', 's')", 't', '... a longer question');
gives($session, q{SELECT acquired FROM fence.acquire('own', 'a', lease => 's')}, 't', '... a lease of our own');
gives($session, q{SELECT extended FROM fence.extend('own', 1)}, 't', '... extended');
gives($session, q{SELECT fence.release('own', 1)}, 't', '... released');
$session->does(q{CREATE USER MAPPING FOR PUBLIC SERVER s OPTIONS (username 'u', password 'pw')});
$redis->does(qw(ACL SETUSER u on >pw ~* +@all));
$redis->does('SELECT', 3);
$redis->does('SET', 'lock', 'a', 'PX', 600000);
alter_server($session, 's', db => 3);
gives($session, $check, 't', '... AUTH and SELECT');
alter_server($session, 's', db => undef);
$session->does('DROP USER MAPPING FOR PUBLIC SERVER s');
gives($session, q{SELECT count(*) FROM generate_series(1, 1000) i WHERE fence.check('lock', 1, 'a', 's')}, 1000, '... many rows');

# ---------------------------------------------------------------- not this server

alter_server($session, 's', ca_file => $certificates->{other_ca});
refuses($session, $check, 'PF007', 'a certificate of another authority') foreach 1, 2;
like(says($session, $check), qr/certificate was not accepted/, '... says so');
alter_server($session, 's', ca_file => $certificates->{ca});
gives($session, $check, 't', '... the right one');
alter_server($session, 's', ca_file => File::Spec->rel2abs(write_file('empty.pem', '')));
refuses($session, $check, 'PF007', 'no certificate in the file');
my $copy = File::Spec->rel2abs(write_file('copy.pem', slurp_file($certificates->{ca})));
alter_server($session, 's', ca_file => $copy);
gives($session, $check, 't', 'a copy of the file');
unlink $copy;
gives($session, $check, 't', '... which may go, while there is a connection');
my $another = session($node);
refuses($another, $check, 'PF007', '... but not for the next one');
$another->quit;
alter_server($session, 's', ca_file => $certificates->{ca});
alter_server($session, 's', $plain->address);
like(sqlstate($session, $check), qr/^PF00[67]$/, 'a server that speaks no TLS');
alter_server($session, 's', %address, tls => undef, ca_file => undef);
like(sqlstate($session, $check), qr/^PF00[67]$/, 'a server that speaks nothing else');
alter_server($session, 's', %address);
gives($session, $check, 't', '... put right');

# OpenSSL keeps one list of errors for the whole process.  It is asked when there is nothing to
# read yet, such as half an answer.
my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 5) or die "listen: $!";
my $relay = RedisTest::_spawn("${PostgreSQL::Test::Utils::log_path}/057_redis_tls_relay.log", [$listener],
	sub { $SIG{PIPE} = 'IGNORE'; relay($listener, $address{port}); });
redis_server($session, 'stranger', { %address, ca_file => $certificates->{other_ca} }, timeout_ms => 2000, breaker_ms => 0);
alter_server($session, 's', port => $listener->sockport);
gives($session, $check, 't', 'answers in halves');
refuses($session, q{SELECT fence.check('lock', 1, 'a', 'stranger')}, 'PF007', '... a handshake that fails elsewhere');
$connections = $redis->info('total_connections_received');
gives($session, $check, 't', '... and halves again');
is($redis->info('total_connections_received'), $connections, '... on the same connection');
$session->does('DROP SERVER stranger');
alter_server($session, 's', %address);
kill 'KILL', $relay;
RedisTest::_reap($relay);

# ---------------------------------------------------------------- nor another one of the same authority

$session->does(q{CREATE USER MAPPING FOR PUBLIC SERVER s OPTIONS (username 'u', password 'pw')});
foreach my $case (
	[ cert => 1, 1 ], [ name_cert => 1, 0 ], [ address_cert => 0, 1 ], [ others_cert => 0, 0 ])
{
	my ($certificate, %accepted) = ($case->[0], localhost => $case->[1], '127.0.0.1' => $case->[2]);

	$redis->does('CONFIG', 'SET', 'tls-cert-file', $certificates->{$certificate});
	foreach my $host (sort keys %accepted)
	{
		alter_server($session, 's', host => $host);
		my $introductions = $redis->calls('auth');
		if ($accepted{$host})
		{
			gives($session, $check, 't', "$certificate at $host");
			next;
		}
		my $said = says($session, $check);
		like($said, qr/ERROR:  PF007: .*mismatch \(host \Q$host\E\)/s, "$certificate at $host");
		is($redis->calls('auth'), $introductions, '... is told no password');
	}
}
$session->does('DROP USER MAPPING FOR PUBLIC SERVER s');
$redis->does('CONFIG', 'SET', 'tls-cert-file', $certificates->{cert});
gives($session, $check, 't', 'its own certificate');

# A sentinel is asked in the same way, and so is the master that it names, by address.
my $sentinel = RedisTest::Server->new('sentinel', tls => $certificates);
append_to_file("$sentinel->{dir}/sentinel.conf", "sentinel monitor fence 127.0.0.1 $address{port} 1\n");
$sentinel->{conf_file} = "$sentinel->{dir}/sentinel.conf";
push @{ $sentinel->{conf} }, qw(--sentinel --tls-replication yes);
$sentinel->start;
my %watched = (master_name => 'fence', tls => 'true', ca_file => $certificates->{ca});
my $port = { $sentinel->address }->{port};
my $by_sentinel = q{SELECT fence.check('lock', 1, 'a', 'watched')};
redis_server($session, 'watched', { sentinel => "localhost:$port", %watched }, breaker_ms => 0);
gives($session, $by_sentinel, 't', 'a sentinel');
$redis->does('CONFIG', 'SET', 'tls-cert-file', $certificates->{name_cert});
alter_server($session, 'watched', sentinel => "127.0.0.1:$port");
like(says($session, $by_sentinel), qr/ERROR:  PF007: .*mismatch \(host 127\.0\.0\.1\)/s, '... and a master with a certificate for its name only');
$redis->does('CONFIG', 'SET', 'tls-cert-file', $certificates->{cert});
$session->does('DROP SERVER watched');
gives($session, $check, 't', '... put right');

# ---------------------------------------------------------------- interrupted

my $fake = fake_redis(port => 1);
my $backend = $session->backend;
my $sockets = sockets_of($backend);
$session->does(q{DO $$BEGIN END$$});
$fake->behave(mute => 1);
redis_server($session, 'mute', { %address, $fake->address }, timeout_ms => 300, breaker_ms => 0);
$session->ask(q{SELECT fence.check('lock', 1, 'a', 'mute')});
is($session->sqlstate, 'PF006', 'a handshake without an answer');
cmp_ok($session->seconds, '>=', 0.3, '... not before its time');
under($session->seconds, 0.3 + $FenceTest::at_once, '... and not long after');
alter_server($session, 'mute', timeout_ms => 30000);
$session->ask(q{SET statement_timeout = '200ms'; SELECT fence.check('lock', 1, 'a', 'mute')});
is($session->sqlstate, '57014', 'statement_timeout in a handshake');
under($session->seconds, $FenceTest::at_once, '... at once');
$session->does('RESET statement_timeout');
$fake->behave(reply => "HTTP/1.1 400 Bad Request\r\n\r\n");
$fake->behave(greet => "HTTP/1.1 400 Bad Request\r\n\r\n");
like(sqlstate($session, q{SELECT fence.check('lock', 1, 'a', 'mute')}), qr/^PF00[67]$/, 'a handshake with something else');
$fake->behave(refuse => 1);
like(sqlstate($session, q{SELECT fence.check('lock', 1, 'a', 'mute')}), qr/^PF00[67]$/, 'a handshake that is hung up on');

alter_server($session, 's', timeout_ms => 30000);
$session->does($check);
$redis->freeze;
$session->ask("SET statement_timeout = '200ms'; $check");
is($session->sqlstate, '57014', 'statement_timeout, waiting for an answer');
under($session->seconds, $FenceTest::at_once, '... at once');
is(sockets_of($backend), $sockets - 1, '... and no socket is left');
$redis->thaw;
$session->does('RESET statement_timeout');
gives($session, $check, 't', '... and then it works');
$redis->restart;
$redis->does('SET', 'lock', 'a', 'PX', 600000);
gives($session, $check, 't', 'after a restart, within one session');
alter_server($session, 's', timeout_ms => 2000);
my $before = do { $session->does($check) foreach 1 .. 100; memory_of($backend) };
foreach my $round (1 .. 200)
{
	$redis->does(qw(CLIENT KILL TYPE normal SKIPME yes));
	$session->does($check);
}
cmp_ok(memory_of($backend) - $before, '<', 1024, 'two hundred handshakes cost no memory');
is(sockets_of($backend), $sockets, '... and no descriptor');

$session->quit;
finish($node);
