# What a replay costs: no WAL and no transaction id, whatever the isolation level (case 65).
# Outcomes are told apart by SQLSTATE, also where messages are not in English (case 66, field
# case E10).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my @levels = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE');

# Nobody else writes WAL here.
my $node = fence_node('replay', conf => q{
wal_level = minimal
max_wal_senders = 0
autovacuum = off
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
});
my $session = session($node);
my $watch = session($node);

$session->does(q{
	CREATE TABLE effect (key text);
	SELECT count(fence.complete('k' || i, to_jsonb(repeat('x', 100)), request)) FROM generate_series(1, 500) i,
		LATERAL (VALUES ('')) s (request), fence.claim('k' || i, request, '{"a": 1}');
	SELECT fence.once('once')});
my $token = acquire($session, 'r', 'holder', '1 hour');
$session->does(qq{SELECT fresh, fence.complete('k', '1', 'r') FROM fence.admit('r', $token, 'k')});
$session->does(q{SELECT fence.claim_sequence('producer', i) FROM generate_series(1, 3) i});

# A statement, and what it says.  In these, the token of admit() is stale or was never issued:
# the key comes first.
my %replays = (
	'claim' => [ q{SELECT fresh, length(response #>> ARRAY[]::text[]) FROM fence.claim('k1', request => '{"a": 1.0}')}, 'f|100' ],
	'claim of many rows' => [ q{SELECT bool_or(fresh), count(response) FROM generate_series(1, 500) i, fence.claim('k' || i, request => '{"a": 1}')}, 'f|500' ],
	'claim_many' => [
		q{SELECT bool_or(fresh), count(response) FROM fence.claim_many(
			(SELECT array_agg('k' || i) FROM generate_series(1, 500) i), '', (SELECT array_agg('{"a": 1}'::jsonb) FROM generate_series(1, 500)))}, 'f|500' ],
	'once' => [ q{SELECT fence.once('once')}, 'f' ],
	'admit' => [ qq{SELECT fresh, response FROM fence.admit('r', $token + 1, 'k')}, 'f|1' ],
	'claim_sequence' => [ q{SELECT fence.claim_sequence('producer', 2)}, 'f' ],
	'lookup' => [ q{SELECT response IS NULL FROM fence.lookup('k1', '')}, 'f' ]);

# The first look at a page after its rows were written may tidy it up, as with any table.
$session->does($replays{$_}->[0]) foreach sort keys %replays;
$session->does('CHECKPOINT');

foreach my $level (@levels)
{
	foreach my $call (sort keys %replays)
	{
		my ($statement, $answer) = @{ $replays{$call} };
		my $name = "65: $call, $level";

		$session->does("SET default_transaction_isolation = '" . lc($level) . "'");
		my $before = $watch->does('SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())');
		gives($session, "BEGIN; $statement; SELECT pg_current_xact_id_if_assigned() IS NULL; COMMIT", "$answer\nt", "$name: a replay has no transaction id");
		gives($session, $statement, $answer, '... the same in autocommit');
		$session->does($statement) foreach 1 .. 10;
		gives($watch, 'SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())', $before, '... no WAL, and no other transaction id');
	}

	# Another request is refused, at the same price.
	my $before = $watch->does('SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())');
	refuses($session, q{SELECT fence.claim('k1', request => '{"a": 2}')}, 'PF101', "65: another request, $level");
	refuses($session, q{SELECT fence.claim('k1')}, 'PF101', '... and none');
	gives($watch, 'SELECT pg_current_wal_insert_lsn(), pg_snapshot_xmax(pg_current_snapshot())', $before, '... no WAL, and no transaction id');
}

# Who has waited for the first one pays no more.
{
	my $waiter = session($node);

	$session->does(q{RESET default_transaction_isolation; BEGIN; SELECT fresh, fence.complete('waited', '1') FROM fence.claim('waited')});
	$waiter->send(q{BEGIN; SELECT fresh, response FROM fence.claim('waited'); SELECT pg_current_xact_id_if_assigned() IS NULL; COMMIT});
	waits_for_lock($watch, $waiter);
	$session->does('COMMIT');
	is($waiter->wait->output, "f|1\nt", '65: a replay after waiting has no transaction id');
	$waiter->quit;
}
$_->quit foreach $session, $watch;

# 66, E10: the outcomes that a caller has to tell apart
my $locales = PostgreSQL::Test::Utils::tempdir;
system_log('localedef', '-i', 'de_DE', '-f', 'UTF-8', "$locales/de_DE.UTF-8");
ok(-e "$locales/de_DE.UTF-8/LC_MESSAGES", 'German locale');
local $ENV{LOCPATH} = $locales;
my $german = fence_node('german', init => [ extra => [ '--no-locale', '--encoding=UTF8' ] ],
	conf => "lc_messages = 'de_DE.UTF-8'\ndeadlock_timeout = 10ms\n");
refuses($german, 'SELECT 1/0', '22012', 'an error');
like(server_log($german), qr/FEHLER/, '... in German');

my ($first, $second) = map { session($german) } 1 .. 2;
$first->does(q{
	CREATE TABLE effect (key text);
	BEGIN;
	SELECT fresh, fence.complete('done', '1') FROM fence.claim('done', request => '[1]');
	SELECT fence.claim_sequence('producer', i) FROM generate_series(1, 3) i;
	COMMIT});
gives($second, q{SELECT fresh, response FROM fence.claim('done', request => '[1.0]')}, 'f|1', '66: replay');
refuses($second, q{SELECT fence.claim('done', request => '[2]')}, 'PF101', '66: another request');
refuses($second, q{SELECT fence.claim('open')}, 'PF103', '66: without a response');
refuses($second, q{SELECT fence.claim_sequence('producer', 5)}, 'PF104', '66: a gap');
gives($second, q{SELECT fence.claim_sequence('producer', 3)}, 'f', '66: a duplicate in a sequence');
refuses($second, q{SELECT fence.complete('never')}, '55000', '66: completed without a claim');
$first->does(q{BEGIN; SELECT fresh, fence.complete('busy', '2') FROM fence.claim('busy')});
refuses($second, q{SET lock_timeout = '50ms'; SELECT fence.claim('busy')}, '55P03', '66: in progress');
$second->does('RESET lock_timeout');
foreach my $level (@levels)
{
	$second->does("BEGIN ISOLATION LEVEL $level; SELECT count(*) FROM effect");
	$second->send(q{SELECT fresh, response FROM fence.claim('busy')});
	waits_for_lock($first, $second);
	$first->does('COMMIT');
	$second->wait;
	is($second->sqlstate || $second->output, $level eq 'READ COMMITTED' ? 'f|2' : '40001', "66: after waiting, $level");
	$second->does('ROLLBACK');
	$first->does(q{TRUNCATE fence.idempotency_key; BEGIN; SELECT fresh, fence.complete('busy', '2') FROM fence.claim('busy')});
}
$second->does(q{SET deadlock_timeout = '1min'; BEGIN; SELECT fence.once('other')});
$second->send(q{SELECT fence.once('busy')});
waits_for_lock(session($german), $second);
refuses($first, q{SELECT fence.once('other')}, '40P01', '66: a deadlock');
$first->does('ROLLBACK');
is($second->wait->output, 't', '... and the other goes on');
$second->does('COMMIT');
$token = acquire($first, 'r', 'old', '1 hour');
$first->does(qq{SELECT fence.release('r', $token)});
acquire($first, 'r', 'new', '1 hour');
refuses($first, qq{SELECT fence.admit('r', $token, 'late')}, 'PF001', '66: a stale token');
gives($first, q{SELECT count(*) FROM fence.idempotency_key WHERE key = 'late'}, 0, '... leaves no claim');
$_->quit foreach $first, $second;

finish($node, $german);
