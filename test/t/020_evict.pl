# fence.evict(): a frozen holder keeps its row locks, but the new holder waits no longer than
# until this is called.  Nobody else is touched.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = fence_node('evict');
my $watch = session($node);
my $disconnected = qr/^(57P01|08006)$/;

sql($node, q{
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	INSERT INTO stock SELECT n, 0 FROM generate_series(1, 20) n;
	SELECT fence.protect('stock', 'stock');
	CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO item VALUES (1, 0, 1), (2, 0, 1);
	SELECT fence.protect('item', 'item:{id}', 'tok');
	CREATE ROLE app LOGIN;
	SELECT fence.grant_writer('app');
	CREATE ROLE operator;
	GRANT USAGE ON SCHEMA fence TO operator;
	GRANT EXECUTE ON FUNCTION fence.evict(text) TO operator});

# The lease of $resource ends, its holder does not know.
sub expire
{
	my ($resource) = @_;

	$watch->does("UPDATE fence.resource SET expires_at = clock_timestamp() WHERE name = '$resource'");
	return;
}

sub gone
{
	my ($backend, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	wait_for($watch, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $backend");
	return pass($test_name);
}

# What a client may be doing while it is frozen: nothing, in a transaction; or taking in a
# result, so that the server process is stuck sending it.
foreach my $frozen ('idle in transaction', 'receiving')
{
	my $resource = 'stock';
	my $a = session($node);
	my $backend = $a->backend;
	my $old = acquire($node, $resource, 'a');

	$a->does("BEGIN; SELECT fence.check('$resource', $old); UPDATE stock SET qty = 6 WHERE id = 1");
	if ($frozen eq 'receiving')
	{
		$watch->does('SELECT pg_advisory_lock(7)');
		$a->send(q{SELECT repeat('x', 1000), pg_advisory_xact_lock_shared(7) FROM generate_series(1, 20000)});
		waits_for_lock($watch, $a);
	}
	$a->kill('STOP');
	$watch->does('SELECT pg_advisory_unlock(7)') if $frozen eq 'receiving';
	my $event = $frozen eq 'receiving' ? 'ClientWrite' : 'ClientRead';
	wait_for($watch, "SELECT coalesce(wait_event = '$event', false) FROM pg_stat_activity WHERE pid = $backend");

	# Sessions that have nothing to do with it
	expire($resource);
	my $new = acquire($node, $resource, 'b', '1 hour');
	my %bystanders = map { $_ => session($node) } 'nothing', 'the present token', 'another resource', 'and rolled back';
	acquire($node, 'other', 'o', '1 hour') if $frozen eq 'idle in transaction';
	my $other = sql($node, q{SELECT fence.mark('other')});
	$bystanders{'nothing'}->does('BEGIN; SELECT count(*) FROM stock');
	$bystanders{'the present token'}->does("BEGIN; SELECT fence.check('$resource', $new); UPDATE stock SET qty = 1 WHERE id = 2");
	$bystanders{'another resource'}->does("BEGIN; SELECT fence.check('other', $other)");
	$bystanders{'and rolled back'}->does("BEGIN; SAVEPOINT s; SELECT fence.check('$resource', $new); ROLLBACK TO s");

	my $b = session($node);
	$b->does("BEGIN; SELECT fence.check('$resource', $new)");
	$b->send('UPDATE stock SET qty = 4 WHERE id = 1; COMMIT');
	waits_for_lock($watch, $b);
	ok(!$b->finished(0.2), "frozen $frozen: the new holder waits for the row");
	gives($watch, qq{SELECT count(*) FROM pg_locks
		WHERE locktype = 'advisory' AND objsubid = 16384 + $old % 16384 AND pid = $backend}, 1, '... pg_locks shows whose it is');

	my $start = time;
	is($watch->does("SELECT fence.evict('$resource')"), 1, '... evict() finds one older holder');
	my $call = $watch->seconds;
	is($b->wait->sqlstate, '', '... the new holder goes on');
	under(time - $start, $FenceTest::at_once, '... at once');
	note sprintf 'evict() took %.4f s, the blocked UPDATE was committed %.4f s after the call', $call, time - $start;
	gives($watch, 'SELECT qty FROM stock WHERE id = 1', 4, '... and its row stands');
	gone($backend, '... the session of the old one has ended');

	foreach my $bystander (sort keys %bystanders)
	{
		is(sqlstate($bystanders{$bystander}, 'COMMIT'), '', "... one that presented $bystander is untouched");
		$bystanders{$bystander}->quit;
	}
	is($watch->does("SELECT fence.evict('$resource')"), 0, '... once is enough');

	$a->kill('CONT');
	if ($frozen eq 'receiving')
	{
		# it has half a result to take in first, and nobody reads what psql makes of it
		$a->kill('KILL');
	}
	else
	{
		like(sqlstate($a, 'COMMIT'), $disconnected, '... and the old holder learns that it has lost its connection');
	}
	gives($watch, 'SELECT qty FROM stock WHERE id = 1', 4, '... nothing of it is left');
	$_->quit foreach $a, $b;
	expire($resource);
}

# Several old holders, of different tokens, at once; one of them has moved up to the present
# token in the same transaction, and is no old holder any more.
my @old;
foreach my $n (1 .. 4)
{
	my $session = session($node);
	my $token = acquire($node, 'many', "old $n");

	$session->backend;
	$session->does("BEGIN; SELECT fence.check('many', $token)");
	push @old, $session;
	expire('many') if $n < 4;
}
my $moved = session($node);
my $token = sql($node, q{SELECT fence.mark('many')});
$moved->does(qq{BEGIN; SELECT fence.check('many', $token)});
expire('many');
$token = $moved->does(q{SELECT token FROM fence.acquire('many', 'moved', '1 hour')});
$moved->does('SAVEPOINT s');
is($watch->does(q{SELECT fence.evict('many')}), 4, 'four older holders, who has moved up is none');
gone($_->backend, '... gone') foreach @old;
is($moved->does(q{SELECT fence.evict('many')}), 0, '... and nobody evicts itself');
$moved->does('COMMIT');
wait_for($watch, q{SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'});
pass('no lock is left of them');
like(sqlstate($_, 'COMMIT'), $disconnected, '... an old holder is disconnected') foreach @old;
$_->quit foreach @old, $moved;

# Tokens from elsewhere, in a column: that of the newer holder is not committed yet.
my $frozen = session($node);
$frozen->does('UPDATE item SET qty = 1, tok = 33 WHERE id = 1');
foreach my $how ('with fence.check()', 'in the statement')
{
	$frozen = session($node) if $how ne 'with fence.check()';
	my ($old, $new) = $how eq 'with fence.check()' ? (33, 34) : (34, 35);
	my $newer = session($node);

	$frozen->does("BEGIN; UPDATE item SET qty = 2, tok = $old WHERE id = 1");
	$newer->does('BEGIN');
	$newer->does("SELECT fence.check('item:1', $new)") if $how eq 'with fence.check()';
	$newer->send("UPDATE item SET qty = 3, tok = $new WHERE id = 1");
	waits_for_lock($watch, $newer);

	# It waits for the row, so it has not been presented: nobody knows of it.
	gives($watch, q{SELECT fence.evict('item:1')}, 0, 'a newer token that is not presented yet')
	  if $how eq 'in the statement';
	$watch->does("SELECT fence.check('item:1', $new)") if $how eq 'in the statement';
	gives($watch, q{SELECT fence.evict('item:1')}, 1, "a newer token, presented $how");
	is($newer->wait->sqlstate, '', '... stays and goes on');
	is(sqlstate($newer, 'COMMIT'), '', '... and commits');
	like(sqlstate($frozen, 'COMMIT'), $disconnected, '... the older one has gone');
	$_->quit foreach $newer, $frozen;
}

# Prepared transactions are named, not counted: nobody can be terminated.
$token = acquire($node, 'two phases', 'a');
sql($node, qq{BEGIN; SELECT fence.check('two phases', $token); PREPARE TRANSACTION 'old work'});
sql($node, q{SELECT fence.raise_mark('other', 1000)});
my $waiter = session($node);
expire('two phases');
is($watch->does(q{SELECT fence.evict('two phases')}), 0, 'a prepared transaction of the present token');
unlike($watch->errors, qr/WARNING/, '... is none of an older holder');
$waiter->send(q{SELECT fence.raise_mark('two phases', 50)});
waits_for_lock($watch, $waiter);
$watch->does("COMMIT PREPARED 'old work'");
is($waiter->wait->output, 50, '... it is what a newer one waits for');
$waiter->quit;

# An older one exists only where the mark was raised in spite of it, so by hand.
$token = acquire($node, 'by hand', 'a');
sql($node, qq{BEGIN; SELECT fence.check('by hand', $token); PREPARE TRANSACTION 'old work'});
sql($node, q{UPDATE fence.resource SET mark = 60, token = 60 WHERE name = 'by hand'});
my $idle = session($node);
is($watch->ask(q{SELECT fence.evict('by hand')}), 0, 'a prepared transaction of an older holder is not counted');
like($watch->errors, qr/WARNING: +55006/, '... there is a warning');
$watch->does("\\set VERBOSITY default");
$watch->does(q{SELECT fence.evict('by hand')});
like($watch->errors, qr/HINT: .*ROLLBACK PREPARED/, '... that says what to do');
$watch->does("\\set VERBOSITY sqlstate");
$watch->does("ROLLBACK PREPARED 'old work'");
$idle->quit;

# Privileges, and arguments
refuses($node, q{SET ROLE app; SELECT fence.evict('stock')}, '42501', 'a writer may not evict');
my $offset = -s $node->logfile;
$token = acquire($node, 'granted', 'a');
my $victim = session($node, user => 'app');
my $superuser = session($node);
my $masked = session($node);
$masked->does('SET ROLE app');
$_->does("BEGIN; SELECT fence.check('granted', $token)") foreach $victim, $superuser, $masked;
sql($node, q{SELECT fence.break_lease('granted')});
my $operator = session($node);
$operator->does('SET ROLE operator');
is($operator->ask(q{SELECT fence.evict('granted')}), 1, 'whom it was granted to may, whoever owns the session');
like(sqlstate($victim, 'COMMIT'), $disconnected, '... and the session has ended');
like(server_log($node, $offset), qr/older holder of resource "granted", terminated by "operator"/, '... the log says who did it');
is(() = $operator->errors =~ /WARNING: +42501/g, 2, '... sessions of superusers remain, whatever role they have set, with a warning each');
is($operator->ask(q{SELECT fence.evict('granted')}), 0, '... and are not counted');
is($_->does('SELECT 1'), 1, '... as they really do') foreach $superuser, $masked;
is($watch->does(q{SELECT fence.evict('granted')}), 2, '... until a superuser comes');
unlike($watch->errors, qr/WARNING/, '... who is not warned');
like(sqlstate($_, 'COMMIT'), $disconnected, '... then they have ended') foreach $superuser, $masked;
$_->quit foreach $victim, $superuser, $masked, $operator;
gives($watch, q{SELECT fence.evict('never seen')}, 0, 'a resource that nobody knows');
refuses($node, q{SELECT fence.evict('')}, '22023', 'no resource');
refuses($node, q{BEGIN READ ONLY; SELECT fence.evict('stock')}, '25006', 'in a read-only transaction');
gives($node, q{BEGIN; SELECT fence.evict('stock'); ROLLBACK}, 0, 'in a transaction');
sql($node, 'CREATE DATABASE elsewhere');
my $elsewhere = session($node, dbname => 'elsewhere');
$elsewhere->does('CREATE EXTENSION pg_fence');
$elsewhere->does(q{SELECT fence.check('stock', 1); BEGIN; SELECT fence.check('stock', 1)});
$watch->does(q{SELECT fence.evict('stock')});
is(sqlstate($elsewhere, 'COMMIT'), '', 'the resource of that name in another database is another one');
$_->quit foreach $elsewhere, $watch;

finish($node);
