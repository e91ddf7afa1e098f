
=pod

=head1 NAME

FenceTest - what the TAP tests of pg_fence share

=head1 SYNOPSIS

  use FindBin;
  use lib $FindBin::RealBin;
  use FenceTest;

  my $node = fence_node('main');
  my $holder = session($node);
  my $token = acquire($node, 'stock', 'a');

  $holder->does("BEGIN; SELECT fence.check('stock', $token)");
  gives($node, "SELECT fence.mark('stock')", 1, 'the mark is the token');
  refuses($node, "SELECT fence.check('stock', 0)", '22023', 'no such token');
  finish($node);

=head1 DESCRIPTION

Servers come from PostgreSQL::Test::Cluster, sessions are psql processes.  Errors are
compared by SQLSTATE, never by their text.

Environment: FENCE_EXTENSION_DESTDIR, below which the extension is installed, if not in
the server's own folders; FENCE_LONG, for runs that take minutes.

=cut

package FenceTest;

use strict;
use warnings;

use Exporter 'import';
use File::Copy;
use File::Path;
use FindBin;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

our @EXPORT = qw(
  fence_node fence_conf fence_library fence_shared copy_extension finish session
  gives refuses under sql sqlstate acquire wait_for waits_for_lock
  fence_catalog same_catalog write_file start_pgbench finish_pgbench pgbench server_log
);
our $long = $ENV{FENCE_LONG};

# What a test may wait for at most, in seconds
our $patience = $PostgreSQL::Test::Utils::timeout_default // 180;

# What is said to happen at once may take so long on a busy machine, in seconds.  Whatever it
# would wait for, if it did, takes several times that.
our $at_once = 5;

=pod

=head2 Servers

=over

=item fence_conf($node)

The settings that a server of this suite needs, as text.

=cut

sub fence_conf
{
	my ($node) = @_;
	my $destdir = $ENV{FENCE_EXTENSION_DESTDIR};
	my $conf = <<'END';
log_statement = none
max_prepared_transactions = 20
END

	return $conf unless $destdir;

	# Debian patches a setting into its servers; PostgreSQL 18 has two of its own.
	return $conf . "extension_destdir = '$destdir'\n" if $node->pg_version < 18;

	chomp(my $share = `pg_config --sharedir`);
	chomp(my $lib = `pg_config --pkglibdir`);
	return $conf
	  . "extension_control_path = '$destdir$share:\$system'\n"
	  . "dynamic_library_path = '$destdir$lib:\$libdir'\n";
}

=pod

=item fence_library()

The name of the library for shared_preload_libraries.

=cut

