# Properties that need load or a clock: an older holder's commit never waits (P4); a holder
# whom nobody has decided to replace is never refused, whatever rivals try (P5); a commit
# that stands on a lease and an acquisition exclude each other whatever the clock says (P6).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('progress');
my $at_once = $FenceTest::at_once;

sql($node, q{
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	INSERT INTO stock SELECT i, 0 FROM generate_series(1, 10) i;
	SELECT fence.protect('stock', 'stock');
	CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO item SELECT i, 0, NULL FROM generate_series(1, 10) i;
	SELECT fence.protect('item', 'item', 'tok')});

# P4.  The newer holder's transaction stays open, with an acquisition, a presentation or a
# write that waits for a row of the older one.  The older one's commit is refused at once
# where the newer token is decided, and never waits.
my ($older, $newer, $watch) = map { session($node) } 1 .. 3;

acquire($node, 'stock', 'older', '1 ms');
wait_for($watch, q{SELECT state = 'expired' FROM fence.leases WHERE resource = 'stock'});
$older->does(q{BEGIN; SELECT fence.check('stock', 1); UPDATE stock SET qty = 1 WHERE id = 1});
$newer->does(q{BEGIN; SELECT token FROM fence.acquire('stock', 'newer', '1 hour')});
is(sqlstate($older, 'COMMIT'), 'PF001', 'P4: commit while a newer acquisition is open');
under($older->seconds, $at_once, '... does not wait for it');
is(sqlstate($newer, 'ROLLBACK'), '', '... though it is undone later');
gives($node, 'SELECT qty FROM stock WHERE id = 1', 0, 'nothing was written');

$older->does(q{BEGIN; SELECT fence.check('stock', 1); UPDATE stock SET qty = 1 WHERE id = 1});
is(sqlstate($older, 'COMMIT'), '', 'after the rollback the older one is the only one again');

# The newer one blocks on a row of the older one, which has not reached its commit yet.
$older->does(q{BEGIN; SELECT fence.check('stock', 1); UPDATE stock SET qty = 2 WHERE id = 1});
is(acquire($node, 'stock', 'newer', '1 hour'), 2, 'a newer acquisition commits');
$newer->does(q{BEGIN; SELECT fence.check('stock', 2)});
$newer->send(q{UPDATE stock SET qty = 3 WHERE id = 1});
waits_for_lock($watch, $newer);
is(sqlstate($older, 'COMMIT'), 'PF001', 'P4: commit while the newer holder waits for our row');
under($older->seconds, $at_once, '... is refused at once');
is($newer->wait->sqlstate, '', '... and lets it go on');
is(sqlstate($newer, 'COMMIT'), '', '... to its end');
gives($node, 'SELECT qty FROM stock WHERE id = 1', 3, 'the newer write is the one that counts');

# The same with tokens from elsewhere: the newer transaction has presented, not committed.
sql($node, q{UPDATE item SET tok = 10});
$older->does(q{BEGIN; SELECT fence.check('item', 10); UPDATE item SET qty = 1 WHERE id = 1});
$newer->send(q{BEGIN; SELECT fence.check('item', 11); UPDATE item SET qty = 2 WHERE id = 1});
waits_for_lock($watch, $newer);
is(sqlstate($older, 'COMMIT'), 'PF001', 'P4: commit while a newer token is being presented');
under($older->seconds, $at_once, '... is refused at once');
$newer->wait;
is(sqlstate($newer, 'COMMIT'), '', '... and lets it go on');

# PREPARE likewise
$older->does(q{BEGIN; SELECT fence.check('item', 11); UPDATE item SET qty = 1 WHERE id = 2});
$newer->does(q{BEGIN; SELECT fence.check('item', 12); UPDATE item SET qty = 2 WHERE id = 1});
is(sqlstate($older, q{PREPARE TRANSACTION 'older'}), 'PF001', 'P4: PREPARE while a newer token is being presented');
under($older->seconds, $at_once, '... is refused at once');
is(sqlstate($newer, 'COMMIT'), '', 'and the newer one commits');
gives($node, 'SELECT qty FROM item WHERE id IN (1, 2) ORDER BY id', "2\n0", 'what is written is from the newest');

