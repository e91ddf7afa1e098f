# The server crashes between the steps of a holder's work: what was committed is still
# there afterwards, what was not is gone, and no number at or below a committed one is
# issued again.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('crash');

sql($node, q{
	CREATE TABLE stock (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO stock VALUES (1, 0, NULL), (2, 0, NULL);
	SELECT fence.protect('stock', 'stock');
	CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO item VALUES (1, 0, 1);
	SELECT fence.protect('item', 'item:{id}', 'tok')});

sub crash
{
	my @sessions = @_;

	$node->stop('immediate');
	$_->quit foreach @sessions;
	$node->start;
	return;
}

# B02: acquired, but not committed.  What is flushed by somebody else's commit is not
# committed by that.
acquire($node, 'stock', 'z');
sql($node, "SELECT fence.release('stock', 1)");
my $holder = session($node);
$holder->does('BEGIN');
is($holder->does("SELECT token FROM fence.acquire('stock', 'a', '1 hour')"), 2, 'next token');
sql($node, "CREATE TABLE flush AS SELECT 1");
crash($holder);

gives($node, "SELECT fence.mark('stock')", 1, 'an acquisition without commit leaves no mark');
gives($node, 'SELECT holder, state FROM fence.leases', 'z|free', '... and no lease');
refuses($node, "BEGIN; SELECT fence.check('stock', 2); UPDATE stock SET qty = 1",
	'PF004', '... and its number is no token: it was never issued');

# Committed
is(acquire($node, 'stock', 'b', '1 hour'), 2, 'the number of a lost acquisition is issued again');
crash();
gives($node, q{SELECT token, mark, holder, state FROM fence.leases}, '2|2|b|held', 'a committed lease survives');
gives($node, "SELECT acquired, held_by, reason FROM fence.acquire('stock', 'c')", 'f|b|held',
	'... and keeps others out');
gives($node, "SELECT extended FROM fence.extend('stock', 2, '1 hour')", 't', '... and can be extended');

# Presented, but not committed
$holder = session($node);
$holder->does("BEGIN; SELECT fence.check('stock', 2); UPDATE stock SET qty = 5 WHERE id = 1");
$holder->does("UPDATE item SET qty = 5, tok = 10 WHERE id = 1");
crash($holder);
gives($node, 'SELECT qty FROM stock WHERE id = 1', 0, 'a write without commit is gone');
gives($node, "SELECT fence.mark('item:1') IS NULL", 't', '... with the mark that it would have raised');
gives($node, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", 0, '... and the locks');

# Presented and committed; the new holder has not written anything yet
sql($node, q{
	BEGIN;
	SELECT fence.check('stock', 2);
	UPDATE stock SET qty = 6 WHERE id = 1;
	UPDATE item SET qty = 6, tok = 20 WHERE id = 1;
	COMMIT;
	SELECT fence.release('stock', 2)});
is(acquire($node, 'stock', 'c', '1 hour'), 3, 'next holder');
crash();
gives($node, 'SELECT s.qty, i.qty, i.tok FROM stock s, item i WHERE s.id = 1', '6|6|20', 'committed writes survive');
gives($node, "SELECT fence.mark('stock'), fence.mark('item:1')", '3|20', '... with their marks');
refuses($node, "BEGIN; SELECT fence.check('stock', 2)", 'PF001', 'the old holder is still fenced off');
refuses($node, 'UPDATE item SET qty = 7, tok = 19 WHERE id = 1', 'PF001', '... by row marks as well');
is(sqlstate($node, q{BEGIN; SELECT fence.check('stock', 3); UPDATE stock SET qty = 8 WHERE id = 1; COMMIT}),
	'', 'the present holder is accepted');

# Released by a committed transaction; acquired again by one that is lost
is(sql($node, "SELECT fence.release('stock', 3)"), 't', 'released');
$holder = session($node);
$holder->does("BEGIN; SELECT token FROM fence.acquire('stock', 'd', '1 hour')");
crash($holder);
gives($node, "SELECT state, token FROM fence.leases WHERE resource = 'stock'", 'free|3', 'a release survives');
is(acquire($node, 'stock', 'e', '1 hour'), 4, 'nothing at or below a committed token is issued');

# Prepared: the old holder's transaction is as good as committed, and nobody may be
# given the resource before it is
sql($node, q{
	BEGIN;
	SELECT fence.check('stock', 4);
	UPDATE stock SET qty = 9 WHERE id = 2;
	PREPARE TRANSACTION 'work';
	SELECT fence.release('stock', 4)});
# ... and an acquisition that is prepared
sql($node, q{
	BEGIN;
	SELECT token FROM fence.acquire('other', 'f', '1 hour');
	PREPARE TRANSACTION 'acquisition'});
crash();
gives($node, 'SELECT count(*) FROM pg_prepared_xacts', 2, 'prepared transactions survive');
gives($node, "SELECT acquired, reason FROM fence.acquire('stock', 'g')", 'f|busy', 'a prepared holder excludes acquisitions');
gives($node, "SELECT acquired, reason FROM fence.acquire('other', 'g')", 'f|busy', 'so does a prepared acquisition');
sql($node, "COMMIT PREPARED 'work'");
sql($node, "COMMIT PREPARED 'acquisition'");
crash();
gives($node, 'SELECT qty FROM stock WHERE id = 2', 9, 'its write is there');
gives($node, "SELECT holder, token, state FROM fence.leases WHERE resource = 'other'", 'f|1|held', 'and the lease');
is(acquire($node, 'stock', 'g', '1 hour'), 5, 'the resource is free now');
refuses($node, "SELECT fence.check('stock', 4)", 'PF001', '... and the prepared holder past');

finish($node);
