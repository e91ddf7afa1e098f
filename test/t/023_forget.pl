# fence.forget(): rows go, what was accepted or issued stays refused.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('forget');
my $dir = PostgreSQL::Test::Utils::tempdir;
my $offset = -s $node->logfile;

# Few resources, acquired, presented and forgotten by all at the same time.  Whoever
# acquires, or raises a mark, logs the token while it holds the locks, so that the numbers of
# the sequence are in the order of the grants; a commit under a token is logged in the
# transaction that it happens in.
sql($node, q{
	CREATE SEQUENCE ordinal;
	CREATE TABLE granted (resource text, token bigint, ordinal bigint, source text);
	CREATE TABLE forgotten (rows bigint);
	CREATE FUNCTION log_grant(resource text, ttl interval) RETURNS bigint BEGIN ATOMIC
		INSERT INTO granted SELECT log_grant.resource, a.token, nextval('ordinal'), 'acquire'
		FROM fence.acquire(resource, 'x', ttl) a WHERE a.acquired
		RETURNING token;
	END;
	CREATE PROCEDURE work(resource text) LANGUAGE plpgsql AS $$
	DECLARE
		got bigint := log_grant(resource, '20 ms');
	BEGIN
		COMMIT;
		IF got IS NOT NULL THEN
			PERFORM fence.check(resource, got);
			COMMIT;
			IF random() < 0.5 THEN
				PERFORM fence.release(resource, got);
			END IF;
		END IF;
	END
	$$;
	-- tokens from elsewhere, from a counter that only rises
	CREATE SEQUENCE elsewhere;
	CREATE PROCEDURE external() LANGUAGE plpgsql AS $$
	DECLARE
		n bigint := nextval('elsewhere');
	BEGIN
		PERFORM fence.check('external', n);
		INSERT INTO granted VALUES ('external', n, nextval('ordinal'), 'check');
	END
	$$});

my $calls = $FenceTest::long ? 10000 : 500;
my @sessions;
srand(3);
foreach my $n (1 .. 8)
{
	my @script = map {
		my $dice = int rand 10;
		$dice < 6 ? sprintf(q{CALL work('r%d');}, 1 + rand 6)
		: $dice < 8 ? 'CALL external();'
		: q{INSERT INTO forgotten SELECT fence.forget('0', 3);}
	} 1 .. $calls;
	push @sessions, session($node)->send('\i ' . write_file("session$n.sql", join "\n", @script));
}
$_->wait->quit foreach @sessions;
# The only error: PF001, where the resource was forgotten between acquisition and work, or a
# counter's number was overtaken.
unlike(server_log($node, $offset), qr/ERROR: (?!.*is stale)|FATAL|deadlock/, '8 sessions: no error but PF001');
cmp_ok(sql($node, 'SELECT sum(rows) FROM forgotten'), '>', 50, '... much was forgotten');
cmp_ok(sql($node, q{SELECT count(*) FROM granted WHERE source = 'acquire'}), '>', 50, '... much was granted');
gives($node, q{SELECT count(*) > 0 FROM granted WHERE source = 'check'}, 't', '... by others as well');
gives($node, q{SELECT count(*) FROM granted GROUP BY resource, token HAVING count(*) > 1}, '', 'no token of a resource was given out or accepted twice');
gives($node, q{SELECT count(*) FROM (
		SELECT token, lag(token, 1, 0::bigint) OVER (PARTITION BY resource ORDER BY ordinal) AS previous FROM granted) g
	WHERE token <= previous}, 0, '... and none was below an earlier one');
gives($node, q{SELECT bool_and(coalesce(r.mark, f.mark) >= g.token)
	FROM (SELECT resource, max(token) AS token FROM granted GROUP BY 1) g
		LEFT JOIN fence.resource r ON r.name = g.resource
		LEFT JOIN fence.resource f ON f.name = ''}, 't', '... the mark of each, or the floor, is no lower');


# A resource whose lease has expired: its token.
sub expired
{
	my ($resource, $holder) = @_;
	my $token = acquire($node, $resource, $holder, '1 ms');

	wait_for($node, "SELECT state = 'expired' FROM fence.leases WHERE resource = '$resource'");
	return $token;
}

