# Logical replication into guarded tables (C07, C23, B03): apply is never refused.  With
# ordinary triggers the marks of rows follow, with ENABLE ALWAYS those of resources do, too.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $publisher = fence_node('publisher', init => [ allows_streaming => 'logical' ]);
my $subscriber = fence_node('subscriber', init => [ allows_streaming => 'logical' ],
	conf => "wal_retrieve_retry_interval = 100ms\nmax_logical_replication_workers = 10");

# Not guarded on the publisher, so that it can send whatever we like.
my @tables = (
	[ 'plain', 'id int PRIMARY KEY, qty int', q{'plain'} ],
	[ 'stock', 'id int PRIMARY KEY, qty int', q{'stock:{id}'} ],
	[ 'item', 'id int PRIMARY KEY, qty int, tok bigint', q{'item:{id}', 'tok'} ],
	[ 'item_row', 'id int PRIMARY KEY, qty int, tok bigint', q{'item_row:{id}', 'tok', 'row'} ],
	[ 'leased', 'id int PRIMARY KEY, qty int, tok bigint', q{'leased:{id}', 'tok', lease => 'postgres'} ],
	[ 'watched', 'id int PRIMARY KEY, qty int, tok bigint', q{'watched:{id}', 'tok', mode => 'observe'} ]);
foreach my $table (@tables)
{
	my ($name, $columns, $policy) = @$table;

	sql($publisher, "CREATE TABLE $name ($columns)");
	sql($subscriber, "CREATE TABLE $name ($columns); SELECT fence.protect('$name', $policy)");
}
sub everywhere
{
	my ($sql) = @_;

	return join '; ', map { (my $s = $sql) =~ s/TABLE/$_->[0]/g; $s } @_ == 2 ? grep { $_->[1] =~ /tok/ } @tables : @tables;
}

# The initial copy is an apply as well.
sql($publisher, everywhere('INSERT INTO TABLE (id, qty) VALUES (1, 0), (2, 0)'));
sql($publisher, everywhere('UPDATE TABLE SET tok = 5 WHERE id = 1', 'with tokens'));
sql($publisher, 'CREATE PUBLICATION p FOR TABLE ' . join(', ', map { $_->[0] } @tables));
my $connection = $publisher->connstr('postgres');
$connection =~ s/'/''/g;
sql($subscriber, "CREATE SUBSCRIPTION s CONNECTION '$connection' PUBLICATION p");
wait_for($subscriber, q{SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel});
pass('the tables are copied');

