# pg_dump and pg_restore: marks and tokens are carried along, leases arrive expired,
# because the holder goes on working with the original (G03, G04, C23).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('dump');
my $dir = PostgreSQL::Test::Utils::tempdir;

# The tables sort before and after the extension's own, and lie in two schemas.
sql($node, q[
	CREATE TABLE aa_stock (id int PRIMARY KEY, qty int);
	CREATE SCHEMA "z z";
	CREATE TABLE "z z".item (warehouse text, sku text, qty int, tok bigint, PRIMARY KEY (warehouse, sku));
	CREATE TABLE parted (region text, id int, qty int, tok bigint, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
	CREATE TABLE parted_a PARTITION OF parted FOR VALUES IN ('a');
	CREATE TABLE parted_b PARTITION OF parted FOR VALUES IN ('b');
	INSERT INTO aa_stock VALUES (1, 0);
	INSERT INTO "z z".item VALUES ('w1', 's1', 0, 40), ('w{', 's1', 0, NULL);
	INSERT INTO parted VALUES ('a', 1, 0, 3);
	SELECT fence.protect('aa_stock', 'stock', lease => 'postgres');
	SELECT fence.protect('"z z".item', 'item:{{{warehouse}:{sku}', 'tok');
	SELECT fence.protect('parted', 'parted:{region}', 'tok', 'row')]);
my $policies = sql($node, 'SELECT * FROM fence.protected_tables ORDER BY resource');

acquire($node, 'stock', 'old', '1 ms');
wait_for($node, q{SELECT state = 'expired' FROM fence.leases});
is(acquire($node, 'stock', 'holder', '1 hour'), 2, 'a holder in the original');
sql($node, q{
	BEGIN;
	SELECT fence.check('stock', 2);
	UPDATE aa_stock SET qty = 1;
	UPDATE "z z".item SET qty = 1, tok = 50 WHERE warehouse = 'w1';
	COMMIT;
	SELECT token FROM fence.acquire('released', 'r');
	SELECT fence.release('released', 1)});
my $marks = sql($node, 'SELECT name, token, mark, mark_holder, marked_at, holder, expires_at FROM fence.resource ORDER BY name');

sub check_copy
{
	my ($db) = @_;
	my $copy = session($node, dbname => $db);

	gives($copy, 'SELECT * FROM fence.protected_tables ORDER BY resource', $policies, "$db: the guards are back");
	gives($copy, 'SELECT name, token, mark, mark_holder, marked_at, holder, expires_at FROM fence.resource ORDER BY name',
		$marks, 'marks and tokens are the same');
	gives($copy, 'SELECT resource, state, remaining IS NULL FROM fence.leases ORDER BY 1',
		"released|free|t\nstock|expired|t", 'the lease is not held here');
	gives($copy, q{
		SELECT (SELECT qty FROM aa_stock), (SELECT qty FROM "z z".item WHERE tok = 50), (SELECT qty FROM parted)},
		'1|1|0', 'the data is there');

	# The holder of the original is not one here: order alone would let it in, its lease does not.
	refuses($copy, q{BEGIN; SELECT fence.check('stock', 2, lease => 'postgres')}, 'PF005', 'the lease of the original does not count');
	$copy->ask('ROLLBACK');
	refuses($copy, q{BEGIN; SELECT fence.check('stock', 2); UPDATE aa_stock SET qty = 2}, 'PF005', '... where the guard demands one');
	$copy->ask('ROLLBACK');
	gives($copy, "SELECT extended, reason FROM fence.extend('stock', 2)", 'f|expired', '... it cannot be extended');
	gives($copy, "SELECT fence.release('stock', 2)", 'f', '... nor released');
	refuses($copy, q{BEGIN; SELECT fence.check('stock', 1)}, 'PF001', 'an old token is refused');
	$copy->ask('ROLLBACK');
	refuses($copy, 'UPDATE aa_stock SET qty = 2', 'PF002', 'so is a write without one');
	refuses($copy, q{UPDATE "z z".item SET qty = 2, tok = 49 WHERE warehouse = 'w1'}, 'PF001', '... by marks of rows and their resources');
	refuses($copy, q{UPDATE parted SET qty = 2, tok = 2}, 'PF001', '... by marks of rows alone');
	refuses($copy, q[UPDATE "z z".item SET qty = 2 WHERE warehouse = 'w{'], 'PF002', 'a row without a token wants one');

	is(acquire($copy, 'stock', 'new'), 3, 'the next token is above the marks');
	refuses($copy, q{BEGIN; SELECT fence.check('stock', 2)}, 'PF001', 'which fences the holder of before off');
	$copy->ask('ROLLBACK');
	is(sqlstate($copy, q{BEGIN; SELECT fence.check('stock', 3); UPDATE aa_stock SET qty = 3; COMMIT}), '', 'the new holder works');
	is(sqlstate($copy, q{UPDATE "z z".item SET qty = 3, tok = 51 WHERE warehouse = 'w1'}), '', '... so do tokens from elsewhere');
	is(sqlstate($copy, q{INSERT INTO parted VALUES ('b', 1, 0, 1)}), '', '... in partitions');
	$copy->quit;
	return;
}

my $source = $node->connstr('postgres');
sql($node, "CREATE DATABASE $_") foreach qw(custom plain);
command_ok([ 'pg_dump', '-Fc', '-f', "$dir/custom", '-d', $source ], 'pg_dump -Fc');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('custom'), "$dir/custom" ], 'pg_restore --exit-on-error');
check_copy('custom');

