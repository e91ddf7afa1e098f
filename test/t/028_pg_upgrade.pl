# pg_upgrade (G05): marks, tokens, guards and grants are carried along, and the extension has
# the catalog of a fresh one.  Leases arrive expired, as in any copy: the new cluster has
# another identity, and the old one may still be running somewhere.
#
# FENCE_OLD_PREFIX: where an older PostgreSQL is installed, else the old cluster is of the same
# version; FENCE_OLD_DESTDIR: like FENCE_EXTENSION_DESTDIR, for that one.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

# PostgreSQL 18 looks for an extension's library in other folders as well, but pg_upgrade only
# does where the objects of the extension do not say $libdir.
if ($ENV{FENCE_EXTENSION_DESTDIR} && PostgreSQL::Version->new(scalar `pg_config --version`) >= 18)
{
	($ENV{FENCE_EXTENSION_DESTDIR}, my $extension) = copy_extension();
	append_to_file("$extension/pg_fence.control", "module_pathname = 'pg_fence'\n");
}

my $prefix = $ENV{FENCE_OLD_PREFIX};
my $old = do
{
	local $ENV{FENCE_EXTENSION_DESTDIR} = $ENV{FENCE_OLD_DESTDIR} if $prefix;
	fence_node('old', install_path => $prefix);
};
sql($old, q{SELECT fence.raise_mark('forgotten', 4)});
gives($old, q{SELECT fence.forget('0')}, 1, 'a resource is forgotten');

# One of each kind, with names that need quotes, and in a database of another name, too
sql($old, 'CREATE DATABASE "other db"');
my $other = session($old, dbname => 'other db');
$other->does(q{CREATE EXTENSION pg_fence; SELECT fence.acquire('other', 'a')});
$other->quit;
sql($old, q[
	CREATE ROLE app LOGIN;
	CREATE ROLE maintainer LOGIN;
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	CREATE SCHEMA "z z";
	CREATE TABLE "z z"."Item's" (warehouse text PRIMARY KEY, gone int, qty int, tok bigint);
	ALTER TABLE "z z"."Item's" DROP gone;
	CREATE TABLE leased (id int PRIMARY KEY, qty int);
	CREATE TABLE item_row (id int PRIMARY KEY, qty int, tok bigint);
	CREATE TABLE watched (id int PRIMARY KEY, qty int, tok bigint);
	CREATE TABLE parted (region text, id int, qty int, tok bigint, PRIMARY KEY (region, id)) PARTITION BY LIST (region);
	CREATE TABLE parted_a PARTITION OF parted FOR VALUES IN ('a');
	CREATE TABLE parted_b (tok bigint, qty int, id int NOT NULL, region text NOT NULL);
	ALTER TABLE parted ATTACH PARTITION parted_b FOR VALUES IN ('b');
	INSERT INTO stock VALUES (1, 0);
	INSERT INTO "z z"."Item's" VALUES ('w1', 0, 40), ('w2', 0, NULL);
	INSERT INTO leased VALUES (1, 0);
	INSERT INTO item_row VALUES (1, 0, 5);
	INSERT INTO watched VALUES (1, 0, 6);
	INSERT INTO parted VALUES ('a', 1, 0, 3), ('b', 1, 0, 8);
	SELECT fence.protect('stock', 'stock');
	SELECT fence.protect('"z z"."Item''s"', 'item''s {{{warehouse}', 'tok');
	SELECT fence.protect('leased', 'leased:{id}', lease => 'postgres');
	SELECT fence.protect('item_row', 'item_row:{id}', 'tok', 'row');
	SELECT fence.protect('watched', 'watched', 'tok', mode => 'observe');
	SELECT fence.protect('parted', 'parted:{region}', 'tok')]);
sql($old, q[
	UPDATE "z z"."Item's" SET tok = 41 WHERE warehouse = 'w1';
	UPDATE parted SET tok = 8;
	UPDATE watched SET tok = 6;
	SELECT fence.check('elsewhere', 500, holder => 'node-3')]);
