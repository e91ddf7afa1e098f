
=pod

=head1 NAME

RedisTest - Redis servers, real ones and a scripted one, for the TAP tests of pg_fence

=head1 SYNOPSIS

  use FenceTest;
  use RedisTest;

  my $node = fence_node('main');
  my $redis = redis('lock');
  redis_server($node, 's', $redis, margin_ms => 500);
  $redis->does('SET', 'stock', 'a value', 'PX', 30000);
  gives($node, "SELECT fence.check('stock', 1, 'a value', 's')", 't', 'held');

  $redis->freeze;                       # and thaw, stop, kill, start, restart

  my $fake = fake_redis(behind => $redis);
  $fake->behave(reply => "-LOADING Redis is loading the dataset in memory\r\n");
  is($fake->counts->{commands}, 1, 'asked once');

=head1 DESCRIPTION

Nothing here needs a package from CPAN.  Every server is a process of its own that listens in
a temporary folder, or on a port that is ours, keeps nothing on disk, and ends with the test
whatever the test dies of.  Their logs lie beside those of the PostgreSQL servers.

Environment: FENCE_REDIS, the program to run as server, if not redis-server.

=cut

package RedisTest;

use strict;
use warnings;

use Exporter 'import';
use File::Basename;
use File::Spec;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use POSIX ();
use Time::HiRes qw(time sleep);

our @EXPORT = qw(
  redis redis_cluster redis_sentinel fake_redis full_listener certificates
  redis_server alter_server says sockets_of memory_of wait_until
);

my $owner = $$;
my %children;

=pod

=head2 In PostgreSQL

=over

=item redis_server($where, $name, $target, %options)

Creates the foreign server, with the address of $target (a server of this module, or a hash
of options) and further options.  What a busy machine has to answer in is two seconds, unless
another timeout_ms is given; undef for none.

=item alter_server($where, $name, %options)

Sets these options, whether they are set already or not; undef drops one.

=cut

sub _literal
{
	my ($value) = @_;

	$value =~ s/'/''/g;
	return "'$value'";
}

sub redis_server
{
	my ($where, $name, $target, %options) = @_;
	my %all = (timeout_ms => 2000, ref $target eq 'HASH' ? %$target : $target->address, %options);
	my $list = join ', ', map { "$_ " . _literal($all{$_}) } grep { defined $all{$_} } sort keys %all;

	FenceTest::sql($where, "CREATE SERVER $name FOREIGN DATA WRAPPER fence_redis OPTIONS ($list)");
	return;
}

sub alter_server
{
	my ($where, $name, %options) = @_;
	my %set = map { $_ => 1 } split /\n/, FenceTest::sql($where,
		"SELECT (pg_options_to_table(srvoptions)).option_name FROM pg_foreign_server WHERE srvname = '$name'");
	my @changes;

	foreach my $option (sort keys %options)
	{
		my $value = $options{$option};
		next unless defined $value || $set{$option};
		push @changes, !defined $value ? "DROP $option"
		  : ($set{$option} ? 'SET' : 'ADD') . " $option " . _literal($value);
	}
	FenceTest::sql($where, "ALTER SERVER $name OPTIONS (" . join(', ', @changes) . ')') if @changes;
	return;
}

=pod

=item says($where, $sql)

Runs it and returns what the client is told of it: SQLSTATE, message, detail and hint of each
error and warning, and where in the source it comes from.

=cut

sub says
{
	my ($where, $sql) = @_;
	my $session = $where->isa('FenceTest::Session') ? $where : FenceTest::session($where);

	$session->ask('\set VERBOSITY verbose');
	$session->ask($sql);
	my $said = $session->errors;
	$session->ask('\set VERBOSITY sqlstate');
	$session->quit unless $session == $where;
	return $said;
}

=pod

=item sockets_of($pid), memory_of($pid)

How many sockets a process of ours has open; how many kB of memory of its own it has now.

=cut

