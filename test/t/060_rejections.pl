# Refused writes leave a record that outlives their rollback: fence.rejections, the counters
# per table, a line in the server's log.  Without shared memory there is none of that, and
# everything else works.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use JSON::PP;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('rejections', conf => 'restart_after_crash = on');
my @views = qw(stat_resources stat_tables stat_redis rejections);
my $preload = sprintf(q{shared_preload_libraries = '%s'}, fence_library());
my $last = q{SELECT resource, presented, mark, target, sqlstate, observed FROM fence.rejections LIMIT 1};

sub restart_with
{
	my ($conf) = @_;

	$node->append_conf('postgresql.conf', $conf);
	$node->restart;
	return;
}

sub log_lines
{
	my ($offset) = @_;

	return map { decode_json($_) } server_log($node, $offset) =~ /LOG:  pg_fence rejection: (\{.*\})$/mg;
}

sql($node, q{
	CREATE TABLE stock (w text NOT NULL, qty int);
	CREATE TABLE job (id int PRIMARY KEY, tok bigint);
	CREATE TABLE quiet (id int);
	CREATE TABLE plain (id int);
	INSERT INTO stock VALUES ('a', 0), ('b', 0);
	INSERT INTO job VALUES (1, 9);
	SELECT fence.protect('stock', 'st:{w}'), fence.protect('job', 'job:{id}', 'tok', 'row');
	SELECT fence.protect('quiet', 'quiet', mode => 'observe');
	CREATE ROLE watcher LOGIN;
	CREATE ROLE nobody LOGIN;
	GRANT pg_monitor TO watcher});

# Without shared memory, D13: every view says what to do, and the session goes on.  From 17
# on the library makes its own, unless it is told not to.
restart_with('pg_fence.max_resources = 0') if $node->pg_version >= 17;
my $session = session($node);
foreach my $call ((map { "TABLE fence.$_" } @views), 'SELECT fence.stat_reset()')
{
	refuses($session, $call, '55000', "without shared memory: $call");
}
my ($stdout, $stderr);
$node->psql('postgres', 'TABLE fence.rejections', stderr => \$stderr);
my $setting = $node->pg_version >= 17 ? 'Set pg_fence.max_resources to more than 0' : 'Add "pg_fence" to shared_preload_libraries';
like($stderr, qr/^HINT:  \Q$setting\E and restart the server\.$/m, '... with the setting to change');
refuses($session, q{UPDATE stock SET qty = 1}, 'PF002', '... a write is refused as ever');
is(acquire($session, 'st:a', 'h'), 1, '... acquire');
is(sqlstate($session, q{BEGIN; SELECT fence.check('st:a', 1); UPDATE stock SET qty = 1 WHERE w = 'a'; COMMIT}), '', '... a write with its token');
gives($session, q{SELECT count(*) FROM fence.audit() WHERE problem LIKE '%far below%'}, 0, '... audit');
is(sqlstate($session, q{SET pg_fence.bypass = on; UPDATE stock SET qty = 1; RESET pg_fence.bypass}), '', '... bypass');
$session->quit;
unlike(server_log($node), qr/FATAL|pg_fence rejection/, '... and no session has ended');

