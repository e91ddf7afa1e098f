# mode => 'observe' across a takeover, at each isolation level: one warning at COMMIT, and one for
# each statement that comes too late.  (What is written then: specs/x_observe.)

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use Test::More;

my $node = fence_node('observe_takeover');
my $old = session($node);
my $new = session($node);
my $token = 0;

sql($node, q{
	CREATE TABLE seen (id int PRIMARY KEY, qty int, tok bigint);
	INSERT INTO seen VALUES (1, 0, 1), (2, 0, 1);
	CREATE TABLE enforced (tok bigint);
	SELECT fence.protect('seen', 'r', 'tok', mode => 'observe');
	SELECT fence.protect('enforced', 'r', 'tok');
});

# The SQLSTATEs that a statement is told, warnings as "W ...".
sub told
{
	my ($sql) = @_;

	$old->ask($sql);
	return join ' ', map { /(WARNING|ERROR): +(\w{5})/ ? ($1 eq 'ERROR' ? $2 : "W $2") : () } split /\n/, $old->errors;
}

# The next holder; the lease of the one before is over.
sub take_over
{
	my ($session) = @_;

	sql($node, q{UPDATE fence.resource SET released_at = now() WHERE name = 'r'});
	return $token = acquire($session // $node, 'r', 'new');
}

foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	my $mine = take_over();
	my $write = "UPDATE seen SET qty = qty + 1, tok = $mine";

	is(told("BEGIN ISOLATION LEVEL $level; $write; $write"), '', "$level: nobody has taken over");
	take_over();
	is(told('COMMIT'), 'W PF001', "... a warning at COMMIT");
	is(sql($node, "SELECT count(*) FROM seen WHERE tok = $mine"), 2, '... and the rows are written');

	is(told("BEGIN ISOLATION LEVEL $level; $write"), 'W PF001', '... one for a statement that comes too late, whatever its rows');
	is(told('COMMIT'), '', '... which has presented nothing that could be judged at COMMIT');

	# while the takeover is not committed
	$mine = take_over();
	is(told("BEGIN ISOLATION LEVEL $level; UPDATE seen SET tok = $mine"), '', '... up to date again');
	sql($node, q{UPDATE fence.resource SET released_at = now() WHERE name = 'r'});
	$new->does("BEGIN; SELECT fence.acquire('r', 'new')");
	is(told('COMMIT'), 'W PF001', '... a warning while somebody takes over');
	$new->does('ROLLBACK');

	# both: somebody has, and somebody else does
	is(told("BEGIN ISOLATION LEVEL $level; UPDATE seen SET tok = $mine"), '', '... the takeover was rolled back');
	take_over();
	sql($node, q{UPDATE fence.resource SET released_at = now() WHERE name = 'r'});
	$new->does("BEGIN; SELECT fence.acquire('r', 'newer')");
	is(told('COMMIT'), 'W PF001', '... a single warning after one takeover and during another');
	$new->does('ROLLBACK');

	# prepared
	$mine = take_over();
	is(told("BEGIN ISOLATION LEVEL $level; UPDATE seen SET tok = $mine"), '', '... nobody has');
	take_over();
	is(told("PREPARE TRANSACTION 'observed'"), 'W PF001', '... a warning at PREPARE');
	is(told("COMMIT PREPARED 'observed'"), '', '... and none later');

	# demanded by somebody else
	$mine = $token;
	is(told("BEGIN ISOLATION LEVEL $level; UPDATE seen SET tok = $mine; INSERT INTO enforced VALUES ($mine)"), '', '... with a table that enforces');
	take_over();
	is(told('COMMIT'), 'PF001', '... it is an error');
}

$old->quit;
$new->quit;
finish($node);