# Waits until a subscription has applied everything; dies where its worker fails instead.
sub caught_up
{
	my ($test_name, $name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $lsn = sql($publisher, 'SELECT pg_current_wal_insert_lsn()');
	my $offset = -s $subscriber->logfile;
	my $probe = session($publisher);

	$name //= 's';
	until ($probe->does(qq{SELECT coalesce(bool_or(replay_lsn >= '$lsn'), false) FROM pg_stat_replication
		WHERE application_name = '$name'}) eq 't')
	{
		my ($error) = server_log($subscriber, $offset) =~ /ERROR: +(.*)/;
		if (defined $error)
		{
			fail($test_name);
			die "apply: $error";
		}
		sleep 0.02;
	}
	$probe->quit;
	return pass($test_name);
}

# Everything that a publisher may send; tokens that rise, fall, are missing.
sub play
{
	my ($how) = @_;

	sql($publisher, everywhere('INSERT INTO TABLE (id, qty) VALUES (3, 0)'));
	sql($publisher, everywhere('UPDATE TABLE SET qty = qty + 1 WHERE id = 2'));
	caught_up("$how: rows without a token");
	sql($publisher, everywhere('UPDATE TABLE SET tok = 8, qty = qty + 1 WHERE id = 1', 'with tokens'));
	sql($publisher, everywhere('UPDATE TABLE SET tok = 9, qty = qty + 1 WHERE id = 1', 'with tokens'));
	sql($publisher, everywhere('INSERT INTO TABLE (id, qty, tok) VALUES (4, 0, 3)', 'with tokens'));
	caught_up("$how: tokens that rise");
	sql($publisher, everywhere('UPDATE TABLE SET tok = 4, qty = qty + 1 WHERE id = 1', 'with tokens'));
	caught_up("$how: tokens that fall");
	sql($publisher, everywhere('UPDATE TABLE SET tok = 9, qty = qty + 1 WHERE id = 1', 'with tokens'));
	sql($publisher, everywhere('UPDATE TABLE SET tok = NULL WHERE id = 4', 'with tokens'));
	sql($publisher, everywhere('UPDATE TABLE SET tok = 0 WHERE id = 4', 'with tokens'));
	sql($publisher, everywhere('UPDATE TABLE SET tok = -7 WHERE id = 4', 'with tokens'));
	caught_up("$how: tokens that are none");
	sql($publisher, everywhere('UPDATE TABLE SET id = 5 WHERE id = 3'));
	sql($publisher, everywhere('DELETE FROM TABLE WHERE id >= 3'));
	caught_up("$how: other resources, and deletions");
	sql($publisher, 'TRUNCATE plain, stock');
	sql($publisher, 'INSERT INTO plain VALUES (1, 0); INSERT INTO stock VALUES (1, 0), (2, 0)');
	caught_up("$how: TRUNCATE");
	return;
}

play('ordinary triggers');

gives($subscriber, 'SELECT count(*) FROM fence.resource', 0, 'no mark has moved');


# Rows without a token column cannot carry a mark, whatever the triggers.
my @remedies = split /\n/, sql($subscriber,
	q{SELECT remedy FROM fence.audit() WHERE problem ~ 'replicated rows' ORDER BY 1});
my %tables = map { /^ALTER TABLE public\.(\w+) ENABLE ALWAYS TRIGGER / ? ($1 => 1) : ($_ => 1) } @remedies;
is(join(' ', sort keys %tables), 'item leased watched', 'fence.audit() says so, of those that could');
sql($subscriber, join ' ', @remedies);
gives($subscriber, q{SELECT count(*) FROM fence.audit() WHERE problem ~ 'replicated rows'}, 0, '... and how to have them moved');

# ENABLE ALWAYS, for the other guards as well
sub enable_always
{
	sql($subscriber, q{
		DO $$
		DECLARE
			t record;
		BEGIN
			FOR t IN SELECT tgrelid::regclass AS rel, tgname FROM pg_trigger WHERE tgfoid = 'fence.guard'::regproc LOOP
				EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', t.rel, t.tgname);
			END LOOP;
		END
		$$});
	return;
}
enable_always();
my $offset = -s $subscriber->logfile;
play('ENABLE ALWAYS');
unlike(server_log($subscriber, $offset), qr/WARNING/, '... without a warning');
gives($subscriber, q{SELECT string_agg(name || '=' || mark, ' ' ORDER BY name) FROM fence.resource},
	'item:1=9 item:4=3 leased:1=9 leased:4=3 watched:1=9 watched:4=3', 'marks follow the rows, upwards');
gives($subscriber, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, '... and no lock is left');

# Local writers
refuses($subscriber, 'UPDATE stock SET qty = 9', 'PF002', 'a local writer needs a token');
refuses($subscriber, 'UPDATE item SET qty = 9 WHERE id = 1', 'PF002', '... with a token column');
refuses($subscriber, 'UPDATE item SET qty = 9, tok = 8 WHERE id = 1', 'PF001', '... not an old one');
refuses($subscriber, q{SELECT fence.check('item:1', 8)}, 'PF001', '... as fence.check() says');
refuses($subscriber, 'INSERT INTO item VALUES (4, 0, 2)', 'PF001', '... not an old one of a row that is gone');

# B03: what is issued here is above what was replicated, without any period of grace.
is(acquire($subscriber, 'item:1', 'local'), 10, 'the first token issued here');
is(sqlstate($subscriber, 'UPDATE item SET qty = 9, tok = 10 WHERE id = 1'), '', '... is good at once');

# The publisher goes on with a newer holder than the local one, where tokens are issued here.
my $local = session($subscriber);
$local->does(q{BEGIN; SELECT fence.check('item:1', 10)});
sql($publisher, 'UPDATE item SET tok = 12, qty = 12 WHERE id = 1');
caught_up('apply does not wait for a local transaction with a token');
gives($subscriber, q{SELECT fence.mark('item:1')}, 12, '... raises the mark');
refuses($local, 'COMMIT', 'PF001', '... and fences the local holder off');
is(sqlstate($subscriber, q{SELECT fence.check('item:1', 10)}), 'PF001', '... for good');
is(acquire($subscriber, 'item:2', 'local'), 1, 'a resource acquired here');
sql($publisher, 'UPDATE item SET tok = 1, qty = 12 WHERE id = 2');
caught_up('an equal token');
sql($publisher, 'UPDATE item SET tok = 7, qty = 12 WHERE id = 2');
caught_up('a token above what was issued here');
gives($subscriber, q{SELECT token, mark FROM fence.resource WHERE name = 'item:2'}, '1|7', '... raises the mark as well');

# An acquisition that is not committed keeps apply waiting, but does not make it fail.
$local->does(q{BEGIN; SELECT fence.raise_mark('item:2', 8)});
sql($publisher, 'UPDATE item SET tok = 20, qty = 13 WHERE id = 2');
wait_for($subscriber, q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type ~ 'logical replication' AND wait_event_type = 'Lock'});
$local->does('COMMIT');
caught_up('apply waits for a local acquisition');
gives($subscriber, q{SELECT mark FROM fence.resource WHERE name = 'item:2'}, 20, '... and then raises the mark');
$local->quit;