command_ok([ 'pg_dump', '-f', "$dir/plain", '-d', $source ], 'pg_dump');
command_ok([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-f', "$dir/plain", '-d', $node->connstr('plain') ], 'restored by psql');
check_copy('plain');

# G04: from the copy once more, and of an extension that nobody has used yet.
sql($node, "CREATE DATABASE $_") foreach qw(twice fresh fresh_copy);
command_ok([ 'pg_dump', '-Fc', '-f', "$dir/twice", '-d', $node->connstr('custom') ], 'pg_dump of the copy');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('twice'), "$dir/twice" ], '... restored');
my $twice = session($node, dbname => 'twice');
gives($twice, q{SELECT state FROM fence.leases WHERE resource = 'stock'}, 'expired', 'a lease of the copy has expired, too');
is(acquire($twice, 'stock', 'x'), 4, '... and its token is passed');
$twice->quit;

my $fresh = session($node, dbname => 'fresh');
$fresh->does('CREATE EXTENSION pg_fence');
$fresh->quit;
command_ok([ 'pg_dump', '-Fc', '-f', "$dir/fresh", '-d', $node->connstr('fresh') ], 'pg_dump of an unused extension');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('fresh_copy'), "$dir/fresh" ], '... restored');

# C24: data alone, into a schema that has its guards.  Refused unless triggers are off.
sql($node, 'CREATE DATABASE data');
command_ok([ 'pg_dump', '-Fc', '-s', '-f', "$dir/schema", '-d', $source ], 'pg_dump --schema-only');
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('data'), "$dir/schema" ], '... restored');
command_ok([ 'pg_dump', '-a', '-f', "$dir/data", '-d', $source ], 'pg_dump --data-only');
my $data = session($node, dbname => 'data');
refuses($data, "BEGIN; \\i $dir/data\n; ROLLBACK", 'PF002', 'data-only restore is refused by the guards');
$data->ask('ROLLBACK');
is(sqlstate($data, "SET session_replication_role = replica;\n\\i $dir/data\n"), '', '... unless they are off in that session');
$data->quit;
$data = session($node, dbname => 'data');
gives($data, 'SELECT name, token, mark, mark_holder, marked_at, holder, expires_at FROM fence.resource ORDER BY name',
	$marks, 'then marks and tokens are the same');
refuses($data, 'UPDATE aa_stock SET qty = 9', 'PF002', '... and the guards on');
$data->quit;

# The original is as it was.
gives($node, q{SELECT state FROM fence.leases WHERE resource = 'stock'}, 'held', 'the original lease is still held');
is(sqlstate($node, q{BEGIN; SELECT fence.check('stock', 2); UPDATE aa_stock SET qty = 4; COMMIT}), '', '... and good');

finish($node);
