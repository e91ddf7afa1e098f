# The very first statement of a session meets a guard, while the library is not loaded yet:
# it is judged like any later one.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('first');

sql($node, q{
	CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO item VALUES (1, 0, 10);
	SELECT fence.protect('item', 'item:{id}', 'tok');
	CREATE TABLE item_row (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO item_row VALUES (1, 0, 10);
	SELECT fence.protect('item_row', 'item_row', 'tok', 'row');
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	INSERT INTO stock VALUES (1, 0);
	SELECT fence.protect('stock', 'stock:{id}');
	CREATE TABLE plain (id int PRIMARY KEY, qty int);
	INSERT INTO plain VALUES (1, 0);
	SELECT fence.protect('plain', 'plain')});
sql($node, q{
	CREATE FUNCTION merge_in_function() RETURNS void LANGUAGE sql AS $$
	MERGE INTO item USING (VALUES (1)) v (id) ON item.id = v.id
	WHEN MATCHED AND qty > 100 THEN UPDATE SET qty = 3, tok = 99
	WHEN MATCHED THEN UPDATE SET qty = 3 $$});
sql($node, q{UPDATE item SET tok = 10});
sql($node, q{SELECT fence.check('stock:1', 10), fence.check('plain', 10)});
my $file = write_file('rows', "2\t0\t\\N\n");

# Each in a session of its own, as its first statement; what it must give, and what the row
# with id 1 holds afterwards.
my @first = (
	# statement, SQLSTATE, SQLSTATE of the second time if that is another
	[ q{UPDATE item SET qty = 1}, 'PF002' ],
	[ q{UPDATE item SET qty = 1, tok = 9}, 'PF001' ],
	[ q{UPDATE item SET qty = 1, tok = 10}, '' ],
	[ q{UPDATE item SET qty = 1, tok = tok}, '' ],
	[ q{UPDATE item_row SET qty = 1, tok = 9}, 'PF001' ],
	[ q{UPDATE item_row SET qty = 1, tok = 10}, '' ],
	[ q{DELETE FROM item_row}, 'PF002' ],
	[ q{UPDATE stock SET qty = 1}, 'PF002' ],
	[ q{UPDATE stock SET qty = 1 WHERE fence.check('stock:1', 9)}, 'PF001' ],
	[ q{UPDATE stock SET qty = 1 WHERE fence.check('stock:1', 10)}, '' ],
	[ q{UPDATE plain SET qty = 1}, 'PF002' ],
	[ q{UPDATE plain SET qty = 1 WHERE fence.check('plain', 10)}, '' ],
	[ q{TRUNCATE plain}, 'PF002' ],
	[ q{INSERT INTO item VALUES (2, 0, NULL)}, 'PF002' ],
	[ q{INSERT INTO item VALUES (1, 2, 9) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok}, 'PF001' ],
	[ q{INSERT INTO item VALUES (1, 2, 9) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty}, 'PF001' ],
	[ q{INSERT INTO item VALUES (1, 1, 11) ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok}, '' ],
	[ "COPY item FROM '$file'", 'PF002' ],
	# In a MERGE the columns set are the union over all actions: an action that leaves the
	# token alone presents none.
	[ q{MERGE INTO item USING (VALUES (1)) v (id) ON item.id = v.id
		WHEN MATCHED AND qty > 100 THEN UPDATE SET qty = 3, tok = 99
		WHEN MATCHED THEN UPDATE SET qty = 3}, 'PF002' ],
	[ q{MERGE INTO item_row AS item USING (VALUES (1)) v (id) ON item.id = v.id
		WHEN MATCHED AND qty > 100 THEN UPDATE SET qty = 3, tok = 99
		WHEN MATCHED THEN UPDATE SET qty = 3}, 'PF002' ],
	[ q{MERGE INTO item USING (VALUES (1)) v (id) ON item.id = v.id
		WHEN MATCHED THEN UPDATE SET qty = 1, tok = 12}, '', 'PF002' ],
	[ q{MERGE INTO item USING (VALUES (1)) v (id) ON item.id = v.id
		WHEN MATCHED THEN UPDATE SET qty = 3, tok = 9}, 'PF001' ],
	[ q{MERGE INTO item USING (VALUES (2)) v (id) ON item.id = v.id
		WHEN NOT MATCHED THEN INSERT VALUES (v.id, 3, NULL)}, 'PF002' ],
	[ q{EXPLAIN (ANALYZE, COSTS OFF) MERGE INTO item USING (VALUES (1)) v (id) ON item.id = v.id
		WHEN MATCHED AND qty > 100 THEN UPDATE SET qty = 3, tok = 99
		WHEN MATCHED THEN UPDATE SET qty = 3}, 'PF002' ],
	[ q{DO $$ BEGIN MERGE INTO item USING (VALUES (1)) v (id) ON item.id = v.id
		WHEN MATCHED AND qty > 100 THEN UPDATE SET qty = 3, tok = 99
		WHEN MATCHED THEN UPDATE SET qty = 3; END $$}, 'PF002' ],
	[ q{SELECT merge_in_function()}, 'PF002' ],
	[ q{PREPARE m AS MERGE INTO item USING (VALUES (1)) v (id) ON item.id = v.id
		WHEN MATCHED AND qty > 100 THEN UPDATE SET qty = 3, tok = 99
		WHEN MATCHED THEN UPDATE SET qty = 3; EXECUTE m}, 'PF002' ],
	[ q{BEGIN; SELECT 1; MERGE INTO item USING (VALUES (1)) v (id) ON item.id = v.id
		WHEN MATCHED AND qty > 100 THEN UPDATE SET qty = 3, tok = 99
		WHEN MATCHED THEN UPDATE SET qty = 3}, 'PF002' ],
	[ q{WITH u AS (UPDATE item SET qty = 3 WHERE id = 1 RETURNING id) SELECT * FROM u}, 'PF002' ],
	[ q{WITH u AS (UPDATE item SET qty = 1, tok = 12 WHERE id = 1 RETURNING id) SELECT * FROM u}, '' ]);

foreach my $try (@first)
{
	my ($statement, $state, $again) = @$try;
	my $session = session($node);

	refuses($session, $statement, $state, "$statement: " . ($state || 'passes'));
	# once more, now that the library is there
	$session->ask('ROLLBACK; DEALLOCATE ALL');
	refuses($session, $statement, $again // $state, '... and again');
	$session->quit;
}
gives($node, q{SELECT i.qty, r.qty, s.qty, p.qty FROM item i, item_row r, stock s, plain p}, '1|1|1|1',
	'what was refused has written nothing');
gives($node, q{SELECT i.tok, r.tok FROM item i, item_row r}, '12|10', '... and moved no token');

# The same for each function of the interface
foreach my $call (q{fence.mark('plain') = 10}, q{(fence.acquire('first', 'a')).acquired}, q{(fence.extend('first', 1)).extended},
	q{fence.check('first', 1)}, q{fence.release('first', 1)}, q{fence.raise_mark('first', 5) = 5},
	q{(SELECT count(*) = 1 FROM fence.leases)}, q{(SELECT count(*) = 4 FROM fence.protected_tables)})
{
	gives($node, "SELECT $call", 't', "$call as first statement");
}

# Commit and rollback of the transaction that has loaded the library
my $session = session($node);
acquire($node, 'other', 'a', '1 hour');
$session->does(q{BEGIN; SELECT fence.check('other', 1); CREATE TABLE late ()});
sql($node, q{SELECT fence.release('other', 1)});
acquire($node, 'other', 'b', '1 hour');
refuses($session, 'COMMIT', 'PF001', 'the first transaction of a session is judged at its commit');
$session->quit;
$session = session($node);
$session->does(q{BEGIN; SAVEPOINT s; SELECT fence.check('plain', 10); ROLLBACK TO s});
refuses($session, 'UPDATE plain SET qty = 5', 'PF002', 'and a savepoint in it takes the token back');
$session->quit;

# One thing is refused by the library only, not by the objects: our functions in a CHECK.  The
# audit finds what was made before it was loaded.
sql($node, q{
	CREATE TABLE late_check (k text CONSTRAINT "Once" CHECK (fence.once(k)));
	CREATE TABLE late_child () INHERITS (late_check);
	CREATE DOMAIN late_domain AS text CONSTRAINT once CHECK (fence.once(VALUE))});
gives($node, q{SELECT target, severity, remedy FROM fence.audit() WHERE problem LIKE 'CHECK%' ORDER BY remedy}, join("\n",
	'|error|ALTER DOMAIN public.late_domain DROP CONSTRAINT once;',
	'late_check|error|ALTER TABLE public.late_check DROP CONSTRAINT "Once";'), 'a CHECK that claims is reported');
gives($node, q{ALTER DOMAIN late_domain DROP CONSTRAINT once; ALTER TABLE late_check DROP CONSTRAINT "Once";
	SELECT count(*) FROM fence.audit() WHERE problem LIKE 'CHECK%'}, 0, '... and the remedy works');
refuses($node, q{SELECT fence.home(); CREATE TABLE later_check (k text CHECK (fence.once(k)))}, '42P17', '... and refused once the library is there');

finish($node);
