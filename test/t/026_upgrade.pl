# Upgrades of the extension (G05): released scripts never change; an upgraded database has
# the same catalog as a fresh one, and what was protected still is.  Tried with a next version
# that is made up here.  And what happens while library and objects do not fit.

use strict;
use warnings;

use Digest::SHA;
use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

# Released scripts
my $sql = "$FindBin::RealBin/../../sql";
my ($version) = slurp_file("$sql/../pg_fence.control") =~ /^default_version = '([^']+)'/m;
my %released;
foreach my $line (split /\n/, slurp_file("$sql/RELEASED"))
{
	next if $line =~ /^(#.*)?$/;
	ok($line =~ /^([0-9a-f]{64})  (pg_fence--[0-9a-z.-]+\.sql)$/ && !$released{$2}, "sql/RELEASED: $line") or next;
	$released{$2} = $1;
}
foreach my $script (sort keys %released)
{
	ok(-f "$sql/$script" && Digest::SHA->new(256)->addfile("$sql/$script")->hexdigest eq $released{$script},
		"$script is as it was released");
}
ok(-f "$sql/pg_fence--$version.sql", "there is a script for version $version");
foreach my $script (map { s/.*\///r } glob "$sql/pg_fence--*.sql")
{
	ok($released{$script} || $script =~ /--\Q$version\E\.sql$/, "$script is released, or of the version to come");
}

# A copy of the installed extension with two more versions: 9.9 adds objects, 8.8 changes the
# table, as no library of today expects it.
chomp(my $bin = `pg_config --bindir`);
unless (`"$bin/postgres" --describe-config` =~ /^extension_(destdir|control_path)\t/m)
{
	note 'this server reads extensions from its own folder only: no version can be made up';
	done_testing();
	exit;
}
my ($to, $extension) = copy_extension();

sub extension_file
{
	my ($name, $text) = @_;

	open(my $file, '>', "$extension/$name") or die "$name: $!";
	print $file $text;
	close $file or die "$name: $!";
	return;
}

my $install = slurp_file("$extension/pg_fence--$version.sql");
(my $leases) = $install =~ /^CREATE VIEW fence\.leases AS\n(.*?);\n/ms or die 'fence.leases not found';
$leases =~ s/(?=\n\tFROM fence\.resource r\n)/,\n\t\tr.mark_holder/ or die 'last column of fence.leases not found';
my $next = <<"END";
CREATE FUNCTION fence.next_version() RETURNS text LANGUAGE sql IMMUTABLE
RETURN 'dummy';
REVOKE ALL ON FUNCTION fence.next_version() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION fence.next_version() TO pg_monitor;
COMMENT ON FUNCTION fence.next_version() IS 'made up by a test';
COMMENT ON FUNCTION fence.mark(text) IS 'says something else now';
CREATE OR REPLACE VIEW fence.leases AS
$leases;
CREATE TABLE fence.next_table (id int PRIMARY KEY, note text DEFAULT 'x' COLLATE "C");
REVOKE ALL ON TABLE fence.next_table FROM PUBLIC;
SELECT pg_catalog.pg_extension_config_dump('fence.next_table', 'WHERE id > 0');
END
extension_file("pg_fence--$version--9.9.sql", $next);
extension_file('pg_fence--9.9.sql', $install . $next);
extension_file("pg_fence--$version--8.8.sql", 'ALTER TABLE fence.resource ADD COLUMN next text;');
extension_file("pg_fence--8.8--$version.sql", '-- there is no way back');

local $ENV{FENCE_EXTENSION_DESTDIR} = $to;
my $node = fence_node('upgrade');
gives($node, q{SELECT extversion FROM pg_extension WHERE extname = 'pg_fence'}, $version, 'without a version, the one of the control file');
sql($node, "CREATE DATABASE $_") foreach qw(fresh upgraded);
my $fresh = session($node, dbname => 'fresh');
$fresh->does(q{CREATE EXTENSION pg_fence VERSION '9.9'});

# A database in use
my $db = session($node, dbname => 'upgraded');
$db->does("CREATE EXTENSION pg_fence VERSION '$version'");
$db->does(q{
	CREATE ROLE app LOGIN;
	SELECT fence.grant_writer('app');
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
	CREATE TABLE parted (id int PRIMARY KEY, qty int, tok bigint) PARTITION BY RANGE (id);
	CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10);
	INSERT INTO stock VALUES (1, 0);
	INSERT INTO item VALUES (1, 0, 5);
	INSERT INTO parted VALUES (1, 0, 5);
	SELECT fence.protect('stock', 'stock:{id}');
	SELECT fence.protect('item', 'item:{id}', 'tok');
	SELECT fence.protect('parted', 'parted:{id}', 'tok', 'row');
	UPDATE item SET tok = 6;
	CREATE VIEW my_leases AS SELECT l.*, holder || '!' AS loud FROM fence.leases l;
	CREATE VIEW my_tables AS SELECT * FROM fence.protected_tables;
	CREATE FUNCTION my_mark() RETURNS bigint BEGIN ATOMIC SELECT fence.mark('stock:1'); END;
	GRANT SELECT, UPDATE ON stock, item TO app;
	GRANT SELECT ON fence.leases TO app});
is(acquire($db, 'stock:1', 'a', '1 hour'), 1, 'a holder before the upgrade');
my $before = $db->does('SELECT r::text FROM fence.resource r ORDER BY name');
my $policies = $db->does('SELECT * FROM fence.protected_tables ORDER BY resource');
my $busy = session($node, dbname => 'upgraded');
$busy->does(q{BEGIN; SELECT fence.check('stock:1', 1); UPDATE stock SET qty = 1});

is(sqlstate($db, q{ALTER EXTENSION pg_fence UPDATE TO '9.9'}), '', 'the upgrade, while a holder is at work');
is(sqlstate($busy, 'COMMIT'), '', '... who finishes afterwards');

# What the role of this test was granted is not part of the extension.
my $upgraded = session($node, dbname => 'upgraded');
$upgraded->does('BEGIN; DROP OWNED BY app');
same_catalog($upgraded, $fresh, 'the catalog of the upgraded database is that of a fresh 9.9');
$upgraded->does('ROLLBACK');
my $catalog = fence_catalog($fresh);
cmp_ok(($catalog =~ tr/\n//), '>', 60, '... which is not empty');
like($catalog, qr/^$_\|/m, "... with each $_") foreach 'column', 'constraint', 'extension', 'function', 'index', 'initial privileges', 'member', 'relation', 'schema', 'view';

# Still protected, nothing lost, nothing of the user's dropped
gives($db, 'SELECT r::text FROM fence.resource r ORDER BY name', $before, 'marks, tokens and leases are as before');
gives($db, 'SELECT * FROM fence.protected_tables ORDER BY resource', $policies, '... so are the guards');
gives($db, 'SELECT * FROM my_tables ORDER BY resource', $policies, '... and a view over them');
gives($db, 'SELECT holder, state, mark FROM my_leases', 'a|held|1', '... and one over the leases');
gives($db, 'SELECT mark_holder FROM fence.leases', 'a', '... which have a new column');
gives($db, 'SELECT my_mark()', 1, '... and a function that calls one of ours');
refuses($db, 'UPDATE stock SET qty = 2', 'PF002', 'still protected');
refuses($db, 'UPDATE item SET qty = 2, tok = 5', 'PF001', '... with a token column');
refuses($db, 'UPDATE parted SET qty = 2, tok = 4', 'PF001', '... with row marks, in a partition');
my $app = session($node, dbname => 'upgraded');
is(sqlstate($app, q{SET ROLE app; BEGIN; SELECT fence.check('stock:1', 1); UPDATE stock SET qty = 3; COMMIT}), '', 'a role with the rights of a writer still has them');
refuses($app, 'SELECT fence.next_version()', '42501', '... and no others');
gives($app, 'SELECT count(*) FROM fence.leases', 1, '... also those that it was granted by hand');
$app->quit;

# G05: a dump of the upgraded database
my $dir = PostgreSQL::Test::Utils::tempdir;
$db->does(q{INSERT INTO fence.next_table VALUES (1), (0)});
sql($node, 'CREATE DATABASE restored');
command_ok([ 'pg_dump', '-Fc', '-f', "$dir/dump", '-d', $node->connstr('upgraded') ], 'pg_dump of the upgraded database');
(my $control = slurp_file("$extension/pg_fence.control")) =~ s/^default_version = .*/default_version = '9.9'/m;
extension_file('pg_fence.control', $control);
command_ok([ 'pg_restore', '--exit-on-error', '-d', $node->connstr('restored'), "$dir/dump" ], '... restored where 9.9 is the default');
my $restored = session($node, dbname => 'restored');
gives($restored, 'SELECT id FROM fence.next_table', 1, '... with what a new table keeps');
gives($restored, 'SELECT * FROM fence.protected_tables ORDER BY resource', $policies, '... and the guards');
refuses($restored, q{SELECT fence.check('item:1', 5)}, 'PF001', '... and the marks');
$restored->quit;

# No way there is told by the server itself.
refuses($db, q{ALTER EXTENSION pg_fence UPDATE TO '7.7'}, '22023', 'a version that does not exist');
is(sqlstate($db, q{DROP EXTENSION pg_fence}), '2BP01', 'what depends on it keeps it from being dropped');
$_->quit foreach $db, $busy, $upgraded, $fresh;

# Objects that the library does not know: protected writes and our functions fail, with the
# hint; all else in the session works.
sql($node, 'CREATE DATABASE mismatch');
$db = session($node, dbname => 'mismatch');
$db->does(qq{
	CREATE EXTENSION pg_fence VERSION '$version';
	CREATE TABLE free (id int PRIMARY KEY, qty int);
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO free VALUES (1, 0);
	INSERT INTO stock VALUES (1, 0);
	INSERT INTO item VALUES (1, 0, 5);
	SELECT fence.protect('stock', 'stock');
	SELECT fence.protect('item', 'item:{id}', 'tok')});
is(acquire($db, 'stock', 'a', '1 hour'), 1, 'a holder');
$busy = session($node, dbname => 'mismatch');
$busy->does(q{BEGIN; SELECT fence.check('stock', 1); UPDATE stock SET qty = 1});
is(sqlstate($db, q{ALTER EXTENSION pg_fence UPDATE TO '8.8'}), '', 'objects of a version that the library does not know');
refuses($busy, 'COMMIT', '55000', '... a transaction that has presented a token cannot commit');
gives($busy, 'SELECT qty FROM stock', 0, '... and has written nothing');

my $new = session($node, dbname => 'mismatch');
foreach my $session ($busy, $new)
{
	my $which = $session == $new ? 'a new session' : 'the old session';

	foreach my $call (q{fence.check('stock', 1)}, q{fence.mark('stock')}, q{fence.raise_mark('stock', 5)},
		q{fence.acquire('stock', 'b')}, q{fence.acquire_many('{stock,x}', 'b')}, q{fence.extend('stock', 1)},
		q{fence.release('stock', 1)}, q{fence.hand_over('stock', 1, 'b')}, q{fence.break_lease('stock')},
		q{fence.evict('stock')}, q{fence.forget('0')})
	{
		refuses($session, "SELECT $call", '55000', "$which: $call");
	}
	refuses($session, 'UPDATE item SET qty = 1, tok = 9', '55000', '... a protected write');
	refuses($session, 'INSERT INTO item VALUES (2, 0, 9)', '55000', '... of any kind');
	like(sqlstate($session, 'UPDATE item SET qty = 1'), qr/^(55000|PF002)$/, '... without a token as well');
	like(sqlstate($session, 'UPDATE stock SET qty = 1'), qr/^(55000|PF002)$/, '... with a plain guard');
	like(sqlstate($session, 'DELETE FROM item'), qr/^(55000|PF002)$/, '... a deletion');
	like(sqlstate($session, 'TRUNCATE stock'), qr/^(55000|PF002)$/, '... TRUNCATE');

	is(sqlstate($session, q{
		BEGIN; UPDATE free SET qty = qty + 1; SAVEPOINT s; INSERT INTO free VALUES (2, 0); ROLLBACK TO s; COMMIT;
		CREATE TEMPORARY TABLE t AS SELECT * FROM item; DROP TABLE t;
		SELECT count(*) FROM stock; ALTER TABLE stock ADD COLUMN more int; ALTER TABLE stock DROP COLUMN more;
		PREPARE q AS SELECT 1; EXECUTE q; DISCARD ALL}), '', '... everything else works');
	gives($session, 'SELECT count(*) FROM fence.protected_tables', 2, '... the guards can be seen');
}
$new->does('\set VERBOSITY default');
$new->ask(q{SELECT fence.mark('stock')});
like($new->errors, qr/HINT: .*ALTER EXTENSION pg_fence UPDATE/, '... the error says what to do');
gives($node, 'SELECT 1', 1, 'nobody else notices');
gives($new, 'SELECT qty FROM free', 2, 'and other tables were written');
$new->ask('UPDATE item SET qty = 1, tok = 9');
like($new->errors, qr/HINT: .*ALTER EXTENSION pg_fence UPDATE/, '... so does that of a write');
command_ok([ 'pg_dump', '-f', "$dir/mismatch", '-d', $node->connstr('mismatch') ], 'pg_dump works');

# Objects older than the library: a function that the library does not have any more
$new->does('\set VERBOSITY sqlstate');
is(sqlstate($new, q{ALTER TABLE fence.resource DROP COLUMN next; SELECT fence.mark('stock')}), '55000', 'a dropped column does not make it fit');
is(sqlstate($new, q{DROP EXTENSION pg_fence CASCADE}), '', 'it can be removed');
is(sqlstate($new, q{UPDATE stock SET qty = 1}), '', '... and the table can be written');
gives($new, qq{CREATE EXTENSION pg_fence VERSION '$version'; SELECT token FROM fence.acquire('stock', 'b')}, 1, '... and installed again, in the same session');
$_->quit foreach $db, $busy, $new;

finish($node);