# The first copy of a table is made by another kind of worker, with COPY.
foreach my $table (@tables)
{
	my ($name, $columns, $policy) = @$table;

	$policy =~ s/'(\w+)/'late_$1/;
	sql($_, "CREATE TABLE late_$name ($columns)") foreach $publisher, $subscriber;
	sql($publisher, "INSERT INTO late_$name (id, qty) VALUES (1, 0), (2, 0)");
	sql($publisher, "UPDATE late_$name SET tok = 5 WHERE id = 1") if $columns =~ /tok/;
	sql($publisher, "ALTER PUBLICATION p ADD TABLE late_$name");
	sql($subscriber, "SELECT fence.protect('late_$name', $policy)");
}
enable_always();
$offset = -s $subscriber->logfile;
sql($subscriber, 'ALTER SUBSCRIPTION s REFRESH PUBLICATION');
until (sql($subscriber, q{SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel}) eq 't')
{
	my ($error) = server_log($subscriber, $offset) =~ /ERROR: +(.*)/;
	die "copy: $error" if defined $error;
	sleep 0.05;
}
gives($subscriber, join(' UNION ALL ', map { "SELECT count(*) FROM late_$_->[0]" } @tables),
	join("\n", map { 2 } @tables), 'the first copy under ENABLE ALWAYS');
gives($subscriber, q{SELECT string_agg(name || '=' || mark, ' ' ORDER BY name) FROM fence.resource WHERE name ~ 'late'},
	'late_item:1=5 late_leased:1=5 late_watched:1=5', '... moves the marks, too');

# A partition, as publications send it, has triggers that come from its parent.
sql($publisher, 'CREATE TABLE leaf (id int PRIMARY KEY, tok bigint); ALTER PUBLICATION p ADD TABLE leaf');
sql($subscriber, q[
	CREATE TABLE parent (id int PRIMARY KEY, tok bigint) PARTITION BY RANGE (id);
	CREATE TABLE leaf PARTITION OF parent DEFAULT;
	SELECT fence.protect('parent', 'parent:{id}', 'tok');
	ALTER SUBSCRIPTION s REFRESH PUBLICATION]);
my $remedies = q{SELECT string_agg(remedy, ' ') FROM fence.audit() WHERE problem ~ 'replicated rows'};
like(sql($subscriber, $remedies), qr/^ALTER TABLE public\.leaf ENABLE ALWAYS TRIGGER /, 'fence.audit() names a partition');
sql($subscriber, sql($subscriber, $remedies));
wait_for($subscriber, q{SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel});
sql($publisher, 'INSERT INTO leaf VALUES (1, 6)');
caught_up('rows of a partition');
gives($subscriber, q{SELECT mark FROM fence.resource WHERE name = 'parent:1'}, 6, '... then move its marks');
gives($subscriber, $remedies, '', '... fence.audit() has nothing more to say');

# A trigger that fires for replicated rows may write to guarded tables, too.
sql($subscriber, q[
	CREATE TABLE ledger (id int PRIMARY KEY, qty int, tok bigint);
	CREATE TABLE journal (id int, qty int);
	SELECT fence.protect('ledger', 'ledger:{id}', 'tok'), fence.protect('journal', 'journal');
	SELECT fence.check('ledger:1', 50);
	CREATE FUNCTION derive() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO public.ledger VALUES (NEW.id, NEW.qty, NEW.tok)
			ON CONFLICT (id) DO UPDATE SET qty = excluded.qty, tok = excluded.tok;
		INSERT INTO public.journal VALUES (NEW.id, NEW.qty);
		RETURN NULL;
	END
	$$;
	CREATE TRIGGER derive AFTER UPDATE ON item FOR EACH ROW EXECUTE FUNCTION derive()]);
