# Many want the same resource at the same instant: exactly one gets it, the others are told
# so, and nobody sees an error (F08).  Extending and taking over at the same instant:
# exactly one of them wins (F06).  Tokens rise in the order of the grants (B01).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $crowd = 50;
my $rounds = $FenceTest::long ? 200 : 30;
my $duels = $FenceTest::long ? 1000 : 100;

my $node = fence_node('race');
my $offset = -s $node->logfile;

# Whoever has acquired holds the resource's locks until the commit, so that the numbers of
# this sequence are in the order of the grants.
sql($node, q{
	CREATE SEQUENCE grant_order;
	CREATE TABLE answer (round int, client int, kind text, acquired bool, token bigint, reason text,
		ordinal bigint);
	CREATE FUNCTION try(resource text, client int, ttl interval, round int, kind text) RETURNS void
	BEGIN ATOMIC
		INSERT INTO answer
		SELECT round, client, kind, a.acquired, a.token, a.reason,
			CASE WHEN a.acquired THEN nextval('grant_order') END
		FROM fence.acquire(resource, 'client ' || client, ttl) a;
	END});

# In each round, everybody waits for the starter's lock, and then asks for two resources:
# one that nobody has ever seen, and one whose last lease has expired.
my $starter = session($node);
my $watch = session($node);
$starter->does('SELECT pg_advisory_lock(1)');
my $pgbench = start_pgbench($node, [ '-c', $crowd, '-j', 2, '-t', $rounds, '-D', 'round=0' ], <<'END');
\set round :round + 1
SELECT pg_advisory_lock_shared(:round);
SELECT pg_advisory_unlock_shared(:round);
SELECT try('new ' || :round, :client_id, '1 hour', :round, 'new');
SELECT try('expired', :client_id, '1 hour', :round, 'expired');
END
foreach my $round (1 .. $rounds)
{
	# all of them, or all that are left should some have failed
	my $all = $round == 1 ? $crowd : q{(SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench')};
	wait_for($watch, qq{
		SELECT count(*) >= $all FROM pg_locks
		WHERE locktype = 'advisory' AND classid = 0 AND objid = $round AND objsubid = 1 AND NOT granted});
	# the clock jumps: the lease of the last round is over
	$watch->does(q{UPDATE fence.resource SET expires_at = clock_timestamp() - interval '1 s' WHERE name = 'expired'});
	$starter->does("SELECT pg_advisory_lock($round + 1)");
	$starter->does("SELECT pg_advisory_unlock($round)");
}
my ($done, $complaint) = finish_pgbench($pgbench);
is($complaint, '', "$crowd clients, $rounds rounds");

foreach my $kind (qw(new expired))
{
	gives($node, qq{
		SELECT count(DISTINCT round), count(*) FILTER (WHERE acquired)
		FROM answer WHERE kind = '$kind' AND acquired}, "$rounds|$rounds", "$kind resource: one winner in each round");
	gives($node, qq{SELECT count(*), bool_and(token IS NULL AND reason IN ('held', 'busy')) FROM answer
		WHERE kind = '$kind' AND NOT acquired}, ($crowd - 1) * $rounds . '|t', '... the others are told so');
}
gives($node, q{SELECT count(*), min(token), max(token) FROM answer WHERE acquired AND kind = 'new'}, "$rounds|1|1",
	'tokens of new resources start at 1');
gives($node, q{SELECT string_agg(token::text, ',' ORDER BY ordinal) FROM answer WHERE acquired AND kind = 'expired'},
	join(',', 1 .. $rounds), 'tokens rise by one from grant to grant');
unlike(server_log($node, $offset), qr/ERROR|FATAL/, 'and there is no error in the log');
$starter->quit;

# Grants, releases, rollbacks, savepoints without any order, in many sessions at once
my $seconds = $FenceTest::long ? 60 : 4;
sql($node, q{
	ALTER SEQUENCE grant_order RESTART;
	CREATE TABLE granted (resource text, ordinal bigint, token bigint);
	CREATE FUNCTION log_grant(resource text, ttl interval, wait interval) RETURNS bigint
	BEGIN ATOMIC
		INSERT INTO granted SELECT log_grant.resource, nextval('grant_order'), a.token
		FROM fence.acquire(resource, 'x', ttl, wait) a WHERE a.acquired
		RETURNING token;
	END;
	CREATE FUNCTION let_go(resource text, token bigint) RETURNS boolean
	BEGIN ATOMIC
		SELECT token IS NOT NULL AND fence.release(resource, token);
	END});
($done, $complaint) = pgbench($node, [ '-c', 8, '-j', 2, '-T', $seconds ], <<'ONE', <<'TWO', <<'THREE');
\set r random(1, 3)
SELECT log_grant('r' || :r, '5 ms', '20 ms');
ONE
\set r random(1, 3)
BEGIN;
SAVEPOINT s;
SELECT log_grant('r' || :r, '1 hour', '0');
ROLLBACK TO s;
SELECT coalesce(log_grant('r' || :r, '10 ms', '0'), 0) AS token \gset
SELECT CASE WHEN :token > 0 THEN fence.release('r' || :r, :token) END;
END;
TWO
\set r random(1, 3)
BEGIN;
SELECT log_grant('r' || :r, '1 hour', '10 ms');
ROLLBACK;
THREE
is($complaint, '', 'grants, releases and rollbacks in 8 sessions');
cmp_ok(sql($node, 'SELECT count(*) FROM granted'), '>', 50, "... $done transactions, many of them with a grant");
gives($node, q{
	SELECT count(*) FROM (
		SELECT token, ordinal, lag(token, 1, 0::bigint) OVER (PARTITION BY resource ORDER BY ordinal) AS previous FROM granted) g
	WHERE token <= previous}, 0, 'tokens strictly rise in grant order');
gives($node, q{
	SELECT bool_and(r.token = g.token AND r.mark = g.token)
	FROM (SELECT resource, max(token) AS token FROM granted GROUP BY 1) g JOIN fence.resource r ON r.name = g.resource},
	't', 'and the last one granted is the mark');

# F06: the holder extends while somebody takes over, in the very moment in which the lease
# ends.  Who comes first is luck, but both cannot win.  After each win of one side the next
# duel starts a little more in favour of the other.
my ($holder, $rival) = (session($node), session($node));
my ($extended, $taken, $wrong, $late) = (0, 0, '', 0.0);
foreach my $duel (1 .. $duels)
{
	my $resource = "duel $duel";
	my $ready = 'SELECT pg_advisory_lock_shared(0), pg_advisory_unlock_shared(0)';

	$watch->does('SELECT pg_advisory_lock(0)');
	$holder->send("$ready; SELECT extended, reason FROM fence.extend('$resource', 1, '1 hour')");
	$rival->send("$ready; SELECT acquired, token, reason FROM fence.acquire('$resource', 'rival', '1 hour')");
	wait_for($watch, q{SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND NOT granted});
	$watch->does(qq{
		SELECT token FROM fence.acquire('$resource', 'holder', '4 ms');
		SELECT pg_sleep($late / 1000.0);
		SELECT pg_advisory_unlock(0)});
	my ($ours) = $holder->wait->output =~ /([tf]\|[a-z]*)\z/;
	my ($theirs) = $rival->wait->output =~ /([tf]\|\d*\|[a-z]*)\z/;
	my $end = $watch->does("SELECT token, holder, state FROM fence.leases WHERE resource = '$resource'");

	if ($ours eq 't|' && $theirs =~ /^f\|\|(held|busy)$/ && $end eq '1|holder|held')
	{
		$extended++;
		$late += 0.2;
	}
	elsif ($ours =~ /^f\|(superseded|expired)$/ && $theirs eq 't|2|' && $end eq '2|rival|held')
	{
		$taken++;
		$late -= 0.2 if $late > 0.2;
	}
	# the rival looked while it was alive, the holder when it was over
	elsif ($ours ne 'f|expired' || $theirs !~ /^f\|\|(held|busy)$/ || $end ne '1|holder|expired')
	{
		$wrong .= "$resource: extend $ours, acquire $theirs, then $end\n";
	}
}
is($wrong, '', "$duels duels of extend and takeover: never two winners");
cmp_ok($extended, '>', 0, "extend wins ($extended)");
cmp_ok($taken, '>', 0, "takeover wins ($taken)");
$_->quit foreach $holder, $rival, $watch;
unlike(server_log($node, $offset), qr/ERROR|FATAL/, 'all without an error in the log');

finish($node);
