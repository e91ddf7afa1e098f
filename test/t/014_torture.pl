# test/torture/run against a server of its own: random sessions, then proof from their log.
# FENCE_LONG: minutes, with immediate restarts.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use IPC::Run;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = fence_node('torture', conf => "track_commit_timestamp = on\nmax_connections = 50");

local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
local $ENV{PGDATABASE} = 'postgres';
my $torture = "$FindBin::RealBin/../torture/run";

my @runs = ([ '--seconds', $FenceTest::long ? 300 : 20 ]);
my $again = sprintf q{pg_ctl -D '%s' -l '%s' -m immediate -w restart}, $node->data_dir, $node->logfile;
push @runs, [ '--seconds', $FenceTest::long ? 300 : 15, '--restart', $again ];

foreach my $run (@runs)
{
	my ($out, $err);

	IPC::Run::run([ $^X, $torture, @$run ], '>', \$out, '2>', \$err);
	note $out, $err;
	is($? >> 8, 0, "torture @$run[0, 1]" . (@$run > 2 ? ' with restarts' : ''));
	like($out, qr/^0 violations$/m, '... has proved what it set out to prove')
	  or diag $out, $err;
}

finish($node);