# An older transaction that got as far as its commit is over before a newer one is let in:
# here the newer one waits, not the older.
sql($node, q{SELECT fence.release('stock', 2)});
is(acquire($node, 'stock', 'next', '1 hour'), 3, 'next holder');
foreach my $round (1 .. 20)
{
	$newer->send(q{SELECT fence.acquire('stock', 'rival', wait => '30 ms')});
	$older->ask(q{BEGIN; SELECT fence.check('stock', 3); UPDATE stock SET qty = 4 WHERE id = 1; COMMIT});
	last if $older->sqlstate ne '' || $older->seconds >= $at_once;
	$newer->wait;
}
is($older->sqlstate, '', 'commits with a rival waiting');
under($older->seconds, $at_once, '... are not held up');
$newer->wait;

# P5.  Rivals ask, with and without waiting; a thread of the holder extends; a second
# session works for it as well; other resources are taken and given.  Not one of the holder's
# transactions is refused.
my $count = $FenceTest::long ? 200000 : 10000;
my $offset = -s $node->logfile;
my $token = acquire($node, 'load', 'holder', '1 minute');
sql($node, q{
	CREATE TABLE work (id int PRIMARY KEY, qty int);
	INSERT INTO work SELECT i, 0 FROM generate_series(1, 100) i;
	SELECT fence.protect('work', 'load')});
my $rivals = start_pgbench($node, [ '-c', 4, '-j', 1, '-T', $FenceTest::long ? 600 : 120 ],
	q{SELECT 1 / (1 - acquired::int) FROM fence.acquire('load', 'rival', '1 s');},
	q{SELECT 1 / (1 - acquired::int) FROM fence.acquire('load', 'rival', '1 s', '20 ms');},
	q{BEGIN; SELECT 1 / (1 - acquired::int) FROM fence.acquire('load', 'rival', '1 s'); ROLLBACK;},
	q{SELECT fence.release('load', acquired::int + 100) FROM fence.acquire('load ' || :client_id, 'x', '1 ms');});
my $heart = start_pgbench($node, [ '-c', 1, '-R', 50, '-T', $FenceTest::long ? 600 : 120 ],
	qq{SELECT 1 / extended::int FROM fence.extend('load', $token, '1 minute');});
my $second = start_pgbench($node, [ '-c', 1, '-t', $count ], <<"PRESENT", <<"LEASE");
\\set i random(1, 100)
BEGIN;
SELECT fence.check('load', $token);
UPDATE work SET qty = qty + 1 WHERE id = :i;
COMMIT;
PRESENT
\\set i random(1, 100)
UPDATE work SET qty = qty + 1 WHERE id = :i AND fence.check('load', $token, 'holder', 'postgres');
LEASE
my ($done, $complaint) = pgbench($node, [ '-c', 1, '-t', $count ], <<"PRESENT", <<"SAVEPOINT");
\\set i random(1, 100)
BEGIN;
SELECT fence.check('load', $token, lease => 'postgres');
UPDATE work SET qty = qty + 1 WHERE id = :i;
COMMIT;
PRESENT
\\set i random(1, 100)
BEGIN ISOLATION LEVEL REPEATABLE READ;
SAVEPOINT s;
SELECT fence.check('load', $token);
ROLLBACK TO s;
SELECT fence.check('load', $token);
SELECT qty FROM work WHERE id = :i;
COMMIT;
SAVEPOINT
is($complaint, '', "P5: $done transactions of the holder under load, none refused");
($done, $complaint) = finish_pgbench($second);
is($complaint, '', "... and $done of its second session");
foreach my $run ($heart, $rivals)
{
	$run->{run}->signal('INT');
	($done, $complaint) = finish_pgbench($run);
	unlike($complaint, qr/aborted|ERROR/, '... while ' . ($run == $heart ? 'a third one extended' : 'rivals asked in vain'));
}
unlike(server_log($node, $offset), qr/PF0|stale|ERROR:  (?!canceling|division)/, 'no error in the log');
gives($node, q{SELECT token, holder, state, renewals > 5 FROM fence.leases WHERE resource = 'load'}, "$token|holder|held|t",
	'the lease is still the same');

# Nor do late commits of an old holder keep a newer one out for ever: while its sessions go
# on preparing and committing, in turns that leave hardly a gap, an acquisition that waits a
# little gets through.
is(acquire($node, 'late', 'old', '100 ms'), 1, 'a holder that goes on when its lease is over');
sql($node, q{
	CREATE TABLE late (id int PRIMARY KEY, qty int);
	INSERT INTO late SELECT i, 0 FROM generate_series(0, 9) i;
	SELECT fence.protect('late', 'late')});
