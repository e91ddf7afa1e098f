# Two-phase commit: a prepared transaction keeps its commit lock, through a restart, so that
# nobody is given the resource before it is decided (C19).

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('twophase');

sql($node, q{
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	INSERT INTO stock VALUES (1, 0), (2, 0);
	SELECT fence.protect('stock', 'stock');
	CREATE TABLE item (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO item VALUES (1, 0, 1);
	SELECT fence.protect('item', 'item:{id}', 'tok')});

sub busy
{
	my ($resource, $test_name) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	return gives($node, "SELECT acquired, token IS NULL, held_by IS NULL, reason FROM fence.acquire('$resource', 'other')",
		'f|t|t|busy', $test_name);
}

# Each end of a prepared transaction, without and with a restart in between
my $token = 0;
foreach my $restart ('', 'fast', 'immediate')
{
	foreach my $decision ('COMMIT', 'ROLLBACK')
	{
		my $case = $decision . ($restart ? " after a restart ($restart)" : '');
		my $before = sql($node, 'SELECT qty FROM stock WHERE id = 1');

		is(acquire($node, 'stock', 'holder', '1 hour'), ++$token, $case);
		sql($node, qq{
			BEGIN;
			SELECT fence.check('stock', $token);
			UPDATE stock SET qty = qty + 1 WHERE id = 1;
			PREPARE TRANSACTION 'work';
			SELECT fence.release('stock', $token)});
		if ($restart)
		{
			$node->stop($restart);
			$node->start;
		}
		busy('stock', '... the prepared transaction still excludes others');
		gives($node, q{SELECT DISTINCT mode FROM pg_locks WHERE locktype = 'advisory' AND objsubid > 2 ORDER BY 1},
			"AccessShareLock\nRowShareLock", '... with the locks of who has presented and commits');
		gives($node, q{SELECT state FROM fence.leases WHERE resource = 'stock'}, 'free', '... though the lease is free');

		# Waiting for it is bounded.
		gives($node, q{SELECT acquired, reason FROM fence.acquire('stock', 'other', wait => '50 ms')}, 'f|busy',
			'... a bounded wait ends');
		my $waiter = session($node);
		$waiter->send(q{SELECT acquired, token FROM fence.acquire('stock', 'next', '1 hour', '5 minutes')});
		ok(!$waiter->finished(0.1), '... a longer one goes on');
		sql($node, "$decision PREPARED 'work'");
		$token++;
		is($waiter->wait->output, "t|$token", '... until it is decided');
		$waiter->quit;
		gives($node, 'SELECT qty FROM stock WHERE id = 1', $before + ($decision eq 'COMMIT'), '... as it was decided');
		refuses($node, "SELECT fence.check('stock', $token - 1)", 'PF001', '... and the old holder is past');
		sql($node, "SELECT fence.release('stock', $token)");
	}
}

# PREPARE is judged like COMMIT.
acquire($node, 'stock', 'old', '1 hour');
my $old = session($node);
$token++;
$old->does(qq{BEGIN; SELECT fence.check('stock', $token); UPDATE stock SET qty = 100});
sql($node, "SELECT fence.release('stock', $token)");
acquire($node, 'stock', 'new', '1 hour');
refuses($old, q{PREPARE TRANSACTION 'late'}, 'PF001', 'PREPARE under a token that is past');
gives($node, 'SELECT count(*) FROM pg_prepared_xacts', 0, '... leaves nothing');
$token++;

# PREPARE that stands on a lease
$old->does(qq{BEGIN; SELECT fence.check('stock', $token, lease => 'postgres')});
sql($node, "SELECT fence.release('stock', $token)");
refuses($old, q{PREPARE TRANSACTION 'late'}, 'PF005', 'PREPARE under a lease that is over');
$old->quit;

# An acquisition that is prepared: busy until it is decided; undone, its number is issued again.
foreach my $decision ('ROLLBACK', 'COMMIT')
{
	sql($node, q{
		BEGIN;
		SELECT token FROM fence.acquire('fresh', 'holder', '1 hour');
		PREPARE TRANSACTION 'acquisition'});
	$node->restart if $decision eq 'COMMIT';
	busy('fresh', 'a prepared acquisition');
	gives($node, q{SELECT count(*) FROM fence.leases WHERE resource = 'fresh'}, 0, '... is not a lease yet');
	gives($node, q{SELECT fence.mark('fresh') IS NULL}, 't', '... nor a mark');
	sql($node, "$decision PREPARED 'acquisition'");
}
gives($node, q{SELECT token, holder, state FROM fence.leases WHERE resource = 'fresh'}, '1|holder|held',
	'... then it is one');

# C19: a row with a token that is prepared and rolled back leaves the old mark.
sql($node, q{UPDATE item SET qty = 1, tok = 40});
sql($node, q{BEGIN; UPDATE item SET qty = 2, tok = 100; PREPARE TRANSACTION 'p1'});
refuses($node, q{SET lock_timeout = '200ms'; UPDATE item SET qty = 3, tok = 101}, '55P03', 'a newer token waits for the row');
$node->restart;
refuses($node, q{SET lock_timeout = '200ms'; UPDATE item SET qty = 3, tok = 101}, '55P03', '... after a restart, too');
sql($node, q{ROLLBACK PREPARED 'p1'});
refuses($node, q{UPDATE item SET qty = 3, tok = 39}, 'PF001', 'after the rollback the old mark counts');
is(sqlstate($node, q{UPDATE item SET qty = 3, tok = 50}), '', '... and nothing else');
gives($node, q{SELECT tok, fence.mark('item:1') FROM item}, '50|50', '... in the row and in the resource');

gives($node, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'}, 0, 'no lock is left of all this');

finish($node);