# The floor in detail
sql($node, q{
	SELECT fence.forget('0', 1000000);
	TRUNCATE fence.resource});
expired('old', 'a');
sql($node, q{SELECT fence.raise_mark('old', 500)});
sql($node, q{SELECT fence.check('own source', 300)});
acquire($node, 'live', 'b', '1 hour');
sql($node, q{SELECT fence.raise_mark('live', 900)});
gives($node, q{SELECT fence.forget('1 hour')}, 0, 'nothing has been idle for an hour');
sql($node, q{UPDATE fence.resource SET marked_at = marked_at - interval '2 h', acquired_at = acquired_at - interval '2 h', expires_at = expires_at - interval '2 h' WHERE name = 'old'});
gives($node, q{SELECT fence.forget('1 hour')}, 1, 'one has');
gives($node, q{SELECT name, mark FROM fence.resource WHERE name <> 'live' ORDER BY 1}, "|500\nown source|300", '... its mark is the floor');
gives($node, q{SELECT fence.forget('0')}, 1, 'a live lease is in use however short the interval');
gives($node, q{SELECT name, mark FROM fence.resource ORDER BY 1}, "|500\nlive|900", '... and a lower mark leaves the floor');

my @below = ([ 'old', 499 ], [ 'old', 500 ], [ 'own source', 300 ], [ 'own source', 500 ], [ 'never seen', 1 ], [ 'never seen', 500 ]);
sub floor_holds
{
	my ($where, $how) = @_;
	my $refused = join ' ', map { sqlstate($where, "SELECT fence.check('$_->[0]', $_->[1])") } @below;

	is($refused, join(' ', map { 'PF001' } @below), "$how: up to the floor nothing is accepted");
	is(sql($where, q{BEGIN; SELECT fence.check('own source', 501); ROLLBACK}), 't', '... above it is');
	is(sql($where, q{BEGIN; SELECT token FROM fence.acquire('old', 'c'); SELECT token FROM fence.acquire('new one', 'c'); ROLLBACK}),
		"501\n501", '... and what is issued is above it');
	is(sql($where, q{SELECT fence.mark('old') IS NULL, fence.mark('never seen') IS NULL, fence.mark('live')}), 't|t|900', '... marks are those of rows');
	is(sql($where, q{SELECT count(*) FROM fence.leases WHERE resource = '' OR mark = 500}), 0, '... the floor is no lease');
	return;
}
floor_holds($node, 'at once');
$node->stop('immediate');
$node->start;
floor_holds($node, 'after a crash');
foreach my $name (qw(copy again))
{
	my $source = $name eq 'copy' ? 'postgres' : 'copy';

	sql($node, "CREATE DATABASE $name");
	command_ok([ 'pg_dump', '-Fc', '-f', "$dir/$name", '-d', $node->connstr($source) ], "pg_dump of $source");
	command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr($name), "$dir/$name" ], '... restored');
	my $copy = session($node, dbname => $name);
	floor_holds($copy, "in the $name");
	$copy->quit;
}

# A holder that does nothing but present its token: what README says about it.
my $holder = session($node);
my $token = expired('quiet', 'q');
$holder->does("BEGIN; SELECT fence.check('quiet', $token)");
gives($node, q{SELECT fence.forget('0') > 0, fence.mark('quiet') IS NULL}, 't|t', 'a presented token does not keep a row');
refuses($holder, 'COMMIT', 'PF001', '... its transaction is refused');
refuses($node, "SELECT fence.check('quiet', $token)", 'PF001', '... and the next one');
gives($node, q{SELECT mark FROM fence.resource WHERE name = ''}, $token, '... the floor has risen');

# Uncommitted: whoever uses the resource meanwhile waits for nothing and is refused nothing,
# should it be rolled back.
$token = expired('quiet', 'q');
my $forgetter = session($node);
$forgetter->does(q{BEGIN; SELECT fence.forget('0')});
gives($node, q{SELECT acquired, reason FROM fence.acquire('quiet', 'r')}, 'f|busy', 'while it is being forgotten');
gives($node, q{SELECT fence.mark('quiet')}, $token, '... the mark is there');
refuses($node, "SELECT fence.check('quiet', $token)", 'PF001', '... it is refused at commit');
$forgetter->does('ROLLBACK');
is(sqlstate($node, "SELECT fence.check('quiet', $token)"), '', '... unless it is rolled back');
gives($forgetter, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, '... then no lock is left');

