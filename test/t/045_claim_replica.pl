# Claims after a switch to another server: key and effect are there both, or neither (cases 61,
# 62).  On a standby a response can be looked up, and nothing claimed.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = fence_node('primary', init => [ allows_streaming => 'logical' ], conf => "autovacuum = off\n");
my $standby = PostgreSQL::Test::Cluster->new('standby');

sql($primary, q{CREATE TABLE effect (key text PRIMARY KEY, who text)});

sub operate
{
	my ($key, $who) = @_;

	return qq{
		WITH c AS MATERIALIZED (SELECT * FROM fence.claim('$key', 'scope', '{"a": 1}')),
			 e AS (INSERT INTO effect SELECT '$key', '$who' FROM c WHERE fresh RETURNING who),
			 d AS MATERIALIZED (SELECT fence.complete('$key', to_jsonb(who), 'scope') AS response FROM e)
		SELECT c.fresh, coalesce((SELECT response FROM d), c.response) FROM c};
}

gives($primary, operate('before', 'primary'), 't|"primary"', 'an operation before the base backup');
gives($primary, q{SELECT fence.claim_sequence('producer', i) FROM generate_series(1, 3) i}, "t\nt\nt", '... and three of a producer');
$primary->backup('backup');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;
gives($primary, operate('streamed', 'primary'), 't|"primary"', 'one after it');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));

# The standby
gives($standby, q{SELECT key, (SELECT response FROM fence.lookup(key, 'scope')) FROM effect ORDER BY key}, qq{before|"primary"\nstreamed|"primary"},
	'lookup works on a standby');
gives($standby, q{SELECT response IS NULL AND claimed_at IS NULL FROM fence.lookup('unknown', 'scope')}, 't', '... and knows nothing of other keys');
foreach my $call (
	q{claim('before', 'scope', '{"a": 1}')}, q{claim('new')}, q{once('new')}, q{complete('new')}, q{claim_many(ARRAY['before'], 'scope')},
	q{admit('r', 1, 'before')}, q{claim_sequence('producer', 3)}, q{claim_sequence('producer', 4)}, q{prune()})
{
	refuses($standby, "SELECT fence.$call", '25006', "$call is refused there");
}

# 61: one operation is open, one has committed and never arrived; then the standby is promoted.
my $open = session($primary);
$open->does('BEGIN; ' . operate('open', 'primary'));
gives($primary, operate('arrived', 'primary'), 't|"primary"', '61: committed, and replicated');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('insert'));
$standby->stop;
gives($primary, operate('lost', 'primary'), 't|"primary"', '... committed, and not replicated');
gives($primary, q{SELECT fence.claim_sequence('producer', 4)}, 't', '... the same for a producer');
$primary->stop('immediate');
$open->quit;
$standby->start;
$standby->promote;
wait_for($standby, 'SELECT NOT pg_is_in_recovery()');
foreach my $case ([ 'before', 'f|"primary"' ], [ 'streamed', 'f|"primary"' ], [ 'arrived', 'f|"primary"' ], [ 'open', 't|"standby"' ], [ 'lost', 't|"standby"' ])
{
	my ($key, $outcome) = @$case;

	gives($standby, operate($key, 'standby'), $outcome, "61: after the failover, $key");
	gives($standby, operate($key, 'again'), $outcome =~ s/^t/f/r, '... and once more');
	gives($standby, qq{SELECT format('"%s"', who) FROM effect WHERE key = '$key'}, $outcome =~ s/^.\|//r, '... has one effect');
}
refuses($standby, q{SELECT fence.claim('arrived', 'scope', '{"a": 2}')}, 'PF101', '... another request is refused');
gives($standby, q{SELECT fence.claim_sequence('producer', 3), fence.claim_sequence('producer', 4)}, 'f|t', '... and the producer goes on from what arrived');

# 62: logical replication of the tables together with those of pg_fence; then the clients move.
my $subscriber = fence_node('subscriber', conf => "autovacuum = off\nwal_retrieve_retry_interval = 100ms\n");
sql($subscriber, q{CREATE TABLE effect (key text PRIMARY KEY, who text)});
sql($standby, q{CREATE PUBLICATION p FOR TABLE effect, fence.idempotency_key, fence.producer});
my $connection = $standby->connstr('postgres');
$connection =~ s/'/''/g;
sql($subscriber, "CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION p");
wait_for($subscriber, q{SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel});
gives($standby, operate('published', 'publisher'), 't|"publisher"', '62: an operation on the publisher');
gives($standby, operate('published', 'again'), 'f|"publisher"', '... and its replay');
refuses($standby, q{BEGIN; SELECT fence.claim('refused', 'scope'); COMMIT}, 'PF103', '... and one that is refused');
gives($standby, q{SELECT fence.claim_sequence('producer', 5)}, 't', '... and one of a producer');
$standby->wait_for_catchup('s');
sql($subscriber, 'ALTER SUBSCRIPTION s DISABLE; ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');
$standby->stop;
foreach my $case ([ 'before', 'f|"primary"' ], [ 'lost', 'f|"standby"' ], [ 'published', 'f|"publisher"' ], [ 'refused', 't|"subscriber"' ], [ 'new', 't|"subscriber"' ])
{
	my ($key, $outcome) = @$case;

	gives($subscriber, operate($key, 'subscriber'), $outcome, "62: after the switch, $key");
	gives($subscriber, operate($key, 'again'), $outcome =~ s/^t/f/r, '... and once more');
	gives($subscriber, qq{SELECT format('"%s"', who) FROM effect WHERE key = '$key'}, $outcome =~ s/^.\|//r, '... has one effect');
}
refuses($subscriber, q{SELECT fence.claim('published', 'scope', '{"a": 2}')}, 'PF101', '... another request is refused');
gives($subscriber, q{SELECT fence.claim_sequence('producer', 5), fence.claim_sequence('producer', 6)}, 'f|t', '... and the producer goes on');

finish($primary, $standby, $subscriber);