# With it.  From 17 on also without preload.
my @ways = ([ 'preloaded', "$preload\npg_fence.max_resources = 100" ]);
push @ways, [ 'loaded late', "shared_preload_libraries = ''" ] if $node->pg_version >= 17;
foreach my $way (@ways)
{
	my ($how, $conf) = @$way;
	my $offset = -s $node->logfile;

	restart_with($conf);
	sql($node, 'DELETE FROM fence.resource WHERE token = 0');
	note "== $how";
	gives($node, 'SELECT count(*) FROM fence.rejections', 0, "$how: nothing so far");

	# Each kind, with what it was about
	foreach my $case (
		[ 'PF002', q{UPDATE stock SET qty = 2 WHERE w = 'b'}, 'st:b|||stock|PF002|f' ],
		[ 'PF001 of check', q{SELECT fence.check('ext', 500); SELECT fence.check('ext', 50)}, 'ext|50|500||PF001|f' ],
		[ 'PF001 of a row', q{UPDATE job SET tok = 8}, 'job:1|8|9|job|PF001|f' ],
		[ 'PF003', q{SELECT fence.check('two', 3, 'x'); SELECT fence.check('two', 3, 'y')}, 'two|3|3||PF003|f' ],
		[ 'PF004', q{SELECT fence.check('st:a', 7)}, 'st:a|7|1||PF004|f' ],
		[ 'PF005', q{SELECT fence.check('ext', 500, lease => 'postgres')}, 'ext|500|500||PF005|f' ],
		[ '25001', q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT fence.acquire('rr', 'h'); SELECT fence.check('rr', 1); ROLLBACK}, 'rr|1|1||25001|f' ],
		[ '42704', q{SELECT fence.check('two', 3, 'x', 'no such server')}, 'two|3|||42704|f' ],
		[ 'PF001 in one transaction', q{BEGIN; SELECT fence.check('up', 5); SELECT fence.check('up', 4); ROLLBACK}, 'up|4|5||PF001|f' ],
		[ 'observed', q{INSERT INTO quiet VALUES (1)}, 'quiet|||quiet|PF002|t' ])
	{
		my ($what, $statements, $expected) = @$case;

		sqlstate($node, $statements);
		gives($node, $last, $expected, "$how: $what");
	}

	# What is neither a token nor a write is on record nowhere
	my $recorded = q{SELECT (SELECT count(*) FROM fence.rejections), (SELECT count(*) FROM fence.stat_tables)};
	my $before = sql($node, $recorded);
	refuses($node, q{SELECT fence.protect('plain', 'p:{no such column}')}, '42703', "$how: no guard for a column that is not there");
	refuses($node, q{SELECT fence.protect('plain', 'p', lease => 'no such server')}, '42704', '... or a server');
	refuses($node, q{SELECT fence.acquire('two', 'x', lease => 'no such server')}, '42704', '... nor a lease');
	gives($node, $recorded, $before, '... and no record of that');

	# Late at COMMIT: the writer has an application name, and its role is that of SET ROLE
	sql($node, q{SELECT fence.check('late', 1)});
	my $writer = session($node);
	$writer->does(q{SET application_name = 'late-worker'});
	$writer->does(q{BEGIN; SELECT fence.check('late', 1)});
	sql($node, q{SELECT fence.check('late', 2)});
	$writer->does(q{SET LOCAL ROLE nobody});
	refuses($writer, 'COMMIT', 'PF001', "$how: late at commit");
	gives($node, q{
		SELECT resource, presented, mark, target, sqlstate, role, application, pid = } . $writer->backend . q{, rejected_at > now() - interval '1 min'
		FROM fence.rejections LIMIT 1}, 'late|1|2||PF001|nobody|late-worker|t|t', '... recorded after its rollback');
	$writer->quit;

	# An error that is caught, and one in a subtransaction that is taken back
	sql($node, q{DO $$ BEGIN PERFORM fence.check('late', 1); EXCEPTION WHEN SQLSTATE 'PF001' THEN NULL; END $$});
	gives($node, q{SELECT count(*) FROM fence.rejections WHERE resource = 'late'}, 2, "$how: a refusal that is caught counts, too");

	# Per table
	sql($node, q{SET pg_fence.bypass = on; UPDATE stock SET qty = 3; DELETE FROM stock WHERE false; INSERT INTO stock VALUES ('c', 1), ('d', 1)});
	gives($node, q{SELECT rejections, pf001, pf002, other, observed, bypassed FROM fence.stat_tables WHERE target = 'stock'::regclass},
		'1|0|1|0|0|2', "$how: fence.stat_tables, a guard");
	gives($node, q{SELECT rejections, pf001, observed, bypassed FROM fence.stat_tables WHERE target = 'job'::regclass}, '1|1|0|0',
		'... one with a token column');
	gives($node, q{SELECT rejections, observed, bypassed FROM fence.stat_tables WHERE target = 'quiet'::regclass}, '0|1|0',
		'... one that observes, once per statement');
	gives($node, q{SELECT rejections, pf001, pf005, checks FROM fence.stat_resources WHERE resource = 'ext'}, '2|1|1|3', "$how: fence.stat_resources");
	gives($node, q{SELECT rejections, observed FROM fence.stat_resources WHERE resource = 'quiet'}, '0|1', '... observed');

	# What other databases do is not shown here
	sql($node, 'CREATE DATABASE other');
	my $other = session($node, dbname => 'other');
	$other->does('CREATE EXTENSION pg_fence');
	refuses($other, q{SELECT fence.check('ext', 5); SELECT fence.check('ext', 4)}, 'PF001', "$how: another database");
	gives($other, q{SELECT count(*), min(resource) FROM fence.rejections}, '1|ext', '... sees its own');
	gives($other, q{SELECT count(*), sum(checks) FROM fence.stat_resources}, '1|2', '... and its own counters');
	gives($node, q{SELECT count(*) FROM fence.rejections WHERE mark = 5 AND resource = 'ext'}, 0, '... not shown to others');

	# Audit: tokens far below, more than once; until the source has moved on
	sqlstate($node, q{SELECT fence.check('ext', 51)});
	gives($node, q{SELECT severity, remedy FROM fence.audit() WHERE problem LIKE '%"ext"%far below%'},
		'warning|Move the source of its tokens above 500.', "$how: audit finds a source that was reset");
	gives($node, q{SELECT count(*) FROM fence.audit() WHERE problem LIKE '%far below%'}, 1, '... and no others');
	sql($node, q{SELECT fence.check('ext', 501)});
	gives($node, q{SELECT count(*) FROM fence.audit() WHERE problem LIKE '%far below%'}, 0, '... until it has moved on');

	# Who may look
	my $watcher = session($node);
	$watcher->does('SET SESSION AUTHORIZATION watcher');
	is(sqlstate($watcher, "TABLE fence.$_"), '', "$how: pg_monitor reads fence.$_") foreach @views;
	is(sqlstate($watcher, $_), '', "... $_") foreach q{SELECT * FROM fence.timeline('st:a')},
	  q{SELECT fence.histogram_text(hold_histogram), fence.histogram_percentile(wait_histogram, 0.5) FROM fence.stat_resources};
	refuses($watcher, 'SELECT fence.stat_reset()', '42501', '... but does not reset');
	$watcher->does('SET SESSION AUTHORIZATION nobody');
	refuses($watcher, "TABLE fence.$_", '42501', "$how: others do not read fence.$_") foreach @views;
	$watcher->quit;

	# The log: one line of JSON for each kind, nothing for the client
	my @lines = log_lines($offset);
	my ($line) = grep { $_->{sqlstate} eq 'PF001' && ($_->{resource} // '') eq 'late' } @lines;
	is_deeply($line, { sqlstate => 'PF001', resource => 'late', presented => 1, mark => 2, table => undef, role => 'nobody',
		application => 'late-worker', observed => JSON::PP::false, not_logged => 0 }, "$how: the server's log");
	($line) = grep { ($_->{table} // '') eq 'public.job' } @lines;
	is($line->{mark}, 9, '... with table and mark');
	is(scalar(grep { ($_->{resource} // '') eq 'late' } @lines), 1, '... one line a minute for each resource and SQLSTATE');
	sqlstate($node, q{SELECT fence.check('st:a', 7)}) foreach 1 .. 20;
	is(scalar(grep { $_->{sqlstate} eq 'PF004' } log_lines($offset)), 1, '... however often');
	$node->psql('postgres', q{SET client_min_messages = log; SELECT fence.check('fresh', 2); SELECT fence.check('fresh', 1)}, stderr => \$stderr);
	unlike($stderr, qr/pg_fence rejection/, '... which the client does not get');
	if ($FenceTest::long)
	{
		sleep 61;
		sqlstate($node, q{SELECT fence.check('st:a', 7)});
		is(join(' ', map { $_->{not_logged} } grep { $_->{sqlstate} eq 'PF004' } log_lines($offset)), '0 20', '... and the next one says how many were left out');
	}
	# many of a kind at once do not silence each other
	sql($node, q{SELECT fence.check('log ' || n, 2) FROM generate_series(1, 300) n});
	sql($node, q{DO $$ BEGIN FOR n IN 1 .. 300 LOOP
		BEGIN PERFORM fence.check('log ' || n, 1); EXCEPTION WHEN SQLSTATE 'PF001' THEN NULL; END; END LOOP; END $$});
	is(scalar(grep { ($_->{resource} // '') =~ /^log / } log_lines($offset)), 300, '... and one for each of many');
	# the name is data, whatever is in it
	my $odd = qq{odd"\\\n{}'};
	(my $literal = $odd) =~ s/'/''/g;
	sqlstate($node, qq{SELECT fence.check('$literal', 2); SELECT fence.check('$literal', 1)});
	gives($node, q{SELECT resource = E'odd"\\\\\n{}''' FROM fence.rejections LIMIT 1}, 't', "$how: odd names");
	is(scalar(grep { ($_->{resource} // '') eq $odd } log_lines($offset)), 1, '... are escaped in the log');

	# Reset: this database only
	sql($node, 'SELECT fence.stat_reset()');
	gives($node, qq{SELECT (SELECT count(*) FROM fence.$_)}, 0, "$how: after a reset fence.$_ is empty") foreach @views;
	gives($other, q{SELECT count(*) FROM fence.rejections}, 1, '... but not elsewhere');
	sqlstate($node, q{UPDATE stock SET qty = 2 WHERE w = 'b'});
	gives($node, $last, 'st:b|||stock|PF002|f', '... and it goes on');
	$other->quit;

	# The ring: the newest stay
	restart_with('pg_fence.max_rejections = 3');
	gives($node, 'SELECT count(*) FROM fence.rejections', 0, "$how: a restart empties it");
	sql($node, q{SELECT fence.check('ring', 100)});
	sqlstate($node, "SELECT fence.check('ring', $_)") foreach 1 .. 5;
	gives($node, q{SELECT string_agg(presented::text, ' ' ORDER BY rejected_at DESC), count(*) FROM fence.rejections}, '5 4 3|3', '... newest first');

	# A dropped table shows as number, a dropped role too
	sql($node, q{CREATE TABLE gone (i int); SELECT fence.protect('gone', 'gone')});
	refuses($node, 'INSERT INTO gone VALUES (1)', 'PF002', "$how: a table that is dropped later");
	sql($node, 'DROP TABLE gone');
	gives($node, q{SELECT target::text ~ '^\d+$' FROM fence.rejections LIMIT 1}, 't', '... is shown by its number');

	# A crash of one backend resets the memory of all; nobody is refused for that
	my $victim = session($node);
	my $pid = $victim->backend;
	kill 'KILL', $pid;
	$victim->quit;
	$node->poll_query_until('postgres', 'SELECT true');
	is(sqlstate($node, q{BEGIN; SELECT fence.check('st:a', 1); UPDATE stock SET qty = 9 WHERE w = 'a'; COMMIT}), '', "$how: after a crash");
	refuses($node, q{UPDATE stock SET qty = 2 WHERE w = 'b'}, 'PF002', '... writes are judged');
	gives($node, $last, 'st:b|||stock|PF002|f', '... and recorded');
	sql($node, 'DROP DATABASE other');
	$node->append_conf('postgresql.conf', 'pg_fence.max_rejections = 1000');
}

# No memory to be had, from 17 on: a server that may not make any
if ($node->pg_version >= 17)
{
	restart_with("shared_preload_libraries = ''\ndynamic_shared_memory_type = mmap");
	my $segments = $node->data_dir . '/pg_dynshmem';
	my $offset = -s $node->logfile;

	chmod 0500, $segments;
	my $writer = session($node);
	is(sqlstate($writer, q{BEGIN; SELECT fence.check('st:a', 1); UPDATE stock SET qty = 9 WHERE w = 'a'; COMMIT}), '', 'no memory: a writer writes');
	refuses($writer, q{UPDATE stock SET qty = 2 WHERE w = 'b'}, 'PF002', '... or is refused');
	is(acquire($writer, 'no memory', 'a'), 1, '... acquires');
	gives($writer, q{SELECT count(*) FROM fence.audit() WHERE problem LIKE '%far below%'}, 0, '... audits');
	refuses($writer, 'TABLE fence.rejections', '42501', '... but statistics say what is wrong');
	is(sqlstate($writer, q{BEGIN; SELECT fence.check('st:a', 1); COMMIT}), '', '... and it goes on');
	my @told = server_log($node, $offset) =~ /LOG:  statistics of pg_fence are not available in this session/g;
	is(scalar @told, 1, '... with one line in the log');
	$writer->quit;
	chmod 0700, $segments;
	refuses($node, q{UPDATE stock SET qty = 2 WHERE w = 'b'}, 'PF002', '... and so does the next session');
	restart_with('dynamic_shared_memory_type = posix');
	gives($node, 'SELECT count(*) FROM fence.rejections', 0, 'there again after a restart');
}

# A setting that would be fixed at start ends no session when it comes late
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
my $late = -s $node->logfile;
$session = session($node, options => '-c pg_fence.max_resources=5');
refuses($session, 'UPDATE stock SET qty = 1', 'PF002', 'a session with a setting of its own');
$session->quit;
unlike(server_log($node, $late), qr/FATAL/, '... goes on');

done_testing();
