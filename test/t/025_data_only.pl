# Data-only restores (C24, C23): with pg_fence.bypass; then fence.audit() finds the marks that
# are below the tokens in the tables, and its remedies raise them.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('dataonly');
my $dir = PostgreSQL::Test::Utils::tempdir;

# One of each kind, with names that need quotes
sql($node, q[
	CREATE SCHEMA "Own schema";
	CREATE TABLE plain (id int PRIMARY KEY, qty int);
	CREATE TABLE stock (warehouse text, sku text, qty int, PRIMARY KEY (warehouse, sku));
	CREATE TABLE "Own schema"."Item's" ("Id {x}" int PRIMARY KEY, qty int, tok bigint);
	CREATE TABLE item_row (id int PRIMARY KEY, qty int, tok bigint);
	CREATE TABLE parted (region text, id int, qty int, tok bigint, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
	CREATE TABLE parted_a PARTITION OF parted FOR VALUES IN ('a');
	CREATE TABLE "Own schema".parted_b PARTITION OF parted FOR VALUES IN ('b');
	CREATE TABLE watched (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO plain VALUES (1, 0);
	INSERT INTO stock VALUES ('w1', 's1', 0), ('w2', 's1', 0);
	INSERT INTO "Own schema"."Item's" VALUES (1, 0, 5), (2, 0, 70), (3, 0, NULL);
	INSERT INTO item_row VALUES (1, 0, 5);
	INSERT INTO parted VALUES ('a', 1, 0, 3), ('b', 1, 0, 8), ('b', 2, 0, 4);
	INSERT INTO watched VALUES (1, 0, 6);
	SELECT fence.protect('plain', 'plain');
	SELECT fence.protect('stock', 'stock:{warehouse}', lease => 'postgres');
	SELECT fence.protect('"Own schema"."Item''s"', 'item''s "{Id {x}}}"', 'tok');
	SELECT fence.protect('item_row', 'item_row:{id}', 'tok', 'row');
	SELECT fence.protect('parted', 'parted:{region}', 'tok');
	SELECT fence.protect('watched', 'watched:{id}', 'tok', mode => 'observe')]);
sql($node, q{
	UPDATE "Own schema"."Item's" SET tok = tok WHERE tok > 0;
	UPDATE parted SET tok = 8;
	UPDATE watched SET tok = 6});
acquire($node, 'stock:w1', 'a', '1 hour');
my @counts = map { "(SELECT count(*) FROM $_)" } 'plain', 'stock', q{"Own schema"."Item's"}, 'item_row', 'parted', 'watched';
my $counts = 'SELECT ' . join ', ', @counts;
my $audit = 'SELECT target, severity, problem, remedy FROM fence.audit() ORDER BY 1, 3';
my $policies = 'SELECT * FROM fence.protected_tables ORDER BY resource';
my $source = $node->connstr('postgres');

# A whole dump needs nothing: guards come after the data.
sql($node, 'CREATE DATABASE whole');
command_ok([ 'pg_dump', '-Fc', '-f', "$dir/whole", '-d', $source ], 'pg_dump -Fc');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('whole'), "$dir/whole" ], '... restored');
my $whole = session($node, dbname => 'whole');
gives($whole, $policies, sql($node, $policies), '... with the guards, observing ones, too');
gives($whole, $counts, sql($node, $counts), '... and the rows');
gives($whole, $audit, sql($node, $audit), '... fence.audit() says the same');
refuses($whole, q{UPDATE "Own schema"."Item's" SET qty = 1, tok = 69 WHERE "Id {x}" = 2}, 'PF001', '... the guards are on');
refuses($whole, q{SET search_path = ''; UPDATE public.parted SET qty = 1, tok = 7 WHERE region = 'b' AND id = 1}, 'PF001', '... without any search_path');
$whole->does('RESET search_path');
refuses($whole, q{UPDATE "Own schema".parted_b SET qty = 1}, 'PF002', '... in a partition');
is(sqlstate($whole, q{UPDATE watched SET qty = 1}), '', '... who only observes lets it through');
like($whole->errors, qr/WARNING: +PF002/, '... and says so');
$whole->quit;