sub sockets_of
{
	my ($pid) = @_;

	return scalar grep { (readlink($_) // '') =~ /^socket:/ } glob("/proc/$pid/fd/*");
}

# Shared buffers count as soon as they are touched, so they are left out.
sub memory_of
{
	my ($pid) = @_;
	my ($anonymous) = slurp_file("/proc/$pid/status") =~ /^RssAnon:\s+(\d+) kB/m;

	return $anonymous;
}

=pod

=item wait_until($what, $test)

Calls $test until it returns true; dies after the patience of FenceTest.

=back

=cut

sub wait_until
{
	my ($what, $test) = @_;
	my $end = time + $FenceTest::patience;

	until ($test->())
	{
		die "timed out waiting until $what" if time > $end;
		sleep 0.01;
	}
	return;
}

# Forks a process that has none of our descriptors but those to @keep: a psql would wait for
# ever for the end of an input that somebody else has inherited.
sub _spawn
{
	my ($log, $keep, $run) = @_;
	my $pid = fork // die "fork: $!";

	if ($pid)
	{
		$children{$pid} = 1;
		return $pid;
	}
	eval {
		my %keep = map { fileno($_) => 1 } @$keep;
		$SIG{$_} = 'DEFAULT' foreach qw(INT TERM __DIE__ __WARN__);
		# not closed: perl counts the users of each number, and would not close the next one's
		my $null = POSIX::open('/dev/null', POSIX::O_RDWR());
		POSIX::dup2($null, $_) foreach 0, grep { $_ > 2 && !$keep{$_} } map { basename($_) } glob('/proc/self/fd/*');
		my $out = POSIX::open($log, POSIX::O_WRONLY() | POSIX::O_CREAT() | POSIX::O_APPEND(), 0600);
		POSIX::dup2($out, $_) foreach 1, 2;
		$run->();
	};
	POSIX::write(2, $@, length $@) if $@;
	POSIX::_exit(1);
}

sub _reap
{
	my ($pid) = @_;

	waitpid($pid, 0) if delete $children{$pid};
	return;
}

END
{
	if ($$ == $owner)
	{
		my $status = $?;
		kill 'KILL', keys %children if %children;
		_reap($_) foreach keys %children;
		$? = $status;
	}
}

=pod

=head2 Real servers

=over

=item redis($name, %params)

A started redis-server, reached through a unix socket.  Params: port, true for one that
listens on a TCP port (and the socket; address() then gives the port); tls, certificates for
one that speaks TLS on a port; conf, an array of more options for its command line.

=item certificates()

Makes a certificate authority and, signed by it, certificates with one key: for localhost and
127.0.0.1, for one of both, and for others; another authority that has signed nothing.
Returns paths: ca, cert, name_cert, address_cert, others_cert, key, other_ca.

=cut

sub redis
{
	my ($name, %params) = @_;

	return RedisTest::Server->new($name, %params)->start;
}

sub _openssl
{
	my @command = @_;

	PostgreSQL::Test::Utils::system_log('openssl', @command) == 0 or die "openssl @command failed";
	return;
}

sub certificates
{
	my $dir = File::Spec->rel2abs(PostgreSQL::Test::Utils::tempdir);
	my @key = qw(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes);

	foreach my $ca (qw(ca other_ca))
	{
		_openssl(qw(req -x509 -days 2), @key, '-subj', "/CN=$ca", '-keyout', "$dir/$ca.key", '-out', "$dir/$ca.pem");
	}
	my %names = (
		cert => 'DNS:localhost, IP:127.0.0.1',
		name_cert => 'DNS:localhost',
		address_cert => 'IP:127.0.0.1',
		others_cert => 'DNS:redis.example, IP:127.0.0.2');
	_openssl('req', @key, qw(-subj /CN=redis), '-keyout', "$dir/server.key", '-out', "$dir/server.csr");
	foreach my $name (sort keys %names)
	{
		append_to_file("$dir/$name.names", "subjectAltName = $names{$name}\n");
		_openssl(qw(x509 -req -days 2 -CAcreateserial), '-in', "$dir/server.csr", '-CA', "$dir/ca.pem",
			'-CAkey', "$dir/ca.key", '-extfile', "$dir/$name.names", '-out', "$dir/$name.pem");
	}
	return {
		ca => "$dir/ca.pem", other_ca => "$dir/other_ca.pem", key => "$dir/server.key",
		map { $_ => "$dir/$_.pem" } keys %names };
}

=pod

=item redis_cluster($count)

That many masters which share the slots evenly; a list of servers.

=item redis_sentinel()

A master, its replica and three sentinels, which know of each other.  Returns (master,
replica, [sentinels]); the master's name is "fence".

=back

=cut

sub redis_cluster
{
	my ($count) = @_;
	my @nodes = map {
		redis("cluster$_", port => 1, conf => [
				qw(--cluster-enabled yes --cluster-node-timeout 2000 --cluster-port),
				PostgreSQL::Test::Cluster::get_free_port() ])
	} 1 .. $count;
	my @first = map { int(16384 * $_ / $count) } 0 .. $count;

	foreach my $i (0 .. $#nodes)
	{
		$nodes[$i]->does('CLUSTER', 'ADDSLOTSRANGE', $first[$i], $first[ $i + 1 ] - 1);
		$nodes[$i]->does('CLUSTER', 'SET-CONFIG-EPOCH', $i + 1);
	}
	foreach my $node (@nodes[ 1 .. $#nodes ])
	{
		my ($bus) = $node->{conf}->[-1];
		$nodes[0]->does('CLUSTER', 'MEET', '127.0.0.1', $node->{port}, $bus);
	}
	foreach my $node (@nodes)
	{
		wait_until('the cluster works', sub {
				my $info = $node->does('CLUSTER', 'INFO');
				$info =~ /cluster_state:ok/ && $info =~ /cluster_known_nodes:$count\b/;
			});
	}
	return @nodes;
}

sub redis_sentinel
{
	my $master = redis('master', port => 1);
	my $replica = redis('replica', port => 1, conf => [ '--replicaof', "127.0.0.1 $master->{port}" ]);
	my @sentinels;

	wait_until('the replica follows', sub { $replica->info('master_link_status') eq 'up' });
	foreach my $i (1 .. 3)
	{
		my $sentinel = RedisTest::Server->new("sentinel$i", port => 1);
		append_to_file("$sentinel->{dir}/sentinel.conf", <<"END");
sentinel monitor fence 127.0.0.1 $master->{port} 2
sentinel down-after-milliseconds fence 1000
sentinel failover-timeout fence 5000
END
		$sentinel->{conf_file} = "$sentinel->{dir}/sentinel.conf";
		$sentinel->{conf} = ['--sentinel'];
		push @sentinels, $sentinel->start;
	}
	foreach my $sentinel (@sentinels)
	{
		wait_until('the sentinels know of each other', sub {
				my %master = @{ $sentinel->does('SENTINEL', 'MASTER', 'fence') };
				$master{'num-other-sentinels'} == 2 && $master{'num-slaves'} == 1 && $master{flags} eq 'master';
			});
	}
	return ($master, $replica, \@sentinels);
}

=pod

=head2 A scripted server

=over

=item fake_redis(%params)

Hands commands on to the server given as "behind" and its replies back, and does with them
what it has been told to; without one it answers +OK.  Params: behind; port, true for a TCP
port instead of a unix socket.

=item full_listener()

A TCP port at which nobody accepts and which takes no more connections, so that connecting
never ends.  Keep the returned object as long as it is needed.

=back

=cut

sub fake_redis
{
	my (%params) = @_;

	return RedisTest::Fake->new(%params);
}

sub full_listener
{
	return RedisTest::Full->new;
}

sub _value
{
	my ($value, @command) = @_;

	die join(' ', grep { defined } @command[ 0, 1 ]) . ": $value" if ref $value eq 'RedisTest::Error';
	return $value;
}

# The reply in $$buffer that starts at $at: its value, and where it ends.  Nothing, if it is
# not complete.  Commands have the form of a reply, too.
sub _parse
{
	my ($buffer, $at) = @_;
	my $end = index($$buffer, "\r\n", $at);

	return if $end < 0;
	my $type = substr($$buffer, $at, 1);
	my $rest = substr($$buffer, $at + 1, $end - $at - 1);
	$end += 2;
	return ($rest, $end) if $type eq '+' || $type eq ':';
	return (bless({ message => $rest }, 'RedisTest::Error'), $end) if $type eq '-';
	die "not a reply: $type$rest" unless $type eq '$' || $type eq '*';
	return (undef, $end) if $rest < 0;
	if ($type eq '$')
	{
		return if length($$buffer) < $end + $rest + 2;
		return (substr($$buffer, $end, $rest), $end + $rest + 2);
	}
	my @values;
	while ($rest-- > 0)
	{
		my ($value, $next) = _parse($buffer, $end);
		return unless defined $next;
		push @values, $value;
		$end = $next;
	}
	return (\@values, $end);
}

# ---------------------------------------------------------------- connections

package RedisTest::Error;

use overload '""' => sub { $_[0]->{message} }, fallback => 1;

=pod

=head2 Connections

=over

=item $client->ask(@command), $client->does(@command)

The reply: text or number, undef for nil, an array, or an object of class RedisTest::Error
that reads as its text; "does" dies of an error.

=item $client->send(@command), $client->receive

Both halves of it; receive() takes a time limit in seconds.

=back

=cut

package RedisTest::Client;

use strict;
use warnings;

use IO::Select;
use IO::Socket::UNIX;
use Time::HiRes qw(time);

sub new
{
	my ($class, $path) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $path) or die "$path: $!";

	return bless { socket => $socket, buffer => '' }, $class;
}

sub send
{
	my ($self, @command) = @_;
	my $bytes = join '', '*' . @command . "\r\n", map { '$' . length($_) . "\r\n$_\r\n" } @command;
	local $SIG{PIPE} = 'IGNORE';

	while (length $bytes)
	{
		my $written = syswrite($self->{socket}, $bytes) // die "write to Redis: $!";
		substr($bytes, 0, $written, '');
	}
	return $self;
}

# Returns the value and the bytes that it came in.
sub receive_raw
{
	my ($self, $seconds) = @_;
	my $end = time + ($seconds // $FenceTest::patience);
	my $select = IO::Select->new($self->{socket});

	for (;;)
	{
		my ($value, $length) = RedisTest::_parse(\$self->{buffer}, 0);
		return ($value, substr($self->{buffer}, 0, $length, '')) if defined $length;
		my $left = $end - time;
		die 'no reply from Redis' if $left <= 0;
		next unless $select->can_read($left);    # a signal ends that, too
		sysread($self->{socket}, $self->{buffer}, 65536, length $self->{buffer})
		  or die 'Redis closed the connection';
	}
}

sub receive
{
	my ($self, $seconds) = @_;
	my ($value) = $self->receive_raw($seconds);

	return $value;
}

sub ask
{
	my ($self, @command) = @_;

	return $self->send(@command)->receive;
}

sub does
{
	my ($self, @command) = @_;

	return RedisTest::_value($self->ask(@command), @command);
}

# ---------------------------------------------------------------- servers

=pod

=head2 Servers

Real and scripted ones.

=over

=item $redis->address

Options for CREATE SERVER: (socket => path) or (host => ..., port => ...), with tls and
ca_file for a server that speaks TLS.

=item $redis->ask(@command), $redis->does(@command), $redis->client

Through a connection of the test's own, or through a new one.

=item $redis->info($name)

A field of INFO.

=item $redis->calls($command)

How often the server has run that command, whoever asked for it, scripts included.

=item $redis->watch

From now on, notes what commands come in; $watch->commands gives those since the last call,
in upper case, without what scripts do.  Commands of the test itself are among them.

=item $redis->freeze, $redis->thaw

Stops the process where it is (SIGSTOP); lets it go on.

=item $redis->stop, $redis->kill, $redis->start, $redis->restart

Its data is lost with it.

=back

=cut

package RedisTest::Server;

use strict;
use warnings;

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $program = $ENV{FENCE_REDIS} // 'redis-server';

sub new
{
	my ($class, $name, %params) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir_short;
	my $test = File::Basename::basename($0, '.pl');

	my $self = bless {
		name => $name, dir => $dir, socket => "$dir/redis.sock",
		conf => [ @{ $params{conf} // [] } ],
		log => "${PostgreSQL::Test::Utils::log_path}/${test}_redis_$name.log" }, $class;
	$self->{port} = PostgreSQL::Test::Cluster::get_free_port() if $params{port};
	$self->_prepare_tls($params{tls}) if $params{tls};
	return $self;
}

sub _prepare_tls
{
	my ($self, $tls) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();

	push @{ $self->{conf} },
	  '--tls-port', $port, '--tls-cert-file', $tls->{cert}, '--tls-key-file', $tls->{key},
	  '--tls-ca-cert-file', $tls->{ca}, '--tls-auth-clients', 'no';
	$self->{address} = { host => '127.0.0.1', port => $port, tls => 'true', ca_file => $tls->{ca} };
	return;
}

sub start
{
	my ($self) = @_;
	my @command = ($program);

	push @command, $self->{conf_file} if $self->{conf_file};
	push @command,
	  '--unixsocket', $self->{socket}, '--port', $self->{port} // 0, '--bind', '127.0.0.1',
	  '--dir', $self->{dir}, '--daemonize', 'no', @{ $self->{conf} };
	push @command, qw(--appendonly no --enable-debug-command yes --repl-diskless-sync-delay 0 --save), ''
	  unless $self->{conf_file};

	die "$self->{name} is running" if $self->{pid};
	note "starting @command";
	$self->{pid} = RedisTest::_spawn($self->{log}, [],
		sub { exec 'setpriv', '--pdeathsig', 'KILL', '--', @command or die "setpriv: $!"; });
	RedisTest::wait_until("$self->{name} answers", sub {
			waitpid($self->{pid}, POSIX::WNOHANG()) == 0
			  or die "$program has ended: " . PostgreSQL::Test::Utils::slurp_file($self->{log});
			eval { ($self->client->ask('PING') // '') =~ /^(PONG|NOAUTH)/ };
		});
	return $self;
}

sub _end
{
	my ($self, $signal) = @_;

	if (my $pid = delete $self->{pid})
	{
		CORE::kill($signal, $pid);
		CORE::kill('CONT', $pid);
		RedisTest::_reap($pid);
	}
	delete $self->{client};
	return $self;
}

sub stop { return $_[0]->_end('TERM'); }
sub kill { return $_[0]->_end('KILL'); }

sub restart
{
	my ($self) = @_;

	return $self->stop->start;
}

sub freeze
{
	my ($self) = @_;

	CORE::kill('STOP', $self->{pid});
	RedisTest::wait_until("$self->{name} is stopped", sub {
			slurp_file("/proc/$self->{pid}/stat") =~ /\) T /;
		});
	return $self;
}

sub thaw
{
	my ($self) = @_;

	CORE::kill('CONT', $self->{pid});
	return $self;
}

sub address
{
	my ($self) = @_;

	return %{ $self->{address} } if $self->{address};
	return $self->{port} ? (host => '127.0.0.1', port => $self->{port}) : (socket => $self->{socket});
}

sub client
{
	my ($self) = @_;

	return RedisTest::Client->new($self->{socket});
}

# A server may have closed what we have open; a failover does.
sub ask
{
	my ($self, @command) = @_;
	my $reply;

	if ($self->{client})
	{
		return $reply if eval { $reply = $self->{client}->ask(@command); 1 };
		die $@ unless $@ =~ /write to Redis|Redis closed/;
	}
	$self->{client} = $self->client;
	return $self->{client}->ask(@command);
}

sub does
{
	my ($self, @command) = @_;

	return RedisTest::_value($self->ask(@command), @command);
}

sub info
{
	my ($self, $name) = @_;
	my ($value) = $self->does('INFO', 'everything') =~ /^\Q$name\E:(.*?)\r$/m;

	return $value // '';
}

sub calls
{
	my ($self, $command) = @_;
	my ($calls) = $self->info("cmdstat_$command") =~ /^calls=(\d+)/;

	return $calls // 0;
}

sub watch
{
	my ($self) = @_;

	return RedisTest::Watch->new($self);
}

package RedisTest::Watch;

use strict;
use warnings;

my $marks = 0;

sub new
{
	my ($class, $redis) = @_;
	my $self = bless { redis => $redis, monitor => $redis->client }, $class;

	$self->{monitor}->does('MONITOR');
	return $self;
}

# What the server shows is in the order in which it ran, so a command of ours marks the end.
sub commands
{
	my ($self) = @_;
	my $mark = 'mark ' . ++$marks;
	my @commands;

	$self->{redis}->does('ECHO', $mark);
	for (;;)
	{
		my $line = $self->{monitor}->receive;
		my ($from, $command) = $line =~ /^[\d.]+ \[\d+ (\S+)\] "([\w-]+)"/ or die $line;
		return @commands if $line =~ /"\Q$mark\E"$/;
		push @commands, uc $command unless $from eq 'lua';
	}
}

# ---------------------------------------------------------------- the scripted server

=pod

=head2 The scripted server

=over

=item $fake->behave(%rule)

What it does from now on; without a rule, only to hand on.  It also starts to count anew.
What a rule says is done to commands other than AUTH and SELECT, or only to those named
in "on" (an array; '*' for all):

  reply => $bytes       answers this; nothing is handed on
  script => {...}       answers by the name of the command
  cut => $n             hands on, answers with the first n bytes of the reply and hangs up
  hang => $n            the same, but stays silent then
  slow => $seconds      hands on, answers byte by byte with that pause
  delay => $seconds     hands on, answers later
  lose => 1             hands on, hangs up instead of answering
  mute => 1             does nothing at all
  flood => $bytes       answers this over and over again, after "reply" if there is one
  extra => [$s, $bytes] hands on, and says this, too, so many seconds after the reply
  swap => [$from, $to]  hands on, replaces a part of the reply (a pattern)

"times": only so often, then only to hand on.  Apart from commands:

  refuse => 1           hangs up on who connects
  greet => $bytes       says this to who connects

=item $fake->counts

Since then: connections; commands, how many; names, those commands.  Of this moment: open, the
number of connections; unsaid, that of answers which are still to come.

=item $fake->stop, $fake->start

While it is stopped, nobody listens at its address.

=back

=cut

package RedisTest::Fake;

use strict;
use warnings;

use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use JSON::PP;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Socket;
use Time::HiRes qw(time);

my $json = JSON::PP->new->ascii->canonical->allow_nonref;

sub new
{
	my ($class, %params) = @_;
	my $self = bless { behind => $params{behind} }, $class;

	if ($params{port})
	{
		$self->{port} = PostgreSQL::Test::Cluster::get_free_port();
	}
	else
	{
		$self->{socket} = PostgreSQL::Test::Utils::tempdir_short . '/fake.sock';
	}
	return $self->start;
}

sub address
{
	my ($self) = @_;

	return $self->{port} ? (host => '127.0.0.1', port => $self->{port}) : (socket => $self->{socket});
}

sub start
{
	my ($self) = @_;
	my $test = File::Basename::basename($0, '.pl');
	my $parent = $$;
	my $listener;

	if ($self->{port})
	{
		$listener = IO::Socket::INET->new(
			LocalAddr => '127.0.0.1', LocalPort => $self->{port}, Listen => 100, ReuseAddr => 1) or die "listen: $!";
	}
	else
	{
		unlink $self->{socket};
		$listener = IO::Socket::UNIX->new(Local => $self->{socket}, Listen => 100) or die "listen: $!";
	}
	socketpair(my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die "socketpair: $!";
	$ours->autoflush(1);
	$self->{pid} = RedisTest::_spawn("${PostgreSQL::Test::Utils::log_path}/${test}_fake.log",
		[ $listener, $theirs ], sub { $self->_serve($listener, $theirs, $parent); });
	$self->{control} = $ours;
	return $self;
}

sub stop
{
	my ($self) = @_;

	CORE::kill('KILL', $self->{pid});
	RedisTest::_reap($self->{pid});
	delete $self->{control};
	unlink $self->{socket} if $self->{socket};
	return $self;
}

sub _control
{
	my ($self, $request) = @_;

	print { $self->{control} } $json->encode($request), "\n";
	my $line = readline($self->{control}) // die 'the scripted server has ended';
	return $json->decode($line);
}

sub behave
{
	my ($self, %rule) = @_;

	$self->_control({ rule => \%rule });
	return $self;
}

sub counts
{
	my ($self) = @_;

	return $self->_control({});
}

# The rest runs in the scripted server's process.

sub _serve
{
	my ($self, $listener, $control, $parent) = @_;
	my @handles = ($listener, $control);

	$SIG{PIPE} = 'IGNORE';
	$control->autoflush(1);
	$self->{clients} = {};
	$self->_obey({ rule => {} });
	while (getppid() == $parent)
	{
		my $ready = IO::Select->new(@handles, map { $_->{socket} } values %{ $self->{clients} });
		foreach my $handle ($ready->can_read($self->_until_due))
		{
			if ($handle == $listener) { $self->_accept($listener->accept); }
			elsif ($handle == $control)
			{
				my $line = readline($control) // POSIX::_exit(0);
				print $control $json->encode($self->_obey($json->decode($line))), "\n";
			}
			else { $self->_read($self->{clients}->{ fileno($handle) }); }
		}
		$self->_write($_) foreach values %{ $self->{clients} };
	}
	POSIX::_exit(0);
}

sub _obey
{
	my ($self, $request) = @_;

	if ($request->{rule})
	{
		$self->{rule} = $request->{rule};
		$self->{counts} = { connections => 0, commands => 0, names => [] };
	}
	my @clients = values %{ $self->{clients} };
	return { %{ $self->{counts} }, open => scalar @clients, unsaid => scalar map { @{ $_->{queue} } } @clients };
}

# Orders come one at a time and are answered, so a look now and then is enough for the rest.
sub _until_due
{
	my ($self) = @_;
	my $wait = 0.2;

	foreach my $client (values %{ $self->{clients} })
	{
		next unless @{ $client->{queue} };
		my $left = $client->{queue}->[0]->{due} - time;
		$wait = $left if $left < $wait;
	}
	return $wait > 0.0005 ? $wait : 0.0005;
}

sub _accept
{
	my ($self, $socket) = @_;

	return unless $socket;
	$self->{counts}->{connections}++;
	return close $socket if $self->{rule}->{refuse};
	$socket->blocking(0);
	my $client = { socket => $socket, buffer => '', queue => [] };
	$self->{clients}->{ fileno($socket) } = $client;
	$self->_queue($client, $self->{rule}->{greet}) if defined $self->{rule}->{greet};
	return;
}

sub _hang_up
{
	my ($self, $client) = @_;

	delete $self->{clients}->{ fileno($client->{socket}) };
	close $client->{socket};
	return;
}

sub _queue
{
	my ($self, $client, $bytes, $delay, %more) = @_;
	my $from = @{ $client->{queue} } ? $client->{queue}->[-1]->{due} : time;

	push @{ $client->{queue} }, { bytes => $bytes, due => $from + ($delay // 0), %more };
	return;
}

sub _write
{
	my ($self, $client) = @_;
	my $queue = $client->{queue};

	while (@$queue && $queue->[0]->{due} <= time)
	{
		my $next = $queue->[0];
		return $self->_hang_up($client) if $next->{hang_up};
		my $written = syswrite($client->{socket}, $next->{bytes});
		if (!defined $written)
		{
			return $self->_hang_up($client) unless $!{EAGAIN};
			$next->{due} = time + 0.001;
			return;
		}
		next if $next->{again};
		substr($next->{bytes}, 0, $written, '');
		shift @$queue unless length $next->{bytes};
	}
	return;
}

sub _read
{
	my ($self, $client) = @_;
	my $got = sysread($client->{socket}, $client->{buffer}, 65536, length $client->{buffer});

	return if !defined $got && $!{EAGAIN};
	return $self->_hang_up($client) unless $got;
	for (;;)
	{
		my ($command, $length) = RedisTest::_parse(\$client->{buffer}, 0);
		last unless defined $length;
		substr($client->{buffer}, 0, $length, '');
		$self->{counts}->{commands}++;
		push @{ $self->{counts}->{names} }, uc $command->[0];
		$self->_answer($client, @$command);
	}
	return;
}

# The rule that is in force for this command, if any
sub _rule_for
{
	my ($self, $name) = @_;
	my $rule = $self->{rule};
	my $on = $rule->{on};

	return {} if $on ? !grep { $_ eq '*' || $_ eq $name } @$on : $name =~ /^(AUTH|SELECT)$/;
	return {} if defined $rule->{times} && $rule->{times}-- <= 0;
	return $rule;
}

sub _handed_on
{
	my ($self, $client, @command) = @_;

	return "+OK\r\n" unless $self->{behind};
	$client->{behind} //= $self->{behind}->client;
	my ($value, $bytes) = $client->{behind}->send(@command)->receive_raw;
	return $bytes;
}

sub _answer
{
	my ($self, $client, @command) = @_;
	my $name = uc $command[0];
	my $rule = $self->_rule_for($name);

	return if $rule->{mute};
	return $self->_queue($client, $rule->{script}->{$name}) if defined $rule->{script}->{$name};
	$self->_queue($client, $rule->{reply}) if defined $rule->{reply};
	$self->_queue($client, $rule->{flood}, 0, again => 1) if defined $rule->{flood};
	return if defined $rule->{reply} || defined $rule->{flood};

	my $bytes = $self->_handed_on($client, @command);
	my ($cut, $hang, $swap) = @$rule{qw(cut hang swap)};
	return $self->_queue($client, '', 0, hang_up => 1) if $rule->{lose};
	$bytes =~ s/$swap->[0]/$swap->[1]/ if $swap;
	$bytes = substr($bytes, 0, $cut // $hang) if defined $cut || defined $hang;
	if ($rule->{slow})
	{
		$self->_queue($client, $_, $rule->{slow}) foreach split //, $bytes;
		return;
	}
	$self->_queue($client, $bytes, $rule->{delay}) if length $bytes;
	$self->_queue($client, $rule->{extra}->[1], $rule->{extra}->[0]) if $rule->{extra};
	$self->_queue($client, '', 0, hang_up => 1) if defined $cut;
	return;
}

package RedisTest::Full;

use strict;
use warnings;

use IO::Socket::INET;
use PostgreSQL::Test::Cluster;

# The queue of a listener that never accepts: connections are made until one more is not
# answered any more.
sub new
{
	my ($class) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $self = bless { port => $port, connections => [] }, $class;

	$self->{listener} = IO::Socket::INET->new(
		LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 1, ReuseAddr => 1) or die "listen: $!";
	while (@{ $self->{connections} } < 20)
	{
		my $connection = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 0.3)
		  or return $self;
		push @{ $self->{connections} }, $connection;
	}
	die 'the queue of a listener is never full';
}

sub address
{
	my ($self) = @_;

	return (host => '127.0.0.1', port => $self->{port});
}

1;