my $old = start_pgbench($node, [ '-c', 10, '-j', 2, '-T', 20 ], <<'END');
BEGIN;
UPDATE late SET qty = qty + 1 WHERE id = :client_id AND fence.check('late', 1);
PREPARE TRANSACTION 'late :client_id';
\sleep 20 ms
COMMIT PREPARED 'late :client_id';
END
wait_for($node, q{
	SELECT (SELECT state = 'expired' FROM fence.leases WHERE resource = 'late') AND
		(SELECT bool_and(qty > 5) FROM late)});
my $rival = session($node);
is($rival->ask(q{SELECT acquired, token FROM fence.acquire('late', 'new', '1 hour', '3 s')}), 't|2', 'a newer one is let in');
$rival->quit;
($done, $complaint) = finish_pgbench($old);
like($complaint, qr/is stale/, '... and the old one out');
gives($node, 'SELECT count(*) FROM pg_prepared_xacts', 0, '... with nothing left open');

# P6 and A07.  Lease times say nothing about the order of commits: whatever the clock says,
# either the holder's commit is first or the acquisition.  The clock jumps by what is stored.
my $jump = q{UPDATE fence.resource SET expires_at = clock_timestamp() %s interval '1 hour' WHERE name = 'clock'};
my $forward = sprintf $jump, '-';
my $back = sprintf $jump, '+';
is(acquire($node, 'clock', 'a', '1 minute'), 1, 'P6: a holder');
$older->does(q{BEGIN; SELECT fence.check('clock', 1, lease => 'postgres'); CREATE TABLE t1 ()});
sql($node, $forward);
is(sqlstate($older, 'COMMIT'), 'PF005', 'the clock jumps forward: the lease is over at commit');

sql($node, $back);
$older->does(q{BEGIN; SELECT fence.check('clock', 1, lease => 'postgres'); CREATE TABLE t1 ()});
sql($node, $forward);
sql($node, $back);
is(sqlstate($older, 'COMMIT'), '', '... and back again: it is not');

$older->does(q{BEGIN; SELECT fence.check('clock', 1, lease => 'postgres'); CREATE TABLE t2 ()});
sql($node, $forward);
is(acquire($node, 'clock', 'b', '1 minute'), 2, 'A07: forward, and somebody else acquires');
sql($node, $back);
is(sqlstate($older, 'COMMIT'), 'PF001', '... the old holder is refused, though the clock goes back');
refuses($node, q{SELECT fence.check('clock', 1, 'a', 'postgres')}, 'PF001', '... for good');
gives($node, q{SELECT extended, reason FROM fence.extend('clock', 1)}, 'f|superseded', '... it cannot extend');
gives($node, q{SELECT fence.release('clock', 1)}, 'f', '... nor release');

# The holder commits (as a prepared transaction, to make it last) while the clock says that
# its lease is over: the acquisition is not let in before it is through.
$older->does(q{BEGIN; SELECT fence.check('clock', 2, 'b', 'postgres'); CREATE TABLE t2 (); PREPARE TRANSACTION 'commit'});
sql($node, $forward);
gives($node, q{SELECT acquired, reason FROM fence.acquire('clock', 'c')}, 'f|busy', 'P6: an acquisition waits for a commit under way');
sql($node, q{COMMIT PREPARED 'commit'});
is(acquire($node, 'clock', 'c'), 3, '... and is let in when it is through');

# And the acquisition under way keeps the holder's commit out, though its lease is alive again.
$older->does(q{BEGIN; SELECT fence.check('clock', 3, 'c', 'postgres'); CREATE TABLE t3 ()});
sql($node, $forward);
$newer->does(q{BEGIN; SELECT token FROM fence.acquire('clock', 'd', '1 minute')});
is(sqlstate($older, 'COMMIT'), 'PF001', 'P6: a commit is refused while an acquisition is under way');
under($older->seconds, $at_once, '... at once');
$newer->does('COMMIT');
gives($node, q{SELECT holder, token FROM fence.leases WHERE resource = 'clock'}, 'd|4', '... which then is the newest');
$_->quit foreach $older, $newer, $watch;

finish($node);
