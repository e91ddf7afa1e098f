
# Every SQL block of README.md runs, in order, in one database, and fails where the README
# says that it does: a statement that is refused ends in a comment with its SQLSTATE.

use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;
use FenceTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('readme');
my $readme = slurp_file("$FindBin::RealBin/../../README.md");
my $blocks = 0;

$node->init;
$node->append_conf('postgresql.conf', fence_conf($node));
$node->append_conf('postgresql.conf', fence_shared());
$node->start;

while ($readme =~ m{^( *)```sql\n(.*?)^ *```$}msg)
{
	my $block = $2;
	my @told = $block =~ /;\s*-- (\w{5})$/mg;
	my ($status, $stdout, $stderr);
	my ($first) = $block =~ /^(.*)$/m;

	$status = $node->psql(
		'postgres', $block,
		stdout => \$stdout,
		stderr => \$stderr,
		on_error_stop => 0,
		extra_params => [ '-v', 'VERBOSITY=sqlstate' ]);
	is(join(' ', $stderr =~ /ERROR: +(\w{5})$/mg), join(' ', @told), "block that starts with: $first");
	$blocks++;
}

cmp_ok($blocks, '>', 10, 'the README has SQL blocks');
finish($node);