sql($old, q{
	SELECT fence.grant_writer('app');
	GRANT SELECT, UPDATE ON stock, leased TO app, maintainer;
	GRANT USAGE ON SCHEMA fence TO maintainer;
	GRANT EXECUTE ON FUNCTION fence.raise_mark(text, bigint) TO maintainer;
	GRANT SELECT ON fence.leases TO maintainer;
	GRANT SET ON PARAMETER pg_fence.bypass TO maintainer;
	ALTER ROLE maintainer SET pg_fence.bypass = off});

# Leases: held, released, run out, broken
is(acquire($old, 'stock', 'holder', '1 hour'), 5, 'the floor is above its mark');
acquire($old, 'leased:1', 'holder', '1 hour');
sql($old, q{
	BEGIN; SELECT fence.check('stock', 5); UPDATE stock SET qty = 1; COMMIT;
	BEGIN; SELECT fence.check('leased:1', 5); UPDATE leased SET qty = 1; COMMIT});
acquire($old, $_, 'holder', '1 hour') foreach qw(released broken);
sql($old, q{SELECT fence.release('released', 5), fence.break_lease('broken')});
acquire($old, 'expired', 'holder', '1 ms');
wait_for($old, q{SELECT state = 'expired' FROM fence.leases WHERE resource = 'expired'});

my %questions = (
	'marks, tokens and leases' => 'SELECT r::text FROM fence.resource r ORDER BY name',
	'guards' => 'SELECT * FROM fence.protected_tables ORDER BY resource',
	'triggers' => q{
		SELECT tgrelid::regclass, tgname, tgenabled, pg_get_triggerdef(oid) FROM pg_trigger
		WHERE tgfoid = 'fence.guard()'::regprocedure ORDER BY 1, 2},
	'grants' => q{
		SELECT parname, paracl::text FROM pg_parameter_acl UNION ALL
		SELECT oid::regprocedure::text, proacl::text FROM pg_proc WHERE pronamespace = 'fence'::regnamespace ORDER BY 1},
	'settings of roles' => q{SELECT setrole::regrole, setconfig FROM pg_db_role_setting},
	'findings of fence.audit()' => 'SELECT target, severity, problem, remedy FROM fence.audit() ORDER BY 1, 3, 4',
	'leases, but for their state' => q{SELECT resource, holder, token, acquired_at, expires_at, renewals, released_at, mark FROM fence.leases ORDER BY 1});
my %before = map { $_ => sql($old, $questions{$_}) } keys %questions;
my $states = 'SELECT resource, state FROM fence.leases ORDER BY 1';
gives($old, $states, "broken|free\nexpired|expired\nleased:1|held\nreleased|free\nstock|held", 'the leases of the old cluster');
$old->stop;

# The upgrade
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init;
$new->append_conf('postgresql.conf', fence_conf($new));
chomp(my $bin = `pg_config --bindir`);
my $dir = PostgreSQL::Test::Utils::tempdir;
chdir $dir or die "$dir: $!";
command_ok(
	[
		'pg_upgrade', '--no-sync', '-b', $prefix ? "$prefix/bin" : $bin, '-B', $bin, '-d', $old->data_dir, '-D', $new->data_dir,
		'-s', $new->host, '-p', $old->port, '-P', $new->port
	],
	'pg_upgrade from ' . $old->pg_version . ' to ' . $new->pg_version);
$new->start;

gives($new, $questions{$_}, $before{$_}, "the same $_") foreach sort keys %questions;
sql($new, 'CREATE DATABASE fresh');
my $fresh = session($new, dbname => 'fresh');
$fresh->does('CREATE EXTENSION pg_fence');
my $db = session($new);
$db->does('BEGIN; DROP OWNED BY app, maintainer');
same_catalog($db, $fresh, 'the catalog is that of a fresh extension');
$db->does('ROLLBACK');
$fresh->quit;

# Leases
gives($db, $states, "broken|free\nexpired|expired\nleased:1|expired\nreleased|free\nstock|expired", 'leases have expired');
refuses($db, q{SELECT fence.check('stock', 5, lease => 'postgres')}, 'PF005', '... none counts as live');
refuses($db, q{BEGIN; SELECT fence.check('leased:1', 5); UPDATE leased SET qty = 2}, 'PF005', '... where the guard demands one');
$db->does('ROLLBACK');
gives($db, q{SELECT extended, reason FROM fence.extend('stock', 5)}, 'f|expired', '... or can be extended');
is(sqlstate($db, q{BEGIN; SELECT fence.check('stock', 5); UPDATE stock SET qty = 2; COMMIT}), '',
	'where only the order counts, the last holder goes on');
