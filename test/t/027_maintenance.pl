# Maintenance: triggers that are switched off and on again, scripts that rewrite every row,
# and pg_fence.bypass, which only those have whom it was granted to (C08).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('maintenance');

sql($node, q{
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
	CREATE TABLE item_row (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO stock VALUES (1, 0), (2, 0);
	INSERT INTO item VALUES (1, 0, 9);
	INSERT INTO item_row VALUES (1, 0, 9);
	SELECT fence.protect('stock', 'stock');
	SELECT fence.protect('item', 'item:{id}', 'tok');
	SELECT fence.protect('item_row', 'item_row:{id}', 'tok', 'row');
	UPDATE item SET tok = 9;
	CREATE ROLE app LOGIN;
	SELECT fence.grant_writer('app');
	CREATE ROLE maintainer LOGIN;
	GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON stock, item, item_row TO app, maintainer;
	GRANT SET ON PARAMETER pg_fence.bypass TO maintainer});
gives($node, 'SELECT * FROM fence.audit()', '', 'fence.audit() has nothing to say');

# The rows of another session's temporary table are out of reach.
my $owner = session($node);
$owner->does(q{
	CREATE TEMPORARY TABLE own (id int, tok bigint);
	SELECT fence.protect('own', 'own:{id}', 'tok');
	INSERT INTO own VALUES (1, 9)});
gives($node, 'SELECT * FROM fence.audit()', '', '... while another session guards a temporary table');
$owner->quit;

# Switched off: audit lists each trigger, and the statements that switch it on again.
foreach my $how ('DISABLE TRIGGER USER', 'DISABLE TRIGGER ALL', 'ENABLE REPLICA TRIGGER')
{
	foreach my $table ('stock', 'item', 'item_row')
	{
		my $each = q{DO $$
			DECLARE
				t record;
			BEGIN
				FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = '%s'::regclass LOOP
					EXECUTE format('ALTER TABLE %s ENABLE REPLICA TRIGGER %%I', t.tgname);
				END LOOP;
			END $$};
		my $number = sql($node, "SELECT count(*) FROM pg_trigger WHERE tgrelid = '$table'::regclass");

		sql($node, $how =~ /REPLICA/ ? sprintf $each, $table, $table : "ALTER TABLE $table $how");
		gives($node, q{SELECT count(*), string_agg(DISTINCT target::text || ' ' || severity, ',') FROM fence.audit()},
			"$number|$table error", "$how on $table: fence.audit() says so");
		gives($node, "SELECT enabled FROM fence.protected_tables WHERE target = '$table'::regclass",
			'f', '... fence.protected_tables, too');
		is(sqlstate($node, "UPDATE $table SET qty = qty" . ($table eq 'stock' ? '' : ', tok = 1')), '', '... writes pass');
		sql($node, sql($node, q{SELECT string_agg(remedy, ' ') FROM fence.audit()}));
		gives($node, q{SELECT count(*) FROM fence.audit() WHERE problem !~ 'mark below'}, 0, '... its remedies switch them on again');
		refuses($node, "UPDATE $table SET qty = qty", 'PF002', '... and writes are refused again');
	}
	# The row mark was lost with the row.  Where the resource has one as well, it counts.
	is(sqlstate($node, 'UPDATE item_row SET tok = 5'), '', "after $how: 5 over 1, by row marks");
	refuses($node, 'UPDATE item SET tok = 5', 'PF001', '... not where the resource has a mark');
	is(sqlstate($node, 'UPDATE item SET tok = 9; UPDATE item_row SET tok = 9'), '', '... 9 is good for both');
}

# A rewrite of every row, by a role of its own
foreach my $table ('stock', 'item', 'item_row')
{
	refuses($node, "SET ROLE maintainer; UPDATE $table SET qty = qty", 'PF002', "a rewrite of $table without bypass");
}
my $offset = -s $node->logfile;
my $maintainer = session($node, options => '-c role=maintainer');
is(sqlstate($maintainer, q{
	SET pg_fence.bypass = on;
	UPDATE stock SET qty = qty;
	UPDATE item SET qty = qty;
	UPDATE item_row SET qty = qty, tok = 1;
	INSERT INTO item VALUES (2, 0, NULL);
	DELETE FROM item WHERE id = 2;
	MERGE INTO item USING (VALUES (1)) v (id) ON item.id = v.id WHEN MATCHED THEN UPDATE SET qty = 1;
	BEGIN; TRUNCATE stock; ROLLBACK;
	RESET pg_fence.bypass}), '', 'with bypass, in a session that has not loaded the library before');
is(() = server_log($node, $offset) =~ /LOG: +guard of table "\w+" bypassed by "maintainer"/g, 7, '... one line in the log for each statement');
refuses($maintainer, 'UPDATE stock SET qty = qty', 'PF002', '... and afterwards as ever');
is(sqlstate($maintainer, q{BEGIN; SET LOCAL pg_fence.bypass = on; UPDATE stock SET qty = qty; COMMIT}), '', 'for one transaction');
refuses($maintainer, 'UPDATE stock SET qty = qty', 'PF002', '... only');
gives($node, q{SELECT fence.mark('item:1')}, 9, 'no mark has moved');
$maintainer->quit;
{
	local $ENV{PGUSER} = 'maintainer';
	$maintainer = session($node, options => '-c pg_fence.bypass=on');
	is(sqlstate($maintainer, 'UPDATE stock SET qty = qty'), '', 'set with the connection');
	$maintainer->quit;
}

# Nobody else can have it, whether the library is loaded yet or not, by whatever way.
my %ways = (
	'SET' => [ '', 'SET pg_fence.bypass = on' ],
	'SET LOCAL' => [ '', 'BEGIN; SET LOCAL pg_fence.bypass = on' ],
	'set_config()' => [ '', q{SELECT set_config('pg_fence.bypass', 'on', false)} ],
	'a function\'s SET' => [ '', q{CREATE TEMPORARY TABLE x (a int); CREATE FUNCTION pg_temp.f() RETURNS void LANGUAGE sql SET pg_fence.bypass = on AS 'UPDATE stock SET qty = 99'; SELECT pg_temp.f()} ],
	'the connection' => [ '-c pg_fence.bypass=on', '' ]);
foreach my $way (sort keys %ways)
{
	foreach my $loaded (0, 1)
	{
		my ($options, $sql) = @{ $ways{$way} };
		local $ENV{PGUSER} = 'app';
		my $app = session($node, options => $options);

		$app->ask(q{SELECT fence.mark('x')}) if $loaded;
		$app->ask($sql) if $sql ne '';
		my $state = $app->sqlstate;
		$app->ask('UPDATE stock SET qty = 99');
		like($app->sqlstate, qr/^(PF002|25P02)$/, "$way" . ($loaded ? ', library loaded' : '') . ": a plain role has no bypass");
		is($state, '42501', '... it is refused at once') if $loaded && $sql ne '' && $way !~ /function/;
		$app->quit;
	}
}
gives($node, 'SELECT max(qty) FROM stock', 0, 'nothing was written');

# Left on by mistake: fence.audit() says where.
foreach my $where ('ROLE maintainer', 'DATABASE postgres', 'ROLE maintainer IN DATABASE postgres', 'ROLE ALL')
{
	sql($node, "ALTER $where SET pg_fence.bypass = on");
	gives($node, q{SELECT DISTINCT severity FROM fence.audit() WHERE problem ~ 'bypass'}, 'error', "bypass for $where");
	sql($node, sql($node, q{SELECT string_agg(remedy, ' ') FROM fence.audit()}));
	gives($node, q{SELECT * FROM fence.audit()}, '', '... and its remedy');
	gives($node, q{SELECT current_setting('pg_fence.bypass', true)}, '', '... works');
	sql($node, "ALTER $where RESET pg_fence.bypass");
}
$node->append_conf('postgresql.conf', 'pg_fence.bypass = on');
$node->reload;
wait_for($node, q{SELECT current_setting('pg_fence.bypass', true) = 'on'});
gives($node, q{SELECT DISTINCT severity FROM fence.audit() WHERE problem ~ 'bypass'}, 'error', 'bypass in postgresql.conf');
$node->append_conf('postgresql.conf', 'pg_fence.bypass = off');
$node->reload;
wait_for($node, q{SELECT current_setting('pg_fence.bypass', true) = 'off'});
gives($node, q{SELECT * FROM fence.audit()}, '', '... off again');

finish($node);