my $derived = q{SELECT string_agg(concat_ws('|', id, qty, tok, fence.mark('ledger:' || id)), ' ' ORDER BY id) FROM ledger};
sub derive
{
	my ($test_name) = @_;

	sql($publisher, 'UPDATE item SET tok = 40, qty = 40 WHERE id IN (1, 2)');
	sql($publisher, 'UPDATE item SET tok = 30, qty = 30 WHERE id IN (1, 2)');
	return caught_up("$test_name: tokens below the mark, and that fall");
}
sql($subscriber, 'ALTER TABLE item ENABLE REPLICA TRIGGER derive');
derive('a replica trigger writes to guarded tables');
gives($subscriber, $derived, '1|30|30|50 2|30|30', '... whose marks do not move');
enable_always();
sql($subscriber, 'SET pg_fence.bypass = on; TRUNCATE ledger, journal; ALTER TABLE item ENABLE ALWAYS TRIGGER derive');
derive('... with ENABLE ALWAYS, the guards as well');
gives($subscriber, $derived, '1|30|30|50 2|30|30|40', '... whose marks follow, upwards');
gives($subscriber, 'SELECT count(*) FROM journal', 4, '... and nothing is left out');
refuses($subscriber, 'UPDATE ledger SET tok = 39 WHERE id = 2', 'PF001', '... which a local writer is judged by');
refuses($subscriber, 'INSERT INTO journal VALUES (5)', 'PF002', '... as without a token');
sql($subscriber, 'DROP TABLE ledger, journal; DROP TRIGGER derive ON item');

# The other way: fence.resource itself is published, as it is by FOR ALL TABLES.  No trigger
# has to fire then.
sql($publisher, 'CREATE DATABASE source');
my $source = session($publisher, dbname => 'source');
$source->does(q{
	CREATE EXTENSION pg_fence;
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	INSERT INTO stock VALUES (1, 0);
	SELECT fence.protect('stock', 'stock:{id}');
	CREATE PUBLICATION whole FOR ALL TABLES});
is(acquire($source, 'stock:1', 'a', '1 hour'), 1, 'a holder on the publisher');
sql($subscriber, 'CREATE DATABASE target');
my $target = session($subscriber, dbname => 'target');
$target->does(q{
	CREATE EXTENSION pg_fence;
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	SELECT fence.protect('stock', 'stock:{id}')});
($connection = $publisher->connstr('source')) =~ s/'/''/g;
$target->does("CREATE SUBSCRIPTION whole CONNECTION '$connection' PUBLICATION whole");
wait_for($target, q{SELECT count(*) > 2 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel});
$source->does(q{
	BEGIN;
	SELECT fence.check('stock:1', 1);
	UPDATE stock SET qty = 1;
	COMMIT;
	SELECT fence.release('stock:1', 1)});
is(acquire($source, 'stock:1', 'b', '1 hour'), 2, 'the next holder');
acquire($source, 'idle', 'c', '1 ms');
wait_for($source, q{SELECT state = 'expired' FROM fence.leases WHERE resource = 'idle'});
$source->does(q{
	SELECT fence.raise_mark('idle', 70);
	SELECT fence.break_lease('idle');
	SELECT fence.forget('0')});
caught_up('fence.resource is replicated', 'whole');
gives($target, q{SELECT name, token, mark, holder FROM fence.resource ORDER BY name},
	sql($source, q{SELECT name, token, mark, holder FROM fence.resource ORDER BY name}), '... with marks, tokens and floor');
gives($target, q{SELECT resource, state FROM fence.leases}, 'stock:1|expired', '... the lease is one of the publisher only');
refuses($target, q{SELECT fence.check('stock:1', 1)}, 'PF001', '... the old token is refused here, too');
refuses($target, q{SELECT fence.check('idle', 70)}, 'PF001', '... so is what was forgotten there');

# Switch over: the next tokens are above those of the publisher (B03).
$target->does('DROP SUBSCRIPTION whole');
is(acquire($target, 'stock:1', 'd'), 3, 'after a switch-over the next token');
is(acquire($target, 'idle', 'd'), 72, '... for a forgotten resource');
is(sqlstate($target, q{BEGIN; SELECT fence.check('stock:1', 3); UPDATE stock SET qty = 2; COMMIT}), '', '... is good at once');
$_->quit foreach $source, $target;

finish($publisher, $subscriber);
