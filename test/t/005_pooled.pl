# One server connection, many clients, as behind a pooler in transaction mode: the next
# transaction never inherits a token (C21, C22), and no lock outlives its transaction (F07).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('pooled');

sql($node, q{
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	INSERT INTO stock VALUES (1, 0);
	SELECT fence.protect('stock', 'stock');
	CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO item VALUES (1, 0, 1);
	SELECT fence.protect('item', 'item:{id}', 'tok')});
acquire($node, 'stock', 'a', '1 hour');
acquire($node, 'item:1', 'a', '1 hour');

my $pool = session($node);
my $watch = session($node);
my $write = 'UPDATE stock SET qty = qty + 1';

# The next client of the pooled connection: nothing is inherited, nothing is locked.
sub next_client
{
	my ($after) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	gives($watch, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, "no lock is left: $after");
	refuses($pool, $write, 'PF002', 'and no token');
	refuses($pool, 'UPDATE item SET qty = qty + 1', 'PF002', '... of a row');
	refuses($pool, "BEGIN; $write", 'PF002', '... nor in a transaction');
	$pool->does('ROLLBACK');
	return;
}

$pool->does("BEGIN; SELECT fence.check('stock', 1), fence.check('item:1', 1); $write; UPDATE item SET qty = 1; COMMIT");
next_client('commit');

$pool->does("BEGIN; SELECT fence.check('stock', 1), fence.check('item:1', 1); $write; ROLLBACK");
next_client('rollback');

# Autocommit: a statement of its own presents for itself alone.
$pool->does("SELECT fence.check('stock', 1), fence.check('item:1', 1)");
next_client('autocommit');
is(sqlstate($pool, "UPDATE stock SET qty = 7 WHERE fence.check('stock', 1)"), '', 'check within the statement');
next_client('check within the statement');
is(sqlstate($pool, 'UPDATE item SET qty = 7, tok = 1'), '', 'token column');
next_client('token column');

# Errors: in a statement, at commit, in the middle of a transaction
$pool->ask("BEGIN; SELECT fence.check('stock', 1), fence.check('item:1', 1); SELECT 1/0; COMMIT");
is($pool->sqlstate, '22012', 'an error after the check');
next_client('error');
$pool->ask("SELECT fence.check('stock', 1), fence.check('item:1', 1), 1/0");
is($pool->sqlstate, '22012', 'an error in the same statement');
next_client('error in autocommit');
refuses($pool, "SELECT fence.check('stock', 2)", 'PF004', 'a refused token');
next_client('refused token');

# C22: savepoints, and what poolers do between clients
$pool->does("BEGIN; SAVEPOINT s; SELECT fence.check('stock', 1); ROLLBACK TO s");
refuses($pool, $write, 'PF002', 'ROLLBACK TO takes the token back');
$pool->does('ROLLBACK');
next_client('savepoint');
$pool->does("BEGIN; SAVEPOINT s; SELECT fence.check('stock', 1); RELEASE s; $write; COMMIT");
next_client('released savepoint');
foreach my $reset ('DISCARD ALL', 'RESET ALL', 'DISCARD PLANS', 'DEALLOCATE ALL')
{
	$pool->does("SELECT fence.check('stock', 1)");
	$pool->does($reset);
	next_client($reset);
}

# The plan and the cached policy of a prepared statement know nothing of tokens, either.
$pool->does("PREPARE w AS UPDATE stock SET qty = qty + 1");
$pool->does("BEGIN; SELECT fence.check('stock', 1); EXECUTE w; COMMIT");
refuses($pool, 'EXECUTE w', 'PF002', 'a prepared statement inherits nothing');
$pool->does("PREPARE c AS SELECT fence.check('stock', 1)");
$pool->does('EXECUTE c') foreach 1 .. 7;
next_client('prepared check');

# No setting is read for a token (C21): nothing can be left in one.
$pool->ask(q{SELECT set_config('pg_fence.token', '1', false)});
is($pool->sqlstate, '42602', 'there is no setting for a token');
next_client('a setting');

# Every call, committed and rolled back
foreach my $call (
	"acquire('r', 'x', '1 ms')", "acquire('stock', 'x')", "acquire('stock', 'x', wait => '20 ms')",
	"acquire('s', 'x', request_id => 'q')", "acquire('s', 'x', request_id => 'q')",
	"extend('s', 1)", "extend('s', 2)", "extend('nothing', 1)",
	"release('s', 1)", "release('s', 1)", "release('nothing', 1)",
	"check('external', 10)", "check('external', 11)", "check('external', 11)",
	"check('stock', 1, 'a', 'postgres')", "mark('stock')", "mark('nothing')",
	"raise_mark('external', 20)", "raise_mark('external', 20)")
{
	$pool->does("SELECT fence.$call");
	gives($watch, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, "$call leaves no lock");
	$pool->does("BEGIN; SELECT fence.$call; ROLLBACK");
	gives($watch, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, '... nor rolled back');
}
foreach my $call ("acquire('', 'x')", "check('external', 1)", "check('stock', 1, 'other')", "raise_mark('external', 1)")
{
	isnt(sqlstate($pool, "SELECT fence.$call"), '', "$call is refused");
	gives($watch, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, '... and leaves no lock');
}
next_client('all of them');

# While it lasts, a presented token shows in pg_locks, as a lock of the transaction.
$pool->does("BEGIN; SELECT fence.check('stock', 1)");
gives($watch, q{SELECT mode, granted FROM pg_locks WHERE locktype = 'advisory'}, 'AccessShareLock|t',
	'a presented token shows in pg_locks');
$pool->does('SELECT pg_advisory_unlock_all()');
gives($watch, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 1, '... and is not let go by unlock_all');
$pool->does('COMMIT');
next_client('commit');

# The client is killed: in the middle of a transaction, and while it waits.
foreach my $work ("BEGIN; SELECT fence.check('stock', 1); $write",
	"BEGIN; SELECT token FROM fence.acquire('killed', 'k', '1 hour')")
{
	my $client = session($node);
	my $backend = $client->backend;
	$client->does($work);
	$client->kill('KILL');
	$client->quit;
	wait_for($watch, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $backend");
	next_client('client was killed');
}
gives($watch, q{SELECT count(*) FROM fence.leases WHERE resource = 'killed'}, 0, 'and it has acquired nothing');

my $before = $watch->does('SELECT qty FROM stock');
is(sqlstate($pool, "BEGIN; SELECT fence.check('stock', 1); $write; COMMIT"), '', 'after all that the holder works on');
gives($watch, 'SELECT qty FROM stock', $before + 1, '... once');
$_->quit foreach $pool, $watch;

finish($node);