# Data alone, without and with the marks
command_ok([ 'pg_dump', '-Fc', '-s', '-f', "$dir/schema", '-d', $source ], 'pg_dump -s');
command_ok([ 'pg_dump', '-Fc', '-a', '-f', "$dir/data", '-d', $source ], 'pg_dump -a');
command_ok([ 'pg_dump', '-a', '-f', "$dir/data.sql", '-d', $source ], '... as a script');
foreach my $case ('with marks', 'without marks', 'as a script')
{
	my @options = $case eq 'without marks' ? ('-n', 'public', '-n', 'Own schema') : ();
	my @restore = $case eq 'as a script'
	  ? ('psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/data.sql", '-d')
	  : ('pg_restore', '--exit-on-error', '-a', @options, "$dir/data", '-d');
	(my $db = $case) =~ s/ /_/g;

	sql($node, "CREATE DATABASE $db");
	command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr($db), "$dir/schema" ], "$case: the tables");

	# Not bypassed: refused, each row with PF002 or PF001, and the server lives.
	my $offset = -s $node->logfile;
	my ($out, $err);
	IPC::Run::run([ (grep { $_ ne '--exit-on-error' && $_ ne 'ON_ERROR_STOP=1' && $_ ne '-v' } @restore), $node->connstr($db) ],
		'>', \$out, '2>', \$err);
	my $copy = session($node, dbname => $db);
	gives($copy, 'SELECT ' . join(', ', @counts[0 .. 1]), '0|0', '... data is refused by the guards');
	like($err, qr/no fencing token presented for resource "plain"/, '... for want of tokens');
	gives($copy, 'SELECT count(*) FROM pg_stat_activity WHERE pid = pg_backend_pid()', 1, '... and by nothing else');
	unlike(server_log($node, $offset), qr/ERROR: (?!.*(is stale|no fencing token|duplicate key))/, '... as the log says');

	# Those that carry tokens of their own have passed; start again.
	$copy->does(qq{SET pg_fence.bypass = on; TRUNCATE fence.resource, plain, stock, "Own schema"."Item's", item_row, parted, watched});

	{
		local $ENV{PGOPTIONS} = '-c pg_fence.bypass=on';
		command_ok([ @restore, $node->connstr($db) ], '... with pg_fence.bypass the data comes');
	}
	gives($copy, $counts, sql($node, $counts), '... all of it');
	like(server_log($node, $offset), qr/LOG: +guard of table "plain" bypassed/, '... the log tells of each table');
	$copy->quit;
	$copy = session($node, dbname => $db);
	refuses($copy, 'UPDATE plain SET qty = 1', 'PF002', '... other sessions are judged as ever');

	my $below = q{SELECT target, problem, remedy FROM fence.audit() WHERE problem ~ 'mark below' ORDER BY remedy};
	if ($case eq 'without marks')
	{
		my $expected = <<'END';
SELECT fence.raise_mark('item''s "1"', 5);
SELECT fence.raise_mark('item''s "2"', 70);
SELECT fence.raise_mark('parted:a', 8);
SELECT fence.raise_mark('parted:b', 8);
SELECT fence.raise_mark('watched:1', 6);
END
		gives($copy, q{SELECT remedy FROM fence.audit() WHERE problem ~ 'mark below' ORDER BY remedy COLLATE "C"},
			$expected =~ s/\n\z//r, '... fence.audit() names the marks that are missing');
		gives($copy, q{SELECT DISTINCT severity FROM fence.audit() WHERE problem ~ 'mark below'}, 'error', '... as errors');
		is(sqlstate($copy, q{BEGIN; SELECT fence.check('parted:b', 7)}), '', '... as long as an old token could be presented');
		$copy->ask('ROLLBACK');
		$copy->does(sql($copy, q{SELECT string_agg(remedy, ' ') FROM fence.audit() WHERE problem ~ 'mark below'}));
	}
	gives($copy, $below, '', '... no mark is below a token in a table');
	gives($copy, $audit, sql($node, $audit), '... fence.audit() says what it says of the original');
	refuses($copy, q{SELECT fence.check('parted:b', 7)}, 'PF001', '... an old token is refused');
	refuses($copy, q{UPDATE "Own schema"."Item's" SET tok = 69 WHERE "Id {x}" = 2}, 'PF001', '... in a row, too');
	is(acquire($copy, 'parted:b', 'new'), 9, '... what is issued is above');
	is(sqlstate($copy, q{BEGIN; SELECT fence.check('parted:b', 9); UPDATE parted SET qty = 1 WHERE region = 'b'; COMMIT}), '', '... and good');
	$copy->quit;
}

# --disable-triggers, as superuser: no bypass needed, and the guards are on afterwards.
sql($node, 'CREATE DATABASE disabled');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('disabled'), "$dir/schema" ], 'the tables');
command_ok([ 'pg_restore', '--exit-on-error', '--disable-triggers', '-a', '-d', $node->connstr('disabled'), "$dir/data" ],
	'--disable-triggers');
my $disabled = session($node, dbname => 'disabled');
gives($disabled, $counts, sql($node, $counts), '... restores the data');
gives($disabled, $audit, sql($node, $audit), '... fence.audit() has nothing against it');
refuses($disabled, 'UPDATE stock SET qty = 1', 'PF002', '... the guards are on');
$disabled->quit;

finish($node);
