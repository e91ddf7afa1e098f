# fence.hand_over(): a new token for a new holder, and nobody comes in between.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('handover');
my $offset = -s $node->logfile;

sql($node, q{
	CREATE TABLE stock (id int PRIMARY KEY, qty int);
	INSERT INTO stock VALUES (1, 0);
	SELECT fence.protect('stock', 'relay')});

# Rivals ask all the time, with and without waiting, while the lease goes from one runner
# to the next.
my $seconds = $FenceTest::long ? 60 : 5;
my $token = acquire($node, 'relay', 'runner 1', '1 hour');
is($token, 1, 'the first runner');
sql($node, 'CREATE TABLE rival (acquired bool, token bigint, held_by text, reason text)');
my $rivals = start_pgbench($node, [ '-c', 6, '-j', 2, '-T', $seconds ],
	q{INSERT INTO rival SELECT acquired, token, held_by, reason FROM fence.acquire('relay', 'rival', '1 hour') WHERE true},
	q{INSERT INTO rival SELECT acquired, token, held_by, reason FROM fence.acquire('relay', 'rival', '1 hour', '20 ms')},
	q{INSERT INTO rival SELECT acquired, token, held_by, reason FROM fence.acquire_many('{relay}', 'rival', '1 hour')});
my ($old, $hand) = (session($node), session($node));
my ($refused, $written, $legs, $wrong) = (0, 0, 0, '');
my $end = time + $seconds - 1;
while (time < $end || $legs < 5)
{
	my $next = $token + 1;

	# A parallel transaction of the old holder is open meanwhile.
	$old->does("BEGIN; SELECT fence.check('relay', $token); UPDATE stock SET qty = qty + 1");
	my $answer = $hand->ask("SELECT acquired, token, held_by, reason FROM fence.hand_over('relay', $token, 'runner $next', '1 hour')");
	$wrong .= "leg $next: $answer\n" if $answer ne "t|$next|runner $next|";
	$refused++ if sqlstate($old, 'COMMIT') eq 'PF001';
	$written++ if sqlstate($hand, "BEGIN; SELECT fence.check('relay', $next, 'runner $next', 'postgres'); UPDATE stock SET qty = qty + 1; COMMIT") eq '';
	$token = $next;
	$legs++;
}
my ($done, $complaint) = finish_pgbench($rivals);
is($complaint, '', 'six rivals');
is($wrong, '', "$legs times handed over: the next token, for the next holder");
is($refused, $legs, '... the old holder\'s open transaction is refused at commit');
is($written, $legs, '... the new holder works at once');
gives($node, 'SELECT qty FROM stock', $legs, '... nothing else was written');
gives($node, 'SELECT count(*) FROM rival WHERE acquired', 0, '... no rival came in between');
cmp_ok($done, '>', 500, "... in $done attempts");
gives($node, q{SELECT count(*) FROM rival WHERE NOT acquired AND (token IS NOT NULL
		OR reason = 'held' AND held_by !~ '^runner \d+$' OR reason NOT IN ('held', 'busy'))}, 0, '... each was told who holds it');
gives($node, q{SELECT holder, token, state FROM fence.leases}, "runner $token|$token|held", '... it is the last runner');
unlike(server_log($node, $offset), qr/ERROR: (?!.*is stale)|FATAL|deadlock/, '... and nothing else in the log');

# Handed over, but not committed: the old holder is told so at once, others that it is held.
my $next = $token + 1;
$old->does("BEGIN; SELECT fence.check('relay', $token)");
$hand->does("BEGIN; SELECT acquired FROM fence.hand_over('relay', $token, 'runner $next', '1 hour')");
gives($node, q{SELECT acquired, held_by, reason FROM fence.acquire('relay', 'rival')}, "f|runner $token|held", 'not committed yet: a rival');
refuses($old, 'COMMIT', 'PF001', '... a commit of the old holder does not wait');
$hand->does('ROLLBACK');
is(sqlstate($old, "BEGIN; SELECT fence.check('relay', $token); UPDATE stock SET qty = 0; COMMIT"), '', '... rolled back: the old holder goes on');

# In one transaction with the work: it becomes visible together with the new holder.
$old->does("BEGIN; SELECT fence.check('relay', $token); UPDATE stock SET qty = 41");
gives($old, "SELECT token FROM fence.hand_over('relay', $token, 'runner $next', '1 hour')", $next, 'work and hand-over in one transaction');
is(sqlstate($old, 'COMMIT'), '', '... commit together');
gives($node, 'SELECT qty FROM stock', 41, '... with the work');
refuses($node, "SELECT fence.check('relay', $token)", 'PF001', '... whose token is past now');
$token = $next;

# Twice, by two sessions at once: one of them only
$old->does("BEGIN; SELECT token FROM fence.hand_over('relay', $token, 'x', '1 hour')");
$hand->send("SELECT acquired, token, reason FROM fence.hand_over('relay', $token, 'y', '1 hour')");
waits_for_lock($node, $hand);
$old->does('COMMIT');
is($hand->wait->output, 'f||superseded', 'two hand-overs of one token: one is too late');
$token++;
gives($node, q{SELECT holder, token FROM fence.leases}, "x|$token", '... the other one stands');

# A prepared transaction of the old holder is in the way, the holder keeps its lease.
sql($node, "BEGIN; SELECT fence.check('relay', $token); UPDATE stock SET qty = 42; PREPARE TRANSACTION 'leg'");
gives($node, "SELECT acquired, token, held_by, reason FROM fence.hand_over('relay', $token, 'y', '1 hour')", 'f|||busy',
	'a prepared transaction of the holder');
gives($node, q{SELECT holder, token, state FROM fence.leases}, "x|$token|held", '... nothing is handed over');
sql($node, q{COMMIT PREPARED 'leg'});
gives($node, "SELECT acquired, token FROM fence.hand_over('relay', $token, 'y', '1 hour')", 't|' . ($token + 1), '... until it is decided');
gives($node, 'SELECT qty FROM stock', 42, '... as it was decided');
$token++;

# Not after the lease: the gap would be there.
sql($node, q{UPDATE fence.resource SET expires_at = clock_timestamp()});
gives($node, "SELECT acquired, token, reason FROM fence.hand_over('relay', $token, 'z', '1 hour')", 'f||expired', 'nothing to hand over');
is(acquire($node, 'relay', 'rival'), $token + 1, '... a rival may have it now');

$_->quit foreach $old, $hand;
finish($node);
