# session_replication_role = replica, the role of apply workers: ordinary triggers do not
# fire, ours among them; ENABLE ALWAYS makes them (C07).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('role', init => [ allows_streaming => 'logical' ], conf => 'max_connections = 30');

my $tables = q{
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
	CREATE TABLE item_row (id int PRIMARY KEY, qty int, tok bigint)};
my $guards = q{
	SELECT fence.protect('stock', 'stock:{id}');
	SELECT fence.protect('item', 'item:{id}', 'tok');
	SELECT fence.protect('item_row', 'item_row:{id}', 'tok', 'row')};

sql($node, $tables);
sql($node, q{
	INSERT INTO stock VALUES (1, 0);
	INSERT INTO item VALUES (1, 0, 5);
	INSERT INTO item_row VALUES (1, 0, 5)});
sql($node, $guards);
sql($node, q{UPDATE item SET tok = 5});
gives($node, q{SELECT fence.mark('item:1')}, 5, 'the mark of a resource');

# Ordinary triggers: skipped
my $replica = session($node, options => '-c session_replication_role=replica');
is(sqlstate($replica, 'UPDATE stock SET qty = 1'), '', 'in the replica role no token is asked for');
is(sqlstate($replica, 'UPDATE item SET qty = 1, tok = 7'), '', '... with a token column');
is(sqlstate($replica, 'UPDATE item_row SET qty = 1, tok = 9'), '', '... with row marks');
is(sqlstate($replica, 'INSERT INTO stock VALUES (2, 0); DELETE FROM stock WHERE id = 2'), '', '... for INSERT and DELETE');
gives($node, q{SELECT fence.mark('item:1')}, 5, 'the mark of the resource has not moved');
refuses($node, 'UPDATE item_row SET qty = 2, tok = 8', 'PF001', 'the row mark has, with the row');
refuses($node, 'UPDATE item SET qty = 2, tok = 6', 'PF001', '... and counts where both do');
refuses($node, 'UPDATE stock SET qty = 2', 'PF002', 'other sessions are asked for tokens as ever');

# Functions are not triggers: they work in that role, commit-time fence included.
is(acquire($replica, 'stock:1', 'a'), 1, 'acquire in the replica role');
$replica->does(q{BEGIN; SELECT fence.check('stock:1', 1); UPDATE stock SET qty = 3});
sql($node, q{SELECT fence.release('stock:1', 1)});
acquire($node, 'stock:1', 'b');
refuses($replica, 'COMMIT', 'PF001', 'a presented token is judged at commit');
gives($node, 'SELECT qty FROM stock', 1, '... and what it did is gone');

# ENABLE ALWAYS: fired
sql($node, q{
	DO $$
	DECLARE
		t record;
	BEGIN
		FOR t IN SELECT tgrelid::regclass AS rel, tgname FROM pg_trigger WHERE NOT tgisinternal LOOP
			EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', t.rel, t.tgname);
		END LOOP;
	END
	$$});
refuses($replica, 'UPDATE stock SET qty = 4', 'PF002', 'with ENABLE ALWAYS a token is asked for');
refuses($replica, 'UPDATE item SET qty = 4', 'PF002', '... with a token column');
refuses($replica, 'UPDATE item SET qty = 4, tok = 6', 'PF001', '... and it is judged');
refuses($replica, 'UPDATE item_row SET qty = 4, tok = 8', 'PF001', '... by row marks');
refuses($replica, 'TRUNCATE stock', 'PF002', '... TRUNCATE, too');
is(sqlstate($replica, 'UPDATE item SET qty = 4, tok = 7'), '', 'a good one passes');
gives($node, q{SELECT fence.mark('item:1')}, 7, '... and moves the mark');
gives($node, 'SELECT count(*), bool_and(enabled) FROM fence.protected_tables', '3|t', 'they are guards as before');
$replica->quit;

# Logical replication into protected tables, ordinary triggers: changes are applied,
# row marks follow the data, and local writers are judged against them.
sql($node, 'CREATE DATABASE subscriber');
my $subscriber = session($node, dbname => 'subscriber');
$subscriber->does('CREATE EXTENSION pg_fence');
$subscriber->does($tables);
$subscriber->does($guards);
sql($node, q{CREATE PUBLICATION p FOR TABLE item_row});
sql($node, q{SELECT pg_create_logical_replication_slot('s', 'pgoutput')});
my $connection = $node->connstr('postgres');
$connection =~ s/'//g;
$subscriber->does("CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION p WITH (create_slot = false, slot_name = 's')");
wait_for($subscriber, 'SELECT count(*) = 1 FROM item_row');
sql($node, 'UPDATE item_row SET qty = 10, tok = 10');
sql($node, 'UPDATE item_row SET qty = 11, tok = 11');
wait_for($subscriber, 'SELECT tok = 11 FROM item_row');
pass('tokens are applied by a subscription');
refuses($subscriber, 'UPDATE item_row SET qty = 1, tok = 10', 'PF001', 'a local writer that is late is refused');
refuses($subscriber, 'UPDATE item_row SET qty = 1', 'PF002', '... without a token as well');
is(sqlstate($subscriber, 'UPDATE item_row SET qty = 12, tok = 12'), '', '... a newer one is not');
$subscriber->does('ALTER SUBSCRIPTION s DISABLE');
$subscriber->does('ALTER SUBSCRIPTION s SET (slot_name = NONE)');
$subscriber->does('DROP SUBSCRIPTION s');
$subscriber->quit;

finish($node);