sub fence_library
{
	chomp(my $lib = `pg_config --pkglibdir`);
	return ($ENV{FENCE_EXTENSION_DESTDIR} // '') . "$lib/pg_fence";
}

=pod

=item fence_shared()

The setting that gives the extension its shared memory, as text.  From PostgreSQL 17 on it
needs none.

=cut

sub fence_shared
{
	chomp(my $version = `pg_config --version`);
	return '' if $version =~ /(\d+)/ && $1 >= 17;
	return sprintf "shared_preload_libraries = '%s'\n", fence_library();
}

=pod

=item copy_extension()

Copies the installed extension to where it can be changed.  Returns the folder, for
FENCE_EXTENSION_DESTDIR, and the one below it that has the control file and the scripts.

=cut

sub copy_extension
{
	my $from = $ENV{FENCE_EXTENSION_DESTDIR} // '';
	my $to = PostgreSQL::Test::Utils::tempdir;

	chomp(my $share = `pg_config --sharedir`);
	chomp(my $lib = `pg_config --pkglibdir`);
	mkpath([ "$to$share/extension", "$to$lib" ]);
	foreach my $file (glob "$from$share/extension/pg_fence{.control,--*.sql}")
	{
		copy($file, "$to$share/extension") or die "$file: $!";
	}
	copy("$from$lib/pg_fence.so", "$to$lib") or die "pg_fence.so: $!";
	return ($to, "$to$share/extension");
}

=pod

=item fence_node($name, conf => $text, init => [...], install_path => $prefix)

A started server with the extension in its database "postgres"; of another PostgreSQL, where
a prefix is given.

=cut

sub fence_node
{
	my ($name, %params) = @_;
	my @path = $params{install_path} ? (install_path => $params{install_path}) : ();
	my $node = PostgreSQL::Test::Cluster->new($name, @path);

	$node->init(@{ $params{init} // [] });
	$node->append_conf('postgresql.conf', fence_conf($node));
	$node->append_conf('postgresql.conf', $params{conf}) if $params{conf};
	$node->start;
	sql($node, 'CREATE EXTENSION pg_fence');
	return $node;
}

=pod

=item server_log($node, $offset)

The server's log, from $offset on.

=item finish(@nodes)

Ends a test: no server may have crashed.

=back

=cut

sub server_log
{
	my ($node, $offset) = @_;
	my $log = slurp_file($node->logfile);

	return substr($log, $offset // 0);
}

sub finish
{
	my @nodes = @_;

	foreach my $node (@nodes)
	{
		unlike(server_log($node), qr/TRAP:|PANIC:|was terminated by signal/,
			$node->name . ' has not crashed');
	}
	done_testing();
}

=pod

=head2 Statements

Where these take a $node, each call is a session of its own.

=over

=item sql($where, $sql)

Runs it in a node or session and returns its output; dies of an error.

=item sqlstate($where, $sql)

Runs it and returns the SQLSTATE of the first error, '' if there was none.

=item gives($where, $sql, $output, $test_name)

=item refuses($where, $sql, $sqlstate, $test_name)

=cut

sub sql
{
	my ($where, $sql) = @_;

	return $where->does($sql) if $where->isa('FenceTest::Session');

	my $once = session($where);
	my $output = $once->does($sql);
	$once->quit;
	return $output;
}

sub sqlstate
{
	my ($where, $sql) = @_;

	if ($where->isa('FenceTest::Session'))
	{
		$where->ask($sql);
		return $where->sqlstate;
	}

	my $once = session($where);
	$once->ask($sql);
	$once->quit;
	return $once->sqlstate;
}

sub gives
{
	my ($where, $sql, $output, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is(sql($where, $sql), $output, $test_name);
}

sub refuses
{
	my ($where, $sql, $sqlstate, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return is(sqlstate($where, $sql), $sqlstate, $test_name);
}

=pod

=item under($seconds, $limit, $test_name)

The limit is $FenceTest::at_once where nothing but the machine could take time.

=item acquire($where, $resource, $holder, $ttl)

The token of an acquisition that has to succeed.

=item wait_for($where, $sql)

Waits until the query returns true.

=item waits_for_lock($where, $session)

Waits until the session waits for a heavyweight lock.

=item fence_catalog($where)

Everything that belongs to the extension, each part as its definition.  No privileges and
default privileges are the same.

=item same_catalog($where, $fresh, $test_name)

Is it the same in both?

=back

=cut

sub under
{
	my ($seconds, $limit, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return cmp_ok($seconds, '<', $limit, sprintf('%s (%.3f s)', $test_name, $seconds));
}

sub acquire
{
	my ($where, $resource, $holder, $ttl) = @_;

	$ttl //= '1 minute';
	my $token = sql($where, "SELECT token FROM fence.acquire('$resource', '$holder', '$ttl')");
	die "\"$resource\" was not acquired" if $token eq '';
	return $token;
}

sub wait_for
{
	my ($where, $sql) = @_;
	my $session = $where->isa('FenceTest::Session') ? $where : session($where);
	my $end = time + $patience;

	until ($session->does($sql) eq 't')
	{
		die "timed out waiting for: $sql" if time > $end;
		sleep 0.01;
	}
	$session->quit unless $session == $where;
	return;
}

sub waits_for_lock
{
	my ($where, $session) = @_;

	return wait_for($where,
		"SELECT coalesce(bool_or(wait_event_type = 'Lock'), false) FROM pg_stat_activity WHERE application_name = '$session->{name}'");
}

sub fence_catalog
{
	my ($where) = @_;

	return sql($where, <<'END');
WITH member AS (
	SELECT classid, objid, objsubid FROM pg_depend
	WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
		AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pg_fence')
), relation AS (
	SELECT c.* FROM pg_class c JOIN member ON classid = 'pg_class'::regclass AND objid = c.oid
)
SELECT 'member', pg_describe_object(classid, objid, objsubid), obj_description(objid, (SELECT relname FROM pg_class WHERE oid = classid))
FROM member
UNION ALL
SELECT 'function', pg_get_functiondef(p.oid), concat_ws(' ', proowner::regrole, (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(proacl) a))
FROM pg_proc p JOIN member ON classid = 'pg_proc'::regclass AND objid = p.oid
UNION ALL
SELECT 'relation', concat_ws(' ', oid::regclass, relkind, relpersistence, relrowsecurity, reloptions, relhasrules, relhastriggers, relreplident),
	concat_ws(' ', relowner::regrole, (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(coalesce(relacl, acldefault('r', relowner))) a))
FROM relation
UNION ALL
SELECT 'view', oid::regclass::text, pg_get_viewdef(oid)
FROM relation WHERE relkind = 'v'
UNION ALL
SELECT 'column', concat_ws(' ', attrelid::regclass, attnum, attname, format_type(atttypid, atttypmod), attcollation::regcollation,
		attnotnull, attstorage, attcompression, attidentity, attgenerated, attisdropped, attacl, attstattarget),
	concat_ws(' ', pg_get_expr(adbin, adrelid), col_description(attrelid, attnum))
FROM relation c JOIN pg_attribute ON attrelid = c.oid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attnum > 0
UNION ALL
SELECT 'constraint', concat_ws(' ', conrelid::regclass, conname), pg_get_constraintdef(o.oid)
FROM relation c JOIN pg_constraint o ON conrelid = c.oid
UNION ALL
SELECT 'index', pg_get_indexdef(indexrelid), ''
FROM relation c JOIN pg_index ON indrelid = c.oid
UNION ALL
SELECT 'trigger', pg_get_triggerdef(t.oid), ''
FROM relation c JOIN pg_trigger t ON tgrelid = c.oid
UNION ALL
SELECT 'initial privileges', pg_describe_object(i.classoid, i.objoid, i.objsubid), (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(initprivs) a)
FROM pg_init_privs i JOIN member m ON m.classid = i.classoid AND m.objid = i.objoid
	LEFT JOIN relation r ON i.classoid = 'pg_class'::regclass AND r.oid = i.objoid
WHERE initprivs IS DISTINCT FROM acldefault('r', r.relowner)
UNION ALL
SELECT 'extension', concat_ws(' ', extname, extversion, extnamespace::regnamespace, extrelocatable),
	(SELECT string_agg(r::regclass || ' ' || coalesce(c, ''), ', ' ORDER BY r::regclass::text) FROM unnest(extconfig, extcondition) e (r, c))
FROM pg_extension WHERE extname = 'pg_fence'
UNION ALL
SELECT 'schema', nspname, concat_ws(' ', nspowner::regrole, nspacl)
FROM pg_namespace WHERE nspname = 'fence'
ORDER BY 1, 2, 3
END
}

sub same_catalog
{
	my ($where, $fresh, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($is, $should) = map { fence_catalog($_) } $where, $fresh;
	my %is = map { $_ => 1 } split /\n/, $is;
	my %should = map { $_ => 1 } split /\n/, $should;

	return ok($is eq $should, $test_name)
	  || diag join "\n", (map { "missing: $_" } sort grep { !$is{$_} } keys %should),
		(map { "only there: $_" } sort grep { !$should{$_} } keys %is);
}

=pod

=head2 Load

=over

=item write_file($name, $text)

Writes a file in the test's temporary folder and returns its path.

=item start_pgbench($node, \@options, $script ...)

Starts pgbench with these scripts (SQL text), each with equal weight.

=item finish_pgbench($handle)

Waits for it.  Returns the number of transactions, and what it said if a client failed.

=item pgbench($node, \@options, $script ...)

Both.

=back

=cut

my $tempdir;
my $files = 0;

sub write_file
{
	my ($name, $text) = @_;

	$tempdir //= PostgreSQL::Test::Utils::tempdir;
	my $path = "$tempdir/$name";
	open(my $file, '>', $path) or die "$path: $!";
	print $file $text;
	close $file or die "$path: $!";
	return $path;
}

sub start_pgbench
{
	my ($node, $options, @scripts) = @_;
	my @command = ('pgbench', '-n', '-h', $node->host, '-p', $node->port, @$options);
	my $handle = { output => '' };

	push @command, '-f', write_file('script' . $files++ . '.sql', $_) foreach @scripts;
	push @command, 'postgres';
	note "starting @command";
	local $ENV{PGAPPNAME} = 'pgbench';
	$handle->{run} = IPC::Run::start(\@command, '>&', \$handle->{output},
		IPC::Run::timeout($patience + 120));
	return $handle;
}

sub finish_pgbench
{
	my ($handle) = @_;

	$handle->{run}->finish;
	my $output = $handle->{output};
	my ($count) = $output =~ /transactions actually processed: (\d+)/;
	my $failed = $handle->{run}->result != 0 || $output =~ /aborted/;
	note $output;
	return ($count // 0, $failed ? $output : '');
}

sub pgbench
{
	return finish_pgbench(start_pgbench(@_));
}

=pod

=head2 Sessions

=over

=item session($node, %params)

A psql of its own; params: dbname, user, options (for the connection: "-c name=value").

=cut

sub session
{
	my ($node, %params) = @_;

	return FenceTest::Session->new($node, %params);
}

package FenceTest::Session;

use strict;
use warnings;

use Test::More;
use Time::HiRes qw(time sleep);

my $sessions = 0;

sub new
{
	my ($class, $node, %params) = @_;
	my $self = bless { stdin => '', stdout => '', stderr => '', number => 0 }, $class;
	my $connection = $node->connstr($params{dbname} // 'postgres');

	$self->{name} = 'session ' . ++$sessions;
	$connection .= " application_name='$self->{name}'";
	$connection .= " user='$params{user}'" if defined $params{user};
	(my $options = $params{options} // '') =~ s/([\\'])/\\$1/g;
	$connection .= " options='$options'";
	$self->{timer} = IPC::Run::timeout($FenceTest::patience);
	$self->{run} = IPC::Run::start(
		[ 'psql', '-XAtq', '-v', 'VERBOSITY=sqlstate', '-f', '-', '-d', $connection ],
		'<', \$self->{stdin}, '>', \$self->{stdout}, '2>', \$self->{stderr}, $self->{timer});
	return $self;
}

=pod

=item $session->send($sql)

Sends it without waiting for anything.

=item $session->wait

Waits for the answer to what was sent last.  A session that the server has ended gives one,
too.

=item $session->ask($sql)

Sends and waits, returns the output.

=item $session->does($sql)

The same, but dies of an error.

=item $session->finished($seconds)

Has the answer come, within that time?

=item $session->sqlstate, $session->output, $session->seconds

Of the last answer: the SQLSTATE of its first error or '', the output, the time it took.

=cut

sub send
{
	my ($self, $sql) = @_;
	my $number = ++$self->{number};

	$sql =~ s/\s*;?\s*$/;/ unless $sql =~ /^\\/;
	$self->{stdin} .= "$sql\n\\echo answered $number\n\\warn answered $number\n";
	$self->{sent} = $sql;
	$self->{answered} = 0;
	$self->{started} = time;
	$self->{timer}->start($FenceTest::patience);
	$self->_pump(0);
	return $self;
}

# One step of input and output; false once psql has ended.
sub _pump
{
	my ($self, $block) = @_;
	local $SIG{PIPE} = 'IGNORE';

	return 0 unless $self->_running;
	my $alive = eval { $block ? $self->{run}->pump : $self->{run}->pump_nb; 1 };
	die $@ if !$alive && $@ !~ /Broken pipe|process ended prematurely/;
	# IPC::Run would try again for ever to write what nobody reads any more
	$self->{ended} = 1 unless $alive;
	return $alive;
}

sub _running
{
	my ($self) = @_;

	return !$self->{ended} && $self->{run}->pumpable;
}

sub _take_answer
{
	my ($self) = @_;
	my $mark = "answered $self->{number}\n";
	my ($output, $errors) = @$self{ 'stdout', 'stderr' };

	return 1 if $self->{answered};
	if ($self->_running)
	{
		return 0 unless $output =~ s/\Q$mark\E\z// && $errors =~ s/\Q$mark\E\z//;
	}
	$output =~ s/\n\z//;
	$self->{seconds} = time - $self->{started};
	$self->{output} = $output;
	$self->{errors} = $errors;
	# FEHLER: a test has German messages
	$self->{state} = $errors =~ /(?:ERROR|FATAL|FEHLER): +(\w{5})$/m ? $1 : $self->_running ? '' : '08006';
	$self->{stdout} = $self->{stderr} = '';
	$self->{answered} = 1;
	return 1;
}

sub wait
{
	my ($self) = @_;

	until ($self->_take_answer)
	{
		$self->_pump(1);
	}
	note "$self->{sent}\n-> $self->{output} $self->{errors}";
	return $self;
}

sub finished
{
	my ($self, $seconds) = @_;
	my $end = time + ($seconds // 0);

	for (;;)
	{
		$self->_pump(0);
		return 1 if $self->_take_answer;
		return 0 if time >= $end;
		sleep 0.005;
	}
}

sub ask
{
	my ($self, $sql) = @_;

	return $self->send($sql)->wait->{output};
}

sub does
{
	my ($self, $sql) = @_;
	my $output = $self->ask($sql);

	die "$sql: $self->{errors}" if $self->{state} ne '';
	return $output;
}

sub sqlstate { return $_[0]->{state}; }
sub output { return $_[0]->{output}; }
sub errors { return $_[0]->{errors}; }
sub seconds { return $_[0]->{seconds}; }

=pod

=item $session->backend, $session->client

Process ids of the server process (ask before the session is busy) and of psql.

=item $session->kill($signal)

Signals psql.

=item $session->quit

Ends the session and waits until psql has ended.

=back

=cut

sub backend
{
	my ($self) = @_;

	die 'busy' unless $self->{backend} || $self->{number} == 0 || $self->{answered};
	$self->{backend} //= $self->does('SELECT pg_backend_pid()');
	return $self->{backend};
}

sub client
{
	my ($self) = @_;

	return $self->{run}->{KIDS}->[0]->{PID};
}

sub kill
{
	my ($self, $signal) = @_;

	kill $signal, $self->client or die "kill: $!";
	return;
}

sub quit
{
	my ($self) = @_;
	local $SIG{PIPE} = 'IGNORE';

	# A server that was started meanwhile has inherited the other end of its input, which
	# therefore does not end when we close ours.
	$self->{stdin} .= "\\q\n";
	$self->_pump(0);
	$self->{stdin} = '' if $self->{ended};
	eval { $self->{run}->finish };
	return;
}

1;
