# test/torture/guard against a server of its own: random writes of every kind, against a model.
# One session always makes the same statements, so that what fails is what has changed.
# FENCE_LONG: 100 000 others, which must take less than five minutes, then sessions for as long.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $node = fence_node('guard', conf => "track_commit_timestamp = on\nmax_connections = 50");

local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
local $ENV{PGDATABASE} = 'postgres';
my $guard = "$FindBin::RealBin/../torture/guard";

my %runs = (
	'one session' => [ '--statements', $FenceTest::long ? 100_000 : 40_000, '--seconds', 0 ],
	'sessions' => [ '--statements', 0, '--seconds', $FenceTest::long ? 300 : 12 ]);

foreach my $run (sort keys %runs)
{
	my ($out, $err);
	my $start = time;

	IPC::Run::run([ $^X, $guard, $FenceTest::long ? () : ('--seed', 2007), @{ $runs{$run} } ], '>', \$out, '2>', \$err);
	note $out, $err;
	is($? >> 8, 0, $run);
	like($out, qr/^0 violations$/m, '... is as the model says')
	  or diag $out, $err;
	under(time - $start, 300, '... in time') if $run eq 'one session';
}

finish($node);