# Not what is in use: the rest of it goes.
expired('used', 'u');
$holder->does(q{BEGIN; SELECT token FROM fence.acquire('used', 'u', '1 hour')});
gives($node, q{SELECT fence.forget('0'), fence.mark('used') IS NULL, fence.mark('quiet') IS NULL}, '1|f|t', 'who is acquiring is not waited for, the others go');
is(sqlstate($holder, 'COMMIT'), '', '... and gets it');
gives($node, q{SELECT state FROM fence.leases WHERE resource = 'used'}, 'held', '... of course');

# Two at the same time: the second waits for the floor only, which ends with the higher one.
expired('low', 'u');
sql($node, q{SELECT fence.raise_mark('low', 2000)});
$forgetter->does(q{BEGIN; SELECT fence.forget('0')});
sql($node, q{SELECT fence.check('high', 3000)});
$holder->send(q{SELECT fence.forget('0')});
waits_for_lock($node, $holder);
$forgetter->does('COMMIT');
is($holder->wait->output, 1, 'two at the same time');
gives($node, q{SELECT mark FROM fence.resource WHERE name = ''}, 3000, '... and the higher floor');
sql($node, q{SELECT fence.check('high', 3001)});
$holder->does(q{BEGIN; SELECT fence.forget('0'); SAVEPOINT s; ROLLBACK TO s; ROLLBACK});
gives($node, q{SELECT fence.mark('high')}, 3001, 'rolled back: nothing is forgotten');
$holder->does(q{BEGIN; SAVEPOINT s; SELECT fence.forget('0'); ROLLBACK TO s; SELECT fence.check('high', 3001); COMMIT});
gives($node, q{SELECT fence.mark('high')}, 3001, '... to a savepoint as well');
$_->quit foreach $holder, $forgetter;

# Repeatable read: the rows are written on their latest versions.
gives($node, q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM fence.resource WHERE name = 'high';
	SELECT fence.forget('0'); COMMIT}, "1\n1", 'at REPEATABLE READ');

# max_rows, and many at once
my $fill = q{INSERT INTO fence.resource (name, token, mark, marked_at, renewals)
	SELECT 'many:' || n, 0, n, now() - interval '1 day', 0 FROM generate_series(1, %d) n};
sql($node, sprintf $fill, 25);
gives($node, q{SELECT fence.forget('1 hour', 10)}, 10, 'max_rows');
gives($node, q{SELECT fence.forget('1 hour', 10) FROM generate_series(1, 3)}, "10\n5\n0", '... until there are no more');
gives($node, q{SELECT fence.forget('1 hour', 10)}, 0, '... nothing is left to do');
refuses($node, "SELECT fence.forget('1 hour', $_)", '22023', "$_ rows") foreach 0, -1;
refuses($node, q{SELECT fence.forget('-1 hour')}, '22023', 'a negative interval');

# One lock for each row: all of them go or, where the lock table is too small, none.
foreach my $rows (10_000, 100_000)
{
	sql($node, sprintf $fill, $rows);
	my $state = sqlstate($node, "SELECT fence.forget('1 hour', $rows)");

	note "$rows rows at once: '$state'";
	like($state, $rows > 10_000 ? qr/^53200$/ : qr/^(53200)?$/, "$rows rows at once");
	gives($node, q{SELECT count(*) FROM fence.resource WHERE name ~ 'many'}, $state eq '' ? 0 : $rows, '... all or none are gone');
	gives($node, q{SELECT fence.forget('1 hour')}, 1000, '... by default it is fewer') if $state ne '';
	sql($node, q{DELETE FROM fence.resource WHERE name ~ 'many'});
}
gives($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, '... no lock is left');
cmp_ok(acquire($node, 'after', 'a', '1 s'), '>', 3000, '... and others go on');

finish($node);
