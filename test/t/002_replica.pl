# A streaming standby: nothing is issued or presented there (B11), marks can be read.
# Once it is promoted, tokens go on rising and old holders are refused, prepared
# transactions included.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = fence_node('primary', init => [ allows_streaming => 1 ], conf => 'max_connections = 30');

sql($primary, q{
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	INSERT INTO stock VALUES (1, 0), (2, 0);
	SELECT fence.protect('stock', 'stock')});
is(acquire($primary, 'stock', 'a'), 1, 'a holder on the primary');
acquire($primary, 'prepared', 'p');

$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# Everything but reading is refused on the standby.
foreach my $call (
	"fence.acquire('stock', 'x')", "fence.acquire('new', 'x')",
	"fence.acquire('stock', 'x', '1 s', '5 minutes')",
	"fence.extend('stock', 1)", "fence.release('stock', 1)",
	"fence.check('stock', 1)", "fence.check('stock', 1, 'a', 'postgres')",
	"fence.raise_mark('stock', 9)")
{
	refuses($standby, "SELECT $call", '25006', "$call on a standby");
}
gives($standby, "SELECT fence.mark('stock'), fence.mark('new') IS NULL", '1|t', 'fence.mark() works there');
gives($standby, 'SELECT resource, holder, token, state FROM fence.leases ORDER BY 1',
	"prepared|p|1|held\nstock|a|1|held", 'so does fence.leases');
gives($standby, 'SELECT target, resource, marks FROM fence.protected_tables', 'stock|stock|resource',
	'and fence.protected_tables');
gives($standby, q{SELECT count(*) FROM fence.audit() WHERE target = 'stock'::regclass}, 0, 'and fence.audit()');

# The same in a read-only transaction of the primary.
my $session = session($primary);
foreach my $call ("fence.acquire('new', 'x')", "fence.extend('stock', 1)", "fence.release('stock', 1)",
	"fence.check('stock', 1)")
{
	refuses($session, "BEGIN READ ONLY; SELECT $call; ROLLBACK", '25006', "$call in a read-only transaction");
}
gives($session, "BEGIN READ ONLY; SELECT fence.mark('stock'); COMMIT", 1, 'fence.mark() there');
$session->quit;

# The holder works, is replaced, and its successor works; and somebody has prepared.
sql($primary, "BEGIN; SELECT fence.check('stock', 1); UPDATE stock SET qty = 1 WHERE id = 1; COMMIT");
sql($primary, "SELECT fence.release('stock', 1)");
is(acquire($primary, 'stock', 'b', '1 hour'), 2, 'next holder on the primary');
sql($primary, "BEGIN; SELECT fence.check('stock', 2); UPDATE stock SET qty = 2 WHERE id = 1; COMMIT");
sql($primary, q{
	BEGIN;
	SELECT fence.check('prepared', 1);
	CREATE TABLE of_prepared ();
	PREPARE TRANSACTION 'p';
	SELECT fence.release('prepared', 1)});
$primary->wait_for_catchup($standby);
gives($standby, "SELECT fence.mark('stock')", 2, 'the mark is replicated');

$primary->stop('immediate');
$standby->promote;
wait_for($standby, 'SELECT NOT pg_is_in_recovery()');

gives($standby, "SELECT acquired, held_by, reason FROM fence.acquire('stock', 'c')", 'f|b|held',
	'after promotion: the lease is still held');
refuses($standby, "SELECT fence.check('stock', 1)", 'PF001', '... the old holder refused');
is(sqlstate($standby, "BEGIN; SELECT fence.check('stock', 2, 'b', 'postgres'); UPDATE stock SET qty = 3 WHERE id = 1; COMMIT"),
	'', '... the present one accepted, lease and all');
gives($standby, "SELECT extended FROM fence.extend('stock', 2)", 't', '... it can extend');
gives($standby, "SELECT fence.release('stock', 2)", 't', '... and release');
is(acquire($standby, 'stock', 'c'), 3, 'tokens go on rising');
refuses($standby, "BEGIN; SELECT fence.check('stock', 2); UPDATE stock SET qty = 4 WHERE id = 1; COMMIT",
	'PF001', '... and the holder of before is refused');
gives($standby, 'SELECT qty FROM stock WHERE id = 1', 3, 'its write is not there');

# What was prepared before the failover still excludes others, until it is decided.
gives($standby, "SELECT acquired, reason FROM fence.acquire('prepared', 'q')", 'f|busy',
	'a transaction prepared before the failover');
sql($standby, "COMMIT PREPARED 'p'");
is(acquire($standby, 'prepared', 'q'), 2, '... is committed, and the resource free');

finish($primary, $standby);