is(acquire($db, 'stock', 'next'), 6, '... until somebody acquires, whose token is above');
refuses($db, q{SELECT fence.check('stock', 5)}, 'PF001', '... then it is too late');
is(sqlstate($db, q{BEGIN; SELECT fence.check('stock', 6, lease => 'postgres'); UPDATE stock SET qty = 3; COMMIT}), '', 'the next holder works');
gives($db, q{SELECT state FROM fence.leases WHERE resource = 'stock'}, 'held', '... its lease is held');
is(acquire($db, 'leased:1', 'next'), 6, '... as for any other resource');
is(sqlstate($db, q{BEGIN; SELECT fence.check('leased:1', 6); UPDATE leased SET qty = 2; COMMIT}), '', '... where the guard demands one');
is(acquire($db, 'broken', 'next'), 7, 'the token after a lease that was broken');
is(acquire($db, 'forgotten', 'next'), 5, 'what was forgotten stays above the floor');
refuses($db, q{SELECT fence.check('unknown', 4)}, 'PF001', '... which is a mark for the unknown');

# Guards
refuses($db, q{SELECT fence.check('elsewhere', 499)}, 'PF001', 'a token from elsewhere that is too old');
refuses($db, q{SELECT fence.check('elsewhere', 500, holder => 'node-4')}, 'PF003', '... or of another holder');
refuses($db, 'UPDATE stock SET qty = 9', 'PF002', 'no token');
refuses($db, 'TRUNCATE stock', 'PF002', '... for TRUNCATE');
refuses($db, 'TRUNCATE parted_b', 'PF002', '... of a partition');
refuses($db, q{UPDATE "z z"."Item's" SET qty = 9, tok = 40 WHERE warehouse = 'w1'}, 'PF001', 'an old token by row and resource');
refuses($db, q{INSERT INTO "z z"."Item's" VALUES ('w3', 9)}, 'PF002', '... a new row without one');
refuses($db, 'UPDATE item_row SET qty = 9, tok = 4', 'PF001', '... by row');
refuses($db, q{UPDATE parted SET qty = 9, tok = 7 WHERE region = 'b'}, 'PF001', '... in a partition');
refuses($db, q{UPDATE parted_b SET qty = 9, tok = 7}, 'PF001', '... that is named');
$db->ask('UPDATE watched SET qty = 9, tok = 5');
like($db->errors, qr/WARNING: +PF001/, '... with a warning only, where the guard observes');
is(sqlstate($db, q{
	UPDATE "z z"."Item's" SET qty = 9, tok = 42 WHERE warehouse = 'w1';
	UPDATE item_row SET qty = 9, tok = 5;
	UPDATE parted SET qty = 9, tok = 9 WHERE region = 'b'}), '', 'good ones pass');
$db->quit;

# Roles
my $role = session($new);
is(sqlstate($role, q{SET ROLE app; BEGIN; SELECT fence.check('stock', 6); UPDATE stock SET qty = 4; COMMIT}), '', 'a writer writes');
refuses($role, q{SELECT fence.raise_mark('stock', 90)}, '42501', '... and may no more than before');
refuses($role, 'SET pg_fence.bypass = on', '42501', '... nor bypass the guards');
$role->does('RESET ROLE; SET ROLE maintainer');
is(sqlstate($role, 'SET pg_fence.bypass = on; UPDATE stock SET qty = 5; RESET pg_fence.bypass'), '', '... who may, still may');
gives($role, q{SELECT fence.raise_mark('elsewhere', 501)}, 501, '... and what else it was granted');
$role->quit;

$other = session($new, dbname => 'other db');
gives($other, 'SELECT state FROM fence.leases', 'expired', 'the other database');
is(acquire($other, 'other', 'b'), 2, '... its tokens rise, too');
$other->quit;

finish($new);
