# Two workers import a supplier's stock file of 200 000 lines each into an inventory of
# 500 000 rows.  The first one is frozen, really, past its leases and with its transaction
# open; the second one takes over and imports; the first one wakes up and must be refused.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('import', conf => "max_wal_size = 4GB\nshared_buffers = 256MB\nautovacuum = off\ncheckpoint_timeout = 1h");
my $test = "$FindBin::RealBin/..";

my $setup = session($node);
$setup->does("\\i $test/inventory.sql\n");
gives($setup, 'SELECT count(*), count(DISTINCT warehouse_id) FROM inventory', '500000|50', 'the inventory');
$setup->does(q{
	CREATE TABLE original AS TABLE inventory;
	SELECT fence.protect('inventory', 'stock-sync:{warehouse_id}')});

# Supplier files, with different seeds
my %file;
foreach my $seed (1 .. 3)
{
	my ($out, $err);
	IPC::Run::run([ $^X, "$test/supplier_file", $seed, 200000 ], '>', \$out, '2>', \$err) or die $err;
	$file{$seed} = $out;
}
is(scalar(split /\n/, $file{$_}), 200000, "file $_ has 200 000 lines") foreach 1 .. 3;
isnt($file{1}, $file{2}, 'the files differ');

# A worker's steps: 50 leases, one a warehouse; tokens presented; the file loaded; one UPDATE.
sub take_leases
{
	my ($worker, $name, $ttl) = @_;

	return $worker->does(qq{
		CREATE TEMPORARY TABLE lease AS
		SELECT 'stock-sync:warehouse-' || w AS resource, a.acquired, a.token
		FROM generate_series(1, 50) w, LATERAL fence.acquire('stock-sync:warehouse-' || w, '$name', '$ttl') a;
		SELECT count(*), bool_and(acquired), min(token), max(token) FROM lease});
}

sub load_file
{
	my ($worker, $seed) = @_;
	my $path = write_file("supplier$seed.csv", $file{$seed});

	$worker->does(q{
		BEGIN;
		SELECT count(fence.check(resource, token)) FROM lease;
		CREATE TEMPORARY TABLE stage (warehouse_id text, sku text, qty integer)});
	$worker->does("\\copy stage FROM '$path' (FORMAT csv)\n");
	return $worker->does('SELECT count(*) FROM stage');
}

my $update = q{
	UPDATE inventory i SET qty = s.qty FROM stage s
	WHERE (i.warehouse_id, i.sku) = (s.warehouse_id, s.sku)};

# A table as lines of the same form, by warehouse and SKU.
sub table_lines
{
	my ($table) = @_;
	my $path = write_file("$table.csv", '');

	sql($node, "COPY $table TO '$path' (FORMAT csv)");
	return map { /^(.*),(\d+)$/ } split /\n/, slurp_file($path);
}

# What the inventory holds must be the original with this file in it, line by line.
sub holds_file
{
	my ($seed) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %expected = map { /^(.*),(\d+)$/ } split /\n/, $file{$seed};
	my %found = table_lines('inventory');
	my %original = table_lines('original');
	my ($good, $bad, $untouched, $touched) = (0, 0, 0, 0);

	foreach my $key (keys %found)
	{
		if (exists $expected{$key}) { $found{$key} == $expected{$key} ? $good++ : $bad++; }
		else { $found{$key} == $original{$key} ? $untouched++ : $touched++; }
	}
	is("$good|$bad", '200000|0', "all 200 000 lines of file $seed are in the inventory");
	is("$untouched|$touched", '300000|0', '... and nothing else has changed');
	return;
}

sub frozen
{
	my ($worker) = @_;
	my $status = slurp_file('/proc/' . $worker->client . '/status');

	return $status =~ /^State:\s+T/m;
}

# The first worker: leases, token, file loaded; then it freezes, transaction open.  Its
# remaining steps already lie in its input.
my $first = session($node);
is(take_leases($first, 'first', '2 seconds'), '50|t|1|1', 'the first worker has 50 leases');
is(load_file($first, 1), 200000, '... and loads its file');
$first->kill('STOP');
wait_for_stop($first);
$first->send("$update; COMMIT");
ok(frozen($first), '... then it is frozen');
gives($setup, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE state = 'idle in transaction'}, 't', '... with its transaction open');

# The leases run out; the second worker takes over and imports, undisturbed by the first.
wait_for($setup, q{SELECT bool_and(state = 'expired') FROM fence.leases});
my $second = session($node);
is(take_leases($second, 'second', '1 hour'), '50|t|2|2', 'the second worker has the 50 leases');
is(load_file($second, 2), 200000, '... and loads its file');
is(sqlstate($second, $update), '', '... imports');
note sprintf('UPDATE of 200 000 lines: %.1f s', $second->seconds);
is(sqlstate($second, 'COMMIT'), '', '... and commits');
under($second->seconds, 60, '... without waiting for the frozen one');
ok(frozen($first), 'the first one is still frozen');

$first->kill('CONT');
is($first->wait->sqlstate, 'PF001', 'the first worker goes on and is refused');
gives($first, 'SELECT count(*) FROM lease', 50, '... its connection is not lost');
holds_file(2);

# Once more the other way round: this time the frozen worker has its rows locked.  The newer
# one has to wait for them, until the server ends the frozen transaction.
$setup->does('DROP TABLE original; CREATE TABLE original AS TABLE inventory');
$first->does('DROP TABLE lease');
$second->does('SELECT count(fence.release(resource, token)) FROM lease; DROP TABLE lease, stage');
$second->does(q{SET idle_in_transaction_session_timeout = '3s'});
is(take_leases($second, 'second', '1 second'), '50|t|3|3', 'the second worker again');
is(load_file($second, 3), 200000, '... loads another file');
is(sqlstate($second, $update), '', '... writes its rows');
$second->kill('STOP');
wait_for_stop($second);
$second->send('COMMIT');
wait_for($setup, q{SELECT bool_and(state = 'expired') FROM fence.leases});
is(take_leases($first, 'first', '1 hour'), '50|t|4|4', 'the first takes over');
is(load_file($first, 1), 200000, '... loads its file');
is(sqlstate($first, $update), '', '... imports, once the frozen transaction is ended');
is(sqlstate($first, 'COMMIT'), '', '... and commits');
$second->kill('CONT');
is($second->wait->sqlstate, '25P03', 'the second one finds its session ended');
holds_file(1);
gives($node, q{SELECT count(*) FROM fence.resource WHERE name LIKE 'stock-sync:%' AND mark = 4}, 50, 'marks of 50 warehouses');
$_->quit foreach $setup, $first, $second;

finish($node);

sub wait_for_stop
{
	my ($worker) = @_;
	my $end = time + 60;

	until (frozen($worker))
	{
		die 'not stopped' if time > $end;
		select undef, undef, undef, 0.01;
	}
	return;
}
